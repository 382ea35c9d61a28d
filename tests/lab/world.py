"""A little world for the tests of whole crawls: an embedded web, a store, and `crawler` run as a user runs it."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from crawler.commands.demo.expected import compare
from crawler.commands.demo.pages import Leaf
from crawler.commands.demo.server import LoggedRequest, read_log, serve
from crawler.commands.demo.web import Web, WebReply
from crawler.commands.main import run as run_command
from crawler.crawl.child import SIGNALS
from crawler.errors import NOTHING, OVER, STOPPED, USAGE
from crawler.frontier import frontier
from crawler.frontier.batches import from_lines, to_lines
from crawler.frontier.task import Task, shard_of_host
from crawler.store.inboxes import folder as folder_of
from crawler.store.inboxes import make_folder
from crawler.store.mount import Files
from crawler.web import urls

COMMAND = [sys.executable, "-m", "crawler"]
CALLED_HERE = {"add", "cat", "changes", "check", "diff", "explain", "export", "history", "hosts", "links", "ls", "plan"}
CALLED_HERE |= {"pause", "refresh", "rehydrate", "resume", "retry", "set", "status"}
LONG = 300.0  # seconds: only what hangs takes so long, even where five other tests and more run beside
QUICK = ["-w", "0.01", "-j", "2", "-t", "4", "-s", "retry_delay=0.2s", "-s", "retries=2", "-s", "heartbeat=0.5"]
QUICK += [
    "-s",
    "dead_after=2m",
    "-s",
    "timeout=10m",
    "-s",
    "first_byte_timeout=10m",
]  # no worker or page is given up too soon
QUICK += ["-s", "max_per_address=null"]  # all hosts of a world are at one address
SHARDS = 32  # each is a folder and some names, to be made for each test
QUICK += ["-s", f"shards={SHARDS}"]


class Links(Web):
    """A web drawn in the test: the path of each page, and the links on it."""

    def __init__(self, pages: dict[str, list[str]], host: str = "a.example") -> None:
        super().__init__()
        self.host = host
        self.pages = {self.url(path): [self.url(link) for link in links] for path, links in pages.items()}

    def url(self, path: str) -> str:
        return path if path.startswith("http") else f"http://{self.host}{path}"

    def seeds(self) -> list[str]:
        return [next(iter(self.pages))]

    def leaf(self, url: str) -> Leaf | None:
        return Leaf(tuple(self.pages[url])) if url in self.pages else None


class Answers(Web):
    """A web drawn in the test answer by answer: `host/path`, and the html or the whole WebReply that is given there."""

    def __init__(self, answers: dict[str, str | WebReply]) -> None:
        super().__init__()
        self.answers = answers

    def seeds(self) -> list[str]:
        return [f"http://{next(iter(self.answers))}"]

    def leaf(self, url: str) -> Leaf | None:
        raise NotImplementedError("a web of answers has no leaves")

    def reply(self, host: str, path: str) -> WebReply:
        found = self.answers.get(host + path, WebReply(404))
        return found if isinstance(found, WebReply) else html(found)


def html(text: str, *headers: tuple[str, str]) -> WebReply:
    """A page."""
    return WebReply(200, (("Content-Type", "text/html"), *headers), text.encode())


def plain(text: str | bytes) -> WebReply:
    """A file of another type: robots.txt, a sitemap."""
    return WebReply(200, (("Content-Type", "text/plain"),), text.encode() if isinstance(text, str) else text)


def moved(to: str, *headers: tuple[str, str]) -> WebReply:
    """A redirect."""
    return WebReply(302, (("Location", to), *headers))


def links(*targets: str) -> str:
    """The html of a page with these links."""
    return "<!doctype html>" + "".join(f"<a href='{target}'>x</a>" for target in targets)


class World:
    """A web that is served, and the store that it is crawled into."""

    def __init__(self, web: Web, port: int, folder: Path) -> None:
        self.web, self.port, self.folder = web, port, folder
        self.root = folder / "store"
        self.flags = ["--connect-to", f"::127.0.0.1:{port}"]
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *args: str, quick: bool = True) -> subprocess.Popen[str]:
        """`crawler run STORE` in the background."""
        command = [*COMMAND, *self._line(*args, quick=quick)]
        self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.started[-1]

    def _line(self, *args: str, quick: bool) -> list[str]:
        few = ["-j", "1"] if isinstance(self.web, Answers | Links) else []  # a web of a few pages: sooner done
        flags = [*self.flags, *self.everywhere, *(QUICK if quick else []), *few]
        return ["run", str(self.root), *flags, *args]

    @property
    def everywhere(self) -> list[str]:
        """The scope of most tests, for a new store; a `--scope` of a test's own counts more."""
        return [] if (self.root / "crawl.yaml").exists() else ["-s", "scope=any"]

    def start_plainly(self, *args: str) -> subprocess.Popen[str]:
        """The same with nothing but these arguments and what a test must have: as a user writes it."""
        command = [*COMMAND, "run", str(self.root), *self.flags, "-w", "0.01", "-j", "1", *args]
        self.started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return self.started[-1]

    def run(self, *args: str, code: int = 0, quick: bool = True) -> str:
        """`crawler run STORE` to its end, which must be this exit code; what it printed."""
        if code == USAGE:
            return crawler(*self._line(*args, quick=quick), code=code)
        return end(self.start(*args, quick=quick), code)

    def crawl(self, *args: str, code: int = 0) -> str:
        """A crawl from the web's seeds to its end."""
        return self.run(*self.web.seeds(), *args, code=code)

    @property
    def log(self) -> list[LoggedRequest]:
        """What the server was asked."""
        return read_log(self.folder / "web.log")

    def differences(self, depth: int | None = None) -> list[str]:
        """How the store differs from what a whole crawl must contain."""
        return compare(self.web.expected(depth), self.root)

    def urls(self, noun: str = "links") -> set[str]:
        """The URLs that have a record (or a refusal)."""
        return {record["url"] for record in self.records(noun)}

    def records(self, noun: str = "links") -> list[dict[str, Any]]:
        """All records (or refusals)."""
        return [json.loads(path.read_bytes()) for path in sorted((self.root / noun).glob("*/[!.]*"))]

    def leave(self, tasks: list[Task]) -> None:
        """Leave tasks of one host in its shard, as a worker does that is then killed."""
        shard = shard_of_host(urls.host(tasks[0].url), SHARDS)
        make_folder(Files(self.root, "killed"), shard)
        (self.root / folder_of(shard) / f"killed-0000-000001.{len(tasks)}").write_bytes(to_lines(tasks))

    def waiting(self) -> list[str]:
        """The names of the tasks in all batches."""
        batches = sorted((self.root / "frontier").glob("*/[!.]*"))
        return [task.name for path in batches for task in from_lines(path.read_bytes())]

    def status(self) -> dict[str, Any]:
        """`crawler status --json`."""
        found: dict[str, Any] = json.loads(crawler("status", str(self.root), "--json"))
        return found

    def refusals(self) -> dict[str, str]:
        """The refused URLs and why."""
        return {record["url"]: record["reason"] for record in self.records("errs")}

    def asked(self, host: str | None = None) -> list[str]:
        """What was asked for, in order: `host/path`, or the paths of one host."""
        if host:
            return [request.path for request in self.log if request.host == host]
        return [request.host + request.path for request in self.log]

    def until(self, pages: int) -> None:
        """Wait until so many pages were asked for, by a machine that is at work."""

        def were_asked_for() -> bool:
            have_ended = [process.poll() is not None for process in self.started]
            found = (self.folder / "web.log").exists() and len(self.log) >= pages
            assert found or not have_ended or not all(have_ended), "all machines have ended before that"
            return found

        wait_for(were_asked_for)


@contextmanager
def world(web: Web, folder: Path) -> Iterator[World]:
    """Serve a web while a test crawls it."""
    with serve(web, log=folder / "web.log", process=type(web).__module__.startswith("crawler.")) as server:
        made = World(web, server.port, folder)
        try:
            yield made
        finally:
            for process in made.started:
                process.kill()  # of a test that failed: nothing goes on beside the next one
                process.wait()


def crawler(*args: str, code: int = 0, stdin: str | None = None) -> str:
    """Any `crawler` command as a user runs it; standard output, or everything when it fails.

    Those that only read or write the store are called in this process, which saves the start of hundreds of others, as
    are those whose arguments must be refused.
    """
    call = call_here if code == USAGE or (args and args[0] in CALLED_HERE) else call_program
    found, out, err = call(args, stdin)
    assert found == code, f"exit code {found}, not {code}: {out}{err}"
    return out + (err if code else "")


def call_program(args: Sequence[str], stdin: str | None) -> tuple[int, str, str]:
    """Exit code, standard output and errors of a `crawler` command, run as a program."""
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, input=stdin, timeout=LONG, check=False)
    return done.returncode, done.stdout, done.stderr


def call_here(args: Sequence[str], stdin: str | None) -> tuple[int, str, str]:
    """The same of a command that is called in this process, which is afterwards as it was before."""
    with TemporaryDirectory() as folder:
        given, out, err = (Path(folder) / name for name in ("in", "out", "err"))
        given.write_text(stdin or "", "utf-8")
        with as_a_program_of_its_own(given, out, err):
            try:
                code = run_command(args)
            except SystemExit as end:  # --help
                code = int(end.code or 0)
        if code == STOPPED:
            raise KeyboardInterrupt  # somebody ends the tests: none of these commands does so by itself
        said, complained = (path.read_bytes().decode() for path in (out, err))
        return code, said.replace("\r\n", "\n").replace("\r", "\n"), complained


@contextmanager
def as_a_program_of_its_own(given: Path, out: Path, err: Path) -> Iterator[None]:
    """Meanwhile these are the standard streams, and what a command sets up for its own process is not seen later."""
    log, mask = logging.getLogger("crawler"), os.umask(0o22)
    os.umask(mask)
    level, alarm = log.level, signal.signal(signal.SIGALRM, hang)
    with ExitStack() as stack:
        stack.callback(os.umask, mask)
        stack.callback(log.setLevel, level)
        stack.callback(signal.signal, signal.SIGALRM, alarm)
        for number in SIGNALS:  # a machine sets them; here only if arguments are not refused that must be
            stack.callback(signal.signal, number, signal.getsignal(number))
        stack.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        stack.enter_context(warnings.catch_warnings())
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "stdin", stack.enter_context(given.open(encoding="utf-8")))
        patch.setattr(sys, "stderr", stack.enter_context(err.open("w", encoding="utf-8", errors="backslashreplace")))
        patch.setattr(sys, "stdout", stack.enter_context(out.open("w", encoding="utf-8", errors="backslashreplace")))
        patch.setattr(sys, "__stdout__", sys.stdout)  # its width is that of the help
        for logger in (log, logging.getLogger()):  # pytest's handlers would take what a program prints
            patch.setattr(logger, "handlers", [])
        patch.setattr(log, "propagate", True)
        log.setLevel(logging.NOTSET)  # not by its attribute: loggers remember what is enabled
        patch.setattr(tempfile, "tempdir", None)  # found anew: a test may have set TMPDIR
        signal.setitimer(signal.ITIMER_REAL, LONG)
        yield


def hang(number: int, frame: object) -> None:
    """End a command that takes too long, as a fault of its own."""
    raise TimeoutError(f"it has not ended after {LONG:.0f} s")


def end(process: subprocess.Popen[str], code: int = 0, seconds: float = LONG) -> str:
    """Wait for a crawl to end with this exit code; what it printed.

    For 0 an end without a page will do: many tests make their store by a crawl of a host that is not there.
    """
    printed, _ = process.communicate(timeout=seconds)
    expected = (OVER, NOTHING) if code == OVER else (code,)
    assert process.returncode in expected, f"exit code {process.returncode}, not {code}: {printed}"
    assert "Traceback" not in printed, printed
    return printed


def wait_for(happened: Any, seconds: float = LONG) -> None:
    """Wait until something is true."""
    limit = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.02)


def wait_for_line(process: subprocess.Popen[str], words: str) -> str:
    """Wait until a process has printed a line with these words, and return it; it must print them, or end."""
    assert process.stdout
    for line in process.stdout:
        if words in line:
            return line
    raise AssertionError(f"it ended without a word of {words!r}")


def processes() -> Iterator[tuple[int, int, int, bytes]]:
    """(id, parent, group, command line) of each process; whichever goes while we look is left out."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent, group = (folder / "stat").read_text().rpartition(")")[2].split()[1:3]
            yield int(folder.name), int(parent), int(group), (folder / "cmdline").read_bytes()


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """The ids of a machine's worker processes; found below it, as a look at all processes takes long."""
    below = [pid for child in children(process.pid) for pid in (child, *children(child))]
    return [pid for pid in below if is_worker(pid)]


def children(pid: int) -> list[int]:
    """The ids of the children of a process."""
    found = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def is_worker(pid: int) -> bool:
    """Whether a process is a worker, which has this name once it has begun."""
    with suppress(OSError):
        folder = Path(f"/proc/{pid}")
        return (folder / "comm").read_text() == "crawl-worker\n"
    return False


def is_dead(pid: int) -> bool:
    """Whether nothing of a process runs any more: it is gone, or waits to be buried by its parent."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "ZX" for task in threads)
    except OSError:
        return not Path(f"/proc/{pid}").exists()


def kill(pid: int) -> None:
    """kill -9; that it is gone already does not matter."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class InSmallLots:
    """Makes a state machine one in which four lines are more than is read, or written anew, at a time."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(frontier, "MAX_LINES", 4)
        self.patch.setattr(frontier, "SMALL_PART", 2)
        super().__init__()

    def teardown(self) -> None:
        """Undo it."""
        super().teardown()  # type: ignore[misc]
        self.patch.undo()
