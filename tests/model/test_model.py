"""The protocol as a model: every order of steps of a small fleet, and each deliberately broken variant is caught.

`fleet.pml` is claim, hand-over, record, take-over, tidying and the end; `page.pml` is one page on a disk that loses
power, and its replacement when it is revisited. Their first lines say what is checked and for which size.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lab.marks import later

pytestmark = pytest.mark.fleet  # for time

MODELS = Path(__file__).parent
SMALL = ["-DU=2", "-DN=2"]  # two workers, two URLs, two batches for each


def check(folder: Path, model: str, *defines: str, seconds: float = 600.0) -> tuple[bool, int]:
    """Return whether all that the model asserts holds in every state, and how many states there are."""
    for program in ("spin", "gcc"):
        if shutil.which(program) is None:
            pytest.skip(f"the model needs {program}, which is not installed")
    shutil.copy(MODELS / f"{model}.pml", folder)
    run(folder, "spin", "-a", *defines, f"{model}.pml")
    search = ["-DBFS"] if defines and set(defines) - {*SMALL} and "-DNEVER_OVER" not in defines else []
    run(folder, "gcc", "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=6000", *search, "-o", "pan", "pan.c")
    said = run(folder, "./pan", "-E", "-m200000", seconds=seconds)
    errors, states = re.search(r"errors: (\d+)", said), re.search(r"(\d+) states, stored", said)
    assert errors and states and "memory limit" not in said, said
    return errors[1] == "0", int(states[1])


def run(folder: Path, *command: str, seconds: float = 120.0) -> str:
    """Run a program, and return what it says."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert command[0] == "./pan" or done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_no_order_of_steps_of_two_workers_loses_a_url_or_ends_too_early(tmp_path: Path) -> None:
    holds, states = check(tmp_path, "fleet", *SMALL)
    print(f"fleet: {states:,} states")
    assert holds


@pytest.mark.parametrize("size", later(["-DU=3", "-DN=3"]))
def test_nor_does_any_in_a_larger_fleet(tmp_path: Path, size: list[str]) -> None:
    holds, states = check(tmp_path, "fleet", *size, seconds=1800)
    print(f"fleet {' '.join(size)}: {states:,} states")
    assert holds


@pytest.mark.parametrize(
    "broken",
    [
        "RECORD_FIRST",
        "NO_REWRITE",
        "ONE_LOOK",
        "STALE",
        "NOT_ALL",
        "EAGER",
        "UNOWNED",
        "OURS_IS_SAFE",
        "NEVER_OVER",
    ],
)
def test_each_broken_variant_of_the_fleet_is_caught(tmp_path: Path, broken: str) -> None:
    size = ["-DU=2", "-DN=3"] if broken == "NO_REWRITE" else SMALL
    holds, states = check(tmp_path, "fleet", *size, f"-D{broken}")
    print(f"fleet, {broken}: caught after {states:,} states")
    assert not holds


def test_no_power_cut_leaves_a_record_without_its_html_and_links_also_while_it_is_replaced(tmp_path: Path) -> None:
    holds, states = check(tmp_path, "page")
    print(f"page: {states:,} states")
    assert holds


@pytest.mark.parametrize(
    "broken", ["RECORD_FIRST", "NO_SYNC", "NO_RECORD_SYNC", "REPLACE_UNSYNCED", "TRUST_SYNC", "NEVER_OVER"]
)
def test_each_broken_variant_of_a_page_is_caught(tmp_path: Path, broken: str) -> None:
    holds, states = check(tmp_path, "page", f"-D{broken}")
    print(f"page, {broken}: caught after {states:,} states")
    assert not holds
