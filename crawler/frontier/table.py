"""The task table: a worker's waiting URLs on its machine's own disk, in SQLite, and the next ones in memory.

Memory is bounded whatever the size of the frontier. The table is private to its worker and gone when it ends: the
batches on the mount make it again. Only the thread of the worker's event loop calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf

from crawler.frontier.hosts import IN_TURN, Host, Queue
from crawler.frontier.limits import MAX_HOSTS, Limits
from crawler.frontier.task import REVISIT, Task
from crawler.frontier.task_rows import SIDE_TASK_RANK, SKIPPED, TASK_COLUMNS, TaskRows, key_of
from crawler.web import urls

MAX_CHUNK = 128  # tasks of a host that are read at once; each time twice as many, from a few for a host with one page
RIPENED_AT_ONCE = 1000  # retries
SKIPPED_AT_ONCE = 1000  # URLs of a host that has reached a limit
LIMIT_INTERVAL = 60.0  # seconds until a host is looked at again while only revisits may be taken


class Table(TaskRows):
    """All URLs that a worker knows in its shards, and their hosts."""

    def __init__(
        self,
        order: str = "bfs",
        relax: bool = False,
        max_share: float = 1.0,
        limits: Limits | None = None,
        fresh_share: float = 0.5,
    ) -> None:
        super().__init__(order, relax, max_share)
        self.fresh_share = fresh_share  # of a host's turns, for revisits that are due while other URLs wait
        self.limits = limits or Limits()
        self.skipped: Counter[str] = Counter()  # URLs skipped because of a limit of their host or domain, by its name
        self._split = False  # whether a host may have URLs in several shards
        self.gains = 0  # how often shards became ours, of which others may have done URLs

    @property
    def taken(self) -> int:
        """How many URLs are taken and not done yet."""
        return len(self._taken)

    def adopt(self, max_share: float, limits: Limits, fresh_share: float = 0.5) -> None:
        """Use these limits from now on; see `forget_skipped`."""
        self.limits, self._hosts.max_share, self.fresh_share = limits, max_share, fresh_share

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

    # ---- taking

    def take(self, now: float, unanswered: int = IN_TURN, revisits_only: bool = False) -> tuple[Task, Host] | None:
        """Return the next URL of the host that has been due longest, or None.

        `unanswered` says when hosts go whose last request was not answered (see `Hosts.next`). Of a host where both
        revisits and other URLs could be taken, `fresh_share` of the turns are for revisits. With `revisits_only`
        nothing else is taken.
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

    def _is_held(self, host: Host) -> bool:
        """Whether all URLs of a host are of a shard that is being released."""
        return not self._split and host.shard in self.held

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

    # ---- limits

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

    # ---- what becomes of what was taken

    def put_back(self, task: Task) -> None:
        """Let a URL wait again that was taken but not requested; its host still has to `rest`."""
        key = key_of(task)
        if key in self._taken:
            _, host = self._taken[key]
            host.reread()  # it may be nearer by now, or behind a robots task
            self._untake(key)
            self._hosts.requeue(host, host.since)

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

    def note_fetched(self, task: Task, size: int) -> None:
        """Note the bytes that a URL will have in the store when it is done: they count towards its host's limit."""
        if found := self._taken.get(key_of(task)):
            found[1].pending += size

    # ---- what is stored of hosts

    def remember(self, past: Iterable[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts of which others may have done pages: they must be met again."""
        self._hosts.remember(past)

    def set_met(self, host: Host, kept: int, gains: int, size: int = 0) -> bool:
        """Note that we know what is done of a host, how many of its pages are stored, and their bytes.

        False if shards became ours since the listings (there are more `gains`): the host must be met again.
        """
        if gains == self.gains:
            host.met = True
            self._hosts.set_stored(host, kept, size)
        return host.met

    def uncounted(self, host: Host) -> str | None:
        """Return a host of the same domain of which it is not known how much is stored, if that matters."""
        return self._hosts.uncounted(host.domain) if self.limits.count_domains else None

    def count_unmet(self, name: str, kept: int, size: int) -> None:
        """Note how many pages of such a host are stored, and their bytes."""
        self._hosts.count_unmet(name, kept, size)

    # ---- shards

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
