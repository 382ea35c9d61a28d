"""How a fleet grows: operations per page and per heartbeat, take-over and end; the tables of manual/capacity.md.

Small fleets are simulated whole. Those of up to 10,000 workers are simulated without pages (`simulation.crowd`), and
that coarser simulation is held against the whole one, without pages too, in sizes that both can do.

PYTHONPATH=tests python -m simulation.scale [whole|check|crowd ...] [--workers 4,16]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

from crawler.crawl.worker.ending import OVER
from crawler.store.inboxes import make_folder
from crawler.store.mount import Files
from crawler.store.store import path_of
from simulation import crowd
from simulation import fleet as fleets
from simulation.crowd import DEAD_AFTER, HEARTBEAT, Figures
from simulation.disk import Disk, Node
from simulation.fleet import Fleet
from simulation.light import NAMES_PER_OPERATION, Names
from simulation.mount import PROFILES, Mount
from simulation.patches import patched
from simulation.system import ROOT, System
from simulation.world import World

SMALL = (1, 4, 16, 64, 256)  # the last takes some minutes
CHECKED = (4, 16, 64, 256)
LARGE = (10, 30, 100, 300, 1000, 3000, 10_000)
SLOW, PATIENT = (10.0, 150.0), (1000, 3000)  # seconds of `heartbeat` and `dead_after`, and the sizes that try them
CARRIES = {"10,000/s": 10_000, "3,000/s": 3_000, "500/s": 500}  # operations
AT_ONCE = 1e6  # operations a second: no queue
WINDOW, LONG = 6.0, 120.0  # seconds: of measuring, and of the one page


@dataclass(frozen=True, slots=True)
class Cost:
    """What a small fleet of this size took."""

    workers: int
    pages: int
    operations: int
    beats: int
    taken_over_after: float  # seconds from the death of a worker until others had all its shards
    ended_after: float  # seconds from the last record until the last machine was gone


class Small:
    """A fleet of the whole program: machines with a worker each, on NFS."""

    def __init__(self, world: World, workers: int, pages: int, hosts: int, shards: int, delay: float) -> None:
        self.world, self.workers = world, workers
        self.disk = Disk(lambda: world.now, loses=False)
        self.system = System(world, self.disk, {})
        self._pages, self._hosts, self._shards, self._delay = pages, hosts, shards, delay

    @contextmanager
    def made(self) -> Iterator[Fleet]:
        """Make the store."""
        settings = {"heartbeat": HEARTBEAT, "dead_after": DEAD_AFTER, "shards": self._shards, "delay": self._delay}
        list_names = Mount.names

        def counted(mount: Mount, folder: Node) -> list[str]:
            names = list_names(mount, folder)
            self.system.counts["more"] = (
                self.system.counts.get("more", 0) + max(0, len(names) - 1) // NAMES_PER_OPERATION
            )
            return names

        with (
            patched(self.world, self.system, PROFILES["nfs3"]),
            mock.patch.dict(fleets.SETTINGS, settings),
            mock.patch.object(fleets, "SHARDS", self._shards),
            mock.patch.object(fleets, "DELAY", self._delay),
            mock.patch.object(fleets, "PER_ADDRESS", max(fleets.PER_ADDRESS, round(1 / self._delay))),
            mock.patch.object(Mount, "names", counted),
        ):
            fleet = Fleet(self.world, self.disk, PROFILES["nfs3"], self._pages, self._hosts)
            self.system._mounts = fleet.mounts
            fleet.make_store()
            yield fleet
            assert all(run.ended in (OVER, None) for run in fleet.runs), "a machine could not take part"
            self.world.close()

    def start(self, fleet: Fleet) -> None:
        """Start all machines."""
        for number in range(self.workers):
            fleet.start(fleet.add_machine(), 1)
            self.world.wait(self.world.now + (0 if number else 2))  # the first one notes things that all of them would

    def operations(self) -> int:
        """How many there were so far."""
        return sum(self.system.counts.values())

    def kill(self, fleet: Fleet) -> float:
        """Kill the last machine; return the seconds until others have all its shards."""
        run = fleet.running[-1]
        names = [child.name for child in run.children.values()]
        run.kill()
        fleet.checks.disturbed += 1
        killed = self.world.now

        def inherited() -> bool:
            return not any(name.partition("@")[2] in names for name, _ in self.disk.files("shards"))

        self.world.run(inherited, self.world.now + 300)
        return self.world.now - killed


def crawl(workers: int, pages: int = 120) -> Cost:
    """Run a fleet to its end; the last machine is killed in the middle."""
    world = World(1000 + workers)
    small = Small(world, workers, pages, 40, max(64, workers), 0.1)
    with small.made() as fleet:
        records: list[float] = []
        watch = small.disk.watch

        def note(what: str, path: str, node: Node) -> None:
            watch(what, path, node)
            if what == "here" and path.startswith("links/"):
                records.append(world.now)

        small.disk.watch = note
        small.start(fleet)
        world.wait(world.now + 10)
        taken_over = small.kill(fleet) if workers > 1 else 0.0
        world.run(lambda: not fleet.running, world.now + 900)
        names = [name for name, _ in small.disk.files("workers") if "@" in name]
        beats = sum(int(name.partition("@")[2].partition(".")[0]) for name in names)
    return Cost(workers, pages, small.operations(), beats, taken_over, world.now - max(records, default=world.now))


def wait_for_one(workers: int) -> Figures:
    """Run a fleet in which all but one worker wait for a page that is long in coming, as a crowd can do, too."""
    world = World(2000 + workers)
    shards = max(256, workers)
    small = Small(world, workers, 1, 1, shards, 0.1)
    with small.made() as fleet:
        url = fleet.tree.urls[0]
        fleet.tree.slow[url], fleet.tree.fails[url] = LONG, 0
        fleet.tree.gone.clear()
        fleet.do(
            *(partial(make_folder, Files(Path(ROOT + fleet.operator.name), "maker"), shard) for shard in range(shards))
        )
        world.run(lambda: not fleet.busy, world.now + 900)
        names = Names(world, small.disk)
        small.start(fleet)
        world.wait(world.now + 15)
        operations, shown = small.operations(), names.count()
        world.wait(world.now + WINDOW)
        rate, between = (small.operations() - operations) / WINDOW, workers * WINDOW / (names.count() - shown)
        taken_over = small.kill(fleet)
        world.run(lambda: small.disk.find(path_of("links", url)) is not None, world.now + 900)
        last = world.now
        world.run(lambda: not fleet.running, world.now + 900)
    return Figures(workers, between, rate, 0.0, taken_over, world.now - last)


def print_crawls(sizes: Sequence[int]) -> None:
    """Print what a crawl costs a small fleet."""
    print(
        "| workers | operations | per page | heartbeats | taken over after | ended after |\n|---|---|---|---|---|---|"
    )
    for it in map(crawl, sizes):
        print(
            f"| {it.workers} | {it.operations:,} | {it.operations / it.pages:.1f} | {it.beats:,} | "
            f"{it.taken_over_after:.0f} s | {it.ended_after:.1f} s |",
            flush=True,
        )


def print_check(sizes: Sequence[int]) -> None:
    """Print the coarse simulation beside the whole one."""
    print(
        "| workers | | operations/s | between heartbeats | taken over after | ended after |\n|---|---|---|---|---|---|"
    )
    for workers in sizes:
        coarse = crowd.measure(workers, AT_ONCE, all_idle=True)
        for name, it in (("whole", wait_for_one(workers)), ("coarse", coarse)):
            print(
                f"| {workers} | {name} | {it.operations:,.0f} | {it.between:.1f} s | "
                f"{_seconds(it.taken_over_after)} | {_seconds(it.ended_after)} |",
                flush=True,
            )


def print_crowds(sizes: Sequence[int]) -> None:
    """Print both tables of large fleets; the second has take-over and end."""
    settings = [(it, HEARTBEAT, DEAD_AFTER) for it in sizes] + [(it, *SLOW) for it in sizes if it in PATIENT]
    found = [(it, [crowd.measure(it[0], carries, *it[1:]) for carries in CARRIES.values()]) for it in settings]
    head = f"| workers | {' | '.join(CARRIES)} |\n|---|{'---|' * len(CARRIES)}"
    for cell in (_rhythm, _take_over_and_end):
        print(head)
        for (workers, heartbeat, _), figures in found:
            name = f"{workers:,}" + (f", `heartbeat: {heartbeat:.0f}`" if heartbeat != HEARTBEAT else "")
            print(f"| {name} | {' | '.join(map(cell, figures))} |")
        print(flush=True)


def _rhythm(it: Figures) -> str:
    silent = f", silent {it.silent:.0%}" if it.silent >= 0.005 else ""
    return f"{it.between:,.0f} s ({it.operations:,.0f}/s){silent}"


def _take_over_and_end(it: Figures) -> str:
    return f"{_seconds(it.taken_over_after)}, {_seconds(it.ended_after)}"


def _seconds(it: float | None) -> str:
    return "-" if it is None else f"{it:,.0f} s"


PARTS = {"whole": (print_crawls, SMALL), "check": (print_check, CHECKED), "crowd": (print_crowds, LARGE)}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*PARTS], metavar="PART")
    parser.add_argument("--workers", default="", help="sizes, with commas")
    options = parser.parse_args()
    for part in options.parts:
        show, sizes = PARTS[part]
        show([int(size) for size in options.workers.split(",")] if options.workers else sizes)
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
