"""Sites that change by known laws, crawled for weeks of simulated time by two machines with kills.

`crawler changes` tells what the server knows, no page is asked for more often than its schedule, and what did not
change costs no body. One site says in its sitemap, each time, that all of its pages have changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab.changing import DAY, HOST, HOUR, START, ChangingWeb, Law, WithSitemap, coarse, freshness
from lab.frontiers import add, frontier_of
from lab.simulation import LoopHeartbeat, Simulation
from lab.workers import Setup, small_store

from crawler.commands.changes import changes
from crawler.frontier.task import Task, sitemap_task
from crawler.store.records import from_utc, html_hash
from crawler.store.store import Store
from crawler.web.page import Failure, Fetched

WEEKS = 3
HOSTS = NEWS, BLOG, LIAR = ("http://news.example", "http://blog.example", "http://liar.example")
SITEMAP = "/sitemap.xml"
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
        self.webs[LIAR].laws[SITEMAP] = WithSitemap(LAWS, lies=True, host=LIAR)
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
        mine.shards.local_lock.unlock()

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


def crawl_for_weeks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, recrawl: Any, seconds: float = WEEKS * 7 * DAY
) -> Weeks:
    """Two machines visit all sites for weeks, and are killed now and then."""
    folder.mkdir(exist_ok=True)
    root = small_store(folder, monkeypatch, shards=4)
    weeks = Weeks(root, recrawl=recrawl)
    tasks = [*(Task(f"{host}/") for host in HOSTS), sitemap_task(LIAR + SITEMAP)]
    add(frontier_of(root, "seed", shards=4), *tasks)
    with coarse():
        weeks.simulation.run(weeks.run(seconds, kills=6))
    weeks.simulation.close()
    return weeks


@pytest.mark.fleet  # for time
def test_weeks_on_two_machines_with_kills_bring_what_the_server_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    weeks = crawl_for_weeks(tmp_path, monkeypatch, {"/hourly$": 6 * HOUR, "*": DAY})
    asked = [status for web in weeks.webs.values() for *_, status in web.asked]
    with capsys.disabled():
        share = Counter(asked)[304] / len(asked)
        print(f"\n{len(asked)} requests in {WEEKS} weeks, {weeks.kills} kills; {share:.0%} of them 304")
    store = Store(weeks.root)
    found = Counter((change.kind, change.url) for change in changes(store))
    extra = weeks.started - 2  # a kill in the middle of a visit has it made again
    unseen = 0  # changes between a visit that was killed and its repetition: what it brought was lost with it
    for host, web in weeks.webs.items():
        for path, law in web.laws.items():
            visits = [age for age, where, _ in web.asked if where == path]
            interval = 6 * HOUR if path == "/hourly" else DAY / 4 if path == SITEMAP else DAY
            assert len(visits) <= web.age / interval + 1 + extra, f"{host}{path} was asked too often"
            early = [two - one for one, two in pairwise(visits) if two - one < interval - 60]
            assert len(early) <= extra, (host, path, early)
            if path != SITEMAP:
                news = sum(law.version(one) != law.version(two) for one, two in pairwise(visits))
                assert found["new", f"{host}{path}"] == 1
                assert found["changed", f"{host}{path}"] <= news
                unseen += news - found["changed", f"{host}{path}"]
        assert found["gone", f"{host}/vanishes"] == 1 and found["moved", f"{host}/moves"] == 1
        assert found["changed", f"{host}/never"] == found["changed", f"{host}/nonce"] == 0
        gone = store.record(f"{host}/vanishes")
        assert gone is not None and from_utc(gone["gone"]) - START > 5.5 * DAY
    assert unseen <= extra, "each kill hides one such change at most, and most hide none"
    assert {kind for kind, _ in found} == {"new", "changed", "moved", "gone"}
    assert {url for _, url in found} == {f"{host}{path}" for host, web in weeks.webs.items() for path in web.laws} - {
        LIAR + SITEMAP
    }, "nothing else is told"


@pytest.mark.fleet  # for time
def test_the_adaptive_rule_makes_the_requests_of_its_interval_and_keeps_these_sites_fresher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crawl(name: str, rule: Any) -> tuple[float, int]:
        """The freshness after a week in which the rule learns, and the number of requests."""
        webs = crawl_for_weeks(tmp_path / name, monkeypatch, rule).webs.values()
        shares = [freshness(web, 7 * DAY) for web in webs]
        return sum(shares) / len(shares), sum(age > 7 * DAY for web in webs for age, *_ in web.asked)

    interval = 31 * HOUR  # not in step with the changes: a fixed visit just after each of them needs luck
    adaptive, requests = crawl("adaptive", "adaptive 31h")
    fixed, fixed_requests = crawl("fixed", interval)
    pages = (len(LAWS) + 1) * len(HOSTS) + 4  # a sitemap is visited four times as often as a page
    wanted = pages * (WEEKS - 1) * 7 * DAY / interval
    with capsys.disabled():
        print(f"\nfresh: fixed {fixed:.3f} ({fixed_requests} requests), adaptive {adaptive:.3f} ({requests})", end="")
        print(f"; by the interval {wanted:.0f} requests")
    assert 0.9 * wanted < requests < 1.1 * wanted
    assert adaptive > fixed


@pytest.mark.fleet  # for time
def test_what_workers_remember_of_their_records_survives_kills_and_takeovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With visits within the hour records are not read; each must still be about the html that is stored."""
    weeks = crawl_for_weeks(tmp_path, monkeypatch, HOUR / 2, seconds=1.5 * DAY)
    store = Store(weeks.root)
    for host, web in weeks.webs.items():
        for path in LAWS:
            record, html = store.record(host + path), store.text_bytes(host + path)
            assert record is not None and html is not None
            visits = [age for age, where, _ in web.asked if where == path]
            assert record["html_sha224"] == html_hash(html), f"{host}{path}"
            assert len(visits) - weeks.started <= record["visits"] <= len(visits), f"{host}{path}"
            news = sum(LAWS[path].version(one) != LAWS[path].version(two) for one, two in pairwise(visits))
            assert news - weeks.started <= record["changes"] <= news, f"{host}{path}"
