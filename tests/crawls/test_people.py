"""What people do to a store: they empty the frontier, copy a live store, move a corpus, cut crawl.yaml off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from lab.marks import later
from lab.webs import TreeWeb
from lab.world import COMMAND, World, crawler, end, wait_for, world

pytestmark = pytest.mark.fleet  # for time
TREE = {"hosts": 4, "fanout": 3, "depth": 5, "delay": 0.05}  # lost links do not hide in a tree
SOON = ["-s", "dead_after=4s", "-s", "heartbeat=0.5s"]  # a copied worker is dead after this


def rm_files(frontier: Path) -> None:
    """rm frontier/*/*"""
    for path in frontier.glob("*/[!.]*"):
        path.unlink(missing_ok=True)


def rm_folders(frontier: Path) -> None:
    """rm -rf frontier/*"""
    for path in frontier.glob("[!.]*"):
        shutil.rmtree(path, ignore_errors=True)


def rm_all(frontier: Path) -> None:
    """rm -rf frontier"""
    shutil.rmtree(frontier, ignore_errors=True)


def move_away(frontier: Path) -> None:
    """mv frontier elsewhere"""
    frontier.rename(frontier.with_name("elsewhere"))


def replace(frontier: Path) -> None:
    """mv frontier elsewhere; mkdir frontier"""
    move_away(frontier)
    frontier.mkdir()


def cut_off(frontier: Path) -> None:
    """Cut all batches, as a power cut may where nothing is synced."""
    for path in frontier.glob("*/[!.]*"):
        with suppress(FileNotFoundError):
            os.truncate(path, path.stat().st_size // 2)


HOW = [rm_files, rm_folders, rm_all, move_away, replace]


@pytest.mark.parametrize("how", [HOW[0], *later(*HOW[1:])], ids=lambda how: how.__name__)
def test_a_frontier_that_is_emptied_while_a_crawl_runs_costs_no_page(
    tmp_path: Path, how: Callable[[Path], None]
) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(40)
        how(w.root / "frontier")
        w.until(120)
        if (w.root / "frontier").exists():
            rm_files(w.root / "frontier")
        said = end(process)
        assert w.differences() == []
        assert "was emptied or removed" in said


@pytest.mark.parametrize("how", [HOW[0], *later(*HOW[1:], cut_off)], ids=lambda how: how.__name__)
def test_a_frontier_that_is_emptied_between_two_runs_costs_no_page(tmp_path: Path, how: Callable[[Path], None]) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 40)
        how(w.root / "frontier")
        w.run()
        assert w.differences() == []


def test_one_emptied_shard_is_enough_and_the_crawl_says_so(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 40)
        largest = max(
            (w.root / "frontier").glob("[0-9]*"),
            key=lambda folder: sum(path.stat().st_size for path in folder.iterdir()),
        )
        for path in largest.glob("[!.]*"):
            path.unlink()
        crawler("check", str(w.root), code=1)
        said = w.run()
        assert f"frontier/{largest.name} was emptied or removed" in said
        assert w.differences() == []
        assert crawler("check", str(w.root)).splitlines()[-1].startswith("no problems")
        before = len(w.log)
        assert "rehydrat" not in w.run()
        assert len(w.log) == before


def stop_after(w: World, pages: int, *args: str) -> None:
    process = w.start(*w.web.seeds(), *args)
    w.until(pages)
    process.terminate()
    end(process, 3)


# ---- copies


def rsync(source: Path, to: Path) -> None:
    # 24: some files vanished before they could be copied.
    done = subprocess.run(["rsync", "-a", f"{source}/", f"{to}/"], capture_output=True, check=False, timeout=60)
    assert done.returncode in (0, 24), done.stderr


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
@pytest.mark.parametrize("pages", [60, *later(3, 150, 300)])
def test_a_copy_of_a_live_store_checks_itself_and_crawls_to_the_end(tmp_path: Path, pages: int) -> None:
    with world(TreeWeb(**{**TREE, "delay": 0.02}), tmp_path) as w:
        process = w.start(*w.web.seeds(), *SOON)
        w.until(pages)
        (tmp_path / "copy").mkdir()
        for noun in ("errs", "frontier", "htmls"):  # rsync's own order, but as slow as for a large store
            rsync(w.root / noun, tmp_path / "copy" / noun)
        w.until(min(pages + 60, 360))
        rsync(w.root, tmp_path / "rest")
        for path in (tmp_path / "rest").iterdir():
            if path.name not in ("errs", "frontier", "htmls"):
                path.rename(tmp_path / "copy" / path.name)
        end(process)
        assert w.differences() == []
        copy = World(w.web, w.port, tmp_path)
        copy.root = tmp_path / "copy"
        said = copy.run(*SOON)
        assert "this store was copied" in said
        assert copy.differences() == []
        assert crawler("check", str(copy.root)).splitlines()[-1].startswith("no problems")
        assert json.loads(crawler("status", str(copy.root), "--json"))["pages"] == len(w.web.expected().pages)
        assert "copied" not in copy.run(*SOON), "it is no copy any more"


def test_a_store_that_is_moved_or_killed_is_no_copy(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        process = w.start(*w.web.seeds(), *SOON)
        w.until(40)
        process.kill()
        process.wait()
        w.root = w.root.rename(tmp_path / "moved")
        said = w.run(*SOON)
        assert "copied" not in said and "rehydrat" not in said
        assert w.differences() == []


def test_settings_and_seeds_come_along_with_pages_records_and_failures(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 40, "--exclude", "/never/", "-H", "Authorization: Bearer s3cret", "--allow-private")
        settings, seeds = (
            (w.root / "crawl.yaml").read_text(),
            sorted(path.read_text() for path in (w.root / "seeds").iterdir()),
        )
        copy = tmp_path / "copy"
        for noun in ("htmls", "links", "errs"):
            shutil.copytree(w.root / noun, copy / noun)
        assert not [path for path in copy.rglob("*") if path.is_file() and b"s3cret" in path.read_bytes()]
        pages = len(w.urls())
        w.root = copy
        said = w.run("-j", "2", quick=False)
        assert "using the settings that came with the pages" in said
        assert (copy / "crawl.yaml").read_text() == settings
        assert sorted(path.read_text() for path in (copy / "seeds").glob("[!r]*")) == seeds
        assert w.differences() == []
        assert w.status()["pages"] == len(w.web.expected().pages) > pages


def test_pages_without_settings_ask_for_them(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 40)
        copy = tmp_path / "copy"
        shutil.copytree(w.root / "links", copy / "links")
        said = crawler("run", str(copy), code=2)
        assert "has pages but no crawl.yaml; give the settings of that crawl" in said
        assert not (copy / "README").exists()
        assert "--accept-defaults" in said
        process = subprocess.Popen(
            [*COMMAND, "run", str(copy), "--accept-defaults", "--time-limit", "1s"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert "rehydrated: " in process.communicate(timeout=120)[0]


# ---- crawl.yaml


@pytest.mark.parametrize("damage", ["cut", *later("empty", "zeros")])
def test_a_crawl_yaml_that_is_empty_or_cut_is_refused(tmp_path: Path, damage: str) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 20)
        path = w.root / "crawl.yaml"
        whole = path.read_bytes()
        path.write_bytes({"empty": b"", "cut": whole[: whole.index(b"max_pages")], "zeros": bytes(len(whole))}[damage])
        before = len(w.log)
        said = crawler("run", str(w.root), code=2)
        assert "restore it; errs/.crawl.yaml has the settings of the last run" in said
        assert len(w.log) == before
        shutil.copy(w.root / "errs" / ".crawl.yaml", path)
        w.run()
        assert w.differences() == []


# ---- the lock


def test_a_machine_that_died_while_it_held_the_lock_has_an_heir(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 20, *SOON)
        shutil.rmtree(w.root / "frontier")
        (w.root / ".lock").write_text("4242\nanother-machine\n")  # as it leaves it when it is killed
        said = w.run(*SOON)
        assert "waiting: another machine is rehydrating" in said
        assert "shows no heartbeat for 4 s: taking over" in said
        assert w.differences() == []
        assert not [path.name for path in w.root.iterdir() if path.name.startswith(".lock")]


def test_a_stop_ends_the_waiting_for_the_lock(tmp_path: Path) -> None:
    with world(TreeWeb(**TREE), tmp_path) as w:
        stop_after(w, 20)
        shutil.rmtree(w.root / "frontier")
        (w.root / ".lock").write_text("4242\nanother-machine\n")
        process = w.start()
        wait_for(lambda: list((w.root / "workers").glob("*.machine")))
        (machine,) = (w.root / "workers").glob("*.machine")
        machine.with_suffix(".stop").touch()
        assert "stopped while another machine was rehydrating" in end(process, 3)
        (w.root / ".lock").unlink()
        w.run()
        assert w.differences() == []
