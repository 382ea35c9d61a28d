"""The task table against a simple model: each URL comes out once, in time, and none is ever stuck."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crawler.frontier import hosts as hosts_module
from crawler.frontier import table as table_module
from crawler.frontier.hosts import SOON, Host
from crawler.frontier.table import Table
from crawler.frontier.task import Task
from crawler.web import urls

HOSTS = [f"{letter}.example" for letter in "abcde"]
PAGES = [f"https://{host}/{number}" for host in HOSTS for number in range(6)]
SHARDS, BATCHES = 3, 4
MAX_LOADED, LOADED_AT_ONCE = 2, 1  # hosts, so that they go out of memory and come back all the time

pages = st.lists(st.sampled_from(PAGES), min_size=1, max_size=6)
batches = st.integers(1, BATCHES)
shards = st.sets(st.integers(0, SHARDS - 1), min_size=1)
seconds = st.sampled_from([0.0, 0.0, 0.5, 1.0, 7.0, 100.0])
number = st.integers(0, 20)


@dataclass
class Known:
    """A task that is not done."""

    depth: int
    attempt: int
    batch: int
    due: float = 0.0  # of a retry: not before this
    late: float = 0.0  # and not after this, if its host is due
    held: bool = False


@dataclass
class Site:
    """What a host may be asked for."""

    due: float = 0.0
    lanes: int = 1
    answered: bool = False
    in_flight: list[Host] = field(default_factory=list)  # once for each request


@dataclass(eq=False)
class Visit:
    task: Task
    host: Host
    site: Site
    rested: bool = False
    settled: bool = False  # done, put back or to be retried


class TableAndModel(RuleBasedStateMachine):
    """The operations of visits and upkeep, in any order that they may have."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for module, name, value in (
            (hosts_module, "MAX_LOADED", MAX_LOADED),
            (hosts_module, "LOADED_AT_ONCE", LOADED_AT_ONCE),
            (table_module, "MAX_CHUNK", 2),
            (table_module, "RIPENED_AT_ONCE", 1),
            (table_module, "MAX_VARIABLES", 2),
        ):
            self.patch.setattr(module, name, value)
        self.now = 1000.0
        self.known: dict[str, Known] = {}
        self.taken: set[str] = set()
        self.done: set[str] = set()
        self.skipped: set[str] = set()
        self.held: set[int] = set()
        self.sites = {host: Site() for host in HOSTS}
        self.visits: list[Visit] = []
        self.left: Counter[int] = Counter()

    @initialize(
        order=st.sampled_from(["bfs", "dfs"]), split=st.booleans(), max_share=st.sampled_from([1.0, 1.0, 0.34])
    )
    def make(self, order: str, split: bool, max_share: float) -> None:
        self.table = Table(order, max_share=max_share)
        self.split, self.max_share = split, max_share

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.time_goes_on()
        finally:
            self.patch.undo()

    def shard_of(self, task: Task) -> int:
        """The shard of a task: that of its host, unless hosts are split."""
        return (PAGES.index(task.url) if self.split else HOSTS.index(task.host)) % SHARDS

    # ---- what arrives

    @rule(found=pages, depth=st.integers(0, 2), batch=batches)
    def add(self, found: list[str], depth: int, batch: int) -> None:
        self.hand_in([Task(url, depth) for url in found], batch)

    @rule(found=pages, attempt=st.integers(1, 2), wait=seconds, batch=batches)
    def add_retries_of_others(self, found: list[str], attempt: int, wait: float, batch: int) -> None:
        self.hand_in([Task(url, 1, attempt, self.now + wait) for url in found], batch)

    def hand_in(self, tasks: list[Task], batch: int) -> None:
        self.table.add(tasks, batch, self.shard_of, self.now)
        for task in tasks:
            old = self.known.get(task.url)
            if old is not None:
                self.renew(old, task, batch)
            elif task.url not in self.done | self.skipped:
                held = self.shard_of(task) in self.held
                self.known[task.url] = Known(task.depth, task.attempt, batch, task.due, task.due, held)
                self.left[batch] += 1

    def renew(self, old: Known, task: Task, batch: int) -> None:
        """Whoever knows more of a URL is right; a new attempt ends the one in flight."""
        equal_retry = task.attempt and (task.depth, task.attempt) == (old.depth, old.attempt)
        if not (task.depth < old.depth or task.attempt > old.attempt or equal_retry):
            return
        if task.attempt > old.attempt:
            self.taken.discard(task.url)
        self.left[old.batch] -= 1
        old.batch = batch if task.depth <= old.depth else old.batch
        self.left[old.batch] += 1
        old.late = max(old.late, task.due)  # a retry that is due stays so when we hear of it again, or waits once more
        old.due = old.late if task.attempt > old.attempt else old.due
        old.depth, old.attempt = min(old.depth, task.depth), max(old.attempt, task.attempt)

    # ---- visits

    @rule(unanswered=st.sampled_from([True, True, False]))
    def take(self, unanswered: bool) -> None:
        found = self.take_if_any(unanswered)
        if found is None:
            self.check_nothing_could_be_taken(unanswered)
        else:
            self.check_taken(*found, unanswered)

    def take_if_any(self, unanswered: bool) -> tuple[Task, Host] | None:
        """The next task; the table is asked once more if something is due that was not looked at."""
        for _ in range(100):
            found = self.table.take(self.now, unanswered)
            if found or self.table.next_due(self.now) > 0:
                return found
        raise AssertionError("something is always due and never comes")

    def check_taken(self, task: Task, host: Host, unanswered: bool) -> None:
        site = self.sites[host.name]
        known = self.known.get(task.url)
        assert known, "it is done, or not ours"
        assert task.url not in self.taken, "given out twice"
        assert not known.held and known.due <= self.now
        assert (task.depth, task.attempt, task.host) == (known.depth, known.attempt, host.name)
        assert site.due <= self.now, "too early"
        assert unanswered or site.answered
        assert host.answered == site.answered
        if not site.in_flight:
            assert host.lanes in (1, site.lanes), "one lane if it was not in memory"
            site.lanes = host.lanes
        assert len(site.in_flight) < site.lanes
        assert all(other is host for other in site.in_flight)
        site.in_flight.append(host)
        self.taken.add(task.url)
        self.visits.append(Visit(task, host, site))
        if not host.met:
            self.table.set_met(host, 0, self.table.gains)

    def check_nothing_could_be_taken(self, unanswered: bool) -> None:
        sites = [site for name, site in self.sites.items() if self.has_work(name, self.now)]
        sites = [site for site in sites if len(site.in_flight) < site.lanes and (unanswered or site.answered)]
        if any(site.due <= self.now for site in sites):
            assert self.max_share < 1, "a URL of a host that is due is not given out"
            assert any(self.now < site.due <= self.now + SOON for site in self.sites.values()), "others wait"
        if unanswered:
            assert self.table.next_due(self.now) <= self.next_due() + 1e-6, "we would sleep too long"

    def has_work(self, host: str, now: float) -> bool:
        return any(
            urls.host(url) == host and url not in self.taken and not known.held and known.late <= now
            for url, known in self.known.items()
        )

    def next_due(self) -> float:
        """How long it takes until something can be taken, if nothing can be now."""
        ripe = [known.late for url, known in self.known.items() if not known.held and url not in self.taken]
        dues = [
            site.due
            for name, site in self.sites.items()
            if len(site.in_flight) < site.lanes and self.has_work(name, self.now)
        ]
        return min((due for due in ripe + dues if due > self.now), default=self.now + 3600.0) - self.now

    def pick(self, which: int, **state: bool) -> Visit | None:
        found = [visit for visit in self.visits if all(getattr(visit, key) == value for key, value in state.items())]
        return found[which % len(found)] if found else None

    def settle(self, visit: Visit) -> None:
        visit.settled = True
        self.visits = [visit for visit in self.visits if not (visit.settled and visit.rested)]

    @precondition(lambda self: self.visits)
    @rule(
        which=number,
        wait=seconds,
        lanes=st.sampled_from([None, 1, 3]),
        answered=st.sampled_from([None, True, True, False]),
        keeps_turn=st.booleans(),
    )
    def rest(self, which: int, wait: float, lanes: int | None, answered: bool | None, keeps_turn: bool) -> None:
        visit = self.pick(which, rested=False)
        if visit is None:
            return
        due = self.now + wait
        self.table.rest(visit.host, due, lanes=lanes, answered=answered, keeps_turn=keeps_turn)
        site = visit.site
        site.in_flight.remove(visit.host)
        site.due = max(site.due, due)
        site.lanes = site.lanes if lanes is None else lanes
        site.answered = site.answered if answered is None else answered
        visit.rested = True
        self.visits = [visit for visit in self.visits if not (visit.settled and visit.rested)]

    @precondition(lambda self: self.visits)
    @rule(which=number)
    def put_back(self, which: int) -> None:
        visit = self.pick(which, settled=False)
        if visit:
            self.table.put_back(visit.task)
            self.taken.discard(visit.task.url)
            self.settle(visit)

    @precondition(lambda self: self.visits)
    @rule(which=number, together=st.integers(1, 3), kept=st.booleans())
    def finish(self, which: int, together: int, kept: bool) -> None:
        found: list[Visit] = []
        for _ in range(together):
            visit = self.pick(which, settled=False)
            if visit:
                found.append(visit)
                self.settle(visit)
        self.table.mark_done([visit.task for visit in found], kept)
        self.end([visit.task.url for visit in found], self.done)

    def end(self, found: Iterable[str], state: set[str]) -> None:
        for url in found:
            known = self.known.pop(url, None)  # None if its shard is no longer ours
            if known:
                self.left[known.batch] -= 1
                self.taken.discard(url)
                state.add(url)

    @precondition(lambda self: self.visits)
    @rule(which=number)
    def skip(self, which: int) -> None:
        visit = self.pick(which, settled=False)
        if visit:
            self.table.skip(visit.task)
            self.end([visit.task.url], self.skipped)
            self.settle(visit)

    @precondition(lambda self: self.visits)
    @rule(which=number, wait=seconds, batch=batches)
    def retry(self, which: int, wait: float, batch: int) -> None:
        visit = self.pick(which, settled=False)
        if visit:
            again = visit.task._replace(attempt=visit.task.attempt + 1, due=self.now + wait)
            self.hand_in([again], batch)
            self.settle(visit)

    @rule(host=st.sampled_from(HOSTS), numbers=st.sets(st.integers(0, 5), max_size=3), gained=st.booleans())
    def meet(self, host: str, numbers: set[int], gained: bool) -> None:
        """Learn what others have done of a host."""
        found = [f"https://{host}/{number}" for number in numbers]
        if gained:
            self.table.remember([(host, HOSTS.index(host) % SHARDS, 1)])
        self.table.meet(host, [urls.key(url) for url in found], lambda key: True)
        self.end(found, self.done)
        self.done.update(found)
        self.skipped.difference_update(found)

    # ---- upkeep

    @precondition(lambda self: self.done)
    @rule(which=number, batch=batches)
    def let_wait_again_what_is_done(self, which: int, batch: int) -> None:
        task = Task(sorted(self.done)[which % len(self.done)])
        self.table.forget_done(task)
        self.done.discard(task.url)
        self.hand_in([task], batch)

    @rule()
    def adopt(self) -> None:
        self.table.adopt(None, self.max_share)
        self.skipped.clear()

    @rule(which=shards)
    def hold(self, which: set[int]) -> None:
        self.table.hold(which, self.split)
        self.held |= which
        for url, known in self.known.items():
            known.held = known.held or self.shard_of(Task(url)) in which

    @rule(which=shards)
    def forget(self, which: set[int]) -> None:
        """Visits may still be under way, as when another worker took the shard."""
        self.table.forget(which, self.split)
        self.held -= which
        for url in [url for url in self.known if self.shard_of(Task(url)) in which]:
            self.left[self.known.pop(url).batch] -= 1
            self.taken.discard(url)
        for host in () if self.split else HOSTS:
            if HOSTS.index(host) % SHARDS in which:
                self.sites[host] = Site()

    @rule(old=st.sets(batches, min_size=1))
    def merge_batches(self, old: set[int]) -> None:
        tasks = self.table.of_batches(old)
        assert sorted(task.url for task in tasks) == sorted(url for url, it in self.known.items() if it.batch in old)
        self.table.rehome(tasks, old, 1)
        for known in self.known.values():
            if known.batch in old:
                self.left[known.batch] -= 1
                known.batch = 1
                self.left[1] += 1

    @rule(wait=seconds)
    def wait(self, wait: float) -> None:
        self.now += wait

    @rule()
    def time_goes_on(self) -> None:
        """Everything that waits comes out, and nothing else is needed for that than time."""
        steps = 0
        while True:
            for visit in list(self.visits):
                if not visit.settled:
                    self.finish(0, 1, True)
                if not visit.rested:
                    self.rest(0, 0.5, None, True, False)
            self.take(True)
            if not self.visits:
                if all(known.held for known in self.known.values()):
                    return
                self.now += max(self.table.next_due(self.now), 0.001)
            steps += 1
            assert steps < 1000, "stuck"

    # ---- what holds at all times

    @invariant()
    def the_counters_are_right(self) -> None:
        if hasattr(self, "table"):
            assert self.table.waiting == len(self.known)
            assert self.table.taken == len(self.taken)
            assert {batch: count for batch, count in self.table.left.items() if count} == {
                batch: count for batch, count in self.left.items() if count
            }
            for shard in range(SHARDS):
                assert self.table.in_flight(shard) == any(self.shard_of(Task(url)) == shard for url in self.taken)

    @invariant()
    def memory_is_bounded(self) -> None:
        return
        if hasattr(self, "table"):
            hosts = self.table._hosts
            busy = sum(bool(host.busy or host.taken) for host in hosts.loaded.values())
            assert len(hosts.loaded) <= max(MAX_LOADED, busy + LOADED_AT_ONCE)
            for heap in (hosts._resting, *hosts._ready):
                assert len(heap) <= 2 * len(hosts.loaded) + hosts_module.MIN_STALE

    @rule()
    def people_look(self) -> None:
        self.table.count_hosts()
        counted = sum(queue.waiting for queue in self.table.queues("", 100))
        (waiting,) = self.table._db.execute("SELECT count(*) FROM task WHERE state = 0").fetchone()
        assert counted == waiting


# To shrink a failing history takes minutes: it is shown as it was found.
FIND = (Phase.explicit, Phase.reuse, Phase.generate)
TableAndModel.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None, phases=FIND)
TestEveryUrlComesOutOnceAndInTime = TableAndModel.TestCase
