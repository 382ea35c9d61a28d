"""Simulated time: an event loop that never sleeps. Where it would wait for a timer, its clock jumps to that timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from crawler.crawl.worker.heartbeat import POLL_INTERVAL
from crawler.crawl.worker.worker import Worker
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.store.clock import Clock

EPOCH = 1_700_000_000.0

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    """Moves the clock of its loop instead of waiting."""

    loop: SimulatedLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("nothing will ever happen: the loop waits, and has no timer")
        if not ready and timeout:
            self.loop.now += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own. Not for threads: what they do takes no simulated time."""

    def __init__(self) -> None:
        self.now = 1000.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now


class Simulation:
    """A simulated loop, and the clock to be given to those who run on it."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        self.clock = Clock(monotonic=self.loop.time, time=lambda: EPOCH + self.loop.time())

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end, and cancel what it leaves behind."""
        try:
            return self.loop.run_until_complete(coroutine)
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left))

    def close(self) -> None:
        self.loop.close()


class LoopHeartbeat:
    """A worker's heartbeat on its loop, in place of the thread: in simulated time nothing blocks the loop."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._thread = worker, worker.heartbeat
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def wait(self, seconds: float) -> None:
        assert self._running is not None
        await self._running

    async def _run(self) -> None:
        worker, last = self._worker, self._worker.clock.monotonic()
        while not worker.ending.closed:
            await asyncio.sleep(POLL_INTERVAL)
            if worker.clock.monotonic() - last >= worker.upkeep.beat_interval():
                last = worker.clock.monotonic()
                try:
                    self._thread.beat(*worker.upkeep.report())
                except (StoreAway, DiskFull):
                    continue
                except StoreError as error:
                    worker.ending.fail(error)
