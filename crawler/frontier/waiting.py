"""Why a worker's URLs are waiting, and which of its hosts take longest; where there are many hosts, some at a time.

Each query holds up the requests of the worker, so after one that took long there is none for a long time.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crawler.frontier.hosts import Queue
from crawler.frontier.table import Table
from crawler.settings import settings as config
from crawler.settings.settings import Settings
from crawler.store.clock import Clock

TURN, PAUSE = "turn", "pause"  # a host is due: its URLs wait for their turn, or until an operator resumes
HOSTS_AT_ONCE = 2000
HOSTS_NAMED = 10  # the slowest and the busiest
PAUSE_FACTOR = 300  # the next query waits so many times its duration: counting a million URLs takes 0.2 s


@dataclass(slots=True)
class Round:
    """What one pass over all hosts, by name, has counted; `after` is the last host so far."""

    after: str = ""
    held: Counter[str] = field(default_factory=Counter)
    slowest: list[Queue] = field(default_factory=list)


class Survey:
    """What a worker reports of its hosts: from the last complete pass, or the first as far as it got."""

    def __init__(
        self,
        table: Table,
        settings: Settings,
        clock: Clock,
        is_sought: Callable[[str], bool] = lambda host: False,
        is_held: Callable[[str], bool] = lambda host: False,
    ) -> None:
        """`is_sought` tells whether a host waits for its robots.txt, `is_held` whether for a turn at its address."""
        self._table, self._settings, self._clock, self._is_sought = table, settings, clock, is_sought
        self._is_held = is_held
        self._hosts: dict[str, Any] = {}
        self._freshness: dict[str, int] = {}
        self._retries = 0
        self._last: Round | None = None
        self._round = Round()
        self._next_count = self._next_walk = 0.0

    def adopt(self, settings: Settings) -> None:
        """Use edited settings from now on."""
        self._settings = settings

    def facts(self, due: str = TURN, afresh: bool = False) -> dict[str, Any]:
        """Return how many hosts have work, the busiest and the slowest of them, and why URLs are waiting.

        `due` is the reason for those whose host is due; `afresh` queries now.
        """
        if afresh or self._clock.monotonic() >= self._next_count:
            self._next_count = self._run_rarely(self._count)
        if afresh or self._clock.monotonic() >= self._next_walk:
            self._next_walk = self._run_rarely(self._walk)
        seen = self._last or self._round
        slowest = [(q.host, q.waiting, round(self._pace(q), 2), round(q.strain, 2)) for q in seen.slowest]
        return {**self._hosts, **self._freshness, "slowest": slowest, "waiting_for": self._held(seen.held, due)}

    def _count(self) -> None:
        self._hosts = {"hosts": self._table.count_hosts(), "busiest": self._table.busiest(HOSTS_NAMED)}
        self._retries = self._table.retries()
        self._freshness = self._table.freshness(self._clock.monotonic()) if self._table.revisits else {}

    def _walk(self) -> None:
        """Count some more hosts; after the last one the next pass begins."""
        now, seen = self._clock.monotonic(), self._round
        found = self._table.queues(seen.after, HOSTS_AT_ONCE)
        queues = [queue for queue in found if queue.waiting]
        for queue in queues:
            seen.held[self._reason(queue, now)] += queue.waiting
        seen.slowest = heapq.nlargest(HOSTS_NAMED, seen.slowest + queues, key=self._seconds)
        if len(found) == HOSTS_AT_ONCE:
            seen.after = found[-1].host
        else:
            self._last, self._round = seen, Round()

    def _reason(self, queue: Queue, now: float) -> str:
        """Return why the URLs of a host are waiting."""
        if queue.due > now and self._is_held(queue.host):
            return "address"
        if self._is_sought(queue.host):
            return "robots"
        if queue.busy or queue.due > now:
            return "strain" if queue.strain else "delay"
        return TURN

    def _seconds(self, queue: Queue) -> tuple[float, int]:
        """Return how long a host takes at its pace, and how many URLs wait there."""
        return queue.waiting * self._pace(queue), queue.waiting

    def _pace(self, queue: Queue) -> float:
        return config.delay_for(self._settings, queue.host) if queue.pace is None else queue.pace

    def _held(self, seen: Counter[str], due: str) -> dict[str, int]:
        """Return how many URLs wait for what: all that wait now, in the proportions of the last pass."""
        in_flight, total = self._table.taken, seen.total()
        rest = max(self._table.waiting - self._freshness.get("fresh", 0) - in_flight - self._retries, 0)
        parts = {due if reason == TURN else reason: round(count * rest / total) for reason, count in seen.items()}
        held = {"in_flight": in_flight, "retry": self._retries, **parts}
        return {reason: count for reason, count in held.items() if count}

    def _run_rarely(self, call: Callable[[], None]) -> float:
        """Call it, and return when to do so again."""
        began = self._clock.monotonic()
        call()
        return began + PAUSE_FACTOR * (self._clock.monotonic() - began)
