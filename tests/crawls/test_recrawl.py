"""A crawl that keeps up with a site: real machines, a real server, real kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab import browser
from lab.conditional import Pages, serving
from lab.world import COMMAND, crawler, end, wait_for

from crawler.errors import LIMIT, MISSING, OVER, STOPPED
from crawler.frontier.batches import from_lines
from crawler.store.store import Store

SITE = "http://news.example"
FLAGS = ["-w", "0.01", "-j", "1", "-t", "4", "-s", "shards=4", "-s", "heartbeat=0.5", "-s", "retry_delay=0.1s", "-q"]


@pytest.fixture
def web() -> Iterator[Pages]:
    pages: dict[str, str | int] = {f"/{number}": f"<p>page {number}" for number in range(5)}
    with serving({"/": "<p>front" + "".join(f"<a href={path}>x</a>" for path in pages), **pages}) as served:
        yield served


def command(web: Pages, root: Path, *args: str) -> list[str]:
    return [*COMMAND, "run", str(root), *args, "--connect-to", f"::127.0.0.1:{web.port}", *FLAGS]


def crawl(web: Pages, root: Path, *args: str, code: int = LIMIT) -> str:
    return end(start(web, root, *args), code)


def start(web: Pages, root: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(web, root, *args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def waiting(root: Path) -> list[str]:
    batches = sorted((root / "frontier").glob("*/[!.]*"))
    return sorted(task.name.removeprefix(SITE) for path in batches for task in from_lines(path.read_bytes()))


def changes(root: Path, *args: str) -> list[tuple[str, str]]:
    found = [json.loads(line) for line in crawler("changes", str(root), "--json", *args).splitlines()]
    return sorted((it["kind"], it["url"].removeprefix(SITE)) for it in found)


def record(root: Path, path: str) -> dict[str, Any]:
    found = Store(root).record(SITE + path)
    assert found is not None
    return found


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_a_refresh_asks_with_a_condition_and_changes_tells_what_it_found(
    web: Pages, tmp_path: Path, fetcher: str
) -> None:
    root = tmp_path / "store"
    said = crawl(web, root, f"{SITE}/", "--recrawl", "7d", "-s", f"fetcher={fetcher}", "-s", "history=all")
    assert len(waiting(root)) == 6, said
    assert json.loads(crawler("status", str(root), "--json"))["waiting"] == 0, "no URL waits, only visits"
    assert [kind for kind, _ in changes(root)] == ["new"] * 6
    time.sleep(1.1)
    web.pages |= {"/1": "<p>page one", "/2": 404, "/3": "->/new", "/new": "<p>new"}
    web.asked.clear()
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    assert "6 pages will be visited again" in crawler("refresh", str(root))
    crawl(web, root)
    assert {path: web.of(path) for path in ("/", "/0", "/1", "/2", "/3", "/4")} == {
        "/": [304],
        "/0": [304],
        "/1": [200],
        "/2": [404],
        "/3": [301],
        "/4": [304],
    }
    assert changes(root, "--since", since) == [("changed", "/1"), ("moved", "/3"), ("new", "/new")]
    counted = json.loads(crawler("status", str(root), "--json"))
    assert (counted["revisits"], counted["unchanged"], counted["changed"], counted["pages"]) == (6, 3, 2, 7)
    crawler("refresh", str(root), "--match", "/2$")
    crawl(web, root)
    assert ("gone", "/2") in changes(root, "--since", since)
    assert Store(root).text(f"{SITE}/2") == "<p>page 2", "the html stays"
    assert "-page 1" in crawler("diff", str(root), f"{SITE}/1", "--text")
    told = [line.split("\t") for line in crawler("history", str(root), f"{SITE}/1").splitlines()]
    assert [(line[1], line[3], line[4]) for line in told] == [
        ("200", "-", "1 visit, 0 changes"),
        ("200", "newest", "2 visits, 1 change"),
    ]
    crawler("diff", str(root), f"{SITE}/0", code=MISSING)
    assert f"-<p>page 3\n+moved to {SITE}/new" in crawler("diff", str(root), f"{SITE}/3")
    assert crawler("history", str(root), f"{SITE}/3").rstrip().endswith(f"\t-> {SITE}/new")
    assert "no stored page matches" in crawler("refresh", str(root), "--match", "nothing-like-this")
    web.pages["/2"] = "<p>page 2"
    crawler("refresh", str(root), "--match", "/2$")
    crawl(web, root)
    assert ("changed", "/2") in changes(root, "--since", since), "it was said to be gone"
    feed = ElementTree.fromstring(crawler("changes", str(root), "--since", since, "--feed", "atom"))
    assert len(feed.findall("{http://www.w3.org/2005/Atom}entry")) == 4, "with what is back instead of gone"
    assert "no problems" in crawler("check", str(root))


def test_a_time_limit_ends_no_crawl_whose_pages_are_visited_again(web: Pages, tmp_path: Path) -> None:
    command_line = [it for it in command(web, tmp_path / "store", f"{SITE}/", "--recrawl", "20s") if it != "-q"]
    said = crawler(*command_line[len(COMMAND) :], "--time-limit", "3s", code=LIMIT)
    assert "\nthe time or page limit was reached with visits to come; 6 pages, " in f"\n{said}"


def test_visits_come_when_they_are_due_and_survive_kills(web: Pages, tmp_path: Path) -> None:
    """Each machine of a series is killed; no page is lost, and none is visited much more often than its interval."""
    root = tmp_path / "store"
    began = time.monotonic()
    for kill in range(4):
        machine = start(web, root, *([f"{SITE}/"] if not kill else []), *(["--recrawl", "2s"] if not kill else []))
        seen = len(web.asked)
        wait_for(lambda seen=seen: len(web.asked) >= seen + 9, 60)
        os.killpg(machine.pid, signal.SIGKILL)
        machine.wait()
    seconds = time.monotonic() - began
    for path in web.pages:
        visits = len(web.of(path))
        assert 2 <= visits <= seconds / 2 + 1 + 4, "at its interval, and perhaps once more after each kill"
        assert record(root, path)["visits"] <= visits
    assert "no problems" in crawler("check", str(root), "--repair")


def as_before(root: Path) -> None:
    """Let records be as the version before wrote them, a long time ago: it knew nothing of visits."""
    for path in (root / "links").glob("*/*"):
        found = json.loads(path.read_text())
        assert not {"visits", "checked", "text_sha224"} & found.keys()
        path.write_text(json.dumps(found | {"fetched": "2025-01-01T00:00:00Z"}))
    (root / "frontier/.recrawl").unlink(missing_ok=True)


def test_a_store_from_before_gets_the_setting_and_is_not_fetched_all_at_once(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", code=OVER)
    as_before(root)
    said = crawler("set", str(root), "recrawl=10d")
    assert "recrawl null -> 10d; it counts from the next run on; that run then plans" in said
    web.asked.clear()
    crawl(web, root)
    assert web.asked == []
    dues = [
        task.due - time.monotonic()
        for path in (root / "frontier").glob("*/[!.]*")
        for task in from_lines(path.read_bytes())
    ]
    assert len(dues) == 6 and max(dues) <= 10 * 86400 and max(dues) - min(dues) > 86400, "spread over the interval"


def test_visits_that_the_setting_no_longer_wants_are_waited_for_by_nobody(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", "--recrawl", "7d")
    crawler("set", str(root), "recrawl={'/1$': 7d, '*': null}")
    crawl(web, root)
    assert waiting(root) == ["/1#revisit-2"]
    crawler("set", str(root), "recrawl=null")
    crawler("refresh", str(root), "--match", "/2$")
    web.asked.clear()
    crawl(web, root, code=OVER)
    assert [path for path, _ in web.asked if path != "/robots.txt"] == ["/2"], "what somebody asks for is visited"
    assert not waiting(root)
    crawler("set", str(root), "recrawl=7d")
    crawl(web, root)
    assert len(waiting(root)) == 6


def test_a_running_machine_takes_up_an_edit_and_plans_the_visits_of_the_pages_that_it_has(
    web: Pages, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", code=OVER)
    as_before(root)
    machine = start(web, root, "--forever")
    wait_for(lambda: '"state": "alive"' in crawler("status", str(root), "--json"), 120)
    web.asked.clear()
    said = crawler("set", str(root), "recrawl=5s")
    assert "recrawl null -> 5; the 1 machine at work will use it within a minute; one of them then plans" in said
    wait_for(lambda: len(web.asked) >= 13, 120)
    assert len({path for path, _ in web.asked[:6]}) == 6, "over the interval, each once before any comes again"
    crawler("set", str(root), "recrawl={'/1$': 1s, '*': null}")
    wait_for(lambda: {path for path, _ in web.asked[-5:]} == {"/1"}, 120)
    schedule = root / "frontier/.recrawl"
    wait_for(lambda: schedule.exists() and schedule.read_text() == "{'/1$': 1.0, '*': None}\n", 120)
    os.killpg(machine.pid, signal.SIGTERM)
    end(machine, STOPPED)
    assert not list(root.glob(".recrawl-lock*"))


@pytest.mark.fleet  # for time
def test_a_store_from_before_goes_on_with_visits_over_the_interval(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", code=OVER)
    as_before(root)
    crawler("set", str(root), "recrawl=8s")
    web.asked.clear()
    web.pages["/1"] = "<p>page one"
    machine = start(web, root, "--forever")
    wait_for(lambda: web.asked, 60)
    assert len({path for path, _ in web.asked}) < len(web.pages), "not all at once"
    said = crawler("set", str(root), "recrawl=9s")
    assert "the 1 machine at work will use it within a minute" in said
    wait_for(lambda: {path for path, _ in web.asked} >= web.pages.keys(), 60)
    machine.send_signal(signal.SIGINT)
    machine.wait()
    assert {status for path, status in web.asked if path in web.pages and path != "/1"} == {304}
    assert record(root, "/1")["changes"] == 1 and record(root, "/0")["visits"] >= 2
    assert "no problems" in crawler("check", str(root))


def test_a_lost_frontier_is_derived_from_the_records(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", "--recrawl", "7d")
    crawler("refresh", str(root))
    crawl(web, root)
    before = waiting(root)
    subprocess.run(["rm", "-r", str(root / "frontier")], check=True)
    crawl(web, root)
    assert set(waiting(root)) == {name for name in before if name.endswith("#revisit-3")}
    assert len(waiting(root)) == 6, "each page once"


@pytest.mark.fleet  # for time
def test_check_knows_older_versions_and_a_visit_that_was_killed_in_the_middle(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", "--recrawl", "7d", "-s", "history=2")
    web.pages["/1"] = "<p>page one"
    time.sleep(1.1)
    crawler("refresh", str(root), "--match", "/1$")
    crawl(web, root)
    assert "no problems" in crawler("check", str(root))
    (html,) = (path for path in (root / "htmls").glob("*/*") if b"page 2" in path.read_bytes())
    html.write_bytes(b"<p>a newer page 2")  # as a killed visit leaves it: its record is not there yet
    assert "changed-html" in crawler("check", str(root), code=MISSING)
    crawler("refresh", str(root), "--match", "/2$")
    said = crawler("check", str(root))
    assert "pages whose visit was interrupted, and will be made again (1)" in said and "no problems" in said
    (version,) = (root / "history").glob("*/*/*.json")
    version.write_text("nonsense")
    (version.parent / "notes.txt").touch()
    said = crawler("check", str(root), code=MISSING)
    assert "not the record of a version" in said and "notes.txt: not the name of a version" in said


def test_status_top_and_metrics_tell_how_fresh_the_store_is_whether_machines_run_or_not(
    web: Pages, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", "--recrawl", "7d")
    for path in list((root / "links").glob("*/*"))[:3]:  # as if the last visit had been ten days ago
        found = json.loads(path.read_text())
        path.write_text(json.dumps(found | {"fetched": "2026-01-01T00:00:00Z"}))
    found = json.loads(crawler("status", str(root), "--json"))
    assert (found["fresh"], found["due"], found["overdue"]) == (6, 0, 0)
    assert found["ages"] == {"sample": 6, "1 h": 0.5, "1 d": 0, "7 d": 0, "30 d": 0, "older": 0.5}
    assert re.search(
        r"^next visit: +due in (59\d|60\d),\d{3} s \(2", crawler("explain", str(root), f"{SITE}/1"), re.MULTILINE
    )
    crawler("refresh", str(root), "--match", "/[0-3]$")
    assert re.search("^next visit: +due now$", crawler("explain", str(root), f"{SITE}/1"), re.MULTILINE)
    told = crawler("status", str(root))
    assert "unchanged 0, changed 0, fresh 2, due 4, overdue 0" in told
    assert (
        "visited         within   1 h █ 50%, 1 d   0%, 7 d   0%, 30 d   0%, older █ 50% (a sample of 6 pages)" in told
    )
    machine = start(web, root, "--forever")
    wait_for(lambda: json.loads(crawler("status", str(root), "--json"))["unchanged"] == 4, 60)
    seen = crawler("top", str(root))
    assert "unchanged 4, changed 0, fresh 6, due 0, overdue 0" in seen and "last visited within 1 h " in seen
    assert " visits a second, " in seen and " of them unchanged" in seen
    with browser.serving(root) as served:
        metrics = served.ask("/metrics")[2].decode()
    assert "crawler_fresh_pages 6\n" in metrics and "crawler_unchanged_total 4\n" in metrics
    assert 'crawler_age_share{age="1 h"} ' in metrics
    machine.send_signal(signal.SIGINT)
    machine.wait()


def test_at_the_limit_of_pages_visits_go_on(web: Pages, tmp_path: Path) -> None:
    root = tmp_path / "store"
    crawl(web, root, f"{SITE}/", "--recrawl", "7d", "--max-pages", "3")
    stored = {found["url"].removeprefix(SITE) for found in Store(root).records()}
    assert len(stored) == 3
    web.asked.clear()
    crawler("refresh", str(root))
    loud = [it for it in command(web, root) if it != "-q"]
    ran = subprocess.run(loud, capture_output=True, text=True, check=False)
    assert ran.stdout.endswith(" pages a second; 3 visits of stored pages, 0 changed\n"), ran.stderr
    assert sorted(path for path, _ in web.asked if path != "/robots.txt") == sorted(stored)
    assert json.loads(crawler("status", str(root), "--json"))["pages"] == 3, "visits are no pages"
