"""How a worker's counts change: its rate over the last minute, and where they stood in the last hour."""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class RecentRate:
    """How many a second over about the last minute, from a count that only grows; the clock is passed in."""

    def __init__(self, now: float) -> None:
        self._seen = deque([(now, 0)])

    def note(self, count: int, now: float) -> float:
        """Take in the count as it is now, and return the rate."""
        if now - self._seen[-1][0] >= 1:
            self._seen.append((now, count))
        while len(self._seen) > 1 and now - self._seen[1][0] >= MINUTE:
            self._seen.popleft()
        then, old = self._seen[0]
        return round((count - old) / max(now - then, 1.0), 2)


class Minutes:
    """The counts at each full minute of the last hour, the oldest first; the clock is passed in."""

    def __init__(self, now: float) -> None:
        self._next = now + MINUTE
        self._counts: deque[tuple[int, ...]] = deque(maxlen=60)

    def note(self, counts: tuple[int, ...], now: float) -> list[tuple[int, ...]]:
        """Take in the counts as they are now, and return those of the last hour."""
        while now >= self._next:
            self._counts.append(counts)
            self._next += MINUTE
        return list(self._counts)
