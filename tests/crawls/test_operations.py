"""What a crawl costs its mount: metadata operations per page over a whole `crawler run`, the coordination included."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.machines.mounts import Mount
from lab.operations import Counts, can_trace, count, per_page, show, trace
from lab.webs import FlatWeb, TreeWeb
from lab.world import COMMAND, World, end, world

from crawler.commands.demo.web import Web

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
