"""A worker is killed at each call to the store while it replaces a page: nothing is lost, and all is made good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from lab.changing import DAY, HOST, HOUR, Keeping, Law
from lab.faults import FaultyOs
from lab.frontiers import add, frontier_of, on_disk
from lab.workers import small_store

from crawler.frontier.recrawl import task_now
from crawler.store import history
from crawler.store.store import Store

OLD = {"/": Law(links=("/one",)), "/one": Law(), "/two": Law()}
NEW = {"/": Law(every=DAY, links=("/one", "/two")), "/one": Law(), "/two": Law()}
STEP = 3  # of the kill points, each round begins at another one


class Killed(BaseException):
    """The process is gone: no call is made any more."""


class Deadly(FaultyOs):
    """`os` of a process that is killed at one call."""

    def _door(self, name: str) -> Any:
        call = super()._door(name)

        def deadly(*args: Any, **kwargs: Any) -> Any:
            if self.first and len(self.calls) >= self.first:
                raise Killed
            return call(*args, **kwargs)

        return deadly

    def _fails(self) -> bool:
        return False


def run(root: Path, laws: dict[str, Law], days: float, seed: str = "", disk: FaultyOs | None = None) -> bool:
    """Let a worker run for some hours, `days` after the start; False if it was killed."""
    mine = Keeping(root, laws, recrawl=30 * DAY, history="all", max_delay=1.0)
    mine.simulation.loop.now += days * DAY
    try:
        with (disk or FaultyOs()).installed():
            mine.keep_up(2 * HOUR, seed)
    except Killed:
        return False
    finally:
        mine.end()
    return True


def wrong(root: Path) -> list[str]:
    """What is lost at this moment."""
    store = Store(root)
    record, html = store.record(f"{HOST}/"), store.text(f"{HOST}/")
    if record is None or html is None:
        return ["the page is gone"]
    found, versions = [], history.versions(store.files, f"{HOST}/")
    waiting = {task.subject for task in on_disk(root).values()}
    is_new = f"{HOST}/two" in record["links"]
    if is_new and "version 0" in html:
        found.append("the record is new, and its html is not")
    if "version 0" not in html and not versions:
        found.append("the older version was replaced before it was kept")
    if is_new and f"{HOST}/two" not in waiting and store.record(f"{HOST}/two") is None:
        found.append("the record is new, and its link is lost")
    if f"{HOST}/" not in waiting:
        found.append("the page has no next visit")
    return found


@pytest.mark.fleet  # for time
def test_a_kill_at_any_call_loses_nothing_and_the_next_worker_makes_it_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = small_store(tmp_path, monkeypatch)
    assert run(first, OLD, 0, "/")
    record = Store(first).record(f"{HOST}/")
    assert record is not None
    add(frontier_of(first, "refresh"), task_now(record))
    whole = Deadly()
    shutil.copytree(first, tmp_path / "whole")
    assert run(tmp_path / "whole", NEW, 2, disk=whole)
    kills = range(1, len(whole.calls), STEP)
    assert len(kills) > 30
    for call in kills:
        root = tmp_path / f"store-{call}"
        shutil.copytree(first, root)
        run(root, NEW, 2, disk=Deadly(first=call))
        assert wrong(root) == [], f"killed at call {call}, {whole.calls[call - 1]}"
        assert run(root, NEW, 3)
        assert wrong(root) == [], f"after a kill at call {call}"
        store = Store(root)
        made = store.record(f"{HOST}/")
        assert made is not None and made["visits"] in (2, 3) and made["changes"] == 1
        assert "version 0" not in (store.text(f"{HOST}/") or ""), f"after a kill at call {call}"
        assert store.record(f"{HOST}/two") is not None
        planned = [task.visit for task in on_disk(root).values() if task.subject == f"{HOST}/"]
        coming = [visit for visit in planned if visit > made["visits"]]  # others are dropped when they are due
        assert coming == [made["visits"] + 1], f"one next visit, after a kill at call {call}"
        shutil.rmtree(root)
