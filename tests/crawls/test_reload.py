"""Edits of crawl.yaml while machines are at work: applied by all of them, or ignored by name; never half."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import at
from lab.machines.mounts import Mount
from lab.world import SHARDS, Links, World, crawler, end, kill, wait_for, wait_for_line, workers_of, world

from crawler.crawl.reload import SettingsWatcher, Verdict, judge, read
from crawler.crawl.scoreboard import SETTINGS_BYTES, Scoreboard
from crawler.crawl.start import begin
from crawler.errors import StoreError, UsageError
from crawler.fleet.heartbeats import read_counters
from crawler.frontier.limits import Limits
from crawler.frontier.scope import Seeds
from crawler.frontier.table import Table
from crawler.frontier.task import Task, sitemap_task
from crawler.settings import settings as config
from crawler.settings.settings import FIXED, LIVE, Settings
from crawler.store.mount import Files
from crawler.store.store import Store, open_store
from crawler.web import urls

A = "http://a.example"
HERE = ["-j", "1", "-t", "2", "-s", "heartbeat=0.1", "-s", "spread=host"]


def edit(root: Path, **settings: object) -> None:
    """Change crawl.yaml as an editor does that writes into the file."""
    path = root / "crawl.yaml"
    text = path.read_text()
    for name, value in settings.items():
        text, count = re.subn(rf"(?m)^{name}: .*$", f"{name}: {json.dumps(value)}", text)
        assert count == 1, name
    path.write_text(text)


def parts(*names: str, pages: int = 60) -> Links:
    """A site of several parts, all of which its first page links to."""
    found = [f"/{name}/{number}" for number in range(pages) for name in names]
    return Links({"/": found, **{path: [] for path in found}})


@contextmanager
def machines(w: World, count: int, *args: str) -> Iterator[list[subprocess.Popen[str]]]:
    """So many machines at work on one store; none outlives the test."""
    running = [w.start(*w.web.seeds(), *HERE, *args)]
    try:
        wait_for(lambda: (w.root / "README").exists())
        running += [w.start(*HERE, *args) for _ in range(count - 1)]
        wait_for(lambda: len({found["machine"] for found in counters(w)}) == count)
        yield running
    finally:
        for process in running:
            for pid in [process.pid, *workers_of(process)]:
                kill(pid)


def counters(w: World) -> list[dict[str, Any]]:
    return read_counters(Files(w.root))


def left_out(w: World) -> int:
    """How many waiting URLs workers have left out by a pattern."""
    return sum(sum(found.get("traps", {}).values()) for found in counters(w))


def gaps(w: World, last: int) -> list[float]:
    """Seconds between the last requests to a host, from the end of one to the beginning of the next."""
    log = w.log[-last:]
    return [after.start - before.end for before, after in itertools.pairwise(log)]


# ---- whole crawls


@pytest.mark.fleet
def test_every_machine_takes_up_edits_and_says_so_once_and_a_worker_that_starts_later_goes_by_them(
    tmp_path: Path,
) -> None:
    with world(parts("keep", "drop"), tmp_path) as w, machines(w, 2, "-w", "0.1", "--no-robots") as running:
        w.until(3)
        edit(w.root, exclude=["/drop/"], delay=0.3)
        for process in running:
            assert wait_for_line(process, "was edited") == (
                "crawl.yaml was edited: exclude [] -> [/drop/]; delay 0.1 -> 0.3\n"
            )
        wait_for(lambda: left_out(w) > 0)
        before = len(w.log)
        w.until(before + 4)
        assert not [path for path in w.asked(w.web.host)[before:] if "/drop/" in path]
        assert min(gaps(w, 3)) > 0.25
        for pid in [pid for process in running for pid in workers_of(process)]:
            kill(pid)
        wait_for(lambda: sum(found["heartbeat"].mark != "end" for found in counters(w)) == 2)
        before = len(w.log)
        w.until(before + 4)
        assert not [path for path in w.asked(w.web.host)[before:] if "/drop/" in path]
        assert min(gaps(w, 3)) > 0.25
        told = explained(w, "/drop/59")
        assert told["rule"] == "exclude"
        assert told["delay"] == 0.3
        edit(w.root, max_pages=5)
        for process in running:
            printed = end(process, 4)
            assert "max_pages null -> 5" in printed
            assert printed.count("was edited") == 1, "each edit is said once"
        assert 5 < len(w.urls()) < len(w.web.pages)


def explained(w: World, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(crawler("explain", str(w.root), w.web.url(path), "--json"))
    return found


@pytest.mark.fleet
def test_what_is_allowed_again_comes_back_into_a_running_crawl(tmp_path: Path) -> None:
    with world(parts("keep", "drop"), tmp_path) as w, machines(w, 1, "-w", "0.2", "--exclude", "drop") as (process,):
        w.until(3)
        crawler("add", str(w.root), w.web.url("/drop/1"), w.web.url("/drop/2"))
        wait_for(lambda: left_out(w) == 2)
        edit(w.root, exclude=[])
        wait_for_line(process, "exclude [drop] -> []")
        crawler("rehydrate", str(w.root))
        edit(w.root, delay=0.01)
        end(process)
        assert w.urls() == set(w.web.pages)


@pytest.mark.fleet  # for time
def test_what_cannot_change_is_named_and_a_wrong_edit_is_ignored_until_it_is_right(tmp_path: Path) -> None:
    with world(parts("x", pages=100), tmp_path) as w, machines(w, 1, "-j", "2", "-w", "0.2") as (process,):
        path = w.root / "crawl.yaml"
        good = path.read_text()
        edit(w.root, depth=7, shards=8, delay=0.25)
        assert wait_for_line(process, "edited") == "crawl.yaml was edited: delay 0.2 -> 0.25\n"
        ignored = wait_for_line(process, "cannot change")
        assert "shards cannot change once the store exists, depth cannot change while machines run" in ignored
        assert f"still uses depth null, shards {SHARDS}" in ignored
        wait_for(lambda: any("depth" in found["ignored_settings"] for found in counters(w)))
        assert "depth cannot change while machines run" in crawler("status", str(w.root))
        path.write_text(good.replace("\ndelay: 0.2", "\ndelay: [0.1"))
        said = wait_for_line(process, "ignoring")
        assert said.startswith("ignoring an edit: crawl.yaml is not valid YAML: ")
        wait_for(lambda: any("YAML" in found["ignored_settings"] for found in counters(w)))
        assert len(w.status()["ignored_settings"]) == 1, "status works all the same, and says it"
        assert "paused; 1 machine stops" in crawler("pause", str(w.root))
        assert "1 machine resumes" in crawler("resume", str(w.root))
        path.write_text(good.replace("\ntime_limit: null", "\ntime_limit: 1s"))
        printed = end(process, 4)
        assert "crawl.yaml was edited: time_limit null -> 1; delay 0.25 -> 0.2\n" in printed
        assert not re.search("ignoring|cannot change", printed), "nothing was said twice"


def test_a_crawl_whose_settings_are_gone_can_be_stopped_and_says_how_it_ended(tmp_path: Path) -> None:
    with world(parts("x", pages=100), tmp_path) as w, machines(w, 1, "-w", "0.5") as (process,):
        w.until(2)
        (w.root / "crawl.yaml").unlink()
        assert "told 1 machine to stop" in crawler("stop", str(w.root))
        assert "stopped with work left" in end(process, 3)
        assert "crawl.yaml is missing; restore it" in crawler("status", str(w.root))


@pytest.mark.fleet
def test_a_limit_that_is_set_while_it_runs_is_kept_to_the_page(tmp_path: Path) -> None:
    with world(parts("x", pages=300), tmp_path) as w, machines(w, 1, "-w", "0.2") as (process,):
        w.until(3)
        edit(w.root, max_pages=60)
        assert "max_pages null -> 60" in end(process, 4)
        assert len(w.urls()) == 60


@pytest.mark.fleet
def test_pages_of_a_host_stop_at_a_lower_number_and_what_was_skipped_comes_back_with_a_higher_one(
    tmp_path: Path,
) -> None:
    with world(parts("x", pages=100), tmp_path) as w, machines(w, 1, "-w", "0.05") as (process,):
        w.until(12)
        edit(w.root, max_per_host=3)
        assert "max_per_host null -> 3" in end(process)
        assert 3 <= len(w.urls()) < 100
        assert explained(w, "/x/99")["rule"] == "max_per_host"
        edit(w.root, max_per_host=80, delay=0.01)
        crawler("rehydrate", str(w.root))
        w.run(*HERE)
        assert len(w.urls()) == 80


@pytest.mark.fleet
def test_a_machine_that_waits_for_space_resumes_when_less_is_enough(tmp_path: Path) -> None:
    with world(parts("x", pages=5), tmp_path) as w, machines(w, 1, "-s", "min_free=900000G") as (process,):
        wait_for_line(process, "lower min_free in crawl.yaml")
        edit(w.root, min_free="1M")
        assert "the store has space again" in end(process)
        assert w.urls() == set(w.web.pages)


def test_a_url_that_is_given_and_excluded_is_said_not_to_be_requested(tmp_path: Path) -> None:
    with world(Links({"/": ["/x"], "/x": []}), tmp_path) as w:
        printed = w.crawl(w.web.url("/x"), "--exclude", "x$", "-j", "1")
        assert f"warning: {A}/x will not be requested: an exclude pattern in crawl.yaml matches" in printed
        assert w.urls() == {f"{A}/"}
        assert "will not be requested" in crawler("add", str(w.root), f"{A}/y/x", f"{A}/z")
        assert re.search(r"^skipped +1   exclude 1$", crawler("status", str(w.root)), re.MULTILINE)


# ---- what is made of an edit


def test_what_may_change_may_always_be_read_anew_and_what_is_fixed_never_is_live() -> None:
    assert {"include", "exclude", "delay", "delays", "max_per_host", "max_pages", "time_limit"} <= set(LIVE)
    assert not set(LIVE) & {*FIXED, "depth", "scope", "user_agent", "heartbeat", "dead_after", "durable"}
    assert all(f"# {config.HELP[name]} (live)\n{name}: " in config.render(Settings()) for name in LIVE)


@pytest.mark.parametrize("name", LIVE)
def test_each_setting_that_may_change_is_taken_up_with_its_old_and_new_value(name: str) -> None:
    other = {"max_share": 0.5, "min_free": 1, "include": ("a",), "exclude": ("a",), "delays": {"a": 1.0}}.get(name, 5)
    found = replace(Settings(), **{name: other})
    verdict = judge(Settings(), found)
    old = {"max_delay": "1m"}.get(name, config.show(getattr(Settings(), name)))
    new = config.show(other)
    assert verdict.applied == f"crawl.yaml was edited: {name} {old} -> {new}"
    assert (verdict.settings, verdict.warning) == (found, "")


def test_the_order_of_delays_counts_and_a_very_long_value_is_cut_in_what_is_said() -> None:
    before = Settings(delays={"a.*": 1.0, "*": 2.0})
    verdict = judge(before, replace(before, delays={"*": 2.0, "a.*": 1.0}))
    assert "delays {a.*: 1, *: 2} -> {*: 2, a.*: 1}" in verdict.applied
    assert list(verdict.settings.delays) == ["*", "a.*"]
    assert len(judge(Settings(), Settings(exclude=("x" * 5000,))).applied) < 400


def test_what_may_not_change_stays_as_it_was() -> None:
    verdict = judge(Settings(), Settings(headers=("DNT: 1",), delay=5.0, shards=8))
    assert verdict.settings == Settings(delay=5.0)
    for name in ("headers", "shards"):
        assert f"{name} cannot change" in verdict.warning


@pytest.mark.parametrize(
    "line",
    [
        "headers: ['Cookie: secret']",
        "proxy: http://me:secret@p.example:1",
        "connect_to: ['::10.0.0.1:80']",
        "allow_private: true",
    ],
)
def test_an_edit_gives_a_running_machine_no_secret_no_way_and_no_permission(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(f"delay: 5\n{line}\n".encode(), ())
    assert line.partition(":")[0] in str(caught.value) and "secret" not in str(caught.value).partition(";")[0]


@pytest.mark.parametrize(
    ("running", "found", "words"),
    [
        (Settings(spread="url"), Settings(spread="url", max_per_host=3), "max_per_host needs spread: domain or host"),
        (Settings(spread="url"), Settings(spread="url", delays={"a": 1.0}), "delays needs spread: domain or host"),
        (Settings(), Settings(exclude=tuple("x" * 100 + str(n) for n in range(3000))), "make it shorter"),
    ],
)
def test_what_does_not_go_together_or_is_too_long_is_taken_up_not_at_all(
    running: Settings, found: Settings, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        judge(running, found)


@pytest.mark.parametrize("data", [None, b"", b"delay: 3\n", b"\xff\xfe", b"delay: [", b"delay: x\nmax_pages: 3\n"])
def test_a_file_that_is_gone_cut_off_or_broken_is_one_sentence(data: bytes | None) -> None:
    with pytest.raises(UsageError) as caught:
        read(data, ["delay", "max_pages"])
    assert "crawl.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    begin(tmp_path / "store", {"shards": 2}, [f"{A}/"], "me", lambda _: None)
    return tmp_path / "store"


class Watcher:
    """Watches a store's crawl.yaml with the clock of the test."""

    def __init__(self, root: Path) -> None:
        self.watcher = SettingsWatcher(Files(root), open_store(root).settings())
        self.now = 0.0
        assert self.check() is None
        first = self.check(22)
        assert first and not (first.applied or first.warning)

    def check(self, later: float = 5.0) -> Verdict | None:
        self.now += later
        return self.watcher.check(self.now)

    def see(self) -> Verdict:
        """What is made of an edit, when it has stood for long enough."""
        assert self.check() is None
        found = self.check(22)
        assert found
        return found


def test_an_edit_counts_when_it_has_stood_for_longer_than_mounts_show_old_lengths(root: Path) -> None:
    watcher = Watcher(root)
    whole = (root / "crawl.yaml").read_text().replace("\nmax_pages: null\n", "\nmax_pages: 100000\n")
    (root / "crawl.yaml").write_text(whole[:-4])  # as a client sees it that believes in the old length
    assert [watcher.check() for _ in range(4)] == [None] * 4
    (root / "crawl.yaml").write_text(whole)
    assert [watcher.check() for _ in range(5)] == [None] * 5
    verdict = watcher.check()
    assert verdict and verdict.settings.max_pages == 100000
    assert watcher.check() is None


def test_an_edit_that_is_undone_at_once_is_none(root: Path) -> None:
    watcher = Watcher(root)
    good = (root / "crawl.yaml").read_text()
    edit(root, delay=3)
    assert watcher.check(5) is None
    (root / "crawl.yaml").write_text(good)
    assert watcher.check(5) is None
    edit(root, delay=3)
    assert watcher.check(20) is None, "it stands only since now"
    assert watcher.check(22)


def test_one_edit_is_one_warning_and_it_is_said_when_all_is_right_again(root: Path) -> None:
    watcher = Watcher(root)
    good = (root / "crawl.yaml").read_text()
    (root / "crawl.yaml").write_text("delay: [")
    assert "is not valid YAML" in watcher.see().warning
    assert watcher.check(60) is None
    (root / "crawl.yaml").write_text(good)
    verdict = watcher.see()
    assert (verdict.applied, verdict.warning) == ("crawl.yaml is valid again", "")


def test_an_edit_is_told_as_a_change_of_what_the_machine_goes_by(root: Path) -> None:
    watcher = Watcher(root)
    edit(root, delay=2, depth=4)
    first = watcher.see()
    edit(root, delay=3)
    second = watcher.see()
    assert "delay 2 -> 3" in second.applied
    assert "depth" in first.warning and "depth" in second.warning, "it is still ignored"


def test_a_new_line_for_a_setting_that_an_old_store_does_not_name_is_an_edit(root: Path) -> None:
    path = root / "crawl.yaml"
    path.write_text(re.sub("(?m)^time_limit: .*\n|^# All .*\n", "", path.read_text()))
    watcher = Watcher(root)
    path.write_text(path.read_text() + "time_limit: 2h\n")
    assert "time_limit null -> 2h" in watcher.see().applied


def test_a_store_that_does_not_answer_is_looked_at_again(root: Path) -> None:
    watcher = Watcher(root)
    edit(root, delay=2)
    (root / "crawl.yaml").rename(root / "away")
    (root / "crawl.yaml").symlink_to("crawl.yaml")
    with pytest.raises(StoreError):
        watcher.check()
    (root / "away").rename(root / "crawl.yaml")
    assert watcher.see().settings.delay == 2


# ---- how workers take it up


def test_workers_read_settings_whole_or_not_at_all() -> None:
    scoreboard = Scoreboard(get_context("spawn"), 1, 1)
    assert scoreboard.edition == 0
    for settings in (Settings(exclude=("ü" * 1000,)), Settings(delay=3.0)):
        scoreboard.publish_settings(config.render(settings))
        published = scoreboard.published_settings()
        assert published and Settings(**config.parse(published[1], "crawl.yaml")) == settings
    scoreboard._edition.value += 1  # as while they are being written
    assert scoreboard.published_settings() is None
    assert len(config.render(Settings())) < SETTINGS_BYTES / 20


def test_what_was_skipped_is_forgotten_when_settings_change_but_not_what_is_done() -> None:
    table = Table(limits=Limits(max_per_host=1))
    table.add(at(0, [Task(f"{A}/{n}") for n in range(4)]), 1)
    taken = table.take(0.0)
    assert taken
    table.mark_done([taken[0]], kept=True)
    table.rest(taken[1], 0.0)
    assert table.take(1.0) is None
    assert (table.skipped.total(), table.waiting) == (3, 0)
    table.meet("a.example", {urls.key(f"{A}/3")}, lambda _: True)  # others have done it meanwhile
    table.adopt(1.0, Limits())
    while table.forget_skipped():
        pass
    table.add(at(0, [Task(f"{A}/{n}") for n in range(4)]), 2)
    assert table.waiting == table.left[2] == 2, "what is done stays so"


def test_patterns_do_not_keep_out_seeds_that_need_no_include_but_whatever_is_excluded(root: Path) -> None:
    settings = Settings(include=("/en/",), exclude=("/old/",))
    seeds = Seeds(Store(root), settings)
    excluded = [Task(f"{A}/en/old/"), sitemap_task(f"{A}/en/old/")]
    assert not seeds.leave_out(Task(f"{A}/", 0))
    assert seeds.leave_out(Task(f"{A}/", 1))
    assert not seeds.leave_out(Task(f"{A}/en/", 1))
    assert not seeds.leave_out(sitemap_task(f"{A}/map.xml", depth=1))
    assert all(seeds.leave_out(task._replace(depth=depth)) for task in excluded for depth in (0, 1))
    assert seeds.skipped == {"include": 1, "exclude": 4}
    seeds.adopt(Settings())
    assert not seeds.leave_out(Task(f"{A}/en/old/", 1))


# ---- on mounts that show old files

WATCH = """
import sys
from pathlib import Path
from threading import Event
from crawler.crawl.reload import SettingsWatcher
from crawler.store.mount import Files
from crawler.store.store import open_store

root = sys.argv[1]
watcher = SettingsWatcher(Files(root), open_store(Path(root)).settings())
watcher.watch(lambda verdict: print(verdict.applied or verdict.warning or "ready", flush=True), Event())
"""


@pytest.mark.fleet
def test_another_machine_has_an_edit_within_a_minute_and_never_half_of_it(
    kind: str, mounting: Callable[[str, int], Mount]
) -> None:
    mount = mounting(kind, 2)
    root = mount.real / "store"
    begin(root, {"shards": 2}, [f"{A}/"], "me", lambda _: None)
    argv = mount.command(1, [sys.executable, "-c", WATCH, str(mount.at(1) / "store")])
    watching = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        wait_for_line(watching, "ready")
        for patterns in ([f"pattern-{number}" for number in range(30)], []):
            edit(root, exclude=patterns)
            began = time.monotonic()
            said = wait_for_line(watching, "crawl.yaml")
            assert f"-> {config.show(tuple(patterns))[:100]}" in said
            assert time.monotonic() - began < 60
    finally:
        watching.kill()
        watching.wait()
