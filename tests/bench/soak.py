"""Two machines on an endless web for hours, with faults now and then: does anything grow that should not?

Each machine is a `crawler run` of its own on one store. Every few minutes a worker or a machine is killed, suspended,
or told to stop and started again. What is looked at: memory and descriptors of the workers, files in workers/ and
frontier/, pages. `.soak/soak.png` shows it, `.soak/soak.json` has the figures. On loopback, the store on a local disk.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import endless
from measure import family, memory_of

PROJECT = Path(__file__).parents[2]
SETTINGS = ("robots=false", "delay=1", "scope=any")
SAMPLES = 200


@dataclass(frozen=True, slots=True)
class Sample:
    """What there was at one moment."""

    seconds: float
    pages: int
    memory: int  # of the largest worker
    descriptors: int  # of the worker that has most
    workers: int  # names in workers/
    frontier: int  # batches
    event: str


class Machine:
    """One `crawler run`, which is started again when it ends."""

    def __init__(self, root: Path, port: int, log: Path) -> None:
        self._command = [sys.executable, "-m", "crawler", "run", str(root), endless.url(0), "-j", "2", "-t", "32", "-q"]
        self._command += ["--connect-to", f"::127.0.0.1:{port}"]
        for setting in SETTINGS:
            self._command += ["-s", setting]
        self._log = log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, start_new_session=True, cwd=PROJECT
            )

    @property
    def workers(self) -> list[int]:
        return [pid for pid in family(self._process.pid)[1:] if descriptors_of(pid) > 3]

    def is_running(self) -> bool:
        return self._process.poll() is None

    def signal_all(self, number: int) -> None:
        for pid in family(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill_worker(self) -> None:
        with suppress(ProcessLookupError, IndexError):
            os.kill(self.workers[-1], signal.SIGKILL)

    def end(self) -> None:
        self.signal_all(signal.SIGKILL)
        self._process.wait()


def descriptors_of(pid: int) -> int:
    """How many files a process has open; 0 of one that is gone."""
    with suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/fd"))
    return 0


class Soak:
    """The whole of it."""

    def __init__(self, folder: Path, seconds: float, seed: int) -> None:
        self._folder, self._seconds, self._chance = folder, seconds, random.Random(seed)
        self._root = folder / "store"
        self.samples: list[Sample] = []
        self._resume_at: dict[Machine, float] = {}

    def run(self) -> None:
        with endless.serve() as web:
            machines = [Machine(self._root, web.port, self._folder / "run0.log")]
            time.sleep(min(5.0, self._seconds / 10))
            machines.append(Machine(self._root, web.port, self._folder / "run1.log"))
            try:
                self._watch(machines, web)
            finally:
                for machine in machines:
                    machine.end()

    def _watch(self, machines: list[Machine], web: endless.Endless) -> None:
        began, step = time.monotonic(), max(self._seconds / SAMPLES, 1.0)
        next_event = began + self._seconds / 10
        while time.monotonic() - began < self._seconds:
            event = ""
            now = time.monotonic()
            for machine in [it for it, when in self._resume_at.items() if when <= now]:
                machine.signal_all(signal.SIGCONT)
                del self._resume_at[machine]
            if now >= next_event:
                event, next_event = self._trouble(machines), now + self._seconds / 20 * self._chance.uniform(0.5, 1.5)
            for machine in machines:
                if not machine.is_running():
                    machine.start()
            self.samples.append(self._look(now - began, machines, web, event))
            time.sleep(step)

    def _trouble(self, machines: list[Machine]) -> str:
        machine = self._chance.choice(machines)
        kind = self._chance.choice(["kill a worker", "kill a machine", "suspend", "stop"])
        if kind == "kill a worker":
            machine.kill_worker()
        elif kind == "kill a machine":
            machine.end()
        elif kind == "suspend":
            machine.signal_all(signal.SIGSTOP)
            self._resume_at[machine] = time.monotonic() + min(self._chance.uniform(5, 60), self._seconds / 10)
        else:
            subprocess.run([sys.executable, "-m", "crawler", "stop", str(self._root)], check=False, capture_output=True)
        return kind

    def _look(self, seconds: float, machines: list[Machine], web: endless.Endless, event: str) -> Sample:
        workers = [pid for machine in machines for pid in machine.workers]
        batches = sum(len(files) for _, _, files in os.walk(self._root / "frontier"))
        with suppress(FileNotFoundError):
            names = os.listdir(self._root / "workers")
        return Sample(
            round(seconds, 1),
            web.asked.value,
            max(map(memory_of, workers), default=0),
            max(map(descriptors_of, workers), default=0),
            len(names) if "names" in locals() else 0,
            batches,
            event,
        )


def draw(path: Path, samples: list[Sample]) -> None:
    """Plot what there was over time."""
    import plot

    def panel(name: str, scale: float = 1.0):  # type: ignore[no-untyped-def]
        def show(axes) -> None:  # type: ignore[no-untyped-def]
            axes.plot([it.seconds / 60 for it in samples], [getattr(it, name) / scale for it in samples])
            for it in samples:
                if it.event:
                    axes.axvline(it.seconds / 60, color="grey", linestyle=":", linewidth=0.8)
            axes.set(title=name, xlabel="minutes")
            axes.set_ylim(bottom=0)

        return show

    plot.draw(
        path, [panel("memory", 1 << 20), panel("descriptors"), panel("workers"), panel("frontier"), panel("pages")]
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    folder = PROJECT / ".soak"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    soak = Soak(folder, options.hours * 3600, options.seed)
    soak.run()
    (folder / "soak.json").write_text(json.dumps([asdict(it) for it in soak.samples], indent=1))
    if not options.no_plot:
        draw(folder / "soak.png", soak.samples)
    late = soak.samples[len(soak.samples) // 2 :]
    most = {name: max(getattr(it, name) for it in late) for name in ("memory", "descriptors", "workers", "frontier")}
    events = sum(bool(it.event) for it in soak.samples)
    print(
        f"{soak.samples[-1].pages:,} pages asked, {events} faults; "
        f"in the second half at most {most['memory'] >> 20} MB, "
        f"{most['descriptors']} descriptors, {most['workers']} names in workers/, {most['frontier']} in frontier/"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
