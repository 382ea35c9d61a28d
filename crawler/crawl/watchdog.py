"""The supervisor's watch on its workers: which of them run, but make no progress, or do not end when they are to.

A worker's event loop raises a counter on the scoreboard several times a second, whatever else it does; calls that may
block on the mount are made in threads, so a mount that hangs does not stop it. What does stop it is code that does not
return: a parser in C or a regular expression on hostile bytes. The thread that reads very large pages may hang alone,
while the loop goes on: there the sign of progress is that it is done with a page.

Not promised: a deadlock of coroutines, while the loop itself goes on, is not seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from crawler.crawl.scoreboard import Scoreboard
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock

TICK_INTERVAL = 0.2  # seconds between two signs of progress of a worker's event loop
LONGEST_LOOK = 1.0  # seconds that count at most between two looks: we may have been suspended, and the workers with us
HANDED_BACK = 5_000  # tasks for which a worker has one more second to end: it hands them back
LARGE_PART = 1 << 20  # bytes of a large page for which the reading thread has as long as the loop has in all


def longest_silence(settings: Settings) -> float:
    """Return the seconds without progress after which a worker is killed.

    A code that does not return often keeps Python's lock, so that the heartbeat stops, too. The worker must be dead,
    and the page to blame known, before other machines take over its shards: they count from its last heartbeat, which
    may be older than the hang by one interval.
    """
    return settings.dead_after - 2 * settings.heartbeat


def longest_stop(settings: Settings, tasks: int) -> float:
    """Return the seconds after which a worker with so many tasks is killed if it was told to end.

    What is in flight may take `timeout`; then its results are written and its shards released. On a mount where that
    takes longer, the results are worth less than an end: they are requested again, as after any kill.
    """
    return settings.timeout + 2 * settings.dead_after + tasks / HANDED_BACK


@dataclass(slots=True)
class _Sign:
    """A sign of progress, and for how long it has not changed while we looked."""

    last: int = 0
    still: float = 0.0

    def look(self, now: int, passed: float) -> float:
        """Return the seconds without a change."""
        self.still = 0.0 if now != self.last else self.still + passed
        self.last = now
        return self.still


class Watchdog:
    """Tells which workers hang, by the scoreboard and our own clock."""

    def __init__(self, scoreboard: Scoreboard, seconds: float, clock: Clock = SYSTEM) -> None:
        """`seconds` is how long a worker may go without progress."""
        self._scoreboard, self.seconds, self._clock = scoreboard, seconds, clock
        self._looked = clock.monotonic()
        self._draining = 0.0  # seconds since the workers were told to end
        self._loops: dict[int, _Sign] = {}
        self._large: dict[int, _Sign] = {}

    def begin(self, row: int) -> None:
        """Watch a new worker: from its first sign of progress, because a mount may delay its start."""
        self._scoreboard.set(row, "ticks", 0)
        self._loops[row], self._large[row] = _Sign(), _Sign()

    def look(self, rows: Collection[int]) -> list[int]:
        """Return those of the running workers that hang; to be called all the time."""
        now = self._clock.monotonic()
        passed, self._looked = min(now - self._looked, LONGEST_LOOK), now
        self._draining += passed if self._scoreboard.draining else 0.0
        return [row for row in rows if self._hangs(row, passed)]

    def overdue(self, rows: Collection[int], settings: Settings) -> list[int]:
        """Return those of the running workers that have not ended in time; to be called after `look`."""
        board = self._scoreboard
        return [row for row in rows if self._draining > longest_stop(settings, board.get(row, "tasks"))]

    def _hangs(self, row: int, passed: float) -> bool:
        """Tell whether a worker's loop, or its thread for large pages, has stopped."""
        board = self._scoreboard
        ticks = board.get(row, "ticks")
        still = self._loops[row].look(ticks, passed if ticks or board.draining else 0.0)
        pages = board.get(row, "large_pages")  # grows when one is begun and when it is done
        reading = self._large[row].look(pages, passed if pages % 2 else 0.0)
        parts = 1 + board.get(row, "large_bytes") // LARGE_PART
        return still > self.seconds or reading > self.seconds * parts
