"""A worker that makes no progress is killed and replaced, and the page that it had in hand is to blame."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from lab.marks import later
from lab.world import Answers, World, end, is_dead, links, wait_for, wait_for_line, workers_of, world

# Loaded by each Python process of the crawl: reading a page with HANG in it never ends. In Python, or in a parser that
# lets go of Python's lock, the heartbeat goes on; `re` keeps the lock, and the heartbeat stops as well.
HANG = """
import os, re, time, turbohtml
parse = turbohtml.parse

def hang(text, *args, **kwargs):
    if "HANG" in text:
        with open(os.environ["HANGS"], "a") as hangs:
            hangs.write("x")
        while os.environ["HOW"] == "sleep":
            time.sleep(1)
        re.match("(a+)+$", "a" * 60 + "b")
    return parse(text, *args, **kwargs)

turbohtml.parse = hang
"""
# Each page takes an hour to write, in a thread of a worker: the loop goes on, and so do the heartbeats.
SLOW_MOUNT = """
import multiprocessing, os, re, time
rename = os.rename

def rename_slowly(old, new, **given):
    if multiprocessing.parent_process() and re.fullmatch("[0-9a-f]{24}", str(new)):
        with open(os.environ["HANGS"], "a") as hangs:
            hangs.write("x")
        time.sleep(3600)
    return rename(old, new, **given)

os.rename = rename_slowly
"""
SOON = ("-s", "heartbeat=0.5", "-s", "dead_after=4")  # a worker without progress for 3 s is killed
LARGE = "x" * (1 << 20)  # more than is read on the loop
A = "http://a.example/"


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a letter for each time that a worker hung on a page."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(HANG)
    found = tmp_path / "hangs"
    for name, value in {"PYTHONPATH": tmp_path / "site", "HANGS": found, "HOW": "re"}.items():
        monkeypatch.setenv(name, str(value))
    return found


def site(body: str = "HANG") -> Answers:
    """A page that hangs its reader, among others, with a link that only it has."""
    fine = [f"/{number}" for number in range(10)]
    pages = {"a.example/": links("/hang", *fine), "a.example/hang": body + links("/never")}
    return Answers(pages | dict.fromkeys((f"a.example{path}" for path in fine), "fine"))


def failure_of(w: World, url: str) -> dict[str, object]:
    return next(record for record in w.records("errs") if record["url"] == url)


@pytest.mark.parametrize("how", ["re", *later("sleep")])
@pytest.mark.parametrize("before", ["", *later(LARGE)], ids=["on-the-loop", "in-the-thread"])
def test_a_page_that_hangs_its_worker_twice_is_a_failure_and_the_crawl_ends(
    tmp_path: Path, hangs: Path, monkeypatch: pytest.MonkeyPatch, how: str, before: str
) -> None:
    monkeypatch.setenv("HOW", how)
    with world(site(f"{before} HANG"), tmp_path) as w:
        printed = w.crawl(*SOON)
        assert w.refusals() == {f"{A}hang": "worker-died"}
        assert failure_of(w, f"{A}hang")["detail"] == "the worker made no progress for 3 s"
        assert w.urls() == {f"http://{page}" for page in w.web.answers} - {f"{A}hang"}  # type: ignore[attr-defined]
        assert hangs.read_text() == "xx"
        assert printed.count(f"worker made no progress for 3 s on {A}hang; killing it") == 2


@pytest.mark.parametrize("how", ["re", *later("sleep")])
def test_sigterm_ends_a_machine_whose_worker_hangs(
    tmp_path: Path, hangs: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setenv("HOW", how)
    with world(site(), tmp_path) as w:
        machine = w.start(*w.web.seeds(), *SOON)
        wait_for(hangs.exists)
        machine.send_signal(signal.SIGTERM)
        end(machine, 3)


@pytest.mark.fleet  # for time
def test_sigterm_ends_a_machine_whose_mount_is_too_slow_to_write_what_it_has(tmp_path: Path, hangs: Path) -> None:
    (tmp_path / "site" / "sitecustomize.py").write_text(SLOW_MOUNT)
    flags = (*SOON, "-s", "timeout=3s")
    with world(site("fine"), tmp_path) as w:
        machine = w.start(*w.web.seeds(), *flags)
        wait_for(hangs.exists)
        began = time.monotonic()
        machine.send_signal(signal.SIGTERM)
        printed = end(machine, 3)
        assert time.monotonic() - began >= 11, "it has the time of a request and of two takeovers"
        assert "could not finish in time" in printed and "worker died" not in printed
        (tmp_path / "site" / "sitecustomize.py").unlink()
        w.crawl(*flags)
        assert len(w.urls()) == 12 and w.refusals() == {f"{A}never": "http-404"}


@pytest.mark.fleet  # for time
def test_machines_do_not_hang_one_after_the_other(tmp_path: Path, hangs: Path) -> None:
    with world(site(), tmp_path) as w:
        machines = [w.start(*w.web.seeds(), *SOON) for _ in range(3)]
        for machine in machines:
            end(machine)
        assert hangs.read_text() == "xx", "on one machine or on two, whoever comes next: the blame goes along"
        assert w.refusals() == {f"{A}hang": "worker-died"}
        assert len(w.urls()) == 11


@pytest.mark.fleet  # for time
def test_a_worker_that_is_suspended_is_replaced_and_no_page_is_lost(tmp_path: Path) -> None:
    with world(site("fine"), tmp_path) as w:
        machine = w.start(*w.web.seeds(), *SOON, "-w", "0.3")
        w.until(3)
        (worker,) = workers_of(machine)
        os.kill(worker, signal.SIGSTOP)
        wait_for_line(machine, "worker made no progress for 3 s; killing it")
        wait_for(lambda: is_dead(worker))
        end(machine)
        assert w.refusals() == {f"{A}never": "http-404"}
        assert len(w.urls()) == 12


@pytest.mark.fleet  # for time
def test_a_machine_that_was_suspended_as_a_whole_kills_none_of_its_workers(tmp_path: Path) -> None:
    with world(site("fine"), tmp_path) as w:
        machine = w.start(*w.web.seeds(), *SOON, "-w", "0.3")
        w.until(3)
        suspended = [*workers_of(machine), machine.pid]
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in suspended:
                os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(4.5)
        assert "no progress" not in end(machine)
        assert len(w.urls()) == 12


def test_an_exclude_pattern_that_backtracks_holds_nobody_up(tmp_path: Path) -> None:
    long = "/" + "a" * 60
    pages = {"a.example/": links(long, "/b/c.pdf"), f"a.example{long}": "fine", "a.example/b/c.pdf": "excluded"}
    with world(Answers(pages), tmp_path) as w:
        w.crawl("--exclude", r"/([\w-]+/?)+\.pdf$")
        assert w.urls() == {A, f"http://a.example{long}"}


def test_a_pattern_that_cannot_be_had_in_linear_time_is_refused_by_name(tmp_path: Path) -> None:
    with world(site("fine"), tmp_path) as w:
        printed = w.crawl("--exclude", r"/(\w+)/\1/", code=2)
        assert "exclude" in printed and "it has a back reference such as \\1; write out" in printed
        assert not w.root.exists()


# The heartbeat thread meets a bug outside of what it expects to fail.
NO_HEARTBEAT = """
import os
from crawler.crawl.worker.upkeep import Upkeep
beat_interval = Upkeep.beat_interval

def fail_once(self):
    if len(self._frontier.owned) and not os.path.exists(os.environ["HANGS"]):
        open(os.environ["HANGS"], "w").close()
        raise SystemExit("no more heartbeats")
    return beat_interval(self)

Upkeep.beat_interval = fail_once
"""


def test_a_worker_whose_heartbeat_thread_ended_is_replaced(tmp_path: Path, hangs: Path) -> None:
    (tmp_path / "site" / "sitecustomize.py").write_text(NO_HEARTBEAT)
    with world(site("fine"), tmp_path) as w:
        machine = w.start(*w.web.seeds(), "-w", "0.1")
        printed, _ = machine.communicate(timeout=120)
        assert machine.returncode == 0, printed
        assert "the heartbeat thread ended (SystemExit('no more heartbeats')); this worker is replaced" in printed
        assert len(w.urls()) == 12
