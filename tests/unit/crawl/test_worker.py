"""A worker around its visits: flushes, shards, rounds, the robots cache, and stores that are away."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from lab.frontiers import add, frontier_of, frontier_with, on_disk
from lab.loops import run
from lab.workers import Setup, SimulatedSetup, making, page, small_store

from crawler.crawl.page_budget import PageBudget
from crawler.crawl.worker import reader as reader_module
from crawler.crawl.worker import robots_cache as robots_cache_module
from crawler.crawl.worker.worker import WriterThreads
from crawler.errors import StoreAway
from crawler.frontier import frontier as frontier_module
from crawler.frontier.hosts import Host
from crawler.frontier.table import Table
from crawler.frontier.task import Task, revisit_task
from crawler.store import sync as syncs
from crawler.store.mount import Draft, Files
from crawler.store.store import Robots, path_of
from crawler.web import markup, urls
from crawler.web.page import Failure, Fetched

A, B, C = "https://a.example/", "https://b.example/", "https://c.example/"

Make = Callable[..., Setup]
Simulate = Callable[..., SimulatedSetup]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_store(tmp_path, monkeypatch)


@pytest.fixture
def setup(root: Path) -> Iterator[Make]:
    """Make a worker that has shown its first heartbeat; the test calls its steps."""
    with making(Setup, root) as make:

        def begin(*get: Any, **given: Any) -> Setup:
            mine = make(*get, **given)
            mine.beat()
            return mine

        yield begin


@pytest.fixture
def simulated(root: Path) -> Iterator[Simulate]:
    """Make a worker in simulated time; it begins when the test runs it."""
    with making(SimulatedSetup, root) as make:
        yield make


def gone(*_: object, **__: object) -> Any:
    raise StoreAway("gone")


# ---- rounds


def test_a_worker_is_not_idle_while_it_has_batches_to_read(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontier_module, "MAX_LINES", 10)
    mine = setup()
    mine.frontier.own([0, 1])
    add(frontier_of(root, "giver"), *(Task(f"{A}{page}") for page in range(10)))
    add(frontier_of(root, "giver"), *(Task(f"{A}{page}") for page in range(10)))
    assert mine.upkeep.is_idle()
    mine.frontier.read_inboxes([0, 1], fresh=True)
    for number in range(10):
        mine.table.mark_done([Task(f"{A}{number}")], kept=True)
    assert mine.table.waiting == 0
    assert not mine.upkeep.is_idle()
    mine.frontier.read_on()
    assert mine.upkeep.is_idle()


def test_what_a_neighbour_leaves_is_looked_for_at_once_by_a_worker_that_has_little(root: Path, setup: Make) -> None:
    mine = setup(workers=2)
    mine.frontier.own([0, 1])
    neighbour = frontier_with(Files(root, "neighbour", durable=False), mine.settings)
    neighbour.inboxes = {0: 0, 1: 0}
    neighbour.hand_over([Task(A)])
    neighbour.flush()
    assert neighbour.sent == 1
    mine.upkeep._poll_neighbours(time.monotonic())
    assert mine.table.waiting == 0, "nobody has said anything"
    mine.scoreboard.set(1, "sent", 1)
    mine.upkeep._poll_neighbours(time.monotonic())
    assert mine.table.waiting == 1


def test_a_page_limit_that_earlier_runs_have_reached_lets_nothing_be_taken(root: Path, simulated: Simulate) -> None:
    (root / "workers" / "before@000009.end").write_text('{"machine": "another", "pages": 10}')
    add(frontier_of(root, "other"), Task(A))
    mine = simulated(max_pages=10)
    budget = PageBudget(mine.store.files, "machine", mine.scoreboard, lambda: mine.settings, mine.simulation.clock)
    budget.look()
    visited: list[Task] = []

    async def visit(task: Task, host: Host) -> None:
        visited.append(task)

    async def begin_and_poll() -> None:
        assert await mine.worker.upkeep.begin()
        await mine.worker.upkeep._poll()
        mine.in_flight.start(visit)
        assert mine.table.waiting == 1 and not mine.table.taken and mine.in_flight.count == 0

    mine.simulation.run(begin_and_poll())
    assert visited == []
    assert mine.upkeep._may_leave() and mine.ending.outcome == "limit"


@pytest.mark.parametrize("failing", ["take", "rest", "mark_done", "next_due"])
def test_a_fault_of_the_task_table_reaches_the_supervisor(
    root: Path, simulated: Simulate, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    add(frontier_of(root, "other"), Task(A))
    mine = simulated(robots=False, retries=0)

    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Table, failing, fail)
    with pytest.raises(sqlite3.OperationalError):  # where the machine sees it, and makes another worker
        mine.run()
    assert mine.ending.closed and not mine.scoreboard.in_flight(0)


def test_news_that_come_while_a_beat_says_idle_change_the_next_mark(setup: Make) -> None:
    mine = setup()
    mine.upkeep._poll()
    counters, mark = mine.upkeep.report()
    assert mark
    add(mine.frontier, Task(A))  # after the loop has said so, and before others see it
    mine.worker.heartbeat.beat(counters, mark)
    assert mine.shards.heartbeat.idle
    assert mine.shards.heartbeat.mark != str(mine.table.arrivals)
    assert mine.upkeep.report()[1] == "", "it is not idle any more"


# ---- the flush


@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_gets_its_name_after_all_that_it_stands_for_is_on_the_disk(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    mine = setup()
    mine.store.files.durable = True
    monkeypatch.setattr(syncs, "one_call_syncs_all", lambda root: at_once)
    written: set[Path] = set()  # files and folders that changed since they were brought to the disk
    lost: list[set[Path]] = []  # what a power cut would have taken, whenever a record appeared
    order: list[str] = []
    sync, fsync, write_new, rename = syncs.Disk.sync, os.fsync, Files._write_new, Draft.rename

    def seen(descriptor: int) -> Path:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))

    def note_write(self: Files, place: int, name: str, *more: Any, **how: Any) -> None:
        written.update({seen(place) / name, seen(place)})
        write_new(self, place, name, *more, **how)

    def note_rename(draft: Draft, place: int) -> None:
        folder = seen(place)
        order.append(folder.parent.name)
        if folder.parent.name == "links":
            lost.append(written - {folder})  # its own name may come to the disk later
        if folder / draft.temporary in written:
            written.add(root / draft.name)
        written.discard(folder / draft.temporary)
        rename(draft, place)

    def note_fsync(descriptor: int) -> None:
        fsync(descriptor)
        written.discard(seen(descriptor))

    def note_sync(disk: syncs.Disk) -> None:
        sync(disk)
        written.clear()

    monkeypatch.setattr(syncs.Disk, "sync", note_sync)
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Files, "_write_new", note_write)
    monkeypatch.setattr(Draft, "rename", note_rename)
    mine.cookies.keep(urlsplit(A), "s=1")
    mine.keep(A, 0, B, C, text="text")
    assert order[:2] == ["cookies", "htmls"] and set(order[2:-1]) == {"frontier"} and order[-1] == "links"
    assert lost == [set()]
    assert on_disk(root).keys() == {B, C} and mine.store.text(A) == "text"


@pytest.mark.parametrize("failing", ["put", "draft", "publish"])
def test_a_flush_that_fails_keeps_its_pages_for_the_next(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    mine = setup()
    with monkeypatch.context() as patch:
        patch.setattr(Files, failing, gone)
        with pytest.raises(StoreAway):
            mine.keep(A, 0, B)
    assert mine.store.record(A) is None
    assert [path.name for path in root.glob("links/*/.*")] == [], "no draft is left"
    assert mine.flush.count == 1
    mine.upkeep.flush()
    assert mine.store.record(A) is not None
    assert mine.scoreboard.get(0, "pages") == 1
    assert on_disk(root).keys() == {B}


def test_a_failure_of_one_writer_is_known_only_when_the_others_have_ended() -> None:
    threads, written, is_failed = WriterThreads(has_latency=True), [], threading.Event()

    def write(number: int) -> None:
        if number == 0:
            is_failed.set()
            raise StoreAway("gone")
        assert is_failed.wait(60)
        time.sleep(0.01)
        written.append(number)

    with pytest.raises(StoreAway):
        threads.run(write, range(8))
    assert sorted(written) == [1, 2, 3, 4, 5, 6, 7], "else they would leave drafts after all drafts were removed"


def test_a_mount_that_is_away_does_not_make_us_forget_that_a_page_is_nearer(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup(depth=3)
    mine.frontier.own([0, 1])
    mine.keep(A, 3, B)
    mine.table.meet("a.example", {urls.key(A)}, lambda _: True)
    add(mine.frontier, Task(A, 1))
    assert mine.table.nearer
    with monkeypatch.context() as patch:
        patch.setattr(Files, "get", gone)
        with pytest.raises(StoreAway):
            mine.upkeep.flush()
    mine.upkeep.flush()
    record = mine.store.record(A)
    assert record is not None and record["depth"] == 1
    assert on_disk(root)[B].depth == 2


def test_all_failures_are_counted(setup: Make) -> None:
    mine = setup()
    for number in range(400):
        mine.flush.put_failure(Task(f"{A}{number}"), Failure(f"{A}{number}", "dns"))
    assert mine.scoreboard.get(0, "failed") == 0, "not before their records are there"
    mine.upkeep.flush()
    assert mine.upkeep.report()[0]["reasons"] == {"dns": 400}
    assert mine.scoreboard.get(0, "failed") == 400
    assert len(mine.store.done("a.example")) == 400


# ---- a store that is away


def test_a_worker_that_begins_while_the_mount_is_away_waits_for_it(
    simulated: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = simulated()
    beat, failures = mine.shards.beat, [StoreAway("gone")]

    def fail_once(*args: Any) -> bool:
        if failures:
            raise failures.pop()
        mine.scoreboard.drain()
        return beat(*args)

    monkeypatch.setattr(mine.shards, "beat", fail_once)
    assert mine.run() == "stopped"
    assert not failures
    assert list((mine.root / "workers").glob("worker@*.end")), "it has signed off"


def test_a_worker_that_is_told_to_stop_while_the_mount_is_away_stops(
    simulated: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = simulated()
    monkeypatch.setattr(mine.shards, "beat", gone)
    mine.scoreboard.drain()
    assert mine.run() == "stopped"
    assert mine.ending.closed and mine.ending.error is None


@pytest.mark.parametrize("known", [False, True])
def test_a_mount_that_hangs_after_a_url_was_taken_keeps_us_from_requesting(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    requested: list[str] = []

    async def get(url: str, **_: Any) -> Failure:
        requested.append(url)
        return Failure(url, "dns")

    mine = setup(get, delay=0.0)
    mine.store.put_robots("a.example", Robots(0.0, 404, b""))  # by its last owner, so that ours is looked for
    add(frontier_of(root, "other"), Task(A))
    mine.upkeep._poll()

    def hang(host: str) -> Robots | None:
        mine.shards.beaten -= mine.settings.dead_after  # so long that we have been replaced
        return Robots(time.time(), 404, b"") if known else None

    monkeypatch.setattr(mine.store, "robots", hang)
    for _ in ("met", "requested"):
        mine.visit()
    assert not mine.shards.is_sure() and not requested
    assert mine.take() is None
    assert not mine.table.taken and mine.frontier.take(), "it waits, in case that we were not"


# ---- the robots cache


def test_a_worker_that_is_told_to_stop_while_it_tidies_only_ends(setup: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, tidied = setup(), []

    async def tidy(shard: int) -> bool:
        tidied.append(shard)
        mine.scoreboard.drain()
        return True

    mine.upkeep._poll()
    assert mine.worker.frontier.owned == {0, 1}
    monkeypatch.setattr(mine.worker.frontier, "tidy", tidy)
    monkeypatch.setattr(mine.worker.upkeep, "_next_tidy", 0.0)
    mine.upkeep._round()
    mine.upkeep._round()
    assert tidied == [0], "each shard may take long on a slow mount, and is nothing that a stop must wait for"


def test_visits_that_are_scheduled_count_among_what_a_worker_hands_back_when_it_ends(root: Path, setup: Make) -> None:
    add(frontier_of(root, "other", recrawl="7d"), Task(A), revisit_task(B, 1, due=time.monotonic() + 9000))
    mine = setup(recrawl="7d")
    mine.upkeep._poll()
    mine.worker.upkeep.report()
    assert (mine.scoreboard.get(0, "waiting"), mine.scoreboard.get(0, "tasks")) == (1, 2)


def test_what_waits_for_its_flush_does_not_wait_until_all_shards_are_tidy(
    setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, waited = setup(), []

    async def tidy(shard: int) -> bool:
        waited.append(mine.worker.flush.count)
        mine.worker.flush.put_page(Task(A), {"links": [], "bytes": 1, "depth": 0}, b"x")
        return True

    mine.upkeep._poll()
    monkeypatch.setattr(mine.worker.frontier, "tidy", tidy)
    mine.upkeep._tidy()
    assert waited == [0, 0]


def test_the_memory_of_dead_hosts_is_bounded(setup: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache_module, "MAX_CACHED", 10)
    monkeypatch.setattr(robots_cache_module, "MAX_PENDING", 10)
    mine = setup(retries=0)
    for number in range(50):
        host = Host(f"host{number}.example", 0)
        mine.robots_cache.request(Task(f"https://{host.name}/"), host)
    cache = mine.worker.robots_cache
    assert 10 <= len(cache._rules) + len(cache._failed) + len(cache._steps) <= 30


def test_the_memory_of_rules_is_bounded(setup: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots_cache_module, "MAX_CACHED_BYTES", 1_000_000)
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % number for number in range(200))

    async def get(url: str, **_: Any) -> Fetched:
        return Fetched(url, 200, {}, body)

    mine = setup(get)
    cache = mine.worker.robots_cache
    for number in range(50):
        host = Host(f"host{number % 40}.example", 0)
        mine.robots_cache.request(Task(f"https://{host.name}/"), host)
        assert cache._weight == sum(rules.weight for rules, _ in cache._rules.values()) <= 1_000_000
    assert 1 < len(cache._rules) < 40
    forgotten = Host("host15.example", 0, pace=1.0)
    assert forgotten.name not in cache._rules
    for _ in ("not flushed yet", "in the store"):
        rules = mine.robots_cache.of(Task("https://host15.example/1"), forgotten)
        assert rules and not rules.allow("https://host15.example/1"), "what was forgotten is there"
        del cache._rules[forgotten.name]
        mine.upkeep.flush()


def test_the_note_of_a_redirected_robots_txt_never_replaces_what_the_other_host_brings(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(url: str, **_: Any) -> Fetched:
        if url == A + "robots.txt":
            return Fetched(url, 302, {"location": B + "robots.txt"})
        return Fetched(url, 200, {}, b"User-agent: *\nDisallow: /2\n")

    mine = setup(get, delay=0.0)
    mine.frontier.own([0, 1])
    add(mine.frontier, Task(A + "2"))
    mine.visit()  # it brings the redirect
    mine.frontier.flush()  # as tidying does at any time
    assert mine.table.waiting == 1 and on_disk(root).keys() == {A + "2"}, "the robots task waits for the note"
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", gone)
        with pytest.raises(StoreAway):
            mine.upkeep.flush()
    mine.upkeep.flush()
    mine.upkeep.flush()  # the note is on the disk: now the robots task is written
    stored = mine.store.robots("a.example")
    assert stored and stored.status == 302 and mine.table.waiting == 2
    found = [mine.frontier.take(), mine.frontier.take()]
    mine.visits.visit(*next(taken for taken in found if taken and taken[0].robots_host == "a.example"))
    mine.upkeep.flush()
    stored = mine.store.robots("a.example")
    assert stored and stored.status == 200 and not mine.flush.queued_robots("a.example")


def test_a_failed_flush_keeps_its_results_even_if_its_drafts_cannot_be_removed(root: Path, setup: Make) -> None:
    failing = ["_publish", "_discard"]

    async def fail_once(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call.__name__ in failing:
            failing.remove(call.__name__)
            raise StoreAway("gone")
        return call(*args, **kwargs)

    mine = setup(io=fail_once)
    with pytest.raises(StoreAway):
        mine.keep(A, 0, B)
    assert not failing and mine.flush.count == 1
    mine.upkeep.flush()
    assert mine.store.record(A) is not None and mine.flush.count == 0


# ---- shards and hosts


def test_a_shard_is_not_given_back_while_a_page_of_it_is_in_flight(root: Path, setup: Make) -> None:
    mine = setup()
    add(frontier_of(root, "other"), Task(A))
    mine.upkeep._poll()
    assert mine.take()
    shard = mine.frontier.shard_of(Task(A))
    (root / "workers" / "aaa@000001").write_text("{}")
    (root / "workers" / "bbb@000001").write_text("{}")
    mine.beat()
    mine.upkeep._balance()  # three workers and two shards: we come last, and have too many
    assert mine.upkeep._releasing == {shard}
    assert (root / "shards" / f"{shard:03d}@worker").exists()
    assert not mine.upkeep.is_idle()
    mine.keep(A, 0)
    mine.upkeep._balance()
    assert (root / "shards" / f"{shard:03d}@free").exists()
    assert mine.upkeep.is_idle() and not mine.frontier.owned


def die(root: Path) -> None:
    """A worker has died that owned all shards: it may have requested their hosts just now, and left no trace of it."""
    for free in (root / "shards").iterdir():
        free.rename(free.with_name(free.name.replace("@free", "@dead")))
    (root / "workers" / "dead@000003.end").write_text("{}")


def owners(root: Path) -> set[str]:
    return {path.name.partition("@")[2] for path in (root / "shards").iterdir()}


@pytest.mark.parametrize(("delay", "owner"), [(60.0, "worker"), (0.0, "free")])
def test_who_ends_leaves_a_dead_workers_shards_to_an_heir_who_lets_their_hosts_rest(
    root: Path, setup: Make, delay: float, owner: str
) -> None:
    die(root)
    mine = setup(delay=delay)
    mine.upkeep._poll()
    assert owners(root) == {"worker"}
    mine.upkeep.leave()
    assert owners(root) == {owner}
    heir = setup(name="heir", delay=delay)
    heir.upkeep._poll()
    assert owners(root) == {"heir"}
    assert (heir.frontier.taken_over(Task(A)) > 0) == (delay > 0)


def test_what_the_last_sync_of_a_worker_may_have_lost_is_written_anew(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = setup()
    mine.upkeep._poll()
    mine.worker.flush.put_page(Task(A), {"links": [], "bytes": 1, "depth": 0}, b"x")
    mine.upkeep.flush()
    sync, put, put_again = Files.sync, Files.put, list[str]()

    def fail_once(self: Files, folders: Any, run: Any = map) -> None:
        if not any(folder.startswith("links/") for folder in folders):
            return sync(self, folders, run)
        monkeypatch.setattr(Files, "sync", sync)
        self.failed_syncs += 1  # as `Files.sync` counts it
        raise StoreAway("gone")

    def note(self: Files, name: str, *rest: Any, **more: Any) -> Any:
        put_again.append(name)
        return put(self, name, *rest, **more)

    monkeypatch.setattr(Files, "sync", fail_once)
    monkeypatch.setattr(Files, "put", note)
    mine.upkeep.leave()
    assert path_of("links", A) in put_again
    assert owners(root) == {"free"}


@pytest.mark.parametrize(("delay", "owner"), [(60.0, "worker"), (0.0, "free")])
def test_a_dead_workers_shard_is_not_given_back_before_its_hosts_had_their_delay(
    root: Path, setup: Make, delay: float, owner: str
) -> None:
    die(root)
    mine = setup(delay=delay)
    mine.upkeep._poll()
    (root / "workers" / "aaa@000001").write_text("{}")
    (root / "workers" / "bbb@000001").write_text("{}")
    mine.beat()
    mine.upkeep._balance()  # three workers and two shards: we come last, and have too many
    assert owners(root) == {owner}
    assert not mine.frontier.owned


def test_a_shard_that_is_gained_while_a_hosts_folders_are_listed_has_it_met_again(setup: Make) -> None:
    listed: list[str] = []

    async def list_slowly(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = call(*args, **kwargs)  # as it was when the listing began
        if call == mine.store.done_by_others and not listed:
            listed.append(args[0])
            mine.store.put_failure(second, Failure(second, "http-404"), 1)  # by the one who gives the shard back
            await mine.worker.frontier.own([1], past=mine.store.past())
        return found

    mine = setup(spread="url", io=list_slowly)
    pages = [f"{A}{number}" for number in range(20)]
    first, second = (next(it for it in pages if mine.frontier.shard_of(Task(it)) == shard) for shard in (0, 1))
    mine.frontier.own([0], past=[("a.example", 2)])
    add(mine.frontier, Task(first))
    taken = mine.frontier.take()
    assert taken
    mine.visits.visit(*taken)
    assert listed == ["a.example"]
    taken = mine.table.take(time.monotonic() + 1000)
    assert taken and not taken[1].met
    mine.visits.visit(*taken)
    assert taken[1].met
    add(mine.frontier, Task(second))
    assert mine.table.waiting == 1, "the other one is known to be done"


def test_a_host_that_is_met_keeps_its_turn_so_that_pages_come_before_all_hosts_are_met(setup: Make) -> None:
    requested: list[str] = []

    async def get(url: str, **_: object) -> Fetched:
        requested.append(url)
        return page(url)

    mine = setup(get, robots=False, delay=0)
    mine.store.put_failure(A + "old", Failure(A + "old", "http-404"), 1)
    mine.store.put_failure(B + "old", Failure(B + "old", "http-404"), 1)
    mine.frontier.own([0, 1], past=mine.store.past())
    add(mine.frontier, Task(A))
    add(mine.frontier, Task(B))
    mine.visit()
    assert requested == []
    mine.visit()
    assert requested == [A]


def test_a_host_of_which_only_retries_came_to_us_rests_like_any_other(root: Path, setup: Make) -> None:
    mine = setup(robots=False)
    add(frontier_of(root, "last owner"), Task(A, 0, 1, time.monotonic() + 1000), Task(A + "2"))
    mine.upkeep._poll()
    taken = mine.frontier.take()
    assert taken and not taken[1].met
    mine.visits.visit(*taken)
    assert mine.frontier.take() is None, "its last owner requested it less than a delay ago"
    assert mine.table.take(time.monotonic() + 1000) is not None


def test_a_robots_txt_that_comes_after_an_heir_has_met_its_host_makes_it_rest_for_the_delay_in_it(
    root: Path, setup: Make
) -> None:
    requested: list[str] = []

    async def get(url: str, **_: Any) -> Fetched:
        requested.append(url)
        return page(url)

    mine = setup(get, delay=10.0)
    mine.store.put_robots("a.example", Robots(time.time(), 302, b""))  # by the last owner: the rules are elsewhere
    add(frontier_of(root, "last owner"), Task(A))
    mine.upkeep._poll()
    taken = mine.frontier.take()
    assert taken and taken[1].past
    mine.visits.visit(*taken)  # it rests for our delay
    mine.store.put_robots("a.example", Robots(time.time(), 200, b"User-agent: *\nCrawl-delay: 50\n"))
    rested = mine.table.take(time.monotonic() + 11)
    assert rested
    mine.visits.visit(*rested)
    assert not requested and mine.table.take(time.monotonic() + 40) is None
    rested = mine.table.take(time.monotonic() + 60)
    assert rested
    mine.visits.visit(*rested)
    assert requested == [A]


# ---- large pages


def test_a_very_large_page_is_read_in_a_thread_while_other_visits_go_on(
    root: Path, setup: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, larger, small = (f"https://{name}.example/" for name in ("large", "larger", "small"))
    add(frontier_of(root, "other"), *map(Task, (large, larger, small)))
    read, has_begun, is_small_read = markup.read, threading.Event(), threading.Event()
    noted: list[tuple[str, list[str]]] = []

    def note(response: Fetched, wants: Any) -> Any:
        noted.append((response.url, [line.split("\t")[3] for line in mine.scoreboard.reading(0)]))
        if response.url == small:
            is_small_read.set()
        elif not has_begun.is_set():
            has_begun.set()
            assert is_small_read.wait(60), "the loop was blocked by a large page"
        return read(response, wants)

    requested: list[str] = []

    async def get(url: str, **_: Any) -> Fetched:
        requested.append(url)
        while url == small and not (has_begun.is_set() and len(requested) == 3):
            await asyncio.sleep(0.001)  # one of the large pages is being read, the other one waits for that
        return page(url, "<p>x" if url == small else "<p>" + "word " * 100)

    monkeypatch.setattr(reader_module, "LARGE_BODY", 100)
    monkeypatch.setattr(markup, "read", note)
    mine = setup(get, robots=False)
    mine.upkeep._poll()

    async def visit_all() -> None:
        async def visit() -> None:
            taken = mine.worker.frontier.take()
            assert taken
            await mine.worker.visits.run(*taken)

        await asyncio.gather(visit(), visit(), visit())

    run(visit_all())
    mine.upkeep.flush()
    assert mine.scoreboard.get(0, "pages") == 3
    first, second, third = noted
    assert first[0] in (large, larger) and third[0] == ({large, larger} - {first[0]}).pop()
    assert second[0] == small and set(second[1]) == {small, first[0]}, "the one that waits is not to blame"
    assert first[1] == [first[0]] and {*third[1]} - {small} == {third[0]}
    assert mine.scoreboard.reading(0) == []


def test_a_worker_that_keeps_no_exchanges_loads_nothing_for_warc_files() -> None:
    script = """
import sys
import crawler.crawl.process, crawler.crawl.worker.worker
assert not sys.modules.keys() & {"crawler.crawl.worker.archive", "crawler.web.warc", "uuid"}
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_worker_that_is_to_end_does_not_spin_over_batches_that_it_will_not_read(
    root: Path, simulated: Simulate
) -> None:
    rounds = 0

    async def get(url: str, **_: Any) -> Fetched:
        mine.frontier._unread.append((0, "never read.1"))
        mine.worker.ending.end("stopped")
        await asyncio.sleep(5.0)
        return page(url)

    add(frontier_of(root, "other"), Task(A))
    mine = simulated(get, robots=False)
    look, upkeep = mine.worker.upkeep._look_ahead, mine.worker.upkeep

    def count() -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 2000, "five seconds are some 250 rounds"
        look()

    upkeep._look_ahead = count  # type: ignore[method-assign]
    mine.run()
    assert rounds > 100
