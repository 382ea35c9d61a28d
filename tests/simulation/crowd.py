"""A fleet of up to 10,000 workers without pages: heartbeats, take-over and the end, on a server of some capacity.

Some of the workers are real (`Shards`, `Watch`, `Files`), the others light (`simulation.light`); all have the rhythm of
`Upkeep`, without the crawl. They start with their fair shares, and are busy until they are told to be idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crawler.crawl.worker.upkeep import END_INTERVAL, MAX_DOUBLINGS, POLLED_AT_ONCE, QUICK_BEATS
from crawler.fleet.heartbeats import ALL
from crawler.fleet.shards import Shards
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import shard_name
from simulation.disk import FILE, FOLDER, Disk
from simulation.light import LightShards, Names, QueuedMount, Server
from simulation.mount import PROFILES
from simulation.patches import POLL, patched
from simulation.system import ROOT, System
from simulation.world import Machine, Process, World

HEARTBEAT, DEAD_AFTER = 2.0, 30.0
REAL = 10  # of the workers, but not more than half
WARM, MEASURED = 2, 3  # heartbeats of each worker
IDLE_BEFORE = 10.0  # seconds before the last page in which the workers become idle, one after the other
PATIENCE = 3600.0  # seconds for a take-over, and for the end


@dataclass(frozen=True, slots=True)
class Figures:
    """What a crowd took."""

    workers: int
    between: float  # seconds between two heartbeats of a worker
    operations: float  # a second, by all workers, for heartbeats, listings and inboxes
    silent: float  # share of the time in which a worker may send no requests, because its heartbeat is too old
    taken_over_after: float | None  # seconds; None if it was not tried, or has not happened
    ended_after: float | None


class Worker:
    """The rhythm of a worker's heartbeats and polls, as in `Upkeep`."""

    def __init__(self, process: Process, mount: QueuedMount, shards: Shards | LightShards, mine: set[int]) -> None:
        self.process, self.shards, self.mine = process, shards, mine
        self.idle_at = float("inf")
        self.silent = 0.0
        self.is_over = self.has_ended = False
        self._mount, self._world = mount, process.world
        self._began = self._world.now
        self._polled_idle_at = self._polled_all_at = -1
        self._far_beat = self._next_polled = 0

    def start(self, heartbeat: float) -> None:
        """Begin at some moment of the first interval."""
        self._heartbeat = heartbeat
        for call in (self._show_heartbeats, self._poll_and_leave):
            first = self._world.now + self.process.random.random() * heartbeat
            self._world.at(first, self.process, partial(self._world.thread, self.process, call, self._raise))

    def _raise(self, _: object, error: BaseException | None) -> None:
        self._world.failure = self._world.failure or error

    def _wait(self, since: float, interval: Callable[[], float]) -> None:
        while (rest := since + interval() - self._world.now) > 0 and not self.is_over:
            # One that is idle may have to hurry at any moment, one that is busy not before it is idle.
            until_idle = self.idle_at - self._world.now
            self._world.pause(min(rest, POLL if until_idle <= 0 else until_idle + 1e-6))

    def _is_idle(self) -> bool:
        return self._world.now >= self.idle_at

    def _near_the_end(self) -> bool:
        is_near = not self.shards.heartbeat.idle or self.shards.all_idle()
        if not is_near:
            self._far_beat = self.shards.heartbeat.beat
        return is_near

    def _end_interval(self) -> float:
        beats = self.shards.heartbeat.beat - self._far_beat
        doublings = min(max(beats - QUICK_BEATS, 0), MAX_DOUBLINGS)
        return min(END_INTERVAL * 2.0**doublings, self._heartbeat / 4)

    def _beat_interval(self) -> float:
        has_polled = self._polled_idle_at == self.shards.heartbeat.beat
        return self._end_interval() if has_polled and self._near_the_end() else self._heartbeat

    def _poll_interval(self) -> float:
        return self._end_interval() if self._is_idle() and self._near_the_end() else self._heartbeat

    def _show_heartbeats(self) -> None:
        while not self.is_over:
            last = self._world.now
            polled = f"{ALL}{self._polled_all_at}" if self._polled_all_at >= 0 else ""
            mark = f"0{polled}" if self._is_idle() else ""
            if not self.shards.beat({}, mark):
                raise AssertionError(f"{self.process.name} was marked dead")
            self.silent += max(0.0, self._world.now - self._began - self.shards.dead_after / 2)
            self._began = last
            if mark and (self.shards.all_is_done() or self.shards.others_proved_the_end()):
                self.is_over = True
            self._wait(last, self._beat_interval)

    def _poll_and_leave(self) -> None:
        while not self.is_over:
            self._poll()
            self._wait(self._world.now, self._poll_interval)
        self.shards.own_still(self.mine)
        for shard in sorted(self.mine):
            self.shards.release(shard)
        self.shards.sign_off({})
        self.has_ended = True

    def _poll(self) -> None:
        beat, idle = self.shards.heartbeat.beat, self._is_idle()
        thorough = idle and self.shards.all_idle()
        rest = max(len(self.mine) - 1, 0)
        start = self._next_polled if self._next_polled < rest else 0
        self._next_polled = start + POLLED_AT_ONCE
        others = rest if thorough else min(rest - start, POLLED_AT_ONCE)
        for _ in range(
            3 + others * (3 if idle else 1)
        ):  # a name made and removed where it must be fresh, and a listing
            self._mount.call("listdir", int)
        gained, _ = self.shards.balance(self.mine)
        self.mine |= gained.keys()
        if idle:
            self._polled_idle_at = beat
            self._polled_all_at = beat if thorough else -1


class Crowd:
    """A store with its workers."""

    def __init__(
        self, world: World, system: System, disk: Disk, workers: int, carries: float, settings: Settings
    ) -> None:
        self.world, self.server, self._settings = world, Server(world, carries), settings
        for name in ("workers", "shards", "frontier"):
            disk.set((disk.root, name, disk.node(FOLDER)))
        self.names = Names(world, disk)
        machine = Machine(world, "computer")
        first = QueuedMount(Process(machine, "first"), disk, self.server)
        system._mounts = {machine.name: first}
        each, more = divmod(settings.shards, workers)
        real = {workers * number // min(REAL, workers // 2) for number in range(min(REAL, workers // 2))}
        self.workers: list[Worker] = []
        folder = disk.find("shards")
        assert folder is not None
        taken = 0
        for rank in range(workers):
            process = Process(machine, f"w{rank:05d}")
            mine = {*range(taken, taken + each + (rank < more))}
            taken += len(mine)
            for shard in mine:
                disk.set((folder, f"{shard_name(shard)}@{process.name}", disk.node(FILE)))
            mount = first
            shards: Shards | LightShards
            if rank in real:
                world.current = process
                files = Files(Path(ROOT + machine.name), process.name)
                shards = Shards(files, settings, clock=machine.clock, random=process.random)
            else:
                shards = LightShards(self.names, process, mount, rank, workers, settings)
            self.workers.append(Worker(process, mount, shards, mine))
        world.current = None

    def beats(self) -> int:
        """How many heartbeats each worker has shown, at least."""
        return min(len(self.names.times.get(it.process.name, ())) - 1 for it in self.workers)

    def wait_for(self, until: Callable[[], bool], limit: float, step: float) -> bool:
        """Let everybody go on until this is true, asked now and then."""
        end = self.world.now + limit
        while not until() and self.world.now < end:
            self.world.wait(self.world.now + step)
        return until()


def measure(
    workers: int,
    carries: float,
    heartbeat: float = HEARTBEAT,
    dead_after: float = DEAD_AFTER,
    all_idle: bool = False,
    seed: int = 1,
) -> Figures:
    """Measure a crowd; `all_idle` but one from the beginning."""
    world = World(seed)
    disk = Disk(lambda: world.now, loses=False)
    system = System(world, disk, {})
    settings = Settings(shards=max(256, workers), heartbeat=heartbeat, dead_after=dead_after)
    with patched(world, system, PROFILES["nfs3"]):
        try:
            return _measure(Crowd(world, system, disk, workers, carries, settings), all_idle)
        finally:
            world.close()


def _measure(crowd: Crowd, all_idle: bool) -> Figures:
    world, heartbeat, count = crowd.world, crowd._settings.heartbeat, len(crowd.workers)
    for worker in crowd.workers:
        worker.idle_at = 0.0 if all_idle and worker is not crowd.workers[0] else float("inf")
        worker.start(heartbeat)
    crowd.wait_for(lambda: crowd.beats() >= WARM, 1e6, heartbeat)
    began, operations, before = world.now, crowd.server.operations, crowd.names.count()
    for worker in crowd.workers:
        worker.silent = 0.0
    crowd.wait_for(lambda: crowd.beats() >= WARM + MEASURED, 1e6, heartbeat)
    seconds = world.now - began
    between = count * seconds / (crowd.names.count() - before)
    silent = min(1.0, sum(worker.silent for worker in crowd.workers) / count / seconds)
    rate = (crowd.server.operations - operations) / seconds
    taken_over = ended = None
    if silent < 0.9:
        taken_over = _take_over(crowd)
        ended = _end(crowd) if taken_over is not None else None
    return Figures(count, between, rate, silent, taken_over, ended)


def _take_over(crowd: Crowd) -> float | None:
    """Kill the last light worker, and return the seconds until others have its shards."""
    killed = next(it for it in reversed(crowd.workers) if isinstance(it.shards, LightShards))
    killed.process.is_dead = True
    crowd.workers.remove(killed)
    crowd.names.kill(killed.process.name)
    began = crowd.world.now
    done = crowd.wait_for(lambda: not crowd.names.owned[killed.process.name], PATIENCE, 0.1)
    return crowd.world.now - began if done else None


def _end(crowd: Crowd) -> float | None:
    """Let the workers become idle, and return the seconds from when the last one is until all have ended."""
    crowd.world.wait(crowd.world.now + 2 * crowd._settings.heartbeat)
    last = crowd.world.now + IDLE_BEFORE
    for worker in crowd.workers:
        worker.idle_at = min(worker.idle_at, last - IDLE_BEFORE * worker.process.random.random())
    crowd.workers[0].idle_at = last
    done = crowd.wait_for(lambda: all(worker.has_ended for worker in crowd.workers), PATIENCE, 0.1)
    return crowd.world.now - last if done else None
