"""Reading what came: on the loop, or in a thread if it is very large; the page that is read now is known to all.

If reading it crashes or hangs the worker, the supervisor knows which page is to blame.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from crawler.frontier.task import Task
from crawler.settings.settings import LiveSettings, Settings
from crawler.store.clock import Clock
from crawler.store.records import build_record
from crawler.web import kinds, markup, sitemap
from crawler.web.page import PRIORITY, Fetched, Reading
from crawler.web.robots import token

LARGE_BODY = 1 << 20  # bytes: a larger page is read in a thread, one at a time, so that requests go on meanwhile

Args = ParamSpec("Args")
Result = TypeVar("Result")
Note = Callable[[Task | None, bool, int], object]


class Reader:
    """Reads pages and sitemaps."""

    def __init__(self, settings: LiveSettings, clock: Clock, note: Note = lambda task, is_large, size: None) -> None:
        """`note` is told which page is worked on, inline or as a large one: it is to blame for a crash."""
        self._settings, self._clock, self._note = settings, clock, note
        self._options = read_options(settings.now)
        self._large = ThreadPoolExecutor(1, thread_name_prefix="large")

    async def page(self, task: Task, response: Fetched) -> Reading:
        """4. Return what a page says; Unreadable if it cannot be parsed."""
        return await self._read(task, response, lambda: markup.read(response, self._options))

    async def sitemap(self, task: Task, response: Fetched) -> dict[str, Any]:
        """Return the record of a sitemap; Unreadable if it is none."""
        return await self._read(task, response, lambda: self._read_sitemap(task, response))

    async def _read(self, task: Task, response: Fetched, read: Callable[[], Result]) -> Result:
        """Call what reads a body: at once, or in a thread if it is very large."""
        size = len(response.body)
        if size <= LARGE_BODY:
            return self.noted(task, read)
        return await asyncio.get_running_loop().run_in_executor(self._large, self._read_large, task, read, size)

    def _read_large(self, task: Task, read: Callable[[], Result], size: int) -> Result:
        """Note the page that is read now, not those that wait for their turn in the thread."""
        self._note(task, True, size)
        try:
            return read()
        finally:
            self._note(None, True, 0)

    def noted(self, task: Task, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        """Make a call that works on strangers' bytes, on the loop: if it crashes or hangs, this page is to blame."""
        self._note(task, False, 0)
        try:
            return call(*args, **kwargs)
        finally:
            self._note(None, False, 0)

    def _read_sitemap(self, task: Task, response: Fetched) -> dict[str, Any]:
        found = sitemap.read(response.body, response.content_type, task.url, self._options.tracking)
        record = build_record(response, None, task.depth, found.links, self._clock.time())
        priorities = {"priorities": list(found.priorities)} if set(found.priorities) - {PRIORITY} else {}
        said = [round(found.modified[link]) if link in found.modified else None for link in found.links]
        lastmods = {"lastmods": said} if found.modified and self._settings.now.recrawl is not None else {}
        return record | {"capped": found.capped, "sitemap": found.kind} | priorities | lastmods


def read_options(settings: Settings) -> markup.Wants:
    """Return the settings that concern the reading of a page; images are links where images are kept."""
    images = ("img",) if kinds.admits_images(settings.content_types) else ()
    return markup.Wants(
        parser=settings.parser,
        follow=(*settings.follow, *images),
        nofollow=settings.nofollow,
        tracking=frozenset(settings.removed_parameters),
        token=token(settings.user_agent),
        links_in=settings.links_in or "",
        visible=settings.recrawl is not None,
        follow_match=settings.follow_match,
    )
