"""A core for each worker. Its threads run one at a time, for they share the interpreter's lock; where they are spread
over cores, handing that lock and all they have in their caches from core to core takes a quarter of a worker's time.

The kernel would move a worker away from a core that others keep busy. Since it may not, the worker looks for itself.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path
from time import monotonic

CROWDED = 0.5  # part of the time in which we could run that we had to wait for others


class Core:
    """The core that a worker keeps to; none where the system does not let it choose."""

    interval = 20.0  # seconds between two looks

    def __init__(self, row: int, machine: str) -> None:
        """Workers of one machine are on cores of their own, as far as there are any; those of others on any."""
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        self._ran, self._waited = _times()
        self._next_look = monotonic() + self.interval
        if len(self._cores) > 1:
            self._move(self._cores[(int(machine, 16) + row) % len(self._cores)])

    def look(self) -> None:
        """Move to another core if this one is crowded."""
        if monotonic() < self._next_look:
            return
        self._next_look = monotonic() + self.interval
        ran, waited = _times()
        busy, waiting = ran - self._ran, waited - self._waited
        self._ran, self._waited = ran, waited
        if len(self._cores) > 1 and waiting > CROWDED * (busy + waiting):
            self._move(random.choice([core for core in self._cores if core != self.number]))

    def _move(self, number: int) -> None:
        self.number = number
        for thread in _threads():
            with suppress(OSError):  # it has ended; or we may not choose, and stay where the kernel has us
                os.sched_setaffinity(int(thread.name), {number})


def _threads() -> list[Path]:
    with suppress(OSError):
        return list(Path("/proc/self/task").iterdir())
    return []


def _times() -> tuple[int, int]:
    """Nanoseconds in which our threads have run, and in which they could have run but waited for a core."""
    found = (0, 0)
    for thread in _threads():
        with suppress(OSError, ValueError):
            ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
            found = found[0] + ran, found[1] + waited
    return found
