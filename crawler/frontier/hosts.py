"""The hosts of a worker's waiting URLs: which of them may be requested next, and when.

All hosts are rows of the task table's database. Those that are due, resting or busy are in memory as well, a bounded
number of them, so that the next one costs no query. Of the hosts that are due, the one that has been due longest goes
first; one that has had more than `max_share` of the recent requests lets others go before it. Hosts whose last request
was not answered, and those never requested, have a queue of their own, because they may hold only a part of the slots.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from crawler.frontier.limits import Domains
from crawler.frontier.recent import RecentRequests
from crawler.frontier.task import Task
from crawler.web import urls

EMPTY, STORED, LOADED = range(3)  # the state of a row: no URLs to take; some, and not in memory; in memory
NOWHERE, RESTING, READY = range(3)  # where a host in memory is queued
NEVER, IN_TURN, LAST = range(3)  # when hosts may go that have not answered; LAST: while no other host is due
SOON = 1.0  # seconds: a host that is due within these is waited for before one that has had its share
MAX_LOADED = 4096  # hosts in memory, except while more than that are busy
LOADED_AT_ONCE = 256
FORGOTTEN_AT_ONCE = 1000
RESUME_INTERVAL = 1.0  # seconds
MIN_STALE = 64  # entries of a heap that are no longer valid, before it is cleared of them

SCHEMA = """
CREATE TABLE host(host TEXT PRIMARY KEY, shard INT, state INT, due REAL, strain REAL, met INT, kept INT, past INT,
                  pace REAL, answered INT, busy INT, arrival INT, domain TEXT, size INT) WITHOUT ROWID;
CREATE INDEX host_waiting ON host(answered, due, arrival) WHERE state = 1;
CREATE INDEX host_shard ON host(shard);
CREATE INDEX host_uncounted ON host(domain) WHERE size IS NULL;
"""
FACTS = "shard, due, strain, met, kept, past, pace, domain, size, answered"  # the columns that are fields of Host


@dataclass(slots=True, eq=False)
class Host:
    """A host in memory."""

    name: str
    shard: int
    due: float = 0.0  # when it may be requested next
    strain: float = 0.0
    met: bool = False  # whether we know what is done of it (see `Table.meet`)
    kept: int = 0  # its stored pages
    past: int = 0  # in which folders of the store it was when its shard became ours (see `StoreWriter.past`)
    pace: float | None = None  # seconds between its last response and the next request
    domain: str = ""  # its registrable domain (see `urls.zone`)
    size: int | None = 0  # bytes of its pages and records in the store; None if that is not known
    answered: bool = False  # whether its last request was answered
    robots_delay: float = 0.0  # the Crawl-delay of its robots.txt, as last seen
    since: float = 0.0  # its place among the hosts that are due: usually the time at which it was
    lanes: int = 1  # how many requests it may have in flight
    busy: int = 0  # how many it has
    taken: int = 0  # its tasks that are taken and not done yet
    pending: int = 0  # bytes that these will have in the store, as far as they were fetched
    place: int = NOWHERE
    entry: int = 0  # the number of its valid entry in a heap
    put_off: int = 0  # that of the entry with which it was put off (see `Hosts.put_off`)
    tasks: deque[tuple[bytes, int, Task]] = field(default_factory=deque)  # the next ones, with their keys and shards
    last_rank: int | None = None  # of the last one that was read from the database
    more: bool = True  # whether the database may have more than `tasks`
    chunk: int = 4  # how many are read next
    revisits: deque[tuple[bytes, int, Task]] = field(default_factory=deque)  # likewise, of those that are due
    last_revisit: tuple[float, int] | None = None  # due time and row of the last one that was read
    more_revisits: bool = True
    turns: float = 0.0  # by which revisits and other tasks share its turns (see `Table.take`)

    def reread(self) -> None:
        """Forget the tasks in memory: the database has changed, and is read from the start."""
        self.tasks.clear()
        self.last_rank, self.more = None, True
        self.reread_revisits()

    def reread_revisits(self) -> None:
        """The same for the revisits alone."""
        self.revisits.clear()
        self.last_revisit, self.more_revisits = None, True

    @property
    def has_work(self) -> bool:
        """Whether there may be a task to take."""
        return bool(self.more or self.tasks or self.more_revisits or self.revisits)


class Queue(NamedTuple):
    """A host, and how many of its URLs could be taken if it were due."""

    host: str
    busy: bool
    due: float
    strain: float
    pace: float | None  # seconds between its last response and the next request; None if it was not requested yet
    waiting: int


Entry = tuple[float, int, Host]


class Hosts:
    """The hosts of a task table: their rows, and those in memory."""

    def __init__(self, db: sqlite3.Connection, max_share: float) -> None:
        self._db = db
        self.domains = Domains(db)
        self.max_share = max_share
        self.loaded: dict[str, Host] = {}
        self._recent = RecentRequests()
        self._resting: list[Entry] = []  # a heap by due time
        self._ready: tuple[list[Entry], list[Entry]] = ([], [])  # heaps by `since`: not answered, answered
        self._oldest = [inf, inf]  # due time of the first stored host: not answered, answered
        self._entries = 0
        self._has_put_off, self._next_resume = False, 0.0  # whether hosts may have been put off (see `resume`)
        self._has_uncounted = False  # whether there may be hosts whose size in the store is not known
        self._arrivals = 0  # of hosts that are due at the same time, the first to arrive goes first
        db.executescript(SCHEMA)

    # ---- rows

    def remember(self, past: Iterable[tuple[str, int, int]]) -> None:
        """Note (host, shard, folders) of hosts of which others may have done pages: they must be met again."""
        for name, shard, bits in past:
            self.enter(name, shard, None)
            if name in self.loaded:
                host = self.loaded[name]
                host.met, host.past = False, host.past | bits
            else:
                self._db.execute("UPDATE host SET met = 0, past = past | ? WHERE host = ?", (bits, name))

    def enter(self, name: str, shard: int, size: int | None = 0) -> None:
        """Make the row of a host, if it has none; of one that others have requested the `size` in the store is None."""
        if name in self.loaded:
            return
        domain = urls.zone(name)
        values = (name, shard, domain, size)
        row = "INSERT OR IGNORE INTO host VALUES (?, ?, 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, ?, ?)"
        if self._db.execute(row, values).rowcount:
            self.domains.add(domain, shard, hosts=1)
            self._has_uncounted = self._has_uncounted or size is None

    def knows(self, name: str) -> bool:
        """Tell whether a host has a row."""
        found = self._db.execute("SELECT 1 FROM host WHERE host = ?", (name,)).fetchone()
        return name in self.loaded or found is not None

    def wake(self, name: str, now: float) -> None:
        """Note that a host, which has a row, has URLs to take."""
        if name in self.loaded:
            return self.requeue(self.loaded[name], now)
        self._arrivals += 1
        wake = "UPDATE host SET state = 1, due = max(due, ?), arrival = ? WHERE host = ? AND state = 0"
        found = self._db.execute(f"{wake} RETURNING answered, due", (now, self._arrivals, name)).fetchall()
        for answered, due in found:
            self._oldest[answered] = min(self._oldest[answered], due)
        return None

    def _store(self, host: Host) -> None:
        """Move a host out of memory; one that kept its turn loses it."""
        del self.loaded[host.name]
        host.place = NOWHERE
        host.due = max(host.due, host.since)
        state = STORED if host.has_work else EMPTY
        self._write([host], state)
        if state == STORED:
            self._oldest[host.answered] = min(self._oldest[host.answered], host.due)

    def _write(self, hosts: Iterable[Host], state: int) -> None:
        self._db.executemany(
            "UPDATE host SET state = ?, due = ?, strain = ?, met = ?, kept = ?, past = ?, pace = ?, answered = ?, "
            "busy = ?, size = ? WHERE host = ?",
            [
                (state, it.due, it.strain, it.met, it.kept, it.past, it.pace, it.answered, it.busy, it.size, it.name)
                for it in hosts
            ],
        )

    def _load(self, now: float, unanswered: int) -> None:
        """Read the hosts that have been due longer than those in memory, some at a time."""
        for answered in (True, False) if unanswered else (True,):
            if self._oldest[answered] > now or (unanswered == LAST and not answered and self._first_of(True)):
                continue
            first = self._first_of(answered) if unanswered == LAST else self._first(unanswered)
            if first and first.since <= self._oldest[answered]:
                continue
            where = "state = 1 AND answered = ? AND due <= ?"
            query = f"SELECT host, {FACTS} FROM host WHERE {where} ORDER BY due, arrival LIMIT ?"
            rows = self._db.execute(query, (answered, now, LOADED_AT_ONCE)).fetchall()
            if rows:  # else those that were there are forgotten
                self._make_room()
                self._db.executemany("UPDATE host SET state = 2 WHERE host = ?", [row[:1] for row in rows])
            for row in rows:
                self._add(Host(*row))
            oldest = "SELECT min(due) FROM host WHERE state = 1 AND answered = ?"
            (found,) = self._db.execute(oldest, (answered,)).fetchone()
            self._oldest[answered] = inf if found is None else found

    def _make_room(self) -> None:
        """Move the hosts out of memory that would be next after all others, if there is no room for more.

        There is room for several loads afterwards: to look at all hosts takes a millisecond.
        """
        excess = len(self.loaded) + LOADED_AT_ONCE - MAX_LOADED
        if excess <= 0:
            return
        idle = [it for it in self.loaded.values() if it.place != NOWHERE and not it.busy and not it.taken]
        most = excess + LOADED_AT_ONCE
        for host in heapq.nlargest(most, idle, key=lambda it: it.due if it.place == RESTING else it.since):
            self._store(host)

    def _add(self, host: Host) -> None:
        host.met, host.answered = bool(host.met), bool(host.answered)
        host.since = host.due
        self.loaded[host.name] = host
        self._push(READY, host)

    # ---- which is next

    def next(self, now: float, unanswered: int = IN_TURN) -> Host | None:
        """Return the host that has been due longest and is out of the queues now; None if none may go.

        Hosts whose last request was not answered go as `unanswered` says: NEVER, IN_TURN, or LAST, when no other may.
        The caller calls `take`, `wait` or `retire`, so that the host is queued again.
        """
        self._ripen(now)
        greedy: list[Host] = []
        # So many cannot all have had more than their share: among one more there is one that has not.
        few = int(1 / self.max_share) + 1
        chosen: Host | None = None
        while len(greedy) < few and chosen is None and (host := self._pop_first(now, unanswered)):
            if self._is_greedy(host):
                greedy.append(host)
            else:
                chosen = host
        if chosen is None and greedy and not self._others_wait(now, unanswered):
            chosen = greedy.pop(0)
        for host in greedy:
            self._push(READY, host)
        return chosen

    def _ripen(self, now: float) -> None:
        """Make hosts ready whose rest is over."""
        while self._resting and self._resting[0][0] <= now:
            entry = heapq.heappop(self._resting)
            if self._is_valid(RESTING, entry):
                self._push(READY, entry[2])

    def _first(self, unanswered: int) -> Host | None:
        """Return the ready host in memory that has been due longest, of those that may go."""
        known = self._first_of(True)
        if unanswered == NEVER or (unanswered == LAST and known):
            return known
        new = self._first_of(False)
        return new if known is None or (new is not None and new.since <= known.since) else known

    def _first_of(self, answered: bool) -> Host | None:
        """Return the first ready host of a queue, and remove entries that are no longer valid before it."""
        heap = self._ready[answered]
        while heap and not self._is_valid(READY, heap[0]):
            heapq.heappop(heap)
        return heap[0][2] if heap else None

    def _pop_first(self, now: float, unanswered: int) -> Host | None:
        if now >= min(self._oldest):
            self._load(now, unanswered)
        host = self._first(unanswered)
        if host is not None:
            heapq.heappop(self._ready[host.answered])
            host.place = NOWHERE
        return host

    def _push(self, place: int, host: Host) -> None:
        self._entries += 1
        host.place, host.entry = place, self._entries
        heap = self._ready[host.answered] if place == READY else self._resting
        heapq.heappush(heap, (host.since if place == READY else host.due, host.entry, host))
        if len(heap) > 2 * len(self.loaded) + MIN_STALE:
            heap[:] = [entry for entry in heap if self._is_valid(place, entry)]
            heapq.heapify(heap)

    def _is_greedy(self, host: Host) -> bool:
        return self._recent.share(host.name) > self.max_share

    def _others_wait(self, now: float, unanswered: int) -> bool:
        """Tell whether a host that has not had its share, and may go, will be due soon."""
        return any(
            due <= now + SOON
            and self._is_valid(RESTING, (due, number, host))
            and (unanswered or host.answered)
            and not self._is_greedy(host)
            for due, number, host in self._resting
        )

    # ---- what becomes of it

    def take(self, host: Host, now: float) -> None:
        """Count a task of a host that was taken; with lanes left the host goes on."""
        host.busy += 1
        host.taken += 1
        if host.met:  # else its folders are listed first, and nothing is requested
            self._recent.note(host.name)
        if host.busy < host.lanes:
            host.since = now
            self._push(READY, host)

    def wait(self, host: Host, due: float) -> None:
        """Queue a host again, to be taken from at a later time."""
        host.due = host.since = max(host.due, due)
        self._push(RESTING, host)

    def put_off(self, host: Host, due: float) -> None:
        """Queue a host again, to be taken from later, or soon after it may go on (see `resume`)."""
        self.wait(host, due)
        host.put_off = host.entry
        self._has_put_off = True

    def resume(self, now: float) -> None:
        """Let the hosts go on that were put off and are in memory; once a second, because all of them are looked at."""
        if not self._has_put_off or now < self._next_resume:
            return
        self._has_put_off, self._next_resume = False, now + RESUME_INTERVAL
        for host in self.loaded.values():
            if host.place == RESTING and host.entry == host.put_off:
                host.due = host.since = now
                self._push(RESTING, host)

    def requeue(self, host: Host, since: float) -> None:
        """Note that a host in memory has URLs to take; if it is not queued and has no lane left, `rest` queues it."""
        host.more = host.more_revisits = True
        if host.place == NOWHERE and host.busy < host.lanes and self._is_loaded(host):
            host.since = max(host.due, since)
            self._push(RESTING, host)

    def retire(self, host: Host) -> None:
        """Note that a host has no URL to take; `wake` queues it again."""
        host.more = host.more_revisits = False
        self.release(host)

    def rest(self, host: Host, due: float, keeps_turn: bool = False) -> None:
        """End a request of a host, and let it rest until `due`.

        With several lanes the latest `due` counts: one response may demand a longer rest than the others. A host that
        `keeps_turn` stays before all that came after it: its turn went into something else than a page.
        """
        host.busy = max(host.busy - 1, 0)
        host.due = max(host.due, due)
        if not keeps_turn:
            host.since = host.due
        host.place = NOWHERE  # its entry in a heap, if it has one, is no longer valid
        if not host.has_work:
            self.release(host)
        elif host.busy < host.lanes and self._is_loaded(host):
            self._push(RESTING, host)

    def release(self, host: Host) -> None:
        """Move a host out of memory if nothing of it is taken, queued or in flight."""
        if host.place == NOWHERE and not host.busy and not host.taken and self._is_loaded(host):
            self._store(host)

    def _is_loaded(self, host: Host) -> bool:
        """Tell whether a host is the one in memory; not if it was forgotten, even if it is back by now."""
        return self.loaded.get(host.name) is host

    def next_due(self, now: float) -> float:
        """Return when the next host will be due that is not yet; infinity if none will."""
        while self._resting and not self._is_valid(RESTING, self._resting[0]):
            heapq.heappop(self._resting)
        resting = self._resting[0][0] if self._resting else inf
        return min((due for due in (resting, *self._oldest) if due > now), default=inf)

    def due_of(self, name: str) -> float:
        """Return when a host may be requested next; 0 if it is not known."""
        if name in self.loaded:
            return self.loaded[name].due
        found = self._db.execute("SELECT due FROM host WHERE host = ?", (name,)).fetchone()
        return float(found[0]) if found else 0.0

    def earliest(self) -> float:
        """Return when the first host with URLs to take is due; infinity if there is none."""
        if self._first(IN_TURN):
            return -inf
        self.next_due(-inf)  # removes entries that are no longer valid
        return min(self._resting[0][0] if self._resting else inf, *self._oldest)

    @staticmethod
    def _is_valid(place: int, entry: Entry) -> bool:
        _, number, host = entry
        return host.place == place and host.entry == number

    # ---- shards

    def of_shards(self, shards: set[int], split: bool) -> Iterator[Host]:
        """Yield the hosts in memory that have URLs in these shards; with `split` each may."""
        return (host for host in self.loaded.values() if split or host.shard in shards)

    def forget(self, shards: set[int]) -> Iterator[None]:
        """Forget the hosts of shards that are no longer ours; they must be met again if the shards come back.

        Yields after each part.
        """
        for shard in shards:
            some = f"SELECT host FROM host WHERE shard = ? LIMIT {FORGOTTEN_AT_ONCE}"
            while self._db.execute(f"DELETE FROM host WHERE host IN ({some})", (shard,)).rowcount:
                yield
            self.domains.forget(shard)
        for host in list(self.of_shards(shards, False)):  # last: some may have been loaded meanwhile
            del self.loaded[host.name]
            host.place = NOWHERE

    # ---- what is stored of them

    def set_stored(self, host: Host, kept: int, size: int) -> None:
        """Note how many pages of a host in memory are stored, and their bytes."""
        pages, bytes = kept - host.kept, size - (host.size or 0)
        if pages or bytes:
            self.domains.add(host.domain, host.shard, pages=pages, bytes=bytes)
        if host.size is None:  # its row says so, too
            self._db.execute("UPDATE host SET size = ? WHERE host = ?", (size, host.name))
        host.kept, host.size = kept, size

    def count_unmet(self, name: str, kept: int, size: int) -> None:
        """Note the same of a host that we have not met, unless that is known by now."""
        if name in self.loaded:
            if self.loaded[name].size is None:
                self.set_stored(self.loaded[name], kept, size)
            return
        count = "UPDATE host SET kept = ?, size = ? WHERE host = ? AND size IS NULL RETURNING domain, shard"
        for domain, shard in self._db.execute(count, (kept, size, name)).fetchall():
            self.domains.add(domain, shard, pages=kept, bytes=size)

    def uncounted(self, domain: str) -> str | None:
        """Return a host of a domain of which it is not known how much is stored."""
        if not self._has_uncounted:  # as in a crawl that nobody has begun before
            return None
        query = "SELECT host FROM host WHERE domain = ? AND size IS NULL LIMIT 1"
        found = self._db.execute(query, (domain,)).fetchone()
        return found[0] if found else None

    # ---- for people

    def save(self) -> None:
        """Write the hosts in memory to their rows, for the queries below."""
        self._write(self.loaded.values(), LOADED)

    def count(self) -> int:
        """Return how many hosts have work now or later."""
        return int(self._db.execute("SELECT count(*) FROM host WHERE state > 0").fetchone()[0])

    def busiest(self, most: int) -> list[tuple[str, int]]:
        """Return the hosts with the most stored pages."""
        return self._db.execute("SELECT host, kept FROM host ORDER BY kept DESC LIMIT ?", (most,)).fetchall()

    def queues(self, after: str, most: int) -> list[Queue]:
        """Return the hosts that follow one by name, with or without work, and how many URLs wait there."""
        of_host = "SELECT count(*) FROM task WHERE task.host = host.host AND task.state"
        count = f"CASE WHEN state THEN ({of_host} = 0) + ({of_host} = 3) END"
        found = self._db.execute(
            f"SELECT host, busy, due, strain, pace, ifnull({count}, 0) FROM host WHERE host > ? ORDER BY host LIMIT ?",
            (after, most),
        )
        return [
            Queue(host, busy, due, strain, pace, max(waiting - self._taken_of(host), 0))
            for host, busy, due, strain, pace, waiting in found
        ]

    def _taken_of(self, name: str) -> int:
        """Return how many URLs of a host are taken: their rows look as if they waited."""
        return self.loaded[name].taken if name in self.loaded else 0
