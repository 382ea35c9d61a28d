"""The rows of a task table: the URLs that a worker knows, the batch that each is of, and which of them are done.

They are in an SQLite database on the machine's own disk, which is gone when its worker ends. What of them is taken next
is decided in `table`.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import inf
from typing import Any

from crawler.frontier.hosts import Host, Hosts
from crawler.frontier.revisits import SCHEDULED, Revisits
from crawler.frontier.task import PAGE, REVISIT, Task
from crawler.web import urls
from crawler.web.page import GIVEN, PRIORITY

# The state of a task. Later: until its due time. Skipped: excluded by a setting that may be edited. Revisits have two
# others. Which tasks are taken, and which shards are being released, is known in memory alone.
WAITING, LATER, DONE, SKIPPED = 0, 1, 4, 5
MAX_VARIABLES = 500  # in one statement; old versions of SQLite take 999
SIDE_TASK_RANK = -(1 << 63)  # the rank of the first robots or retry task; those of pages are nearer to 0 than to it
MAX_RANKED_DEPTH = (1 << 14) - 1  # URLs that are deeper are sorted as if they were at this depth
CHANGED_AT_ONCE = 1000  # rows, before visits go on
INSERT = "INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
TASK_COLUMNS = "url, depth, attempt, due, via, priority, kind, detail, blame"  # in the order of Task's fields

# Rows are in the order in which they arrived, and are taken in about that order. Only the index of keys is accessed at
# random, so its keys are short. The transaction never ends: the table goes with its process, and at each commit SQLite
# would walk its whole cache.
SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE task(key BLOB UNIQUE, shard INT, host TEXT, state INT, depth INT, attempt INT, due REAL,
                  rank INT, batch INT, url TEXT, via TEXT, priority INT, kind TEXT, detail TEXT,
                  blame INT);
CREATE INDEX task_next ON task(host, rank) WHERE state = 0;
CREATE INDEX task_later ON task(due) WHERE state = 1;
CREATE INDEX task_retry ON task(host) WHERE state = 1;
CREATE INDEX task_batch ON task(batch) WHERE state < 4;
CREATE INDEX task_shard ON task(shard) WHERE state < 4;
CREATE INDEX task_skipped ON task(state) WHERE state = 5;
"""


class TaskRows:
    """The URLs that a worker knows in its shards."""

    def __init__(self, order: str, relax: bool, max_share: float) -> None:
        self.order = order
        self.relax = relax  # with a depth limit, more links may be followed from a page that is found to be nearer
        self.nearer: list[tuple[Task, int]] = []  # done pages that were found to be nearer, and the batch that says so
        self.mixed: list[Task] = []  # tasks that merge what two batches say of a URL
        self.held: set[int] = set()  # shards that are being released: nothing of them is taken
        self.left: Counter[int] = Counter()  # URLs of each batch that are not done
        self.waiting = 0  # URLs that are not done, including those in flight and revisits
        self.revisits = 0  # how many of these are revisits
        self.arrivals = 0  # counts everything new: while it does not change, we had nothing new to do
        self._taken: dict[bytes, tuple[int, Host]] = {}  # key -> shard and host
        self._serial = 0
        self._next_later = inf  # when the first retry is due
        # The empty name is a temporary database: on disk when it grows, and gone with the process.
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(SCHEMA)
        self._hosts = Hosts(self._db, max_share)
        self._revisits = Revisits(self._db, TASK_COLUMNS, self._is_free)
        self._db.execute("BEGIN")

    # ---- adding

    def _add(self, task: Task, host: str, batch: int, shard: int) -> bool:
        """Add a task, and tell whether its URL was not known yet."""
        key = key_of(task)
        if self._insert(key, task, host, batch, shard):
            return True
        query = "SELECT state, depth, attempt, batch, due, priority FROM task WHERE key = ?"
        *row, priority = self._db.execute(query, (key,)).fetchone()
        is_like = 0 < task.attempt == row[2]
        if task.kind == REVISIT and row[0] == SCHEDULED and task.attempt == row[2]:
            self._bring_forward(key, task, batch, row[3])
        elif row[0] >= DONE:
            self._come_nearer(key, task, batch, row[1])
        elif task.depth < row[1] or task.attempt > row[2] or (is_like and (task.depth == row[1] or task.due > row[4])):
            self._renew(key, task, batch, *row)  # an equal retry too: a batch that merges two replaces them
        elif task.priority >= GIVEN and task.priority != priority:  # the operator has changed their mind
            self._renew(key, task, batch, *row)
        return False

    def _insert(self, key: bytes, task: Task, host: str, batch: int, shard: int) -> bool:
        url, depth, attempt, due, via, priority, kind, detail, blame = task
        is_revisit = kind == REVISIT
        state = SCHEDULED if is_revisit else LATER if due else WAITING
        rank = self._rank(task)
        values = (key, shard, host, state, depth, attempt, due, rank, batch, url, via, priority, kind, detail, blame)
        if not self._db.execute(INSERT, values).rowcount:
            return False
        self.left[batch] += 1
        self.waiting += 1
        self.revisits += is_revisit
        self.arrivals += 1
        if state != WAITING:
            self._note_due(state, due)
        loaded = self._hosts.loaded.get(host)
        if loaded is not None and is_revisit:
            loaded.reread_revisits()
        elif loaded is not None and loaded.last_rank is not None and rank < loaded.last_rank:
            loaded.reread()
        return True

    def _note_due(self, state: int, due: float) -> None:
        if state == LATER:
            self._next_later = min(self._next_later, due)
        elif state == SCHEDULED:
            self._revisits.next_due = min(self._revisits.next_due, due)

    def _bring_forward(self, key: bytes, task: Task, batch: int, old: int) -> None:
        """Assign a scheduled revisit to the batch that has it earlier."""
        earlier = "UPDATE task SET due = ?, batch = ? WHERE key = ? AND due > ?"
        if self._db.execute(earlier, (task.due, batch, key, task.due)).rowcount:
            self._note_due(SCHEDULED, task.due)
            self.left[old] -= 1
            self.left[batch] += 1
            self.arrivals += 1

    def _come_nearer(self, key: bytes, task: Task, batch: int, depth: int | None) -> None:
        if self.relax and (depth is None or task.depth < depth):
            self._db.execute("UPDATE task SET depth = ? WHERE key = ?", (task.depth, key))
            self._note_nearer(task, batch)

    def _note_nearer(self, task: Task, batch: int) -> None:
        """Note that a done page is nearer than we knew; the batch that says so stays until this is dealt with."""
        self.nearer.append((task, batch))
        self.left[batch] += 1
        self.arrivals += 1

    def _renew(
        self, key: bytes, task: Task, batch: int, state: int, depth: int, attempt: int, old: int, due: float
    ) -> None:
        """Assign a URL to the batch that knows more of it, because the old one may go before the URL is done.

        When one batch has the smaller depth and the other the higher attempt, a third one gets both. Of two retries
        that are the same attempt the later one counts: two owners made an attempt each.
        """
        if task.attempt > attempt:
            self._untake(key)
            state = SCHEDULED if task.kind == REVISIT else LATER
            self._note_due(state, task.due)
        elif state == WAITING and task.due > due and key not in self._taken:
            state = LATER
            self._note_due(state, task.due)
        blame, priority = self._db.execute("SELECT blame, priority FROM task WHERE key = ?", (key,)).fetchone()
        depths, attempts, blames = (depth, task.depth), (attempt, task.attempt), (blame, task.blame)
        best = task._replace(depth=min(depths), attempt=max(attempts), blame=max(blames))
        if priority >= GIVEN > task.priority:
            best = best._replace(priority=priority)
        if best != task:
            self.mixed.append(best)
        home = batch if task.depth <= depth else old
        self._db.execute(
            "UPDATE task SET state = ?, depth = ?, attempt = ?, due = max(due, ?), rank = ?, batch = ?, blame = ?, "
            "priority = ? WHERE key = ?",
            (state, best.depth, best.attempt, best.due, self._rank(best), home, best.blame, best.priority, key),
        )
        self._reread(task.host)
        self.left[old] -= 1
        self.left[home] += 1
        self.arrivals += 1

    def delay_retry(self, task: Task) -> None:
        """Let a URL whose visit has failed wait as long as its retry says, which is added with the next flush.

        The retry of an owner before us may be added sooner, and is due sooner.
        """
        key = key_of(task)
        state = WAITING if key in self._taken else LATER
        later = "UPDATE task SET state = ?, due = ? WHERE key = ? AND state IN (?, ?) AND due < ?"
        if self._db.execute(later, (state, task.due, key, WAITING, LATER, task.due)).rowcount and state == LATER:
            self._note_due(state, task.due)
            self._reread(task.host)

    def _rank(self, task: Task) -> int:
        """Return what sorts the URLs of a host: nearest and oldest first, or (dfs) deepest and newest first.

        The operator's priority comes before the depth, and at one depth a sitemap's before age. Robots and retry tasks
        come first: pages may wait for them.
        """
        self._serial += 1
        if task.kind != PAGE and task.is_side_task:
            return SIDE_TASK_RANK + self._serial
        bfs = self.order == "bfs"
        is_given = task.priority >= GIVEN
        given, said = (task.priority - GIVEN, PRIORITY) if is_given else (PRIORITY, task.priority)
        first, then = (10 - given, 10 - said) if bfs else (given, said)
        rank = (first << 58) + (min(task.depth, MAX_RANKED_DEPTH) << 44) + (then << 40) + self._serial
        return rank if bfs else -rank

    # ---- those that are taken, and those in memory

    def _is_free(self, key: bytes, shard: int) -> bool:
        return key not in self._taken and shard not in self.held

    def _untake(self, key: bytes) -> None:
        """Note that a URL is no longer taken, if it was."""
        _, host = self._taken.pop(key, (0, None))
        if host is not None:
            host.taken -= 1
            host.pending = host.pending if host.taken else 0
            self._hosts.release(host)

    def _reread(self, host: str) -> None:
        if host in self._hosts.loaded:
            self._hosts.loaded[host].reread()

    # ---- done

    def meet(self, host: str, done: Iterable[str], ours: Callable[[str], bool]) -> None:
        """Take in some of the keys of a host that are done, by the listings of its folders; not those of others."""
        keys = list(map(bytes.fromhex, filter(ours, done)))
        for start in range(0, len(keys), MAX_VARIABLES):
            self._meet_some(host, keys[start : start + MAX_VARIABLES])

    def _meet_some(self, host: str, keys: list[bytes]) -> None:
        marks = ", ".join("?" * len(keys))
        query = f"SELECT key, state, batch, {TASK_COLUMNS} FROM task WHERE key IN ({marks})"
        known = self._db.execute(query, keys).fetchall()
        new = dict.fromkeys(keys)
        for key, *_ in known:
            del new[key]
        self._db.executemany(f"INSERT INTO task (key, state) VALUES (?, {DONE})", [(key,) for key in new])
        for key, state, batch, *task in known:
            if state == SKIPPED:
                self._db.execute("UPDATE task SET state = ? WHERE key = ?", (DONE, key))
            elif state != DONE:
                self._mark_rows([(key, batch)])
                if self.relax:
                    self._note_nearer(Task(*task)._replace(attempt=0, due=0.0, via=""), batch)
                self._reread(host)

    def mark_done(
        self, tasks: Sequence[Task], kept: bool, links: bool = True, sizes: Mapping[str, int] | None = None
    ) -> None:
        """Mark URLs that have a record (`kept`: with a page; `links`: there may be some) or a failure record.

        `sizes` has the bytes that each has in the store, by the name of the task.
        """
        for start in range(0, len(tasks), MAX_VARIABLES):
            self._mark_some(tasks[start : start + MAX_VARIABLES], kept, links, sizes or {})

    def _mark_some(self, tasks: Sequence[Task], kept: bool, links: bool, sizes: Mapping[str, int]) -> None:
        by_key = {key_of(task): task for task in tasks}
        marks = ", ".join("?" * len(by_key))
        query = f"SELECT key, batch, depth FROM task WHERE key IN ({marks}) AND state < {DONE}"
        found = self._db.execute(query, list(by_key)).fetchall()
        stored: dict[Host, tuple[int, int]] = {}  # pages and bytes that each host has more
        for key, task in by_key.items():
            if key not in self._taken:  # its shard was not ours for a while, or it is to be retried
                self._reread(task.host)
            elif kept or sizes:
                host = self._taken[key][1]
                pages, size = stored.get(host, (0, 0))
                stored[host] = pages + kept, size + sizes.get(task.name, 0)
        for host, (pages, size) in stored.items():
            self._hosts.set_stored(host, host.kept + pages, (host.size or 0) + size)
        self._mark_rows([row[:2] for row in found])
        self._forget_revisits([key for key, *_ in found if by_key[key].kind == REVISIT])
        for key, batch, depth in found if links and self.relax else ():
            if depth < by_key[key].depth:  # found to be nearer while it was in flight
                self._note_nearer(by_key[key]._replace(depth=depth, attempt=0, due=0.0, via=""), batch)

    def skip(self, task: Task) -> None:
        """Skip a URL that was taken: the settings, as they are now, exclude it."""
        key = key_of(task)
        if key not in self._taken:
            self._reread(task.host)
        query = "SELECT key, batch FROM task WHERE key = ? AND state < 4"
        rows = self._db.execute(query, (key,)).fetchall()
        self._mark_rows(rows, SKIPPED)
        self._forget_revisits([key] if rows and task.kind == REVISIT else [])

    def drop_visits(self, is_wanted: Callable[[Task], bool]) -> Iterator[None]:
        """Drop the scheduled visits that are no longer wanted; yields after each part, so that visits may go on."""
        last = -1
        query = (
            f"SELECT rowid, key, batch, {TASK_COLUMNS} FROM task WHERE state = 2 AND rowid > ? ORDER BY rowid LIMIT ?"
        )
        while rows := self._db.execute(query, (last, CHANGED_AT_ONCE)).fetchall():
            last = rows[-1][0]
            dropped = [(key, batch) for _, key, batch, *task in rows if not is_wanted(Task(*task))]
            self._mark_rows(dropped)
            self._forget_revisits([key for key, _ in dropped])
            yield
        self._revisits.read_next_due()

    def forget_skipped(self) -> bool:
        """Forget some of the skipped URLs, so that they may be handed over again; False if there were none."""
        some = f"SELECT rowid FROM task WHERE state = {SKIPPED} LIMIT {CHANGED_AT_ONCE}"
        return self._db.execute(f"DELETE FROM task WHERE rowid IN ({some})").rowcount > 0

    def _mark_rows(self, rows: Sequence[tuple[bytes, int]], state: int = DONE) -> None:
        """Mark rows of (key, batch) as done or skipped."""
        self._db.executemany(f"UPDATE task SET state = {state}, url = NULL WHERE key = ?", [row[:1] for row in rows])
        self.left.subtract(batch for _, batch in rows)
        self.waiting -= len(rows)
        for key, _ in rows:
            self._untake(key)

    def _forget_revisits(self, keys: Sequence[bytes]) -> None:
        """Remove the rows of revisits that are done: there is no end of them, and none comes a second time."""
        self._db.executemany("DELETE FROM task WHERE key = ?", [(key,) for key in keys])
        self.revisits -= len(keys)

    def forget_done(self, task: Task) -> None:
        """Forget that a URL is done: its failure record was removed."""
        self._db.execute(f"DELETE FROM task WHERE key = ? AND state = {DONE}", (key_of(task),))

    def drop_nearer(self, batch: int) -> None:
        """Remove the first of the nearer pages: its links were handed over again."""
        del self.nearer[0]
        self.left[batch] -= 1

    def drain_mixed(self) -> list[Task]:
        """Return the tasks that merge two batches, to be written to a new one."""
        mixed, self.mixed = self.mixed, []
        return mixed

    # ---- batches and shards

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

        The table may change meanwhile, and few of them are in memory at a time.
        """
        for shard in sorted(shards):
            for rows in self._rows_of(shard, f"batch, {TASK_COLUMNS}"):
                for _, batch, *task in rows:
                    yield shard, batch, Task(*task)

    def _rows_of(self, shard: int, columns: str) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a shard that are not done, with their numbers, some at a time."""
        last = -1
        where = "state < 4 AND shard = ? AND rowid > ?"
        query = f"SELECT rowid, {columns} FROM task WHERE {where} ORDER BY rowid LIMIT {CHANGED_AT_ONCE}"
        while rows := self._db.execute(query, (shard, last)).fetchall():
            last = rows[-1][0]
            yield rows


def key_of(task: Task) -> bytes:
    """Return a task's key as the table has it."""
    return urls.key_bytes(task.url if task.kind == PAGE else task.name)
