"""How a fleet grows: operations per page and per heartbeat, take-over and end.

Small fleets are simulated whole. What they cost per page, per heartbeat and per look is then added up for fleets of up
to 10,000 workers, against what one mount carries: a coarser model, whose figures are in manual/capacity.md.

PYTHONPATH=tests python -m simulation.scale
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from unittest import mock

from crawler.crawl.worker.ending import OVER
from simulation import fleet as fleets
from simulation.disk import Disk
from simulation.fleet import Fleet
from simulation.mount import PROFILES
from simulation.patches import patched
from simulation.system import System
from simulation.world import World

SMALL = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # the last takes some minutes
LARGE = (10, 30, 100, 300, 1000, 3000, 10_000)
HEARTBEAT, DEAD_AFTER = 2.0, 30.0
NAMES_PER_OPERATION = 200  # of a listing that a server sends with one reply
CARRIES = {"a local disk": 10_000, "NFS": 3_000, "sshfs, GlusterFS or MooseFS": 500}  # operations a second


@dataclass(frozen=True, slots=True)
class Cost:
    """What a small fleet of this size took."""

    workers: int
    pages: int
    operations: int
    seconds: float
    beats: int
    taken_over_after: float  # seconds from the death of a worker until others had all its shards
    ended_after: float  # seconds from the last record until the last machine was gone


def measure(workers: int, profile: str = "nfs3", pages: int = 120) -> Cost:
    """Run a fleet of so many machines with a worker each; the last one is killed in the middle."""
    world = World(1000 + workers)
    disk = Disk(lambda: world.now)
    system = System(world, disk, {})
    shards = max(64, workers)
    real = {"heartbeat": HEARTBEAT, "dead_after": DEAD_AFTER, "shards": shards, "delay": 0.1}
    with (
        patched(world, system, PROFILES[profile]),
        mock.patch.dict(fleets.SETTINGS, real),
        mock.patch.object(fleets, "SHARDS", shards),
    ):
        fleet = Fleet(world, disk, PROFILES[profile], pages, 40)
        system._mounts = fleet.mounts
        fleet.checks._shards, fleet.checks._delay = shards, 0.1
        fleet.make_store()
        for number in range(workers):
            fleet.start(fleet.add_machine(), 1)
            world.wait(world.now + (0 if number else 2))  # the first one notes things that all of them would
        world.wait(world.now + 10)
        taken_over = _kill(world, fleet) if workers > 1 else 0.0
        records: list[float] = []
        watch = disk.watch

        def note(what: str, path: str, node: object) -> None:
            watch(what, path, node)  # type: ignore[arg-type]
            if what == "here" and path.startswith("links/"):
                records.append(world.now)

        disk.watch = note
        world.run(lambda: not fleet.running, world.now + 900)
        assert all(run.ended in (OVER, None) for run in fleet.runs), "a machine could not take part"
        beats = sum(int(name.partition("@")[2].partition(".")[0]) for name, _ in disk.files("workers") if "@" in name)
        total = sum(system.counts.values())
        world.close()
    return Cost(workers, pages, total, world.now - 1000, beats, taken_over, world.now - max(records, default=world.now))


def _kill(world: World, fleet: Fleet) -> float:
    run = fleet.running[-1]
    names = [child.name for child in run.children.values()]
    run.kill()
    fleet.checks.disturbed += 1
    killed = world.now

    def inherited() -> bool:
        return not any(name.partition("@")[2] in names for name, _ in fleet.disk.files("shards"))

    world.run(inherited, world.now + 300)
    return world.now - killed


def heartbeats(workers: int, per_beat: float) -> float:
    """Operations a second for the heartbeats of so many workers, listings included."""
    return workers / HEARTBEAT * (per_beat + workers / NAMES_PER_OPERATION)


def longest(workers: int, per_beat: float, carries: float) -> float:
    """Seconds between two heartbeats of a worker on a mount that carries so much, and does nothing else."""
    return max(HEARTBEAT, workers * (per_beat + workers / NAMES_PER_OPERATION) / carries)


def main() -> int:
    """Print both tables."""
    costs = [measure(workers) for workers in SMALL]
    print(
        "| workers | operations | per page | heartbeats | taken over after | ended after |\n|---|---|---|---|---|---|"
    )
    for it in costs:
        print(
            f"| {it.workers} | {it.operations:,} | {it.operations / it.pages:.1f} | {it.beats} | "
            f"{it.taken_over_after:.0f} s | {it.ended_after:.1f} s |"
        )
    per_beat = 5.0  # create, fsync, rename, unlink of the old name, and the listing's own request
    print(
        "\n| workers | heartbeats, operations/s | "
        + " | ".join(f"{name}: seconds between two" for name in CARRIES)
        + " |"
    )
    print("|---|---|" + "---|" * len(CARRIES))
    for workers in LARGE:
        row = " | ".join(f"{longest(workers, per_beat, carries):.1f}" for carries in CARRIES.values())
        print(f"| {workers:,} | {heartbeats(workers, per_beat):,.0f} | {row} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
