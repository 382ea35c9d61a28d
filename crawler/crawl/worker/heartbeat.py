"""A worker's heartbeat: a thread of its own, so that a page that is long in reading does not silence the worker.

It asks the event loop for the counters and whether the worker is idle. If the loop does not answer in time, the worker
is busy, and the last counters are shown.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

from crawler.crawl.logs import log
from crawler.crawl.worker.ending import LATER, MARKED_DEAD, NO_HEARTBEAT, OVER, Ending
from crawler.crawl.worker.upkeep import Upkeep
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.fleet.shards import Shards
from crawler.store.clock import Clock

ASK_SECONDS = 0.5  # for the loop to answer
POLL_INTERVAL = 0.02  # seconds between checks whether a heartbeat is due

Report = tuple[dict[str, Any], str]  # the counters, and the mark of an idle worker


class HeartbeatThread:
    """Shows heartbeats from when it starts until the worker ends."""

    def __init__(self, upkeep: Upkeep, shards: Shards, ending: Ending, clock: Clock) -> None:
        self._upkeep, self._shards, self._ending, self._clock = upkeep, shards, ending, clock
        self._thread = threading.Thread(target=self._run, daemon=True, name="heartbeat")
        self._last: Report = ({}, "")

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._last = self._upkeep.report()
        self._thread.start()

    async def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, which it does when the worker is closed."""
        await asyncio.to_thread(self._thread.join, seconds)

    def _run(self) -> None:
        """Show heartbeats; whatever ends this thread ends the worker, which could not work without it."""
        try:
            self._show_heartbeats()
        except BaseException as error:  # noqa: BLE001 - nobody else would see it
            message = "bug in the crawler: the heartbeat thread ended (%r); this worker is replaced"
            log.error(message, error, exc_info=True, extra={"event": "fault"})
        finally:
            if not self._ending.closed:
                self._ending.end(NO_HEARTBEAT)

    def _show_heartbeats(self) -> None:
        last = self._clock.monotonic()
        while not (self._ending.closed or self._ending.outcome == MARKED_DEAD):
            if self._clock.monotonic() - last < self._upkeep.beat_interval():
                self._clock.sleep(POLL_INTERVAL)
                continue
            last = self._clock.monotonic()
            try:
                self.beat(*self._ask_loop())
            except (StoreAway, DiskFull) as error:
                log.debug("heartbeat not written: %s", error)
            except StoreError as error:
                self._ending.fail(error)
            except Exception:  # noqa: BLE001 - without a heartbeat, this worker would neither work nor end
                log.exception("bug in the crawler: the heartbeat failed", extra={"event": "fault"})

    def _ask_loop(self) -> Report:
        """Return the worker's report; if the loop is too busy to answer, the last counters, and no sign of idleness."""
        answer: Future[Report] = Future()

        def ask() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(self._upkeep.report())
                except Exception as error:  # noqa: BLE001 - for the thread that waits for it
                    answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(ask)
            self._last = answer.result(ASK_SECONDS)
            return self._last
        except (TimeoutError, RuntimeError):  # RuntimeError: the loop is closed
            answer.cancel()
            return self._last[0], ""

    def beat(self, counters: dict[str, Any], mark: str) -> None:
        """Show one heartbeat, do what operators have ordered, and notice the end of the crawl."""
        if not self._shards.beat(counters, mark):
            log.warning("this worker showed no heartbeat for too long and was declared dead; restarting it")
            self._ending.outcome = MARKED_DEAD
            return
        is_paused = self._upkeep.obey_operator()
        if not mark or is_paused or self._upkeep.forever:
            return
        if self._shards.all_is_done() or self._shards.others_proved_the_end():
            self._ending.end(LATER if self._shards.has_later() else OVER)
