"""Calls the function that a Python program gave for each page, before the page's record is written.

So a page that is done has been handled: after a kill, a page whose record is missing is requested and handled again.
The function runs in a thread, one page at a time, while requests, heartbeats and flushes go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crawler.crawl.logs import log
from crawler.crawl.worker.counters import Counters
from crawler.frontier.task import Task
from crawler.store.store import Page

if TYPE_CHECKING:
    from crawler.crawl.handler import OnPage

MAX_HANDLED, MAX_BYTES = 64, 8 << 20  # pages, or bytes of their html, that may wait for it; then no more URLs are taken
MAX_TRACEBACKS = 5  # errors of a worker that are shown whole; later ones are for --verbose and --log-file


class Unwritten(NamedTuple):
    """The html of a page that is not in the store yet, for its Page."""

    html: bytes
    root: Path = Path()  # only text is handled, and that needs no file

    def text(self, url: str, record: object = None) -> str:
        """Return the html, as the store will."""
        return self.html.decode("utf-8", "replace")


class Handling:
    """The pages of one worker on their way through the user's function."""

    def __init__(self, on_page: OnPage, counters: Counters, note: Callable[[Task | None], None]) -> None:
        """`note` tells the supervisor which page to blame if the function kills this process."""
        self._on_page, self._counters, self._note = on_page, counters, note
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="on_page")
        self.count = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether so many pages wait that no more URLs may be taken."""
        return self.count >= MAX_HANDLED or self._bytes >= MAX_BYTES

    def begin(self, task: Task, record: dict[str, Any], html: bytes, then: Callable[[], None]) -> None:
        """Have the function called for a page, and call `then` on the loop after it."""
        self.count += 1
        self._bytes += len(html)
        own = {**record, "links": list(record["links"])}  # what the function does to it is not stored
        page = Page(task.url, own, Unwritten(html))
        called = asyncio.get_running_loop().run_in_executor(self._thread, self._call, task, page)
        called.add_done_callback(lambda done: self._end(done, len(html), then))

    def stop(self) -> None:
        """Call it for no more pages: the worker ends, and those that wait stay in the frontier."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _end(self, done: asyncio.Future[bool], size: int, then: Callable[[], None]) -> None:
        self.count -= 1
        self._bytes -= size
        if not done.cancelled():
            if not done.result():
                self._counters.add("handler_errors")
            then()

    def _call(self, task: Task, page: Page) -> bool:
        """Call the function in its thread; False if it raised something, which is logged."""
        self._note(task)
        try:
            self._on_page(page)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: no page may end the crawl
            self._log(page.url, error)
            return False
        finally:
            self._note(None)
        return True

    def _log(self, url: str, error: BaseException) -> None:
        extra = {"event": "on_page", "url": url, "reason": repr(error)}
        if self._counters["handler_errors"] < MAX_TRACEBACKS:
            log.error("on_page failed for %s: %r", url, error, exc_info=error, extra=extra)
        else:
            log.info("on_page failed for %s: %r", url, error, extra=extra)
