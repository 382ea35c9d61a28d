"""A machine in the simulation: a supervisor with its workers, its heartbeats and its page budget."""

from __future__ import annotations

import asyncio
import ctypes
from functools import partial
from multiprocessing.sharedctypes import typecode_to_type
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.crawl.page_budget import PageBudget
from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.start import begin
from crawler.crawl.whole import make_whole
from crawler.crawl.worker.ending import LATER, LIMIT, OVER, REPLACED
from crawler.crawl.worker.heartbeat import ASK_SECONDS, HeartbeatThread, Report
from crawler.crawl.worker.worker import Worker
from crawler.errors import CrawlerError, StoreAway
from crawler.fetch.trust import Trust
from crawler.fleet import control
from crawler.frontier import rehydrate
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from simulation.memory import too_much
from simulation.system import ROOT
from simulation.web import PRIVATE, SECRET, SECRETS_OF, Client
from simulation.world import Machine, Process

if TYPE_CHECKING:
    from simulation.fleet import Fleet

TRUST = Trust(headers={f"https://{SECRETS_OF}": (SECRET,)}, private=frozenset({PRIVATE}))
SLOTS = 4  # requests that a worker may have open at once


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


class Budget(PageBudget):
    """The page budget in a thread of the simulation."""

    process: Process

    def start(self) -> None:
        self.process.world.thread(self.process, self._run, lambda result, error: None)

    def stop(self) -> None:
        self._stopped.set()


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
        """Run workers to their end, with their page budget; as `Machine.run` does."""
        board = self.scoreboard = Scoreboard(Context(), self.workers, SLOTS)  # type: ignore[arg-type]
        budget = Budget(Files(self.root, self.id), self.id, board, lambda: settings, self.machine.clock)
        budget.process = self.process
        if settings.max_pages is not None:
            budget.start()
        try:
            return await self._watch(settings, board)
        finally:
            budget.stop()

    async def _watch(self, settings: Settings, board: Scoreboard) -> str:
        """Start workers, and replace those that die."""
        self.outcomes.clear()
        for row in range(self.workers):
            self._start(row, settings)
        while len(self.outcomes) < self.workers or set(self.outcomes.values()) & {*REPLACED, "killed"}:
            await asyncio.sleep(0.2)
            self._check_memory()
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
        if LIMIT in outcomes:
            return LIMIT
        return OVER if outcomes == {OVER} else LATER if outcomes <= {OVER, LATER} else "stopped"

    def _check_memory(self) -> None:
        for worker in self.workers_made[-self.workers :] if self.fleet.is_small else ():
            if found := too_much(worker):
                self.fleet.checks.fail(f"a worker of {self.id} has {found} in memory")

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
                fleet.checks.over(process, not fleet.is_incomplete(), outcome == LATER)
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
