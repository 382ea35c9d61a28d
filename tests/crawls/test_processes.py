"""The processes of a machine: how its workers are started, and that nothing of it outlives it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lab.webs import TreeWeb
from lab.world import World, children, end, is_dead, wait_for, workers_of, world


def below(pid: int) -> list[int]:
    """All processes that a process has started, directly or not."""
    return [pid for child in children(pid) for pid in (child, *below(child))]


def name(pid: int) -> str:
    """What `ps` shows as the name of a process."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def start(w: World):  # type: ignore[no-untyped-def]
    """A machine with two workers at work."""
    process = w.start(*w.web.seeds())
    w.until(5)
    wait_for(lambda: len(workers_of(process)) == 2)
    return process


def test_workers_are_forked_from_the_fork_server_also_with_a_long_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("a" * 100) / ("b" * 100)  # a socket's path has 107 bytes at most
    long.mkdir(parents=True)
    monkeypatch.setenv("TMPDIR", str(long))
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.2), tmp_path) as w:
        process = start(w)
        (server,) = (pid for pid in children(process.pid) if name(pid) == "crawl-fork")
        assert sorted(map(name, children(server))) == ["crawl-worker"] * 2
        assert len(os.listdir(f"/proc/{server}/task")) == 1, "a fork copies the locks of other threads"
        end(process)
        assert w.differences() == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_of_a_machine_outlives_it(tmp_path: Path, how: signal.Signals) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.3), tmp_path) as w:
        process = start(w)
        started = below(process.pid)
        assert len(started) >= 3
        process.send_signal(how)
        process.wait()
        wait_for(lambda: all(map(is_dead, started)))


def test_a_machine_that_is_killed_prints_nothing_more(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.3), tmp_path) as w:
        process = start(w)
        process.kill()
        printed, _ = process.communicate()  # returns when the last process that could print has ended
        assert "Warning" not in printed and "semaphore" not in printed


def test_without_its_fork_server_a_machine_goes_on_with_new_interpreters(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.2), tmp_path) as w:
        process = start(w)
        (server,) = (pid for pid in children(process.pid) if name(pid) == "crawl-fork")
        os.kill(server, signal.SIGKILL)
        wait_for(lambda: len([pid for pid in workers_of(process) if pid in children(process.pid)]) == 2)
        end(process)
        assert w.differences() == []
