"""The task table: a worker's waiting URLs on its machine's own disk, in SQLite, and the next ones in memory.

Memory is bounded whatever the size of the frontier. The table is private to its worker and gone when it ends: the
batches on the mount make it again. Only the thread of the worker's event loop calls it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from math import inf

from crawler.frontier.hosts import Host, Hosts, Queue
from crawler.frontier.task import PAGE, Task
from crawler.web import urls

# The state of a task. Later: until its due time. Held: its shard is being released. Skipped: excluded by a setting
# that may be edited. Which tasks are taken is known in memory alone.
WAITING, LATER, HELD, DONE, SKIPPED = 0, 1, 3, 4, 5
MAX_VARIABLES = 500  # in one statement; old versions of SQLite take 999
SIDE_TASK_RANK = -(1 << 63)  # the rank of the first robots or retry task; those of pages are nearer to 0 than to it
MAX_CHUNK = 128  # tasks of a host that are read at once; each time twice as many, from a few for a host with one page
RIPENED_AT_ONCE = 1000  # retries
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
CREATE INDEX task_batch ON task(batch) WHERE state < 4;
"""


class Table:
    """All URLs that a worker knows in its shards, and their hosts."""

    def __init__(
        self, order: str = "bfs", relax: bool = False, max_per_host: int | None = None, max_share: float = 1.0
    ) -> None:
        self.order = order
        self.relax = relax  # with a depth limit, more links may be followed from a page that is found to be nearer
        self.max_per_host = max_per_host
        self.skipped = 0  # URLs skipped because their host has max_per_host pages
        self.nearer: list[tuple[Task, int]] = []  # done pages that were found to be nearer, and the batch that says so
        self.mixed: list[Task] = []  # tasks that merge what two batches say of a URL
        self.held: set[int] = set()  # shards that are being released
        self.left: Counter[int] = Counter()  # URLs of each batch that are not done
        self.waiting = 0  # URLs that are not done, including those in flight
        self.gains = 0  # how often shards became ours, of which others may have done URLs
        self.arrivals = 0  # counts everything new: while it does not change, we had nothing new to do
        self._taken: dict[bytes, tuple[int, Host]] = {}  # key -> shard and host
        self._serial = 0
        self._next_later = inf  # when the first retry is due
        # The empty name is a temporary database: on disk when it grows, and gone with the process.
        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(SCHEMA)
        self._hosts = Hosts(self._db, max_share)
        self._db.execute("BEGIN")

    @property
    def taken(self) -> int:
        """How many URLs are taken and not done yet."""
        return len(self._taken)

    # ---- adding

    def add(self, tasks: Iterable[Task], batch: int, shard_of: Callable[[Task], int], now: float = 0.0) -> None:
        """Add the URLs of a batch; those that are known already do not count as its own."""
        hosts = {}
        for task in tasks:
            shard = shard_of(task)
            if self._add(task, batch, shard):
                hosts[task.host] = shard
        for host, shard in hosts.items():
            self._hosts.wake(host, shard, now)

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
        rank, host = self._rank(task), task.host
        values = (key, shard, host, state, task.depth, task.attempt, task.due, rank, batch)
        more = (task.url, task.via, task.priority, task.kind, task.detail)
        insert = "INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        if not self._db.execute(insert, values + more).rowcount:
            return False
        self.left[batch] += 1
        self.waiting += 1
        self.arrivals += 1
        if state == LATER:
            self._next_later = min(self._next_later, task.due)
        loaded = self._hosts.loaded.get(host)
        if loaded is not None and loaded.last_rank is not None and rank < loaded.last_rank:
            loaded.reread()
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
            self._untake(key)
            state = HELD if state == HELD else LATER
            self._next_later = min(self._next_later, task.due)
        best = task._replace(depth=min(depth, task.depth), attempt=max(attempt, task.attempt))
        if (best.depth, best.attempt) != (task.depth, task.attempt):
            self.mixed.append(best)
        home = batch if task.depth <= depth else old
        self._db.execute(
            "UPDATE task SET state = ?, depth = ?, attempt = ?, due = max(due, ?), rank = ?, batch = ? WHERE key = ?",
            (state, best.depth, best.attempt, best.due, self._rank(best), home, key),
        )
        self._reread(task.host)
        self.left[old] -= 1
        self.left[home] += 1
        self.arrivals += 1

    def _reread(self, host: str) -> None:
        if host in self._hosts.loaded:
            self._hosts.loaded[host].reread()

    def _rank(self, task: Task) -> int:
        """Return what sorts the URLs of a host: nearest and oldest first, or (dfs) deepest and newest first.

        At one depth a sitemap's priority comes before age. Robots and retry tasks come first: pages may wait for them.
        """
        self._serial += 1
        if task.kind != PAGE and task.is_side_task:
            return SIDE_TASK_RANK + self._serial
        bfs = self.order == "bfs"
        tenths = 10 - task.priority if bfs else task.priority
        rank = (min(task.depth, 1 << 17) << 44) + (tenths << 40) + self._serial
        return rank if bfs else -rank

    # ---- taking

    def take(self, now: float, unanswered: bool = True) -> tuple[Task, Host] | None:
        """Return the next URL of the host that has been due longest, or None.

        With `unanswered` False, only of a host whose last request was answered.
        """
        if now >= self._next_later:
            self._ripen(now)
        while host := self._hosts.next(now, unanswered):
            if self._is_at_limit(host, now):
                continue
            found = self._next(host)
            if found is None:
                self._hosts.retire(host)
                continue
            key, shard, task = found
            self._taken[key] = shard, host
            self._hosts.take(host, now)
            return task, host
        return None

    def _is_at_limit(self, host: Host, now: float) -> bool:
        """Hold a host back at `max_per_host`; once so many pages are stored, its other URLs are skipped."""
        if self.max_per_host is None or host.kept + host.taken < self.max_per_host or self._has_side_task(host.name):
            return False
        if host.kept >= self.max_per_host:
            query = "SELECT key, batch FROM task WHERE host = ? AND state = 0"
            rows = [row for row in self._db.execute(query, (host.name,)).fetchall() if row[0] not in self._taken]
            self._mark_rows(rows, SKIPPED)
            self.skipped += len(rows)
            host.reread()
            self._hosts.retire(host)
        else:
            self._hosts.wait(host, now + 0.5)
        return True

    def _has_side_task(self, host: str) -> bool:
        """Tell whether a host has a robots or retry task, which stores no page of its own."""
        query = "SELECT key FROM task WHERE host = ? AND state = 0 AND rank < ?"
        return any(key not in self._taken for (key,) in self._db.execute(query, (host, SIDE_TASK_RANK // 2)).fetchall())

    def _ripen(self, now: float) -> None:
        """Let retries that are due wait again."""
        query = "SELECT key, host, shard FROM task WHERE state = 1 AND due <= ? LIMIT ?"
        for key, host, shard in self._db.execute(query, (now, RIPENED_AT_ONCE)).fetchall():
            self._db.execute("UPDATE task SET state = 0 WHERE key = ?", (key,))
            self._reread(host)
            self._hosts.wake(host, shard, now)
        (found,) = self._db.execute("SELECT min(due) FROM task WHERE state = 1").fetchone()
        self._next_later = inf if found is None else found

    def _next(self, host: Host) -> tuple[bytes, int, Task] | None:
        if not host.tasks and host.more:
            self._read(host)
        return host.tasks.popleft() if host.tasks else None

    def _read(self, host: Host) -> None:
        """Read the next tasks of a host into memory."""
        where = "host = ? AND state = 0 AND rank > ?"
        query = f"SELECT rank, key, shard, {TASK_COLUMNS} FROM task WHERE {where} ORDER BY rank LIMIT ?"
        while host.more and not host.tasks:
            after = SIDE_TASK_RANK if host.last_rank is None else host.last_rank
            rows = self._db.execute(query, (host.name, after, host.chunk)).fetchall()
            host.more = len(rows) == host.chunk
            host.chunk = min(2 * host.chunk, MAX_CHUNK)
            if rows:
                host.last_rank = rows[-1][0]
            for _, key, shard, url, depth, attempt, _, *rest in rows:
                if key not in self._taken:
                    host.tasks.append((key, shard, Task(url, depth, attempt, 0.0, *rest)))

    def put_back(self, task: Task) -> None:
        """Let a URL wait again that was taken but not requested; its host still has to `rest`."""
        key = key_of(task)
        if key in self._taken:
            _, host = self._taken[key]
            host.reread()  # it may be nearer by now, or behind a robots task
            self._untake(key)
            self._hosts.requeue(host, host.since)

    def _untake(self, key: bytes) -> None:
        """Note that a URL is no longer taken, if it was."""
        _, host = self._taken.pop(key, (0, None))
        if host is not None:
            host.taken -= 1
            self._hosts.release(host)

    def rest(
        self,
        host: Host,
        due: float,
        *,
        strain: float | None = None,
        lanes: int | None = None,
        pace: float | None = None,
        answered: bool | None = None,
        keeps_turn: bool = False,
    ) -> None:
        """End a request of a host and let it rest until `due`, then request it in so many `lanes` at once.

        `pace` is the rest in seconds; `keeps_turn` if the turn brought no page, as that for its robots.txt. What is not
        given stays as it is.
        """
        host.lanes = host.lanes if lanes is None else lanes
        host.strain = host.strain if strain is None else strain
        host.pace = host.pace if pace is None else pace
        host.answered = host.answered if answered is None else answered
        self._hosts.rest(host, due, keeps_turn)

    def next_retry(self, host: str) -> float:
        """Return when the first retry of a host is due; 0 if there is none."""
        found = self._db.execute("SELECT min(due) FROM task WHERE state = 1 AND host = ?", (host,)).fetchone()[0]
        return float(found or 0.0)

    # ---- done

    def meet(self, host: str, done: Iterable[str], ours: Callable[[str], bool]) -> None:
        """Take in some of the keys of a host that are done, by the listings of its folders; not those of others."""
        for key in map(bytes.fromhex, filter(ours, done)):
            row = self._db.execute(f"SELECT state, batch, {TASK_COLUMNS} FROM task WHERE key = ?", (key,)).fetchone()
            if row is None:
                self._db.execute("INSERT INTO task (key, host, state) VALUES (?, ?, ?)", (key, host, DONE))
            elif row[0] == SKIPPED:
                self._db.execute("UPDATE task SET state = ? WHERE key = ?", (DONE, key))
            elif row[0] != DONE:
                self._mark_rows([(key, row[1])])
                if self.relax:
                    self._note_nearer(Task(*row[2:])._replace(attempt=0, due=0.0, via=""), row[1])
        self._reread(host)

    def set_met(self, host: Host, kept: int, gains: int) -> bool:
        """Note that we know what is done of a host, and how many of its pages are stored.

        False if shards became ours since the listings (there are more `gains`): the host must be met again.
        """
        if gains == self.gains:
            host.met, host.kept = True, kept
        return host.met

    def mark_done(self, tasks: Sequence[Task], kept: bool, links: bool = True) -> None:
        """Mark URLs that have a record (`kept`: with a page; `links`: there may be some) or a failure record."""
        for start in range(0, len(tasks), MAX_VARIABLES):
            self._mark_some(tasks[start : start + MAX_VARIABLES], kept, links)

    def _mark_some(self, tasks: Sequence[Task], kept: bool, links: bool) -> None:
        by_key = {key_of(task): task for task in tasks}
        marks = ", ".join("?" * len(by_key))
        query = f"SELECT key, batch, depth FROM task WHERE key IN ({marks}) AND state < {DONE}"
        found = self._db.execute(query, list(by_key)).fetchall()
        for key, task in by_key.items():
            if key not in self._taken:  # its shard was not ours for a while, or it is to be retried
                self._reread(task.host)
            elif kept:
                self._taken[key][1].kept += 1
        self._mark_rows([row[:2] for row in found])
        for key, batch, depth in found if links and self.relax else ():
            if depth < by_key[key].depth:  # found to be nearer while it was in flight
                self._note_nearer(by_key[key]._replace(depth=depth, attempt=0, due=0.0, via=""), batch)

    def skip(self, task: Task) -> None:
        """Skip a URL that was taken: the settings, as they are now, exclude it."""
        key = key_of(task)
        if key not in self._taken:
            self._reread(task.host)
        query = "SELECT key, batch FROM task WHERE key = ? AND state < 4"
        self._mark_rows(self._db.execute(query, (key,)).fetchall(), SKIPPED)

    def adopt(self, max_per_host: int | None, max_share: float) -> None:
        """Use these limits from now on, and forget skipped URLs, so that they may be handed over again."""
        self.max_per_host, self._hosts.max_share = max_per_host, max_share
        self._db.execute(f"DELETE FROM task WHERE state = {SKIPPED}")

    def _mark_rows(self, rows: Sequence[tuple[bytes, int]], state: int = DONE) -> None:
        """Mark rows of (key, batch) as done or skipped."""
        self._db.executemany(f"UPDATE task SET state = {state}, url = NULL WHERE key = ?", [row[:1] for row in rows])
        self.left.subtract(batch for _, batch in rows)
        self.waiting -= len(rows)
        for key, _ in rows:
            self._untake(key)

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

        They are sorted before the first is given, so that the table may change, and few are in memory at a time.
        """
        where = f"state < 4 AND shard IN ({listed(shards)})"
        rows = self._db.execute(f"SELECT shard, batch, {TASK_COLUMNS} FROM task WHERE {where} ORDER BY shard")
        while some := rows.fetchmany(1000):
            for shard, batch, *task in some:
                yield shard, batch, Task(*task)

    def hold(self, shards: Iterable[int], split: bool = False) -> None:
        """Give out no more URLs of these shards; those that are taken may finish."""
        shards = set(shards)
        self.held.update(shards)
        self._db.execute(f"UPDATE task SET state = {HELD} WHERE state < 2 AND shard IN ({listed(shards)})")
        for host in self._hosts.of_shards(shards, split):
            host.reread()

    def in_flight(self, shard: int) -> bool:
        """Tell whether a URL of a shard is taken and not done yet."""
        return any(found == shard for found, _ in self._taken.values())

    def forget(self, shards: Iterable[int], split: bool) -> None:
        """Forget the waiting URLs of shards that are no longer ours; done ones stay done.

        Their hosts must be met again if the shards come back. With `split` a host is in many shards, and stays.
        """
        shards = set(shards)
        ours = f"state < 4 AND shard IN ({listed(shards)})"
        for batch, count in self._db.execute(f"SELECT batch, count(*) FROM task WHERE {ours} GROUP BY batch"):
            self.left[batch] -= count
            self.waiting -= count
        for key in [key for key, (shard, _) in self._taken.items() if shard in shards]:
            self._untake(key)
        self._db.execute(f"DELETE FROM task WHERE {ours}")
        if not split:
            self._hosts.forget(shards)
        for host in self._hosts.of_shards(shards, split):
            host.reread()
        self.held.difference_update(shards)

    # ---- for people

    def count_hosts(self) -> int:
        """Return how many hosts have work now or later."""
        self._hosts.save()
        return self._hosts.count()

    def busiest(self, most: int) -> list[tuple[str, int]]:
        """Return the hosts with the most stored pages, as far as `count_hosts` has counted them."""
        return self._hosts.busiest(most)

    def retries(self) -> int:
        """Return how many URLs wait for the time of their next attempt."""
        return int(self._db.execute("SELECT count(*) FROM task WHERE state = 1").fetchone()[0])

    def queues(self, after: str, most: int) -> list[Queue]:
        """Return the hosts that follow one by name, with or without work, and how many URLs wait there."""
        self._hosts.save()
        return self._hosts.queues(after, most)

    def next_due(self, now: float) -> float:
        """Return the seconds until the next host or retry is due that is not yet; an hour if none will be."""
        return min(self._hosts.next_due(now), self._next_later, now + 3600.0) - now


def key_of(task: Task) -> bytes:
    """Return a task's key as the table has it: bytes, half as long."""
    return bytes.fromhex(urls.key(task.url if task.kind == PAGE else task.name))


def listed(shards: Iterable[int]) -> str:
    """Return shards as a list in SQL."""
    return ", ".join(map(str, shards))
