"""The demo's crawl: two machines on one folder, of which one is killed half-way while the other goes on.

They run on this computer, but know nothing of each other: each has a folder of its own for temporary files, by which
machines would notice at once that a process on the same computer has died.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crawler import errors
from crawler.commands.status import status
from crawler.errors import StoreError
from crawler.fleet.shards import read_owners
from crawler.store.store import Store
from crawler.terminal import many, say

HEARTBEAT, DEAD_AFTER = 1, 8  # seconds; the defaults are 2 and 30
LOOK = 0.2  # seconds between two looks
TELL = 5.0  # seconds between two lines about the progress


@dataclass(slots=True)
class Killed:
    """What was seen of the kill: what was done before, as `<host>/<key>`."""

    done: frozenset[str]
    owners: frozenset[str]  # the dead machine's workers


@dataclass(slots=True)
class Show:
    """Two machines at work, told line by line."""

    store: Path
    total: int  # URLs of the web
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0

    def tell(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        self.told = time.monotonic()
        say(f"{self.told - self.began:4.0f} s  {text}")

    def progress(self) -> int:
        """Return how many URLs are done, and tell it now and then."""
        count = len(self.done())
        if time.monotonic() - self.told > TELL:
            self.tell(f"{count:,} of {self.total:,} URLs done")
        return count

    def done(self) -> frozenset[str]:
        """Return the URLs that have a record or a failure record."""
        store = Store(self.store)
        try:
            return frozenset(f"{host}/{key}" for host in store.requested_hosts() for key in store.done(host))
        except StoreError:  # not there yet
            return frozenset()

    def workers(self) -> dict[str, int]:
        """Return the workers that show heartbeats, and their process ids."""
        try:
            found = status(Store(self.store), again=False)["workers"]
        except StoreError:
            return {}
        return {worker["id"]: worker["pid"] for worker in found if worker["state"] == "alive"}


def crawl(show: Show, command: Sequence[str], workers: int) -> tuple[int, Killed | None]:
    """Run the command as two machines, kill the first half-way, and return the second's exit code and the kill."""
    say(f"$ {shlex.join(['crawler', *command])}")
    with _machines(show.store, command) as (first, second):
        show.tell("machine 1 and machine 2 start: the same command, the same folder, nothing else between them")
        killed = _kill_half_way(show, first, second, 2 * workers)
        if killed:
            _watch_take_over(show, second, killed)
        while second.poll() is None:
            show.progress()
            time.sleep(LOOK)
        first.wait()
        code = second.returncode
        show.tell(f"machine 2: {errors.EXIT_CODES.get(code, f'exit code {code}')}")
    return code, killed


@contextmanager
def _machines(store: Path, command: Sequence[str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two machines, and leave none behind."""
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="crawler-demo-") as folder:
        try:
            for number in (1, 2):
                own = Path(folder) / str(number)
                own.mkdir()
                with open(f"{store}.machine-{number}.log", "wb") as log:
                    started.append(subprocess.Popen(
                        [sys.executable, "-m", "crawler", *command, "--quiet"],
                        stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(own)},
                    ))  # fmt: skip
            yield started
        finally:
            for process in started:
                process.kill()
                process.wait()


def _kill_half_way(
    show: Show, first: subprocess.Popen[bytes], second: subprocess.Popen[bytes], workers: int
) -> Killed | None:
    """Kill the first machine when half of the URLs were requested and both work; None if it has ended before."""
    seen: dict[str, int] = {}
    while len(seen) < workers or show.progress() < show.total / 2:
        if first.poll() is not None or second.poll() is not None:
            show.tell("the crawl was over before a machine could be killed: take a larger web, with --pages")
            return None
        seen = show.workers()
        time.sleep(LOOK)
    owners = frozenset(id for id, pid in seen.items() if _is_below(pid, first.pid))
    first.kill()
    first.wait()
    killed = Killed(show.done(), owners)
    show.tell(f"kill -9 machine 1, with {len(killed.done):,} of {show.total:,} URLs done")
    return killed


def _is_below(pid: int, machine: int) -> bool:
    """Tell whether a process was started by a machine, or by one that the machine started."""
    while pid > 1 and pid != machine:
        pid = _parent(pid)
    return pid == machine


def _parent(pid: int) -> int:
    """Return the process that started another; 0 if that has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _watch_take_over(show: Show, second: subprocess.Popen[bytes], killed: Killed) -> None:
    """Wait until none of the hosts belongs to the dead machine any more."""
    store = Store(show.store)
    shards = store.settings().shards
    lost = sum(not owners.isdisjoint(killed.owners) for owners in read_owners(store.files, shards).values())
    left = lost
    while left and second.poll() is None:
        show.progress()
        time.sleep(LOOK)
        left = sum(not owners.isdisjoint(killed.owners) for owners in read_owners(store.files, shards).values())
    if lost:
        parts = f"{lost} of the {many(shards, 'part')} that hosts are divided into"
        show.tell(f"machine 2 saw no heartbeat of machine 1 for {DEAD_AFTER} s and has taken over its {parts}")
