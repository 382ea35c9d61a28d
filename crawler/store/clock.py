"""The time, passed in wherever it matters, so that a test or a simulation decides what time it is."""

from __future__ import annotations

import time as system
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """What the program may know of time."""

    monotonic: Callable[[], float] = system.monotonic  # seconds that only grow, for durations on this machine
    time: Callable[[], float] = system.time  # seconds since 1970, for what is stored and shown
    sleep: Callable[[float], None] = system.sleep


SYSTEM = Clock()
