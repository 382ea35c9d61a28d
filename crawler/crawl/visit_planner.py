"""The next visits of all pages after an edit of `recrawl`, planned by one machine while the crawl runs.

A run that finds no worker at work plans them before it starts its own. Otherwise all supervisors see the edit, and the
one that gets the lock goes over all records, in a thread of its own; the others wait, find that it is done, or are its
heirs. If none of them comes to the end, the next run plans all of them again.

Each supervisor notes that nothing is planned (`rehydrate.unschedule`) before its workers go by an edit. So one that
takes it up later than the others, or an edit that is undone, has all visits planned again: its workers may have dropped
some meanwhile.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from crawler.crawl.logs import log
from crawler.crawl.reload import MAX_HEARTBEAT
from crawler.crawl.whole import is_in_use
from crawler.errors import StoppedWaiting, StoreError
from crawler.fleet.control import STOP
from crawler.frontier import rehydrate
from crawler.settings.settings import Settings
from crawler.store.lock import StoreLock
from crawler.store.writer import StoreWriter

LOCK = ".recrawl-lock"
DOING = "planning the next visits of all pages"
# Heartbeats after which all workers, also our own, go by an edit and have written what they planned before it: who does
# not yet would put the visits off or drop them, and a record that comes after us would have no next visit.
TAKEN_UP = 30.0
RETRY_INTERVAL = 5.0  # seconds, while the store is away
STOP_TIMEOUT = 5.0  # seconds that a machine waits for its planner, so that no lock is left


def plan_at_start(store: StoreWriter, settings: Settings, me: str, show: rehydrate.Show) -> None:
    """Plan them before our workers start, unless others are at work: then see `VisitPlanner`.

    Of machines that start together one does it, and the others wait. Left to their planners, it might never be done: a
    crawl with nothing else to do is over before all of them surely go by an edit.
    """
    if rehydrate.is_scheduled(store, settings):
        return
    rehydrate.unschedule(store, but_for=settings)
    if is_in_use(store, settings):
        return

    def is_stopped() -> bool:
        return rehydrate.is_scheduled(store, settings) or store.files.get(f"workers/{me}{STOP}") is not None

    with suppress(StoppedWaiting), _lock(store, settings).held(DOING, show, is_stopped):
        rehydrate.schedule_all(store, settings, show)


def _lock(store: StoreWriter, settings: Settings) -> StoreLock:
    return StoreLock(store.files, settings.heartbeat, settings.dead_after, LOCK)


class VisitPlanner:
    """Plans the next visits of all pages, for one machine."""

    def __init__(self, store: StoreWriter) -> None:
        self._store = store
        self._ended = threading.Event()
        self._newest: Settings | None = None
        self._thread: threading.Thread | None = None

    def unschedule(self) -> bool:
        """Note that nothing is planned, before our workers go by an edit; False if the machine ended before it was."""
        while not self._ended.is_set():
            try:
                rehydrate.unschedule(self._store)
                return True
            except StoreError as error:
                log.debug("the edit is not taken up yet: %s", error)
                self._ended.wait(RETRY_INTERVAL)
        return False

    def plan(self, settings: Settings) -> None:
        """Plan them for these settings, and no longer for earlier ones."""
        self._newest = settings
        self._thread = threading.Thread(target=self._run, args=(settings,), daemon=True, name="visits")
        self._thread.start()

    def stop(self) -> None:
        """Plan no more: the machine has ended."""
        self._ended.set()
        if self._thread:
            self._thread.join(STOP_TIMEOUT)

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

        if rehydrate.is_scheduled(self._store, settings):
            return
        self._ended.wait(TAKEN_UP * min(settings.heartbeat, MAX_HEARTBEAT))
        lock = _lock(self._store, settings)
        with lock.held(DOING, log.debug, lambda: is_stopped() or rehydrate.is_scheduled(self._store, settings)):
            rehydrate.schedule_all(self._store, settings, log.info, is_stopped)
