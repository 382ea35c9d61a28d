"""The page budgets of several machines on one folder: together they never bring more pages than wanted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from random import Random

import pytest

from crawler.crawl.page_budget import PageBudget
from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.worker.limit import PageLimit
from crawler.fleet.budgets import Budget
from crawler.settings.settings import LiveSettings, Settings
from crawler.store.clock import Clock
from crawler.store.mount import Files

LIMIT = 400


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = Clock(monotonic=lambda: self.now)


class Interrupted(Files):
    """Files where something happens before each listing."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def names(self, folder: str) -> list[str]:
        self.before()
        return super().names(folder)


class Machine:
    """A machine of two workers that bring pages whenever they may."""

    def __init__(self, root: Path, name: str, time: Time, **given: object) -> None:
        settings = Settings(**{"max_pages": LIMIT, "dead_after": 30.0, "heartbeat": 2.0, **given})  # type: ignore[arg-type]
        self.live = LiveSettings(settings)
        self.root, self.name = root, name
        self.files = Interrupted(root, name, durable=False)
        self.scoreboard = Scoreboard(get_context("spawn"), 2, 4)
        self.budget = PageBudget(self.files, name, self.scoreboard, lambda: self.live.now, time.clock)
        self.limits = [PageLimit(self.live, self.scoreboard, row, time.clock) for row in range(2)]
        self.taken = [0, 0]

    def has(self, waiting: int) -> Machine:
        """So many URLs wait here."""
        self.scoreboard.set(0, "waiting", waiting)
        return self

    def take(self, row: int = 0) -> bool:
        """Take a task if that may be."""
        if self.limits[row].is_near(self.taken[row]):
            self.limits[row].show(self.taken[row])
            return False
        self.taken[row] += 1
        return True

    def finish(self, row: int = 0, is_page: bool = True) -> None:
        """What was taken becomes a page, or not."""
        self.taken[row] -= 1
        self.scoreboard.set(row, "pages", self.scoreboard.get(row, "pages") + is_page)
        self.limits[row].show(self.taken[row])

    @property
    def pages(self) -> int:
        return self.scoreboard.total("pages")

    def end(self) -> None:
        """Its workers leave their last counters, and the machine takes its budget with it."""
        (self.root / "workers" / f"{self.name}w@000009.end").write_text(
            f'{{"machine": "{self.name}", "pages": {self.pages}}}'
        )
        for path in (self.root / "workers").glob(f"{self.name}.budget-*"):
            path.unlink()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "workers").mkdir()
    return tmp_path


@pytest.mark.parametrize("machines", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_machines_bring_exactly_the_limit_in_whatever_order_they_look_and_work(
    root: Path, machines: int, seed: int
) -> None:
    random, time = Random(seed), Time()
    crew = [Machine(root, f"m{number}", time).has(1000) for number in range(machines)]
    depth = 0

    def step() -> None:
        """One of them does something, also while another is in the middle of its look."""
        nonlocal depth
        if depth > 2:
            return
        depth += 1
        one, row = random.choice(crew), random.randrange(2)
        for _ in range(random.choice((1, 1, 40))):
            one.take(row)
        while one.taken[row] and random.random() < 0.9:
            one.finish(row, is_page=random.random() < 0.8)
        if depth == 1 or random.random() < 0.3:
            one.budget.look()
        assert sum(it.pages + sum(it.taken) for it in crew) <= LIMIT
        depth -= 1

    for machine in crew:
        machine.files.before = step  # type: ignore[method-assign]
    for _ in range(3000):
        time.now += random.random()
        step()
        if all(machine.scoreboard.is_limit_reached for machine in crew):
            break
    assert sum(machine.pages for machine in crew) == LIMIT
    assert all(machine.scoreboard.is_limit_reached for machine in crew)


@pytest.mark.parametrize("at_once", [1, 10])
def test_pages_that_a_worker_just_counts_while_they_are_still_in_flight_make_no_budget_larger(
    root: Path, at_once: int
) -> None:
    time = Time()
    crew = [Machine(root, name, time).has(1000) for name in ("one", "two")]
    for _ in range(300):
        time.now += 0.3
        for machine in crew:
            for _ in range(at_once):
                machine.take()
            # A group was written: its pages are counted, and the worker has not yet said that they are not in flight.
            machine.scoreboard.set(0, "pages", machine.pages + machine.taken[0])
            machine.taken[0] = 0
            machine.budget.look()
            machine.limits[0].show(0)
    assert sum(machine.pages for machine in crew) == LIMIT


def test_pages_of_machines_that_have_ended_count(root: Path) -> None:
    time = Time()
    first = Machine(root, "first", time).has(1000)
    first.budget.look()
    for _ in range(300):
        assert first.take()
        first.finish()
    first.end()
    second = Machine(root, "second", time).has(1000)
    second.budget.look()
    assert sum(second.take() for _ in range(1000)) == 100


def test_the_budget_of_a_machine_that_died_is_free_after_dead_after(root: Path) -> None:
    time = Time()
    dead, heir = (Machine(root, name, time).has(1000) for name in ("dead", "heir"))
    dead.budget.look()
    (root / "workers" / "w@000003").write_text('{"machine": "dead", "pages": 70}')
    heir.budget.look()
    assert not heir.take(), "the other has reserved all of it"
    for _ in range(16):
        time.now += 2.0
        heir.budget.look()
    assert sum(heir.take() for _ in range(1000)) == LIMIT - 70
    assert not dead.take(), "if it was only asleep, it takes nothing before it has looked"


def test_a_machine_without_anything_to_do_reserves_nothing(root: Path) -> None:
    time = Time()
    idle, busy = Machine(root, "idle", time), Machine(root, "busy", time).has(1000)
    for _ in range(24):
        for machine in (idle, busy):
            machine.budget.look()
        while busy.take():
            busy.finish()
    assert busy.pages == LIMIT and busy.scoreboard.is_limit_reached


def test_a_limit_that_is_set_or_removed_later_counts_at_once(root: Path) -> None:
    time = Time()
    mine = Machine(root, "mine", time, max_pages=None).has(1000)
    mine.budget.look()
    assert mine.take() and not list((root / "workers").iterdir())
    mine.finish()
    mine.live.now = replace(mine.live.now, max_pages=3)
    assert not mine.take(), "nothing is reserved yet"
    mine.budget.look()
    assert [mine.take() for _ in range(3)] == [True, True, False]
    mine.live.now = replace(mine.live.now, max_pages=None)
    mine.budget.look()
    assert mine.take() and not list((root / "workers").iterdir())


def test_a_name_tells_the_budget(root: Path) -> None:
    budget = Budget("abc", 7, 400, 12)
    assert Budget.of(budget.name.removeprefix("workers/")) == budget
    assert Budget.of("abc.machine") is None and Budget.of("abc.budget-1-2") is None
