"""A worker around its visits: flushes, shards, rounds, the robots cache, stores that are away, and dead workers."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from crawler.crawl.worker.desk import Done
from lab.frontiers import add, frontier_of, make_root, on_disk

from crawler.crawl.machine import Machine, Plan
from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.worker import robots_cache as robots_cache_module
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.crawl.worker.upkeep import Upkeep
from crawler.crawl.worker.visit import Worker
from crawler.errors import StoreAway
from crawler.frontier import frontier as frontier_module
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store import sync as syncs
from crawler.store.mount import Draft, Files
from crawler.store.records import build_record
from crawler.store.store import Robots
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.page import Failure, Fetched, Reading

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_root(tmp_path)
    return tmp_path


class Setup:
    """A worker over a small store; the test runs its rounds."""

    def __init__(self, root: Path, workers: int = 1, **given: object) -> None:
        self.settings = Settings(**{"shards": 2, "durable": False, **given})  # type: ignore[arg-type]
        self.store = StoreWriter(root, Files(root, "worker", durable=False))
        self.scoreboard = Scoreboard(get_context("spawn"), workers, 4)
        self.seeds = Seeds(self.store, self.settings)
        self.upkeep = Upkeep(self.store, self.settings, self.seeds, self.scoreboard, 0, "machine")
        self.upkeep.shards.beat(self.upkeep.counters(), "")

    def keep(self, url: str, depth: int, *links: str) -> None:
        """As if a request slot had brought a page."""
        reading = Reading("", "utf-8", "", links)
        record = build_record(Fetched(url, 200), reading, depth, links, 0.0)
        self.upkeep.frontier.hand_over(Task(link, depth + 1) for link in links)
        self.upkeep.done(Done(Task(url, depth), record, 0))
        self.upkeep.flush()


@pytest.fixture
def setup(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Setup]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Setup] = []

    def make(**given: Any) -> Setup:
        made.append(Setup(root, **given))
        return made[-1]

    yield make
    for one in made:
        one.upkeep.closed = True
        one.upkeep._pool.shutdown()
        one.upkeep.shards.local_lock.release()


def test_a_worker_is_not_idle_while_it_has_batches_to_read(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    upkeep = setup().upkeep
    upkeep.frontier.own([0, 1])
    add(frontier_of(root, "giver"), *(Task(f"{A}{page}") for page in range(10)))
    add(frontier_of(root, "giver"), *(Task(f"{A}{page}") for page in range(10)))
    assert upkeep._is_idle()
    upkeep.frontier.read_inboxes([0, 1], fresh=True)
    for page in range(10):
        upkeep.table.mark_done([Task(f"{A}{page}")], kept=True)
    assert upkeep.table.waiting == 0
    assert not upkeep._is_idle()
    upkeep.frontier.read_on()
    assert upkeep._is_idle()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_gets_its_name_after_all_that_it_stands_for_is_on_the_disk(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    mine = setup()
    mine.store.files.durable = True
    mine.store.files.__dict__["_syncs_at_once"] = at_once
    written: set[Path] = set()  # files and folders that changed since they were brought to the disk
    lost: list[set[Path]] = []  # what a power cut would have taken, whenever a record appeared
    sync, fsync, write_new, rename = syncs.sync_all, os.fsync, Files._write_new, Draft.rename

    def seen(descriptor: int) -> Path:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))

    def note_write(self: Files, place: int, name: str, data: bytes, later: bool = False) -> None:
        written.update({seen(place) / name, seen(place)})
        write_new(self, place, name, data, later)

    def note_rename(draft: Draft, place: int) -> None:
        folder = seen(place)
        if folder.parent.name == "links":
            lost.append(written - {folder})  # its own name may come to the disk later
        if folder / draft.temporary in written:
            written.add(root / draft.name)
        written.discard(folder / draft.temporary)
        rename(draft, place)

    monkeypatch.setattr(syncs, "sync_all", lambda root: (sync(root), written.clear()))
    monkeypatch.setattr(os, "fsync", lambda descriptor: (fsync(descriptor), written.discard(seen(descriptor))))
    monkeypatch.setattr(Files, "_write_new", note_write)
    monkeypatch.setattr(Draft, "rename", note_rename)
    mine.store.put_html(A, "text")
    mine.keep(A, 0, B, C)
    assert lost == [set()]
    assert on_disk(root).keys() == {B, C} and mine.store.text(A) == "text"


def test_what_a_neighbour_leaves_is_looked_for_at_once_by_a_worker_that_has_little(
    root: Path, setup: Callable[..., Setup]
) -> None:
    mine = setup(workers=2)
    mine.upkeep.frontier.own([0, 1])
    neighbour = Frontier(Files(root, "neighbour", durable=False), mine.settings)
    neighbour.inboxes = {0: 0, 1: 0}
    neighbour.hand_over([Task(A)])
    neighbour.flush()
    assert neighbour.sent == 1
    mine.upkeep._poll_neighbours(time.monotonic())
    assert mine.upkeep.table.waiting == 0, "nobody has said anything"
    mine.scoreboard.set(1, "sent", 1)
    mine.upkeep._poll_neighbours(time.monotonic())
    assert mine.upkeep.table.waiting == 1


@pytest.mark.parametrize("failing", ["put", "draft", "publish"])
def test_a_flush_that_fails_keeps_its_pages_for_the_next(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    mine = setup()

    def fail(*_: object, **__: object) -> None:
        raise StoreAway("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Files, failing, fail)
        with pytest.raises(StoreAway):
            mine.keep(A, 0, B)
    assert mine.store.record(A) is None
    assert [path.name for path in root.glob("links/*/.*")] == [], "no draft is left"
    mine.upkeep.flush()
    assert mine.store.record(A) is not None
    assert mine.scoreboard.get(0, "pages") == 1
    assert on_disk(root).keys() == {B}


def test_a_mount_that_is_away_does_not_make_us_forget_that_a_page_is_nearer(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup(depth=3)
    mine.upkeep.frontier.own([0, 1])
    mine.keep(A, 3, B)
    mine.upkeep.table.meet("a.example", {urls.key(A)}, 1, lambda _: True)
    add(mine.upkeep.frontier, Task(A, 1))
    assert mine.upkeep.table.nearer
    with monkeypatch.context() as patch:
        patch.setattr(Files, "get", lambda *_: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            mine.upkeep.flush()
    mine.upkeep.flush()
    record = mine.store.record(A)
    assert record is not None and record["depth"] == 1
    assert on_disk(root)[B].depth == 2


def test_a_page_limit_that_earlier_runs_have_reached_lets_nothing_be_taken(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "workers" / "before@000009.end").write_text('{"machine": "another", "pages": 10}')
    add(frontier_of(root, "other"), Task(A))
    mine = setup(max_pages=10)
    found: list[object] = []

    def look_and_leave() -> bool:
        mine.upkeep._poll()
        found.extend([mine.upkeep.table.waiting, mine.upkeep.take(0)])
        return True

    with monkeypatch.context() as patch:
        patch.setattr(mine.upkeep, "_may_leave", look_and_leave)
        mine.upkeep.run()
    assert found == [1, None]
    assert mine.upkeep._may_leave() and mine.upkeep.outcome == "limit"


@pytest.mark.parametrize("failing", ["take", "mark_done"])
def test_a_fault_of_the_task_table_does_not_end_a_request_slot_silently(
    setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    mine = setup()
    worker = Worker(mine.store, mine.upkeep, mine.seeds)
    full = sqlite3.OperationalError("database or disk is full")

    def fail(*_: object, **__: object) -> None:
        raise full

    task, host = Task(A), Host("a.example", 0.0, True, 0)
    monkeypatch.setattr(mine.upkeep.frontier, "take", lambda: (task, host) if failing != "take" else fail())
    monkeypatch.setattr(mine.upkeep.table, failing, fail)
    monkeypatch.setattr(
        worker, "visit", fail if failing == "mark_done" else lambda *_: mine.upkeep.fail(StoreAway("x"))
    )
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    slot = threading.Thread(target=worker._run_slot, args=(0,), daemon=True)
    slot.start()
    slot.join(300)
    assert mine.upkeep.fault is full
    with pytest.raises(sqlite3.OperationalError):  # where the machine sees it, and makes another worker
        worker.run(0)


def test_a_worker_that_begins_while_the_mount_is_away_waits_for_it(
    setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup()
    beat, failures = mine.upkeep.shards.beat, [StoreAway("gone")]

    def fail_once(*args: Any) -> bool:
        if failures:
            raise failures.pop()
        mine.scoreboard.drain()
        return beat(*args)

    monkeypatch.setattr(mine.upkeep.shards, "beat", fail_once)
    mine.upkeep.run()
    assert not failures
    assert mine.upkeep.outcome == "stopped"


def test_a_worker_that_is_told_to_stop_while_the_mount_is_away_stops(
    setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup()
    monkeypatch.setattr(mine.upkeep.shards, "beat", lambda *_: (_ for _ in ()).throw(StoreAway("gone")))
    mine.scoreboard.drain()
    mine.upkeep.run()
    assert mine.upkeep.closed and mine.upkeep.error is None


def test_the_memory_of_dead_hosts_is_bounded(setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache_module, "MAX_CACHED", 10)
    monkeypatch.setattr(robots_cache_module, "MAX_PENDING", 10)
    mine = setup(retries=0)
    robots_cache = RobotsCache(mine.upkeep, mine.seeds, lambda url: Failure(url, "dns"))
    for number in range(50):
        robots_cache.request(Task(f"https://host{number}.example/"))
    assert len(robots_cache._rules) + len(robots_cache._failed) + len(robots_cache._steps) <= 30


def test_the_memory_of_rules_is_bounded(setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache_module, "MAX_CACHED_BYTES", 1_000_000)
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % number for number in range(200))
    mine = setup()
    robots_cache = RobotsCache(mine.upkeep, mine.seeds, lambda url: Fetched(url, 200, {}, body))
    for number in range(50):
        robots_cache.request(Task(f"https://host{number % 40}.example/"))
        assert robots_cache._weight == sum(rules.weight for rules, _ in robots_cache._rules.values()) <= 1_000_000
    assert 1 < len(robots_cache._rules) < 40
    assert robots_cache.of(Task("https://host15.example/1")), "what was forgotten is in the store"


def test_failures_of_many_threads_are_all_counted(setup: Callable[..., Setup]) -> None:
    mine = setup()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            tasks = [Task(f"{A}{number}") for number in range(400)]
            list(pool.map(lambda task: mine.upkeep.put_failure(task, Failure(task.url, "dns")), tasks))
    finally:
        sys.setswitchinterval(before)
    assert mine.upkeep.counters()["reasons"] == {"dns": 400}
    assert mine.scoreboard.get(0, "failed") == 400
    assert len(mine.store.done("a.example")) == 400


def test_a_shard_is_not_given_back_while_a_page_of_it_is_in_flight(root: Path, setup: Callable[..., Setup]) -> None:
    mine = setup()
    add(frontier_of(root, "other"), Task(A))
    mine.upkeep._poll()
    assert mine.upkeep.take(0)
    shard = mine.upkeep.frontier.shard_of(Task(A))
    (root / "workers" / "aaa@000001").write_text("{}")
    (root / "workers" / "bbb@000001").write_text("{}")
    mine.upkeep.shards.beat(mine.upkeep.counters(), "")
    mine.upkeep._balance()  # three workers and two shards: we come last, and have too many
    assert mine.upkeep._releasing == {shard}
    assert (root / "shards" / f"{shard:03d}@worker").exists()
    assert not mine.upkeep._is_idle()
    mine.keep(A, 0)
    mine.upkeep._balance()
    assert (root / "shards" / f"{shard:03d}@free").exists()
    assert mine.upkeep._is_idle() and not mine.upkeep.frontier.owned


@pytest.mark.parametrize("known", [False, True])
def test_a_mount_that_hangs_after_a_url_was_taken_keeps_us_from_requesting(
    root: Path, setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    mine = setup()
    add(frontier_of(root, "other"), Task(A))
    mine.upkeep._poll()
    worker = Worker(mine.store, mine.upkeep, mine.seeds)
    requested: list[str] = []

    def hang(host: str) -> Robots | None:
        mine.upkeep.shards.beaten -= mine.settings.dead_after  # so long that we have been replaced
        return Robots(time.time(), 404, b"") if known else None

    monkeypatch.setattr(mine.store, "robots", hang)
    monkeypatch.setattr(worker.fetcher, "get", lambda url, **_: requested.append(url) or Failure(url, "dns"))
    for _ in ("met", "requested"):
        taken = mine.upkeep.frontier.take()
        assert taken
        worker._run_task(0, *taken)
    worker.fetcher.close()
    assert not requested
    assert not mine.upkeep.table.taken and mine.upkeep.frontier.take(), "it waits, in case that we were not"


def test_a_shard_that_is_gained_while_a_hosts_folders_are_listed_has_it_met_again(
    setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup(spread="url")
    pages = [f"{A}{number}" for number in range(20)]
    first, second = (
        next(page for page in pages if mine.upkeep.frontier.shard_of(Task(page)) == shard) for shard in (0, 1)
    )
    mine.upkeep.frontier.own([0])
    add(mine.upkeep.frontier, Task(first))
    worker = Worker(mine.store, mine.upkeep, mine.seeds)

    def list_slowly(host: str, past: int) -> set[str]:
        mine.store.put_failure(second, Failure(second, "http-404"), 1)  # by the one who gives the shard back
        mine.upkeep.frontier.own([1], past=mine.store.past())
        return set()  # as it was when the listing began

    with monkeypatch.context() as patch:
        patch.setattr(mine.store, "done_by_others", list_slowly)
        taken = mine.upkeep.frontier.take()
        assert taken
        worker.visit(*taken)
    taken = mine.upkeep.table.take(time.monotonic() + 1000)
    assert taken and not taken[1].met
    worker.visit(*taken)
    worker.fetcher.close()
    add(mine.upkeep.frontier, Task(second))
    assert mine.upkeep.table.waiting == 1, "the other one is known to be done"


def test_a_host_of_which_only_retries_came_to_us_rests_like_any_other(root: Path, setup: Callable[..., Setup]) -> None:
    mine = setup(robots=False)
    add(frontier_of(root, "last owner"), Task(A, 0, 1, time.monotonic() + 1000), Task(A + "2"))
    mine.upkeep._poll()
    worker = Worker(mine.store, mine.upkeep, mine.seeds)
    taken = mine.upkeep.frontier.take()
    assert taken and not taken[1].met
    worker.visit(*taken)
    worker.fetcher.close()
    assert mine.upkeep.frontier.take() is None, "its last owner requested it less than a delay ago"
    assert mine.upkeep.frontier.table.take(time.monotonic() + 1000) is not None


def test_news_that_come_while_a_beat_says_idle_change_the_next_mark(
    setup: Callable[..., Setup], monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = setup().upkeep
    upkeep._poll()
    is_idle = upkeep._is_idle

    def idle_until_now() -> bool:
        was_idle = is_idle()
        add(upkeep.frontier, Task(A))
        return was_idle

    monkeypatch.setattr(upkeep, "_is_idle", idle_until_now)
    upkeep._beat()
    assert upkeep.shards.heartbeat.idle
    assert upkeep.shards.heartbeat.mark != str(upkeep.table.arrivals)


def test_what_dead_workers_had_in_hand_is_all_waiting_after_several_deaths(root: Path) -> None:
    machine = Machine(Plan(root, workers=1, threads=1, quiet=True), Settings(shards=2, durable=False))
    machine._processes[0] = SimpleNamespace(join=lambda _: None, exitcode=-signal.SIGKILL)  # type: ignore[assignment]
    for number in range(3):
        machine.scoreboard.set_in_flight(0, 0, f"0\t0\t0\t{A}{number}")
        machine._on_worker_death(0)
    assert {task.url: task.attempt for task in on_disk(root).values()} == {f"{A}{number}": 1 for number in range(3)}
