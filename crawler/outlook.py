"""What watchers see: how a crawl stands now, and how it went while somebody looked. For `top` and `serve`.

A look costs what the workers' names and small files cost, and only those are read that are new; pages are never walked.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import cached_property
from typing import Any

from crawler import report
from crawler.config import Settings
from crawler.roster import ALIVE, Facts, Memory, Roster, look
from crawler.store import Store

SHOWN = 10  # hosts of a kind
SELDOM = 30.0  # seconds between two counts of what waits where nobody is at work: it takes a listing for each shard


class Outlook:
    """A store as one sees it who looks again and again; not for two threads at once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.history = History()
        self._memory = Memory()
        self._waiting = 0
        self._next_count = 0.0

    def look(self, again: bool = False) -> dict[str, Any]:
        """How the crawl stands, as a JSON value: all that `report.status` tells, and

        `when`: now, in seconds since 1970; `history`: points of `t`, `pages`, `rate` and `waiting`, the oldest first;
        `hosts`: the busiest, and `slowest`: those with the most before them, each as `host`, `pages`, `waiting`,
        `delay` (seconds between two requests) and `strain`, None where it is not known; `free`: `bytes` and `inodes`.
        """
        roster = look(self.store.files, self._settings, again, self._memory)
        found = report.tell(self.store, roster, self._backlog)
        bytes, inodes = self.store.files.free()
        now = time.time()
        self.history.note(now, found["pages"], found["waiting"])
        slowest = _slowest(roster)
        known = {facts["host"]: facts for facts in slowest}
        return {
            **found,
            "when": now,
            "history": self.history.points,
            "hosts": [known.get(host, _host(host)) | {"pages": n} for host, n in found["busiest"].items()],
            "slowest": slowest[:SHOWN],
            "free": {"bytes": bytes, "inodes": inodes},
        }

    @cached_property
    def _settings(self) -> Settings:
        """As they were at first: what we go by does not change while machines are at work."""
        return self.store.settings()

    def _backlog(self) -> int:
        if time.monotonic() >= self._next_count:
            self._waiting = report.backlog(self.store, self._settings.shards)
            self._next_count = time.monotonic() + SELDOM
        return self._waiting


class History:
    """How pages and waiting URLs went: close points lately, and fewer the longer ago; the clock is passed in."""

    MOST = 600
    CLOSEST = 1.0  # seconds between two points
    SPAN = 10.0  # seconds over which a rate is taken: workers tell what they did only with each pulse

    def __init__(self) -> None:
        self.points: list[dict[str, Any]] = []

    def note(self, now: float, pages: int, waiting: int) -> None:
        """One more point, unless the last one is as good as new."""
        if self.points and now - self.points[-1]["t"] < self.CLOSEST:
            return
        rate = self._rate(now, pages)
        self.points = [*self.points, {"t": round(now, 2), "pages": pages, "rate": rate, "waiting": waiting}]
        if len(self.points) > self.MOST:
            half = self.MOST // 2
            self.points = self.points[:half:2] + self.points[half:]

    def _rate(self, now: float, pages: int) -> float:
        since = next((point for point in reversed(self.points) if now - point["t"] >= self.SPAN), None)
        since = since or next(iter(self.points), None)
        return max(round((pages - since["pages"]) / max(now - since["t"], 1.0), 2), 0.0) if since else 0.0


def _slowest(roster: Roster) -> list[Facts]:
    """The hosts with the most before them that the workers at work tell of; one may be split over many of them."""
    alive = {worker["id"] for worker in roster.workers if worker["state"] == ALIVE}
    waiting: Counter[str] = Counter()
    facts: dict[str, Facts] = {}
    for found in roster.counters:
        for host, count, delay, strain in found.get("slowest", ()) if found["pulse"].id in alive else ():
            waiting[host] += count
            facts[host] = {**_host(host), "delay": delay, "strain": strain}
    return [{**facts[host], "waiting": count} for host, count in waiting.most_common()]


def _host(host: str) -> Facts:
    return {"host": host, "pages": None, "waiting": None, "delay": None, "strain": None}
