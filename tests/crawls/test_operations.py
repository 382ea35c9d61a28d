"""What a crawl costs its mount: metadata operations per page over a whole `crawler run`, the coordination included."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab.conditional import Pages, serving
from lab.machines.mounts import Mount
from lab.operations import DATA, METADATA, Counts, can_trace, count, per_page, show, trace
from lab.webs import FlatWeb, TreeWeb
from lab.world import COMMAND, World, crawler, end, wait_for, world

from crawler.commands.demo.web import Web
from crawler.errors import LIMIT

BOTH = (*METADATA, *DATA)
MOST = 14  # metadata operations per page on a deep site

pytestmark = [
    pytest.mark.bench,
    pytest.mark.skipif(not can_trace(), reason="strace is not there or may not trace here: install the package strace"),
]


def traced_crawl(web: Web, folder: Path, *args: str, root: Path | None = None) -> tuple[Counts, int]:
    """A whole crawl with two workers; the operations on its store, which may be elsewhere, and its pages."""
    with world(web, folder) as here:
        here.root = root or here.root
        calls = folder / "calls"
        end(start(here, calls, *web.seeds(), *args), seconds=1800)
        assert not here.differences()
        pages = len(here.urls())
        with calls.open(encoding="utf-8", errors="replace") as lines:
            return count(lines, here.root), pages


def start(here: World, calls: Path, *args: str) -> subprocess.Popen[str]:
    """`crawler run STORE` under strace."""
    command = [*COMMAND, "run", str(here.root), *here.flags, "--scope", "any", "-j", "2", *args]
    return subprocess.Popen(trace(command, calls), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.parametrize("spread", ["host", "url"])
def test_a_deep_site_costs_few_operations_per_page(
    tmp_path: Path, spread: str, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, pages = traced_crawl(TreeWeb(hosts=1, fanout=5, depth=5), tmp_path, "-w", "0", "-s", f"spread={spread}")
    with capsys.disabled():
        print("\n" + show(f"a deep site, delay 0, spread {spread}", counts, pages))
    assert per_page(counts, pages) <= MOST


def test_one_page_per_host_is_what_costs_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts, pages = traced_crawl(FlatWeb(hosts=400), tmp_path, "-t", "16")
    with capsys.disabled():
        print("\n" + show("one page per host", counts, pages))


@pytest.mark.parametrize("web", [TreeWeb(hosts=1, fanout=5, depth=5), FlatWeb(hosts=400)], ids=["deep", "flat"])
def test_on_a_mount_that_is_no_disk_each_file_and_folder_has_its_own_sync(
    web: Web, tmp_path: Path, mounting: Callable[[str, int], Mount], capsys: pytest.CaptureFixture[str]
) -> None:
    mount = mounting("bindfs", 1)
    delay = ["-w", "0", "-s", "spread=host"] if isinstance(web, TreeWeb) else []
    counts, pages = traced_crawl(web, tmp_path, *delay, root=mount.at(0) / "store")
    with capsys.disabled():
        print("\n" + show(f"{type(web).__name__} on bindfs", counts, pages))
    assert per_page(counts, pages, ["fsync"]) >= 2
    assert per_page(counts, pages) <= 2 * MOST


def test_a_visit_that_finds_304_costs_little(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Operations (under strace) and CPU time (without it) of a whole run, less those of one with nothing to do."""
    pages: dict[str, str | int] = {
        f"/{number}": f"<title>{number}</title>" + "<p>word " * 2000 for number in range(400)
    }
    with serving({"/": "".join(f"<a href={path}>x</a>" for path in pages), **pages}) as web:
        traced = [it for it, _ in first_idle_again(web, tmp_path / "traced", is_traced=True)]
        seconds = [it for _, it in first_idle_again(web, tmp_path / "timed", is_traced=False)]
    with capsys.disabled():
        print("\n" + show("new pages", traced[0], 401) + "\n" + show("visits that find 304", traced[2], 401))
        for name, kinds in {"metadata operations": METADATA, "writes and syncs": DATA, "all of them": BOTH}.items():
            print(f"{name}: {_compared([per_page(it, 401, kinds) for it in traced])}")
        print(f"milliseconds of CPU: {_compared([it / 0.401 for it in seconds])}")
    new, nothing, visit = (per_page(counts, 401) for counts in traced)  # the worker is a new one: it knows no record
    assert visit - nothing <= 0.65 * (new - nothing), "its record is read and written; of a new page, two files"
    new, nothing, visit = (per_page(counts, 401, DATA) for counts in traced)
    assert visit - nothing <= 0.5 * (new - nothing), "one file is written, not two"
    new, nothing, visit = seconds
    assert visit - nothing <= 0.5 * (new - nothing)


def test_a_visit_within_the_hour_that_finds_304_costs_less_than_half_of_a_new_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker knows the record that it wrote."""
    pages: dict[str, str | int] = {f"/{number}": f"<title>{number}</title>" for number in range(400)}
    with serving({"/": "".join(f"<a href={path}>x</a>" for path in pages), **pages}) as web:
        flags = ["--connect-to", f"::127.0.0.1:{web.port}", "-j", "1", "-w", "0", "-s", "spread=host"]
        flags += ["-s", "max_per_address=null", "-s", "shards=4", "-q", "http://a.example/"]
        first, _ = run_counted(tmp_path, tmp_path / "first", *flags, "--recrawl", "7d", is_traced=True)
        idle, _ = run_counted(tmp_path, tmp_path / "first", "-q", is_traced=True)
        root, calls = tmp_path / "store", tmp_path / "calls"
        command = trace([*COMMAND, "run", str(root), *flags, "--recrawl", "10s", "--forever"], calls)
        machine = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_for(lambda: [status for _, status in web.asked].count(304) >= 4 * 401, 300)
        crawler("stop", str(root))
        machine.wait()
        visits = [status for _, status in web.asked].count(304)
    with calls.open(encoding="utf-8", errors="replace") as lines:
        both = count(lines, root)
    new, visit = per_page(first - idle, 401), (per_page(both, 1) - per_page(first, 1)) / visits
    with capsys.disabled():
        print(f"\nmetadata operations: a new page {new:.2f}, one of {visits} visits {visit:.2f} ({visit / new:.2f})")
    assert visit <= 0.5 * new


def _compared(first_idle_again: list[float]) -> str:
    new, nothing, visit = first_idle_again
    return f"a new page {new - nothing:.2f}, a visit {visit - nothing:.2f} ({(visit - nothing) / (new - nothing):.2f})"


def first_idle_again(web: Pages, folder: Path, is_traced: bool) -> Iterator[tuple[Counts, float]]:
    """What three runs cost: one that finds all pages, one without anything to do, one that finds 304 for all."""
    root = folder / "store"
    folder.mkdir()
    more = ["--connect-to", f"::127.0.0.1:{web.port}", "-j", "1"]
    settings = ["-w", "0", "-s", "spread=host", "--recrawl", "7d", "-s", "max_per_address=null", "-s", "shards=4"]
    yield run_counted(folder, root, "http://a.example/", *more, *settings, is_traced=is_traced)
    yield run_counted(folder, root, *more, is_traced=is_traced)
    web.asked.clear()
    crawler("refresh", str(root))
    yield run_counted(folder, root, *more, is_traced=is_traced)
    assert [status for path, status in web.asked if path != "/robots.txt"] == [304] * 401


def run_counted(folder: Path, root: Path, *args: str, is_traced: bool) -> tuple[Counts, float]:
    """`crawler run`: its operations on the store if it is traced, and its CPU time in seconds."""
    calls = folder / "calls"
    calls.touch()
    command = [*COMMAND, "run", str(root), *args, "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = trace(command, calls) if is_traced else command
    end(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), LIMIT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with calls.open(encoding="utf-8", errors="replace") as lines:
        return count(lines, root), seconds
