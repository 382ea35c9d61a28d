"""Who hangs and who does not, by the signs of progress on the scoreboard and the supervisor's own clock."""

from __future__ import annotations

from importlib.resources import files
from multiprocessing import get_context

import pytest

from crawler.crawl.scoreboard import TICKS, Scoreboard
from crawler.crawl.watchdog import HANDED_BACK, LARGE_PART, Watchdog, longest_silence, longest_stop
from crawler.settings.settings import Settings
from crawler.store.clock import Clock


class Watched:
    """Two workers, and a supervisor that looks five times a second."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.board = Scoreboard(get_context("spawn"), 2, 4)
        self.watchdog = Watchdog(self.board, 10.0, Clock(lambda: self.now))
        for row in (0, 1):
            self.watchdog.begin(row)

    def late(self) -> list[int]:
        """Who has not ended in time: 50 s here, and a second for each so many tasks."""
        return self.watchdog.overdue([0, 1], Settings(timeout=10.0, dead_after=20.0))

    def pass_time(self, seconds: float, *ticking: int, step: float = 0.2) -> set[int]:
        """Who was seen to hang meanwhile."""
        found: set[int] = set()
        for _ in range(round(seconds / step)):
            self.now += step
            for row in ticking:
                self.board.tick(row)
            found.update(self.watchdog.look({0, 1}))
        return found


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_worker_whose_loop_stops_hangs_and_the_other_does_not(watched: Watched) -> None:
    assert not watched.pass_time(60, 0, 1)
    assert not watched.pass_time(9.5, 0)
    assert watched.pass_time(2, 0) == {1}


def test_a_worker_that_is_about_to_start_has_all_the_time_it_needs(watched: Watched) -> None:
    assert not watched.pass_time(100, 0)


def test_one_that_does_not_even_start_hangs_when_the_machine_is_to_stop(watched: Watched) -> None:
    watched.pass_time(100, 0)
    watched.board.drain()
    assert watched.pass_time(12, 0) == {1}


def test_a_worker_that_replaces_another_is_watched_from_its_own_first_sign(watched: Watched) -> None:
    watched.pass_time(5, 0, 1)
    watched.pass_time(9, 0)
    watched.watchdog.begin(1)
    assert not watched.pass_time(100, 0)
    assert not watched.pass_time(5, 0, 1)
    assert watched.pass_time(12, 0) == {1}


def test_time_in_which_the_supervisor_was_suspended_too_counts_a_second(watched: Watched) -> None:
    watched.pass_time(5, 0, 1)
    watched.now += 3600
    assert not watched.watchdog.look({0, 1})
    assert not watched.pass_time(5, 0, 1)


def test_a_supervisor_that_is_starved_of_cpu_is_patient(watched: Watched) -> None:
    watched.pass_time(5, 0, 1)
    assert not watched.pass_time(45, 0, step=5), "nine looks, of which each counts a second"


def test_a_large_page_hangs_its_thread_while_the_loop_goes_on(watched: Watched) -> None:
    watched.pass_time(1, 0, 1)
    watched.board.set_reading(0, True, b"a task", LARGE_PART // 2)
    assert not watched.pass_time(9.5, 0, 1)
    assert watched.pass_time(2, 0, 1) == {0}
    watched.board.clear_tasks(0)
    assert not watched.pass_time(20, 0, 1)


def test_a_larger_page_has_more_time(watched: Watched) -> None:
    watched.pass_time(1, 0, 1)
    watched.board.set_reading(0, True, b"a task", 9 * LARGE_PART)
    assert not watched.pass_time(95, 0, 1)
    assert watched.pass_time(10, 0, 1) == {0}


def test_large_pages_one_after_the_other_are_progress(watched: Watched) -> None:
    for _ in range(5):
        watched.board.set_reading(0, True, b"the same task", 9)
        assert not watched.pass_time(9, 0, 1)
        watched.board.set_reading(0, True, b"")


def test_a_hang_is_dealt_with_before_other_machines_may_take_over() -> None:
    for settings in (Settings(), Settings(heartbeat=0.5, dead_after=2.0)):
        assert 0 < longest_silence(settings) <= settings.dead_after - 2 * settings.heartbeat


def test_the_manual_says_how_long_a_stop_takes() -> None:
    said = f"({longest_stop(Settings(), 0):.0f} seconds) and a second for each {HANDED_BACK:,} tasks"
    assert said in " ".join(files("crawler.manual").joinpath("design.md").read_text().split())


def test_a_tick_is_the_counter_of_that_name(watched: Watched) -> None:
    watched.board.tick(1)
    assert watched.board.get(1, "ticks") == 1 and watched.board._numbers[TICKS] == 0


def test_workers_that_are_told_to_end_have_the_time_of_a_request_and_of_two_takeovers(watched: Watched) -> None:
    watched.pass_time(1000, 0, 1)
    watched.board.drain()
    watched.pass_time(49, 0, 1)
    assert watched.late() == []
    watched.pass_time(2, 0, 1)
    assert watched.late() == [0, 1]


def test_a_worker_has_more_time_to_end_if_it_has_much_to_hand_back(watched: Watched) -> None:
    watched.board.drain()
    watched.board.set(1, "tasks", 10 * HANDED_BACK)
    watched.pass_time(55, 0, 1)
    assert watched.late() == [0]
    watched.pass_time(6, 0, 1)
    assert watched.late() == [0, 1]


def test_time_in_which_the_supervisor_was_suspended_makes_no_worker_late(watched: Watched) -> None:
    watched.board.drain()
    watched.pass_time(1, 0, 1)
    watched.now += 3600
    watched.pass_time(1, 0, 1)
    assert watched.late() == []
