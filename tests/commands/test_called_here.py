"""Most tests call commands in their own process (`lab.world.call_here`): that gives what the program gives."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import world
from lab.marks import later
from lab.world import CALLED_HERE, call_here, call_program

from crawler.commands import main

BROKEN = ["status", "/dev/null"]
LINES = [
    ["set", "STORE", "delay=2"],  # takes over the permissions of the store: a umask
    ["export", "STORE", "-"],
    ["check", "STORE", "--jobs"],
    *later(
        ["add", "STORE", "http://new.example/"],
        ["cat", "STORE", "http://nowhere.example/"],
        ["changes", "STORE"],
        ["check", "STORE"],
        ["diff", "STORE", "http://nowhere.example/"],
        ["explain", "STORE", "http://nowhere.example/"],
        ["hosts", "STORE"],
        ["history", "STORE", "http://nowhere.example/"],
        ["links", "STORE", "http://nowhere.example/"],
        ["ls", "STORE"],
        ["pause", "STORE"],
        ["plan", "--pages", "1000"],
        ["refresh", "STORE", "--host", "nowhere.example"],
        ["rehydrate", "STORE"],
        ["resume", "STORE"],
        ["retry", "STORE"],
        ["status", "--help"],
        ["status", "STORE"],
        BROKEN,
    ),
]


def state() -> dict[str, object]:
    """What a command may change in its process."""
    mask = os.umask(0o22)
    os.umask(mask)
    gc.collect()
    log = logging.getLogger("crawler")
    return {
        "umask": mask,
        "folder": Path.cwd(),
        "environment": dict(os.environ),
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "warnings": list(warnings.filters),
        "logging": (list(log.handlers), log.level, log.propagate, list(logging.getLogger().handlers)),
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.__stdout__),
        "temporary folder": tempfile.tempdir,
        "threads": [thread for thread in threading.enumerate() if thread.name != "tqdm_monitor"],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
    }


@pytest.mark.parametrize("line", LINES, ids=lambda line: " ".join(line[:1] + line[2:]))
def test_a_command_that_is_called_here_gives_what_the_program_gives_and_leaves_the_process_as_it_was(
    line: list[str], crawled: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / crawled.name
    shutil.copytree(crawled, other)
    crawled.chmod(0o700)
    before = state()
    here = call_here([str(crawled) if word == "STORE" else word for word in line], None)
    assert state() == before
    code, out, err = call_program([str(other) if word == "STORE" else word for word in line], None)
    assert here == (code, out.replace(str(other), str(crawled)), err.replace(str(other), str(crawled)))
    assert line[0] in CALLED_HERE


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[BaseException]]:
    """A command raises this."""
    raised: list[BaseException] = []

    def call(args: object) -> int:
        raise raised[0]

    monkeypatch.setattr(main, "_call", call)
    yield raised


def test_a_fault_of_a_command_is_logged_where_a_program_logs_it(failing: list[BaseException]) -> None:
    failing.append(ZeroDivisionError("by zero"))
    code, out, err = call_here(["status"], None)
    assert (code, out) == (70, "")
    assert "a fault of the program itself" in err
    assert "ZeroDivisionError: by zero" in err


def test_what_reads_a_pipe_no_more_ends_it_with_the_same_exit_code(failing: list[BaseException]) -> None:
    failing.append(BrokenPipeError())
    assert call_here(["ls"], None) == (0, "", "")


def test_ctrl_c_ends_the_tests_and_not_only_the_command(failing: list[BaseException]) -> None:
    failing.append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        call_here(["ls"], None)


def test_a_command_that_hangs_here_is_ended_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "LONG", 0.05)
    monkeypatch.setattr(main, "_call", lambda args: signal.pause())
    code, _, err = call_here(["ls"], None)
    assert code == 70
    assert "it has not ended" in err
