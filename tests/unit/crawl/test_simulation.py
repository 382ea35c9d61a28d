"""Clock, random numbers, network and mount are passed in: a simulated crawl, or a fleet, follows from one number."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab.frontiers import add, frontier_of, make_root
from lab.marks import later
from lab.simulation import LoopHeartbeat, Simulation
from lab.workers import Setup, SimulatedSetup, page, small_store

from crawler.errors import StoreAway
from crawler.frontier.task import Task
from crawler.store.store import Store
from crawler.web import urls
from crawler.web.page import Failure, Fetched


def simulate_crawl(root: Path, number: int) -> list[tuple[float, str]]:
    """Crawl a small web with trouble, and return what was requested when."""
    requested: list[tuple[float, str]] = []
    chance = Random(1)
    known = [f"https://host{host}.example/{number}" for host in range(12) for number in range(9)]
    web = {url: chance.sample(known, 5) for url in known}
    seconds = {url: chance.random() for url in known}
    tries: Counter[str] = Counter()

    async def get(url: str, **_: Any) -> Fetched | Failure:
        requested.append((mine.worker.clock.monotonic(), url))
        tries[url] += 1
        await asyncio.sleep(seconds.get(url, 0.2))
        if url.endswith("/robots.txt"):
            return Fetched(url, 404)
        if url.endswith("/3") and tries[url] == 1:
            return Failure(url, "http-503")
        return page(url, "".join(f"<a href={link}>" for link in web[url]))

    mine = SimulatedSetup(root, get, random=Random(number), concurrency=8, scope="any", delay=0.5, retry_delay=2.0)
    add(frontier_of(root, "other"), Task("https://host0.example/0"))
    assert mine.run() == "over"
    mine.end()
    return requested


def test_the_same_number_gives_the_same_crawl_and_another_one_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    crawls = []
    for count, number in enumerate((7, 7, 8)):
        root = tmp_path / str(count)
        root.mkdir()
        make_root(root)
        crawls.append(simulate_crawl(root, number))
    assert crawls[0] == crawls[1], "the same tasks at the same times"
    assert len(crawls[0]) > 100
    assert {url for _, url in crawls[2]} == {url for _, url in crawls[0]}
    assert crawls[2] != crawls[0], "the waits after trouble are drawn by lot"


# ---- a fleet


class Fleet:
    """Workers over one store in one simulated time; mounts fail or are away for a while, and workers are killed.

    The web is a tree, so that no lost link is hidden by another. The robots.txt of one host is on another.
    """

    PAGES, HOSTS, DELAY, DEAD_AFTER = 120, 11, 0.3, 8.0

    def __init__(self, root: Path, number: int) -> None:
        self.root, self.chance, self.simulation = root, Random(number), Simulation()
        self.fault = (0.0, 0.02, 0.1)[number % 3]
        self.kills, self.workers = number % 4, 1 + number % 3
        self.web = {
            self.url(page): [self.url(link) for link in range(3 * page + 1, min(3 * page + 4, self.PAGES))]
            for page in range(self.PAGES)
        }
        self.requested: list[tuple[float, str, str]] = []
        self.away: dict[str, tuple[float, float]] = {}  # since and until when a worker has no mount
        self.outcomes: list[str | None] = []
        self._running: dict[asyncio.Task[None], Setup] = {}
        self._started = 0

    def url(self, page: int) -> str:
        return f"https://host{page % self.HOSTS}.example/{page}"

    @property
    def now(self) -> float:
        return self.simulation.loop.now

    async def run(self) -> None:
        for _ in range(self.workers):
            self._start()
        limit, kill = self.now + 600, self.now + self.chance.uniform(1, 8)
        while self._running:
            assert self.now < limit, "the crawl does not end"
            ended, _ = await asyncio.wait(self._running, timeout=0.25, return_when=asyncio.FIRST_COMPLETED)
            for running in ended:
                running.result()
                self.outcomes.append(self._running.pop(running).ending.outcome)
                if self.outcomes[-1] == "marked dead":
                    self._start()
            if self.kills and self.now > kill and self._running:
                self.kills, kill = self.kills - 1, self.now + self.chance.uniform(1, 8)
                self._kill(self.chance.choice(list(self._running)))
                self._start()

    def _start(self) -> None:
        self._started += 1
        me = f"w{self._started}"
        since = self.now + self.chance.uniform(0, 20)
        self.away[me] = since, since + self.chance.choice([0.0, 3.0, 1.5 * self.DEAD_AFTER])
        mine = Setup(
            self.root,
            lambda url, **_: self._get(me, url),
            name=me,
            concurrency=8,
            io=lambda call, *args, **kwargs: self._io(me, call, *args, **kwargs),  # type: ignore[arg-type]
            clock=self.simulation.clock,
            random=Random(self._started),
            shards=4,
            scope="any",
            delay=self.DELAY,
            retry_delay=1.0,
            retries=8,
            heartbeat=0.5,
            dead_after=self.DEAD_AFTER,
        )
        beat = mine.shards.beat
        mine.shards.beat = lambda *args: self._try(me, beat, *args)  # type: ignore[method-assign]
        mine.worker.heartbeat = LoopHeartbeat(mine.worker)  # type: ignore[assignment]
        self._running[asyncio.get_running_loop().create_task(mine.worker.run())] = mine

    def _kill(self, running: asyncio.Task[None]) -> None:
        """Nothing of a worker goes on; its lock is gone if it was on this machine."""
        mine = self._running.pop(running)
        mine.ending.closed = True
        mine.in_flight.stop()
        running.cancel()
        if self.chance.random() < 0.5:
            mine.shards.local_lock.unlock()

    def _try(self, me: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call that fails before or after it is done, or while there is no mount."""
        since, until = self.away[me]
        dice = self.chance.random()
        if since < self.now < until or dice < self.fault / 2:
            raise StoreAway("before")
        found = call(*args, **kwargs)
        if dice < self.fault:
            raise StoreAway("after")
        return found

    async def _io(self, me: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self.chance.random() / 50)
        return self._try(me, call, *args, **kwargs)

    async def _get(self, me: str, url: str) -> Fetched | Failure:
        self.requested.append((self.now, url, me))
        await asyncio.sleep(self.chance.expovariate(3))
        if url == "https://host5.example/robots.txt":
            return Fetched(url, 302, {"location": "https://host6.example/robots-of-5.txt"})
        if url not in self.web:
            return Fetched(url, 404)
        if self.chance.random() < 0.05:
            return Failure(url, "http-503")
        return page(url, "".join(f"<a href={link}>x</a>" for link in self.web[url]))


@pytest.mark.parametrize("number", [*range(6), *later(*range(6, 60))])
def test_a_fleet_with_trouble_brings_every_page_and_no_host_is_requested_too_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = small_store(tmp_path, monkeypatch, shards=4)
    fleet = Fleet(root, number)
    add(frontier_of(root, "seed", shards=4), Task(fleet.url(0)))
    fleet.simulation.run(fleet.run())
    fleet.simulation.close()
    assert set(fleet.outcomes) <= {"over", "marked dead"}
    assert {str(record["url"]) for record in Store(root).records()} == fleet.web.keys()
    assert list(Store(root).failures()) == []
    last: dict[str, float] = {}
    for when, url, _ in fleet.requested:
        assert when >= last.get(urls.host(url), 0.0) + fleet.DELAY - 1e-6, (when, url)
        last[urls.host(url)] = when
