"""The task table against a simple model: each URL comes out once, in time, and none is ever stuck."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from lab.frontiers import at

from crawler.frontier import hosts as hosts_module
from crawler.frontier import table as table_module
from crawler.frontier import task_rows
from crawler.frontier.hosts import IN_TURN, LAST, NEVER, SOON, Host
from crawler.frontier.limits import Limits
from crawler.frontier.table import Table
from crawler.frontier.task import ROBOTS, Task, robots_task
from crawler.web import urls
from crawler.web.page import GIVEN

HOSTS = [f"{letter}.example" for letter in "abcde"]
PAGES = [f"https://{host}/{number}" for host in HOSTS for number in range(5)]
SHARDS, BATCHES = 2, 3
STEPS = 40
MAX_LOADED, LOADED_AT_ONCE = 2, 1  # hosts, so that they go out of memory and come back all the time

pages = st.lists(st.sampled_from(PAGES), min_size=1, max_size=6)
batches = st.integers(1, BATCHES)
shards = st.integers(0, SHARDS - 1)
seconds = st.sampled_from([0.0, 0.0, 0.5, 1.0, 7.0, 100.0])
number = st.integers(0, 20)
OUTCOMES = ["page", "failure", "put back", "put back", "retry", "skip"]


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
            (hosts_module, "MIN_STALE", 0),
            (hosts_module, "FORGOTTEN_AT_ONCE", 1),
            (table_module, "MAX_CHUNK", 2),
            (table_module, "RIPENED_AT_ONCE", 1),
            (task_rows, "MAX_VARIABLES", 2),
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
        self.most_busy = 0

    @initialize(order=st.sampled_from(["bfs", "dfs"]), split=st.booleans(), max_share=st.sampled_from([1.0, 1.0, 0.34]))
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
        self.table.add([(self.shard_of(task), task) for task in tasks], batch, self.now)
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
        is_later = 0 < task.attempt == old.attempt and task.due > old.late
        equal_retry = task.attempt and (task.depth, task.attempt) == (old.depth, old.attempt)
        if not (task.depth < old.depth or task.attempt > old.attempt or equal_retry or is_later):
            return
        if task.attempt > old.attempt:
            self.taken.discard(task.url)
        self.left[old.batch] -= 1
        old.batch = batch if task.depth <= old.depth else old.batch
        self.left[old.batch] += 1
        old.late = max(old.late, task.due)
        # One that is in flight may be put back, and is due then.
        waits = task.attempt > old.attempt or (is_later and task.url not in self.taken)
        old.due = old.late if waits else old.due
        old.depth, old.attempt = min(old.depth, task.depth), max(old.attempt, task.attempt)

    # ---- visits

    @rule(count=st.integers(1, 6), unanswered=st.sampled_from([IN_TURN, IN_TURN, LAST, NEVER]))
    def take_some(self, count: int, unanswered: int) -> None:
        for _ in range(count):
            self.take(unanswered)

    def take(self, unanswered: int) -> None:
        found = self.take_if_any(unanswered)
        if found is None:
            self.check_nothing_could_be_taken(unanswered)
        else:
            self.check_taken(*found, unanswered)

    def take_if_any(self, unanswered: int) -> tuple[Task, Host] | None:
        """The next task; the table is asked once more if something is due that was not looked at."""
        for _ in range(100):
            found = self.table.take(self.now, unanswered)
            if found or self.table.next_due(self.now) > 0:
                return found
        raise AssertionError("something is always due and never comes")

    def check_taken(self, task: Task, host: Host, unanswered: int) -> None:
        site = self.sites[host.name]
        known = self.known.get(task.url)
        assert known, "it is done, or not ours"
        assert task.url not in self.taken, "given out twice"
        assert not known.held and known.due <= self.now
        assert (task.depth, task.attempt, task.host) == (known.depth, known.attempt, host.name)
        assert site.due <= self.now, "too early"
        assert unanswered or site.answered
        if unanswered == LAST and self.max_share == 1 and not site.answered:
            before = [it for name, it in self.sites.items() if it.answered and self.has_work(name, self.now)]
            assert not any(it.due <= self.now and not it.in_flight for it in before), "an answered host goes first"
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

    def check_nothing_could_be_taken(self, unanswered: int) -> None:
        sites = [site for name, site in self.sites.items() if self.has_work(name, self.now)]
        sites = [site for site in sites if len(site.in_flight) < site.lanes and (unanswered or site.answered)]
        if any(site.due <= self.now for site in sites):
            assert self.max_share < 1, "a URL of a host that is due is not given out"
            assert any(self.now < site.due <= self.now + SOON for site in self.sites.values()), "others wait"
        if unanswered:
            assert self.table.next_due(self.now) <= min(self.next_due(), 3600.0) + 1e-6, "we would sleep too long"

    def has_work(self, host: str, now: float) -> bool:
        return any(
            urls.host(url) == host and url not in self.taken and not known.held and known.late <= now
            for url, known in self.known.items()
        )

    def next_due(self) -> float:
        """How long it takes until something can be taken, if nothing can be now."""
        free = {name: site.due for name, site in self.sites.items() if len(site.in_flight) < site.lanes}
        waiting = [(url, known.late) for url, known in self.known.items() if not known.held and url not in self.taken]
        dues = [max(late, free.get(urls.host(url), inf)) for url, late in waiting]
        return min((due for due in dues if due > self.now), default=inf) - self.now

    def pick(self, which: int, **state: bool) -> Visit | None:
        found = [visit for visit in self.visits if all(getattr(visit, key) == value for key, value in state.items())]
        return found[which % len(found)] if found else None

    @precondition(lambda self: self.visits)
    @rule(
        which=st.lists(number, min_size=1, max_size=3),
        wait=seconds,
        lanes=st.sampled_from([None, 1, 3]),
        answered=st.sampled_from([None, True, True, False]),
        keeps_turn=st.booleans(),
    )
    def rest_some(
        self, which: list[int], wait: float, lanes: int | None, answered: bool | None, keeps_turn: bool
    ) -> None:
        for index in which:
            visit = self.pick(index, rested=False)
            if visit:
                self.rest(visit, wait, lanes, answered, keeps_turn)

    def rest(self, visit: Visit, wait: float, lanes: int | None, answered: bool | None, keeps_turn: bool) -> None:
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
    @rule(which=st.lists(number, min_size=1, max_size=3), how=st.sampled_from(OUTCOMES), wait=seconds, batch=batches)
    def settle(self, which: list[int], how: str, wait: float, batch: int) -> None:
        found: list[Visit] = []
        for index in which:
            visit = self.pick(index, settled=False)
            if visit:
                visit.settled = True
                found.append(visit)
        self.visits = [visit for visit in self.visits if not (visit.settled and visit.rested)]
        tasks = [visit.task for visit in found]
        if how in ("page", "failure"):
            self.table.mark_done(tasks, how == "page")
            self.end([task.url for task in tasks], self.done)
        for task in tasks:
            if how == "put back":
                self.table.put_back(task)
                self.taken.discard(task.url)
            elif how == "skip":
                self.table.skip(task)
                self.end([task.url], self.skipped)
            elif how == "retry":
                self.hand_in([task._replace(attempt=task.attempt + 1, due=self.now + wait)], batch)

    def end(self, found: Iterable[str], state: set[str]) -> None:
        for url in found:
            known = self.known.pop(url, None)  # None if its shard is no longer ours
            if known:
                self.left[known.batch] -= 1
                self.taken.discard(url)
                state.add(url)

    @rule(host=st.sampled_from(HOSTS), numbers=st.sets(st.integers(0, 4), max_size=3), gained=st.booleans())
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

    @rule(which=number, batch=batches)
    def upkeep(self, which: int, batch: int) -> None:
        what = which % 4
        if what == 0 and self.done:
            self.let_wait_again(Task(sorted(self.done)[which % len(self.done)]), batch)
        elif what == 1:
            self.table.adopt(self.max_share, Limits())
            while self.table.forget_skipped():
                pass
            self.skipped.clear()
        elif what == 2:
            self.merge_batches({batch, batch % BATCHES + 1})
        else:
            self.look_at_queues()

    def let_wait_again(self, task: Task, batch: int) -> None:
        self.table.forget_done(task)
        self.done.discard(task.url)
        self.hand_in([task], batch)

    @precondition(lambda self: not self.held)
    @rule(shard=shards)
    def hold(self, shard: int) -> None:
        self.table.hold([shard], self.split)
        self.held.add(shard)
        for url, known in self.known.items():
            known.held = known.held or self.shard_of(Task(url)) == shard

    @rule(shard=shards, returns=st.booleans())
    def forget(self, shard: int, returns: bool) -> None:
        """Give a shard up, though visits may be under way, as when another worker took it; perhaps it comes back."""
        gone = self.held or {shard}
        lost = [url for url in self.known if self.shard_of(Task(url)) in gone]
        for url in lost:
            self.known[url].held = True
        for _ in self.table.forget(gone, self.split):
            self.take(True)
        self.held = set()
        for url in lost:
            self.left[self.known.pop(url).batch] -= 1
            self.taken.discard(url)
        for host in () if self.split else HOSTS:
            if HOSTS.index(host) % SHARDS in gone:
                self.sites[host] = Site()
        if returns:
            self.hand_in([Task(url) for url in lost], BATCHES)

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

    @rule(random=st.randoms(use_true_random=True))
    def work(self, random: Random) -> None:
        """Many small steps: what most histories consist of."""
        for _ in range(STEPS):
            which = [random.randrange(20) for _ in range(random.randint(1, 3))]
            wait, batch, shard = (
                random.choice([0.0, 0.0, 0.5, 1.0, 7.0]),
                random.randint(1, BATCHES),
                random.randrange(SHARDS),
            )
            chance = random.random()
            if chance < 0.3:
                self.take_some(random.randint(1, 4), random.random() < 0.8)
            elif chance < 0.5:
                lanes, answered = random.choice([None, 1, 3]), random.choice([None, True, True, False])
                self.rest_some(which, wait, lanes, answered, random.random() < 0.5)
            elif chance < 0.7:
                self.settle(which, random.choice(OUTCOMES), wait, batch)
            elif chance < 0.8:
                self.add(random.sample(PAGES, 3), random.randint(0, 2), batch)
            elif chance < 0.85:
                self.add_retries_of_others(random.sample(PAGES, 2), random.randint(1, 3), wait, batch)
            elif chance < 0.9:
                self.wait(wait)
            elif chance < 0.92:
                self.upkeep(which[0], batch)
            elif chance < 0.94:
                self.meet(random.choice(HOSTS), set(random.sample(range(5), 2)), random.random() < 0.5)
            elif chance < 0.96 and not self.held:
                self.hold(shard)
            elif chance < 0.98:
                self.forget(shard, random.random() < 0.7)
            else:
                self.let_wait_again_what_is_done(batch)
            self.the_counters_are_right()
            self.memory_is_bounded()

    def let_wait_again_what_is_done(self, batch: int) -> None:
        """So that there is always something to do."""
        for url in sorted(self.done):
            self.let_wait_again(Task(url), batch)

    def time_goes_on(self) -> None:
        """Everything that waits comes out, and nothing else is needed for that than time."""
        steps = 0
        while True:
            for visit in list(self.visits):
                if not visit.settled:
                    self.settle([0], "page", 0.0, 1)
                if not visit.rested:
                    self.rest(visit, 0.5, None, True, False)
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
                assert (shard in self.table.shards_in_flight()) == any(
                    self.shard_of(Task(url)) == shard for url in self.taken
                )

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "table"):
            hosts = self.table._hosts
            self.most_busy = max(self.most_busy, sum(bool(it.busy or it.taken) for it in hosts.loaded.values()))
            greedy = int(1 / self.max_share)  # as many may be out of their queue while others are looked for
            most = max(MAX_LOADED, self.most_busy + greedy + LOADED_AT_ONCE)
            assert len(hosts.loaded) <= most
            assert all(len(heap) <= 2 * most for heap in (hosts._resting, *hosts._ready))

    def look_at_queues(self) -> None:
        self.table.count_hosts()
        counted = sum(queue.waiting for queue in self.table.queues("", 100))
        rows = self.table._db.execute("SELECT key FROM task WHERE state = 0").fetchall()
        waiting = sum(key not in self.table._taken for (key,) in rows)
        assert counted == waiting or (self.table.held and counted < waiting), "what is taken does not wait"


# To shrink a failing history takes minutes: it is shown as it was found.
FIND = (Phase.explicit, Phase.reuse, Phase.generate)
TableAndModel.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None, phases=FIND)
TestEveryUrlComesOutOnceAndInTime = TableAndModel.TestCase


# ---- which host is next


def home(number: int) -> str:
    return f"https://host{number}.example/"


def table_of(*found: str, now: float = 0.0, **given: Any) -> Table:
    table = Table(**given)
    add(table, *found, now=now)
    return table


def add(table: Table, *found: str, now: float = 0.0) -> None:
    table.add(at(0, map(Task, found)), 1, now)


def take(table: Table, now: float, unanswered: int = IN_TURN) -> tuple[Task, Host]:
    found = table.take(now, unanswered)
    assert found
    return found


def visit(table: Table, now: float, rest: float = 0.0, **given: Any) -> str:
    """The next URL, done at once; its host rests so many seconds."""
    task, host = take(table, now)
    table.mark_done([task], kept=True)
    table.rest(host, now + rest, **given)
    return task.url


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few hosts fit into memory."""
    monkeypatch.setattr(hosts_module, "MAX_LOADED", 6)
    monkeypatch.setattr(hosts_module, "LOADED_AT_ONCE", 2)


def test_the_host_that_has_been_due_longest_goes_first() -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(2) for number in range(3)))
    for number, rest in enumerate((5.0, 3.0, 4.0)):
        assert visit(table, 0.0, rest) == f"{home(number)}0"
    assert table.take(2.9) is None
    assert [visit(table, 10.0) for _ in range(3)] == [f"{home(number)}1" for number in (1, 2, 0)]


def test_hosts_that_arrive_together_go_in_the_order_in_which_they_came(small: None) -> None:
    found = [home(number) for number in (7, 3, 9, 1, 8, 2, 0, 5, 6, 4)]
    table = table_of(*found)
    assert [visit(table, 0.0) for _ in found] == found


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=25, unique=True))
def test_hosts_come_back_in_the_order_in_which_they_are_due_in_memory_or_not(rests: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts_module, "MAX_LOADED", 6)
        patch.setattr(hosts_module, "LOADED_AT_ONCE", 2)
        table = table_of(*(f"{home(number)}{page}" for page in range(2) for number in range(len(rests))))
        for rest in rests:
            visit(table, 0.0, rest)
            assert len(table._hosts.loaded) <= 6
        expected = [f"{home(number)}1" for _, number in sorted((rest, number) for number, rest in enumerate(rests))]
        assert [visit(table, 100.0) for _ in rests] == expected


def test_after_its_robots_txt_a_host_comes_before_all_that_arrived_later_once_its_delay_is_over() -> None:
    table = table_of(home(0), now=0.0)
    task, host = take(table, 0.0)
    add(table, *(home(number) for number in range(1, 5)), now=0.5)
    table.put_back(task)
    table.rest(host, 2.0, keeps_turn=True)  # its turn went into its robots.txt
    assert visit(table, 1.0) == home(1)
    assert visit(table, 1.9) == home(2)
    assert visit(table, 2.0) == home(0)
    assert visit(table, 2.0) == home(3)


def test_without_its_turn_a_host_goes_behind_those_that_became_due_meanwhile() -> None:
    table = table_of(f"{home(0)}1", f"{home(0)}2")
    add(table, home(1), now=0.5)
    assert visit(table, 0.5, 1.0) == f"{home(0)}1"
    assert [visit(table, 2.0) for _ in range(2)] == [home(1), f"{home(0)}2"]


def test_pages_flow_from_the_first_seconds_of_many_new_hosts() -> None:
    """1,000 requests at a time, each answered after half a second, with a delay of a second."""
    table, now, seen = table_of(*map(home, range(20_000))), 0.0, []
    flying: deque[tuple[float, Task, Host]] = deque()
    requests = pages = 0
    while requests < 20_000:
        while len(flying) < 1000 and (found := table.take(now)):
            requests += 1
            flying.append((now + 0.5, *found))
        while flying and flying[0][0] <= now:
            _, task, host = flying.popleft()
            if host.met:
                pages += 1
                table.mark_done([task], kept=True)
                table.rest(host, now + 1.0, answered=True)
            else:
                assert table.set_met(host, 0, 0)
                table.put_back(task)
                table.rest(host, now + 1.0, answered=True, keeps_turn=True)
        now += max(min(flying[0][0] - now if flying else 3600.0, table.next_due(now)), 0.001)
        seen.append((requests, pages))
    assert next(pages / requests for requests, pages in seen if requests >= 6_000) > 0.3, "after three seconds"
    assert pages / requests > 0.4


# ---- hosts that have not answered


def test_when_only_hosts_that_have_answered_may_go_the_others_wait_for_their_turn() -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(2) for number in range(3)))
    assert table.take(0.0, unanswered=NEVER) is None, "nobody has answered yet"
    for answered in (True, False, None):
        visit(table, 0.0, answered=answered)
    task, host = take(table, 1.0, unanswered=NEVER)
    assert (task.url, host.answered) == (f"{home(0)}1", True)
    assert table.take(1.0, unanswered=NEVER) is None
    assert [visit(table, 1.0) for _ in range(2)] == [f"{home(1)}1", f"{home(2)}1"]


def test_hosts_that_have_not_answered_may_be_told_to_let_all_others_go_first(small: None) -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(2) for number in range(40)))
    for number in range(40):  # those that have answered are due last, and most hosts are not in memory
        visit(table, 0.0, 1.0 if number < 30 else 2.0, answered=number >= 30)
    assert [take(table, 5.0, unanswered=LAST)[1].answered for _ in range(40)] == [True] * 10 + [False] * 30


def test_a_host_that_does_not_answer_any_more_is_one_of_those_that_have_not() -> None:
    table = table_of(*(f"{home(0)}{page}" for page in range(4)))
    for answered, may_go in ((True, True), (False, False), (True, True)):
        visit(table, 0.0, answered=answered)
        found = table.take(0.0, unanswered=NEVER)
        assert (found is not None) == may_go
        if found:
            table.put_back(found[0])
            table.rest(found[1], 0.0)


def test_hosts_that_have_not_answered_keep_none_that_has_out_of_memory(small: None) -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(3) for number in range(40)))
    for number in range(40):
        visit(table, 0.0, 1.0 if number < 30 else 2.0, answered=number >= 30)
    for _ in range(10):  # more than fit into memory have been due for long, and may not go
        _, host = take(table, 5.0, unanswered=NEVER)
        assert host.answered
    assert table.take(5.0, unanswered=NEVER) is None
    assert len(table._hosts.loaded) <= 10 + 2
    assert len([visit(table, 5.0) for _ in range(60)]) == 60, "each of the others has two pages left"


# ---- memory


def test_hosts_that_rest_long_keep_none_that_is_due_out_of_memory(small: None) -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(2) for number in range(60)))
    assert [visit(table, 0.0, 3600.0 + number / 100) for number in range(60)] == [f"{home(it)}0" for it in range(60)]
    assert len(table._hosts.loaded) <= 6
    assert len(table._hosts._resting) < 100, "and what is out of memory leaves nothing behind"
    assert table.take(1.0) is None
    assert table.next_due(1.0) == pytest.approx(3599.0)
    assert [visit(table, 3601.0) for _ in range(60)] == [f"{home(number)}1" for number in range(60)]


def test_hosts_that_are_pushed_out_of_memory_again_and_again_leave_nothing_behind(small: None) -> None:
    table = table_of(*(f"{home(number)}{page}" for page in range(30) for number in range(20)))
    for now in range(25):
        for _ in range(20):
            visit(table, float(now), 1.0)
            table._hosts._make_room()
    assert len(table._hosts._resting) <= 2 * 6 + hosts_module.MIN_STALE


def test_a_host_that_has_had_its_share_keeps_none_that_is_due_out_of_memory() -> None:
    table = table_of(*(f"{home(0)}{page}" for page in range(50)), max_share=0.1)
    for _ in range(30):
        task, host = take(table, 0.0)
        assert host.met or table.set_met(host, 0, 0)
        table.mark_done([task], kept=True)
        table.rest(host, 0.0)
    add(table, *map(home, range(1, 21)), now=1.0)
    assert [visit(table, 2.0) for _ in range(20)] == [home(number) for number in range(1, 21)]


MANY_HOSTS = r"""
import re
from collections import deque
from pathlib import Path
from crawler.frontier.table import Table
from crawler.frontier.task import Task
HOSTS, SLOTS = 20_000, 1000
def at(shard, tasks):
    return ((shard, task) for task in tasks)
def peak(): # not ru_maxrss: that of the process which started us counts there too
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) // 1024
table, now, loaded, flying, orders = Table(), 0.0, 0, deque(), ([], [])
for start in range(0, HOSTS, 10_000):
    numbers = range(start, start + 10_000)
    table.add(at(0, (Task(f"https://host{n}.example/0") for n in numbers)), start, now)
    table.add(at(0, (Task(f"https://host{n}.example/1") for n in numbers[::10])), start, now)
while table.waiting:
    while len(flying) < SLOTS and (found := table.take(now)):
        flying.append((now + 0.5, *found))
    loaded = max(loaded, len(table._hosts.loaded))
    while flying and flying[0][0] <= now:
        _, task, host = flying.popleft()
        table.mark_done([task], kept=True)
        number, page = map(int, re.findall(r"\d+", task.url))
        table.rest(host, now + 300.0 + number / 1e6, answered=True)
        orders[page].append(number)
    now += max(min(flying[0][0] - now if flying else 3600.0, table.next_due(now)), 0.001)
assert orders[0] == list(range(HOSTS)), "first come, first served, and each once"
assert orders[1] == list(range(0, HOSTS, 10)), "and again in the order in which they are due"
print(loaded, peak())
"""


@pytest.mark.fleet  # for time
def test_of_many_hosts_a_bounded_number_is_in_memory_and_each_has_its_turn() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_HOSTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded, peak = map(int, done.stdout.split())
    print(f"20,000 hosts: at most {loaded} in memory, {peak} MB")
    assert loaded <= hosts_module.MAX_LOADED
    assert peak < 100


# ---- tasks of one host


def test_the_blame_of_a_task_stays_with_it_whichever_batch_brings_it_first() -> None:
    plain, blamed = Task(home(0), 2), Task(home(0), 3, attempt=1, blame=2)
    for first, second in ((plain, blamed), (blamed, plain)):
        table = Table()
        table.add(at(0, [first]), 1)
        table.add(at(0, [second]), 2)
        merged = Task(home(0), 2, attempt=1, blame=2)
        assert [task._replace(due=0.0) for task in table.drain_mixed()] == [merged]
        assert take(table, 1.0)[0] == merged


@pytest.mark.parametrize("depth", [2, 3])
def test_of_two_retries_that_are_the_same_attempt_the_later_one_counts(depth: int) -> None:
    table = Table()
    table.add(at(0, [Task(home(0), 2)]), 1)
    _, host = take(table, 0.0)
    table.add(at(0, [Task(home(0), 2, attempt=1, due=1.0)]), 2)  # of the owner before, handed on; and then ours fails
    table.rest(host, 1.0)
    assert table.take(0.5, True) is None
    table.put_back(take(table, 1.0)[0])
    table.rest(host, 1.0)
    table.add(at(0, [Task(home(0), depth, attempt=1, due=5.0)]), 3)
    assert table.take(4.9, True) is None
    assert take(table, 5.0)[0] == Task(home(0), 2, attempt=1)


@pytest.mark.parametrize("fails", ["before", "after"])
def test_a_visit_that_failed_is_not_repeated_for_the_retry_of_an_owner_before_us(fails: str) -> None:
    table = Table()
    table.add(at(0, [Task(home(0), 2)]), 1)
    _, host = take(table, 0.0)
    theirs, ours = Task(home(0), 2, attempt=1, due=1.0), Task(home(0), 2, attempt=1, due=5.0)
    if fails == "before":
        table.delay_retry(ours)  # and it is in no batch before the next flush
    table.add(at(0, [theirs]), 2)
    if fails == "after":
        table.delay_retry(ours)
    table.rest(host, 1.0)
    assert table.take(4.9, True) is None
    table.add(at(0, [ours]), 3)
    assert table.take(4.9, True) is None
    assert take(table, 5.0)[0] == Task(home(0), 2, attempt=1)
    assert table.waiting == 1 and [table.left[batch] for batch in (1, 2, 3)] == [0, 0, 1]


def test_what_is_put_back_is_given_out_as_it_is_known_by_then() -> None:
    table = Table()
    table.add(at(0, [Task(home(0), 5)]), 1)
    task, host = take(table, 0.0)
    table.add(at(0, [Task(home(0), 1)]), 2)  # found to be nearer meanwhile
    table.put_back(task)
    table.rest(host, 0.0)
    assert take(table, 0.0)[0] == Task(home(0), 1)


def test_what_is_put_back_waits_behind_a_robots_task_that_came_meanwhile() -> None:
    table = table_of(home(0))
    task, host = take(table, 0.0)
    table.add(at(0, [robots_task(home(0), "b.example", "0")]), 2)
    table.put_back(task)
    table.rest(host, 0.0)
    assert take(table, 0.0)[0].kind == ROBOTS, "the page may wait for it"


def test_a_robots_task_in_flight_does_not_let_a_host_exceed_its_limit() -> None:
    table = table_of(*(f"{home(0)}{page}" for page in range(4)), limits=Limits(max_per_host=1))
    task, host = take(table, 0.0)
    table.mark_done([task], kept=True)
    table.rest(host, 0.0, lanes=3)
    table.add(at(0, [robots_task(home(0), "b.example", "0")]), 2)
    assert take(table, 0.0)[0].kind == ROBOTS
    assert table.take(0.0) is None
    assert (table.skipped.total(), table.waiting, table.taken) == (3, 1, 1)


@pytest.mark.parametrize("how", ["rest", "finish", "put back"])
def test_a_visit_that_ends_after_its_shard_left_and_came_back_disturbs_no_other(how: str) -> None:
    found = [f"{home(0)}{page}" for page in range(3)]
    table = table_of(*found)
    task, old = take(table, 0.0)
    deque(table.forget([0], split=False), maxlen=0)
    add(table, *found)
    again, new = take(table, 0.0)
    assert again == task and new is not old, "it is requested twice, and that is all"
    if how == "finish":
        table.mark_done([task], kept=True)
    elif how == "put back":
        table.put_back(task)
    table.rest(old, 0.0)
    assert table.take(100.0) is None, "the host is busy"
    table.mark_done([again], kept=True)
    table.rest(new, 0.0)
    assert [visit(table, 0.0) for _ in range(2)] == found[1:]
    assert (table.waiting, table.taken) == (0, 0)


def test_a_host_that_was_loaded_while_its_shard_left_is_as_new_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hosts_module, "FORGOTTEN_AT_ONCE", 1)
    table = Table()
    stays = Task("http://stays.example/")
    table.add([*at(0, map(Task, (home(0), home(1)))), (1, stays), *at(0, [Task(home(2))])], 1)
    leaving = table.forget([0], split=False)
    next(leaving)  # its tasks, and then its first host
    next(leaving)
    assert take(table, 0.0)[0] == stays, "and with it the host behind it came into memory"
    deque(leaving, maxlen=0)
    add(table, home(2))
    task, host = take(table, 0.0)
    table.rest(host, 0.0)
    assert table.take(0.0) is None
    table.add(at(0, [task._replace(attempt=1, due=5.0)]), 3)
    assert take(table, 5.0)[0].attempt == 1


@pytest.mark.parametrize(("order", "usual"), [("bfs", ["near", "far"]), ("dfs", ["far", "near"])])
def test_the_operators_priority_counts_more_than_the_depth_and_a_sitemaps_less(order: str, usual: list[str]) -> None:
    table = Table(order)
    near, far = Task("http://a.example/near", 1, priority=0), Task("http://a.example/far", 9, priority=10)
    first = Task("http://a.example/first", 1 << 30, priority=GIVEN + 6)
    last = Task("http://a.example/last", 0 if order == "bfs" else 1 << 30, priority=GIVEN + 4)
    table.add(at(0, [last, near, far, first]), 1)
    taken = [table.take(0.0) for _ in range(1)]
    while found := taken[-1]:
        table.rest(found[1], 0.0)
        taken.append(table.take(0.0))
    assert [found[0].url.rpartition("/")[2] for found in taken if found] == ["first", *usual, "last"]


def test_a_host_with_one_page_takes_few_statements_from_its_row_to_its_end() -> None:
    table, made = Table(), list[str]()
    table.add(at(0, (Task(f"https://host{number}.example{number}.com/") for number in range(100))), 1)
    table._db.set_trace_callback(made.append)
    table.add(at(0, (Task(f"https://other{number}.example{number}.net/") for number in range(100))), 1)
    for _ in range(200):
        task, host = table.take(0.0) or pytest.fail("all are due")
        table.set_met(host, 0, table.gains)
        assert not table.next_retry(host.name)
        table.mark_done([task], kept=True, sizes={task.name: 1000})
        table.rest(host, 1.0)
    assert len(made) <= 1700
