"""The task table: a worker's waiting URLs on its machine's own disk, in SQLite.

Memory is bounded whatever the size of the frontier, and the next URL of a host is an index lookup. The table is
private to its worker and gone when it ends: the batches on the mount make it again. It may be called from any thread.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

from crawler.frontier.hosts import EMPTY, RESTING, Host, Hosts, Queue
from crawler.frontier.task import Task
from crawler.web import urls

# The state of a task. Held: its shard is being released. Skipped: excluded by a setting that may be edited.
WAITING, LATER, TAKEN, HELD, DONE, SKIPPED = range(6)
MAX_VARIABLES = 500  # in one statement; old versions of SQLite take 999
SIDE_TASK_RANK = -(1 << 63)  # the rank of the first robots or retry task; those of pages are nearer to 0 than to it
TASK_COLUMNS = "url, depth, attempt, due, via, priority, kind, detail"  # in the order of Task's fields

# Rows are in the order in which they arrived, and are taken in about that order. Only the index of keys is accessed at
# random, so its keys are short. The transaction never ends: the table goes with its process, and at each commit SQLite
# would walk its whole cache.
SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE task(key BLOB UNIQUE, shard INT, host TEXT, state INT, depth INT, attempt INT, due REAL,
                  rank INT, batch INT, url TEXT, via TEXT, priority INT, kind TEXT, detail TEXT);
CREATE INDEX task_next ON task(host, rank) WHERE state = 0;
CREATE INDEX task_later ON task(due) WHERE state = 1;
CREATE INDEX task_retry ON task(host) WHERE state = 1;
CREATE INDEX task_taken ON task(host) WHERE state = 2;
CREATE INDEX task_batch ON task(batch) WHERE state < 4;
"""

Result = TypeVar("Result")


def locked(method: Callable[..., Result]) -> Callable[..., Result]:
    """Let one thread at a time into a method: the connection and our counters change together."""

    def with_lock(self: Table, *args: Any, **kwargs: Any) -> Result:
        with self.lock:
            return method(self, *args, **kwargs)

    with_lock.__doc__ = method.__doc__
    return with_lock


class Table:
    """All URLs that a worker knows in its shards, and their hosts."""

    def __init__(
        self, order: str = "bfs", relax: bool = False, max_per_host: int | None = None, max_share: float = 1.0
    ) -> None:
        self.lock = threading.RLock()
        self.order = order
        self.relax = relax  # with a depth limit, more links may be followed from a page that is found to be nearer
        self.max_per_host = max_per_host
        self.skipped = 0  # URLs skipped because their host has max_per_host pages
        self.nearer: list[tuple[Task, int]] = []  # done pages that were found to be nearer, and the batch that says so
        self.mixed: list[Task] = []  # tasks that merge what two batches say of a URL
        self.held: set[int] = set()  # shards that are being released
        self.left: Counter[int] = Counter()  # URLs of each batch that are not done
        self.waiting = 0  # URLs that are not done, including those in flight
        self.taken = 0
        self.gains = 0  # how often shards became ours, of which others may have done URLs
        self.arrivals = 0  # counts everything new: while it does not change, we had nothing new to do
        self._serial = 0
        # The empty name is a temporary database: on disk when it grows, and gone with the process.
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(SCHEMA)
        self._hosts = Hosts(self._db, max_share)
        self._db.execute("BEGIN")

    # ---- adding

    @locked
    def add(self, tasks: Iterable[Task], batch: int, shard_of: Callable[[Task], int]) -> None:
        """Add the URLs of a batch; those that are known already do not count as its own."""
        hosts = {}
        for task in tasks:
            shard = shard_of(task)
            if self._add(task, batch, shard):
                hosts[task.host] = shard
        for host, shard in hosts.items():
            self._hosts.wake(host, shard)

    @locked
    def remember(self, past: list[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts of which others may have done pages: they must be met again."""
        self.gains += 1
        self._hosts.remember(past)

    def _add(self, task: Task, batch: int, shard: int) -> bool:
        """Add a task, and tell whether its URL was not known yet."""
        key = key_of(task)
        if self._insert(key, task, batch, shard):
            return True
        row = self._db.execute("SELECT state, depth, attempt, batch FROM task WHERE key = ?", (key,)).fetchone()
        if row[0] >= DONE:
            self._come_nearer(key, task, batch, row[1])
        elif task.depth < row[1] or task.attempt > row[2] or (task.attempt and (task.depth, task.attempt) == row[1:3]):
            self._renew(key, task, batch, *row)  # an equal retry too: a batch that merges two replaces them
        return False

    def _insert(self, key: bytes, task: Task, batch: int, shard: int) -> bool:
        state = HELD if shard in self.held else LATER if task.due else WAITING
        values = (key, shard, task.host, state, task.depth, task.attempt, task.due, self._rank(task), batch)
        more = (task.url, task.via, task.priority, task.kind, task.detail)
        insert = "INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if not self._db.execute(insert, values + more).rowcount:
            return False
        self.left[batch] += 1
        self.waiting += 1
        self.arrivals += 1
        return True

    def _come_nearer(self, key: bytes, task: Task, batch: int, depth: int | None) -> None:
        if self.relax and (depth is None or task.depth < depth):
            self._db.execute("UPDATE task SET depth = ? WHERE key = ?", (task.depth, key))
            self._note_nearer(task, batch)

    def _note_nearer(self, task: Task, batch: int) -> None:
        """Note that a done page is nearer than we knew; the batch that says so stays until this is dealt with."""
        self.nearer.append((task, batch))
        self.left[batch] += 1
        self.arrivals += 1

    def _renew(self, key: bytes, task: Task, batch: int, state: int, depth: int, attempt: int, old: int) -> None:
        """Assign a URL to the batch that knows more of it, because the old one may go before the URL is done.

        When one batch has the smaller depth and the other the higher attempt, a third one gets both.
        """
        if task.attempt > attempt:
            self.taken -= state == TAKEN
            state = HELD if state == HELD or self._is_held(key) else LATER
        best = task._replace(depth=min(depth, task.depth), attempt=max(attempt, task.attempt))
        if (best.depth, best.attempt) != (task.depth, task.attempt):
            self.mixed.append(best)
        home = batch if task.depth <= depth else old
        self._db.execute(
            "UPDATE task SET state = ?, depth = ?, attempt = ?, due = max(due, ?), rank = ?, batch = ? WHERE key = ?",
            (state, best.depth, best.attempt, best.due, self._rank(best), home, key),
        )
        self.left[old] -= 1
        self.left[home] += 1
        self.arrivals += 1

    def _is_held(self, key: bytes) -> bool:
        return bool(self.held) and self._shard(key) in self.held

    def _shard(self, key: bytes) -> int:
        return int(self._db.execute("SELECT shard FROM task WHERE key = ?", (key,)).fetchone()[0])

    def _rank(self, task: Task) -> int:
        """Return what sorts the URLs of a host: nearest and oldest first, or (dfs) deepest and newest first.

        At one depth a sitemap's priority comes before age. Robots and retry tasks come first: pages may wait for them.
        """
        self._serial += 1
        if task.is_side_task:
            return SIDE_TASK_RANK + self._serial
        bfs = self.order == "bfs"
        tenths = 10 - task.priority if bfs else task.priority
        rank = (min(task.depth, 1 << 17) << 44) + (tenths << 40) + self._serial
        return rank if bfs else -rank

    # ---- taking

    @locked
    def take(self, now: float) -> tuple[Task, Host] | None:
        """Return the next URL of the least served host that is due, or None."""
        self._ripen(now)
        while True:
            found = self._hosts.least_served(now)
            if found is None:
                return None
            if self._is_at_limit(found, now):
                continue
            task = self._next(found.host)
            if task is None:
                self._hosts.set_state(found.host, EMPTY)
                continue
            self._hosts.note_taken(found)
            self.taken += 1
            return task, replace(found, gains=self.gains)

    def _is_at_limit(self, found: Host, now: float) -> bool:
        """Hold a host back at `max_per_host`; once so many pages are stored, its other URLs are skipped."""
        host, kept = found.host, found.kept
        if self.max_per_host is None or self._has_side_task(host):
            return False
        taken = self._db.execute("SELECT count(*) FROM task WHERE state = 2 AND host = ?", (host,)).fetchone()[0]
        if kept + taken < self.max_per_host:
            return False
        if kept >= self.max_per_host:
            query = "SELECT key, state, batch FROM task WHERE host = ? AND state = 0"
            rows = self._db.execute(query, (host,)).fetchall()
            self._mark_rows(rows, SKIPPED)
            self.skipped += len(rows)
        self._hosts.set_state(host, EMPTY if kept >= self.max_per_host else RESTING, now + 0.5)
        return True

    def _has_side_task(self, host: str) -> bool:
        """Tell whether a host has a robots or retry task, which stores no page of its own."""
        query = "SELECT 1 FROM task WHERE host = ? AND state = 0 AND rank < ?"
        return self._db.execute(query, (host, SIDE_TASK_RANK // 2)).fetchone() is not None

    def _ripen(self, now: float) -> None:
        """Let retries that are due wait again, and make hosts ready whose rest is over."""
        due = self._db.execute("SELECT key, host, shard FROM task WHERE state = 1 AND due <= ?", (now,)).fetchall()
        for key, host, shard in due:
            self._db.execute("UPDATE task SET state = 0 WHERE key = ?", (key,))
            self._hosts.wake(host, shard)
        self._hosts.ripen(now)

    def _next(self, host: str) -> Task | None:
        row = self._db.execute(
            f"SELECT key, {TASK_COLUMNS} FROM task WHERE host = ? AND state = 0 ORDER BY rank LIMIT 1", (host,)
        ).fetchone()
        if row is None:
            return None
        self._db.execute("UPDATE task SET state = ? WHERE key = ?", (TAKEN, row[0]))
        return Task(*row[1:])._replace(due=0.0)

    @locked
    def put_back(self, task: Task) -> None:
        """Let a URL wait again that was taken but not requested."""
        key = key_of(task)
        if self._db.execute("SELECT 1 FROM task WHERE key = ? AND state = 2", (key,)).fetchone():
            state = HELD if self._is_held(key) else WAITING
            self._db.execute("UPDATE task SET state = ? WHERE key = ?", (state, key))
            self.taken -= 1

    @locked
    def rest(self, host: str, due: float, strain: float = 0.0, lanes: int = 1, pace: float | None = None) -> None:
        """Let a host rest until `due`, then request it in so many `lanes` at once; `pace` is the rest in seconds.

        With several lanes the latest `due` counts: one response may demand a longer rest than the others.
        """
        self._hosts.rest(host, due, strain, lanes, pace)

    @locked
    def next_retry(self, host: str) -> float:
        """Return when the first retry of a host is due; 0 if there is none."""
        found = self._db.execute("SELECT min(due) FROM task WHERE state = 1 AND host = ?", (host,)).fetchone()[0]
        return float(found or 0.0)

    # ---- done

    @locked
    def meet(self, host: str, done: set[str], kept: int, ours: Callable[[str], bool], gains: int | None = None) -> bool:
        """Take in which keys of a host are done, from the listings of its folders; keys of other workers are left out.

        False if shards became ours since the listings (there are more `gains`): the host must be met again.
        """
        for key in map(bytes.fromhex, filter(ours, done)):
            query = "SELECT state, batch, url, depth, kind, detail FROM task WHERE key = ?"
            row = self._db.execute(query, (key,)).fetchone()
            if row is None:
                self._db.execute("INSERT INTO task (key, host, state) VALUES (?, ?, ?)", (key, host, DONE))
            elif row[0] == SKIPPED:
                self._db.execute("UPDATE task SET state = ? WHERE key = ?", (DONE, key))
            elif row[0] != DONE:
                state, batch, url, depth, kind, detail = row
                self._mark_rows([(key, state, batch)])
                if self.relax:
                    self._note_nearer(Task(url, depth, kind=kind, detail=detail), batch)
        is_met = gains in (None, self.gains)
        if is_met:
            self._hosts.set_met(host, kept)
        return is_met

    @locked
    def mark_done(self, tasks: Sequence[Task], kept: bool, links: bool = True) -> None:
        """Mark URLs that have a record (`kept`: with a page; `links`: there may be some) or a failure record."""
        for start in range(0, len(tasks), MAX_VARIABLES):
            self._mark_some(tasks[start : start + MAX_VARIABLES], links)
        if kept:
            self._hosts.count_kept(task.host for task in tasks)

    def _mark_some(self, tasks: Sequence[Task], links: bool) -> None:
        by_key = {key_of(task): task for task in tasks}
        marks = ", ".join("?" * len(by_key))
        query = f"SELECT key, state, batch, depth FROM task WHERE key IN ({marks}) AND state < {DONE}"
        found = self._db.execute(query, list(by_key)).fetchall()
        self._mark_rows([row[:3] for row in found])
        for key, _, batch, depth in found if links and self.relax else ():
            if depth < by_key[key].depth:  # found to be nearer while it was in flight
                self._note_nearer(Task.named(by_key[key].name, depth), batch)

    @locked
    def skip(self, task: Task) -> None:
        """Skip a URL that was taken: the settings, as they are now, exclude it."""
        query = "SELECT key, state, batch FROM task WHERE key = ? AND state < 4"
        self._mark_rows(self._db.execute(query, (key_of(task),)).fetchall(), SKIPPED)

    @locked
    def adopt(self, max_per_host: int | None, max_share: float) -> None:
        """Use these limits from now on, and forget skipped URLs, so that they may be handed over again."""
        self.max_per_host, self._hosts.max_share = max_per_host, max_share
        self._db.execute(f"DELETE FROM task WHERE state = {SKIPPED}")

    def _mark_rows(self, rows: Sequence[tuple[bytes, int, int]], state: int = DONE) -> None:
        """Mark rows of (key, state, batch) as done or skipped."""
        self._db.executemany(f"UPDATE task SET state = {state}, url = NULL WHERE key = ?", [row[:1] for row in rows])
        self.left.subtract(batch for _, _, batch in rows)
        self.waiting -= len(rows)
        self.taken -= sum(state == TAKEN for _, state, _ in rows)

    @locked
    def forget_done(self, task: Task) -> None:
        """Forget that a URL is done: its failure record was removed."""
        self._db.execute(f"DELETE FROM task WHERE key = ? AND state = {DONE}", (key_of(task),))

    @locked
    def drop_nearer(self, batch: int) -> None:
        """Remove the first of the nearer pages: its links were handed over again."""
        del self.nearer[0]
        self.left[batch] -= 1

    @locked
    def drain_mixed(self) -> list[Task]:
        """Return the tasks that merge two batches, to be written to a new one."""
        mixed, self.mixed = self.mixed, []
        return mixed

    # ---- batches and shards

    @locked
    def of_batches(self, batches: Iterable[int]) -> list[Task]:
        """Return the URLs of these batches that are not done, or whose links must be handed over again."""
        wanted = set(batches)
        found = [task for task, batch in self.nearer if batch in wanted]
        for batch in wanted:
            with closing(
                self._db.execute(f"SELECT {TASK_COLUMNS} FROM task WHERE batch = ? AND state < 4", (batch,))
            ) as rows:
                found.extend(Task(*row) for row in rows)
        return found

    @locked
    def rehome(self, tasks: Iterable[Task], old: Iterable[int], new: int) -> None:
        """Assign the tasks that the old batches had left to the new one, except those done meanwhile."""
        old, tasks = set(old), set(tasks) if self.nearer else ()
        for index, (task, batch) in enumerate(self.nearer):
            if batch in old and task in tasks:
                self.nearer[index] = task, new
                self.left[batch] -= 1
                self.left[new] += 1
        for batch in old:
            moved = self._db.execute("UPDATE task SET batch = ? WHERE batch = ? AND state < 4", (new, batch)).rowcount
            self.left[batch] -= moved
            self.left[new] += moved

    def of_shards(self, shards: Iterable[int]) -> Iterator[tuple[int, int, Task]]:
        """Yield (shard, batch, task) of all URLs of these shards that are not done now, shard by shard.

        They are sorted before the first is given, so that the table may change, and few are in memory at a time.
        """
        where = f"state < 4 AND shard IN ({listed(shards)})"
        query = f"SELECT shard, batch, {TASK_COLUMNS} FROM task WHERE {where} ORDER BY shard"
        with self.lock:
            rows = self._db.execute(query)
        while some := self._fetch(rows):
            for shard, batch, *task in some:
                yield shard, batch, Task(*task)

    @locked
    def _fetch(self, rows: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        return rows.fetchmany(1000)

    @locked
    def hold(self, shards: Iterable[int]) -> None:
        """Give out no more URLs of these shards; those that are taken may finish."""
        self.held.update(shards)
        self._db.execute(f"UPDATE task SET state = {HELD} WHERE state < 2 AND shard IN ({listed(shards)})")

    @locked
    def in_flight(self, shard: int) -> bool:
        """Tell whether a URL of a shard is taken and not done yet."""
        return (
            self._db.execute("SELECT 1 FROM task WHERE state = 2 AND shard = ? LIMIT 1", (shard,)).fetchone()
            is not None
        )

    @locked
    def forget(self, shards: Iterable[int], split: bool) -> None:
        """Forget the waiting URLs of shards that are no longer ours; done ones stay done.

        Their hosts must be met again if the shards come back. With `split` a host is in many shards, and stays.
        """
        ours = f"shard IN ({listed(shards)})"
        for batch, state, count in self._db.execute(
            f"SELECT batch, state, count(*) FROM task WHERE state < 4 AND {ours} GROUP BY batch, state"
        ):
            self.left[batch] -= count
            self.waiting -= count
            self.taken -= count if state == TAKEN else 0
        self._db.execute(f"DELETE FROM task WHERE state < 4 AND {ours}")
        if not split:
            self._db.execute(f"DELETE FROM host WHERE {ours}")
        self.held.difference_update(shards)

    @locked
    def hosts(self) -> int:
        """Return how many hosts have work now or later."""
        return self._hosts.count()

    @locked
    def busiest(self, most: int) -> list[tuple[str, int]]:
        """Return the hosts with the most stored pages."""
        return self._hosts.busiest(most)

    @locked
    def retries(self) -> int:
        """Return how many URLs wait for the time of their next attempt."""
        return int(self._db.execute("SELECT count(*) FROM task WHERE state = 1").fetchone()[0])

    @locked
    def queues(self, after: str, most: int) -> list[Queue]:
        """Return the hosts that follow one by name, with or without work, and how many URLs wait there."""
        return self._hosts.queues(after, most)

    @locked
    def next_due(self, now: float) -> float:
        """Return the seconds until a host or a retry may be due; an hour if none is."""
        host = self._hosts.next_due()
        task = self._db.execute("SELECT min(due) FROM task WHERE state = 1").fetchone()[0]
        return float(min(due - now for due in (host, task, now + 3600.0) if due is not None))


def key_of(task: Task) -> bytes:
    """Return a task's key as the table has it: bytes, half as long."""
    return bytes.fromhex(urls.key(task.name))


def listed(shards: Iterable[int]) -> str:
    """Return shards as a list in SQL."""
    return ", ".join(map(str, shards))
