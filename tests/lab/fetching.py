"""Requests outside any crawl, for tests that are no coroutines."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from crawler.fetch.fetcher import Fetcher
from crawler.fetch.request import FetchOptions
from crawler.web import urls
from crawler.web.page import Failure, Fetched


class BlockingFetcher:
    """A fetcher on an event loop of its own; any number of threads may call it."""

    def __init__(self, options: FetchOptions) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.fetcher = Fetcher(options)

    def get(self, url: str, **more: Any) -> Fetched | Failure:
        """Send one request and wait for its result."""
        return asyncio.run_coroutine_threadsafe(self.fetcher.get(url, **more), self._loop).result()

    def close_idle(self) -> None:
        self._call(self.fetcher.close_idle)

    def close(self) -> None:
        """Close the connections and end the loop; a second call does nothing."""
        if self._thread.is_alive():
            self._call(self.fetcher.close)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, call: Any) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(lambda: (call(), done.set()))
        done.wait()


def get(url: str, **options: Any) -> Fetched | Failure:
    """Send one request; takes the fields of FetchOptions by name."""
    fetcher = BlockingFetcher(FetchOptions(**options))
    try:
        return fetcher.get(urls.normalize(url) or url)
    finally:
        fetcher.close()
