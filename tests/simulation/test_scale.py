"""The coarse simulation of large fleets does what the whole one does, and shows when a mount is too slow."""

from __future__ import annotations

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet")
from simulation import crowd
from simulation.crowd import DEAD_AFTER, HEARTBEAT
from simulation.scale import AT_ONCE, crawl, print_crowds, wait_for_one


@pytest.mark.parametrize("workers", [4, pytest.param(16, marks=pytest.mark.fleet)])  # for time
def test_the_coarse_simulation_agrees_with_the_whole_one(workers: int) -> None:
    whole, coarse = wait_for_one(workers), crowd.measure(workers, AT_ONCE, all_idle=True)
    assert coarse.operations == pytest.approx(whole.operations, rel=0.2)
    assert coarse.between == pytest.approx(whole.between, rel=0.15)
    for figures in (whole, coarse):
        assert DEAD_AFTER < figures.taken_over_after < DEAD_AFTER + 3 * HEARTBEAT  # type: ignore[operator]
        assert figures.ended_after < 3 * HEARTBEAT  # type: ignore[operator]


def test_a_mount_that_is_too_slow_silences_its_workers() -> None:
    fast, slow = crowd.measure(40, 3000.0), crowd.measure(40, 20.0)
    assert fast.between == pytest.approx(HEARTBEAT, rel=0.05)
    assert fast.silent == 0
    assert slow.between > 5 * HEARTBEAT
    assert slow.silent > 0.2


def test_the_same_crowd_gives_the_same_figures() -> None:
    assert crowd.measure(12, 500.0) == crowd.measure(12, 500.0)


def test_a_crawl_is_measured_to_its_end() -> None:
    cost = crawl(2)
    assert cost.operations > 5 * cost.pages
    assert DEAD_AFTER < cost.taken_over_after < DEAD_AFTER + 3 * HEARTBEAT


def test_the_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_crowds([3])
    assert capsys.readouterr().out.count("| 3 | ") == 2
