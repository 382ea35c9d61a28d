"""Kill anything at any time: no half-written page, no lost URL, at most the pages in flight are requested twice."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from lab.marks import later
from lab.webs import TreeWeb
from lab.world import (
    COMMAND,
    LONG,
    QUICK,
    Links,
    World,
    children,
    crawler,
    end,
    is_dead,
    kill,
    wait_for,
    wait_for_line,
    workers_of,
    world,
)

from crawler.commands.demo.server import requested_twice
from crawler.commands.demo.web import DemoWeb
from crawler.crawl import resources
from crawler.crawl.machine import oom_kills
from crawler.crawl.worker.flush import MAX_RESULTS
from crawler.fleet.heartbeats import read_counters
from crawler.store.mount import Files

WORKERS, THREADS = 2, 4  # as in world.QUICK
IN_FLIGHT = WORKERS * (THREADS + MAX_RESULTS)  # open, or waiting for a flush: manual/life-of-a-url.md


def records(w: World) -> list[Path]:
    """The files of all records."""
    return list((w.root / "links").glob("*/[!.]*"))


def half_files(w: World) -> list[Path]:
    """Records that are not whole; compare() looks at the pages."""
    return [path for path in records(w) if not path.read_bytes().endswith(b"]}\n")]


@pytest.mark.fleet
def test_twenty_kills_of_workers_and_machines_lose_nothing(tmp_path: Path) -> None:
    rng = random.Random(20)
    with world(TreeWeb(hosts=6, fanout=8, depth=3, delay=0.2), tmp_path) as w:
        assert len(w.web.expected().pages) == 585
        process = w.start(*w.web.seeds())
        kills = kept = 0
        while kills < 20:
            if kills % 3:  # every third may come while workers are starting; the crawl continues between the others
                wait_for(lambda kept=kept: len(records(w)) > kept)
            time.sleep(rng.uniform(0.0, 0.5))
            kept = len(records(w))
            assert process.poll() is None, f"the crawl was over after {kills} kills"
            victims = workers_of(process)
            if rng.random() < 0.4 or not victims:
                process.kill()
                process.communicate()
                process = w.start(*w.web.seeds())
            else:
                kill(rng.choice(victims))
            kills += 1
        end(process)
        assert w.differences() == []
        assert half_files(w) == []
        again = sum(times - 1 for times in requested_twice(w.log).values())
        print(f"{kills} kills: {again} pages requested again, {again / kills:.1f} a kill, bound {IN_FLIGHT}")
        assert again <= kills * IN_FLIGHT


def test_a_worker_that_dies_is_replaced_and_the_crawl_continues(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.1), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(10)
        before = workers_of(process)
        kill(before[0])
        assert "worker died with" in end(process)
        assert {found["pid"] for found in read_counters(Files(w.root, "test"))} - set(before), "there was a new one"
        assert w.differences() == []


def test_when_the_machine_is_killed_its_workers_do_not_live_on(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=2, fanout=3, depth=5, delay=0.1), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(5)
        wait_for(lambda: len(workers_of(process)) == 2)
        workers = workers_of(process)
        process.kill()
        process.communicate()
        wait_for(lambda: all(map(is_dead, workers)))


def test_ctrl_c_once_finishes_what_is_in_flight_and_gives_everything_back(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.15), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(10)
        process.send_signal(signal.SIGINT)
        assert "finishing" in end(process, 3)
        assert {name.name.split("@")[1] for name in (w.root / "shards").iterdir()} == {"free"}
        assert {name.name.rpartition(".")[2] for name in (w.root / "workers").iterdir()} == {"end"}
        assert w.waiting()
        assert not set(w.waiting()) & w.urls(), "what is done is tidied away"
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}, "cleanly means that no page is requested again"


def test_ctrl_c_twice_stops_now_and_loses_nothing(tmp_path: Path) -> None:
    class Stuck(Links):
        """Its pages do not come for ten minutes, once they were requested."""

        stuck = True
        requested: set[str]

        def leaf(self, url: str):  # type: ignore[no-untyped-def]
            leaf = super().leaf(url)
            if not leaf or not self.stuck or url.endswith("/"):
                return leaf
            self.requested.add(url)
            return replace(leaf, delay=600.0)

    Stuck.requested = set()
    web = Stuck({"/": ["/a", "http://b.example/b"], "/a": [], "http://b.example/b": []})
    with world(web, tmp_path) as w:
        process = w.start(*web.seeds())
        wait_for(lambda: len(web.requested) == 2)
        process.send_signal(signal.SIGINT)
        wait_for_line(process, "finishing the pages in flight")
        process.send_signal(signal.SIGINT)
        end(process, 3)  # nobody waits for what is in flight
        web.stuck = False
        w.run()
        assert w.differences() == []


def test_sigterm_is_a_polite_stop_too_even_when_it_comes_twice_as_from_schedulers(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.3), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(8)
        process.terminate()
        wait_for_line(process, "finishing the pages in flight")
        process.terminate()
        end(process, 3)
        w.run()
        assert w.differences() == []
        assert requested_twice(w.log) == {}


# The four kills take more than a minute: there are pauses between them.
@pytest.mark.parametrize(
    ("how", "deaths"), [(signal.SIGSEGV, 2), pytest.param(signal.SIGKILL, 4, marks=pytest.mark.fleet)]
)
def test_a_page_that_kills_workers_again_and_again_gets_a_failure_record(
    tmp_path: Path, how: signal.Signals, deaths: int
) -> None:
    class Deadly(Links):
        """A request for /deadly kills the worker: here, the only one there is."""

        process: subprocess.Popen[str] | None = None
        victims: list[int]

        def leaf(self, url: str):  # type: ignore[no-untyped-def]
            if url.endswith("/deadly") and self.process:
                for pid in workers_of(self.process):
                    self.victims.append(pid)
                    os.kill(pid, how)
                    # A signal that dumps core ends one thread first: another could still take in the answer meanwhile.
                    wait_for(lambda pid=pid: is_dead(pid))
            return super().leaf(url)

    Deadly.victims = []
    web = Deadly({"/": ["/deadly", "/a", "/b"], "/deadly": [], "/a": [], "/b": []})
    with world(web, tmp_path) as w:
        ooms = oom_kills()
        web.process = w.start(*web.seeds(), "-j", "1", "-s", "retries=5")
        end(web.process)
        assert len(web.victims) == deaths or oom_kills() > ooms  # of whatever ran beside this test
        assert {failure["url"]: failure["reason"] for failure in w.records("errs")} == {
            web.url("/deadly"): "worker-died"
        }
        assert w.urls() == {web.url("/"), web.url("/a"), web.url("/b")}


CUT_OFF = """
import os, sys
from crawler.crawl import process, scoreboard
from crawler.store import mount
count, limit = 0, int(sys.argv[1])

def counted(method):
    def call(self, *args, **kwargs):
        global count
        count += 1
        if count == limit:
            os._exit(9)
        return method(self, *args, **kwargs)
    return call

# The power goes off before the n-th time that the store is touched: all in one process, to count them.
for name in ("put", "draft", "publish", "create", "claim", "drop", "make"):
    setattr(mount.Files, name, counted(getattr(mount.Files, name)))

class Here:
    def get_context(self, kind): return self
    def RawValue(self, kind, value):
        import ctypes
        return (ctypes.c_double if kind == "d" else ctypes.c_int)(value)
    def RawArray(self, kind, size):
        import ctypes
        return ({"q": ctypes.c_longlong, "c": ctypes.c_char}[kind] * size)()

from crawler.crawl.start import begin
from crawler.settings.settings import check
from crawler.fetch.trust import Trust
from pathlib import Path
root = Path(sys.argv[2])
given = check({"scope": "any", "delay": 0, "heartbeat": 0.2, "durable": False, "shards": 16}, "test")
settings = begin(root, given, [sys.argv[4]], "aaaa", print)
process._scoreboard = scoreboard.Scoreboard(Here(), 1, 2)
print(process.work(str(root), 0, "", "bbbb", settings, Trust(connect_to=(sys.argv[3],)), None))
"""


@pytest.mark.parametrize("limit", [72, 200, 390, *later(3, 140, 145, 150, 170, 240, 280, 330)])
def test_the_power_may_go_off_before_any_operation_on_the_store(tmp_path: Path, limit: int) -> None:
    with world(TreeWeb(hosts=2, fanout=3, depth=2), tmp_path) as w:
        args = [sys.executable, "-c", CUT_OFF, str(limit), str(w.root), f"::127.0.0.1:{w.port}", *w.web.seeds()]
        cut = subprocess.run(args, capture_output=True, text=True, timeout=LONG, check=False)
        assert cut.returncode in (0, 9), cut.stderr
        w.run(*(w.web.seeds() if not (w.root / "README").exists() or limit < 150 else []), "-w", "0", quick=False)
        assert w.differences() == []
        assert half_files(w) == []


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A folder, and where it is mounted once more."""
    if os.geteuid() != 0:
        pytest.skip("mounting a folder needs root")
    real, mounted = tmp_path / "real", tmp_path / "mounted"
    real.mkdir()
    mounted.mkdir()
    if subprocess.run(["mount", "--bind", real, mounted]).returncode:
        pytest.skip("this root may not mount a folder")
    yield real, mounted
    subprocess.run(["umount", "-l", mounted], check=True)


def requested(w: World) -> list[str]:
    """The pages that were requested."""
    return [request.path for request in w.log if request.path != "/robots.txt"]


def stands_still(w: World) -> bool:
    """Whether nothing is requested for two seconds."""
    requests = len(w.log)
    time.sleep(2)
    return len(w.log) == requests


@pytest.mark.fleet  # for time
def test_a_mount_that_goes_away_is_waited_for_and_costs_no_page(tmp_path: Path, mount: tuple[Path, Path]) -> None:
    real, mounted = mount
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.15), tmp_path) as w:
        w.root = mounted / "store"
        process = w.start(*w.web.seeds())
        w.until(20)
        subprocess.run(["umount", "-l", mounted], check=True)
        wait_for(lambda: stands_still(w))
        assert len(requested(w)) < len(w.web.expected().pages), "nothing is requested while the store is away"
        assert list(mounted.iterdir()) == [], "nothing is written where the mount was"
        subprocess.run(["mount", "--bind", real, mounted], check=True)
        printed = end(process)
        assert "pausing: the store does not respond" in printed
        assert "the store responds again" in printed
        assert w.differences() == []
        assert requested_twice(w.log) == {}


@pytest.mark.fleet  # for time
def test_a_stop_while_the_store_is_away_ends_the_machine_and_loses_nothing(
    tmp_path: Path, mount: tuple[Path, Path]
) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.3), tmp_path) as w:
        w.root = mount[1] / "store"
        process = w.start(*w.web.seeds())
        w.until(8)
        subprocess.run(["umount", "-l", mount[1]], check=True)
        wait_for_line(process, "pausing: the store does not respond")
        process.terminate()
        end(process, 3)
        subprocess.run(["mount", "--bind", *mount], check=True)
        w.run()
        assert w.differences() == []


def test_folders_that_are_removed_while_it_runs_are_made_again(tmp_path: Path) -> None:
    with world(DemoWeb(hosts=12, pages=100, seed=4), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(60)
        shutil.rmtree(w.root / "errs", ignore_errors=True)
        shutil.rmtree(w.root / "robots", ignore_errors=True)
        end(process)
        assert w.urls() == {*w.web.expected().pages, *w.web.expected().redirects}


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3, 0.6])
def test_ctrl_c_while_its_workers_are_starting_is_no_traceback(tmp_path: Path, seconds: float) -> None:
    with world(TreeWeb(hosts=1, fanout=3, depth=3, delay=0.1), tmp_path) as w:
        args = [*COMMAND, "run", str(w.root), *w.flags, *w.everywhere, *QUICK, *w.web.seeds()]
        process = subprocess.Popen(
            args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        w.started.append(process)
        wait_for((w.root / "README").exists)
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group
        end(process, 3)
        w.run(*w.web.seeds())
        assert w.differences() == []


def test_a_read_only_mount_is_named_and_can_still_be_looked_at(tmp_path: Path, mount: tuple[Path, Path]) -> None:
    with world(Links({"/": []}), tmp_path) as w:
        w.root = mount[1] / "store"
        w.crawl()
        subprocess.run(["mount", "-o", "remount,ro,bind", mount[1]], check=True)
        assert "Read-only file system" in w.run(code=5)
        assert w.status()["pages"] == 1
        assert crawler("check", str(w.root)).startswith("no problems; ")
        for args in (["check", str(w.root), "--repair"], ["rehydrate", str(w.root)], ["pause", str(w.root)]):
            assert "Read-only file system" in crawler(*args, code=5)
        w.root = mount[1] / "new"
        assert "Read-only file system" in w.crawl(code=5)


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs of this size."""
    disk = folder / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk]).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def grow(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", disk], check=True)


FEW = ["-s", "shards=16"]  # folders, which are inodes too
NO_RESERVE = ["-s", "min_free=0", "-s", "min_inodes=0", *FEW]
SMALL_DISKS = {
    "few bytes": ("size=3m", "size=100m", ["-s", "min_free=2M", *FEW], "min_free is 2M"),
    "few inodes": (
        "size=50m,nr_inodes=700",
        "nr_inodes=100000",
        # Space is checked with each heartbeat: so many are left that a busy second does not need all of them.
        ["-s", "min_free=1M", "-s", "min_inodes=400", *FEW],
        "min_inodes is 400",
    ),
    "no bytes": ("size=600k", "size=100m", NO_RESERVE, "No space left on device"),
    "no inodes": ("size=50m,nr_inodes=300", "nr_inodes=100000", NO_RESERVE, "No space left on device"),
}


@pytest.mark.parametrize("kind", ["few bytes", *later("no inodes", "few inodes", "no bytes")])
def test_a_disk_that_fills_up_pauses_the_crawl_which_resumes_by_itself_when_there_is_space(
    tmp_path: Path, kind: str
) -> None:
    small, large, settings, words = SMALL_DISKS[kind]
    with small_disk(tmp_path, small) as disk, world(TreeWeb(hosts=3, fanout=4, depth=4, delay=0.02), tmp_path) as w:
        w.root = disk / "store"
        process = w.start(*w.web.seeds(), *settings)
        line = wait_for_line(process, "pausing: ")
        assert words in line
        wait_for(lambda: stands_still(w))
        assert half_files(w) == []
        assert w.status()["pages"] < len(w.web.expected().pages)
        kept = len(w.urls())
        assert kept
        before = {path.name for path in (w.root / "workers").iterdir()}
        wait_for(lambda: not before & {path.name for path in (w.root / "workers").glob("*@*")})  # heartbeats continue
        grow(disk, large)
        printed = end(process)
        assert "pausing" not in printed, "it is said once"
        assert printed.count("the store has space again") == 1
        assert w.differences() == []
        assert requested_twice(w.log) == {}, "what was in flight was kept"
        assert list(w.root.glob(".[!s]*-*")) == [], "nothing is left of the checks for space"


STOPS = [(kind, how) for kind in SMALL_DISKS for how in ("sigterm", "crawler stop")]


@pytest.mark.fleet  # for time
@pytest.mark.parametrize(("shortage", "how"), STOPS)
def test_a_stop_while_there_is_no_space_ends_the_machine_and_loses_nothing(
    tmp_path: Path, shortage: str, how: str
) -> None:
    small, large, settings, _ = SMALL_DISKS[shortage]
    with small_disk(tmp_path, small) as disk, world(TreeWeb(hosts=3, fanout=4, depth=4), tmp_path) as w:
        w.root = disk / "store"
        process = w.start(*w.web.seeds(), *settings)
        wait_for_line(process, "pausing: ")
        wait_for(lambda: stands_still(w))
        if how == "sigterm":
            process.terminate()
        else:
            crawler("stop", str(w.root))
        end(process, 3)
        assert {name.name.split("@")[1] for name in (w.root / "shards").iterdir()} == {"free"}
        assert {name.name.rpartition(".")[2] for name in (w.root / "workers").iterdir()} == {"end"}
        assert half_files(w) == []
        grow(disk, large)
        w.run(*settings)
        assert w.differences() == []


def test_a_store_without_space_for_one_more_url_says_so_with_exit_code_6(tmp_path: Path) -> None:
    with small_disk(tmp_path, "size=50m,nr_inodes=300") as disk, world(Links({"/": []}), tmp_path) as w:
        w.root = disk / "store"
        w.crawl(*NO_RESERVE)
        for number in range(300):
            with suppress(OSError):
                (disk / f"filler{number}").touch()
        assert "the store's disk is full" in crawler("add", str(w.root), "http://b.example/", code=6)
        assert "the store's disk is full" in w.run("http://b.example/", *NO_RESERVE, code=6)


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("fetcher", ["curl", *later("requests")])
def test_a_worker_that_can_open_no_files_costs_no_page_and_resumes_when_it_can(tmp_path: Path, fetcher: str) -> None:
    with world(TreeWeb(hosts=8, fanout=4, depth=4, delay=0.05), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-s", f"fetcher={fetcher}", "-s", "retries=0")
        w.until(40)
        limit_files(process, 10)
        assert "ulimit -n" in wait_for_line(process, "pausing: ")
        wait_for(lambda: stands_still(w))
        assert len(requested(w)) < len(w.web.expected().pages)
        limit_files(process, 1000)
        assert "files can be opened again" in end(process)
        assert w.urls("errs") == set(), "no host was blamed"
        assert w.differences() == []


@pytest.mark.fleet  # for time
def test_a_limit_of_files_that_is_just_too_low_costs_no_page(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=30, fanout=4, depth=2), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-s", "retries=0")
        w.until(5)
        wait_for(lambda: len(workers_of(process)) == 2)
        for pid in workers_of(process):
            limit_files(process, len(os.listdir(f"/proc/{pid}/fd")) + 3)
        time.sleep(5)
        limit_files(process, 1000)
        end(process)
        assert w.urls("errs") == set()
        assert w.differences() == []


def limit_files(process: subprocess.Popen[str], count: int) -> None:
    """Let each worker of a machine have so many open files."""
    for pid in workers_of(process):
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (count, hard))


def test_a_machine_and_its_workers_may_open_as_many_files_as_the_hard_limit_lets_them(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=1, fanout=3, depth=3, delay=0.1), tmp_path) as w:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        command = ["prlimit", f"--nofile=60:{hard}", *COMMAND, "run", str(w.root), *w.flags, *QUICK, *w.web.seeds()]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        w.started.append(process)
        w.until(5)
        pids = {process.pid, *children(process.pid), *workers_of(process)}
        assert {resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] for pid in pids} == {hard}
        end(process)


def test_a_limit_of_files_that_could_never_be_enough_is_said_before_any_request(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=1, fanout=2, depth=2), tmp_path) as w:
        command = ["prlimit", "--nofile=64:64", *COMMAND, "run", str(w.root), *w.flags, *QUICK, *w.web.seeds()]
        done = subprocess.run([*command, "-t", "16"], capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == 2, done.stderr
        assert "only 64 are allowed; raise `ulimit -n`, or lower --concurrency" in done.stderr
        assert not w.root.exists()


@pytest.mark.parametrize("fetcher", ["curl", *later("requests")])
def test_as_many_files_as_are_demanded_are_enough(tmp_path: Path, fetcher: str) -> None:
    limit = resources.files_for(4) + resources.BASE_FILES
    with world(TreeWeb(hosts=20, fanout=4, depth=3), tmp_path) as w:
        seeds = [*w.web.seeds(), "http://nobody.example:1/"]
        flags = ["--connect-to", "nobody.example:1:127.0.0.1:1", *w.flags, *w.everywhere, *QUICK]
        flags += ["-s", f"fetcher={fetcher}"]
        command = ["prlimit", f"--nofile={limit}:{limit}", *COMMAND, "run", str(w.root), *seeds, *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
        assert done.returncode == 0, done.stderr
        assert w.urls("errs") == {"http://nobody.example:1/"}


PLANTED = ["htmls", "workers", "links/tree-000.example", "frontier/031"]
PLANTED_TOO = later("links", "frontier", "frontier/000", "shards", "robots", "seeds", "htmls/tree-000.example")


@pytest.mark.parametrize("link", [PLANTED[0], *later(*PLANTED[1:]), *PLANTED_TOO])
def test_a_symlink_planted_in_the_store_stops_the_machine_and_nothing_is_written_through_it(
    tmp_path: Path, link: str
) -> None:
    with world(TreeWeb(hosts=1, fanout=3, depth=3), tmp_path) as w:
        w.crawl("--max-pages", "9", code=4)
        shutil.rmtree(w.root / "robots")  # so that it is requested again
        (w.root / "robots").mkdir()
        (w.root / "crawl.yaml").write_text(
            (w.root / "crawl.yaml").read_text().replace("max_pages: 9", "max_pages: null")
        )
        place, outside = w.root / link, tmp_path / "outside"
        place.rename(outside)
        place.symlink_to(outside)
        before = sorted((path, path.stat().st_mtime_ns) for path in [outside, *outside.rglob("*")])
        printed = w.run("http://tree-000.example/new", code=5)
        assert f"{place} is a symbolic link" in printed
        assert sorted((path, path.stat().st_mtime_ns) for path in [outside, *outside.rglob("*")]) == before


@pytest.mark.fleet  # for time
def test_a_mount_that_becomes_read_only_stops_the_machine_and_loses_nothing(
    tmp_path: Path, mount: tuple[Path, Path]
) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.1), tmp_path) as w:
        w.root = mount[1] / "store"
        process = w.start(*w.web.seeds())
        w.until(20)
        # Refused as long as a file is open for writing at that very moment.
        wait_for(
            lambda: (
                not subprocess.run(["mount", "-o", "remount,ro,bind", mount[1]], stderr=subprocess.DEVNULL).returncode
            )
        )
        assert "Read-only file system" in end(process, 5)
        subprocess.run(["mount", "-o", "remount,rw,bind", mount[1]], check=True)
        w.run()
        assert w.differences() == []
