"""What each host has: pages, bytes, failure records, waiting URLs: counted while somebody looks, a little at a time.

Each host takes up to four listings and a sample of its files, and a mount carries a few hundred operations a second: so
it rests as long as it works, and counts of a large store may be as old as a round takes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator
from random import Random
from typing import NamedTuple

from crawler.frontier.batches import lines_of
from crawler.frontier.queued import QueuedUrls
from crawler.store.inboxes import batch_names, made_shards
from crawler.store.store import MEASURED, Store
from crawler.web import urls
from crawler.web.reasons import kind

STEP = 0.2  # seconds of counting before a rest of the same length
MAX_COUNTING = 1.0  # seconds of counting for somebody who waits
ROUND = 5.0  # seconds between two rounds at least, and ten times what the last one took
FORGOTTEN = 60.0  # seconds after the last request for which counting continues
LISTED = 10.0  # seconds for which the list of all hosts is not made again
SAMPLE = 32  # failure records of a host that are read: what the others are is concluded from them
MAX_QUEUED = 500_000  # lines of batches that are read; of more, only what workers say of their slowest hosts is known


class HostCount(NamedTuple):
    """What a host has: pages, failure records of any kind, bytes of its pages, failure records of the kind `failed`.

    Bytes and failed are exact for up to 32 files each, and concluded from 32 of them otherwise; waiting may be unknown.
    """

    pages: int
    failures: int
    bytes: int
    failed: int
    waiting: int | None

    def estimated(self) -> list[str]:
        """Return which of them are concluded from a sample."""
        return ["bytes"] * (self.pages > MEASURED) + ["failed"] * (self.failures > SAMPLE)


class Census:
    """The hosts of a store and what each has; counts are cached."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store, self._random = store, random
        self._lock = threading.Lock()
        self._counts: dict[str, HostCount] = {}
        self._hosts: list[str] = []
        self._queued: QueuedUrls | None = None
        self._waiting: frozenset[str] = frozenset()  # hosts with a URL in a batch
        self._listed = self._asked = float("-inf")
        self._round: Iterator[None] | None = None
        self._began = self._next = 0.0

    def hosts(self) -> list[str]:
        """Return all hosts that have a record, a failure record or a waiting URL, sorted; count for a moment first."""
        self._asked = time.monotonic()
        if not self._counts:
            self._count_for(MAX_COUNTING)
        with self._lock:
            return self._list()

    @property
    def counted(self) -> int:
        """Return how many hosts are counted so far."""
        return len(self._counts)

    def counts(self) -> dict[str, HostCount]:
        """Return what is known of all hosts so far."""
        return dict(self._counts)

    def count(self, host: str) -> HostCount:
        """Return what a host has, counted before or now."""
        return self._counts.get(host) or self.look(host)

    def look(self, host: str) -> HostCount:
        """Count what a host has now; of its waiting URLs, what was known before."""
        before = self._counts.get(host)
        found = self._look(host, before.waiting if before else None)
        self._counts[host] = found
        return found

    def step(self) -> float:
        """Count for a moment if somebody looks, and return for how many seconds to rest."""
        began = time.monotonic()
        if began - self._asked > FORGOTTEN or began < self._next:
            return STEP
        self._count_for(STEP)
        return time.monotonic() - began

    def _count_for(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        with self._lock:
            if self._round is None:
                self._round, self._began = self._count_all(), time.monotonic()
            work, self._round = self._round, None  # after an error the next round begins
            for _ in work:
                if time.monotonic() > limit:
                    self._round = work
                    return
            self._next = time.monotonic() + max(ROUND, 10 * (time.monotonic() - self._began))

    def _count_all(self) -> Iterator[None]:
        """Read the batches and count all hosts, some at a time."""
        queued = QueuedUrls(self._store)
        shards = self._store.settings_or_defaults()[0].shards
        is_known = yield from self._read(queued, shards)
        self._waiting = frozenset(queued.hosts())
        self._listed = float("-inf")
        for host in self._list():
            self._counts[host] = self._look(host, queued.count(host) if is_known else None)
            yield
        queued.close()

    def _read(self, queued: QueuedUrls, shards: int) -> Generator[None, None, bool]:
        """Read the batches, unless they are too large; return whether all were read."""
        lines = 0
        for shard in made_shards(self._store.files, shards):
            lines += sum(map(lines_of, batch_names(self._store.files, shard)))
            yield
        if lines > MAX_QUEUED:
            return False
        yield from queued.read(shards)
        return True

    def _look(self, host: str, waiting: int | None) -> HostCount:
        pages, size = self._store.page_sizes(host)
        keys = self._store.keys("errs", host)
        some = keys if len(keys) <= SAMPLE else self._random.sample(keys, SAMPLE)
        read = [self._store.read("errs", host, key) for key in some]
        failed = sum(1 for found in read if found and kind(str(found.get("reason"))) == "failed")
        return HostCount(pages, len(keys), size, round(failed * len(keys) / max(len(some), 1)), waiting)

    def _list(self) -> list[str]:
        if time.monotonic() - self._listed > LISTED:
            names = self._store.files.names
            self._hosts = sorted(filter(urls.is_host, {*names("links"), *names("errs"), *self._waiting}))
            self._listed = time.monotonic()
        return self._hosts
