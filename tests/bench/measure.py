"""What a command costs: seconds, CPU seconds and peak memory of it and of all its children."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic, sleep, time

EVERY = 0.1  # seconds between two looks at the CPU time; a look costs a tenth of a millisecond per process
MEMORY_EVERY = 5  # so many looks at the CPU time for one at the memory, which costs about a millisecond per process
PR_SET_CHILD_SUBREAPER = 36
KILLED = -signal.SIGKILL  # the exit code of what was ended at its limit


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a run: the pages that were stored in it, and what it took."""

    pages: int
    seconds: float
    cpu: float  # seconds, of the user and of the kernel

    @property
    def rate(self) -> float:
        """Pages per second."""
        return self.pages / self.seconds

    @property
    def cpu_per_thousand(self) -> float:
        """CPU seconds per 1,000 pages."""
        return 1000 * self.cpu / self.pages if self.pages else inf


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took, from the start of the command to its end and in its steady state."""

    whole: Span
    steady: Span
    memory: int  # bytes at the peak, of all its processes together, what they share counted once
    largest: int  # bytes at the peak of the process that had most


@dataclass(frozen=True, slots=True)
class Look:
    """The CPU seconds that a command had taken at a time."""

    at: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that has ended, and what was seen of it."""

    began: float
    seconds: float
    cpu: float
    memory: int
    largest: int
    looks: Sequence[Look]

    def cost(self, stored: Iterable[float]) -> Cost:
        """Of a command that stored pages at these times; steady is from the first tenth of them to the last."""
        times = sorted(stored)
        if not times:
            return self._cost(times, self.began, self.began + self.seconds)
        return self._cost(times, times[len(times) // 10], times[len(times) * 9 // 10])

    def cost_from(self, stored: Iterable[float], second: float) -> Cost:
        """Of a command that is ended at a limit; steady is from this second of it to its end."""
        return self._cost(sorted(stored), self.began + second, self.began + self.seconds)

    def _cost(self, times: Sequence[float], first: float, last: float) -> Cost:
        pages = bisect_left(times, last) - bisect_left(times, first)
        # All pages at one time are those of a command that tells at its end how many there were.
        steady = Span(pages, last - first, self._cpu_at(last) - self._cpu_at(first)) if last > first else None
        whole = Span(len(times), self.seconds, self.cpu)
        return Cost(whole, steady or whole, self.memory, self.largest)

    def _cpu_at(self, when: float) -> float:
        """CPU seconds until then: on the straight line between the looks before and after."""
        looks = [Look(self.began, 0.0), *self.looks, Look(self.began + self.seconds, self.cpu)]
        place = min(max(bisect_left(looks, when, key=lambda look: look.at), 1), len(looks) - 1)
        before, after = looks[place - 1], looks[place]
        part = (when - before.at) / max(after.at - before.at, 1e-9)
        return before.cpu + part * (after.cpu - before.cpu)


def run(
    command: Sequence[str],
    log: Path,
    limit: float,
    env: dict[str, str] | None = None,
    cwd: Path | None = None,
    codes: Collection[int] = (0,),
) -> Ran:
    """Run a command until it ends with one of these exit codes or is killed at a limit, its output in a file.

    CPU is what the kernel reports of all its processes: those that nobody waits for come to us. Of a command that is
    killed it is what was seen last.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began, start = time(), monotonic()
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=env, cwd=cwd, start_new_session=True, stdin=subprocess.DEVNULL
        )
    watch = _Watch(process.pid)
    timer = threading.Timer(limit, _kill_group, [process.pid])
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
        cpu = usage.ru_utime + usage.ru_stime + _wait_for_group(process.pid)
    finally:
        timer.cancel()
        watch.stop()
        _kill_group(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = monotonic() - start
    if process.returncode not in codes:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode} after {seconds:.0f} s; see {log}")
    return Ran(began, seconds, max(cpu, watch.cpu), watch.memory, watch.largest, watch.looks)


def _wait_for_group(pid: int) -> float:
    """Wait a moment for what a command has left behind, and return its CPU time."""
    cpu, limit = 0.0, monotonic() + 5
    while monotonic() < limit:
        try:
            found, _, usage = os.wait4(-pid, os.WNOHANG)
        except ChildProcessError:
            break
        cpu += usage.ru_utime + usage.ru_stime if found else 0.0
        sleep(0 if found else 0.01)
    return cpu


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Watch:
    """Looks at a process and its descendants now and then: their CPU time, and the most memory they had."""

    def __init__(self, pid: int) -> None:
        self.looks: list[Look] = []
        self.memory = self.largest = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu(self) -> float:
        return self.looks[-1].cpu if self.looks else 0.0

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        number, processes = 0, [self._pid]
        while not self._over.wait(EVERY):
            number += 1
            if number % MEMORY_EVERY == 0:
                processes = family(self._pid)
                self.memory = max(self.memory, sum(map(memory_of, processes)))
                self.largest = max(self.largest, *map(peak_of, processes))
            # Never less than before: what a child took is seen nowhere between its end and its parent's wait.
            self.looks.append(Look(time(), max(self.cpu, sum(map(cpu_with_children_of, processes)))))


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
    return _cpu_fields(pid, 11, 12)


def cpu_with_children_of(pid: int) -> float:
    """The same, and what its children had taken that it has waited for."""
    return _cpu_fields(pid, 11, 12, 13, 14)


def _cpu_fields(pid: int, *numbers: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(fields[number]) for number in numbers) / os.sysconf("SC_CLK_TCK")
    return 0.0


def times(folder: Path, accept: Callable[[str], bool] = lambda name: not name.startswith(".")) -> list[float]:
    """When each file below a folder got its name; the time of its content is one that wget2 takes from the server."""
    paths = (os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if accept(name))
    return [os.lstat(path).st_ctime for path in paths]
