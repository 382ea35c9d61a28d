"""An operator's word to machines at work (stop, pause, resume, add), and what status tells of them."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab.webs import TreeWeb
from lab.world import COMMAND, Answers, Links, World, crawler, end, html, kill, wait_for, workers_of, world

from crawler import Store, errors
from crawler.commands import run, status
from crawler.commands.demo.server import requested_twice
from crawler.commands.demo.web import WebReply
from crawler.crawl.start import begin
from crawler.crawl.worker.counters import RecentRate
from crawler.fleet import control, members
from crawler.fleet.heartbeats import Heartbeat
from crawler.frontier.batches import Outbox
from crawler.frontier.task import Task, shard_of_host
from crawler.settings.settings import Settings, check
from crawler.store.clock import Clock
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.terminal import many

HERE = ["-j", "1", "-t", "2"]
SLOW = ["-w", "10", *HERE]
WEB = TreeWeb(hosts=12, fanout=3, depth=5)  # so slowly, this takes five minutes: it cannot be over too soon
LONG = 240.0  # seconds that a busy computer may take for anything


@contextmanager
def machines(w: World, count: int, *args: str) -> Iterator[list[subprocess.Popen[str]]]:
    """So many machines at work on one store, slowly."""
    with none_left(w.start(*w.web.seeds(), *SLOW, *args)) as running:
        wait_for(lambda: (w.root / "README").exists(), LONG)
        running += [w.start(*SLOW, *args) for _ in range(count - 1)]
        wait_for(lambda: states(w) == ["alive"] * count, LONG)
        yield running


@contextmanager
def none_left(process: subprocess.Popen[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that do not outlive the test; more may be added."""
    running = [process]
    try:
        yield running
    finally:
        for process in running:
            for pid in [process.pid, *workers_of(process)]:
                kill(pid)
            process.communicate()


def look(w: World) -> members.Members:
    """What status goes by, without a process for each look."""
    return members.look(Files(w.root), Settings(dead_after=6.0), again=False)


def states(w: World) -> list[str]:
    return [machine["state"] for machine in look(w).machines]


def hurry(w: World) -> None:
    """Let the next run be a quick one."""
    settings = w.root / "crawl.yaml"
    settings.write_text(re.sub("^delay: .*$", "delay: 0.01", settings.read_text(), flags=re.MULTILINE))


def words(w: World) -> set[str]:
    """What is in workers/ besides pulses."""
    return {path.name for path in (w.root / "workers").glob("[!.]*") if "@" not in path.name}


def told(w: World, command: str, *args: str, code: int = 0) -> str:
    return crawler(command, str(w.root), *args, code=code)


def test_stop_ends_all_machines_in_good_order_and_a_later_run_completes_the_crawl(tmp_path: Path) -> None:
    with world(WEB, tmp_path) as w, machines(w, 3) as running:
        w.until(3)
        said = told(w, "stop")
        assert "told 3 machines to stop" in said
        assert "3 machines have stopped cleanly" in said
        for process in running:
            assert "stopping: `crawler stop`" in end(process, 3, LONG)
        assert {path.name.split("@")[1] for path in (w.root / "shards").iterdir()} == {"free"}
        assert words(w) == set()
        assert w.waiting()
        hurry(w)
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}


def test_a_word_to_a_machine_of_old_does_not_hurt_a_later_run_and_is_removed_in_time(tmp_path: Path) -> None:
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.crawl()
        workers = w.root / "workers"
        for name in ("00000001.stop", "00000001.machine", "00000002.stop"):
            (workers / name).write_text("")
        long_ago = time.time() - 2 * control.ABANDONED
        for name in ("00000001.stop", "00000001.machine"):
            os.utime(workers / name, (long_ago, long_ago))
        w.run(w.web.url("/later"))
        assert w.urls("errs") == {w.web.url("/later")}, "it went on to the end"
        assert words(w) == {"00000002.stop"}, "its machine may still come back"


@pytest.fixture
def resting(tmp_path: Path) -> Path:
    """A store that nobody is at work on, with a URL that waits."""
    root = tmp_path / "store"
    begin(root, {"shards": 4}, ["https://example.org/"], "me", lambda _: None)
    control.withdraw(Files(root), "me")
    return root


def test_with_nobody_at_work_there_is_nothing_to_stop(resting: Path) -> None:
    assert "no machine is running" in crawler("stop", str(resting))
    assert list((resting / "workers").iterdir()) == []


def test_a_machine_whose_workers_have_not_started_yet_is_told_too(tmp_path: Path) -> None:
    with world(WEB, tmp_path) as w:
        process = w.start(*w.web.seeds(), *SLOW)
        with none_left(process):
            wait_for(lambda: any(name.endswith(".machine") for name in words(w)), LONG)
            os.kill(process.pid, signal.SIGSTOP)  # most likely before any of its workers runs
            stopping = subprocess.Popen([*COMMAND, "stop", str(w.root)], stdout=subprocess.PIPE, text=True)
            wait_for(lambda: any(name.endswith(".stop") for name in words(w)), LONG)
            os.kill(process.pid, signal.SIGCONT)
            end(process, 3, LONG)
            assert "told 1 machine to stop" in end(stopping, seconds=LONG)
            assert words(w) == set()


# A machine that is killed between its announcement and its first heartbeat.
KILLED_EARLY = """
import os, signal, sys
from crawler.fleet import members
from crawler.fleet.local_lock import LocalLock
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
lock = LocalLock("00000001")
members.announce(Files(sys.argv[1]), "00000001")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_machine_that_died_here_before_its_first_pulse_is_not_waited_for(resting: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_EARLY, str(resting)], check=False)
    assert [machine["state"] for machine in members.look(Files(resting), Settings()).machines] == ["ended"]
    assert "no machine is running" in crawler("stop", str(resting))
    assert list((resting / "workers").iterdir()) == [], "and nothing is left of it"


def test_a_machine_elsewhere_that_shows_no_pulse_is_not_waited_for_longer_than_a_start_takes(resting: Path) -> None:
    now, said = [0.0], []
    members.announce(Files(resting), "00000001")
    clock = Clock(lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    assert control.stop(Store(resting), said.append, clock)
    assert now[0] <= control.START_WAIT + 1
    assert "00000001" in said[-1] and "is silent: if it is dead" in said[-1]
    assert (resting / "workers" / "00000001.stop").exists(), "if it was only slow, it stops when it starts"


@pytest.mark.fleet  # for time
def test_a_paused_crawl_asks_nobody_keeps_its_pulse_and_goes_on_when_told(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=12, fanout=3, depth=4), tmp_path) as w, machines(w, 1, "-w", "1") as running:
        w.until(6)
        # In this process, because that is quicker than the crawl.
        assert "1 machine stops requesting" in control.pause(Store(w.root))
        rest(w)
        assert "paused already" in told(w, "pause")
        asked, before = len(w.log), beats(w)
        running.append(w.start("-w", "1", *HERE))
        wait_for(lambda: len(beats(w)) == 2 and all(beats(w)[id] > beat + 3 for id, beat in before.items()), LONG)
        assert w.status()["paused"] is True
        assert "paused" in told(w, "status")
        assert len(w.log) == asked, "nobody was asked"
        assert "2 machines resume" in told(w, "resume")
        assert "not paused" in told(w, "resume")
        for process in running:
            printed = end(process, seconds=LONG)
            assert "paused: no requests until `crawler resume" in printed
            assert "resumed" in printed
        assert w.differences() == []
        assert requested_twice(w.log) == {}


def beats(w: World) -> dict[str, int]:
    """How often each worker has shown a sign of life."""
    found = [Heartbeat.of(path.name) for path in (w.root / "workers").glob("[!.]*")]
    return {heartbeat.id: heartbeat.beat for heartbeat in found if heartbeat}


def rest(w: World) -> None:
    """Wait until all workers have seen that the crawl is paused, and have nothing in flight."""
    before = beats(w)
    wait_for(lambda: all(beats(w)[id] > beat + 3 for id, beat in before.items()), LONG)
    wait_for(lambda: not sum(worker["in_flight"] for worker in look(w).workers), LONG)


def test_a_paused_machine_obeys_stop_and_ctrl_c(tmp_path: Path) -> None:
    with world(WEB, tmp_path) as w, machines(w, 2) as running:
        told(w, "pause")
        rest(w)
        running[0].send_signal(signal.SIGINT)
        end(running[0], 3, LONG)
        assert "told 1 machine to stop" in told(w, "stop")
        end(running[1], 3, LONG)
        assert words(w) == {"pause"}
        assert "no machine is running" in told(w, "resume")
        assert words(w) == set()


def test_urls_added_to_a_running_crawl_are_asked_by_it_and_widen_its_scope(tmp_path: Path) -> None:
    news = {"http://b.example/": ["http://b.example/2"], "http://b.example/2": []}
    web = Links({"/": ["/a", "http://b.example/"], "/a": [], **news})
    with world(web, tmp_path) as w:
        given = {"delay": 0.1, "heartbeat": 0.5, "scope": "host"}
        begin(w.root, check(given, "test"), web.seeds(), "me", lambda _: None)
        control.withdraw(Files(w.root), "me")
        control.pause(Store(w.root))  # so that it cannot be over before we have added
        process = w.start(*HERE, quick=False)
        with none_left(process):
            wait_for(lambda: states(w) == ["alive"], LONG)
            listed = tmp_path / "list.txt"
            listed.write_text("# more\nhttp://b.example/\n")
            said = told(w, "add", web.url("/gone"), "-i", str(listed))
            assert said.startswith("2 URLs added; 1 machine is running, and the crawl is paused")
            told(w, "resume")
            end(process, seconds=LONG)
        assert w.urls() == set(web.pages)
        assert w.urls("errs") == {web.url("/gone")}
        assert requested_twice(w.log) == {}


@pytest.mark.fleet  # for time
def test_urls_added_to_a_resting_crawl_wait_for_the_next_run(tmp_path: Path) -> None:
    web = Links({"/": [], "/later": ["/found"], "/found": []})
    with world(web, tmp_path) as w:
        w.crawl()
        added = told(w, "add", web.url("/later"), web.url("/"))
        assert added == (
            f"2 URLs added (1 of them already done); no machine is running; `crawler run {w.root}` resumes the crawl\n"
        )
        assert "nothing new" in told(w, "add", web.url("/later"), web.url("/"))
        assert w.status()["waiting"] == 1
        w.run()
        assert w.urls() == set(web.pages)
        assert requested_twice(w.log) == {}


@pytest.mark.fleet  # for time
def test_added_urls_are_requested_in_the_order_of_their_priorities_also_after_a_rehydration(tmp_path: Path) -> None:
    web = Links({"/": [], "/low": [], "/usual": [], "/high": []})
    with world(web, tmp_path) as w:
        w.crawl("-s", "spread=host", "--no-robots")
        for path, given in (("/low", ["--priority", "0"]), ("/usual", []), ("/high", ["--priority", "10"])):
            told(w, "add", web.url(path), *given)
        shutil.rmtree(w.root / "frontier")
        told(w, "rehydrate")
        assert "priority:   10 of 10, by `crawler add --priority`" in told(w, "explain", web.url("/high"))
        w.run("-j", "1", "-t", "1")
        assert w.asked() == [f"a.example{path}" for path in ("/", "/high", "/usual", "/low")]


def test_a_url_that_waits_gets_the_priority_with_which_it_is_added_again(tmp_path: Path) -> None:
    web = Links({"/": [], "/1": [], "/2": [], "/3": []})
    with world(web, tmp_path) as w:
        w.crawl("-s", "spread=host", "--no-robots")
        told(w, "add", *(web.url(f"/{number}") for number in (1, 2, 3)))
        told(w, "add", web.url("/3"), "--priority", "7")
        told(w, "add", web.url("/1"), "--priority", "2")
        w.run("-j", "1", "-t", "1")
        assert w.asked()[1:] == [f"a.example/{number}" for number in (3, 2, 1)]


@pytest.mark.parametrize("given", ["11", "-1", "high", "1.5"])
def test_a_priority_is_a_number_from_0_to_10(resting: Path, given: str) -> None:
    said = crawler("add", str(resting), "http://a.example/x", f"--priority={given}", code=errors.USAGE)
    assert f"{given!r} must be a whole number from 0 to 10" in said
    assert list((resting / "seeds").glob("*priority*")) == []


def test_a_crawl_that_ends_while_urls_are_added_loses_none_of_them(tmp_path: Path) -> None:
    # Whoever takes them up (the run that is about to end, or the next one), each is asked once.
    web = Links({"/": [], **{f"/{number}": [] for number in range(3)}})
    with world(web, tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(2)
        for number in range(3):
            assert "1 URL added" in told(w, "add", web.url(f"/{number}"))
        end(process, seconds=LONG)
        w.run()
        assert w.urls() == set(web.pages)
        assert requested_twice(w.log) == {}


def test_what_is_not_a_url_is_not_added(resting: Path) -> None:
    for args, hint in (
        (["example.org"], "https://example.org"),
        (["https://example.org/2", "ftp://example.org/"], "'ftp://example.org/'"),
        (["-i", "-"], "line 2: 'wrong'"),
        ([], "nothing to add"),
    ):
        said = crawler("add", str(resting), *args, code=2, stdin="https://example.org/3\nwrong\n").strip()
        assert said.startswith("crawler: ")
        assert hint in said
        assert len(said.splitlines()) == 1
    assert len(list((resting / "seeds").iterdir())) == 1, "nothing was added"


def test_a_folder_that_is_no_store_is_named(tmp_path: Path) -> None:
    assert "does not exist" in crawler("stop", str(tmp_path / "nowhere"), code=5)
    assert "is not a store" in crawler("pause", str(tmp_path), code=5)
    assert "is not a store" in crawler("add", str(tmp_path), "https://example.org/", code=5)
    assert list(tmp_path.iterdir()) == []
    assert "crawler add STORE https://" in crawler("add", "https://example.org/", code=2)


@pytest.mark.fleet  # for time
def test_a_machine_that_hangs_is_silent_and_obeys_when_it_wakes_up(tmp_path: Path) -> None:
    with world(WEB, tmp_path) as w, machines(w, 1, "-s", "dead_after=6") as (process,):
        pids = [process.pid, *workers_of(process)]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: states(w) == ["silent"], LONG)
        found = w.status()
        assert [worker["state"] for worker in found["workers"]] == ["silent"]
        assert found["workers"][0]["age"] >= 6
        assert found["rate"] == 0
        text = told(w, "status")
        assert re.search(r"^machines +0   1 silent$", text, re.MULTILINE)
        assert re.search(r"^machine \w+ on .*: 1 worker, silent, seen \d+ s ago$", text, re.MULTILINE)
        assert "is silent" in told(w, "stop")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        end(process, 3, LONG)
        assert words(w) == set()


@pytest.mark.fleet  # for time
def test_status_for_scripts_has_machines_workers_rate_and_pause(tmp_path: Path) -> None:
    with world(WEB, tmp_path) as w, machines(w, 2) as running:
        wait_for(lambda: any(worker["rate"] for worker in look(w).workers), LONG)
        found = w.status()
        assert {
            "store",
            "pages",
            "redirects",
            "retries",
            "bytes",
            "skipped",
            "failed",
            "excluded",
            "unwanted",
            "reasons",
            "waiting",
        } <= found.keys()
        assert {"busiest", "paused", "rate", "machines", "workers"} <= found.keys()
        ids = {machine["id"] for machine in found["machines"]}
        assert {worker["machine"] for worker in found["workers"]} == ids
        for member in [*found["machines"], *found["workers"]]:
            assert {"id", "name", "state", "age", "rate", "pages", "waiting", "in_flight", "shards"} <= member.keys()
        text = told(w, "status")
        assert (
            len(re.findall("^machine ", text, re.MULTILINE)) == len(re.findall("^  worker ", text, re.MULTILINE)) == 2
        )
        told(w, "stop")
        for process in running:
            end(process, 3, LONG)


def test_status_shows_many_workers_only_when_asked_and_no_control_characters(resting: Path) -> None:
    odd: dict[str, Any] = {"machine": "m1", "name": "\x1b[31mred\n", "busiest": [["\x07host", 3]], "shards": "x"}
    for number in range(9):
        (resting / "workers" / f"w{number}@000001").write_text(json.dumps({**odd, "refusals": {"\x1bodd": 1}}))
    (resting / "workers" / "x\x1by@000001").write_text('{"machine": "../../escape"}')
    text = crawler("status", str(resting))
    assert "machine m1 on \ufffd[31mred\ufffd: 9 workers, " in text
    assert "  worker " not in text
    shown = crawler("status", str(resting), "-v")
    assert shown.count("  worker ") == 10
    assert not any(char in text + shown for char in "\x1b\x07")


def test_a_clock_that_is_wrong_does_not_make_a_worker_silent(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    files = Files(tmp_path)
    settings = Settings(heartbeat=1.0, dead_after=5.0)
    long_ago = time.time() - 1000
    names = [tmp_path / "workers" / f"ann@{beat:06d}" for beat in range(1, 1000)]
    for id in ("ann", "bob"):
        (tmp_path / "workers" / f"{id}@000001").write_text('{"machine": "m"}')
        os.utime(tmp_path / "workers" / f"{id}@000001", (long_ago, long_ago))
    assert {worker["state"] for worker in members.look(files, settings, again=False).workers} == {"silent"}
    over = threading.Event()

    def beat() -> None:
        for old, new in itertools.pairwise(names):
            if over.wait(0.05):
                return
            old.rename(new)  # which leaves its time as it is

    beating = threading.Thread(target=beat)
    beating.start()
    found = members.look(files, settings)
    over.set()
    beating.join()
    assert {worker["id"]: worker["state"] for worker in found.workers} == {"ann": "alive", "bob": "silent"}
    assert [machine["state"] for machine in found.machines] == ["alive"]


def test_the_age_of_a_pulse_does_not_depend_on_what_its_worker_takes_for_the_time(tmp_path: Path) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "ann@000001").write_text('{"machine": "m", "when": "1999-01-01T00:00:00Z"}')
    (worker,) = members.look(Files(tmp_path), Settings()).workers
    assert worker["state"] == "alive"


def test_what_a_machine_has_left_counts_as_waiting_before_another_takes_it(tmp_path: Path) -> None:
    files = Files(tmp_path, "gone")
    store = StoreWriter(tmp_path, files)
    store.make(Settings(shards=2))
    hosts = [host for host in (f"{letter}.example" for letter in "abcdefgh") if shard_of_host(host, 2) == 0]
    Outbox(files, Settings(shards=2)).send(Task(f"http://{host}/") for host in hosts)
    files.put("workers/ann@000001", b'{"machine": "m", "waiting": 5}')
    assert status.status(store)["waiting"] == 5 + len(hosts)
    files.claim("shards/000@free", "shards/000@ann")
    assert status.status(store)["waiting"] == 5, "ann has read them"
    files.claim("shards/000@ann", "shards/000@bob")
    assert status.status(store)["waiting"] == 5 + len(hosts), "bob has died"


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = RecentRate(0.0)
    assert rate.note(0, 0.0) == 0
    assert rate.note(50, 10.0) == 5
    for second in range(11, 60):
        rate.note(50, float(second))
    assert rate.note(50, 60.0) == pytest.approx(50 / 60, abs=0.01)
    for second in range(61, 140):
        last = rate.note(50, float(second))
    assert last == 0


def test_one_page_two_pages() -> None:
    assert [many(count, "page") for count in (0, 1, 2, 1000)] == ["0 pages", "1 page", "2 pages", "1,000 pages"]


def test_status_tells_in_one_line_what_was_skipped_and_by_which_rule(resting: Path) -> None:
    assert "skipped" not in crawler("status", str(resting))
    counted = [
        {"traps": {"repeat": 5, "session": 7}, "skipped": 5, "limits": {"max_per_host": 5}},
        {"traps": {"repeat": 7, "calendar": 1014}, "skipped": 2, "limits": {"max_hosts_per_domain": 2}},
        {},
    ]
    for number, counters in enumerate(counted):
        (resting / "workers" / f"w{number}@000009.end").write_text(json.dumps(counters))
    found = json.loads(crawler("status", str(resting), "--json"))
    assert (found["skipped"], found["traps"]) == (7, {"calendar": 1014, "repeat": 12, "session": 7})
    assert found["limits"] == {"max_per_host": 5, "max_hosts_per_domain": 2}
    limits = "beyond max_per_host 5, beyond max_hosts_per_domain 2"
    line = f"skipped          1,033   calendar 1,014, repeat 12, {limits}, session 7 (only the id)"
    assert line in crawler("status", str(resting)).splitlines()


def test_the_last_word_of_a_run_speaks_of_work_left_only_if_something_waits(crawled_once: Path, tmp_path: Path) -> None:
    code, said = run._last_line(crawled_once, errors.STOPPED, 300, 150.0)
    assert code == errors.STOPPED
    assert said.startswith("stopped (Ctrl-C, SIGTERM, crawler stop); ")
    assert said.endswith(f", nothing waiting in {crawled_once}; this run: 2 min, 2.0 pages a second")
    begin(tmp_path / "store", {"shards": 4}, ["https://example.org/"], "me", lambda _: None)
    said = run._last_line(tmp_path / "store", errors.STOPPED, 0, 0.0)[1]
    assert said.startswith("stopped with work left (Ctrl-C, SIGTERM, crawler stop); ")
    assert said.endswith(f", 1 waiting in {tmp_path / 'store'}; this run: 0 s, 0.0 pages a second")


def test_a_crawl_that_is_over_without_a_page_says_so_with_a_code_of_its_own_and_one_that_has_pages_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Answers({"a.example/": WebReply(404)})
    with world(web, tmp_path) as w:
        for _ in range(2):  # the same command again says the same
            said = w.crawl(code=errors.NOTHING)
            assert "the crawl is over, but has no page: every URL failed or was left out; 0 pages" in said
        web.answers["a.example/"] = html("back")
        crawler("retry", str(w.root))
        for _ in range(2):
            w.run()
            assert run._last_line(w.root, errors.OVER, 0, 0.0)[0] == errors.OVER
        found = status.status(Store(w.root)) | {"pages": 0}  # somebody has removed the counters
        monkeypatch.setattr(status, "status", lambda *_, **__: found)
        assert run._last_line(w.root, errors.OVER, 0, 0.0)[0] == errors.OVER
