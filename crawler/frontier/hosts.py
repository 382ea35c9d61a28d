"""The hosts of a worker's waiting URLs: which may be requested next, and when. A part of the task table's database."""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

EMPTY, RESTING, READY, BUSY = range(4)  # the state of a host
SOON = 1.0  # seconds: a host that is due within these is waited for before one that has had its share
SHARE_OF = 1000  # requests: a host's share is its part of the last so many

SCHEMA = """
CREATE TABLE host(host TEXT PRIMARY KEY, shard INT, state INT, due REAL, served INT, strain REAL, lanes INT,
                  busy INT, met INT, kept INT, past INT, pace REAL) WITHOUT ROWID;
CREATE INDEX host_resting ON host(due) WHERE state = 1;
CREATE INDEX host_ready ON host(served) WHERE state = 2;
"""


@dataclass(frozen=True, slots=True)
class Host:
    """A host that is due: its strain, whether it was met (see `Table.meet`), how many of its pages are stored.

    `past` says in which folders of the store it was found when its shard became ours (see `StoreWriter.past`).
    """

    host: str
    strain: float
    met: bool
    kept: int
    past: int = 0
    busy: int = 0  # requests in flight, of at most so many `lanes`
    lanes: int = 1
    gains: int = 0  # how often shards had become ours when it was taken


class Queue(NamedTuple):
    """A host, and how many of its URLs could be taken if it were due."""

    host: str
    state: int
    due: float
    strain: float
    pace: float | None  # seconds between its last response and the next request; None if it was not requested yet
    waiting: int


class Hosts:
    """The table `host`; its caller holds the task table's lock."""

    def __init__(self, db: sqlite3.Connection, max_share: float) -> None:
        self._db = db
        self.max_share = max_share
        self._recent = RecentRequests()
        db.executescript(SCHEMA)

    def remember(self, past: list[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts of which others may have done pages: they must be met again."""
        note = "ON CONFLICT(host) DO UPDATE SET met = 0, past = past | excluded.past"
        self._db.executemany(f"INSERT INTO host VALUES (?, ?, 0, 0, 0, 0, 1, 0, 0, 0, ?, NULL) {note}", past)

    def wake(self, host: str, shard: int) -> None:
        """Note that a host has URLs to take."""
        wake = "ON CONFLICT(host) DO UPDATE SET state = 1 WHERE state = 0"
        self._db.execute(f"INSERT INTO host VALUES (?, ?, 1, 0, 0, 0, 1, 0, 0, 0, 0, NULL) {wake}", (host, shard))

    def ripen(self, now: float) -> None:
        """Make hosts ready whose rest is over."""
        self._db.execute("UPDATE host SET state = 2 WHERE state = 1 AND due <= ?", (now,))

    def least_served(self, now: float) -> Host | None:
        """Return the least served host that is due; one that has had its share only if no other is due soon."""
        first = next(iter(self._due(1)), None)
        if first is None or not self._is_greedy(first.host):
            return first
        # So many cannot all have had more than their share: among one more there is one that has not.
        few = int(1 / self.max_share) + 1
        modest = next((found for found in self._due(few) if not self._is_greedy(found.host)), None)
        return modest if modest or self._others_wait(now, few) else first

    def _due(self, most: int) -> list[Host]:
        query = "SELECT host, strain, met, kept, past, busy, lanes FROM host WHERE state = 2 ORDER BY served LIMIT ?"
        return [Host(*row) for row in self._db.execute(query, (most,)).fetchall()]

    def _is_greedy(self, host: str) -> bool:
        return self._recent.share(host) > self.max_share

    def _others_wait(self, now: float, few: int) -> bool:
        """Tell whether a host that has not had its share will be due soon."""
        waiting = "EXISTS (SELECT 1 FROM task WHERE task.host = host.host AND task.state = 0)"
        soon = self._db.execute(
            f"SELECT host FROM host WHERE state = 1 AND due <= ? AND {waiting} ORDER BY due LIMIT ?", (now + SOON, few)
        )
        return any(not self._is_greedy(host) for (host,) in soon.fetchall())

    def note_taken(self, found: Host) -> None:
        """Count a URL of a host that was taken."""
        state = READY if found.busy + 1 < found.lanes else BUSY
        self._db.execute(
            "UPDATE host SET served = served + 1, busy = busy + 1, state = ? WHERE host = ?", (state, found.host)
        )
        if found.met:  # else its folders are listed first, and nothing is requested
            self._recent.note(found.host)

    def set_state(self, host: str, state: int, due: float = 0.0) -> None:
        """Set whether a host is to be taken from, and when."""
        self._db.execute("UPDATE host SET state = ?, due = max(due, ?) WHERE host = ?", (state, due, host))

    def rest(self, host: str, due: float, strain: float, lanes: int, pace: float | None) -> None:
        """See `Table.rest`."""
        self._db.execute(
            "UPDATE host SET due = max(due, ?), strain = ?, lanes = ?, busy = max(busy - 1, 0), "
            "pace = coalesce(?, pace), state = CASE WHEN busy - 1 >= ? THEN 3 ELSE 1 END WHERE host = ?",
            (due, strain, lanes, pace, lanes, host),
        )

    def set_met(self, host: str, kept: int) -> None:
        """Note that we know what is done of a host, and how many of its pages are stored."""
        self._db.execute("UPDATE host SET met = 1, past = 0, kept = ? WHERE host = ?", (kept, host))

    def count_kept(self, hosts: Iterable[str]) -> None:
        """Count one more stored page for each of these hosts."""
        pages = Counter(hosts)
        self._db.executemany("UPDATE host SET kept = kept + ? WHERE host = ?", [(n, host) for host, n in pages.items()])

    def count(self) -> int:
        """Return how many hosts have work now or later."""
        return int(self._db.execute("SELECT count(*) FROM host WHERE state > 0").fetchone()[0])

    def busiest(self, most: int) -> list[tuple[str, int]]:
        """Return the hosts with the most stored pages."""
        return self._db.execute("SELECT host, kept FROM host ORDER BY kept DESC LIMIT ?", (most,)).fetchall()

    def queues(self, after: str, most: int) -> list[Queue]:
        """Return the hosts that follow one by name, with or without work, and how many URLs wait there."""
        count = "CASE WHEN state THEN (SELECT count(*) FROM task WHERE task.host = host.host AND task.state = 0) END"
        found = self._db.execute(
            f"SELECT host, state, due, strain, pace, ifnull({count}, 0) FROM host WHERE host > ? ORDER BY host LIMIT ?",
            (after, most),
        )
        return [Queue(*row) for row in found]

    def next_due(self) -> float | None:
        """Return when the first resting host is due, or None."""
        (found,) = self._db.execute("SELECT min(due) FROM host WHERE state = 1").fetchone()
        return found if found is None else float(found)


class RecentRequests:
    """The last requests of a worker, and each host's part of them, by which `max_share` is measured."""

    def __init__(self, most: int = SHARE_OF) -> None:
        self._most = most
        self._hosts: deque[str] = deque()
        self._counts: Counter[str] = Counter()

    def note(self, host: str) -> None:
        """Add a request."""
        self._hosts.append(host)
        self._counts[host] += 1
        if len(self._hosts) > self._most:
            oldest = self._hosts.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]

    def share(self, host: str) -> float:
        """Return a host's part of them, from 0 to 1."""
        return self._counts[host] / len(self._hosts) if host in self._counts else 0.0
