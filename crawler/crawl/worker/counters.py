"""What a worker counts: pages, failures and the like, its rate over the last minute, and the last hour by minutes."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from crawler.crawl.scoreboard import LOOKUPS, Scoreboard
from crawler.store.clock import Clock
from crawler.web import reasons

REVISITS = ("revisits", "unchanged", "changed")
COUNTED = ("pages", "redirects", "sitemaps", "retries", "bytes", *REVISITS, *reasons.KINDS, "handler_errors", *LOOKUPS)
MINUTE = 60.0


class Counters:
    """The counts of one worker, which the supervisor sees on the scoreboard."""

    def __init__(self, scoreboard: Scoreboard, row: int, clock: Clock) -> None:
        self._scoreboard, self._row, self._clock = scoreboard, row, clock
        self._base = {name: scoreboard.get(row, name) for name in COUNTED}  # of workers that died in this row
        self._counts: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._visit_rates = {name: RecentRate(clock.monotonic()) for name in REVISITS}
        self._rate, self._minutes = RecentRate(clock.monotonic()), Minutes(clock.monotonic())

    def __getitem__(self, name: str) -> int:
        return self._counts[name]

    def add(self, name: str, more: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] += more
        self._scoreboard.set(self._row, name, self._base[name] + self._counts[name])

    def add_failure(self, reason: str) -> None:
        """Count a failure record."""
        self._failures[reason] += 1
        self.add(reasons.kind(reason))

    def drop_failure(self, reason: str) -> None:
        """Count a failure record that was removed, by its reason."""
        self._failures[reason] -= 1

    def facts(self, waiting: int) -> dict[str, Any]:
        """Return the counts, the rate and the last hour, for `workers/`."""
        now, pages = self._clock.monotonic(), self._counts["pages"]
        return {
            **{name: self._counts[name] for name in ("pages", "redirects", "sitemaps", "retries", "bytes", *REVISITS)},
            "reasons": dict(self._failures),
            "rate": self._rate.note(pages, now),
            **{f"{name}_rate": rate.note(self._counts[name], now) for name, rate in self._visit_rates.items()},
            "minutes": self._minutes.note((pages, waiting), now),
        }


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
