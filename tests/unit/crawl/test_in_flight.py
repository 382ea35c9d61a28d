"""How many visits run at a time, what a kill can cost, and when the next ones start; in simulated time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import add, frontier_of, on_disk
from lab.workers import SimulatedSetup, making, page, small_store

from crawler.crawl.worker import flush as flush_module
from crawler.crawl.worker.upkeep import Upkeep
from crawler.frontier.hosts import Host
from crawler.frontier.task import Task
from crawler.web import urls
from crawler.web.page import Failure, Fetched

Simulate = Callable[..., SimulatedSetup]
CONCURRENCY, MAX_RESULTS = 8, 40


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return small_store(tmp_path, monkeypatch)


@pytest.fixture
def simulated(root: Path) -> Iterator[Simulate]:
    """Make a worker in simulated time; it begins when the test runs it."""
    with making(SimulatedSetup, root) as make:
        yield make


class Network:
    """Notes who is requested how often, and how many requests are open at most; `respond` says what comes."""

    def __init__(self, respond: Callable[[str], Fetched | Failure | None]) -> None:
        self.requested: Counter[str] = Counter()
        self.open: set[str] = set()
        self.peak = 0
        self.respond = respond
        self.seconds: Callable[[str], float] = lambda url: 0.3

    async def get(self, url: str, **_: Any) -> Fetched | Failure:
        self.requested[url] += 1
        self.open.add(url)
        self.peak = max(self.peak, len(self.open))
        response = self.respond(url)
        await asyncio.sleep(self.seconds(url) if response else 1e9)
        self.open.discard(url)
        return response or Failure(url, "timeout")


class Gate:
    """An `Io` that makes calls at once, except those of the flush while the gate is closed."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()

    async def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if call.__qualname__.startswith("Flush."):
            await self.opened.wait()
        return call(*args, **kwargs)


def pages_of(hosts: int, pages: int) -> list[str]:
    return [f"https://host{host}.example/{number}" for host in range(hosts) for number in range(pages)]


BROUGHT: dict[str, Callable[[str], Fetched | Failure]] = {
    "a page": page,
    "a failure": lambda url: Failure(url, "http-404"),
    "a retry": lambda url: Failure(url, "http-500", retry_after=0.1),
    "a robots.txt": lambda url: Fetched(url, 200) if url.endswith("/robots.txt") else page(url),
}


@pytest.mark.parametrize("brought", BROUGHT)
def test_a_kill_costs_no_more_than_the_results_that_wait_and_the_visits_in_flight(
    root: Path, simulated: Simulate, monkeypatch: pytest.MonkeyPatch, brought: str
) -> None:
    monkeypatch.setattr(flush_module, "MAX_RESULTS", MAX_RESULTS)
    monkeypatch.setattr(flush_module, "GROUP", MAX_RESULTS // 2)
    robots = brought == "a robots.txt"
    waiting = pages_of(300, 1) if robots else pages_of(20, 15)
    add(frontier_of(root, "other"), *map(Task, waiting))
    network, gate = Network(BROUGHT[brought]), Gate()
    mine = simulated(network.get, concurrency=CONCURRENCY, io=gate, robots=robots, delay=0.0, retry_delay=1000.0)

    async def watch() -> None:
        running = asyncio.get_running_loop().create_task(mine.worker.run())
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert mine.in_flight.count <= CONCURRENCY
            assert mine.worker.flush.count + mine.worker.flush._writing <= MAX_RESULTS + CONCURRENCY
            assert mine.table.taken <= MAX_RESULTS + CONCURRENCY
        assert MAX_RESULTS <= network.requested.total() <= MAX_RESULTS + CONCURRENCY, "no flush has come through"
        assert not network.open, "and no more URLs are taken until one has"
        gate.opened.set()
        before = network.requested.total()
        while network.requested.total() < before + 2 * MAX_RESULTS:
            await asyncio.sleep(0.1)
        mine.scoreboard.drain()
        await running

    mine.simulation.run(watch())
    assert mine.ending.outcome == "stopped"
    assert network.peak <= CONCURRENCY
    assert set(network.requested.values()) == {1}
    done = {str(found["url"]) for found in (*mine.store.records(), *mine.store.failures())}
    assert done | on_disk(root).keys() == set(waiting), "nothing is lost"


def test_all_slots_are_used_when_hosts_answer_and_never_more(root: Path, simulated: Simulate) -> None:
    waiting = pages_of(20, 10)
    add(frontier_of(root, "other"), *map(Task, waiting))
    network = Network(page)
    mine = simulated(network.get, concurrency=CONCURRENCY, robots=False, delay=0.0)
    assert mine.run() == "over"
    assert network.peak == CONCURRENCY
    assert network.requested == Counter(waiting)
    assert mine.scoreboard.in_flight(0) == [] and mine.scoreboard.get(0, "pages") == len(waiting)


# ---- hosts that have not answered


def in_flight_after(simulated: Simulate, root: Path, responses: list[str], hosts: int = 20) -> int:
    """How many requests are open when each host gives these responses, one after the other, and then no more."""
    add(frontier_of(root, "other"), *map(Task, pages_of(hosts, len(responses) + 1)))
    given: Counter[str] = Counter()

    def respond(url: str) -> Fetched | Failure | None:
        host = urls.host(url)
        given[host] += 1
        if given[host] > len(responses):
            return None
        reason = responses[given[host] - 1]
        return page(url) if reason == "page" else Failure(url, reason)

    network = Network(respond)
    mine = simulated(network.get, concurrency=CONCURRENCY, robots=False, delay=0.1, retries=0)

    async def watch() -> int:
        running = asyncio.get_running_loop().create_task(mine.worker.run())
        await asyncio.sleep(60)
        running.cancel()
        return len(network.open)

    return mine.simulation.run(watch())


def test_hosts_that_have_not_answered_hold_at_most_half_of_the_slots(root: Path, simulated: Simulate) -> None:
    assert in_flight_after(simulated, root, []) == CONCURRENCY // 2


def test_silent_hosts_do_not_keep_others_from_their_pages(root: Path, simulated: Simulate) -> None:
    good, silent = pages_of(10, 10), [f"https://silent{number}.example/" for number in range(30)]
    add(frontier_of(root, "other"), *map(Task, [*silent, *good]))
    network = Network(lambda url: page(url) if url in good else Failure(url, "timeout"))
    network.seconds = lambda url: 0.3 if url in good else 10.0
    mine = simulated(network.get, concurrency=CONCURRENCY, robots=False, delay=0.1, retry_delay=1000.0)
    others: list[int] = []  # requests to silent hosts, at any time

    async def watch() -> None:
        running = asyncio.get_running_loop().create_task(mine.worker.run())
        while mine.scoreboard.get(0, "pages") < len(good):
            await asyncio.sleep(0.5)
            others.append(len(network.open - {*good}))
        running.cancel()

    mine.simulation.run(watch())
    assert max(others) == CONCURRENCY // 2
    assert len(others) < 2 * 30 * 10.0 / (CONCURRENCY // 2) + 30, "once the last of them was given up, at the latest"


def test_hosts_that_have_not_answered_hold_a_quarter_of_the_slots_while_others_are_due(
    root: Path, simulated: Simulate
) -> None:
    known, new = pages_of(2 * CONCURRENCY, 40), [f"https://new{number}.example/" for number in range(2 * CONCURRENCY)]
    add(frontier_of(root, "other"), *map(Task, known))
    network = Network(page)
    network.seconds = lambda url: 0.5 if url in known else 5.0
    mine = simulated(network.get, concurrency=CONCURRENCY, robots=False, delay=0.1)

    async def watch() -> list[int]:
        running = asyncio.get_running_loop().create_task(mine.worker.run())
        while len(mine.scoreboard.in_flight(0)) < CONCURRENCY or mine.scoreboard.get(0, "pages") < 2 * CONCURRENCY:
            await asyncio.sleep(0.1)
        mine.frontier.hand_over([Task(url, depth=1) for url in new])
        others = []
        for _ in range(40):
            await asyncio.sleep(0.1)
            others.append(len(network.open & {*new}))
        running.cancel()
        return others

    assert max(mine.simulation.run(watch())) == CONCURRENCY // 4


@pytest.mark.parametrize("answer", ["page", "http-404", "http-500", "wrong-type"])
def test_an_answer_moves_a_host_to_those_that_may_hold_all_slots(root: Path, simulated: Simulate, answer: str) -> None:
    assert in_flight_after(simulated, root, [answer]) == CONCURRENCY


@pytest.mark.parametrize("reason", ["timeout", "connect", "dns", "tls"])
def test_a_host_that_answers_no_more_moves_back(root: Path, simulated: Simulate, reason: str) -> None:
    assert in_flight_after(simulated, root, ["page", reason]) == CONCURRENCY // 2


# ---- when nothing is due


@pytest.mark.parametrize("waiting", ["nothing", "a host that rests", "a retry", "hosts without a slot"])
def test_nothing_is_looked_for_while_nothing_is_due(root: Path, simulated: Simulate, waiting: str) -> None:
    calls: list[float] = []
    mine = simulated(concurrency=CONCURRENCY, dead_after=10_000.0)
    visited: list[Task] = []

    async def visit(task: Task, host: Host) -> None:
        visited.append(task)
        if waiting == "a host that rests":
            mine.table.put_back(task)
            mine.table.rest(host, mine.worker.clock.monotonic() + 1000.0)
        else:
            await asyncio.sleep(1e9)

    fill = mine.in_flight.fill

    def count() -> None:
        calls.append(mine.worker.clock.monotonic())
        fill()

    async def wait() -> None:
        assert await mine.worker.upkeep.begin()
        await mine.worker.frontier.own([0, 1])
        if waiting == "a host that rests":
            mine.worker.frontier.hand_over([Task("https://a.example/")])
        elif waiting == "a retry":
            due = mine.worker.clock.monotonic() + 1000.0
            mine.worker.frontier.hand_over([Task("https://a.example/", attempt=1, due=due)])
        elif waiting == "hosts without a slot":
            mine.worker.frontier.hand_over(map(Task, pages_of(20, 1)))
        await mine.worker.frontier.flush()
        mine.in_flight.fill = count  # type: ignore[method-assign]
        mine.in_flight.start(visit)
        began = mine.worker.clock.monotonic()
        await asyncio.sleep(900)
        assert len(calls) <= 3, [call - began for call in calls]
        await asyncio.sleep(150)
        assert len(calls) <= 6
        mine.in_flight.stop()

    mine.simulation.run(wait())
    assert len(visited) == {"a host that rests": 2, "a retry": 1, "hosts without a slot": 4}.get(waiting, 0)


def test_a_worker_that_waits_looks_for_work_once_a_round(
    root: Path, simulated: Simulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(lambda url: None)
    add(frontier_of(root, "other"), *map(Task, pages_of(20, 1)))
    mine = simulated(network.get, concurrency=CONCURRENCY, robots=False)
    counts: Counter[str] = Counter()
    fill, round_ = mine.in_flight.fill, Upkeep._round

    def count_fill() -> None:
        counts["fill"] += 1
        fill()

    async def count_round(self: Upkeep) -> None:
        counts["round"] += 1
        await round_(self)

    mine.in_flight.fill = count_fill  # type: ignore[method-assign]
    monkeypatch.setattr(Upkeep, "_round", count_round)

    async def watch() -> None:
        running = asyncio.get_running_loop().create_task(mine.worker.run())
        await asyncio.sleep(60)
        running.cancel()

    mine.simulation.run(watch())
    assert counts["fill"] <= counts["round"] + 10
    assert counts["round"] <= 60 / 0.02 + 10
