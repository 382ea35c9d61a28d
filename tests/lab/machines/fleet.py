"""Several machines and one folder: each machine is a `crawler run` on its own mount, with a disk of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crawler.commands.demo.server import LoggedRequest, requested_twice, serve
from crawler.commands.demo.web import Web
from crawler.crawl.worker.flush import MAX_RESULTS
from crawler.fleet.heartbeats import END, read_counters
from crawler.store.mount import Files
from lab.machines.mounts import TIED, Mount
from lab.webs import gaps
from lab.world import COMMAND, World, is_worker, processes, wait_for

WORKERS, THREADS = 2, 4  # of each machine, unless a test says otherwise
IN_FLIGHT = THREADS + MAX_RESULTS  # open, or waiting for a flush, of one worker: manual/life-of-a-url.md
PULSE, PATIENCE = 0.5, 6.0
SETTINGS = {"delay": 0.01, "heartbeat": PULSE, "dead_after": PATIENCE, "retry_delay": "0.2s", "durable": "false"}
SETTINGS["scope"] = "any"
SHARDS = 64  # each is several operations of a machine's start, which take long on a mount
SETTINGS["shards"] = SHARDS
SETTINGS["max_per_address"] = "null"  # all hosts are at one address, which on some mounts is no loopback
LONG = 300.0  # seconds that a crawl may take on a machine that is busy with other things


class Machine:
    """One `crawler run`, in a process group of its own."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.number, self.process, self.log = number, process, log
        self.is_stopped = False
        self.may_end = False  # because it was killed or asked to leave: otherwise only with exit code 0

    def __repr__(self) -> str:
        return f"machine {self.number} (process {self.process.pid})"

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return self.log.read_text(errors="replace")

    def workers(self) -> list[int]:
        """The ids of its worker processes."""
        return sorted(pid for pid, _, group, _ in processes() if group == self.process.pid and is_worker(pid))

    def signal(self, number: signal.Signals) -> None:
        """Send all its processes a signal; that it is gone already does not matter."""
        self.may_end |= number in (signal.SIGKILL, signal.SIGTERM)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def kill(self) -> None:
        """The plug is pulled."""
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def stop(self) -> None:
        """All its processes stand still, and know nothing of it."""
        self.is_stopped = True
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """They go on where they stood."""
        self.is_stopped = False
        self.signal(signal.SIGCONT)

    def leave(self) -> None:
        """Ask it politely to end; `wait` for it."""
        self.signal(signal.SIGTERM)

    def wait(self, seconds: float = LONG) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(seconds)


class Fleet(World):
    """A web that is served, one store on a mount, and the machines that crawl it."""

    def __init__(self, web: Web, port: int, mount: Mount, settings: dict[str, Any]) -> None:
        super().__init__(web, port, mount.folder)
        self.mount = mount
        self.root = mount.real / "store"
        self.settings = SETTINGS | settings
        self.machines: list[Machine] = []

    def join(
        self,
        number: int,
        workers: int = WORKERS,
        threads: int = THREADS,
        wrap: Sequence[str] = (),
        flags: Sequence[str] = (),
        port: int | None = None,
        **environment: str,
    ) -> Machine:
        """Start machine `number`; all are started by the same command, whichever is first, but for these flags."""
        disk = self.folder / f"disk-{number}"
        disk.mkdir(exist_ok=True)
        command = [*COMMAND, "run", str(self.mount.at(number) / "store"), *self.web.seeds()]
        place = f"::{self.mount.web_host}:{port or self.port}"
        command += ["--connect-to", place, "-j", str(workers), "-t", str(threads), *flags]
        for name, value in self.settings.items():
            command += ["-s", f"{name}={value}"]
        log = self.folder / f"machine-{number}-{len(self.machines)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*TIED, *self.mount.command(number, [*wrap, *command])],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(disk), "PYTHONUNBUFFERED": "1", **environment},
            )
        machine = Machine(number, process, log)
        self.machines.append(machine)
        return machine

    def running(self) -> list[Machine]:
        """The machines that have not ended."""
        return [machine for machine in self.machines if machine.runs]

    def end(self, seconds: float = LONG) -> float:
        """Wait until all machines have ended by themselves, each with exit code 0; how long after the last answer."""
        limit = time.monotonic() + seconds
        for machine in self.running():
            with suppress(subprocess.TimeoutExpired):
                machine.wait(max(0.0, limit - time.monotonic()))
        codes = {str(machine): machine.process.poll() for machine in self.machines if not machine.may_end}
        assert set(codes.values()) <= {0}, f"exit codes, None for one that still runs after {seconds:.0f} s: {codes}"
        faults = [machine for machine in self.machines if "Traceback" in machine.printed]
        assert not faults, f"tracebacks of {faults}"
        return time.monotonic() - max(request.end for request in self.log)

    # ---- what is seen from outside

    def again(self) -> Counter[str]:
        """The pages that were asked for again, with how often."""
        return Counter({url: times - 1 for url, times in requested_twice(self.log).items()})

    def haste(self, delay: float) -> dict[str, float]:
        """The hosts that were asked before their delay was over, with the shortest gap."""
        return {host: gap for host, gap in gaps(self.log).items() if gap < delay}

    def visits(self, host: str) -> str:
        """All requests of a host, for a person."""
        asked = sorted(request for request in self.log if request.host == host)
        return ", ".join(f"{r.start:.2f}-{r.end:.2f} {r.path} {r.status}" for r in asked)

    def owners(self) -> dict[str, str]:
        """shard -> owner."""
        return dict(path.name.split("@") for path in (self.root / "shards").glob("*@*"))

    def counters(self) -> dict[str, dict[str, Any]]:
        """worker -> what it last said of itself, of those that have not ended."""
        found = read_counters(Files(self.root, "looker"))
        return {counters["heartbeat"].id: counters for counters in found if counters["heartbeat"].mark != END}

    def answered(self, since: float) -> list[LoggedRequest]:
        """The pages answered since then."""
        return [request for request in self.log if request.end >= since and request.status == 200]

    def wait(self, happened: Callable[[], object], what: str, seconds: float = LONG) -> None:
        """Wait until something is true; a machine that ends badly meanwhile is the end of the wait."""

        def look() -> object:
            bad = {str(machine): machine.process.poll() for machine in self.machines if not machine.may_end}
            assert set(bad.values()) <= {0, None}, f"while waiting for {what}: exit codes {bad}"
            return happened()

        try:
            wait_for(look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from error

    def until(self, pages: int, seconds: float = LONG) -> None:
        """Wait until so many pages were asked for."""
        self.wait(lambda: len(self.log) >= pages, f"{pages} requests", seconds)

    def explain(self) -> str:
        """All that helps to see what went wrong."""
        lines = [f"requests: {len(self.log)}, asked again: {dict(self.again().most_common(20))}"]
        lines += [f"{noun}: {len(self.names(noun))}" for noun in ("links", "errs", "frontier")]
        lines += [f"shards: {Counter(self.owners().values())}", f"workers: {self.names('workers')}"]
        for machine in self.machines:
            lines += [f"---- {machine}, exit code {machine.process.poll()}, workers {machine.workers()}"]
            lines += machine.printed.splitlines()[-40:]
        return "\n".join(lines)

    def names(self, noun: str) -> list[str]:
        """The names in a folder of the store, by host or shard if it has those; not temporary ones."""
        paths = (self.root / noun).rglob("[!.]*")
        return sorted(str(path.relative_to(self.root / noun)) for path in paths if path.is_file())

    def close(self) -> None:
        """Leave no process behind."""
        for machine in self.machines:
            machine.signal(signal.SIGKILL)
        for machine in self.machines:
            machine.process.wait(60)


@contextmanager
def fleet(web: Web, mount: Mount, **settings: Any) -> Iterator[Fleet]:
    """Serve a web while machines crawl it into a store on this mount."""
    with mount.beside_web():
        server = serve(web, (mount.web_host, 0), log=mount.folder / "web.log", process=True)
    with server:
        ships = Fleet(web, server.port, mount, settings)
        try:
            yield ships
        except BaseException:
            print(ships.explain())
            raise
        finally:
            mount.thaw()
            ships.close()
