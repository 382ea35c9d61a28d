"""Check: whatever was done to a store is named, mended without a loss, and the crawl goes on to the whole corpus."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import stores
from lab.machines.fleet import fleet
from lab.machines.mounts import Mount
from lab.webs import TreeWeb
from lab.world import COMMAND, Links, World, crawler, end, kill, workers_of, world
from test_terminal import on_a_terminal

from crawler.commands import status as report
from crawler.commands.check import repair
from crawler.commands.check.findings import KINDS
from crawler.commands.demo.web import DemoWeb
from crawler.crawl.start import begin
from crawler.fleet.control import ABANDONED, withdraw
from crawler.fleet.heartbeats import Heartbeat
from crawler.fleet.members import look
from crawler.frontier import rehydrate
from crawler.settings.settings import Settings
from crawler.store.inboxes import make_folder
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.store import FOLDERS
from crawler.store.writer import StoreWriter
from crawler.web import urls

Facts = dict[str, Any]
OLD = 2 * ABANDONED


def check(root: Path, *args: str, code: int = 0) -> tuple[list[Facts], Facts]:
    """The findings of `crawler check --json`, and its summary."""
    *found, summary = map(json.loads, crawler("check", str(root), "--json", *args, code=code).splitlines())
    assert summary["problems"] == len(found)
    return found, summary


def kinds(found: list[Facts]) -> dict[str, str]:
    return {finding["path"]: finding["kind"] for finding in found}


def test_what_the_real_program_has_crawled_is_sound(crawled_once: Path) -> None:
    found, summary = check(crawled_once)
    assert found == []
    assert summary["records"] > 60
    assert summary["failure_records"] > 5
    assert crawler("check", str(crawled_once)).startswith("no problems; 8 hosts, ")


def test_a_bar_moves_through_both_halves_on_a_terminal(crawled_once: Path) -> None:
    said = on_a_terminal("check", str(crawled_once))
    for what in ("checking", "frontier", "links"):
        assert f"{what}: " in said
    assert "no problems; 8 hosts, " in said


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A store that was made, and nothing crawled."""
    begin(tmp_path / "store", {"shards": 4}, ["https://example.org/"], "me", lambda _: None)
    withdraw(Files(tmp_path / "store"), "me")
    return tmp_path / "store"


def test_a_store_in_which_nothing_was_crawled_is_sound(empty: Path) -> None:
    assert check(empty) == (
        [],
        {"hosts": 0, "records": 0, "failure_records": 0, "problems": 0, "repaired": 0, "harmless": {}},
    )
    assert check(empty, "--repair")[0] == []


def test_a_finding_is_one_line_whatever_its_name(empty: Path) -> None:
    (empty / "links" / "two\nlines \x1b[31m").mkdir()
    said = crawler("check", str(empty), code=1).splitlines()
    assert [line.partition(" ")[0] for line in said] == ["unexpected", "1"]
    assert "two\ufffdlines \ufffd[31m" in said[0]


@pytest.mark.parametrize("name", [*FOLDERS, "history", "warcs"])
@pytest.mark.parametrize("make", [Path.touch, os.mkfifo], ids=["file", "fifo"])
def test_what_stands_in_place_of_a_folder_of_the_store_is_moved(
    empty: Path, name: str, make: Callable[[Path], None]
) -> None:
    shutil.rmtree(empty / name, ignore_errors=True)
    make(empty / name)
    assert (name, "not a folder") in {(problem["path"], problem["what"]) for problem in check(empty, code=1)[0]}
    found, _ = check(empty, "--repair")
    assert (name, "not a folder") in {(problem["path"], problem["what"]) for problem in found}
    assert not (empty / name).exists() or (empty / name).is_dir()
    assert len(list((empty / "lost").glob(f"*/{name}"))) == 1
    assert check(empty)[0] == []


def test_a_store_whose_htmls_are_a_file_is_repaired_and_crawled_to_the_end(tmp_path: Path) -> None:
    with world(Links({"/": ["/1"], "/1": []}), tmp_path) as w:
        w.crawl()
        shutil.rmtree(w.root / "htmls")
        (w.root / "htmls").write_text("no folder")
        crawler("check", str(w.root), "--repair")
        assert crawler("check", str(w.root)).splitlines()[-1].startswith("no problems")
        w.run()
        assert w.differences() == []


@pytest.mark.parametrize("place", ["seeds/x", "links/a.example", "htmls/a.example", "robots/a.example", "shards/x"])
def test_a_fifo_is_found_and_nobody_waits_for_its_other_end(empty: Path, place: str) -> None:
    os.mkfifo(empty / place)
    assert kinds(check(empty, code=1)[0]) == {place: "unexpected"}
    assert kinds(check(empty, "--repair")[0]) == {place: "unexpected"}
    assert check(empty)[0] == []


def test_a_file_in_the_place_of_a_shard_is_moved_and_the_frontier_made_again(empty: Path) -> None:
    make_folder(Files(empty), 1)
    shutil.rmtree(empty / "frontier" / "001")
    (empty / "frontier" / "001").write_text("no folder")
    found, _ = check(empty, "--repair")
    assert kinds(found) == {"frontier/001": "unexpected", "frontier": "frontier"}
    assert (empty / "frontier" / "001").is_dir()
    assert check(empty)[0] == []


def make_old(path: Path) -> None:
    long_ago = time.time() - OLD
    os.utime(path, (long_ago, long_ago))


OF_FILES = {
    "no-file",
    "half-file",
    "changed-file",
    "orphan-file",
    "version",
}  # see crawls/test_files.py and test_versions.py


class Vandal:
    """Damages a store in every way; `done` is what check must say of it."""

    def __init__(self, w: World) -> None:
        self.root = w.root
        self.done: dict[str, str] = {}
        expected = w.web.expected()
        pages = sorted(url for url, fact in expected.pages.items() if url not in w.web.seeds())
        self.pages, self.refused = iter(pages), iter(sorted(expected.failures))

    def damage(self) -> None:
        for way in (self.records, self.htmls, self.names, self.temporaries, self.frontier, self.shards, self.warcs):
            way()

    def expect(self, kind: str, path: str) -> Path:
        self.done[path] = kind
        return self.root / path

    def place(self, noun: str, url: str) -> str:
        return f"{noun}/{urls.host(url)}/{urls.key(url)}"

    def records(self) -> None:
        half = self.expect("broken", self.place("links", next(self.pages)))
        half.write_bytes(half.read_bytes()[:40])
        self.expect("broken", self.place("links", next(self.pages))).write_bytes(b"")
        self.expect("broken", self.place("links", next(self.pages))).write_text('{"title": "no url"}')
        self.expect("broken", self.place("errs", next(self.refused))).write_text("[]")
        moved = self.place("links", next(self.pages))
        (self.root / moved).rename(self.expect("misplaced", moved[:-24] + "f" * 24))
        both = next(self.pages)
        path = self.expect("both", self.place("errs", both))
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"url": both, "reason": "dns", "detail": "", "attempts": 1}))

    def htmls(self) -> None:
        gone = next(self.pages)
        self.expect("no-html", self.place("links", gone))
        (self.root / self.place("htmls", gone)).unlink()
        for size in (0, 30):
            half = next(self.pages)
            self.expect("half-html", self.place("links", half))
            os.truncate(self.root / self.place("htmls", half), size)
        same_size = next(self.pages)
        path = self.root / self.place("htmls", same_size)
        path.write_bytes(path.read_bytes()[:-1] + b"!")
        self.expect("changed-html", self.place("links", same_size))
        folder = next(self.pages)
        self.expect("no-html", self.place("links", folder))
        path = self.expect("unexpected", self.place("htmls", folder))
        path.unlink()
        path.mkdir()
        stray = next(self.pages)
        self.expect("orphan-html", f"htmls/{urls.host(stray)}/{'e' * 24}").write_text("nobody's")

    def names(self) -> None:
        host = urls.host(next(self.pages))
        for shard in (2, 3):
            make_folder(Files(self.root), shard)
        for path in (f"links/{host}/notes.txt", "links/No Host", "robots/-", "workers/hello", "shards/7", "frontier/9"):
            self.expect("unexpected", path).write_text("unexpected")
        for path in (
            f"errs/{host}/{'d' * 24}",
            f"htmls/{host}/{'b' * 24}",
            "robots/b.example",
            "seeds/a",
            "frontier/003/b.1",
        ):
            self.expect("unexpected", path).mkdir()
        self.expect("unexpected", "htmls/b.example").symlink_to("/")
        (self.root / "cookies" / host).mkdir()
        self.expect("cookies", f"cookies/{host}/0badcafe-1").write_text("sid=1")
        self.expect("unexpected", f"links/{host}/{'c' * 24}").symlink_to("nowhere")
        self.expect("unexpected", f"links/{host}/{'a' * 24}").symlink_to("a" * 24)
        self.expect("control", "workers/00000001.stop").write_text("")
        make_old(self.root / "workers" / "00000001.stop")

    def temporaries(self) -> None:
        host = urls.host(next(self.pages))
        for folder in (f"links/{host}", f"htmls/{host}", "frontier/003", "seeds", "workers"):
            for name in (".0badcafe-01234567", ".0badcafe-01234567-1f"):  # as older versions named them, and as we do
                path = self.expect("temporary", f"{folder}/{name}")
                path.write_text("half a pa")
                make_old(path)
        for name in (".nfs0000000012", ".DS_Store", ".0badcafe-76543210"):  # not ours; ours, but young
            (self.root / "links" / host / name).write_text("")

    def frontier(self) -> None:
        lost, kept = next(self.pages), next(self.pages)
        for noun in ("links", "htmls"):
            (self.root / self.place(noun, lost)).unlink()
        self.expect("lost-link", lost)
        self.expect("half-batch", "frontier/002/0badcafe-0000-000001.5").write_text(f"1\t0\t0\t{kept}\n1\t0\t0\tht")

    def shards(self) -> None:
        (self.root / "shards" / "003@free").unlink()
        self.expect("shard", "shards/003")
        self.expect("unexpected", "shards/006@free").unlink()
        (self.root / "shards" / "006@free").mkdir()
        self.expect("shard", "shards/006")
        (self.root / "shards" / "004@0badcafe").touch()
        self.expect("shard", "shards/004")

    def warcs(self) -> None:
        (self.root / "warcs").mkdir()
        self.expect("no-index", "warcs/0badcafe-00001.warc.gz").write_bytes(b"cut off")


def test_every_damage_is_named_and_mended_and_the_crawl_goes_on_to_the_whole_corpus(tmp_path: Path) -> None:
    with world(DemoWeb(hosts=8, pages=60, seed=5), tmp_path) as w:
        w.crawl()
        vandal = Vandal(w)
        vandal.damage()
        found, summary = check(w.root, code=1)
        assert kinds(found) == vandal.done
        quick, _ = check(w.root, "--quick", code=1)
        assert kinds(quick) == {path: kind for path, kind in vandal.done.items() if kind != "changed-html"}
        assert Counter(vandal.done.values()).keys() == KINDS.keys() - {"frontier"} - OF_FILES
        young, waits = "temporary files that may be in use", "htmls of URLs that wait"
        assert summary["harmless"] == {young: 1, waits: 1, "tasks in batches whose URLs are done": 1}
        assert all(finding["repair"] == KINDS[finding["kind"]] and not finding["repaired"] for finding in found)
        lines = crawler("check", str(w.root), code=1).splitlines()
        assert any(line.startswith("no-html     links/") and "(--repair: the record is moved" in line for line in lines)
        mended, _ = check(w.root, "--repair")
        led_to = {finding["path"] for finding in mended} - vandal.done.keys()
        assert all(finding["repaired"] for finding in mended)
        assert led_to, "what broken files were of, is asked again because links lead there"
        (lost,) = (w.root / "lost").iterdir()
        moved = {path for path, kind in vandal.done.items() if "lost/" in KINDS[kind]}
        assert {path for path in moved if not os.path.lexists(lost / path)} == set()
        assert check(w.root)[0] == []
        w.run()
        assert w.differences() == []
        assert check(w.root)[0] == []


@pytest.mark.fleet
def test_a_frontier_that_is_gone_is_one_finding_and_is_made_again(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3), tmp_path) as w:
        w.crawl("--max-pages", "8", code=4)
        shutil.rmtree(next((w.root / "frontier").glob("[0-9]*")))
        for batch in (w.root / "frontier").glob("*/*"):
            batch.unlink()
        assert kinds(check(w.root, code=1)[0]) == {"frontier": "frontier"}
        assert kinds(check(w.root, "--repair")[0]) == {"frontier": "frontier"}
        assert check(w.root)[0] == []
        unlimited(w)
        w.run()
        assert w.differences() == []


def unlimited(w: World) -> None:
    settings = w.root / "crawl.yaml"
    settings.write_text(settings.read_text().replace("max_pages: 8", "max_pages: null"))


@pytest.mark.fleet
def test_a_store_in_use_gives_no_false_alarm_and_is_not_repaired(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=12, fanout=3, depth=6), tmp_path) as w:
        running = [w.start(*w.web.seeds(), "-w", "0.1")]
        w.until(5)
        running.append(w.start("-w", "0.1"))
        for pages in (20, 60, 120):
            w.until(pages)
            assert check(w.root)[0] == []
        refused = crawler("check", str(w.root), "--repair", code=5)
        assert f"machines are working on {w.root}, or died less than a minute ago; run `crawler stop" in refused
        assert not (w.root / "frontier" / ".rehydrating").exists()
        assert all(process.poll() is None for process in running), "it was in use all the while"
        for process in running:
            process.terminate()
        for process in running:
            end(process, 3)
        assert check(w.root)[0] == []


@pytest.mark.fleet
def test_a_machine_that_sees_a_store_in_use_through_its_own_mount_gives_no_false_alarm(
    kind: str, mounting: Callable[[str, int], Mount]
) -> None:
    with fleet(DemoWeb(hosts=30, pages=900, seed=3), mounting(kind, 3), dead_after=30) as f:
        machines = [f.join(number) for number in range(2)]
        f.until(10)
        command = [*COMMAND, "check", str(f.mount.at(2) / "store")]
        looks = 0
        while all(machine.runs for machine in machines):
            done = subprocess.run(f.mount.command(2, command), capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            looks += 1
        assert looks > 0
        f.end()
        assert f.differences() == []


@pytest.mark.fleet
@pytest.mark.parametrize("pages", [30, 10, 60])
def test_after_a_kill_there_is_nothing_worse_than_temporary_files(tmp_path: Path, pages: int) -> None:
    with world(TreeWeb(hosts=6, fanout=3, depth=4), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(pages)
        for pid in [process.pid, *workers_of(process)]:
            kill(pid)
        process.communicate()
        found, summary = check(w.root, code=int(any_temporary(w.root)))
        assert {finding["kind"] for finding in found} <= {"temporary"}
        assert set(summary["harmless"]) <= {"htmls of URLs that wait", "tasks in batches whose URLs are done"}
        check(w.root, "--repair")
        assert check(w.root)[0] == []
        w.run()
        assert w.differences() == []


def any_temporary(root: Path) -> bool:
    kept = (".seen-", ".crawl.yaml", ".seeds-", ".made")  # these stay
    return any(path.is_file() and not path.name.startswith(kept) for path in root.rglob(".*"))


def test_a_repair_that_is_cut_off_makes_the_next_run_rehydrate(empty: Path) -> None:
    store = StoreWriter(empty, Files(empty, "me"))
    with pytest.raises(KeyboardInterrupt), repair.alone(store, store.settings()):
        raise KeyboardInterrupt
    assert rehydrate.is_needed(store)
    assert kinds(check(empty, code=1)[0]) == {"frontier": "frontier"}


# ---- the files of workers that have ended


def worker(root: Path, number: int, **facts: object) -> None:
    path = root / Heartbeat(f"{number:08x}", number, "end").name
    path.write_bytes(to_json({"id": f"{number:08x}", "machine": f"m{number}", **facts}))
    make_old(path)


def status(root: Path) -> Facts:
    """What the workers' counters say of all that was done."""
    found = report.totals(look(Files(root), Settings(), again=False).counters)
    return {**found, "reasons": dict(+found["reasons"]), "busiest": found["busiest"].most_common(10)}


@pytest.fixture
def many_workers(empty: Path) -> Path:
    """A store on which 150 workers have been at work, one of which took refusals back that others had made."""
    for number in range(150):
        worker(empty, number, pages=number, bytes=10, reasons={"dns": 1, "tls": 2}, busiest=[[f"h{number}", number]])
    worker(empty, 150, pages=1, reasons={"dns": -150})
    return empty


def test_many_files_of_ended_workers_become_one_and_the_totals_stay(many_workers: Path) -> None:
    before = status(many_workers)
    assert check(many_workers)[1]["harmless"] == {"files of workers that have ended (--repair merges them)": 151}
    check(many_workers, "--repair")
    assert len(list((many_workers / "workers").glob("*.end"))) == 1
    assert status(many_workers) == before
    assert before["reasons"] == {"tls": 300}


# ---- bad input, and very many pages


def test_what_is_no_store_gets_a_sentence(tmp_path: Path) -> None:
    assert "does not exist; is the mount there?" in crawler("check", str(tmp_path / "none"), code=5)
    assert "is not a store" in crawler("check", str(tmp_path), code=5)


def test_strange_names_cannot_reach_the_terminal(empty: Path) -> None:
    (empty / "links" / "\x1b[2Jx").mkdir()
    os.mkdir(os.fsencode(empty) + b"/links/\xff\xfe")
    said = crawler("check", str(empty), code=1)
    assert said.count("unexpected") == 3
    assert "\x1b" not in said
    check(empty, "--repair")
    assert check(empty)[0] == []


@pytest.mark.bench
def test_a_hundred_thousand_pages(tmp_path: Path) -> None:
    store = stores.large(tmp_path / "store", int(os.environ.get("PAGES", "100000")))
    took = stores.measure("check", str(store.root))
    assert (took.code, took.out.count("lost-link")) == (1, 11), "the last pages lead to ten that are not there"
    print(f"\ncheck: {took.seconds:.1f} s, {took.megabytes} MB; {took.out.splitlines()[-1]}")
    took = stores.measure("check", str(store.root), "--repair")
    print(f"check --repair: {took.seconds:.1f} s, {took.megabytes} MB")
    took = stores.measure("retry", str(store.root))
    print(f"retry: {took.seconds:.1f} s, {took.megabytes} MB; {took.out.splitlines()[-1]}")
