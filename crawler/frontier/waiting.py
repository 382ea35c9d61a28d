"""What a worker's waiting URLs wait for, and which of its hosts take longest; of very many, some at a time.

Each look at the table holds up the visitors, so one that took long is followed by a long time without any.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from crawler import settings as config
from crawler.frontier.table import BUSY, RESTING, Queue, Table
from crawler.settings import Settings

TURN, PAUSE = "turn", "pause"  # a host is due: its URLs wait for a visitor, or for an operator's word
SOME = 2000  # hosts at a time
TOLD = 10  # hosts that are named
SELDOM = 300  # times as long as it took passes until the next look: a million URLs of one host take 0.2 s to count


@dataclass(slots=True)
class Round:
    """What was seen in one walk over all hosts, by name; `after` is the last we have come by."""

    after: str = ""
    held: Counter[str] = field(default_factory=Counter)
    slowest: list[Queue] = field(default_factory=list)


class Survey:
    """What a worker tells of its hosts: from the last whole round, or the first as far as it has come."""

    def __init__(self, table: Table, settings: Settings) -> None:
        self._table, self._settings = table, settings
        self.is_sought: Callable[[str], bool] = lambda host: False  # whether a host's robots.txt is still looked for
        self._hosts: dict[str, Any] = {}
        self._retries = 0
        self._last: Round | None = None
        self._round = Round()
        self._next_count = self._next_walk = 0.0
        self._lock = threading.Lock()  # who flushes and who shows the pulse both ask

    def adopt(self, settings: Settings) -> None:
        """Go by these settings from now on: crawl.yaml was edited."""
        self._settings = settings

    def facts(self, due: str = TURN, afresh: bool = False) -> dict[str, Any]:
        """How many hosts have work, the busiest and the slowest of them, and what waiting URLs wait for.

        `due` is what those wait for whose host is due; `afresh` looks now.
        """
        with self._lock:
            return self._facts(due, afresh)

    def _facts(self, due: str, afresh: bool) -> dict[str, Any]:
        if afresh or time.monotonic() >= self._next_count:
            self._next_count = _much_later(self._count)
        if afresh or time.monotonic() >= self._next_walk:
            self._next_walk = _much_later(self._walk)
        seen = self._last or self._round
        slowest = [(q.host, q.waiting, round(self._pace(q), 2), round(q.strain, 2)) for q in seen.slowest]
        return {**self._hosts, "slowest": slowest, "waiting_for": self._held(seen.held, due)}

    def _count(self) -> None:
        self._hosts = {"hosts": self._table.hosts(), "busiest": self._table.busiest(TOLD)}
        self._retries = self._table.retries()

    def _walk(self) -> None:
        """Come by the next hosts; after the last of them the next round begins."""
        now, seen = time.monotonic(), self._round
        found = self._table.queues(seen.after, SOME)
        queues = [queue for queue in found if queue.waiting]
        for queue in queues:
            seen.held[self._reason(queue, now)] += queue.waiting
        seen.slowest = heapq.nlargest(TOLD, seen.slowest + queues, key=self._seconds)
        if len(found) == SOME:
            seen.after = found[-1].host
        else:
            self._last, self._round = seen, Round()

    def _reason(self, queue: Queue, now: float) -> str:
        """What the URLs of a host wait for."""
        if self.is_sought(queue.host):
            return "robots"
        if queue.state == BUSY or (queue.state == RESTING and queue.due > now):
            return "strain" if queue.strain else "delay"
        return TURN

    def _seconds(self, queue: Queue) -> tuple[float, int]:
        """How long a host takes at its pace, or how much waits there where it needs none."""
        return queue.waiting * self._pace(queue), queue.waiting

    def _pace(self, queue: Queue) -> float:
        return config.delay_for(self._settings, queue.host) if queue.pace is None else queue.pace

    def _held(self, seen: Counter[str], due: str) -> dict[str, int]:
        """How many URLs wait for what: of all that wait now, the parts that were seen."""
        in_flight, total = self._table.taken, seen.total()
        rest = max(self._table.waiting - in_flight - self._retries, 0)
        parts = {due if reason == TURN else reason: round(count * rest / total) for reason, count in seen.items()}
        held = {"in_flight": in_flight, "retry": self._retries, **parts}
        return {reason: count for reason, count in held.items() if count}


def _much_later(call: Callable[[], None]) -> float:
    """Call it, and tell when to do so again."""
    began = time.monotonic()
    call()
    return began + SELDOM * (time.monotonic() - began)
