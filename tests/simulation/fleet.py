"""Machines, workers and operators in the simulation: the program's own classes, put together as its commands do."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import partial
from multiprocessing.sharedctypes import typecode_to_type
from pathlib import Path
from random import Random
from typing import Any

from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.start import add, begin
from crawler.crawl.whole import make_whole
from crawler.crawl.worker.ending import LATER, OVER, REPLACED
from crawler.crawl.worker.heartbeat import ASK_SECONDS, HeartbeatThread, Report
from crawler.crawl.worker.worker import Worker
from crawler.errors import CrawlerError, StoreAway, StoreError
from crawler.fetch.trust import Trust
from crawler.fleet import control
from crawler.frontier import rehydrate
from crawler.frontier.batches import LOSS
from crawler.settings.settings import Settings
from crawler.store.inboxes import shards_in
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter, open_to_write
from simulation.checks import Checks, shard_of
from simulation.disk import Disk
from simulation.manners import Manners
from simulation.mount import Mount, Profile
from simulation.system import ROOT
from simulation.web import PRIVATE, SECRET, SECRETS_OF, Client, Tree
from simulation.world import Machine, Process, World

SHARDS, DELAY, PER_ADDRESS = 4, 0.3, 5
SETTINGS: dict[str, Any] = {
    "shards": SHARDS,
    "scope": "any",
    "delay": DELAY,
    "retry_delay": 1.0,
    "retries": 8,
    "heartbeat": 0.5,
    "dead_after": 6.0,
    "max_per_address": PER_ADDRESS,
}
RECRAWL: dict[str, Any] = {"recrawl": "30d", "history": 1}
TRUST = Trust(headers={f"https://{SECRETS_OF}": (SECRET,)}, private=frozenset({PRIVATE}))
START_AGAIN = 2.0  # seconds until an operator gives a command again that could not be carried out


class Context:
    """Memory for a scoreboard that no other process shares."""

    @staticmethod
    def RawValue(code: str, value: Any) -> Any:
        return typecode_to_type[code](value)

    @staticmethod
    def RawArray(code: str, size: int) -> Any:
        return ((ctypes.c_char if code == "c" else typecode_to_type[code]) * size)()


class Heartbeats(HeartbeatThread):
    """The heartbeat in a thread of the simulation."""

    process: Process

    def start(self) -> None:
        self._last = self._upkeep.report()
        self._ended = False
        self.process.world.thread(self.process, self._run, self._end)

    def _end(self, _: Any, error: BaseException | None) -> None:
        self._ended = True
        self.process.world.failure = self.process.world.failure or error

    async def wait(self, seconds: float) -> None:
        while not self._ended and seconds > 0:
            await asyncio.sleep(0.1)
            seconds -= 0.1

    def _ask_loop(self) -> Report:
        answers: list[Report] = []
        self.process.loop.call_soon(lambda: answers.append(self._upkeep.report()))
        limit = self.process.world.now + ASK_SECONDS
        while not answers and self.process.world.now < limit:
            self._clock.sleep(0.01)
        if not answers:
            return self._last[0], ""
        self._last = answers[0]
        return self._last


class Run:
    """One `crawler run` on a computer: a supervisor and its workers."""

    def __init__(self, fleet: Fleet, machine: Machine, workers: int) -> None:
        self.fleet, self.machine, self.workers = fleet, machine, workers
        self.id = fleet.new_name("m")
        self.root = Path(ROOT + machine.name)
        self.process = Process(machine, self.id)
        self.children: dict[int, Process] = {}
        self.outcomes: dict[int, str] = {}
        self.workers_made: list[Worker] = []
        self.ended: str | None = None
        self.began = fleet.world.now
        self.scoreboard: Scoreboard | None = None
        self.process.run(self._supervise(), self._end)

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.ended is not None or self.process.is_dead

    def _end(self, task: asyncio.Task[str]) -> None:
        self.ended = task.result()
        self.fleet.world.note(f"ended {self.ended}")

    async def _supervise(self) -> str:
        outcome = await self._crawl()
        await self.process.io(control.withdraw, Files(self.root), self.id)
        return outcome

    async def _crawl(self) -> str:
        """As `crawler run` does."""
        io = self.process.io
        try:
            settings = await io(begin, self.root, {}, (), self.id, lambda text: None)
            store = StoreWriter(self.root, Files(self.root, self.id, settings.durable))
            while True:
                outcome = await self._work(settings)
                if outcome not in (OVER, LATER) or not await io(rehydrate.is_needed, store):
                    return outcome
                await io(make_whole, store, settings, self.id, lambda text: None)
                self.fleet.world.effects["rehydrated"] += 1
                self.fleet.checks.after_rehydration(not self.fleet.is_incomplete())
        except CrawlerError as error:
            return f"error: {error}"

    async def _work(self, settings: Settings) -> str:
        """Run workers to their end, and replace those that die; as `Machine.run` does."""
        board = self.scoreboard = Scoreboard(Context(), self.workers, 4)  # type: ignore[arg-type]
        self.outcomes.clear()
        for row in range(self.workers):
            self._start(row, settings)
        while len(self.outcomes) < self.workers or set(self.outcomes.values()) & {*REPLACED, "killed"}:
            await asyncio.sleep(0.2)
            for row, child in self.children.items():
                if child.is_dead and row not in self.outcomes:
                    self.outcomes[row] = "killed"
            for row, outcome in list(self.outcomes.items()):
                if outcome in (*REPLACED, "killed"):
                    del self.outcomes[row]
                    if board.draining:
                        self.outcomes[row] = "stopped"
                    else:
                        self._start(row, settings)
        outcomes = set(self.outcomes.values())
        return OVER if outcomes == {OVER} else LATER if outcomes <= {OVER, LATER} else "stopped"

    def _start(self, row: int, settings: Settings) -> None:
        process = self.children[row] = Process(self.machine, self.fleet.new_name("w"))
        process.run(self._worker(process, row, settings), partial(self._worker_ended, row, process))

    async def _worker(self, process: Process, row: int, settings: Settings) -> str:
        assert self.scoreboard is not None
        files = Files(self.root, process.name, settings.durable)
        files.directories.max_kept = 8
        fleet = self.fleet
        while True:
            try:
                await process.io(files.share_mode)
                break
            except StoreAway:
                await asyncio.sleep(0.5)
        client = Client(fleet.tree, process, fleet.checks.manners)
        run = process.map if fleet.profile.is_shared else map
        worker = Worker(
            StoreWriter(self.root, files),
            settings,
            client,
            self.scoreboard,
            row,
            self.id,
            process.io,
            run,
            clock=self.machine.clock,
            random=process.random,
            trust=TRUST,
        )
        worker.heartbeat = Heartbeats(worker.upkeep, worker.shards, worker.ending, self.machine.clock)
        worker.heartbeat.process = process
        end = worker.ending.end

        def note_end(outcome: str) -> None:
            if outcome in (OVER, LATER) and worker.ending.outcome is None:
                fleet.checks.over(process, not fleet.is_incomplete())
            end(outcome)

        worker.ending.end = note_end  # type: ignore[method-assign]
        self.workers_made.append(worker)
        await worker.run()
        if worker.ending.error:
            fleet.world.note(f"error {worker.ending.error}")
            self.scoreboard.drain()
        return worker.ending.outcome or "stopped"

    def _worker_ended(self, row: int, process: Process, task: asyncio.Task[str]) -> None:
        self.outcomes[row] = task.result()
        process.is_dead = True  # so are its locks
        self.fleet.world.effects[f"worker {self.outcomes[row]}"] += 1
        self.fleet.world.note(f"worker {process.name} {self.outcomes[row]}")

    def kill(self) -> None:
        """All processes of this run are gone."""
        for process in (self.process, *self.children.values()):
            process.is_dead = True


class Fleet:
    """Everything that there is."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        profile: Profile,
        pages: int,
        hosts: int,
        recrawls: bool = False,
        rules: Random | None = None,
    ) -> None:
        """With `recrawls` each page is to be visited again after a month, and one older version is kept.

        `rules` draws what hosts want of crawlers, if they want anything.
        """
        self.world, self.disk, self.profile = world, disk, profile
        self._settings = SETTINGS | (RECRAWL if recrawls else {})
        self.tree = Tree(pages, hosts, Random(world.random.random()), rules)
        disk.effects = world.effects
        manners = Manners(world, disk, self.tree, DELAY, lambda host: shard_of(host, SHARDS), PER_ADDRESS)
        self.checks = Checks(world, disk, self.tree, manners, SHARDS, recrawls)
        self.machines: dict[str, Machine] = {}
        self.mounts: dict[str, Mount] = {}
        self.runs: list[Run] = []
        self._names = 0
        self.operator = self.add_machine()

    def new_name(self, kind: str) -> str:
        """A name that nothing had before; sorted by chance, as random ids are."""
        self._names += 1
        return f"{kind}{self.world.random.randrange(256):02x}{self._names}"

    def add_machine(self) -> Machine:
        """Another computer; on a local disk it is always the same one."""
        if self.machines and not self.profile.is_shared:
            return next(iter(self.machines.values()))
        machine = Machine(self.world, f"computer{len(self.machines)}")
        self.machines[machine.name] = machine
        self.mounts[machine.name] = Mount(self.world, machine, self.disk, self.profile)
        return machine

    def make_store(self) -> None:
        """Make the store with its first seed, before anything goes wrong."""
        self.checks.seeds.add(self.tree.urls[0])
        self.do(self._make)
        self.world.run(lambda: not self.busy, self.world.now + 60)
        self.disk.sync_all()
        self.world.effects.clear()

    def _make(self) -> None:
        root = Path(ROOT + self.operator.name)
        store = StoreWriter(root, Files(root, "maker"))
        store.make(Settings(**self._settings))
        add(store, [self.tree.urls[0]])

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Let something happen after a while, unless the fleet is left in peace by then."""
        self.world.at(self.world.now + seconds, Process(self.operator, "fate"), act)

    busy = 0

    def do(self, *calls: Callable[[], Any], gap: float = 0.0) -> None:
        """Let an operator do something, in a process of its own; again, if the store does not respond."""
        self.busy += 1
        process = Process(self.operator, self.new_name("o"))

        def work() -> Any:
            for call in calls:
                result = self._until_it_works(call)
                self.world.pause(gap)
            return result

        self.world.thread(process, work, self._did)

    def _until_it_works(self, call: Callable[[], Any]) -> Any:
        while True:
            power_cuts = self.checks.power_cuts
            try:
                result = call()
                if power_cuts == self.checks.power_cuts:
                    return result
                self.world.note("operator: a power cut has ended the command")
            except StoreError as error:
                self.world.note(f"operator: {error}")
            self.world.pause(START_AGAIN)

    def _did(self, result: Any, error: BaseException | None) -> None:
        self.busy -= 1
        if error is not None and not isinstance(error, (StoreError, CrawlerError)):
            self.world.failure = self.world.failure or error
        self.world.note(f"operator: {error or result}")
        self.world.effects["operator failed" if error else "operator done"] += 1

    def open(self) -> StoreWriter:
        """The store as an operator's command opens it."""
        return open_to_write(Path(ROOT + self.operator.name))

    def start(self, machine: Machine, workers: int) -> None:
        """`crawler run`."""
        self.runs.append(Run(self, machine, workers))
        self.world.note(f"start {self.runs[-1].id} on {machine.name}")

    @property
    def running(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs if not run.is_gone]

    def is_at_rest(self) -> bool:
        """Whether no machine and no operator does anything; asked after each step."""
        for run in reversed(self.runs):  # the last ones are still there
            if run.ended is None and not run.process.is_dead:
                return False
        return not self.busy

    def is_incomplete(self) -> bool:
        """Whether the frontier lacks something, and says so: then a run rehydrates before it ends."""
        folder = self.disk.find("frontier")
        names = set(folder.entries) if folder else set()
        is_marked = any(f"frontier/{name}".startswith((rehydrate.MARK, LOSS)) for name in names)
        folders, made = shards_in(names)
        return is_marked or not made <= folders
