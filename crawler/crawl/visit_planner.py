"""The next visits of all pages after an edit of `recrawl`, planned by one machine while the crawl runs.

All supervisors see the edit, also those that start after it beside others. The one that gets the lock goes over all
records, in a thread of its own; the others wait, find that it is done, or are its heirs. If none of them comes to the
end, the next run plans all of them again.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from crawler.crawl.logs import log
from crawler.crawl.reload import MAX_HEARTBEAT
from crawler.errors import StoppedWaiting, StoreError
from crawler.fleet import members
from crawler.frontier import rehydrate
from crawler.settings.settings import Settings
from crawler.store.lock import StoreLock
from crawler.store.writer import StoreWriter

LOCK = ".recrawl-lock"
TAKEN_UP = (
    30.0  # heartbeats after which all machines use an edit: who does not yet would put the visits off or drop them
)
RETRY_INTERVAL = 5.0  # seconds, while the store is away


class VisitPlanner:
    """Plans the next visits of all pages, for one machine."""

    def __init__(self, store: StoreWriter) -> None:
        self._store = store
        self._ended = threading.Event()
        self._newest: Settings | None = None

    def plan(self, settings: Settings) -> None:
        """Plan them for these settings, and no longer for earlier ones."""
        self._newest = settings
        threading.Thread(target=self._run, args=(settings,), daemon=True, name="visits").start()

    def stop(self) -> None:
        """Plan no more: the machine has ended."""
        self._ended.set()

    def _run(self, settings: Settings) -> None:
        while not self._is_stopped(settings):
            try:
                with suppress(StoppedWaiting):  # also when another machine has done it
                    self._plan(settings)
                return
            except StoreError as error:
                log.debug("the next visits are not planned yet: %s", error)
                self._ended.wait(RETRY_INTERVAL)
            except Exception:  # noqa: BLE001 - else nobody would know why no page is visited
                log.exception("bug in the crawler: the next visits are not planned", extra={"event": "fault"})
                return

    def _is_stopped(self, settings: Settings) -> bool:
        return self._ended.is_set() or self._newest is not settings

    def _plan(self, settings: Settings) -> None:
        def is_stopped() -> bool:
            return self._is_stopped(settings)

        heartbeat = settings.heartbeat
        if rehydrate.is_scheduled(self._store, settings):
            return
        if len(members.look(self._store.files, settings, again=False).at_work) > 1:
            self._ended.wait(TAKEN_UP * min(heartbeat, MAX_HEARTBEAT))
        lock = StoreLock(self._store.files, heartbeat, settings.dead_after, LOCK)
        done = "planning the next visits of all pages"
        with lock.held(done, log.debug, lambda: is_stopped() or rehydrate.is_scheduled(self._store, settings)):
            rehydrate.schedule_all(self._store, settings, log.info, is_stopped)
