"""Pin each worker to one CPU core.

A worker's threads share the interpreter lock, so only one runs at a time. Spread over cores, they spent a quarter of
their time passing the lock and their cached data from core to core. A pinned process is not moved off a busy core by
the kernel, so the worker checks for contention itself.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from time import monotonic

CONTENDED = 0.5  # fraction of our runnable time spent waiting for the core


class Core:
    """The core that a worker is pinned to; does nothing where the system has no CPU affinity."""

    interval = 20.0  # seconds between checks

    def __init__(self, row: int, machine: str) -> None:
        """Spread the workers of one machine over its cores; the first core depends on the machine's id."""
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._ran, self._waited = _times()
        self._next_check = monotonic() + self.interval
        if len(self._cores) > 1:
            self._move(self._cores[(int(machine, 16) + row) % len(self._cores)])

    def check(self) -> None:
        """Move to another core if this one is contended."""
        if monotonic() < self._next_check:
            return
        self._next_check = monotonic() + self.interval
        ran, waited = _times()
        busy, waiting = ran - self._ran, waited - self._waited
        self._ran, self._waited = ran, waited
        if len(self._cores) > 1 and waiting > CONTENDED * (busy + waiting):
            self._move(random.choice([core for core in self._cores if core != self.number]))

    def _move(self, number: int) -> None:
        self.number = number
        for thread in _threads():
            with suppress(OSError):  # the thread has ended, or we may not change its affinity
                os.sched_setaffinity(int(thread.name), {number})


def _threads() -> list[Path]:
    with suppress(OSError):
        return list(Path("/proc/self/task").iterdir())
    return []


def _times() -> tuple[int, int]:
    """Return the nanoseconds that our threads ran, and those that they were runnable but waited for a core."""
    found = (0, 0)
    for thread in _threads():
        with suppress(OSError, ValueError):
            ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
            found = found[0] + ran, found[1] + waited
    return found
