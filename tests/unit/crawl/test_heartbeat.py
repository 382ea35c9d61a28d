"""A worker's heartbeat goes on while its loop is busy, and says idle only if the loop does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import add, frontier_of
from lab.loops import run
from lab.workers import Setup, making, page, small_store

from crawler.crawl.worker import heartbeat as heartbeat_module
from crawler.fleet.heartbeats import Heartbeat, newest_in, read_counters
from crawler.frontier.task import Task
from crawler.web import markup
from crawler.web.page import Fetched

Make = Callable[..., Setup]
A = "https://a.example/"
LONG = 60.0  # seconds after which a test gives up


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_store(tmp_path, monkeypatch)


@pytest.fixture
def setup(root: Path) -> Iterator[Make]:
    """Make a worker that has shown its first heartbeat; the test calls its steps."""
    with making(Setup, root) as make:

        def begin(*get: Any, **given: Any) -> Setup:
            mine = make(*get, **given)
            mine.beat()
            return mine

        yield begin


async def get(url: str, **_: Any) -> Fetched:
    return page(url)


def shown(mine: Setup) -> Heartbeat:
    return newest_in(mine.store.files)["worker"]


def test_heartbeats_are_shown_while_the_loop_is_blocked_by_a_page(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "ASK_SECONDS", 0.05)
    add(frontier_of(root, "other"), Task(A))
    mine = setup(get, robots=False, heartbeat=0.05)
    read, seen, counted = markup.read, [], []

    def read_long(*args: Any) -> Any:
        before = shown(mine).beat
        for beat in (before + 1, before + 2, before + 3):
            limit = time.monotonic() + LONG
            while shown(mine).beat < beat:
                assert time.monotonic() < limit, "no heartbeat"
                time.sleep(0.005)
            seen.append(shown(mine).mark)
            counted.extend(found["pages"] for found in read_counters(mine.store.files))
        return read(*args)

    monkeypatch.setattr(markup, "read", read_long)
    run(mine.worker.run())
    assert mine.ending.outcome == "over"
    assert seen == ["", "", ""], "it is busy"
    assert set(counted) == {0}, "with the last counters"
    assert mine.scoreboard.get(0, "pages") == 1


def test_a_worker_is_idle_by_the_word_of_its_loop_alone(setup: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat_module, "ASK_SECONDS", 0.05)
    mine = setup()
    heartbeat = mine.worker.heartbeat
    reports: list[tuple[dict[str, Any], str]] = []

    async def ask() -> None:
        await mine.worker.upkeep._poll()
        heartbeat._loop = asyncio.get_running_loop()
        reports.append(await asyncio.to_thread(heartbeat._ask_loop))
        mine.worker.counters.add("pages", 5)
        asking = threading.Thread(target=lambda: reports.append(heartbeat._ask_loop()))
        asking.start()
        asking.join()  # the loop is blocked until then
        assert mine.worker.upkeep.report()[1], "it would have said so"
        await asyncio.sleep(0)  # what it was asked for comes too late

    run(ask())
    (first, idle), (second, busy) = reports
    assert idle and not busy
    assert second == first and second["pages"] == 0


def test_a_heartbeat_after_the_end_of_the_loop_is_a_busy_one(setup: Make) -> None:
    mine = setup()
    heartbeat = mine.worker.heartbeat

    async def begin() -> None:
        await mine.worker.upkeep._poll()
        heartbeat._loop = asyncio.get_running_loop()
        heartbeat._last = mine.worker.upkeep.report()
        assert heartbeat._last[1], "it was idle"

    run(begin())
    assert heartbeat._ask_loop() == (heartbeat._last[0], "")


def test_a_fault_of_the_report_is_logged_and_not_taken_for_a_busy_loop(
    setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup()
    heartbeat = mine.worker.heartbeat

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    async def ask() -> None:
        heartbeat._loop = asyncio.get_running_loop()
        monkeypatch.setattr(mine.worker.upkeep, "report", fail)
        with pytest.raises(ValueError, match="a bug"):
            await asyncio.to_thread(heartbeat._ask_loop)

    run(ask())


def test_a_worker_that_was_marked_dead_ends_and_leaves_its_shards_alone(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup(get, robots=False, heartbeat=0.05)
    beat, beats = mine.shards.beat, []

    def be_marked(counters: dict[str, Any], mark: str) -> bool:
        beats.append(mark)
        (root / mine.shards.heartbeat.name).rename(root / Heartbeat("worker", mine.shards.heartbeat.beat, "end").name)
        return beat(counters, mark)

    async def work() -> None:
        assert await mine.worker.upkeep.begin()
        await mine.worker.upkeep._poll()
        monkeypatch.setattr(mine.shards, "beat", be_marked)
        mine.worker.heartbeat.start()
        await mine.worker.upkeep.run()
        mine.ending.closed = True
        await mine.worker.heartbeat.wait(LONG)

    run(work())
    assert mine.ending.outcome == "marked dead" and beats
    assert sorted(path.name for path in (root / "shards").iterdir()) == ["000@worker", "001@worker"]


def test_a_worker_that_was_marked_dead_shows_no_more_heartbeats_however_long_it_takes_to_end(
    setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, beats = setup(heartbeat=0.01), []
    monkeypatch.setattr(mine.shards, "beat", lambda *given: beats.append(given))

    async def work() -> None:
        mine.worker.heartbeat.start()
        await mine.worker.heartbeat.wait(LONG)

    run(work())
    assert mine.ending.outcome == "marked dead" and len(beats) == 1
