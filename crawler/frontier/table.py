"""The task table: a worker's waiting URLs on its machine's own disk, in SQLite, and the next ones in memory.

Memory is bounded whatever the size of the frontier. The table is private to its worker and gone when it ends: the
batches on the mount make it again. Only the thread of the worker's event loop calls it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import inf
from typing import Any

from crawler.frontier.hosts import Host, Hosts, Queue
from crawler.frontier.limits import MAX_HOSTS, Limits
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
MAX_CHUNK = 128  # tasks of a host that are read at once; each time twice as many, from a few for a host with one page
RIPENED_AT_ONCE = 1000  # retries
SKIPPED_AT_ONCE = 1000  # URLs of a host that has reached a limit
LIMIT_INTERVAL = 60.0  # seconds until a host is looked at again while only revisits may be taken
CHANGED_AT_ONCE = 1000  # URLs of a shard that is released
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


class Table:
    """All URLs that a worker knows in its shards, and their hosts."""

    def __init__(
        self,
        order: str = "bfs",
        relax: bool = False,
        max_share: float = 1.0,
        limits: Limits | None = None,
        fresh_share: float = 0.5,
    ) -> None:
        self.order = order
        self.fresh_share = fresh_share  # of a host's turns, for revisits that are due while other URLs wait
        self.relax = relax  # with a depth limit, more links may be followed from a page that is found to be nearer
        self.limits = limits or Limits()
        self.skipped: Counter[str] = Counter()  # URLs skipped because of a limit of their host or domain, by its name
        self.nearer: list[tuple[Task, int]] = []  # done pages that were found to be nearer, and the batch that says so
        self.mixed: list[Task] = []  # tasks that merge what two batches say of a URL
        self.held: set[int] = set()  # shards that are being released: nothing of them is taken
        self._split = False  # whether a host may have URLs in several shards
        self.left: Counter[int] = Counter()  # URLs of each batch that are not done
        self.waiting = 0  # URLs that are not done, including those in flight and revisits
        self.revisits = 0  # how many of these are revisits
        self.gains = 0  # how often shards became ours, of which others may have done URLs
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

    @property
    def taken(self) -> int:
        """How many URLs are taken and not done yet."""
        return len(self._taken)

    # ---- adding

    def add(self, tasks: Iterable[tuple[int, Task]], batch: int, now: float = 0.0) -> None:
        """Add the URLs of a batch, each with its shard; those that are known already do not count as its own."""
        hosts: dict[str, bool] = {}  # that were entered, and whether they have something new
        for shard, task in tasks:
            host = task.host
            if host not in hosts:
                if not self._is_admitted(task, host):
                    self.skipped[MAX_HOSTS] += 1
                    continue
                hosts[host] = False
                self._hosts.enter(host, shard)
            if self._add(task, host, batch, shard):
                hosts[host] = True
        for host, has_new in hosts.items():
            if has_new:
                self._hosts.wake(host, now)

    def _is_admitted(self, task: Task, host: str) -> bool:
        """Tell whether a task may be added: not if its host is new, and its domain has all the hosts that it may have.

        What the user gave is always admitted, and so is what another host waits for.
        """
        most = self.limits.max_hosts_per_domain
        if most is None or task.depth == 0 or task.is_side_task or self._hosts.knows(host):
            return True
        return self._hosts.domains.count(urls.zone(host))[0] < most

    def remember(self, past: Iterable[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts of which others may have done pages: they must be met again."""
        self._hosts.remember(past)

    def _add(self, task: Task, host: str, batch: int, shard: int) -> bool:
        """Add a task, and tell whether its URL was not known yet."""
        key = key_of(task)
        if self._insert(key, task, host, batch, shard):
            return True
        query = "SELECT state, depth, attempt, batch, priority FROM task WHERE key = ?"
        *row, priority = self._db.execute(query, (key,)).fetchone()
        if task.kind == REVISIT and row[0] == SCHEDULED and task.attempt == row[2]:
            self._bring_forward(key, task, batch, row[3])
        elif row[0] >= DONE:
            self._come_nearer(key, task, batch, row[1])
        elif task.depth < row[1] or task.attempt > row[2] or (task.attempt and [task.depth, task.attempt] == row[1:3]):
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

    def _renew(self, key: bytes, task: Task, batch: int, state: int, depth: int, attempt: int, old: int) -> None:
        """Assign a URL to the batch that knows more of it, because the old one may go before the URL is done.

        When one batch has the smaller depth and the other the higher attempt, a third one gets both.
        """
        if task.attempt > attempt:
            self._untake(key)
            state = SCHEDULED if task.kind == REVISIT else LATER
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

    def _reread(self, host: str) -> None:
        if host in self._hosts.loaded:
            self._hosts.loaded[host].reread()

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

    # ---- taking

    def take(self, now: float, unanswered: bool = True, revisits_only: bool = False) -> tuple[Task, Host] | None:
        """Return the next URL of the host that has been due longest, or None.

        With `unanswered` False, only of a host whose last request was answered. Of a host where both revisits and other
        URLs could be taken, `fresh_share` of the turns are for revisits. With `revisits_only` nothing else is taken.
        """
        if now >= self._next_later:
            self._ripen(now)
        if now >= self._revisits.next_due:
            for name in self._revisits.ripen(now):
                self._wake_revisits(name, now)
        if not revisits_only:
            self._hosts.resume(now)
        while host := self._hosts.next(now, unanswered):
            is_held = self._is_held(host)
            only = revisits_only or (not is_held and self._is_full(host))
            if only and not is_held and not self._peek_revisit(host):
                self._hold_back(host, now)
                continue
            found = None if is_held else self._next(host, only)
            if found is None:
                self._hosts.retire(host)
                continue
            key, shard, task = found
            self._taken[key] = shard, host
            self._hosts.take(host, now)
            return task, host
        return None

    def _is_full(self, host: Host) -> bool:
        """Tell whether a host has reached a limit, or would with what is taken; a robots or retry task may go on."""
        size = (host.size or 0) + host.pending  # with what is taken
        rule = self.limits.reached_by_host(host.kept + host.taken, size) or self._limit_of_domain(host)
        return rule is not None and not self._has_side_task(host.name)

    def _hold_back(self, host: Host, now: float) -> None:
        """Let a host wait at a limit; once so much of it or its domain is stored, its other URLs are skipped."""
        rule = self._limit_of(host)
        if rule is None and not self._has_tasks(host):
            return self._hosts.retire(host)  # nothing is held back: it must not seem to have work that is due soon
        if rule is None and self._is_full(host):
            return self._hosts.wait(host, now + 0.5)
        if rule is None:
            return self._hosts.put_off(host, now + LIMIT_INTERVAL)
        most = SKIPPED_AT_ONCE + host.taken
        query = "SELECT key, batch FROM task WHERE host = ? AND state = 0 LIMIT ?"
        found = self._db.execute(query, (host.name, most)).fetchall()
        rows = [row for row in found if row[0] not in self._taken]
        self._mark_rows(rows, SKIPPED)
        self.skipped[rule] += len(rows)
        host.reread()
        if len(found) < most:
            return self._hosts.retire(host)
        return self._hosts.wait(host, now + 0.01)  # the others next time: visits go on meanwhile

    def _has_tasks(self, host: Host) -> bool:
        """Tell whether a host has URLs that are no revisits."""
        if not host.tasks:
            self._read(host)
        return bool(host.tasks)

    def _is_held(self, host: Host) -> bool:
        """Whether all URLs of a host are of a shard that is being released."""
        return not self._split and host.shard in self.held

    def _limit_of(self, host: Host) -> str | None:
        """Return the limit that a host or its domain has reached, by its name."""
        return self.limits.reached_by_host(host.kept, host.size or 0) or self._limit_of_domain(host)

    def _limit_of_domain(self, host: Host) -> str | None:
        if not self.limits.count_domains:
            return None
        return self.limits.reached_by_domain(*self._hosts.domains.count(host.domain)[1:])

    def _has_side_task(self, host: str) -> bool:
        """Tell whether a host has a robots or retry task, which stores no page of its own."""
        query = "SELECT key FROM task WHERE host = ? AND state = 0 AND rank < ?"
        return any(key not in self._taken for (key,) in self._db.execute(query, (host, SIDE_TASK_RANK // 2)).fetchall())

    def _ripen(self, now: float) -> None:
        """Let retries that are due wait again."""
        query = "SELECT key, host FROM task WHERE state = 1 AND due <= ? LIMIT ?"
        for key, host in self._db.execute(query, (now, RIPENED_AT_ONCE)).fetchall():
            self._db.execute("UPDATE task SET state = 0 WHERE key = ?", (key,))
            self._reread(host)
            self._hosts.wake(host, now)
        (found,) = self._db.execute("SELECT min(due) FROM task WHERE state = 1").fetchone()
        self._next_later = inf if found is None else found

    def _wake_revisits(self, name: str, now: float) -> None:
        if name in self._hosts.loaded:
            self._hosts.loaded[name].reread_revisits()
        self._hosts.wake(name, now)

    def _is_free(self, key: bytes, shard: int) -> bool:
        return key not in self._taken and shard not in self.held

    def _peek_revisit(self, host: Host) -> tuple[bytes, int, Task] | None:
        if not self.revisits:  # as in most crawls: no query
            host.more_revisits = False
        return self._revisits.peek(host)

    def _next(self, host: Host, revisits_only: bool) -> tuple[bytes, int, Task] | None:
        """Return the next task of a host: a revisit or another by turns, after robots and retry tasks."""
        due = self._peek_revisit(host)
        if not host.tasks and host.more:
            self._read(host)
        is_side_task = bool(host.tasks) and host.tasks[0][2].is_side_task
        if due is None or is_side_task:
            return host.tasks.popleft() if host.tasks and (is_side_task or not revisits_only) else None
        host.turns += self.fresh_share if host.tasks and not revisits_only else 1.0
        if host.turns < 1.0:
            return host.tasks.popleft()
        host.turns -= 1.0
        return host.revisits.popleft()

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
                if self._is_free(key, shard):
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
            host.pending = host.pending if host.taken else 0
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

    def rest_of(self, host: str) -> float:
        """Return when a host may be requested next; 0 if it is not known."""
        return self._hosts.due_of(host)

    def next_retry(self, host: str) -> float:
        """Return when the first retry of a host is due; 0 if there is none."""
        if self._next_later == inf:
            return 0.0
        found = self._db.execute("SELECT min(due) FROM task WHERE state = 1 AND host = ?", (host,)).fetchone()[0]
        return float(found or 0.0)

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

    def uncounted(self, host: Host) -> str | None:
        """Return a host of the same domain of which it is not known how much is stored, if that matters."""
        return self._hosts.uncounted(host.domain) if self.limits.count_domains else None

    def count_unmet(self, name: str, kept: int, size: int) -> None:
        """Note how many pages of such a host are stored, and their bytes."""
        self._hosts.count_unmet(name, kept, size)

    def set_met(self, host: Host, kept: int, gains: int, size: int = 0) -> bool:
        """Note that we know what is done of a host, how many of its pages are stored, and their bytes.

        False if shards became ours since the listings (there are more `gains`): the host must be met again.
        """
        if gains == self.gains:
            host.met = True
            self._hosts.set_stored(host, kept, size)
        return host.met

    def note_fetched(self, task: Task, size: int) -> None:
        """Note the bytes that a URL will have in the store when it is done: they count towards its host's limit."""
        if found := self._taken.get(key_of(task)):
            found[1].pending += size

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

    def adopt(self, max_share: float, limits: Limits, fresh_share: float = 0.5) -> None:
        """Use these limits from now on; see `forget_skipped`."""
        self.limits, self._hosts.max_share, self.fresh_share = limits, max_share, fresh_share

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

    def hold(self, shards: Iterable[int], split: bool = False) -> None:
        """Give out no more URLs of these shards; those that are taken may finish."""
        shards = set(shards)
        self.held.update(shards)
        self._split = split
        for host in self._hosts.of_shards(shards, split):
            host.reread()

    def shards_in_flight(self) -> set[int]:
        """Return the shards of which a URL is taken and not done yet."""
        return {shard for shard, _ in self._taken.values()}

    def forget(self, shards: Iterable[int], split: bool) -> Iterator[None]:
        """Forget the waiting URLs of shards that are no longer ours; done ones stay done.

        Their hosts must be met again if the shards come back. With `split` a host is in many shards, and stays. Yields
        after each part, so that visits may go on; nothing of these shards is taken meanwhile.
        """
        shards = set(shards)
        self.hold(shards, split)
        for key in [key for key, (shard, _) in self._taken.items() if shard in shards]:
            self._untake(key)
        for shard in shards:
            for rows in self._rows_of(shard, "batch, kind"):
                last = rows[-1][0]
                self._db.execute("DELETE FROM task WHERE state < 4 AND shard = ? AND rowid <= ?", (shard, last))
                batches = Counter(batch for _, batch, _ in rows)
                self.left.subtract(batches)
                self.waiting -= len(rows)
                self.revisits -= sum(kind == REVISIT for *_, kind in rows)
                yield
        if not split:
            for _ in self._hosts.forget(shards):
                yield
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

    def earliest(self) -> float:
        """Return when the first waiting URL is due; in the past if one is taken."""
        return -inf if self._taken else min(self._hosts.earliest(), self._next_later, self._revisits.next_due)

    def next_revisit(self) -> float:
        """Return when the next revisit is due; in the past if one is due or taken."""
        return -inf if self._revisits.has_due() else self._revisits.next_due

    def freshness(self, now: float) -> dict[str, int]:
        """Return how many pages are fresh, due and (among these) overdue."""
        return self._revisits.counts(now)

    def next_due(self, now: float) -> float:
        """Return the seconds until the next host or retry is due that is not yet; an hour if none will be."""
        return min(self._hosts.next_due(now), self._next_later, self._revisits.next_due, now + 3600.0) - now


def key_of(task: Task) -> bytes:
    """Return a task's key as the table has it."""
    return urls.key_bytes(task.url if task.kind == PAGE else task.name)
