"""What a crawl costs its mount: metadata operations per page over a whole `crawler run`, the coordination included."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.conditional import serving
from lab.machines.mounts import Mount
from lab.operations import Counts, can_trace, count, per_page, show, trace
from lab.webs import FlatWeb, TreeWeb
from lab.world import COMMAND, World, crawler, end, world

from crawler.commands.demo.web import Web
from crawler.errors import LIMIT

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
    """Operations and CPU time of a whole run, without what a run costs that finds nothing to do."""
    pages: dict[str, str | int] = {
        f"/{number}": f"<title>{number}</title>" + "<p>word " * 2000 for number in range(400)
    }
    root, site = tmp_path / "store", "http://a.example"
    with serving({"/": "".join(f"<a href={path}>x</a>" for path in pages), **pages}) as web:
        more = ["--connect-to", f"::127.0.0.1:{web.port}", "-j", "1"]
        settings = ["-w", "0", "-s", "spread=host", "--recrawl", "7d", "-s", "max_per_address=null", "-s", "shards=4"]
        first = run_traced(tmp_path, root, f"{site}/", *more, *settings)
        idle = run_traced(tmp_path, root, *more)
        web.asked.clear()
        crawler("refresh", str(root))
        again = run_traced(tmp_path, root, *more)
        assert [status for path, status in web.asked if path != "/robots.txt"] == [304] * 401
    new, visit, nothing = (per_page(counts, 401) for counts, _ in (first, again, idle))
    cpu_new, cpu_visit, cpu_nothing = (seconds for _, seconds in (first, again, idle))
    with capsys.disabled():
        print("\n" + show("new pages", first[0], 401) + "\n" + show("visits that find 304", again[0], 401))
        print(f"metadata operations: a new page {new - nothing:.2f}, a visit {visit - nothing:.2f}")
        print(
            f"CPU: a new page {(cpu_new - cpu_nothing) / 0.401:.2f} ms, a visit {(cpu_visit - cpu_nothing) / 0.401:.2f}"
        )
    assert visit - nothing <= 0.65 * (new - nothing), "its record is read and written; of a new page, two files"


def run_traced(folder: Path, root: Path, *args: str) -> tuple[Counts, float]:
    """`crawler run` under strace: its operations on the store, and its CPU time in seconds."""
    calls = folder / "calls"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*COMMAND, "run", str(root), *args, "-q"]
    end(subprocess.Popen(trace(command, calls), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True), LIMIT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with calls.open(encoding="utf-8", errors="replace") as lines:
        return count(lines, root), seconds
