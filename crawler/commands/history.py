"""The state of a crawl and its recent history, for `top` and `serve`.

A look lists the workers' names and reads only files that are new; pages are never read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from random import SystemRandom
from typing import Any

from crawler.commands import status
from crawler.commands.ages import Sampler
from crawler.commands.stored import Stored, count_stored
from crawler.errors import StoreAway
from crawler.fleet.members import Facts, Members, Memory, look
from crawler.frontier.backlog import Backlog, count_backlog
from crawler.settings.settings import Settings
from crawler.store.reading import UNCOUNTED
from crawler.store.store import Store

SHOWN = 10  # hosts of a kind
# Seconds between two reads of crawl.yaml, and between two counts of waiting URLs and of stored pages while no machine
# runs: each takes a listing for each shard or host.
SELDOM = 30.0
MINUTE, HOUR = 60, 60  # seconds, and minutes: how far back workers remember

Point = dict[str, Any]


class Outlook:
    """A store that is looked at repeatedly: caches what would be re-read. Not thread-safe."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._memory = Memory()
        self._history: History | None = None
        self._settings, self._wrong = Settings(), ""
        self._waiting = Backlog(0)
        self._waiting_of: Collection[int] | None = None  # the shards of which that is
        self._stored: Stored | None = None
        self._next_read = self._next_count = self._next_sample = self._next_stored = 0.0
        self._sampler = Sampler(store, SystemRandom())
        self._ages: Facts | None = None
        self.paces: dict[str, Facts] = {}  # what living workers said at the last look of their slowest hosts

    def look(self, again: bool = False) -> dict[str, Any]:
        """Return the state of the crawl as a JSON value: all that `status` returns, and

        `when`: now, in seconds since 1970; `history`: points of `t`, `pages`, `rate` and `waiting`, the oldest first;
        `hosts`: the busiest, and `slowest`: those that take longest, each as `host`, `pages`, `waiting`, `delay`
        (seconds between two requests) and `strain`, None where it is not known; `free`: `bytes` and `inodes`, None
        where the file system does not count them; `ages`: how old pages are, None if they are not visited again (see
        `ages.Sampler`). `again` looks twice at workers that seem silent.
        """
        if not self.store.exists():  # a folder under a mount that is gone looks like an empty store
            raise StoreAway(f"no store at {self.store.root} any more; is the mount still there?")
        self._read_settings()
        members = look(self.store.files, self._settings, again, self._memory)
        found = status.tell(self.store, members, self._backlog, self._count_stored, self._settings, self._wrong)
        now = round(time.time(), 2)
        slowest = _slowest(members.counters_alive)
        known = self.paces = {facts["host"]: facts for facts in slowest}
        return {
            **found,
            "when": now,
            "history": self._note(found, members, now),
            "hosts": [known.get(host, _host(host)) | {"pages": n} for host, n in found["busiest"].items()],
            "slowest": slowest[:SHOWN],
            "free": self._free(),
            "ages": self._look_at_ages(found),
        }

    def _note(self, found: Facts, members: Members, now: float) -> list[Point]:
        self._history = self._history or History(_past(members, now), now)
        self._history.note(now, found["pages"], found["waiting"], found["rate"])
        return self._history.points

    def _free(self) -> dict[str, int | None]:
        counted = zip(("bytes", "inodes"), self.store.files.free(), strict=True)
        return {name: None if count == UNCOUNTED else count for name, count in counted}

    def _look_at_ages(self, found: Facts) -> Facts | None:
        if status.has_visits(found) and time.monotonic() >= self._next_sample:
            self._ages = self._sampler.ages(found["busiest"])
            self._next_sample = time.monotonic() + MINUTE
        return self._ages

    def _read_settings(self) -> None:
        """Follow edits of crawl.yaml, and note what is wrong with it."""
        if time.monotonic() >= self._next_read:
            self._settings, self._wrong = self.store.settings_or_defaults()
            self._next_read = time.monotonic() + SELDOM

    def _backlog(self, of: Collection[int] | None) -> Backlog:
        if time.monotonic() >= self._next_count or of != self._waiting_of:
            self._waiting = count_backlog(self.store, self._settings.shards, time.monotonic(), of)
            self._waiting_of = of
            self._next_count = time.monotonic() + SELDOM
        return self._waiting

    def _count_stored(self, known: int, reasons: Counter[str]) -> Stored | None:
        if time.monotonic() >= self._next_stored:
            self._stored = count_stored(self.store, known, reasons)
            self._next_stored = time.monotonic() + SELDOM
        return self._stored


class History:
    """Points of pages and waiting URLs, fewer the longer ago; the clock is passed in."""

    MOST = 600
    CLOSEST = 1.0  # seconds between two points
    SPAN = 10.0  # seconds over which a rate is taken: counters change only with each heartbeat

    def __init__(self, past: list[Point], now: float) -> None:
        self.points = past
        self._began = now

    def note(self, now: float, pages: int, waiting: int, rate: float) -> None:
        """Add a point, unless the last one is recent; `rate` is what workers report of their last minute."""
        if self.points and now - self.points[-1]["t"] < self.CLOSEST:
            return
        since = next((point for point in reversed(self.points) if now - point["t"] >= self.SPAN), None)
        if since and since["t"] >= self._began:
            rate = round(max(pages - since["pages"], 0) / (now - since["t"]), 2)
        self.points = [*self.points, {"t": now, "pages": pages, "rate": rate, "waiting": waiting}]
        if len(self.points) > self.MOST:
            half = self.MOST // 2
            self.points = self.points[:half:2] + self.points[half:]


def _past(members: Members, now: float) -> list[Point]:
    """Return the last hour as the workers remember it."""
    ages = {worker["id"]: worker["age"] // MINUTE for worker in members.workers}
    told = [(found, ages[found["heartbeat"].id]) for found in members.counters]
    longest = max((age + len(found["minutes"]) for found, age in told if age < HOUR and "minutes" in found), default=0)
    points: list[Point] = []
    for ago in range(min(longest + 1, HOUR), 0, -1):
        stood = [_stood(found, ago - age) for found, age in told]
        pages, waiting = sum(pages for pages, _ in stood), sum(waiting for _, waiting in stood)
        rate = round(max(pages - points[-1]["pages"], 0) / MINUTE, 2) if points else 0.0
        points.append({"t": now - ago * MINUTE, "pages": pages, "rate": rate, "waiting": waiting})
    return points[1:]  # the first one has no rate


def _stood(found: Facts, ago: int) -> tuple[int, int]:
    """Return the pages and waiting URLs of a worker, so many minutes before its last heartbeat."""
    minutes = found.get("minutes", ())
    if ago <= 0:
        return found.get("pages", 0), 0
    if ago > len(minutes):
        ago = HOUR  # it was not running then, or has forgotten
    pages, waiting = minutes[-ago] if ago <= len(minutes) else (0, 0)
    return pages, waiting


def _slowest(counters: list[Facts]) -> list[Facts]:
    """Return the hosts that take longest; one may be split over several workers."""
    hosts: dict[str, Facts] = {}
    for host, waiting, delay, strain in (row for found in counters for row in found.get("slowest", ())):
        before = hosts.get(host, {"waiting": 0})["waiting"]
        hosts[host] = {**_host(host), "waiting": before + waiting, "delay": delay, "strain": strain}
    return sorted(hosts.values(), key=lambda host: (-host["waiting"] * host["delay"], -host["waiting"], host["host"]))


def _host(host: str) -> Facts:
    return {"host": host, "pages": None, "waiting": None, "delay": None, "strain": None}
