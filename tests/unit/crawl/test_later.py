"""Retries that are due in hours: a run ends and leaves them in the frontier, unless it is to wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import simulation
from lab.frontiers import on_disk
from lab.workers import SimulatedSetup, making, page, small_store

from crawler.crawl.worker import upkeep
from crawler.fleet.heartbeats import Heartbeat
from crawler.frontier.batches import BatchFiles
from crawler.frontier.task import Task, shard_of
from crawler.web.page import Failure, Fetched

A, B = "https://a.example/", "https://b.example/"
HOUR = 3600.0

Simulate = Callable[..., SimulatedSetup]


@pytest.fixture
def simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulate]:
    root = small_store(tmp_path, monkeypatch)
    monkeypatch.setattr(upkeep, "ROUND_INTERVAL", 5.0)  # hours pass
    monkeypatch.setattr(upkeep, "IDLE_ROUND_INTERVAL", 5.0)
    monkeypatch.setattr(simulation, "POLL_INTERVAL", 5.0)
    with making(SimulatedSetup, root) as make:
        yield lambda *get, **given: make(*get, robots=False, **given)


def hand_in(mine: SimulatedSetup, *tasks: Task) -> None:
    batches = BatchFiles(mine.store.files, clock=mine.simulation.clock)
    batches.write([(shard_of(task, mine.settings.shards, "host"), [task]) for task in tasks])


async def busy(url: str, **_: Any) -> Failure:
    return Failure(url, "http-503", retry_after=3 * HOUR)


def test_a_run_ends_when_nothing_is_due_within_the_hour_and_leaves_all_of_it(simulated: Simulate) -> None:
    mine = simulated(busy)
    hand_in(mine, Task(A), Task(f"{A}other"))
    assert mine.run() == "later"
    assert mine.simulation.loop.now - 1000 < 100, "it has waited for nothing"
    assert on_disk(mine.root).keys() == {A, f"{A}other"}
    (last,) = (mine.root / "workers").glob("*.end")
    assert '"next_due"' in last.read_text()


def test_a_run_waits_for_what_is_due_within_the_hour(simulated: Simulate) -> None:
    asked: list[float] = []

    async def get(url: str, **_: Any) -> Fetched:
        asked.append(mine.simulation.loop.now)
        return page(url)

    mine = simulated(get)
    hand_in(mine, Task(A, attempt=1, due=mine.simulation.loop.now + HOUR - 300))
    assert mine.run() == "over"
    assert len(asked) == 1 and not on_disk(mine.root)


def test_a_run_for_ever_waits_for_a_retry_in_hours_and_for_what_is_added(simulated: Simulate) -> None:
    asked: list[tuple[str, float]] = []

    async def get(url: str, **_: Any) -> Fetched:
        asked.append((url, mine.simulation.loop.now))
        if url == A:
            hand_in(mine, Task(B, attempt=1, due=mine.simulation.loop.now + HOUR))
        else:
            mine.simulation.loop.call_later(HOUR, mine.scoreboard.drain)  # an hour with nothing to do
        return page(url)

    mine = simulated(get, heartbeat=60.0, dead_after=600.0)
    mine.worker.upkeep.forever = True
    hand_in(mine, Task(A, attempt=1, due=mine.simulation.loop.now + 2 * HOUR))
    assert mine.run() == "stopped"
    assert [url for url, _ in asked] == [A, B]
    assert asked[0][1] >= 1000 + 2 * HOUR
    assert mine.simulation.loop.now >= 1000 + 4 * HOUR


def test_a_host_that_must_rest_for_hours_rests_after_the_next_start_too(simulated: Simulate) -> None:
    mine = simulated(busy)
    hand_in(mine, Task(A), Task(f"{A}other"))
    mine.run()
    lines = [line for path in (mine.root / "frontier").glob("*/[!.]*") for line in path.read_text().splitlines()]
    assert len(lines) == 2 and all("+10" in line.split("\t")[2] for line in lines), lines


@pytest.mark.parametrize("mark", ["7", "7.all-2", "7.later", "7.later.all-2"])
def test_a_worker_that_has_only_far_off_urls_is_idle(mark: str) -> None:
    assert Heartbeat.of(f"id@000003.{mark}") == Heartbeat("id", 3, mark)
    assert Heartbeat("id", 3, mark).idle
