"""A worker is pinned to one core, and leaves one that others keep busy."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from crawler.crawl.cpu import Core

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="a process cannot choose between cores here",
)
KEEP_BUSY = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
PINNED = """
import os, sys, threading, time
from crawler.crawl.cpu import Core
Core.interval = 0.0
core = Core(int(sys.argv[1]), "00")
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print(*os.sched_getaffinity(0), flush=True)
sys.stdin.readline()
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until: pass
core.check()
print(*{core for thread in os.listdir("/proc/self/task") for core in os.sched_getaffinity(int(thread))})
"""


def start(row: int, seconds: float) -> subprocess.Popen[str]:
    """A process that pins itself, prints its core, works for a while when it reads a line, and prints it again."""
    return subprocess.Popen(
        [sys.executable, "-c", PINNED, str(row), str(seconds)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def first_core(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_workers_of_one_machine_are_on_different_cores() -> None:
    two = [start(row, 0) for row in range(2)]
    assert len({first_core(process) for process in two}) == 2
    for process in two:
        process.communicate("\n", timeout=60)


def test_a_core_that_others_keep_busy_is_left_with_all_threads() -> None:
    process = start(0, 2)
    core = first_core(process)
    others = [subprocess.Popen([sys.executable, "-c", KEEP_BUSY, core]) for _ in range(4)]
    time.sleep(0.5)
    try:
        after, _ = process.communicate("\n", timeout=60)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert len(after.split()) == 1 and after.strip() != core


def test_where_only_one_core_is_allowed_nothing_is_moved() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        Core(1, "ff").check()
        assert os.sched_getaffinity(0) == {min(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)
