"""The task table: a worker's waiting URLs on its machine's own disk, in SQLite.

Memory is bounded whatever the size of the frontier, and the next URL of a host is an index look-up. The table is
private to its worker and gone when it ends: the shard's batches make it again. It is safe to call from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from crawler.frontier.recent import RecentRequests
from crawler.frontier.task import Task
from crawler.web import urls

if TYPE_CHECKING:
    import sqlite3

# Of a task. Held: its shard is being given back; cut: it was left out by a setting that may be edited.
WAITING, LATER, TAKEN, HELD, SETTLED, CUT = range(6)
EMPTY, RESTING, READY, BUSY = range(4)  # of a host
SOON = 1.0  # seconds: a host that is due by then waits for us; one that is not waits for its own pace
VARIABLES = 500  # in one statement; old versions of SQLite take 999
ERRAND = -(1 << 63)  # the rank of the first errand; pages have none that is nearer to it than to 0
TASK = "url, depth, attempt, due, via, priority"  # the columns of a Task, in its order

# Rows stand in the order in which they came, and are taken in about that order: of all that is known only the index of
# keys is read here and there, so it is small. One transaction that never ends: the table goes with its process, and at
# the end of each SQLite would look through its whole cache.
SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -16000;
CREATE TABLE task(key BLOB UNIQUE, shard INT, host TEXT, state INT, depth INT, attempt INT, due REAL,
                  rank INT, batch INT, url TEXT, via TEXT, priority INT);
CREATE INDEX task_next ON task(host, rank) WHERE state = 0;
CREATE INDEX task_later ON task(due) WHERE state = 1;
CREATE INDEX task_retry ON task(host) WHERE state = 1;
CREATE INDEX task_taken ON task(host) WHERE state = 2;
CREATE INDEX task_batch ON task(batch) WHERE state < 4;
CREATE TABLE host(host TEXT PRIMARY KEY, shard INT, state INT, due REAL, served INT, strain REAL, lanes INT,
                  busy INT, met INT, kept INT, past INT, pace REAL) WITHOUT ROWID;
CREATE INDEX host_resting ON host(due) WHERE state = 1;
CREATE INDEX host_ready ON host(served) WHERE state = 2;
BEGIN;
"""


@dataclass(frozen=True, slots=True)
class Host:
    """What the table knows of a host: how strained it is, whether it was met, how many pages are kept.

    `past` says in which folders of the store it was found when its shard became ours (see `Store.past`).
    """

    host: str
    strain: float
    met: bool
    kept: int
    past: int = 0
    gains: int = 0  # how often shards had become ours when it was taken


class Queue(NamedTuple):
    """A host, and how many of its URLs could be taken if it were due."""

    host: str
    state: int
    due: float
    strain: float
    pace: float | None  # seconds between its last answer and the next request; None if it was not asked yet
    waiting: int


Result = TypeVar("Result")


def locked(method: Callable[..., Result]) -> Callable[..., Result]:
    """One thread at a time: SQLite's connection and our counters belong together."""

    def with_lock(self: Table, *args: Any, **kwargs: Any) -> Result:
        with self.lock:
            return method(self, *args, **kwargs)

    with_lock.__doc__ = method.__doc__
    return with_lock


class Table:
    """All URLs that a worker knows of in its shards, and their hosts."""

    def __init__(
        self, order: str = "bfs", relax: bool = False, max_per_host: int | None = None, max_share: float = 1.0
    ) -> None:
        self.lock = threading.RLock()
        self.order = order
        self.relax = relax  # with a depth limit, a settled page that turns out to be nearer has more to say
        self.max_per_host = max_per_host
        self.max_share = max_share
        self.cut = 0  # URLs left out because their host has its share
        self.nearer: list[tuple[Task, int]] = []  # such pages, and the batch that told us
        self.mixed: list[Task] = []  # what no single batch tells in full
        self.held: set[int] = set()  # shards that are being given back
        self.left: Counter[int] = Counter()  # unsettled URLs of each batch
        self.waiting = 0  # URLs that are not settled, those in flight among them
        self.taken = 0
        self.gains = 0  # how often we were told what others may have settled
        self.arrivals = 0  # all news that ever came: while it stands still, we had nothing new to do
        self._serial = 0
        self._lately = RecentRequests()
        # The empty name is a temporary database: on disk when it grows, and gone with the process.
        import sqlite3  # here, because commands that only look at a store need no table

        self._db = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._db.executescript(SCHEMA)

    # ---- adding

    @locked
    def add(self, tries: Iterable[Task], batch: int, shard_of: Callable[[str], int]) -> None:
        """Take in the URLs of a batch; the ones that are known already do not count for it."""
        hosts = {}
        for task in tries:
            shard = shard_of(task.url)
            if self._add(task, batch, shard):
                hosts[urls.host(task.url)] = shard
        for host, shard in hosts.items():
            self._wake(host, shard)

    @locked
    def remember(self, past: list[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts that others may have settled pages of: they are to be met anew."""
        self.gains += 1
        note = "ON CONFLICT(host) DO UPDATE SET met = 0, past = past | excluded.past"
        self._db.executemany(f"INSERT INTO host VALUES (?, ?, 0, 0, 0, 0, 1, 0, 0, 0, ?, NULL) {note}", past)

    def _add(self, task: Task, batch: int, shard: int) -> bool:
        """Whether it was not known yet."""
        key = key_of(task.url)
        if self._insert(key, task, batch, shard):
            return True
        row = self._db.execute("SELECT state, depth, attempt, batch FROM task WHERE key = ?", (key,)).fetchone()
        if row[0] >= SETTLED:
            self._come_nearer(key, task, batch, row[1])
        elif task.depth < row[1] or task.attempt > row[2] or (task.attempt and (task.depth, task.attempt) == row[1:3]):
            self._renew(key, task, batch, *row)  # equal news of a retry: the batch that mixes two takes their place
        return False

    def _insert(self, key: bytes, task: Task, batch: int, shard: int) -> bool:
        state = HELD if shard in self.held else LATER if task.due else WAITING
        values = (key, shard, urls.host(task.url), state, task.depth, task.attempt, task.due, self._rank(task), batch)
        more = (task.url, task.via, task.priority)
        insert = "INSERT OR IGNORE INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
        """The batch that brought the news stays until it is dealt with."""
        self.nearer.append((task, batch))
        self.left[batch] += 1
        self.arrivals += 1

    def _renew(self, key: bytes, task: Task, batch: int, state: int, depth: int, attempt: int, old: int) -> None:
        """The batch with the better news of a URL becomes its home: the old one may go before it is settled.

        When one batch knows the smaller depth and the other the higher attempt, a third will know both.
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
        """What sorts the URLs of a host: nearest first and oldest first, or deepest first and newest first.

        At one depth, a sitemap's priority comes before age. Errands come first: pages may wait for what they bring.
        """
        self._serial += 1
        if urls.is_side_task(task.url):
            return ERRAND + self._serial
        bfs = self.order == "bfs"
        tenths = 10 - task.priority if bfs else task.priority
        rank = (min(task.depth, 1 << 17) << 44) + (tenths << 40) + self._serial
        return rank if bfs else -rank

    def _wake(self, host: str, shard: int) -> None:
        wake = "ON CONFLICT(host) DO UPDATE SET state = 1 WHERE state = 0"
        self._db.execute(f"INSERT INTO host VALUES (?, ?, 1, 0, 0, 0, 1, 0, 0, 0, 0, NULL) {wake}", (host, shard))

    # ---- taking

    @locked
    def take(self, now: float) -> tuple[Task, Host] | None:
        """The next URL of the least served host that is due, or None."""
        self._ripen(now)
        while True:
            row = self._least_served(now)
            if row is None:
                return None
            host, strain, met, kept, past, busy, lanes = row
            if self._has_its_share(host, kept, now):
                continue
            task = self._next(host)
            if task is None:
                self._db.execute("UPDATE host SET state = ? WHERE host = ?", (EMPTY, host))
                continue
            state = READY if busy + 1 < lanes else BUSY
            self._db.execute(
                "UPDATE host SET served = served + 1, busy = busy + 1, state = ? WHERE host = ?",
                (state, host),
            )
            self.taken += 1
            if met:  # else its folder is listed, and nothing asked
                self._lately.note(host)
            return task, Host(host, strain, bool(met), kept, past, self.gains)

    def _least_served(self, now: float) -> tuple[Any, ...] | None:
        """Of the hosts that are due the least served; but one that has had its share only if no other waits."""
        first = next(iter(self._due(1)), None)
        if first is None or not self._is_greedy(first[0]):
            return first
        # So many cannot all have had more than their share: among one more there is one that has not.
        few = int(1 / self.max_share) + 1
        modest = next((row for row in self._due(few) if not self._is_greedy(row[0])), None)
        return modest if modest or self._others_wait(now, few) else first

    def _due(self, most: int) -> list[tuple[Any, ...]]:
        return self._db.execute(
            "SELECT host, strain, met, kept, past, busy, lanes FROM host WHERE state = 2 ORDER BY served LIMIT ?",
            (most,),
        ).fetchall()

    def _is_greedy(self, host: str) -> bool:
        return self._lately.share(host) > self.max_share

    def _others_wait(self, now: float, few: int) -> bool:
        """Whether a host that has not had its share will be due in a moment."""
        waiting = "EXISTS (SELECT 1 FROM task WHERE task.host = host.host AND task.state = 0)"
        soon = self._db.execute(
            f"SELECT host FROM host WHERE state = 1 AND due <= ? AND {waiting} ORDER BY due LIMIT ?", (now + SOON, few)
        )
        return any(not self._is_greedy(host) for (host,) in soon.fetchall())

    def _has_its_share(self, host: str, kept: int, now: float) -> bool:
        """Hold a host back at `max_per_host`; once that many are kept, what still waits there is cut."""
        if self.max_per_host is None or self._has_errand(host):
            return False
        taken = self._db.execute("SELECT count(*) FROM task WHERE state = 2 AND host = ?", (host,)).fetchone()[0]
        if kept + taken < self.max_per_host:
            return False
        if kept >= self.max_per_host:
            rows = self._db.execute(
                "SELECT key, state, batch FROM task WHERE host = ? AND state = 0", (host,)
            ).fetchall()
            self._settle(rows, CUT)
            self.cut += len(rows)
        state = EMPTY if kept >= self.max_per_host else RESTING
        self._db.execute("UPDATE host SET state = ?, due = ? WHERE host = ?", (state, now + 0.5, host))
        return True

    def _has_errand(self, host: str) -> bool:
        """Whether a host is to be asked for another's robots.txt, which brings no page of its own."""
        found = self._db.execute("SELECT 1 FROM task WHERE host = ? AND state = 0 AND rank < ?", (host, ERRAND // 2))
        return found.fetchone() is not None

    def _ripen(self, now: float) -> None:
        """Retries whose time has come wait again, and hosts that have rested are ready."""
        due = self._db.execute("SELECT key, host, shard FROM task WHERE state = 1 AND due <= ?", (now,)).fetchall()
        for key, host, shard in due:
            self._db.execute("UPDATE task SET state = 0 WHERE key = ?", (key,))
            self._wake(host, shard)
        self._db.execute("UPDATE host SET state = 2 WHERE state = 1 AND due <= ?", (now,))

    def _next(self, host: str) -> Task | None:
        row = self._db.execute(
            f"SELECT key, {TASK} FROM task WHERE host = ? AND state = 0 ORDER BY rank LIMIT 1", (host,)
        ).fetchone()
        if row is None:
            return None
        self._db.execute("UPDATE task SET state = ? WHERE key = ?", (TAKEN, row[0]))
        return Task(*row[1:])._replace(due=0.0)

    @locked
    def put_back(self, url: str) -> None:
        """A URL that was taken but not asked waits again."""
        key = key_of(url)
        if self._db.execute("SELECT 1 FROM task WHERE key = ? AND state = 2", (key,)).fetchone():
            state = HELD if self._is_held(key) else WAITING
            self._db.execute("UPDATE task SET state = ? WHERE key = ?", (state, key))
            self.taken -= 1

    @locked
    def rest(self, host: str, due: float, strain: float = 0.0, lanes: int = 1, pace: float | None = None) -> None:
        """A host may be asked again at `due`, by so many visitors at once; `pace`: how long that is from its answer.

        Not sooner than any answer has said: where many visitors ask, one may be told to come later, and others not.
        """
        self._db.execute(
            "UPDATE host SET due = max(due, ?), strain = ?, lanes = ?, busy = max(busy - 1, 0), "
            "pace = coalesce(?, pace), state = CASE WHEN busy - 1 >= ? THEN 3 ELSE 1 END WHERE host = ?",
            (due, strain, lanes, pace, lanes, host),
        )

    @locked
    def next_retry(self, host: str) -> float:
        """When the first retry of a host is due; 0 if there is none."""
        found = self._db.execute("SELECT min(due) FROM task WHERE state = 1 AND host = ?", (host,)).fetchone()[0]
        return float(found or 0.0)

    # ---- settling

    @locked
    def meet(
        self, host: str, settled: set[str], kept: int, ours: Callable[[str], bool], gains: int | None = None
    ) -> bool:
        """Learn what is settled of a host from the listing of its folders; other workers' keys are left out.

        If shards became ours since the listing (there are more `gains`), it does not tell all: False, and the host is
        met again.
        """
        for key in map(bytes.fromhex, filter(ours, settled)):
            row = self._db.execute("SELECT state, url, depth, shard, batch FROM task WHERE key = ?", (key,)).fetchone()
            if row is None:
                self._db.execute("INSERT INTO task (key, host, state) VALUES (?, ?, ?)", (key, host, SETTLED))
            elif row[0] == CUT:
                self._db.execute("UPDATE task SET state = ? WHERE key = ?", (SETTLED, key))
            elif row[0] != SETTLED:
                self._settle([(key, row[0], row[4])])
                if self.relax:
                    self._note_nearer(Task(row[1], row[2]), row[4])
        is_met = gains in (None, self.gains)
        if is_met:
            self._db.execute("UPDATE host SET met = 1, past = 0, kept = ? WHERE host = ?", (kept, host))
        return is_met

    @locked
    def settle(self, tasks: Sequence[Task], kept: bool, links: bool = True) -> None:
        """URLs have their records (`kept`: with a page; `links`: they may have some) or refusals: they are done."""
        for start in range(0, len(tasks), VARIABLES):
            self._settle_some(tasks[start : start + VARIABLES], links)
        if kept:
            pages = Counter(urls.host(task.url) for task in tasks)
            self._db.executemany(
                "UPDATE host SET kept = kept + ? WHERE host = ?", [(n, host) for host, n in pages.items()]
            )

    def _settle_some(self, tasks: Sequence[Task], links: bool) -> None:
        by_key = {key_of(task.url): task for task in tasks}
        marks = ", ".join("?" * len(by_key))
        query = f"SELECT key, state, batch, depth FROM task WHERE key IN ({marks}) AND state < {SETTLED}"
        found = self._db.execute(query, list(by_key)).fetchall()
        self._settle([row[:3] for row in found])
        for key, _, batch, depth in found if links and self.relax else ():
            if depth < by_key[key].depth:  # found to be nearer while it was in flight
                self._note_nearer(Task(by_key[key].url, depth), batch)

    @locked
    def leave_out(self, url: str) -> None:
        """A URL that was taken is not to be asked after all, as things stand."""
        query = "SELECT key, state, batch FROM task WHERE key = ? AND state < 4"
        self._settle(self._db.execute(query, (key_of(url),)).fetchall(), CUT)

    @locked
    def reconsider(self) -> None:
        """Forget what was left out: whoever finds it again may hand it over again."""
        self._db.execute(f"DELETE FROM task WHERE state = {CUT}")

    def _settle(self, rows: Sequence[tuple[bytes, int, int]], state: int = SETTLED) -> None:
        """Rows of key, state and batch are settled, or cut."""
        self._db.executemany(f"UPDATE task SET state = {state}, url = NULL WHERE key = ?", [row[:1] for row in rows])
        self.left.subtract(batch for _, _, batch in rows)
        self.waiting -= len(rows)
        self.taken -= sum(state == TAKEN for _, state, _ in rows)

    @locked
    def unsettle(self, url: str) -> None:
        """Forget that a URL is settled: its refusal was taken back."""
        self._db.execute(f"DELETE FROM task WHERE key = ? AND state = {SETTLED}", (key_of(url),))

    @locked
    def drop_nearer(self, batch: int) -> None:
        """The first of the pages that turned out to be nearer has been dealt with."""
        del self.nearer[0]
        self.left[batch] -= 1

    @locked
    def drain_mixed(self) -> list[Task]:
        """What no single batch tells in full, for a new one."""
        mixed, self.mixed = self.mixed, []
        return mixed

    # ---- batches and shards

    @locked
    def of_batches(self, batches: Iterable[int]) -> list[Task]:
        """The URLs of these batches that are not settled, or whose links are to be handed over again."""
        wanted = set(batches)
        found = [task for task, batch in self.nearer if batch in wanted]
        for batch in wanted:
            with closing(self._db.execute(f"SELECT {TASK} FROM task WHERE batch = ? AND state < 4", (batch,))) as rows:
                found.extend(Task(*row) for row in rows)
        return found

    @locked
    def rehome(self, tries: Iterable[Task], old: Iterable[int], new: int) -> None:
        """These were all that the old batches had left; what is not settled of them meanwhile is in the new one."""
        old, tries = set(old), set(tries) if self.nearer else ()
        for place, (task, batch) in enumerate(self.nearer):
            if batch in old and task in tries:
                self.nearer[place] = task, new
                self.left[batch] -= 1
                self.left[new] += 1
        for batch in old:
            moved = self._db.execute("UPDATE task SET batch = ? WHERE batch = ? AND state < 4", (new, batch)).rowcount
            self.left[batch] -= moved
            self.left[new] += moved

    def of_shards(self, shards: Iterable[int]) -> Iterator[tuple[int, int, Task]]:
        """(shard, batch, URL) of all that is not settled in these shards now, wherever it stands, shard by shard.

        They are sorted before the first is given, so that the table may change, and few are in memory at a time.
        """
        query = f"SELECT shard, batch, {TASK} FROM task WHERE state < 4 AND shard IN ({listed(shards)}) ORDER BY shard"
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
        """Nothing of these shards is given out any more; what is taken runs to its end."""
        self.held.update(shards)
        self._db.execute(f"UPDATE task SET state = {HELD} WHERE state < 2 AND shard IN ({listed(shards)})")

    @locked
    def in_flight(self, shard: int) -> bool:
        """Whether a URL of a shard is taken and not settled yet."""
        return (
            self._db.execute("SELECT 1 FROM task WHERE state = 2 AND shard = ? LIMIT 1", (shard,)).fetchone()
            is not None
        )

    @locked
    def forget(self, shards: Iterable[int], split: bool) -> None:
        """Drop what waits in shards that are no longer ours; what is settled stays settled.

        Their hosts are met anew if they come back: another owner settles more of them. With `split` a host is in many
        shards, and stays.
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
        """How many hosts have work now or later."""
        return int(self._db.execute("SELECT count(*) FROM host WHERE state > 0").fetchone()[0])

    @locked
    def busiest(self, most: int) -> list[tuple[str, int]]:
        """The hosts with the most pages kept."""
        return self._db.execute("SELECT host, kept FROM host ORDER BY kept DESC LIMIT ?", (most,)).fetchall()

    @locked
    def retries(self) -> int:
        """How many URLs wait for the time of their next attempt."""
        return int(self._db.execute("SELECT count(*) FROM task WHERE state = 1").fetchone()[0])

    @locked
    def queues(self, after: str, most: int) -> list[Queue]:
        """The hosts that follow one by name, those without work among them, and how much waits there."""
        count = "CASE WHEN state THEN (SELECT count(*) FROM task WHERE task.host = host.host AND task.state = 0) END"
        found = self._db.execute(
            f"SELECT host, state, due, strain, pace, ifnull({count}, 0) FROM host WHERE host > ? ORDER BY host LIMIT ?",
            (after, most),
        )
        return [Queue(*row) for row in found]

    @locked
    def next_due(self, now: float) -> float:
        """Seconds until a host or a retry may be due; a long time when nothing waits for the clock."""
        host = self._db.execute("SELECT min(due) FROM host WHERE state = 1").fetchone()[0]
        task = self._db.execute("SELECT min(due) FROM task WHERE state = 1").fetchone()[0]
        return float(min(due - now for due in (host, task, now + 3600.0) if due is not None))


def key_of(url: str) -> bytes:
    """A URL's key as the table has it: half as long."""
    return bytes.fromhex(urls.key(url))


def listed(shards: Iterable[int]) -> str:
    """Shards as SQL lists them."""
    return ", ".join(map(str, shards))
