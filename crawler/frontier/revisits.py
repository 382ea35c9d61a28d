"""The revisits in a task table: those that are scheduled, and those that are due, the longest due first.

A revisit is a row like any other, with states of its own, so that a million of them cost a host's other URLs nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from math import inf

from crawler.frontier.hosts import Host
from crawler.frontier.task import OVERDUE, Task

SCHEDULED, DUE = 2, 3  # states of a task: until its due time, and from then on
RIPENED_AT_ONCE = 1000
READ_AT_ONCE = 32
SCHEMA = """
CREATE INDEX task_scheduled ON task(due) WHERE state = 2;
CREATE INDEX task_due ON task(host, due) WHERE state = 3;
CREATE INDEX task_overdue ON task(due) WHERE state = 3;
"""
Taken = tuple[bytes, int, Task]  # key, shard and task


class Revisits:
    """The revisits of a task table, in its database."""

    def __init__(self, db: sqlite3.Connection, columns: str, is_free: Callable[[bytes, int], bool]) -> None:
        """`columns` are those of a task, in its order; `is_free` tells whether a key of a shard may be taken."""
        self._db, self._columns, self._is_free = db, columns, is_free
        self.next_due = inf  # when the first scheduled one is due
        db.executescript(SCHEMA)

    def ripen(self, now: float) -> set[str]:
        """Let some of the revisits that are due be taken; return the hosts that have some."""
        query = "SELECT key, host FROM task WHERE state = 2 AND due <= ? ORDER BY due LIMIT ?"
        found = self._db.execute(query, (now, RIPENED_AT_ONCE)).fetchall()
        self._db.executemany("UPDATE task SET state = 3 WHERE key = ?", [row[:1] for row in found])
        self.read_next_due()
        return {host for _, host in found}

    def read_next_due(self) -> None:
        """Note when the first scheduled one is due."""
        (first,) = self._db.execute("SELECT min(due) FROM task WHERE state = 2").fetchone()
        self.next_due = inf if first is None else first

    def peek(self, host: Host) -> Taken | None:
        """Return the revisit of a host that has been due longest, or None; it stays where it is."""
        while host.more_revisits and not host.revisits:
            self._read(host)
        return host.revisits[0] if host.revisits else None

    def _read(self, host: Host) -> None:
        after = host.last_revisit or (-inf, -1)
        where = "host = ? AND state = 3 AND (due, rowid) > (?, ?)"
        query = f"SELECT rowid, key, shard, {self._columns} FROM task WHERE {where} ORDER BY due, rowid LIMIT ?"
        rows = self._db.execute(query, (host.name, *after, READ_AT_ONCE)).fetchall()
        host.more_revisits = len(rows) == READ_AT_ONCE
        for row, key, shard, *columns in rows:
            task = Task(*columns)
            host.last_revisit = task.due, row
            if self._is_free(key, shard):
                host.revisits.append((key, shard, task._replace(due=0.0)))

    def has_due(self) -> bool:
        """Tell whether any revisit is due, or taken."""
        return self._db.execute("SELECT 1 FROM task WHERE state = 3 LIMIT 1").fetchone() is not None

    def counts(self, now: float) -> dict[str, int]:
        """Return how many pages are fresh, due and (among these) overdue."""
        queries = {
            "fresh": "SELECT count(*) FROM task WHERE state = 2",
            "due": "SELECT count(*) FROM task WHERE state = 3",
            "overdue": f"SELECT count(*) FROM task WHERE state = 3 AND due < {now - OVERDUE!r} AND due > 0",
        }
        return {name: int(self._db.execute(query).fetchone()[0]) for name, query in queries.items()}
