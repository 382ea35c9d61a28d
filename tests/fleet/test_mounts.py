"""The mounts that other tests use: they carry files between machines, and nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from lab.machines.kinds import KINDS
from lab.machines.mounts import Mount
from lab.machines.network import NAMED, until
from lab.world import processes

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]


def left_of(folder: Path) -> list[str]:
    """Mounts, processes and network namespaces that a mount in this folder has left behind."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if f" {folder}" in line]
    running = [line.decode() for *_, line in processes() if str(folder).encode() in line]
    return mounts + running + [path.name for path in NAMED.glob(f"crawl-{os.getpid():x}-*")]


def ask(mount: Mount, machine: int, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script on a machine, with its mount as $1."""
    command = mount.command(machine, ["sh", "-c", script, "sh", str(mount.at(machine))])
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_mount_carries_files_between_machines_and_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    if reason := KINDS[kind].skip_reason():
        pytest.skip(f"no {kind} here: {reason}")
    with KINDS[kind](tmp_path, 2) as mount:
        assert ask(mount, 0, 'mkdir "$1/a" && echo hello > "$1/a/file" && exit 7').returncode == 7
        assert ask(mount, 1, 'cat "$1/a/file"').stdout == "hello\n"
        assert (mount.real / "a/file").read_text() == "hello\n"
        assert ask(mount, 1, "kill -TERM $$").returncode == -signal.SIGTERM
    until(lambda: not left_of(tmp_path), what="all of it gone")


def test_a_mount_that_cannot_be_set_up_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    if reason := KINDS[kind].skip_reason():
        pytest.skip(f"no {kind} here: {reason}")

    class Broken(KINDS[kind]):  # type: ignore[misc]
        def up(self) -> None:
            super().up()
            raise OSError("the cable is cut")

    with pytest.raises(OSError, match="cable"), Broken(tmp_path, 1):
        pass
    until(lambda: not left_of(tmp_path), what="all of it gone")


def test_what_runs_on_a_machine_stops_goes_on_and_dies_with_its_process(kind: str, mounting: Mounting) -> None:
    mount = mounting(kind, 1)
    beat, seen = mount.real / "beat", [""]

    def goes() -> bool:
        """Whether there was a beat since the last look."""
        old = seen[0]
        with suppress(OSError):
            seen[0] = beat.read_text()
        return seen[0] != old

    def stands() -> bool:
        """Whether there was none for a while."""
        goes()
        time.sleep(3)
        return not goes()

    script = 'n=0; while :; do n=$((n+1)); echo $n > "$1/new"; mv "$1/new" "$1/beat"; sleep 0.1; done'
    argv = mount.command(0, ["sh", "-c", script, "sh", str(mount.at(0))])
    course = [(signal.SIGCONT, goes), (signal.SIGSTOP, stands), (signal.SIGCONT, goes), (signal.SIGKILL, stands)]
    machine = subprocess.Popen(argv, start_new_session=True)
    try:
        for number, happens in course:
            os.killpg(machine.pid, number)
            until(happens, 180, f"{happens.__name__} after {number.name}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(machine.pid, signal.SIGKILL)
        machine.wait(60)
