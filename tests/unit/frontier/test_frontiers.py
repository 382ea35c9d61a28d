"""Several frontiers on one folder: shards move, owners die and wake again, and no URL is ever without a file."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lab.frontiers import Stale, frontier_with
from lab.loops import Blocking, inline
from lab.world import InSmallLots

from crawler.errors import StoreAway
from crawler.frontier import frontier as frontier_module
from crawler.frontier.batches import BatchFiles, from_lines
from crawler.frontier.frontier import Frontier
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter

SHARDS = 4
PAGES = [f"https://a.example/{number}" for number in range(10)]
SETTINGS = Settings(shards=SHARDS, spread="url")


class Sleepy(Files):
    """A worker that may fall asleep in the middle of tidying: what it was about to remove, it removes when it wakes."""

    asleep = False

    def drop(self, name: str) -> bool:
        if not self.asleep:
            return super().drop(name)
        self.dreams = [*getattr(self, "dreams", []), name]
        return True

    def wake(self) -> None:
        self.asleep = False
        for name in getattr(self, "dreams", []):
            self.drop(name)


def worker(root: Path, me: str) -> Any:
    """A frontier whose coroutines are called like functions."""
    return frontier_with(Sleepy(root, me, durable=False), SETTINGS)


def files_of(frontier: Any) -> Sleepy:
    files = frontier._batch_files.files
    assert isinstance(files, Sleepy)
    return files


class Crew(RuleBasedStateMachine):
    """Three workers at a time, one owner for each shard, and former owners that do not know that they are buried."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        StoreWriter(self.root, Files(self.root, "maker", durable=False)).make(SETTINGS)
        self.born = 0
        self.crew = [self.recruit() for _ in range(3)]
        self.marked_dead: list[Any] = []
        self.model: set[str] = set()  # handed over and not done
        self.done: set[str] = set()
        for shard in range(SHARDS):
            self.crew[shard % 3].own([shard])

    def recruit(self) -> Any:
        self.born += 1
        return worker(self.root, f"worker{self.born}")

    def teardown(self) -> None:
        self.free = set(range(SHARDS)) - set().union(*(worker.owned for worker in self.crew))
        self.crew[0].own(self.free, inherited=self.free)
        for _ in range(4):
            for worker in self.crew:
                self.look(worker)
                read_all(worker)
        for worker in self.crew:
            for shard in list(worker.owned):
                tidy(worker, shard, 1)
        found = {task.url for worker in self.crew for _, _, task in worker.table.of_shards(worker.owned)}
        assert self.model <= found, "everything is in the end in the table of its owner"
        self.folder.cleanup()

    def look(self, worker: Any) -> None:
        for shard in list(worker.owned):
            worker.read_inboxes([shard], fresh=True)
        worker.flush()

    @rule(number=st.integers(0, 2), url=st.sampled_from(PAGES), depth=st.integers(0, 2))
    def hand_over(self, number: int, url: str, depth: int) -> None:
        worker = self.crew[number]
        if url not in self.done:
            self.model.add(url)
        worker.recent.clear()
        worker.hand_over([Task(url, depth)])
        worker.flush()

    @rule(number=st.integers(0, 2))
    def look_into_the_inbox(self, number: int) -> None:
        self.look(self.crew[number])

    @rule(number=st.integers(0, 2))
    def learn_who_owns_what(self, number: int) -> None:
        self.crew[number].inboxes = {shard: min(w.owned) for w in self.crew for shard in w.owned}

    @rule(number=st.integers(0, 2), how=st.sampled_from(["done", "retry", "put back"]))
    def visit(self, number: int, how: str) -> None:
        worker = self.crew[number]
        taken = worker.table.take(1e9)
        if taken is None:
            return
        task, host = taken
        worker.table.rest(host, 0.0)
        if how == "done":
            worker.table.mark_done([task], kept=True)
            self.model.discard(task.url)
            self.done.add(task.url)
        elif how == "retry":
            worker.hand_over([Task(task.url, task.depth, task.attempt + 1, 1.0)])
            worker.flush()
        else:
            worker.table.put_back(task)

    @rule(number=st.integers(0, 2), most=st.sampled_from([1, 48]))
    def tidy(self, number: int, most: int) -> None:
        for shard in list(self.crew[number].owned):
            tidy(self.crew[number], shard, most)

    @rule(number=st.integers(0, 2), to=st.integers(0, 2), count=st.integers(1, 2))
    def give_back_and_gain(self, number: int, to: int, count: int) -> None:
        giver = self.crew[number]
        shards = sorted(giver.owned)[:count] if to > number else sorted(giver.owned)[-count:]
        giver.hold(shards)
        giver.flush()
        giver.disown(shards)
        self.crew[to].own(shards)

    @rule(number=st.integers(0, 2), to=st.integers(0, 2))
    def lose_a_shard_to_another(self, number: int, to: int) -> None:
        loser = self.crew[number]
        for shard in [] if number == to else sorted(loser.owned)[:1]:
            self.crew[to].own([shard], inherited=[shard])
            loser.hold([shard])
            loser.flush()
            loser.disown([shard], lost=[shard])

    @rule(number=st.integers(0, 2), asleep=st.booleans())
    def die(self, number: int, asleep: bool) -> None:
        dead = self.crew.pop(number)
        if asleep:
            files_of(dead).asleep = True
            for shard in dead.owned:
                tidy(dead, shard, 1)
            dead.is_sure = lambda: False  # it may wake in the middle of removing, but asks before it removes more
            self.marked_dead.append(dead)
        shards = sorted(dead.owned)
        self.crew.append(self.recruit())
        self.crew[0].own(shards[::2], inherited=shards[::2])
        self.crew[2].own(shards[1::2], inherited=shards[1::2])

    @precondition(lambda self: self.marked_dead)
    @rule(goes_on=st.booleans())
    def wake(self, goes_on: bool) -> None:
        zombie = self.marked_dead.pop()
        files_of(zombie).wake()
        if goes_on:  # until it finds out at its next beat
            self.look(zombie)
            for shard in zombie.owned:
                tidy(zombie, shard, 1)

    @invariant()
    def every_url_that_is_not_done_is_in_a_file(self) -> None:
        files = self.root.glob("frontier/*/*-*")
        found = {task.url for path in files for task in from_lines(path.read_bytes())}
        assert self.model <= found, self.model - found


def read_all(worker: Any) -> None:
    while worker.unread:
        worker.read_on()


def tidy(worker: Any, shard: int, most: int) -> None:
    """Tidy a shard in which more than so many batches are many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frontier_module, "MAX_SMALL", most)
        worker.tidy(shard)


# To shrink a failing history takes minutes: it is shown as it was found.
FIND = (Phase.explicit, Phase.reuse, Phase.generate)
Crew.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, phases=FIND)
TestNothingIsLostBetweenWorkers = Crew.TestCase


class CrewInSmallLots(InSmallLots, Crew):
    """The same where four lines are more than is read, or written anew, at a time."""

    @rule(number=st.integers(0, 2))
    def read_on(self, number: int) -> None:
        self.crew[number].read_on()


CrewInSmallLots.TestCase.settings = Crew.TestCase.settings
TestNothingIsLostBetweenWorkersInSmallLots = CrewInSmallLots.TestCase


# ---- the same, one danger at a time


@pytest.fixture
def root(tmp_path: Path) -> Path:
    StoreWriter(tmp_path, Files(tmp_path, "maker", durable=False)).make(SETTINGS)
    return tmp_path


def on_disk(root: Path) -> dict[str, set[int]]:
    """Each URL that is in a file, and in the folders of which shards."""
    found: dict[str, set[int]] = {}
    for path in root.glob("frontier/*/*-*"):
        for task in from_lines(path.read_bytes()):
            found.setdefault(task.url, set()).add(int(path.parent.name))
    return found


def handed_over(owner: Any) -> Any:
    for page in PAGES:
        owner.hand_over([Task(page)])
        owner.flush()
    return owner


def test_an_owner_that_sleeps_while_it_tidies_does_not_remove_the_last_copy_when_it_wakes(root: Path) -> None:
    old = worker(root, "old")
    old.own(range(SHARDS))
    handed_over(old)
    files_of(old).asleep = True
    tidy(old, 0, most=1)
    new = worker(root, "new")
    new.own(range(SHARDS), inherited=range(SHARDS))
    for shard in range(SHARDS):
        new.tidy(shard)
    files_of(old).wake()
    assert on_disk(root).keys() == set(PAGES), "and `new` may die before it could write anything again"


def test_an_owner_that_cannot_be_sure_removes_nothing_that_its_heir_counts_on(root: Path) -> None:
    old = worker(root, "old")
    old.own(range(SHARDS))
    handed_over(old)
    new = worker(root, "new")
    new.own(range(SHARDS), inherited=range(SHARDS))
    for shard in range(SHARDS):
        new.tidy(shard)
    assert {path.name.partition("-")[0] for path in root.glob("frontier/*/*-*")} == {"new"}
    old.is_sure = lambda: False  # it was too slow, and does not know yet that it was buried
    old.read_inboxes(range(SHARDS), fresh=True)
    for shard in range(SHARDS):
        old.tidy(shard)
    old.disown(range(SHARDS))
    heirs_own = {task.url for path in root.glob("frontier/*/new-*") for task in from_lines(path.read_bytes())}
    assert heirs_own == set(PAGES)


def test_nothing_is_removed_before_all_that_was_inherited_is_written_anew(root: Path) -> None:
    old = worker(root, "old")
    old.own([0, 1])
    handed_over(old)
    old.hold([1])
    old.disown([1])  # what waits in 1 is in both folders now
    files_of(old).asleep = True
    old.tidy(0)
    new = worker(root, "new")
    new.own([0, 1], inherited=[0])
    new.tidy(1)
    files_of(old).wake()
    own = {page for page in PAGES if new.shard_of(Task(page)) in (0, 1)}
    assert own <= on_disk(root).keys(), "and `new` may die before it tidies 0"


def test_what_is_in_the_folder_of_a_dead_worker_but_not_for_its_heir_is_handed_on(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = worker(root, "dead")
    dead.own([0, 1])
    handed_over(dead)
    heirs = worker(root, "first"), worker(root, "second")
    heirs[0].own([0], inherited=[0])
    heirs[1].own([1], inherited=[1])
    assert heirs[0].queued
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", lambda *_, **__: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            heirs[0].tidy(0)
    assert on_disk(root).keys() == set(PAGES)
    heirs[0].tidy(0)
    heirs[1].read_inboxes([1], fresh=True)
    for number, heir in enumerate(heirs):
        own = {page for page in PAGES if heir.shard_of(Task(page)) == number}
        assert {task.url for _, _, task in heir.table.of_shards([number])} == own
        assert {page for page, shards in on_disk(root).items() if shards == {number}} == own
    assert not any(heir.queued for heir in heirs)


def passed_through(root: Path, home: int) -> None:
    """URLs of all shards come to the folder of one: its owner was another's a moment ago."""
    giver = worker(root, "giver")
    giver.inboxes = dict.fromkeys(range(SHARDS), home)
    handed_over(giver)


def test_what_is_not_for_the_heir_of_a_shard_does_not_hold_up_all_else_that_it_does(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heir, listed = worker(root, "heir"), []
    heir.own([0, 1], inherited=[0, 1])
    passed_through(root, 0)  # it comes while what the dead worker left is rewritten
    names = BatchFiles.names
    monkeypatch.setattr(BatchFiles, "names", lambda *given: listed.append(given[1]) or names(*given))
    assert heir.tidy(0)
    assert len(listed) <= 6, "not once for each line that it may write"
    assert on_disk(root).keys() == set(PAGES) and not heir.queued


def test_on_a_slow_mount_what_was_inherited_is_written_anew_a_second_at_a_time(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, names = [0.0], BatchFiles.names

    def slow(*given: Any) -> set[str]:
        now[0] += 0.6
        return names(*given)

    handed_over(worker(root, "giver"))
    monkeypatch.setattr(BatchFiles, "names", slow)
    files = Sleepy(root, "heir", durable=False)
    heir: Any = Blocking(Frontier(BatchFiles(files), SETTINGS, Clock(lambda: now[0]), inline))
    heir.own(range(SHARDS), inherited=range(SHARDS))
    began, steps = now[0], 1
    while not heir.tidy(0):
        assert now[0] - began <= frontier_module.LONGEST_STEP + 0.6, "then the worker flushes, say"
        began, steps = now[0], steps + 1
    assert steps > 2
    assert {task.url for path in root.glob("frontier/*/heir-*") for task in from_lines(path.read_bytes())} == set(PAGES)


def test_what_only_passes_through_is_news_too(root: Path) -> None:
    first, giver = worker(root, "first"), worker(root, "giver")
    first.own([0])
    before = first.table.arrivals
    giver.inboxes = dict.fromkeys(range(SHARDS), 0)  # as they were a moment ago
    handed_over(giver)
    first.read_inboxes([0], fresh=True)
    first.flush()
    misrouted = sum(first.shard_of(Task(page)) != 0 for page in PAGES)
    assert first.table.arrivals - before == len(PAGES) > misrouted > 0, (
        "else all could seem idle while it hands them on"
    )


def test_who_reads_a_new_batch_knows_the_seeds_that_came_before_it(root: Path) -> None:
    operator = StoreWriter(root, Files(root, "operator", durable=False))
    files = Stale(root, "mine")
    seeds = Seeds(StoreWriter(root, files), Settings(shards=SHARDS, scope="host"))
    refresh = partial(inline, seeds.refresh)
    mine: Any = Blocking(Frontier(BatchFiles(files), SETTINGS, SYSTEM, inline, before_reading=refresh))
    mine.own(range(SHARDS))
    for host in ("b", "c"):
        operator.add_seeds([f"https://{host}.example/"], host)
        handed_over(worker(root, f"other-{host}"))
        for shard in range(SHARDS):
            mine.read_inboxes([shard], fresh=True)
        assert seeds.scope.admits(f"https://{host}.example/1"), "or what its pages link to is lost"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("shard", [0, 1])
def test_what_a_worker_keeps_and_what_it_gives_back_are_both_where_their_owner_looks(
    root: Path, shard: int, lost: bool
) -> None:
    mine = worker(root, "mine")
    mine.own([0, 1])
    handed_over(mine)
    assert {number for page in PAGES for number in on_disk(root)[page] if mine.shard_of(Task(page)) < 2} == {0}
    mine.hold([shard])
    mine.disown([shard], lost=[shard] if lost else [])
    for page in PAGES:
        own = mine.shard_of(Task(page))
        assert own in on_disk(root)[page], f"{page} of shard {own}"
    for kept in mine.owned:
        mine.tidy(kept)
        mine.read_inboxes([kept], fresh=True)
    assert {task.url for _, _, task in mine.table.of_shards([0, 1])} == {
        page for page in PAGES if mine.shard_of(Task(page)) == 1 - shard
    }
    assert on_disk(root).keys() == set(PAGES)
