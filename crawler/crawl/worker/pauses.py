"""Why a worker sends no requests for a while: the store is away, its disk is full, or files cannot be opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from crawler.crawl.resources import RESUME_FACTOR, can_open, files_for, shortage
from crawler.crawl.scoreboard import DESCRIPTORS, PAUSES, SPACE, STORE_AWAY, Scoreboard
from crawler.crawl.worker.ending import Ending, Stopped
from crawler.errors import DiskFull, NoDescriptors, StoreAway
from crawler.settings.settings import LiveSettings
from crawler.store.clock import Clock
from crawler.store.mount import Io
from crawler.store.store import Store

RETRY_INTERVAL = 0.5  # seconds until the store is tried again

Args = ParamSpec("Args")
Result = TypeVar("Result")


@dataclass(slots=True)
class Pause:
    """A reason to send no requests; `kind` is one of `scoreboard.PAUSES`."""

    kind: str
    reason: str
    is_over: Callable[[], bool]
    checked: float  # when it was last found to be true
    blocked_since: float | None = None  # since when a read or write of the store has failed because of it


class Pauses:
    """The reasons why a worker sends no requests now; the supervisor logs each once for all its workers."""

    def __init__(
        self,
        store: Store,
        settings: LiveSettings,
        scoreboard: Scoreboard,
        row: int,
        ending: Ending,
        clock: Clock,
        io: Io,
    ) -> None:
        self._store, self._files, self._settings = store, store.files, settings
        self._scoreboard, self._row, self._ending = scoreboard, row, ending
        self._clock, self._io = clock, io
        self._pauses: dict[str, Pause] = {}
        self._next_space_check = 0.0
        for kind in PAUSES:
            scoreboard.set_pause(row, kind, "")  # left by a worker that died in this row

    @property
    def kinds(self) -> list[str]:
        """The kinds of the present pauses."""
        return list(self._pauses)

    @property
    def reasons(self) -> dict[str, str]:
        """The reason of each pause, by kind."""
        return {kind: pause.reason for kind, pause in self._pauses.items()}

    async def until_store_answers(
        self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Make a call that touches the store until it answers; raise Stopped if the worker ends meanwhile."""
        while True:
            try:
                return await self._io(call, *args, **kwargs)
            except (StoreAway, DiskFull) as error:
                await self.wait_after(error)
                if self._ending.closed or self._ending.draining:
                    raise Stopped from error

    async def wait_after(self, error: StoreAway | DiskFull) -> None:
        """Pause requests because of an error of the store, and wait a little."""
        self.note(error, is_blocked=True)
        await asyncio.sleep(RETRY_INTERVAL)

    def note(self, error: StoreAway | DiskFull, is_blocked: bool = False) -> None:
        """Pause requests because of an error; `is_blocked` if it keeps something from being read or written."""
        if isinstance(error, DiskFull):
            self._add(SPACE, f"{error}; waiting for space", self._has_space, is_blocked)
        elif isinstance(error, NoDescriptors):
            advice = "" if "ulimit" in str(error) else "; raise `ulimit -n`, or lower --concurrency"
            self._add(DESCRIPTORS, f"{error}{advice}", self._can_open, is_blocked)
        else:
            self._add(STORE_AWAY, str(error), self._store.exists, is_blocked)

    def _add(self, kind: str, reason: str, is_over: Callable[[], bool], is_blocked: bool = False) -> None:
        now = self._clock.monotonic()
        pause = self._pauses.setdefault(kind, Pause(kind, reason, is_over, now))
        pause.checked = now
        if is_blocked:
            pause.blocked_since = pause.blocked_since or now
        self._scoreboard.set_pause(self._row, kind, pause.reason)

    async def check_space(self) -> None:
        """Pause while there is still space for heartbeats, batches and records."""
        if SPACE in self._pauses or self._clock.monotonic() < self._next_space_check:
            return
        self._next_space_check = self._clock.monotonic() + self._settings.now.heartbeat
        reason = await self._io(shortage, self._files, self._settings.now)
        if reason:
            self._add(SPACE, reason, self._has_space)

    async def end_those_over(self) -> None:
        """End the pauses that are over; one that a visit ran into just now is not."""
        for pause in list(self._pauses.values()):
            if self._clock.monotonic() - pause.checked > 2 * RETRY_INTERVAL:
                pause.checked = self._clock.monotonic()
                if await self._io(pause.is_over):
                    self._pauses.pop(pause.kind, None)
                    self._scoreboard.set_pause(self._row, pause.kind, "")

    def blocked_for(self) -> float:
        """Return for how many seconds reads or writes of the store have failed; 0 if they do not."""
        since = [pause.blocked_since for pause in self._pauses.values() if pause.blocked_since]
        return self._clock.monotonic() - min(since) if since else 0.0

    def _has_space(self) -> bool:
        """Whether there is space again: by the free counts, with some to spare, and by a write that succeeds."""
        return not shortage(self._files, self._settings.now, RESUME_FACTOR) and self._files.has_room()

    def _can_open(self) -> bool:
        """Whether the files for all requests can be opened, at the same time."""
        self._files.directories.close_kept()
        return can_open(files_for(self._scoreboard.concurrency))
