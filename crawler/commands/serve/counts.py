"""How many pages and refusals each host has: counted while somebody looks, a little at a time.

There are two listings to make for each host, and a mount carries a few hundred a second: so it rests as long as it
works, and what it shows of a large store may be as old as a round takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from crawler.store.store import Store
from crawler.web import urls

STEP = 0.2  # seconds of counting before a rest of the same length
ROUND = 5.0  # seconds between two rounds at least, and ten times what the last one took
FORGOTTEN = 60.0  # seconds after the last question in which counting goes on
FEW = 100  # hosts that are counted at once, for somebody who waits
LISTED = 10.0  # seconds for which the list of all hosts is not made again


class Count(NamedTuple):
    """What a host has."""

    pages: int
    refusals: int


class Census:
    """The hosts of a store and what each has."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._counts: dict[str, Count] = {}
        self._hosts: list[str] = []
        self._listed = self._asked = float("-inf")
        self._round: Iterator[str] | None = None
        self._began = self._next = 0.0

    def hosts(self) -> list[str]:
        """All hosts that have a record or a refusal, sorted."""
        self._asked = time.monotonic()
        return self._list()

    @property
    def counted(self) -> int:
        """How many hosts are counted so far."""
        return len(self._counts)

    def counts_of(self, hosts: list[str]) -> dict[str, Count]:
        """What these have, as far as it is known; if few are not counted yet, they are now."""
        new = [host for host in hosts if host not in self._counts]
        for host in new if len(new) <= FEW else ():
            self.look(host)
        return dict(self._counts)

    def count(self, host: str) -> Count:
        """What a host has; looked up if it is not counted yet."""
        return self._counts.get(host) or self.look(host)

    def look(self, host: str) -> Count:
        """What a host has now."""
        found = Count(self._store.count_pages(host), self._store.count_failures(host))
        self._counts[host] = found
        return found

    def step(self) -> float:
        """Count for a moment, if anybody wants to know; for how many seconds to rest then."""
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
