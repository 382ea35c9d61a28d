"""What becomes of the pages of a worker that died: the one that it was reading is to blame, or else all in flight."""

from __future__ import annotations

import signal
import time
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace

import pytest
from lab.frontiers import on_disk
from lab.workers import small_store

from crawler.crawl import machine as machine_module
from crawler.crawl.handler import Handler
from crawler.crawl.machine import (
    CHANCE_PAUSES,
    FEW_SUSPECTS,
    MAX_BLAME,
    SUSPECT_SECONDS,
    SUSPECTS_SECONDS,
    Machine,
    Plan,
)
from crawler.errors import STOPPED
from crawler.frontier.batches import to_lines
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.store import Store

A = "https://a.example/"
READ, LARGE = f"{A}read", f"{A}large"
KILLED, CRASHED = -signal.SIGKILL, -signal.SIGSEGV


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_store(tmp_path, monkeypatch)


@pytest.fixture
def machine(root: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(machine_module, "oom_kills", lambda: 0)
    return Machine(Plan(root, workers=1, concurrency=128, quiet=True), Settings(shards=2, durable=False))


def die(
    machine: Machine, exitcode: int, in_flight: list[str], inline: str = "", large: str = "", blame: int = 0
) -> None:
    """Let a worker die with these pages in flight, one of them being read on the loop, or as a large one."""
    for slot, url in enumerate(in_flight):
        machine.scoreboard.set_in_flight(0, slot, to_lines([Task(url)]))
    for is_large, url in ((False, inline), (True, large)):
        machine.scoreboard.set_reading(0, is_large, to_lines([Task(url, blame=blame)]) if url else b"")
    machine._processes[0] = SimpleNamespace(exitcode=exitcode)  # type: ignore[assignment]
    machine._on_worker_death(0)
    assert machine.scoreboard.in_flight(0) == [] and machine.scoreboard.reading(0) == []


def failed(root: Path) -> dict[str, str]:
    return {str(failure["url"]): str(failure["reason"]) for failure in Store(root).failures()}


def attempts(root: Path) -> dict[str, int]:
    return {task.url: task.attempt for task in on_disk(root).values()}


PAGES = [f"{A}{number}" for number in range(6)]


def test_the_page_that_was_being_read_at_two_crashes_is_a_failure(root: Path, machine: Machine) -> None:
    die(machine, CRASHED, [*PAGES, READ], inline=READ)
    assert failed(root) == {}
    assert attempts(root) == {READ: 1}, "it may come again; the others wait in the batches of the worker"
    die(machine, CRASHED, [*PAGES, READ], inline=READ)
    assert failed(root) == {READ: "worker-died"}


def test_a_large_page_is_blamed_like_any_other_and_so_is_one_read_beside_it(root: Path, machine: Machine) -> None:
    for _ in range(2):
        die(machine, CRASHED, [*PAGES, READ, LARGE], inline=READ, large=LARGE)
    assert failed(root) == {READ: "worker-died", LARGE: "worker-died"}


def test_running_out_of_memory_is_a_crash(root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = iter(range(1, 9))
    monkeypatch.setattr(machine_module, "oom_kills", lambda: next(kills))
    for _ in range(2):
        die(machine, KILLED, [READ], inline=READ)
    assert failed(root) == {READ: "worker-died"}


def test_a_kill_from_outside_blames_the_page_that_was_being_read_half(root: Path, machine: Machine) -> None:
    for _ in range(3):
        die(machine, KILLED, [*PAGES, READ], inline=READ)
        assert failed(root) == {}
    die(machine, KILLED, [*PAGES, READ], inline=READ)
    assert failed(root) == {READ: "worker-died"}


@pytest.mark.parametrize("exitcode", [KILLED, CRASHED])
def test_a_page_that_is_being_read_clears_those_that_are_merely_in_flight(
    root: Path, machine: Machine, exitcode: int
) -> None:
    die(machine, exitcode, [*PAGES, READ], inline=READ)
    assert attempts(root) == {READ: 1}, "the worker's batches hold the others, with all their attempts"
    assert machine._blamed.keys() == {READ}


def test_pages_that_are_merely_in_flight_are_blamed_half_for_a_kill_and_are_not_failures_after_two(
    root: Path, machine: Machine
) -> None:
    for _ in range(2):
        die(machine, KILLED, PAGES)
    assert failed(root) == {}
    assert set(machine._blamed.values()) == {MAX_BLAME // 2}


def test_pages_that_were_not_read_are_retried_after_growing_pauses_when_workers_are_killed_again_and_again(
    root: Path, machine: Machine
) -> None:
    for pause in CHANCE_PAUSES:
        before = time.monotonic()
        die(machine, KILLED, PAGES[:1])
        due = on_disk(root)[PAGES[0]].due or before  # 0: at once
        assert before + pause - 2 <= due <= time.monotonic() + pause + 2, "to the second, as batches have it"
    die(machine, KILLED, PAGES[:1])
    assert failed(root) == {PAGES[0]: "worker-died"}, "it may be the page after all"


def test_of_many_in_flight_none_is_blamed_for_a_kill(root: Path, machine: Machine) -> None:
    for _ in range(MAX_BLAME + 1):
        die(machine, KILLED, [f"{A}{number}" for number in range(FEW_SUSPECTS + 1)])
    assert not machine._blamed and failed(root) == {} and attempts(root) == {}


def test_of_few_suspects_the_one_of_two_crashes_is_a_failure(root: Path, machine: Machine) -> None:
    for number in range(2):
        die(machine, CRASHED, [PAGES[number], READ])
    assert failed(root) == {READ: "worker-died"}
    assert attempts(root).keys() >= set(PAGES[:2])


def test_of_many_suspects_the_one_of_four_crashes_is_a_failure(root: Path, machine: Machine) -> None:
    for death in range(4):
        assert failed(root) == {}
        die(machine, CRASHED, [*(f"{A}{death}/{number}" for number in range(FEW_SUSPECTS)), READ])
    assert failed(root) == {READ: "worker-died"}


@pytest.mark.parametrize("suspects", [6, 120])
def test_after_a_crash_without_a_reading_page_all_are_suspects_and_come_apart_within_a_minute(
    root: Path, machine: Machine, suspects: int
) -> None:
    pages = [f"{A}{number}" for number in range(suspects)]
    before = time.monotonic()
    die(machine, CRASHED, pages)
    found = on_disk(root)
    after = time.monotonic()
    assert {name: task.attempt for name, task in found.items()} == dict.fromkeys(pages, 1)
    step = min(SUSPECT_SECONDS, SUSPECTS_SECONDS / suspects)
    assert step * suspects <= 60
    for number, url in enumerate(pages):
        due = found[url].due or before  # 0: at once
        assert before + number * step - 2 <= due <= after + number * step + 2, "to the second, as batches have it"


def test_what_dead_workers_had_in_hand_is_all_waiting_after_several_deaths(root: Path, machine: Machine) -> None:
    for number in range(3):
        die(machine, KILLED, [f"{A}{number}"], inline=f"{A}{number}")
    assert attempts(root) == {f"{A}{number}": 1 for number in range(3)}


def test_the_page_that_was_being_read_at_two_hangs_is_a_failure_that_says_so(root: Path, machine: Machine) -> None:
    for _ in range(2):
        assert failed(root) == {}
        machine._hung = {0}
        die(machine, KILLED, [*PAGES, READ], inline=READ)
    (failure,) = Store(root).failures()
    assert (failure["url"], failure["reason"]) == (READ, "worker-died")
    assert failure["detail"] == "the worker made no progress for 26 s"


def test_a_hang_in_which_no_page_was_read_is_like_a_kill_from_outside(root: Path, machine: Machine) -> None:
    machine._hung = {0}
    die(machine, KILLED, PAGES)
    assert set(machine._blamed.values()) == {1}
    die(machine, KILLED, [f"{A}{number}" for number in range(FEW_SUSPECTS + 1)])
    assert set(machine._blamed.values()) == {1} and failed(root) == {}


def test_the_blame_travels_with_the_task_to_the_next_machine(root: Path, machine: Machine) -> None:
    die(machine, CRASHED, [READ], inline=READ)
    (waiting,) = on_disk(root).values()
    assert waiting.blame == 2
    machine._blamed.clear()  # the next one is another machine's
    die(machine, CRASHED, [READ], inline=READ, blame=waiting.blame)
    assert failed(root) == {READ: "worker-died"}


def test_a_worker_that_does_not_end_when_it_is_told_to_is_killed_and_no_page_is_blamed(
    root: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = SimpleNamespace(exitcode=None, kill=lambda: setattr(process, "exitcode", KILLED))
    machine._processes[0] = process  # type: ignore[assignment]
    machine.scoreboard.set_in_flight(0, 0, to_lines([Task(A)]))
    machine._watchdog.begin(0)
    working: Future[str] = Future()
    machine._work[working] = 0
    monkeypatch.setattr(machine._watchdog, "overdue", lambda rows, settings: [*rows])
    monkeypatch.setattr(machine, "_close", lambda row: None)
    for _ in range(2):
        machine._watch()
    assert process.exitcode == KILLED and caplog.text.count("killing it (1 open request)") == 1
    working.set_exception(BrokenProcessPool())
    machine._watch()
    assert not machine._work and machine._exit_code() == STOPPED
    assert not machine._blamed and attempts(root) == {}, "the worker's batches hold all of them"


def test_a_user_s_function_is_waited_for_also_while_a_machine_stops(root: Path) -> None:
    plan = Plan(root, workers=1, concurrency=1, quiet=True, handler=Handler("os", "getpid"))
    Machine(plan, Settings(shards=2, durable=False))._kill_late(0)
