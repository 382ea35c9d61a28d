"""The frontier: nothing leaves it before it is done, and the next URL is the right one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lab.frontiers import add, at, frontier_of, make_root, on_disk, owner_of, read_all, shard_of_url
from lab.loops import Blocking
from lab.world import InSmallLots

from crawler.errors import StoreAway
from crawler.frontier import frontier as frontier_module
from crawler.frontier.batches import BatchFiles, Outbox, from_lines, to_lines
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Host
from crawler.frontier.limits import Limits
from crawler.frontier.table import Table
from crawler.frontier.task import PAGE, Task
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.web import urls

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"


def table_of(*tries: Task, **kwargs: object) -> Table:
    table = Table(**kwargs)  # type: ignore[arg-type]
    table.add(at(0, tries), 1)
    return table


def busy(table: Table, name: str) -> Host:
    """A host of which something is requested."""
    host = table._hosts.loaded[name]
    assert host.busy
    return host


def take_all(table: Table, now: float = 0.0) -> list[str]:
    """All URLs in the order in which they are given out, each host resting not at all."""
    found = []
    while taken := table.take(now):
        task, host = taken
        found.append(task.url)
        table.mark_done([task], kept=True)
        table.rest(host, 0.0)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_root(tmp_path)
    return tmp_path


def tidy(owner: Frontier, shard: int, most: int) -> None:
    """Tidy a shard in which more than so many batches are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier_module, "MAX_SMALL", most)
        owner.tidy(shard)


MANY_URLS = r"""
import re
from pathlib import Path
from crawler.frontier.table import Table
from crawler.frontier.task import Task
table, peaks = Table(), []
def at(shard, tasks):
    return ((shard, task) for task in tasks)
def peak(): # not ru_maxrss: that of the process which started us counts there too
    return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) // 1024
for batch in range(10):
    numbers = range(batch * 20_000, (batch + 1) * 20_000)
    pages = (f"https://host{n % 500}.example/some/longer/path/page{n}.html" for n in numbers)
    table.add(at(0, map(Task, pages)), batch)
    peaks.append(peak())
assert all(table.take(0.0) for _ in range(400))
print(table.waiting, peaks[4], peak())
"""


# ---- batches


SPELLED = st.sampled_from(["https://a.example/", "http://b.example:81/?q=%C3%A9&x", "https://c.example/" + "x" * 1900])


@settings(deadline=None)
@given(
    st.lists(
        st.builds(
            Task,
            SPELLED,
            depth=st.integers(0, 1 << 20),
            attempt=st.integers(0, 100),
            due=st.integers(0, 1 << 20),
            via=st.lists(st.text("0123456789abcdef", min_size=12, max_size=12), max_size=20).map(",".join),
            priority=st.integers(0, 10),
            kind=st.just(PAGE),  # test_task.py has the others
            detail=st.just(""),
            blame=st.integers(0, 9),
        )
    )
)
def test_a_batch_is_read_back_as_it_was_written(tries: list[Task]) -> None:
    now = time.monotonic()
    data = to_lines(task._replace(due=task.due and now + task.due) for task in tries)
    assert data.isascii() and data.count(b"\n") == len(tries)
    for task, read in zip(tries, from_lines(data), strict=True):
        assert read._replace(due=task.due) == task
        assert read.due == (pytest.approx(now + task.due, abs=60) if task.due else 0)


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_retry_waits_no_longer_than_it_was_told_whatever_the_clocks_say(hours: int) -> None:
    data = to_lines([Task(A, 0, 1, time.monotonic() + 100)])
    (read,) = from_lines(data, Clock(lambda: time.monotonic() + 1e6, lambda: time.time() + hours * 3600))
    assert -60 < read.due - 1e6 - time.monotonic() <= 101


def test_broken_lines_of_a_batch_are_passed_over(root: Path) -> None:
    lines = [
        b"",
        b"\t\t\t",
        b"0\t0\t0",
        b"x\t0\t0\t" + A.encode(),
        b"-1\t0\t0\t" + A.encode(),
        b"0\t0\t0\t" + B.encode(),
    ]
    (root / "frontier" / "000").mkdir()
    (root / "frontier" / "000" / "by-hand").write_bytes(b"\n".join(lines))
    assert on_disk(root).keys() == {B}


@pytest.mark.parametrize(
    "line",
    [
        b"0\t0\t0\tnonsense",
        b"0\t0\t0\thttp:/x",
        b"0\t0\t0\thttps://../../etc/",
        b"0\t0\t0\tftp://a.example/",
        b"0\t99999999999999999999\t0\thttps://a.example/",
        b"0\t0\t0\thttps://A.example/\xff",
    ],
)
def test_a_line_that_a_person_wrote_wrongly_harms_nothing(root: Path, line: bytes) -> None:
    (root / "frontier" / "000").mkdir()
    (root / "frontier" / "000" / "by-hand").write_bytes(line + b"\n0\t0\t0\t" + B.encode() + b"\n")
    assert on_disk(root).keys() == {B}


def test_a_huge_depth_harms_nothing(root: Path) -> None:
    (root / "frontier" / "000").mkdir()
    (root / "frontier" / "000" / "by-hand").write_bytes(f"999999999\t0\t0\t{A}\n0\t0\t0\t{B}\n".encode())
    assert B in on_disk(root)


def test_the_name_of_a_batch_tells_how_many_lines_it_has(root: Path) -> None:
    add(frontier_of(root), *(Task(f"{A}{number}") for number in range(7)))
    names = [path.name for path in root.glob("frontier/*/*-*")]
    assert sum(int(name.rpartition(".")[2]) for name in names) == 7


def test_a_long_lot_becomes_several_batches(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    add(frontier_of(root), *(Task(f"{A}{number}") for number in range(25)))
    assert sorted(path.name.rpartition(".")[2] for path in root.glob("frontier/*/*-*")) == ["10", "10", "5"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50, unique=True))
def test_a_host_is_in_one_shard_and_the_urls_of_a_host_in_all(numbers: list[int]) -> None:
    found = [f"{A}{number}" for number in numbers]
    assert len({shard_of_url(url, 64, "host") for url in found}) == 1
    spread = {url: shard_of_url(url, 64, "url") for url in found}
    assert all(int(urls.key(url), 16) % 64 == shard for url, shard in spread.items())
    if len(numbers) == 50:
        assert len(set(spread.values())) > 10


def test_each_url_goes_into_the_folder_of_its_shard(root: Path) -> None:
    for spread in ("host", "url"):
        mine = frontier_of(root, spread, spread=spread)
        add(mine, *(Task(f"{A}{number}") for number in range(20)))
        for path in root.glob(f"frontier/*/{spread}-*"):
            assert {mine.shard_of(task) for task in from_lines(path.read_bytes())} == {int(path.parent.name)}


# ---- nothing leaves before it is done

PAGES = [f"https://{host}.example/{number}" for host in "ab" for number in range(3)]


class Life(RuleBasedStateMachine):
    """An owner of all shards and somebody else who hands over; a new reader of the folder must always find the rest.

    While the owner waits for the mount its visits go on, and now and then the mount goes away.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        make_root(self.root)
        self.starts = 0
        self.meanwhile: list[str] = []  # what visits do while the owner waits for the mount
        self.calls_left = inf  # until the mount goes away
        self.start()
        self.other = frontier_of(self.root, "other")
        self.model: dict[str, tuple[int, int]] = {}  # what waits: its smallest depth, its highest attempt
        self.done: set[str] = set()

    def start(self) -> None:
        self.starts += 1
        files = Files(self.root, f"me{self.starts}", durable=False)
        self.mine: Any = Blocking(Frontier(BatchFiles(files), Settings(shards=2), SYSTEM, self.io))
        self.taken: dict[str, Task] = {}
        self.insist(self.mine.own, [0, 1])

    def teardown(self) -> None:
        self.folder.cleanup()

    async def io(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise StoreAway("before the call")
        result = call(*args, **kwargs)
        if self.meanwhile:
            getattr(self, self.meanwhile.pop())()
        self.calls_left -= 1
        if self.calls_left == 0:
            raise StoreAway("after it: nobody knows what it did")
        return result

    def insist(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Make a call, once more if the mount was away, and write what visits handed over meanwhile."""
        try:
            call(*args, **kwargs)
        except StoreAway:
            call(*args, **kwargs)
        while self.mine.queued:
            with suppress(StoreAway):
                self.mine.flush()

    @rule(
        what=st.lists(st.sampled_from(["take_one", "put_one_back", "finish_one", "retry_one", "find_one"]), max_size=4)
    )
    def visits_go_on_during_the_next_calls(self, what: list[str]) -> None:
        self.meanwhile = what

    @rule(calls=st.integers(1, 12))
    def the_mount_goes_away_soon(self, calls: int) -> None:
        self.calls_left = calls

    def expect(self, task: Task) -> None:
        if task.url not in self.done:
            depth, attempt = self.model.get(task.url, (task.depth, task.attempt))
            self.model[task.url] = min(depth, task.depth), max(attempt, task.attempt)

    @rule(url=st.sampled_from(PAGES), depth=st.integers(0, 3), by_other=st.booleans())
    def hand_over(self, url: str, depth: int, by_other: bool) -> None:
        task = Task(url, depth)
        if by_other:
            add(self.other, task)
        else:
            self.mine.hand_over([task])
        self.expect(task)
        self.insist(self.mine.flush)

    @precondition(lambda self: self.taken)
    @rule(by_other=st.booleans())
    def find_nearer_what_is_in_flight(self, by_other: bool) -> None:
        self.hand_over(next(reversed(self.taken)), 0, by_other)

    @rule()
    def look_into_the_inbox(self) -> None:
        for shard in self.mine.owned:
            self.insist(self.mine.read_inboxes, [shard], fresh=True)

    @rule(visits=st.lists(st.sampled_from(["take_one", "finish_one", "put_one_back", "retry_one"]), max_size=4))
    def visit(self, visits: list[str]) -> None:
        for name in visits:
            getattr(self, name)()
        self.insist(self.mine.flush)

    def take_one(self) -> None:
        taken = self.mine.table.take(1e9)
        if taken:
            task, host = taken
            assert task.url not in self.taken, "given out twice"
            self.taken[task.url] = task
            self.mine.table.rest(host, 0.0)

    def finish_one(self) -> None:
        if self.taken:
            _, task = self.taken.popitem()
            self.done.add(task.url)
            self.model.pop(task.url, None)
            self.mine.table.mark_done([task], kept=bool(len(self.done) % 2))

    def retry_one(self) -> None:
        if self.taken:
            _, task = self.taken.popitem()
            again = Task(task.url, task.depth, task.attempt + 1, 1000.0)
            self.mine.hand_over([again])
            if task.url in self.model:
                self.expect(again)

    def put_one_back(self) -> None:
        if self.taken:
            _, task = self.taken.popitem()
            self.mine.table.put_back(task)

    def find_one(self) -> None:
        task = Task(PAGES[self.starts % len(PAGES)], 1)
        self.mine.hand_over([task])
        self.expect(task)

    @rule(most=st.sampled_from([1, 48]))
    def tidy(self, most: int) -> None:
        for shard in self.mine.owned:
            self.insist(tidy, self.mine, shard, most)

    @rule(shard=st.integers(0, 1))
    def give_a_shard_back_and_take_it_again(self, shard: int) -> None:
        self.mine.hold([shard])
        self.insist(self.mine.flush)
        if shard not in self.mine.table.shards_in_flight():
            self.insist(self.mine.disown, [shard])
        else:
            self.insist(self.mine.disown, [shard], lost=[shard])  # another worker took it
            self.taken = {url: task for url, task in self.taken.items() if self.mine.shard_of(Task(url)) != shard}
        self.insist(self.mine.own, [shard])

    @rule()
    def be_killed_and_begin_again(self) -> None:
        self.start()

    @invariant()
    def a_new_owner_finds_all_that_is_not_done(self) -> None:
        found = {url: (task.depth, task.attempt) for url, task in on_disk(self.root).items()}
        assert {url: found.get(url) for url in self.model} == self.model
        assert found.keys() <= self.model.keys() | self.done

    @invariant()
    def the_counters_are_right(self) -> None:
        table = self.mine.table
        rows = dict(table._db.execute("SELECT batch, count(*) FROM task WHERE state < 4 GROUP BY batch").fetchall())
        assert {batch: count for batch, count in table.left.items() if count} == rows
        assert table.waiting == sum(rows.values())
        assert table.taken == len(self.taken)


class LifeInSmallLots(InSmallLots, Life):
    """The same where four lines are more than is read, or written anew, at a time."""

    @rule()
    def read_on(self) -> None:
        self.insist(self.mine.read_on)


Life.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
LifeInSmallLots.TestCase.settings = Life.TestCase.settings
TestNothingIsLostWhateverHappens = Life.TestCase
TestNothingIsLostInSmallLots = LifeInSmallLots.TestCase


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("news", [[Task(A, 1), Task(A, 5, 1, 10.0)], [Task(A, 5, 1, 10.0), Task(A, 1)]])
def test_the_smaller_depth_and_the_higher_attempt_of_two_batches_survive_a_restart(
    root: Path, news: list[Task], flushed: bool
) -> None:
    mine = owner_of(root)
    add(mine, Task(A, 5))
    assert mine.take()
    mine.table.rest(busy(mine.table, "a.example"), 0.0)
    for task in news:  # found nearer while it was in flight, and its host did not answer
        add(mine, task)
    if flushed:
        mine.flush()
    for _ in range(2):
        for shard in (0, 1):
            mine.tidy(shard)
        assert {(task.depth, task.attempt) for task in on_disk(root).values()} == {(1, 1)}
    assert (mine.table.waiting, mine.table.taken) == (1, 0)
    taken = mine.table.take(1e9)
    assert taken and taken[0] == Task(A, 1, 1)
    mine.flush()
    mine.table.mark_done([taken[0]], kept=True)
    for shard in (0, 1):
        mine.tidy(shard)
    assert not list(root.glob("frontier/*/*-*")), "nothing counts for ever"


def test_two_owners_of_one_shard_lose_nothing_between_them(root: Path) -> None:
    old = owner_of(root, "old")
    for number in range(3):
        add(old, Task(f"{A}{number}"))
    new = owner_of(root, "new")  # old was silent, and is buried
    for shard in (0, 1):
        tidy(old, shard, most=1)  # ... but was only asleep in the middle of this
    for shard in (0, 1):
        new.read_inboxes([shard], fresh=True)
        new.tidy(shard)
    assert new.table.waiting == 3
    assert len(on_disk(root)) == 3


def test_an_heir_writes_anew_also_what_it_had_handed_over_itself(root: Path) -> None:
    heir = frontier_of(root, "heir")
    add(heir, Task(A), Task(B), Task(C))  # into folders of a worker that knows these names, and may remove them
    handed_over = set(root.glob("frontier/*/heir-*"))
    heir.own([0, 1], inherited=[0, 1])
    read_all(heir)
    while not all(heir.tidy(shard) for shard in (0, 1)):
        pass
    assert handed_over and not handed_over & set(root.glob("frontier/*/heir-*"))
    assert on_disk(root).keys() == {A, B, C}


def test_two_frontiers_of_one_name_do_not_replace_each_others_batches(root: Path) -> None:
    for url in (A + "1", A + "2"):  # one after the other, as in `begin` and after each death of a worker
        add(frontier_of(root, "same"), Task(url))
    pair = [frontier_of(root, "same"), owner_of(root, "same")]  # two machines at once
    for number in range(3, 7):
        add(pair[number % 2], Task(f"{A}{number}"))
    for shard in (0, 1):
        pair[1].read_inboxes([shard], fresh=True)
        tidy(pair[1], shard, most=1)
    assert on_disk(root).keys() == {f"{A}{number}" for number in range(1, 7)}
    assert pair[1].table.waiting == 6


def test_a_tidy_cut_off_after_its_new_batch_leaves_nothing_doubled_or_lost(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = owner_of(root)
    for number in range(3):
        add(mine, Task(f"{A}{number}"))
    with monkeypatch.context() as patch:
        patch.setattr(Files, "drop", lambda *_: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            tidy(mine, mine.shard_of(Task(A)), most=1)
    assert len(on_disk(root)) == 3
    mine.tidy(mine.shard_of(Task(A)))
    assert len(on_disk(root)) == 3 == mine.table.waiting
    assert take_all(mine.table, time.monotonic()) == [f"{A}{number}" for number in range(3)]


def test_many_small_batches_become_few_and_only_what_waits_is_kept(root: Path) -> None:
    mine = owner_of(root)
    for number in range(frontier_module.MAX_SMALL + 10):
        add(mine, Task(f"{A}{number}"))
    for number in range(5):
        mine.table.mark_done([Task(f"{A}{number}")], kept=True)
    mine.tidy(mine.shard_of(Task(A)))
    assert len(list(root.glob("frontier/*/*-*"))) < 35
    assert on_disk(root).keys() == {f"{A}{number}" for number in range(5, frontier_module.MAX_SMALL + 10)}


def test_a_batch_that_is_large_is_not_written_again_however_many_there_are(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 24)
    mine = owner_of(root)
    for number in range(4):
        add(mine, *(Task(f"{A}{number}/{page}") for page in range(5)))
    names = set(root.glob("frontier/*/*-*"))
    tidy(mine, mine.shard_of(Task(A)), most=1)
    assert set(root.glob("frontier/*/*-*")) == names
    for number in range(4):
        mine.table.mark_done([Task(f"{A}{number}/{page}") for page in range(3)], kept=True)
    tidy(mine, mine.shard_of(Task(A)), most=1)
    now = set(root.glob("frontier/*/*-*"))
    assert (len(now - names), len(names - now)) == (1, 3), "now they are small, and three of them become one"


# ---- what is not for us


D = "https://d.example/"  # in the second shard of two, all others in the first


def test_what_no_worker_has_written_is_handed_on_to_its_owners_inbox(root: Path) -> None:
    mine = frontier_of(root)
    mine.own([0])
    mine.inboxes = {0: 0, 1: 7}  # the first shard of its owner, who has more than there are in this store
    Outbox(Files(root, "maker", durable=False), Settings(shards=2), {0: 0, 1: 0}).send([Task(A), Task(D)])
    mine.read_inboxes([0], fresh=True)
    mine.flush()
    assert [path.parent.name for path in root.glob("frontier/*/me-*")] == ["007"]
    assert mine.table.waiting == 1


def test_what_a_worker_has_sent_by_mistake_does_not_go_to_and_fro(root: Path) -> None:
    mine, other = frontier_of(root), frontier_of(root, "other")
    mine.own([0])
    mine.inboxes = {0: 0, 1: 7}
    other.inboxes = {0: 0, 1: 0}  # out of date: the second shard has another owner by now
    add(other, Task(D))
    mine.read_inboxes([0], fresh=True)
    mine.flush()
    assert [path.parent.name for path in root.glob("frontier/*/me-*")] == ["001"], "where whoever owns it looks"


# ---- a large inbox


@pytest.fixture
def large(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store in which ten lots wait, the last one with a retry."""
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    giver = frontier_of(root, "giver")
    for number in range(10):
        add(giver, *(Task(f"{A}{number}/{page}") for page in range(10)))
    add(giver, Task(A, 0, 1, time.monotonic() + 1000))
    return root


def test_a_large_inbox_is_read_a_lot_at_a_time_and_what_is_read_can_be_taken(large: Path) -> None:
    mine = owner_of(large)
    assert mine.unread
    assert mine.table.waiting == 11, "a lot, and the retry"
    assert mine.take()
    mine.read_on()
    assert mine.table.waiting == 21
    assert read_all(mine).table.waiting == 101


def test_the_newest_lot_of_a_large_inbox_is_read_first_because_of_the_oldest_most_is_done(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    giver = frontier_of(root, "giver")
    for number in range(3):
        add(giver, *(Task(f"{A}{number}/{page}") for page in range(10)))
    mine = owner_of(root)
    assert mine.table.waiting == 10
    assert mine.take()[0].url == f"{A}2/0"
    assert read_all(mine).table.waiting == 30


def test_a_retry_is_known_before_anything_else_of_its_host_can_be_taken(large: Path) -> None:
    mine = owner_of(large)
    assert mine.table.next_retry("a.example") > time.monotonic() + 900
    taken = take_all(read_all(mine).table, time.monotonic())
    assert len(taken) == 100
    assert A not in taken


def test_nothing_is_removed_while_there_is_more_to_read(large: Path) -> None:
    mine = owner_of(large)
    for url in take_all(mine.table, time.monotonic()):
        mine.table.mark_done([Task(url)], kept=True)
    shard = mine.shard_of(Task(A))
    assert not mine.tidy(shard)
    assert len(list(large.glob("frontier/*/*-*"))) == 11
    assert read_all(mine).tidy(shard)
    assert len(list(large.glob("frontier/*/*-*"))) == 10


def test_a_shard_that_is_given_back_before_it_is_read_keeps_its_batches(large: Path) -> None:
    mine = owner_of(large)
    mine.hold([0, 1])
    mine.disown([0, 1])
    assert not mine.unread
    assert mine.table.waiting == 0
    assert len(on_disk(large)) == 101


def test_a_batch_counts_once_though_what_it_has_for_others_could_not_be_handed_on_at_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    mine = frontier_of(root)
    shard = mine.shard_of(Task(A))
    other = next(url for url in (B, C, "https://d.example/") if mine.shard_of(Task(url)) != shard)
    lines = to_lines([Task(A), *(Task(f"{other}{page}") for page in range(11))])
    (root / f"frontier/00{shard}").mkdir()
    (root / f"frontier/00{shard}/someone-0000-000001.12").write_bytes(lines)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", lambda *_, **__: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            mine.own([shard])
    read_all(mine).flush()
    mine.tidy(shard)
    assert len(on_disk(root)) == 12
    mine.table.mark_done([Task(A)], kept=True)
    mine.tidy(shard)
    assert len(on_disk(root)) == 11


def test_what_a_dead_worker_had_is_all_read_before_any_of_it_is_written_anew(large: Path) -> None:
    heir = frontier_of(large, "heir")
    heir.own([0, 1], inherited=[0, 1])
    for shard in (0, 1):
        assert not heir.tidy(shard)
    assert heir.table.waiting == 11, "as much as was read at first"
    assert not list(large.glob("frontier/*/heir-*"))


def test_what_a_dead_worker_had_is_written_anew_a_lot_at_a_time(large: Path) -> None:
    heir = frontier_of(large, "heir")
    heir.own([0, 1], inherited=[0, 1])
    read_all(heir)
    rounds = 0
    while not heir.tidy(heir.shard_of(Task(A))):
        assert len(list(large.glob("frontier/*/giver-*"))) == 11, "nothing is removed before all of it is written"
        rounds += 1
    assert rounds >= 10
    assert {path.name.partition("-")[0] for path in large.glob("frontier/*/*-*")} == {"heir"}
    assert len(on_disk(large)) == 101


def test_a_shard_that_is_given_back_holds_only_what_waits_even_in_its_only_batch(root: Path) -> None:
    mine = owner_of(root)
    add(mine, Task(A + "1"), Task(A + "2"), Task(A + "3"))
    taken = mine.take()
    assert taken
    mine.table.mark_done([taken[0]], kept=True)
    mine.disown([mine.shard_of(Task(A))])
    assert on_disk(root).keys() == {A + "1", A + "2", A + "3"} - {taken[0].url}


def test_a_flush_that_fails_is_written_by_the_next(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = owner_of(root)
    mine.hand_over([Task(A), Task(B)])
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", lambda *_, **__: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            mine.flush()
    assert mine.queued
    mine.flush()
    assert not mine.queued
    assert on_disk(root).keys() == {A, B}


# ---- giving a shard back


def test_a_batch_of_ours_that_may_not_be_on_the_disk_is_not_read_by_us(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(root, "a")
    batches = BatchFiles(files)

    def away(*_: object) -> bool:
        raise StoreAway("gone")

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", away)
        patch.setattr(files, "drop", away)
        with pytest.raises(StoreAway):
            batches.write([(0, [Task(A)])])
    assert len(BatchFiles(Files(root, "b")).names(0, True)) == 1, "others see it"
    assert batches.names(0, True) == set()
    batches.write([(0, [Task(A)])])
    assert len(batches.names(0, True)) == len(on_disk(root)) == 1


def test_a_retry_of_a_shard_that_is_being_given_back_is_no_longer_in_flight(root: Path) -> None:
    mine = owner_of(root)
    add(mine, Task(A))
    shard = mine.shard_of(Task(A))
    assert mine.take()
    mine.hold([shard])
    assert shard in mine.table.shards_in_flight()
    add(mine, Task(A, 0, 1, 10.0))
    assert shard not in mine.table.shards_in_flight()
    assert mine.table.taken == 0
    assert mine.table.take(1e9) is None, "nothing of it is given out any more"
    mine.disown([shard])
    assert on_disk(root)[A].attempt == 1


def test_what_is_put_back_into_a_shard_that_is_being_given_back_stays_there(root: Path) -> None:
    mine = owner_of(root)
    add(mine, Task(A))
    assert mine.take()
    mine.hold([mine.shard_of(Task(A))])
    mine.table.put_back(Task(A))
    mine.table.rest(busy(mine.table, "a.example"), 0.0)
    assert mine.table.take(1e9) is None


def test_giving_a_shard_back_can_be_tried_again_after_the_mount_was_away(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = owner_of(root)
    add(mine, Task(A))
    add(mine, Task(A + "2"))
    shard = mine.shard_of(Task(A))
    mine.hold([shard])
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", lambda *_, **__: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            mine.disown([shard])
    mine.disown([shard])
    assert len(on_disk(root)) == 2
    assert mine.table.waiting == 0


def test_giving_shards_back_can_be_tried_again_after_the_mount_went_between_two_of_them(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = owner_of(root)
    pages = [f"https://{name}.example/" for name in "abcdefgh"]
    add(frontier_of(root, "other"), *map(Task, pages))
    mine.read_inboxes([0, 1], fresh=True)
    assert all(mine._batches.values()), "a batch in each folder"
    mine.hold([0, 1])
    drop, left = Files.drop, [True]

    def fail_later(self: Files, name: str) -> bool:
        if not left:
            raise StoreAway("gone")
        left.pop()
        return drop(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "drop", fail_later)
        with pytest.raises(StoreAway):
            mine.disown([0, 1])
    mine.disown([0, 1])
    assert on_disk(root).keys() == set(pages)


# ---- dedupe and order


def test_a_url_is_given_out_once_however_often_it_is_handed_over(root: Path) -> None:
    mine = owner_of(root)
    for me in ("x", "y", "z"):
        add(frontier_of(root, me), Task(A, 3), Task(A, 3))
    add(mine, Task(A, 2), Task(A, 4))
    for shard in (0, 1):
        mine.read_inboxes([shard], fresh=True)
    assert mine.table.waiting == 1
    assert take_all(mine.table, time.monotonic()) == [A]
    add(mine, Task(A, 1))
    assert take_all(mine.table, time.monotonic()) == []


def meet(owner: Frontier, done: set[str], kept: int) -> None:
    """Take in what is done of a host, when it is first given out, as a visit does."""
    task, host = owner.take()  # type: ignore[misc]
    assert not host.met
    owner.meet(host, done)
    assert owner.table.set_met(host, kept, owner.table.gains)
    assert host.met and host.kept == kept
    owner.table.put_back(task)
    owner.table.rest(host, 0.0)


def test_what_a_hosts_folders_hold_is_not_given_out(root: Path) -> None:
    mine = owner_of(root)
    add(mine, *(Task(f"{A}{number}") for number in range(4)))
    meet(mine, {urls.key(A + "0"), urls.key(A + "9"), urls.key(A + "2")}, 2)
    assert mine.table.waiting == 2
    assert take_all(mine.table, time.monotonic()) == [A + "1", A + "3"]
    add(mine, Task(A + "9"))
    assert take_all(mine.table, time.monotonic()) == []


def test_a_stray_file_in_a_hosts_folder_harms_nothing(root: Path) -> None:
    mine, files = owner_of(root, spread="url"), Files(root, "me", durable=False)
    add(mine, Task(A), Task(A + "1"))
    for noun in ("links", "errs"):
        files.put(f"{noun}/a.example/notes.txt", b"")
    files.put(f"links/a.example/{urls.key(A)}", b"{}")
    meet(mine, Store(root).done("a.example"), 1)
    assert take_all(mine.table, time.monotonic()) == [A + "1"]


def test_bfs_gives_the_nearest_and_oldest_first_and_dfs_the_deepest_and_newest() -> None:
    tries = [Task(A + name, depth) for name, depth in (("two", 2), ("one", 1), ("three", 3), ("uno", 1))]
    assert [url[18:] for url in take_all(table_of(*tries, order="bfs"))] == ["one", "uno", "two", "three"]
    assert [url[18:] for url in take_all(table_of(*tries, order="dfs"))] == ["three", "two", "uno", "one"]


def test_a_url_that_is_found_nearer_moves_forward() -> None:
    table = table_of(Task(A + "x", 5), Task(A + "y", 3))
    table.add(at(0, [Task(A + "x", 1)]), 2)
    assert take_all(table) == [A + "x", A + "y"]


def greedy_table(*tries: Task) -> Table:
    """A table whose host a.example has had nearly all requests lately."""
    table = table_of(*(Task(f"{A}{number}") for number in range(50)), max_share=0.1)
    for _ in range(30):
        take_one(table, met=True)
    table.add(at(0, tries), 2)
    return table


def test_a_host_that_has_had_its_share_waits_while_another_is_due_soon() -> None:
    table = greedy_table(Task(B + "1"), Task(B + "2"))
    assert take_one(table).url == B + "1"
    assert (found := table.take(0.0)) and found[0].url == B + "2"
    table.rest(busy(table, "b.example"), 0.2)
    table.add(at(0, [Task(B + "3")]), 3)
    assert table.take(0.0) is None, "b.example is due in a moment"
    assert (found := table.take(0.2)) and found[0].url == B + "3"


@pytest.mark.parametrize("due", [0.2, 60.0])
def test_a_host_that_has_had_its_share_goes_on_when_no_other_waits_for_us(due: float) -> None:
    table = greedy_table(Task(B + "1"), *([Task(B + "2")] if due > 1 else []))
    assert take_one(table, due).url == B + "1"  # it has nothing more to ask for, or waits for its own pace
    assert take_one(table).url.startswith(A)


def test_of_few_hosts_each_may_have_more_than_its_share() -> None:
    table = table_of(*(Task(f"{home}{number}") for number in range(10) for home in (A, B)), max_share=0.1)
    assert Counter(urls.host(take_one(table, met=True).url) for _ in range(20)) == {"a.example": 10, "b.example": 10}


def test_a_batch_of_version_0_1_0_tells_how_many_redirects_led_to_a_url() -> None:
    (task,) = from_lines(b"2\t0\t0\thttp://a.example/\t3\t5\n")
    assert task.hops == 3 and not task.came_via(A)
    assert [*from_lines(to_lines([task]))] == [task]


@pytest.mark.parametrize("order", ["bfs", "dfs"])
def test_at_one_depth_a_sitemaps_priority_comes_before_age(order: str) -> None:
    table = table_of(*(Task(f"{A}{tenths}", 1, priority=tenths) for tenths in (7, 3, 5, 1, 9)), order=order)
    assert "".join(url[-1] for url in take_all(table)) == "97531"


def test_redirects_and_priority_of_a_url_survive_a_retry_a_merge_and_a_restart(root: Path) -> None:
    mine = owner_of(root)
    add(mine, Task(A, 2, 0, 0.0, "0123456789ab,cdef01234567", 9))
    taken = mine.take()
    assert taken and taken[0] == Task(A, 2, 0, 0.0, "0123456789ab,cdef01234567", 9)
    add(mine, taken[0]._replace(attempt=1))
    mine._merge(mine.shard_of(Task(A)), set(mine._batches[mine.shard_of(Task(A))].values()))
    assert on_disk(root)[A] == Task(A, 2, 1, 0.0, "0123456789ab,cdef01234567", 9)


def take_one(table: Table, due: float = 0.0, met: bool = False) -> Task:
    """The next task, done at once; its host rests until `due`, and is met if it is to be."""
    taken = table.take(0.0)
    assert taken
    task, host = taken
    if met and not host.met:
        assert table.set_met(host, 0, table.gains)
    table.mark_done([task], kept=True)
    table.rest(host, due)
    return task


def test_a_host_is_not_given_out_again_before_its_time() -> None:
    table = table_of(Task(A + "1"), Task(A + "2"), Task(B))
    assert {urls.host(table.take(0.0)[0].url) for _ in range(2)} == {"a.example", "b.example"}  # type: ignore[index]
    assert table.take(1e9) is None, "both are being asked"
    table.rest(busy(table, "a.example"), 10.0)
    assert table.take(9.9) is None
    assert table.next_due(9.0) == pytest.approx(1.0)
    assert table.take(10.0)[0].url == A + "2"  # type: ignore[index]


def test_a_host_that_ran_empty_keeps_its_time() -> None:
    table = table_of(Task(A + "1"))
    assert table.take(0.0)
    table.rest(busy(table, "a.example"), 10.0)
    assert table.take(5.0) is None
    table.add(at(0, [Task(A + "2")]), 2)
    assert table.take(5.0) is None
    assert table.take(10.0)


def test_a_host_is_given_to_as_many_visitors_as_it_has_lanes() -> None:
    table = table_of(*(Task(f"{A}{number}") for number in range(9)))
    assert table.take(0.0) and not table.take(0.0)
    table.rest(busy(table, "a.example"), 0.0, lanes=3)
    assert [bool(table.take(0.0)) for _ in range(4)] == [True, True, True, False]
    table.rest(busy(table, "a.example"), 0.0, strain=1.0, lanes=1)  # it is strained: the others come home first
    assert table.take(0.0) is None
    table.rest(busy(table, "a.example"), 0.0, lanes=1)
    assert table.take(0.0) is None
    table.rest(busy(table, "a.example"), 0.0, lanes=1)
    assert table.take(0.0) and not table.take(0.0)


def test_a_host_that_has_its_share_is_cut() -> None:
    table = table_of(*(Task(f"{A}{number}") for number in range(5)), Task(B), limits=Limits(max_per_host=2))
    assert sorted(take_all(table)) == [A + "0", A + "1", B]
    assert table.take(10.0) is None
    assert (table.skipped.total(), table.waiting, table.left[1]) == (3, 0, 0)


def test_a_host_that_has_its_share_is_at_rest_for_good() -> None:
    table = table_of(*(Task(f"{A}{number}") for number in range(5)), limits=Limits(max_per_host=2))
    take_all(table)
    assert table.take(10.0) is None
    assert table.count_hosts() == 0
    assert table.next_due(10.0) > 60


def test_a_refused_url_does_not_count_for_the_share_of_its_host() -> None:
    table = table_of(*(Task(f"{A}{number}") for number in range(3)), limits=Limits(max_per_host=1))
    taken = table.take(0.0)
    assert taken and table.take(0.0) is None
    table.mark_done([taken[0]], kept=False)
    table.rest(busy(table, "a.example"), 0.0)
    assert len(take_all(table)) == 1


def test_a_retry_waits_until_it_is_due() -> None:
    table = table_of(Task(A))
    assert table.take(100.0)
    table.add(at(0, [Task(A, 0, 1, 130.0)]), 2)
    table.rest(busy(table, "a.example"), 0.0)
    assert (table.taken, table.waiting, table.left[1], table.left[2]) == (0, 1, 0, 1)
    assert table.take(129.0) is None
    assert table.next_due(129.0) == pytest.approx(1.0)
    assert table.take(130.0)[0] == Task(A, 0, 1)  # type: ignore[index]


def deal_with_nearer(table: Table) -> list[Task]:
    found = []
    while table.nearer:
        task, batch = table.nearer[0]
        found.append(task)
        table.drop_nearer(batch)
    return found


@pytest.mark.parametrize("relax", [True, False])
def test_a_done_page_that_is_found_nearer_is_reported_when_depth_matters(relax: bool) -> None:
    table = table_of(Task(A, 3), relax=relax)
    take_all(table)
    table.add(at(0, [Task(A, 3), Task(A, 2), Task(A, 2), Task(A, 1)]), 2)
    assert table.left[2] == (2 if relax else 0), "the batch stays until its news are dealt with"
    assert [(task.url, task.depth) for task in deal_with_nearer(table)] == ([(A, 2), (A, 1)] if relax else [])
    assert table.left[2] == 0
    table.add(at(0, [Task(A, 1)]), 3)
    assert table.nearer == []


def test_a_page_that_is_found_nearer_while_it_is_in_flight_is_reported_when_it_is_done() -> None:
    table = table_of(Task(A, 3), relax=True)
    taken = table.take(0.0)
    assert taken
    table.add(at(0, [Task(A, 1)]), 2)
    assert table.nearer == []
    table.mark_done([taken[0]], kept=True)
    assert (table.waiting, table.left[1], table.left[2]) == (0, 0, 1)
    assert [(task.url, task.depth) for task in deal_with_nearer(table)] == [(A, 1)]
    assert table.left[2] == 0


def test_a_refused_url_that_is_found_nearer_while_it_is_in_flight_has_no_links_to_hand_over() -> None:
    table = table_of(Task(A, 3), relax=True)
    taken = table.take(0.0)
    assert taken
    table.add(at(0, [Task(A, 1)]), 2)
    table.mark_done([taken[0]], kept=False, links=False)
    assert (table.nearer, table.left[2]) == ([], 0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 30), st.integers(0, 5)), max_size=40))
@example([(A, 1, 1), (A, 1, 0)])
def test_every_url_is_given_out_exactly_once_in_any_order(links: list[tuple[str, int, int]]) -> None:
    tries = [Task(f"{host}{number}", depth) for host, number, depth in links]
    for order in ("bfs", "dfs"):
        given_out = take_all(table_of(*tries, order=order))
        assert sorted(given_out) == sorted({task.url for task in tries})


@pytest.mark.parametrize("most", [1, 48])
def test_a_batch_that_tells_of_a_nearer_page_stays_until_its_links_are_handed_over(root: Path, most: int) -> None:
    mine = owner_of(root, depth=3)
    add(mine, Task(A, 3))
    assert take_all(mine.table, time.monotonic()) == [A]
    for task in (Task(A, 1), Task(A + "2"), Task(A + "3")):
        add(frontier_of(root, "other"), task)
    for shard in (0, 1):
        mine.read_inboxes([shard], fresh=True)
        tidy(mine, shard, most)
    assert [task.depth for task, _ in mine.table.nearer] == [1]
    assert on_disk(root)[A].depth == 1, "nobody has handed its links over yet"
    deal_with_nearer(mine.table)
    for shard in (0, 1):
        tidy(mine, shard, most)
    assert on_disk(root).keys() >= {A + "2", A + "3"}
    assert most == 1 or A not in on_disk(root)


# ---- size


@pytest.mark.fleet  # for time
def test_the_memory_of_a_worker_does_not_grow_with_what_waits() -> None:
    done = subprocess.run([sys.executable, "-c", MANY_URLS], capture_output=True, text=True, check=True)
    waiting, half, peak = map(int, done.stdout.split())
    print(f"{waiting} URLs of 500 hosts: {half} MB for the first half of them, {peak} MB for all")
    assert waiting == 200_000
    assert peak < 100
    assert peak - half < 10, "a million takes little more"
