"""What a command costs: seconds, CPU seconds and peak memory of it and of all its children."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

EVERY = 0.5  # seconds between two looks at the memory; a look costs about a millisecond per process


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took, and the pages that it brought."""

    pages: int
    seconds: float
    cpu: float  # seconds, of the user and of the kernel
    memory: int  # bytes at the peak, of all its processes together, what they share counted once

    @property
    def rate(self) -> float:
        """Pages per second."""
        return self.pages / self.seconds

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds per 1,000 pages."""
        return 1000 * self.cpu / self.pages


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    codes: Collection[int] = (0,),
) -> Cost:
    """Run a command to its end, with one of these exit codes, its output in a file; pages are the caller's to count.

    CPU is what the kernel reports of a process and the children it waited for, so a command must wait for its own.
    """
    began = monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=env, cwd=cwd, start_new_session=True, stdin=subprocess.DEVNULL
        )
    peak = _Peak(process.pid)
    timer = threading.Timer(limit, _kill_group, [process.pid])
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
        peak.stop()
        _kill_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = monotonic() - began
    if process.returncode not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode} after {seconds:.0f} s; see {log}")
    return Cost(0, seconds, usage.ru_utime + usage.ru_stime, peak.bytes)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Peak:
    """Looks at the memory of a process and its descendants now and then, and keeps the most it saw."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(EVERY):
            self.bytes = max(self.bytes, sum(map(memory_of, family(self._pid))))


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def memory_of(pid: int) -> int:
    """Bytes of a process, its part of what it shares with others; 0 of one that is gone."""
    return _bytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def peak_of(pid: int) -> int:
    """The most bytes that a process ever had in memory, as the kernel noted; 0 of one that is gone."""
    return _bytes(Path(f"/proc/{pid}/status"), "VmHWM:")


def _bytes(facts: Path, name: str) -> int:
    with suppress(OSError):
        for line in facts.read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def cpu_of(pid: int) -> float:
    """CPU seconds that a process has taken so far, of the user and of the kernel; 0 of one that is gone."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def count_files(*folders: Path, accept: Callable[[str], bool] = lambda name: not name.startswith(".")) -> int:
    """Files below these folders."""
    return sum(accept(name) for folder in folders for _, _, names in os.walk(folder) for name in names)
