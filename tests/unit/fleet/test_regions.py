"""Regions: hosts of a region belong to its own workers, and to others only when those are gone for long enough."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest

from crawler.fleet.heartbeats import ALL
from crawler.fleet.regions import region_of
from crawler.fleet.shards import Shards
from crawler.frontier.task import Task, shard_of
from crawler.settings.regions import region_of_host, region_of_shard
from crawler.settings.settings import Settings
from crawler.store.clock import Clock
from crawler.store.inboxes import folder, make_folder
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter

RULES = {"*.jp": "tokyo", "*.cn": "beijing"}
SHARDS = 12


class World:
    """A store with two regions, workers that take shards, and a clock that only the test moves."""

    def __init__(self, root: Path, takeover: float | None) -> None:
        self.root, self.now = root, 1000.0
        self.settings = Settings(shards=SHARDS, regions=RULES, region_takeover=takeover)
        StoreWriter(root, Files(root, "maker", durable=False)).make(self.settings)
        self.mine: dict[str, set[int]] = {}
        self.shards: dict[str, Shards] = {}

    def join(self, *ids: str) -> None:
        for id in ids:
            files = Files(self.root, id, durable=False)
            self.shards[id] = Shards(files, self.settings, 1, Clock(monotonic=lambda: self.now))
            self.mine[id] = set()

    def leave(self, id: str) -> None:
        for shard in self.mine.pop(id):
            self.shards[id].release(shard)
        self.shards.pop(id).sign_off({})

    def rounds(self, count: int = 5, idle: str = "") -> None:
        for _ in range(count):
            self.now += self.settings.heartbeat
            for id, shards in self.shards.items():
                shards.beat({}, idle)
                gained, unwanted = shards.balance(self.mine[id])
                self.mine[id] = self.mine[id].union(gained) - set(unwanted)
                for shard in unwanted:
                    shards.release(shard)

    def owned(self, id: str) -> Counter[str]:
        """How many shards of each region a worker has."""
        return Counter(region_of_shard(shard, self.settings.region_rules) for shard in self.mine[id])

    def wait(self, region: str) -> None:
        """Let a URL wait in a shard of a region."""
        shard = next(n for n in range(SHARDS) if region_of_shard(n, self.settings.region_rules) == region)
        make_folder(Files(self.root), shard)
        (self.root / folder(shard) / "other-0000-000001.1").write_text("0\t0\t0\thttp://a.jp/\n")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> World:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return World(tmp_path, getattr(request, "param", 300.0))


def test_each_region_has_its_own_workers_and_the_rest_is_shared(world: World) -> None:
    world.join("a-tokyo", "b-tokyo", "c-beijing", "d")
    world.rounds()
    assert world.owned("a-tokyo") == {"tokyo": 2, "": 1}
    assert world.owned("b-tokyo") == {"tokyo": 2, "": 1}
    assert world.owned("c-beijing") == {"beijing": 4, "": 1}
    assert world.owned("d") == {"": 1}


def test_others_step_in_after_a_while_and_give_back_what_a_new_worker_of_the_region_needs(world: World) -> None:
    world.join("a-tokyo", "c-beijing")
    world.rounds()
    world.leave("a-tokyo")
    world.rounds()
    assert world.owned("c-beijing") == {"beijing": 4, "": 4}
    world.now += 300
    world.rounds()
    assert world.owned("c-beijing") == {"beijing": 4, "": 4, "tokyo": 4}
    world.join("e-tokyo")
    world.rounds()
    assert world.owned("e-tokyo") == {"tokyo": 4, "": 2}
    assert world.owned("c-beijing") == {"beijing": 4, "": 2}


@pytest.mark.parametrize("world", [None], indirect=True)
def test_a_region_can_wait_for_its_own_workers_for_ever(world: World) -> None:
    world.join("c-beijing")
    world.wait("tokyo")
    world.rounds()
    world.now += 1e6
    world.rounds()
    assert world.owned("c-beijing") == {"beijing": 4, "": 4}
    assert is_over(world)
    assert world.shards["c-beijing"].has_later(), "a URL waits for Tokyo"


def test_a_crawl_is_not_over_while_something_waits_for_others_to_step_in(world: World) -> None:
    world.join("c-beijing")
    world.wait("tokyo")
    world.rounds()
    world.now += world.settings.dead_after
    assert not is_over(world)
    world.now += 300
    world.rounds()
    assert world.owned("c-beijing")["tokyo"] == 4


def test_a_region_without_workers_and_without_urls_holds_up_no_end(world: World) -> None:
    world.join("c-beijing")
    world.rounds()
    assert not is_over(world), "others may just be starting"
    world.now += world.settings.dead_after
    assert is_over(world)
    assert not world.shards["c-beijing"].has_later()


def is_over(world: World) -> bool:
    """Whether the workers agree on the end within some idle rounds."""
    (shards,) = world.shards.values()
    for _ in range(6):
        world.rounds(1, f"1{ALL}{shards.heartbeat.beat}")
        if shards.all_is_done():
            return True
    return False


@pytest.mark.parametrize("spread", ["domain", "host", "url"])
def test_hosts_are_in_shards_of_their_region_and_evenly_so(spread: str) -> None:
    settings = Settings(shards=64, regions=RULES, spread=spread)
    rules = settings.region_rules
    found: Counter[int] = Counter()
    for number in range(6000):
        host = f"site-{number}.{('jp', 'cn', 'org')[number % 3]}"
        shard = shard_of(Task(f"http://{host}/"), settings.shards, spread, rules)
        assert region_of_shard(shard, rules) == region_of_host(host, rules)
        found[shard] += 1
    assert set(found) == set(range(64))
    assert max(found.values()) < 2 * min(found.values())


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("a.jp", "tokyo"),
        ("a.jp:8080", "tokyo"),
        ("jp", ""),
        ("a.jp.example", ""),
        ("[::1]:80", ""),
        ("b.cn", "beijing"),
    ],
)
def test_the_region_of_a_host(host: str, region: str) -> None:
    assert region_of_host(host, tuple(RULES.items())) == region


def test_the_region_of_a_worker_is_in_its_id() -> None:
    assert [region_of(id) for id in ("3f2a91c0", "3f2a91c0-tokyo", "3f2a91c0-us-east")] == ["", "tokyo", "us-east"]
