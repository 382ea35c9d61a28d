"""What workers that ended have left becomes one file, and no total changes: not by a kill, not by two who do it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab.workers import Setup, making, small_store
from lab.world import wait_for

from crawler.errors import Busy
from crawler.fleet import past
from crawler.fleet.budgets import Others
from crawler.fleet.control import ABANDONED
from crawler.fleet.heartbeats import END, Heartbeat, newest_in, read_counters
from crawler.fleet.members import MACHINE
from crawler.fleet.past import merge_if_many
from crawler.fleet.shards import Shards
from crawler.fleet.totals import totals
from crawler.settings.settings import Settings
from crawler.store.clock import Clock
from crawler.store.lock import LOCK, StoreLock
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.writer import StoreWriter

SETTINGS = Settings(shards=2, heartbeat=0.05, dead_after=1.0)
LONG_AGO = 2 * ABANDONED


def leave(root: Path, id: str, age: float = LONG_AGO, **facts: object) -> Path:
    """The file of a worker that ended so long ago."""
    path = root / Heartbeat(id, 7, END).name
    path.write_bytes(to_json({"id": id, "machine": f"of-{id}"} | facts))
    os.utime(path, (time.time() - age,) * 2)
    return path


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreWriter:
    """A store on which 150 workers have been, one of which withdrew failures that others had noted."""
    root = small_store(tmp_path, monkeypatch)
    for number in range(149):
        leave(root, f"{number:08x}", pages=number, reasons={"dns": 1, "tls": 2}, busiest=[[f"h{number}", number]])
    leave(root, f"{149:08x}", pages=1, reasons={"dns": -149})
    return StoreWriter(root, Files(root, "me", durable=False))


def counted(store: StoreWriter) -> dict[str, Any]:
    found = totals(read_counters(store.files))
    return {**found, "busiest": found["busiest"].most_common(past.BUSIEST), "reasons": dict(+found["reasons"])}


def ended(store: StoreWriter) -> list[str]:
    return [id for id, heartbeat in newest_in(store.files).items() if heartbeat.mark == END]


def test_many_become_one_and_no_total_changes(store: StoreWriter) -> None:
    before = counted(store)
    assert merge_if_many(store, SETTINGS) == 150
    assert len(ended(store)) == 1
    assert counted(store) == before
    assert before["reasons"] == {"tls": 298}
    assert not store.files.get(".lock")


@pytest.mark.parametrize("fact", [{"machine": [1]}, {"machine": {}}, {"folded": 1}, {"folded": [[1]]}])
def test_a_file_that_is_none_of_ours_does_not_keep_others_from_being_merged(
    store: StoreWriter, fact: dict[str, object]
) -> None:
    (Path(store.root) / Heartbeat("odd", 5).name).write_bytes(to_json(fact))
    leave(Path(store.root), "odd-too", **fact)
    before = counted(store)
    merge_if_many(store, SETTINGS)
    assert len(ended(store)) == 1 and counted(store) == before


@pytest.mark.parametrize("name", [Heartbeat("worker", 5).name, f"workers/at-work{MACHINE}"])
def test_workers_of_a_machine_at_work_stay_because_its_page_budget_has_their_pages(
    store: StoreWriter, name: str
) -> None:
    root = Path(store.root)
    (root / name).write_bytes(to_json({"machine": "at-work"}))
    replaced = leave(root, "replaced", machine="at-work", pages=50)
    merge_if_many(store, SETTINGS)
    assert replaced.exists() and len(ended(store)) == 2


def test_others_count_all_pages_that_were_brought_when_files_are_merged_while_they_read(store: StoreWriter) -> None:
    before = counted(store)["pages"]
    files = Merging(Path(store.root), "other", durable=False)
    files.merge = partial(merge_if_many, store, SETTINGS)
    others = Others(files, "other", 30.0, 2.0)
    others.look(0.0)
    assert len(ended(store)) == 1 and others.past == before


class Merging(Files):
    """Files of a machine that lists `workers/` just before another one merges them."""

    merge: Callable[[], object] | None = None

    def names(self, folder: str) -> list[str]:
        found = super().names(folder)
        merge, self.merge = self.merge, None
        if merge:
            merge()
        return found


def test_they_are_merged_again_when_there_are_many_again(store: StoreWriter) -> None:
    merge_if_many(store, SETTINGS)
    for path in Path(store.root, "workers").iterdir():
        os.utime(path, (time.time() - LONG_AGO,) * 2)
    for number in range(200):
        leave(Path(store.root), f"{number + 1000:08x}", pages=1)
    before = counted(store)
    assert merge_if_many(store, SETTINGS) == 201
    assert len(ended(store)) == 1
    assert counted(store) == before


@pytest.mark.parametrize("drops", [0, 70, 149])
def test_a_merge_that_is_killed_changes_no_total_and_the_next_one_finishes_it(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch, drops: int
) -> None:
    before = counted(store)
    drop, dropped = Files.drop, []

    def drop_or_die(self: Files, name: str) -> bool:
        if name.startswith("workers/") and len(dropped) == drops:
            raise KeyboardInterrupt
        dropped.append(name)
        return drop(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "drop", drop_or_die)
        with pytest.raises(KeyboardInterrupt):
            merge_if_many(store, SETTINGS)
    assert counted(store) == before
    merge_if_many(store, SETTINGS)
    assert len(ended(store)) == 1
    assert counted(store) == before


def test_who_ended_within_the_hour_is_left_alone_and_so_are_few(store: StoreWriter) -> None:
    young = leave(Path(store.root), "young", age=ABANDONED / 2, pages=7)
    merge_if_many(store, SETTINGS)
    assert young.exists()
    for number in range(past.MAX_ENDED - 1):
        leave(Path(store.root), f"{number + 1000:08x}", pages=1)
    assert merge_if_many(store, SETTINGS) == 0


def test_one_machine_does_it_while_the_other_leaves_it_alone(store: StoreWriter) -> None:
    before = counted(store)
    other = StoreWriter(store.root, Files(store.root, "other", durable=False))
    with other.alone("merging", SETTINGS):
        assert merge_if_many(store, SETTINGS) == 0
    assert len(ended(store)) == 150
    assert merge_if_many(other, SETTINGS) == 150
    assert merge_if_many(store, SETTINGS) == 0
    assert counted(store) == before


def test_a_machine_that_hung_and_lost_the_lock_counts_nobody_twice(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other has merged them all by the time that this one has added them up."""
    before = counted(store)
    with store.alone("merging", SETTINGS) as lock:

        def hang(counters: list[dict[str, Any]]) -> dict[str, Any]:
            monkeypatch.undo()
            other = Files(store.root, "other", durable=False)
            for name in other.all_names(""):
                if name.startswith(LOCK):
                    other.drop(name)
            other.put(LOCK, b"1\nheir\n")
            past.merge(other, time.time(), Held())
            wait_for(lambda: lock._lost)
            return totals(counters)

        monkeypatch.setattr(past, "totals", hang)
        with pytest.raises(Busy):
            past.merge(store.files, time.time(), lock)
    assert counted(store) == before


class Held(StoreLock):
    """A lock that the heir has."""

    def __init__(self) -> None:
        pass

    def check(self) -> None:
        pass


# ---- workers


@pytest.fixture
def make(store: StoreWriter) -> Iterator[Callable[..., Setup]]:
    with making(Setup, Path(store.root)) as make:
        yield make


def test_the_first_worker_of_a_machine_merges_them(store: StoreWriter, make: Callable[..., Setup]) -> None:
    before = counted(store)["pages"]
    setup = make()
    setup.beat()
    setup.upkeep._tidy()
    setup.upkeep._merge_past()
    assert len(ended(store)) == 1
    assert counted(store)["pages"] == before
    setup.beat()
    assert len(setup.shards.watch.seen) == 2, "itself and the file that is left: nobody else is remembered"


class Sleeper:
    """A worker with a clock that the test moves; in a suspended machine only the wall clock goes on."""

    def __init__(self, root: Path) -> None:
        self.monotonic, self.time = 1000.0, time.time()
        clock = Clock(monotonic=lambda: self.monotonic, time=lambda: self.time)
        self.shards = Shards(Files(root, "sleeper", durable=False), SETTINGS, clock=clock)
        assert self.shards.beat({"id": "sleeper", "pages": 1000}, "")


@pytest.mark.parametrize("clock", ["monotonic", "time"])
def test_a_worker_that_slept_until_it_was_merged_ends_and_is_counted_once(store: StoreWriter, clock: str) -> None:
    sleeper = Sleeper(Path(store.root))
    heartbeat = newest_in(store.files)["sleeper"]
    before = counted(store)["pages"]
    end = Heartbeat("sleeper", heartbeat.beat, END)
    assert store.files.claim(heartbeat.name, end.name)
    os.utime(Path(store.root) / end.name, (time.time() - LONG_AGO,) * 2)
    assert merge_if_many(store, SETTINGS) == 151
    setattr(sleeper, clock, getattr(sleeper, clock) + LONG_AGO)
    assert not sleeper.shards.beat({"id": "sleeper", "pages": 1000}, ""), "it was declared dead"
    assert ended(store) == [*newest_in(store.files)]
    assert counted(store)["pages"] == before


def test_a_worker_whose_file_is_gone_goes_on_if_it_did_not_sleep(store: StoreWriter) -> None:
    sleeper = Sleeper(Path(store.root))
    store.files.drop(newest_in(store.files)["sleeper"].name)
    sleeper.monotonic += 0.1
    assert sleeper.shards.beat({"id": "sleeper", "pages": 1000}, "")


def test_a_worker_goes_on_when_its_own_heartbeat_was_removed_by_a_call_that_hung_with_the_mount(
    store: StoreWriter,
) -> None:
    """A restarted NFS server is asked again, says that the name is gone, and nobody has merged the counters."""
    sleeper = Sleeper(Path(store.root))
    store.files.drop(newest_in(store.files)["sleeper"].name)
    sleeper.monotonic += 2 * SETTINGS.dead_after
    assert sleeper.shards.beat({"id": "sleeper", "pages": 1000}, "")
    assert [found["pages"] for found in read_counters(store.files) if found["heartbeat"].id == "sleeper"] == [1000]
