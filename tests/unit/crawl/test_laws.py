"""A site that changes by known laws, crawled for weeks of simulated time by two machines with kills.

`crawler changes` tells what the server knows, no page is asked for more often than its schedule, and what did not
change costs no body.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab.changing import DAY, HOST, HOUR, START, ChangingWeb, Law, coarse
from lab.frontiers import add, frontier_of
from lab.simulation import LoopHeartbeat, Simulation
from lab.workers import Setup, small_store

from crawler.commands.changes import changes
from crawler.frontier.task import Task
from crawler.store.records import from_utc
from crawler.store.store import Store
from crawler.web.page import Failure, Fetched

WEEKS = 3
HOSTS = ("http://news.example", "http://blog.example", "http://wiki.example")
LAWS = {
    "/hourly": Law(every=HOUR),
    "/daily": Law(every=DAY),
    "/weekly": Law(every=7 * DAY),
    "/never": Law(),
    "/nonce": Law(nonce=True),
    "/vanishes": Law(gone_after=5.5 * DAY),
    "/moves": Law(moves_after=8.5 * DAY),
    "/moves-moved": Law(),
    "/no-etag": Law(every=2 * DAY, validators=False),
}


class Weeks:
    """Two workers over one store, in one simulated time; each is killed now and then, and another takes its place."""

    def __init__(self, root: Path, **given: Any) -> None:
        self.root, self.given, self.simulation, self.chance = root, given, Simulation(), Random(5)
        front = {"/": Law(links=tuple(LAWS))}
        self.webs = {host: ChangingWeb(front | LAWS, self.simulation.clock.time) for host in HOSTS}
        self.running: dict[asyncio.Task[None], Setup] = {}
        self.started = self.kills = 0

    async def get(self, url: str, headers: tuple[str, ...] = (), **_: Any) -> Fetched | Failure:
        host = url[: url.index("/", 8)]
        await asyncio.sleep(self.chance.random())
        found = await self.webs[host].get(HOST + url.removeprefix(host), headers)
        return found if isinstance(found, Failure) else Fetched(url, found.status, found.headers, found.body)

    def start(self) -> None:
        self.started += 1
        mine = Setup(
            self.root,
            self.get,
            name=f"w{self.started}",
            clock=self.simulation.clock,
            random=Random(self.started),
            shards=4,
            scope="any",
            heartbeat=600.0,
            dead_after=7200.0,
            history="all",
            **self.given,
        )
        mine.worker.heartbeat = LoopHeartbeat(mine.worker)  # type: ignore[assignment]
        mine.worker.upkeep.forever = True
        self.running[asyncio.get_running_loop().create_task(mine.worker.run())] = mine

    def kill(self) -> None:
        self.kills += 1
        running = self.chance.choice(list(self.running))
        mine = self.running.pop(running)
        mine.ending.closed = True
        mine.in_flight.stop()
        running.cancel()
        mine.shards.local_lock._lock.release()

    async def run(self, seconds: float, kills: int) -> None:
        self.start()
        self.start()
        end, kill = self.simulation.loop.now + seconds, seconds / (kills + 1)
        while self.simulation.loop.now < end:
            ended, _ = await asyncio.wait(self.running, timeout=kill, return_when=asyncio.FIRST_COMPLETED)
            for one in ended:  # it was declared dead
                one.result()
                del self.running[one]
                self.start()
            if not ended:
                self.kill()
                self.start()
        for mine in self.running.values():
            mine.scoreboard.drain()
        await asyncio.wait(self.running, timeout=3 * HOUR)


@pytest.mark.fleet  # for time
def test_weeks_on_two_machines_with_kills_bring_what_the_server_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = small_store(tmp_path, monkeypatch, shards=4)
    weeks = Weeks(root, recrawl={"/hourly$": 6 * HOUR, "*": DAY})
    add(frontier_of(root, "seed", shards=4), *(Task(f"{host}/") for host in HOSTS))
    with coarse():
        weeks.simulation.run(weeks.run(WEEKS * 7 * DAY, kills=6))
    asked = [(host, path, status) for host, web in weeks.webs.items() for _, path, status in web.asked]
    with capsys.disabled():
        share = Counter(status for *_, status in asked)[304] / len(asked)
        print(f"\n{len(asked)} requests in {WEEKS} weeks, {weeks.kills} kills; {share:.0%} of them 304")
    found = Counter((change.kind, change.url) for change in changes(Store(root)))
    for host, web in weeks.webs.items():
        for path, law in web.laws.items():
            visits = [age for age, where, _ in web.asked if where == path]
            seen = [law.version(age) for age in visits]
            news = sum(earlier != later for earlier, later in pairwise(seen))
            url = f"{host}{path}"
            assert found["new", url] == 1, url
            extra = weeks.started - 2  # a kill in the middle of a visit has it made again, and its news seen then
            assert news - extra <= found["changed", url] <= news, (url, found["changed", url], news)
            interval = 6 * HOUR if path == "/hourly" else DAY
            assert len(visits) <= web.age / interval + 1 + extra, f"{url} was asked too often"
            assert len([1 for one, two in pairwise(visits) if two - one < interval - 60]) <= extra, url
        assert found["gone", f"{host}/vanishes"] == 1 and found["moved", f"{host}/moves"] == 1
        assert found["changed", f"{host}/never"] == found["changed", f"{host}/nonce"] == 0
        gone = Store(root).record(f"{host}/vanishes")
        assert gone is not None and from_utc(gone["gone"]) - START > 5.5 * DAY
    weeks.simulation.close()
