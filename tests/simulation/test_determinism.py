"""The same number gives the same log, byte for byte, whatever Python hashes and whichever Python it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet")
from simulation.mount import PROFILES

TESTS = Path(__file__).parents[1]


def digests(python: str, hash_seed: str) -> str:
    """What the logs of some seeds come to, a line each."""
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}", "PYTHONHASHSEED": hash_seed}
    ranges = (0, len(PROFILES)), (19, 2)  # those two rehydrate a store whose pages are to be visited again
    return "".join(
        subprocess.run(
            [python, "-m", "simulation.run", "--from", str(first), "--seeds", str(count), "--digest"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for first, count in ranges
    )


def test_the_same_number_gives_the_same_log_whatever_python_hashes() -> None:
    first, second = digests(sys.executable, "1"), digests(sys.executable, "2")
    assert first == second
    assert len(first.splitlines()) == len(PROFILES) + 2


def test_the_same_number_gives_the_same_log_on_another_python() -> None:
    able = [python for python in other_pythons() if can_simulate(python)]
    if not able:
        pytest.skip("no other Python has what the simulation needs; `make pythons` sets some up in .pythons/")
    ours = digests(sys.executable, "1")
    for python in able:
        assert digests(python, "3") == ours, python


def other_pythons() -> list[str]:
    """The Pythons of `make venv` and `make pythons`, without this one."""
    top = TESTS.parent
    found = [top / ".venv/bin/python", *sorted((top / ".pythons").glob("*/bin/python"))]
    return [str(path) for path in found if path.exists() and path.parent != Path(sys.executable).parent]


def can_simulate(python: str) -> bool:
    """Whether this Python has the packages."""
    return subprocess.run([python, "-c", "import greenlet, crawler"], capture_output=True, check=False).returncode == 0
