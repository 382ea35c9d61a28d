"""Machines in three regions: hosts are requested from where they are near, until a region dies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from lab.machines.fleet import Fleet, fleet
from lab.machines.mounts import Mount
from lab.webs import FlatWeb
from lab.world import crawler

from crawler.commands.demo.pages import Leaf
from crawler.commands.demo.server import ServedWeb, serve
from crawler.web import urls

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]
NAMES = ("tokyo", "paris", "lima")
RULES = "{'flat-*[036].example': tokyo, 'flat-*[147].example': paris, '*': lima}"
HOME, ABROAD = 0.02, 0.3  # seconds that a reply takes
HOSTS, PAGES = 30, 12


def region_of(host: str) -> str:
    """The region of a host, by the last digit of its number."""
    last = host.partition(".")[0][-1]
    return "tokyo" if last in "036" else "paris" if last in "147" else "lima"


class Seen(FlatWeb):
    """The web as it is seen from one region: hosts at home answer soon, others late."""

    place = ""

    def leaf(self, url: str) -> Leaf | None:
        leaf = super().leaf(url)
        return leaf and replace(leaf, delay=HOME if region_of(urls.host(url)) == self.place else ABROAD)


class Regions:
    """A fleet whose machines see the web through the server of their region, each with a log of its own."""

    def __init__(self, f: Fleet, servers: dict[str, ServedWeb]) -> None:
        self.f, self.servers = f, servers

    def join(self, number: int, named: bool = True) -> None:
        name = NAMES[number]
        flags = ["--region", name] if named else []
        self.f.join(number, workers=1, flags=flags, port=self.servers[name].port)

    def join_all(self) -> None:
        """Start a machine in each region, the seed's first; work goes on once all are there."""
        *others, first = range(len(NAMES))
        self.join(first)
        self.f.wait(lambda: self.servers[NAMES[first]].log, "a first request")
        crawler("pause", str(self.f.root))
        for number in others:
            self.join(number)
        self.f.wait(lambda: len(self.f.counters()) == len(NAMES), "a worker in each region")
        crawler("resume", str(self.f.root))

    def kill_tokyo(self) -> None:
        """Kill the machine in Tokyo once it is at work."""
        self.f.wait(lambda: self.servers["tokyo"].log, "a request from Tokyo")
        next(machine for machine in self.f.machines if NAMES[machine.number] == "tokyo").kill()

    def end(self) -> None:
        """Wait until all machines have ended, and compare what they stored with the web."""
        assert {machine.wait() for machine in self.f.machines if not machine.may_end} == {0}
        assert self.f.differences() == []

    def requested(self, name: str) -> set[str]:
        """The regions of the hosts that were requested from a region."""
        return {region_of(request.host) for request in self.servers[name].log}

    def pages_a_second(self) -> float:
        log = [request for server in self.servers.values() for request in server.log if request.status == 200]
        return len(log) / (max(request.end for request in log) - min(request.start for request in log))


@contextmanager
def regions(mount: Mount, folder: Path, **settings: object) -> Iterator[Regions]:
    web = FlatWeb(hosts=HOSTS, pages=PAGES)
    with ExitStack() as stack:
        f = stack.enter_context(fleet(web, mount, heartbeat=0.5, dead_after=6, **settings))
        servers = {}
        for name in NAMES:
            seen = Seen(hosts=HOSTS, pages=PAGES)
            seen.place = name
            with mount.beside_web():
                served = serve(seen, (mount.web_host, 0), log=folder / f"{name}.log", process=True)
            servers[name] = stack.enter_context(served)
        yield Regions(f, servers)


def test_each_host_is_requested_from_its_own_region_only(mounting: Mounting, tmp_path: Path) -> None:
    with regions(mounting("local", 3), tmp_path, regions=RULES) as here:
        for number in range(3):
            here.join(number)
        here.end()
        assert {name: here.requested(name) for name in NAMES} == {name: {name} for name in NAMES}
        near = here.pages_a_second()
        shutil.rmtree(here.f.root)
    (tmp_path / "mixed").mkdir()
    with regions(mounting("local", 3), tmp_path / "mixed") as here:
        for number in range(3):
            here.join(number, named=False)
        here.end()
        far = here.pages_a_second()
    print(f"{near:.0f} pages a second with regions, {far:.0f} without: {near / far:.1f} times")


def test_the_hosts_of_a_region_that_dies_are_taken_over_after_a_while(mounting: Mounting, tmp_path: Path) -> None:
    with regions(mounting("local", 3), tmp_path, regions=RULES, region_takeover="5s", delay=1) as here:
        here.join_all()
        here.kill_tokyo()
        here.end()
        assert "tokyo" in here.requested("paris") | here.requested("lima")


def test_the_hosts_of_a_region_that_dies_wait_for_its_next_machine_where_that_is_set(
    mounting: Mounting, tmp_path: Path
) -> None:
    with regions(mounting("local", 3), tmp_path, regions=RULES, region_takeover="null", delay=1) as here:
        here.join_all()
        here.kill_tokyo()
        for machine in here.f.running():
            machine.may_end = True
            assert machine.wait() == 4
            assert "what waits is for machines of tokyo; run one there with --region" in machine.printed
        assert here.f.differences() != []
        here.join(0)
        here.end()
        assert {name: here.requested(name) for name in NAMES} == {name: {name} for name in NAMES}
