"""A simulated fleet with trouble loses nothing, asks no host too soon, and ends when all is done; from one number."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.mount import PROFILES
from simulation.mutants import MUTANTS, Mutant, find, row
from simulation.run import Scenario, command, many, report, shrink, simulate

TESTS = Path(__file__).parents[1]
SEEDS, PART = 200, 20
# Each of these has failed once; what was wrong is in CHANGELOG.md or in the comment.
FOUND: list[tuple[int, str]] = []


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_whatever_happens_to_a_fleet_no_page_is_lost_and_the_end_is_true(first: int) -> None:
    failed, _ = many(range(first, first + PART), None, is_quick=True)
    assert not failed


@pytest.mark.parametrize(("seed", "profile"), FOUND)
def test_what_failed_once_does_not_fail_again(seed: int, profile: str) -> None:
    result = simulate(Scenario.of(seed, profile))
    assert result.error is None, "\n".join([*result.events, str(result.error)])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_finds_a_program_that_is_broken(mutant: Mutant) -> None:
    found = find(mutant)
    print(row(mutant, found))
    assert found is not None


def test_a_failure_is_shrunk_and_says_how_to_replay_it() -> None:
    mutant = MUTANTS[0]
    found = find(mutant)
    assert found is not None
    _, scenario, result = found
    from simulation.mutants import applied

    with applied(mutant):
        small = shrink(scenario, 2)
        text = report(scenario, result, small)
    assert f"make simulate SEED={scenario.seed}" in text
    assert len(small.troubles) <= len(scenario.troubles)
    assert "neither done nor handed over" in text
    assert command(scenario) == f'make simulate SEED={scenario.seed} ARGS="--profile {scenario.profile}"'


def digests(python: str, hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}", "PYTHONHASHSEED": hash_seed}
    command = [python, "-m", "simulation.run", "--seeds", "5", "--digest"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_the_same_number_gives_the_same_log_whatever_python_hashes() -> None:
    first, second = digests(sys.executable, "1"), digests(sys.executable, "2")
    assert first == second
    assert len(first.splitlines()) == len(PROFILES)


def other_pythons() -> list[str]:
    folders = [*(TESTS.parent / ".pythons").glob("*/bin/python")]
    return [str(path) for path in folders if shutil.which(str(path))]


def test_the_same_number_gives_the_same_log_on_another_python() -> None:
    able = [python for python in other_pythons() if _can_simulate(python)]
    if not able:
        pytest.skip("no other Python has what the simulation needs; `make pythons` sets some up in .pythons/")
    assert digests(able[0], "3") == digests(sys.executable, "1")


def _can_simulate(python: str) -> bool:
    return subprocess.run([python, "-c", "import greenlet, crawler"], capture_output=True, check=False).returncode == 0
