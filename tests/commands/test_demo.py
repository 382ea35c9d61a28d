"""`crawler demo`: two machines, one of them killed, and a proof that can fail."""

from __future__ import annotations

import shlex
import signal
import subprocess
from pathlib import Path

from lab.world import COMMAND, crawler, end, wait_for_line

from crawler.commands.demo.demo import _prove, _was_in_flight
from crawler.commands.demo.expected import place
from crawler.commands.demo.two_machines import Killed
from crawler.commands.demo.web import DemoWeb
from crawler.errors import BUG, OVER

URL = "http://garden-000.example/"


def test_one_of_two_machines_is_killed_the_other_takes_over_and_every_page_is_there(tmp_path: Path) -> None:
    store = tmp_path / "demo"
    lines = crawler("demo", str(store), "--hosts", "30", "--pages", "300", "-j", "1").splitlines()
    told = [
        line for line in lines if "kill -9 machine 1" in line or "taken over" in line or "the crawl is over" in line
    ]
    assert [("kill" in line, "taken" in line) for line in told] == [(True, False), (False, True), (False, False)]
    assert any(line.startswith("every page is there: ") for line in lines)
    assert f"look at it: crawler serve {store}" in lines
    web, log = DemoWeb(hosts=30, pages=300), tmp_path / "demo.log"
    assert _prove(web.expected(), store, log, Killed(frozenset(), frozenset())) == OVER
    next(store.glob("links/*/*")).unlink()
    assert _prove(web.expected(), store, log, Killed(frozenset(), frozenset())) == BUG, "a page is missing"


def test_a_served_web_is_crawled_by_the_command_that_is_printed(tmp_path: Path) -> None:
    command = [*COMMAND, "demo", "--serve", "0", "--hosts", "5", "--pages", "20"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        pages = wait_for_line(server, "serving ").split()[1]
        words = shlex.split(wait_for_line(server, "crawler run STORE "))[1:]
        words[words.index("STORE")] = str(tmp_path / "store")
        crawler(*words, "-j", "1", "-s", "retry_delay=0.2s")
        status = crawler("status", str(tmp_path / "store"))
        assert status.split()[:2] == ["pages", pages]
    finally:
        server.send_signal(signal.SIGINT)
        end(server)


def test_only_what_was_in_flight_at_the_kill_may_be_requested_twice() -> None:
    assert not _was_in_flight(URL, 2, None)
    assert not _was_in_flight(URL, 2, Killed(frozenset({place(URL)}), frozenset()))
    assert not _was_in_flight(URL, 3, Killed(frozenset(), frozenset()))
    assert _was_in_flight(URL, 2, Killed(frozenset(), frozenset()))
