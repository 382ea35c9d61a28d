"""Redirect loops: the last member is a failure, in whatever order workers visit, flush, read and start again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab.frontiers import add, frontier_with, shard_of_url
from lab.workers import Setup, page

from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.web.page import Fetched

GIVEN: dict[str, Any] = {"shards": 2, "durable": False, "robots": False, "delay": 0.0, "scope": "any"}
SETTINGS = Settings(**GIVEN)
HOSTS = [next(host for host in map("h{}.example".format, range(99)) if shard_of_url(f"http://{host}/", 2) == shard)
         for shard in (0, 1)]  # fmt: skip


class Peer:
    """A worker that owns one of two shards, and does each step when the test says so."""

    def __init__(self, root: Path, shard: int, name: str, moved: dict[str, str]) -> None:
        self.mine = Setup(root, self._get, name=name, concurrency=9, **GIVEN)
        self.mine.beat()
        self.shard, self.moved = shard, moved
        self.mine.frontier.own([shard], [shard], self.mine.store.past())

    async def _get(self, url: str, **_: Any) -> Fetched:
        to = self.moved.get(url)
        return Fetched(url, 302, {"location": to}) if to else page(url)

    def visit(self) -> None:
        """Visit the next URL, if one waits; its record waits for the next flush."""
        for _ in ("met", "requested"):
            taken = self.mine.table.take(time.monotonic() + 1000)
            if taken:
                self.mine.visits.visit(*taken)

    def send(self) -> None:
        """Hand the links over, as the first half of a flush does."""
        self.mine.frontier.flush()

    def flush(self) -> None:
        self.mine.upkeep.flush()

    def read(self) -> None:
        self.mine.frontier.read_inboxes([self.shard], fresh=True)

    def tidy(self) -> None:
        self.mine.flush.sync_records()
        self.mine.frontier.tidy(self.shard)

    def is_idle(self) -> bool:
        self.read()
        return bool(self.mine.upkeep.is_idle())

    def end(self) -> None:
        self.mine.end()


class Two:
    """Two such workers over one store."""

    def __init__(self, root: Path, moved: dict[str, str]) -> None:
        self.root, self.moved = root, moved
        root.mkdir()
        StoreWriter(root, Files(root, "maker", durable=False)).make(SETTINGS)
        self.started = 0
        self.peers = [self._start(0), self._start(1)]

    def _start(self, shard: int) -> Peer:
        self.started += 1
        return Peer(self.root, shard, f"peer{self.started}", self.moved)

    def link(self, *found: str) -> None:
        """As if pages elsewhere had linked to these."""
        add(frontier_with(Files(self.root, "elsewhere", durable=False), SETTINGS), *(Task(url, 1) for url in found))

    def kill(self, shard: int) -> None:
        """One worker dies with all that it has in memory, and another takes its place."""
        self.peers[shard].end()
        self.peers[shard] = self._start(shard)

    def finish(self) -> None:
        for _ in range(200):
            if all(peer.is_idle() for peer in [*self.peers]):
                return
            for peer in self.peers:
                peer.visit()
                peer.flush()
        raise AssertionError("the crawl does not end")

    def kept(self) -> set[str]:
        return {str(record["url"]) for record in StoreWriter(self.root).records()}

    def failed(self) -> dict[str, str]:
        return {str(failure["url"]): str(failure["reason"]) for failure in StoreWriter(self.root).failures()}


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Two]]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Two] = []

    def make(moved: dict[str, str]) -> Two:
        made.append(Two(tmp_path / f"store{len(made)}", moved))
        return made[-1]

    yield make
    for one in made:
        for peer in one.peers:
            peer.end()


def loop(size: int, rng: Random | None = None) -> list[str]:
    """The members of a loop, on two hosts by turns or by lot."""
    return [f"http://{HOSTS[rng.randrange(2) if rng else number % 2]}/{number}" for number in range(size)]


def circle(members: list[str]) -> dict[str, str]:
    return dict(zip(members, [*members[1:], *members[:1]], strict=True))


def test_a_loop_is_seen_before_the_record_of_its_first_member_is_there(two: Callable[..., Two]) -> None:
    a, b = loop(2)
    both = two(circle([a, b]))
    first, second = both.peers
    both.link(a)
    first.read()
    first.visit()
    first.send()
    assert both.kept() == set(), "where it leads is known to others before its record is written"
    second.read()
    second.visit()
    second.flush()
    assert both.failed() == {b: "redirect-loop"}
    both.finish()
    assert (both.kept(), both.failed()) == ({a}, {b: "redirect-loop"})


def test_redirects_along_a_kept_chain_to_a_kept_page_are_no_loop(two: Callable[..., Two]) -> None:
    a, b, c, page = loop(4)
    both = two({a: b, b: c, c: page})
    for url in (page, c, b, a):
        both.link(url)
        both.finish()
    assert (both.kept(), both.failed()) == ({a, b, c, page}, {})


def test_a_loop_that_links_enter_everywhere_is_kept_as_redirects(two: Callable[..., Two]) -> None:
    members = loop(3)
    both = two(circle(members))
    both.link(*members)
    both.finish()
    assert (both.kept(), both.failed()) == ({*members}, {})


@pytest.mark.parametrize("seed", range(30))
def test_the_last_member_of_a_loop_is_the_failure_in_any_order(two: Callable[..., Two], seed: int) -> None:
    rng = Random(seed)
    members = loop(rng.randint(1, 5), rng)
    way = [f"http://{rng.choice(HOSTS)}/way{number}" for number in range(rng.randrange(3))]  # leads into the loop
    both = two(circle(members) | dict(zip(way, [*way[1:], members[0]], strict=False)))
    both.link(*(way[:1] or members[:1]))
    steps = ["visit", "visit", "send", "flush", "read", "tidy"]
    kills = seed % 3
    for _ in range(60):
        if kills and rng.random() < 0.05:
            kills -= 1
            both.kill(rng.randrange(2))
        else:
            getattr(rng.choice(both.peers), rng.choice(steps))()
    both.finish()
    assert both.failed() == {members[-1]: "redirect-loop"}
    assert both.kept() == {*members, *way} - {members[-1]}
