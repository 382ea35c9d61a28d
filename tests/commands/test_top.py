"""`crawler top`: the whole fleet in a terminal, whatever the terminal, the store and the names in it are like."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import stores
from lab.frontiers import at
from lab.machines.fleet import WORKERS, Fleet, fleet
from lab.machines.mounts import Mount
from lab.terminal import LEAVE, terminal
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, Links, crawler, end, wait_for, world

from crawler.commands import main, stored
from crawler.commands import status as report
from crawler.commands.history import History, Outlook
from crawler.commands.top import screen as top
from crawler.commands.top.screen import Watcher
from crawler.commands.top.view import View, clip, draw, fit, resample, width_of
from crawler.crawl.worker.counters import Minutes
from crawler.errors import StoreAway, UsageError
from crawler.frontier import waiting
from crawler.frontier.table import Table
from crawler.frontier.task import Task
from crawler.frontier.waiting import PAUSE, Survey
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.terminal import PLAIN_BARS, as_time, size
from crawler.web.reasons import KINDS

EVIL = "\x1b]0;owned\x07\u202e漢字"
SLOW = Links({"/": [f"/{number}" for number in range(400)]} | {f"/{number}": [] for number in range(400)})


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A store that was made, and nothing else."""
    root = tmp_path / "empty"
    root.mkdir()
    StoreWriter(root).make(Settings())
    return root


def facts(number: int = 0, **more: Any) -> dict[str, Any]:
    """What a worker may say of itself."""
    return {
        "machine": f"m{number // 8:02d}",
        "name": f"node-{number // 8:02d}",
        "pages": 100,
        "waiting": 50,
        "rate": 2.5,
        "reasons": {"http-404": 3},
        "waiting_for": {"delay": 40, "retry": 10},
        "busiest": [[f"busy-{number}.example", 100]],
        "slowest": [[f"slow-{number}.example", 40, 2.0, 0.5]],
        **more,
    }


def crew(root: Path, count: int, beat: int = 1, **more: Any) -> None:
    """So many workers show a pulse."""
    for number in range(count):
        (root / "workers" / f"w{number:03d}@{beat - 1:06d}").unlink(missing_ok=True)
        (root / "workers" / f"w{number:03d}@{beat:06d}").write_bytes(to_json(facts(number, **more)))


# ---- as text


def test_into_a_pipe_goes_one_screen_of_plain_text(crawled_once: Path) -> None:
    found = json.loads(crawler("status", str(crawled_once), "--json"))
    said = crawler("top", str(crawled_once))
    host, pages = next(iter(found["busiest"].items()))
    assert f"{found['pages']:,} pages, " in said
    for kind in KINDS:
        assert f"{found[kind]:,} {kind}" in said
    assert sum(found[kind] for kind in KINDS) == sum(found["reasons"].values()) > 0
    assert re.search(rf"^{re.escape(host)} +{pages}$", said, re.MULTILINE)
    assert "no machine is running" in said
    assert "\x1b" not in said
    assert not any(line.endswith(" ") for line in said.splitlines())


def test_once_is_plain_text_on_a_terminal_too(crawled_once: Path) -> None:
    with terminal("top", str(crawled_once), "--once", columns=60) as t:
        t.process.wait()
        t.read()
        assert b"pages, " in t.said
        assert b"\x1b" not in t.said
        assert max(map(len, t.said.decode().splitlines())) <= 60


def test_an_empty_store_is_looked_at_like_any_other(empty: Path) -> None:
    said = crawler("top", str(empty))
    assert "0 pages, 0 bytes, 0.0 a second" in said
    assert "no machine is running" in said
    assert "free: " in said


def test_a_terminal_without_blocks_and_letters_gets_others(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    crew(empty, 1, name="漢字", pages=9000, minutes=[[150 * number, 1] for number in range(60)])
    said = crawler("top", str(empty))
    assert "?? m00, 1 worker" in said
    assert "####" in said


@pytest.mark.parametrize("every", ["0", "0.1", "often", "nan"])
def test_looks_that_would_come_too_often_are_refused(every: str) -> None:
    with pytest.raises(UsageError, match=f"--every: '{every}'"):
        main.read(["top", "store", "--every", every])


def test_what_is_no_store_is_said_in_one_sentence(tmp_path: Path) -> None:
    assert "is not a store" in crawler("top", str(tmp_path), code=5)


# ---- live


def test_a_crawl_is_seen_at_work_in_any_window_and_left_with_a_key(tmp_path: Path) -> None:
    with world(SLOW, tmp_path) as w:
        process = w.start("http://a.example/", "-w", "0.05", "-s", "heartbeat=0.3", "-j", "2")
        wait_for(lambda: (w.root / "README").exists() and w.urls())
        with terminal("top", str(w.root), "--every", "0.3s", lines=40, columns=100) as t:
            screen = t.wait(lambda screen: re.search(r"waiting: .*delay \d+", "\n".join(screen)))
            assert len(screen) <= 40
            assert all(width_of(line) <= 100 for line in screen)
            assert any(re.match(r"a\.example +\d+ +a\.example +\d+ +\d+ (s|min) +0\.1 s$", line) for line in screen)
            assert any(re.search(r", 2 workers .* alive ", line) for line in screen)
            first = pages(screen)
            t.wait(lambda screen: pages(screen) > first)
            t.resize(12, 40)
            screen = t.wait(lambda screen: len(screen) == 12 and all(width_of(line) <= 40 for line in screen))
            assert "lines above" in screen[-1]
            t.resize(30, 100)
            t.wait(lambda screen: any("machines" in line for line in screen))
            t.type(b"q")
            assert t.end() == 0
        process.send_signal(signal.SIGINT)
        end(process, 3)


def pages(screen: list[str]) -> int:
    """The pages that a screen tells of."""
    found = re.search(r"^([\d,]+) pages?, ", "\n".join(screen), re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.parametrize("how", [b"\x03", signal.SIGTERM, signal.SIGHUP])
def test_the_screen_is_given_back_however_it_ends(empty: Path, how: bytes | int) -> None:
    with terminal("top", str(empty)) as t:
        t.wait_for("no machine is running")
        t.type(how) if isinstance(how, bytes) else t.process.send_signal(how)
        assert t.end() == 0


def test_the_screen_is_given_back_before_a_fault_of_the_program_is_told(empty: Path) -> None:
    code = (
        "from crawler.commands import main\n"
        "from crawler.commands.history import Outlook\n"
        "look, looks = Outlook.look, []\n"
        "def fail(self):\n"
        "    looks.append(1)\n"
        "    return look(self) if len(looks) < 3 else looks['fault']\n"
        "Outlook.look = fail\n"
        "main.main()\n"
    )
    with terminal("top", str(empty), "--every", "0.2s", command=[sys.executable, "-c", code]) as t:
        assert t.end() == 70
        assert b"Traceback" in t.said.rpartition(LEAVE)[2]


def test_ctrl_z_gives_the_screen_back_and_it_is_taken_again(empty: Path) -> None:
    with terminal("top", str(empty)) as t:
        t.wait_for("no machine is running")
        t.type(b"\x1a")
        wait_for(lambda: t.read() or t.said.count(b"\x1b[?1049l") == 1)
        t.process.send_signal(signal.SIGCONT)
        wait_for(lambda: t.read() or t.said.count(b"\x1b[?1049h") == 2)
        t.wait_for("no machine is running")
        t.type(b"q")
        assert t.end() == 0


def test_a_store_that_goes_away_is_said_and_comes_back(empty: Path) -> None:
    with terminal("top", str(empty), "--every", "0.2s") as t:
        t.wait_for("no machine is running")
        empty.rename(empty.with_name("away"))
        t.wait_for("no store at")
        empty.mkdir()  # an empty folder, as where a mount was
        time.sleep(0.5)
        assert any("no store at" in line for line in t.screen())
        empty.rmdir()
        empty.with_name("away").rename(empty)
        t.wait(lambda screen: not any("there is no store" in line for line in screen))
        t.type(b"q")
        assert t.end() == 0


def test_a_store_that_hangs_is_said_while_it_does(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "HANGING", 0.2)
    answers = threading.Event()

    class Hanging(Outlook):
        def look(self, again: bool = False) -> dict[str, Any]:
            answers.wait(LONG)
            return super().look(again)

    near, far = os.pipe()
    watcher = Watcher(Hanging(Store(empty)), 0.2, far)
    threading.Thread(target=watcher.watch, daemon=True).start()
    wait_for(lambda: "the store has not responded for 0 seconds" in watcher.trouble())
    answers.set()
    wait_for(lambda: watcher.found and not watcher.trouble())
    assert os.read(near, 1)


def test_two_hundred_workers_are_scrolled(empty: Path) -> None:
    crew(empty, 200)
    with terminal("top", str(empty), lines=24, columns=80, NO_COLOR="1") as t:
        screen = t.wait_for("0 lines above")
        assert len(screen) == 24
        assert any(line.startswith("20,000 pages, 0 bytes, 500.0 a second") for line in screen)
        assert any(line.startswith("10,000 waiting: delay 8,000, retry 2,000") for line in screen)
        t.type(b"\x1b[6~" * 40)
        screen = t.wait_for(", 0 below")
        assert any(line.startswith("  w199 ") for line in screen)
        t.type(b"k" * 300)
        t.wait_for("0 lines above")
        t.type(b"q")
        assert t.end() == 0
        assert re.search(rb"\x1b\[[\d;]*m", t.said) is None


def test_colours_only_where_they_are_wanted_and_nothing_hostile(empty: Path) -> None:
    odd = {EVIL: 3}
    crew(
        empty,
        2,
        name=EVIL,
        busiest=[[EVIL, 3]],
        reasons=odd,
        waiting_for=odd,
        slowest=[[EVIL, 1, 1, 1]],
        blocked={"x": EVIL},
    )
    with terminal("top", str(empty), columns=40) as t:
        screen = t.wait_for("]0;owned")
        assert "\x1b[1mcrawler top" in t.said.decode()
        assert {char for line in screen for char in line if not char.isprintable()} <= {"\n", "\r"}
        assert b"\x1b]" not in t.said
        assert b"\x07" not in t.said
        assert all(width_of(line.strip("\r\n")) <= 40 for line in screen)
        t.type(b"q")
        assert t.end() == 0


@pytest.mark.fleet
def test_another_machine_that_mounts_the_store_sees_all_at_work_and_how_it_goes_on(
    kind: str, mounting: Callable[[str, int], Mount]
) -> None:
    with fleet(TreeWeb(hosts=20, fanout=6, depth=3, delay=0.2), mounting(kind, 3), delay=0.2) as f:
        for number in range(2):
            f.join(number)
        f.wait(lambda: len(f.counters()) == 2 * WORKERS and pages_of(f) > 20, "pages of all workers")
        before = [pages_of(f)]
        for _ in range(3):
            command = f.mount.command(2, [*COMMAND, "top", str(f.mount.at(2) / "store"), "--once"])
            said = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True).stdout
            assert len(re.findall(r", 2 workers .* alive ", said)) == 2, said
            assert before[-1] <= pages(said.splitlines())
            before.append(pages(said.splitlines()))
            time.sleep(1)
        assert before[-1] > before[1]


def pages_of(f: Fleet) -> int:
    """The pages that workers tell of."""
    return sum(counters["pages"] for counters in f.counters().values())


# ---- what is known


def test_what_is_under_a_name_is_read_once(empty: Path) -> None:
    read: list[str] = []

    class Noting(Files):
        def get(self, name: str) -> bytes | None:
            read.append(name)
            return super().get(name)

    crew(empty, 3)
    crew(empty, 3, beat=1)
    outlook = Outlook(Store(empty, Noting(empty)))
    assert outlook.look()["pages"] == 300
    read.clear()
    assert outlook.look()["pages"] == 300
    assert not [name for name in read if "@" in name]
    (empty / "workers" / "w001@000001").rename(empty / "workers" / "w001@000002.end")
    assert outlook.look()["pages"] == 300
    assert [name for name in read if "@" in name] == ["workers/w001@000002.end"]


def test_a_pulse_that_was_seen_to_go_on_is_alive_whatever_its_stamp_says(empty: Path) -> None:
    outlook = Outlook(Store(empty))
    for beat in (1, 2):
        crew(empty, 2, beat)
        for number in range(2 if beat == 1 else 1):
            os.utime(empty / "workers" / f"w{number:03d}@{beat:06d}", (1e9, 1e9))
        states = {worker["id"]: worker["state"] for worker in outlook.look()["workers"]}
    assert states == {"w000": "alive", "w001": "alive"}
    os.utime(empty / "workers" / "w001@000002", (1e9, 1e9))
    assert {worker["state"] for worker in Outlook(Store(empty)).look()["workers"]} == {"silent"}


def test_edits_of_crawl_yaml_are_seen_by_who_watches_and_a_wrong_one_is_said(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.commands.history.SELDOM", 0.0)
    crew(empty, 1)
    os.utime(empty / "workers" / "w000@000001", (time.time() - 60, time.time() - 60))
    outlook = Outlook(Store(empty))
    path = empty / "crawl.yaml"
    path.write_text(path.read_text().replace("dead_after: 30", "dead_after: 300"))
    assert [worker["state"] for worker in outlook.look()["workers"]] == ["alive"]
    path.write_text("dead_after: [")
    found = outlook.look()
    assert "crawl.yaml" in found["ignored_settings"][0]
    assert [worker["state"] for worker in found["workers"]] == ["silent"]


def test_what_is_stored_is_counted_in_the_folders_while_no_machine_is_at_work(
    crawled_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(shutil.copytree(crawled_once, tmp_path / "store", ignore=shutil.ignore_patterns("*@*")))
    names = ("pages", "redirects", "failed", "excluded", "unwanted", "reasons", "uncounted")
    whole, copy = (report.status(Store(it), again=False) for it in (crawled_once, root))
    assert {name: copy[name] for name in names} == {name: whole[name] for name in names}
    assert copy["pages"] == len(Store(root)) > 0
    assert Outlook(Store(root)).look()["pages"] == copy["pages"]
    monkeypatch.setattr(stored, "SECONDS", -1.0)  # as for a store that takes long
    assert report.status(Store(crawled_once), again=False)["pages"] == whole["pages"], "by the counters"
    assert report.status(Store(root), again=False)["uncounted"] == 8
    (root / "crawl.yaml").write_text("delay: soon")
    said = report.as_text(report.status(Store(root), again=False))
    assert f"no counters for the pages of 8 hosts; `crawler hosts {root}` counts them" in said
    for command in ("status", "top"):
        assert "delay is 'soon': must be a duration" in " ".join(crawler(command, str(root)).split())


def test_pages_that_a_killed_worker_did_not_report_are_counted_in_the_end(crawled_once: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(crawled_once, tmp_path / "store"))
    whole = report.status(Store(root), again=False)
    for path in (root / "workers").glob("*@*"):
        facts = json.loads(path.read_bytes())
        path.write_bytes(to_json(facts | {"pages": facts["pages"] // 2, "redirects": 0, "reasons": {}}))
    found = report.status(Store(root), again=False)
    for name in ("pages", "redirects", "failed", "excluded", "unwanted", "reasons"):
        assert found[name] == whole[name], name


def test_an_html_whose_record_was_not_written_is_no_page(crawled_once: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(crawled_once, tmp_path / "store"))
    whole = report.status(Store(root), again=False)
    host = next((root / "htmls").iterdir())
    for number in range(200):  # more than there are redirects: a number below 0 was shown for those
        (host / f"{number:024x}").write_text("<p>")
    found = report.status(Store(root), again=False)
    for name in ("pages", "redirects", "sitemaps"):
        assert found[name] == whole[name], name


def test_a_store_that_is_gone_is_not_taken_for_an_empty_one(empty: Path) -> None:
    outlook = Outlook(Store(empty))
    assert outlook.look()["pages"] == 0
    empty.rename(empty.with_name("away"))
    empty.mkdir()
    with pytest.raises(StoreAway, match="no store at"):
        outlook.look()


def test_strange_facts_of_workers_are_passed_over(empty: Path) -> None:
    strange: list[Any] = ["x", None, -1, [1], {"a": "b"}, [["a"]], [[1, 2]], {"a": {}}, float("nan"), 10**400, True]
    for number, value in enumerate(strange):
        odd = dict.fromkeys(facts(), value) | {"minutes": value, "blocked": value, "skipped": value, "bytes": value}
        (empty / "workers" / f"w{number:03d}@000001").write_text(json.dumps(odd))
    (empty / "workers" / "x@000001").write_text("[" * 100_000)
    (empty / "workers" / "y@000001").write_text('[["a", 1]]')
    assert "workers" in json.loads(crawler("status", str(empty), "--json"))
    assert "machines" in crawler("top", str(empty))


def test_workers_remember_how_their_counts_stood_each_minute_for_an_hour() -> None:
    minutes = Minutes(0.0)
    assert minutes.note((1, 5), 59.0) == []
    assert minutes.note((2, 4), 61.0) == [(2, 4)]
    assert minutes.note((9, 1), 190.0) == [(2, 4), (9, 1), (9, 1)]
    assert len(minutes.note((9, 1), 7200.0)) == 60


def test_one_who_looks_for_the_first_time_sees_the_last_hour_as_the_workers_remember_it(empty: Path) -> None:
    hour = [[number * 60, 1000 - number] for number in range(1, 61)]
    crew(empty, 1, minutes=hour, pages=3700, waiting=930)
    gone = empty / "workers" / "gone@000009.end"
    gone.write_bytes(to_json(facts(pages=500, minutes=[[100, 7], [400, 3]])))
    before = time.time() - 10 * 60
    os.utime(gone, (before, before))
    found = Outlook(Store(empty)).look()
    history = found["history"]
    assert [point["t"] for point in history] == sorted(point["t"] for point in history)
    assert history[-1]["pages"] == 4200
    ago = {round((found["when"] - point["t"]) / 60): point for point in history}
    assert (ago[1]["pages"], ago[1]["waiting"]) == (3600 + 500, 940)
    assert (ago[11]["pages"], ago[11]["waiting"]) == (50 * 60 + 400, 950 + 3)
    assert (ago[13]["pages"], ago[13]["waiting"]) == (48 * 60, 952)
    assert ago[1]["rate"] == ago[30]["rate"] == 1.0
    assert ago[11]["rate"] == (60 + 300) / 60


def test_a_long_history_keeps_few_points_and_close_ones_of_late() -> None:
    history = History([], 0.0)
    for second in range(20_000):
        history.note(float(second), 5 * second, 7, 1.0)
    points = history.points
    assert len(points) <= 600
    assert points[0]["t"] == 0
    assert [point["t"] for point in points[-100:]] == [float(second) for second in range(19_900, 20_000)]
    assert {point["rate"] for point in points[600:]} <= {5.0}
    assert points[-1] == {"t": 19_999.0, "pages": 99_995, "rate": 5.0, "waiting": 7}


def test_a_rate_is_what_workers_tell_until_there_were_looks_for_long_enough() -> None:
    history = History([{"t": -60.0, "pages": 0, "rate": 0.0, "waiting": 0}], 0.0)
    for second in range(12):
        history.note(float(second), 1000 + 3 * second, 0, 9.0)
    assert [point["rate"] for point in history.points] == [0.0, *[9.0] * 10, 3.0, 3.0]


# ---- what waits for what


def waiting_at(table: Table, host: str, count: int, due: float = 0.0) -> None:
    """So many URLs of a host wait, for their next attempt if they are due later."""
    tries = [Task(f"http://{host}/{due}/{number}", 1, int(due > 0), due) for number in range(count)]
    table.add(at(0, tries), 1)


@pytest.mark.parametrize("some", [2000, 2])
def test_a_worker_tells_what_its_urls_wait_for(some: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HOSTS_AT_ONCE", some)
    now, table = time.monotonic(), Table()
    for host, count in {"a": 1, "b": 10, "c": 20, "d": 30, "e": 40, "f": 50, "g": 0}.items():
        waiting_at(table, f"{host}.example", count)
    taken = [table.take(now) for _ in "abcde"]
    hosts = [found[1] for found in taken if found]
    assert [host.name for host in hosts] == [f"{name}.example" for name in "abcde"]
    for found in taken[1:]:
        assert found
        table.put_back(found[0])
    waiting_at(table, "b.example", 5, due=now + 1000)
    table.rest(hosts[1], now)
    table.rest(hosts[2], now + 1000, pace=2.0)
    table.rest(hosts[3], now + 1000, strain=2.0, pace=8.0)
    table.rest(hosts[4], now + 1000, pace=1.0)
    looked = Survey(table, Settings(delay=3.0), SYSTEM, lambda host: host == "e.example")
    for _ in range(10):
        found = looked.facts(afresh=True)
    assert found["waiting_for"] == {"in_flight": 1, "retry": 5, "turn": 60, "delay": 20, "strain": 30, "robots": 40}
    assert found["slowest"] == [
        ("d.example", 30, 8.0, 2.0),
        ("f.example", 50, 3.0, 0.0),
        ("e.example", 40, 1.0, 0.0),
        ("c.example", 20, 2.0, 0.0),
        ("b.example", 10, 3.0, 0.0),
    ]
    assert found["hosts"] == 6
    assert looked.facts(PAUSE)["waiting_for"]["pause"] == 60
    looked.adopt(Settings(delay=9.0))  # crawl.yaml was edited: it is the pace of hosts that were not asked yet
    looked.facts(afresh=True)
    assert looked.facts(afresh=True)["slowest"][0] == ("f.example", 50, 9.0, 0.0)


def test_what_is_told_of_many_hosts_is_of_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HOSTS_AT_ONCE", 10)
    table = Table()
    for number in range(100):
        waiting_at(table, f"host-{number:02d}.example", 10)
    first = Survey(table, Settings(), SYSTEM).facts()
    assert first["waiting_for"] == {"turn": 1000}
    assert len(first["slowest"]) == 10


def test_status_and_top_tell_what_machines_wait_for_before_they_ask(tmp_path: Path) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        process = w.start("http://a.example/", "-s", "min_free=900000G", "-j", "2")
        wait_for((w.root / "README").exists)
        wait_for(lambda: w.status()["blocked"].get("space", {}).get("workers") == 2)
        assert w.status()["waiting_for"] == {"space": 1}
        assert "blocked          space   only " in crawler("status", str(w.root))
        assert "2 workers blocked: only " in crawler("top", str(w.root))
        process.send_signal(signal.SIGINT)
        end(process, 3)


# ---- pictures and text


def test_a_graph_shows_the_mean_of_each_part_of_the_time_and_goes_on_where_nobody_looked() -> None:
    points = [{"t": 0.0, "rate": 2.0}, {"t": 1.0, "rate": 4.0}, {"t": 9.0, "rate": 8.0}]
    assert resample(points, 0.0, 10.0, 5) == [3.0, 3.0, 3.0, 3.0, 8.0]


def test_a_graph_is_as_tall_as_it_is_told_and_shows_that_little_is_more_than_nothing() -> None:
    assert draw([0.0, 0.01, 5.0, 10.0], 10.0, 2, " ▁▂▃▄▅▆▇█") == ["   █", " ▁██"]
    assert draw([10.0], 10.0, 1, PLAIN_BARS) == ["#"]


@pytest.mark.parametrize("width", range(12))
@pytest.mark.parametrize("text", ["", "a", "abcdefgh", "漢字漢字", "a\u0301bc\u0301d", "a漢b字"])
def test_text_is_cut_to_the_columns_that_it_takes(text: str, width: int) -> None:
    assert width_of(clip(text, width)) <= width
    assert width_of(fit(text, width)) == width
    assert clip(text, 12) == text


def test_times_and_sizes_are_told_in_one_unit() -> None:
    sizes = {0: "0 bytes", 26.7e3: "26.7 KB", 26.7e6: "26.7 MB", 53e9: "53.0 GB", 1.5e12: "1.5 TB"}
    assert [size(n) for n in sizes] == [*sizes.values()]
    assert [as_time(t) for t in (0, 59.6, 119, 120, 7199, 7200, 200_000)] == [
        "0 s",
        "60 s",
        "119 s",
        "2 min",
        "120 min",
        "2 h",
        "2 d",
    ]


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 5), (10, 3), (20, 8), (40, 10), (75, 24), (500, 200)])
def test_no_window_is_too_small_or_too_large(empty: Path, width: int, height: int) -> None:
    crew(empty, 20, minutes=[[1, 1]] * 60, blocked={"room": "only little is free " * 9})
    found = Outlook(Store(empty)).look()
    for offset in (0, 5, 1000):
        lines = View(width, height, offset).lines(found, "the store does not respond")
        assert len(lines) <= height
        assert all(width_of(line) <= width for line in lines)


# ---- what it costs


@pytest.mark.bench
def test_what_top_takes_on_a_store_of_100_000_pages(tmp_path: Path) -> None:
    stores.large(tmp_path / "store")
    crew(tmp_path / "store", 200)
    took = stores.measure("top", str(tmp_path / "store"), "--once")
    print(f"top of a store with 100,000 pages and 200 workers: {took.seconds:.1f} s, {took.megabytes} MB")
    assert took.code == 0
