"""How many pages and failure records each host has: counted while somebody looks, a little at a time.

Each host takes two listings, and a mount carries a few hundred a second: so it rests as long as it works, and counts of
a large store may be as old as a round takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from crawler.store.store import Store
from crawler.web import urls

STEP = 0.2  # seconds of counting before a rest of the same length
ROUND = 5.0  # seconds between two rounds at least, and ten times what the last one took
FORGOTTEN = 60.0  # seconds after the last request for which counting continues
FEW = 100  # hosts that are counted at once, for somebody who waits
LISTED = 10.0  # seconds for which the list of all hosts is not made again


class HostCount(NamedTuple):
    """How many pages a host has, and how many failure records of any kind."""

    pages: int
    failures: int


class Census:
    """The hosts of a store and what each has; counts are cached."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, HostCount] = {}
        self._hosts: list[str] = []
        self._listed = self._asked = float("-inf")
        self._round: Iterator[str] | None = None
        self._began = self._next = 0.0

    def hosts(self) -> list[str]:
        """Return all hosts that have a record or a failure record, sorted."""
        self._asked = time.monotonic()
        return self._list()

    @property
    def counted(self) -> int:
        """Return how many hosts are counted so far."""
        return len(self._counts)

    def counts_of(self, hosts: list[str]) -> dict[str, HostCount]:
        """Return what these hosts have, as far as it is known; a few that are not counted yet are counted now."""
        new = [host for host in hosts if host not in self._counts]
        for host in new if len(new) <= FEW else ():
            self.look(host)
        return dict(self._counts)

    def count(self, host: str) -> HostCount:
        """Return what a host has, counted before or now."""
        return self._counts.get(host) or self.look(host)

    def look(self, host: str) -> HostCount:
        """Count what a host has now."""
        found = HostCount(self._store.count_pages(host), self._store.count_failures(host))
        self._counts[host] = found
        return found

    def step(self) -> float:
        """Count for a moment if somebody looks, and return for how many seconds to rest."""
        began = time.monotonic()
        if began - self._asked > FORGOTTEN or began < self._next:
            return STEP
        if self._round is None:
            self._round, self._began = iter(self._list()), began
        for host in self._round:
            self.look(host)
            if time.monotonic() - began > STEP:
                return time.monotonic() - began
        self._round = None
        self._next = time.monotonic() + max(ROUND, 10 * (time.monotonic() - self._began))
        return STEP

    def _list(self) -> list[str]:
        if time.monotonic() - self._listed > LISTED:
            names = self._store.files.names
            self._hosts = sorted(filter(urls.is_host, {*names("links"), *names("errs")}))
            self._listed = time.monotonic()
        return self._hosts
