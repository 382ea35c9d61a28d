"""One machine: a supervisor with a pool of workers. It shows progress, hands signals on, and replaces the dead."""

from __future__ import annotations

import ctypes
import logging
import re
import resource
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TypeVar

from crawler import errors
from crawler import settings as config
from crawler.crawl import child
from crawler.crawl.cpu import Core
from crawler.crawl.logs import Logs, log
from crawler.crawl.progress import Progress
from crawler.crawl.reload import Edits, Verdict
from crawler.crawl.scoreboard import AWAY, FILES, ROOM, WANTS, Scoreboard
from crawler.crawl.worker import desk, pauses
from crawler.crawl.worker.upkeep import House
from crawler.errors import CrawlerError, StoreAway, StoreError, UsageError
from crawler.frontier.frontier import Frontier, from_lines
from crawler.frontier.scope import Seeds
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.web.page import Failure

BLAME = 4  # at which a page that dying workers had in hand is refused
CRASHED = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
CRASHES = 5  # of one worker's place in a minute, until the machine gives up
M_ARENA_MAX, ARENAS = -8, 2  # heaps of glibc's malloc: with one for each visitor a worker took half as much again
BACK = {
    AWAY: "the store is back",
    ROOM: "going on: there is room in the store again",
    FILES: "going on: files can be opened again",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What one machine does: may differ from machine to machine."""

    root: Path
    workers: int
    threads: int
    time_limit: float | None = None
    quiet: bool = False
    logs: Logs = field(default_factory=Logs)
    id: str = field(default_factory=lambda: secrets.token_hex(4))


class Machine:
    """`crawler run`, once the store is there: workers until the crawl is over, or a reason to end before."""

    def __init__(self, plan: Plan, settings: Settings) -> None:
        self.plan = plan
        self.settings = settings
        self.id = plan.id
        self.scoreboard = Scoreboard(child.CONTEXT, plan.workers, plan.threads)
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._work: dict[Future[str], int] = {}
        self._outcomes: Counter[str] = Counter()
        self._processes: dict[int, BaseProcess] = {}
        self._blamed: Counter[str] = Counter()
        self._ooms = oom_kills()
        self._crashes: dict[int, list[float]] = {}
        self._error: CrawlerError | None = None
        self._signals = 0
        self._out_of_time = self._told = self._paused = False
        self._wanting: dict[str, float] = {}  # what workers wait for, since when
        self._began = time.monotonic()

    def run(self) -> int:
        """Run to the end; the exit code."""
        # They stay ours: a second Ctrl-C that comes when all is done must not spoil the exit code.
        for number in child.SIGNALS:
            signal.signal(number, self._on_signal)
        progress = Progress(self.scoreboard, self.plan.quiet)
        try:
            for row in range(self.plan.workers):
                self._start(row)
            # In a thread of its own, because a mount may hang.
            edits = Edits(Files(self.plan.root, self.id), self.settings)
            threading.Thread(target=edits.watch, args=(self._heed,), daemon=True, name="edits").start()
            while self._work and self._signals < 2:
                self._watch()
                self._pass_on()
                progress.show()
                if self._signals:
                    progress.announce_the_end()
        finally:
            progress.close()
            self._end()
        if self._error:
            raise self._error
        return self._exit_code()

    def _start(self, row: int) -> None:
        pool = self._pools[row] = child.make_pool(be_a_worker, self.scoreboard, self.plan.logs)
        self._work[child.submit(pool, work, str(self.plan.root), row, self.id, self.settings)] = row
        (self._processes[row],) = pool._processes.values()

    def _watch(self) -> None:
        """Wait a moment, and see to the workers that have ended."""
        limits = [limit for limit in (self.plan.time_limit, self.settings.time_limit) if limit is not None]
        if limits and time.monotonic() - self._began > min(limits):
            self._out_of_time = True
            self.scoreboard.drain()
        ended, _ = wait(self._work, timeout=0.2)
        for future in ended:
            row = self._work.pop(future)
            try:
                outcome = future.result()
            except BrokenProcessPool:
                self._on_worker_death(row)
                outcome = desk.MARKED_DEAD
            except CrawlerError as error:
                self._error = self._error or error
                self.scoreboard.drain()
                outcome = desk.STOPPED
            except Exception:  # noqa: BLE001 - a fault of ours in one worker must not end the machine
                log.exception("a fault of the program in a worker, which is replaced", extra={"event": "fault"})
                self._processes[row].kill()
                self._on_worker_death(row, fault=True)
                outcome = desk.MARKED_DEAD
            self._pools.pop(row).shutdown()
            if outcome == desk.MARKED_DEAD and not self.scoreboard.draining:
                self._start(row)
            else:
                self._outcomes[outcome] += 1

    def _heed(self, verdict: Verdict) -> None:
        """Go by an edit of crawl.yaml, and say so once for all workers."""
        if verdict.taken:
            self.settings = verdict.settings
            self.scoreboard.hand_out(config.render(verdict.settings))
            log.warning(verdict.taken, extra={"event": "edit"})
        self.scoreboard.note_unheeded(verdict.warning)
        if verdict.warning:
            log.warning(verdict.warning, extra={"event": "edit"})

    def _pass_on(self) -> None:
        """Say once for the machine what its workers have heard from an operator."""
        if self.scoreboard.told and not self._told:
            self._told = True
            log.warning("told to stop; finishing what is in flight", extra={"event": "told"})
        paused = bool(self.scoreboard.total("paused"))
        if paused != self._paused:
            self._paused = paused
            said = f"paused: no host is asked until `crawler resume {self.plan.root}`" if paused else "going on"
            log.warning(said, extra={"event": "paused" if paused else "resumed"})
        for kind in WANTS:
            self._pass_on_want(kind, self.scoreboard.wanted(kind))

    def _pass_on_want(self, kind: str, sentence: str) -> None:
        if sentence and kind not in self._wanting:
            self._wanting[kind] = time.monotonic()
            log.warning("pausing: %s", sentence, extra={"event": kind})
        elif not sentence and kind in self._wanting:
            seconds = time.monotonic() - self._wanting.pop(kind)
            log.warning("%s after %.0f s", BACK[kind], seconds, extra={"event": "back"})

    def _on_worker_death(self, row: int, fault: bool = False) -> None:
        """A worker has died: what it had in hand is asked once more, each at its own time, but not for ever.

        A page that crashes two workers, or makes two run out of memory, is refused. A kill from outside looks much
        the same, and may hit the same page twice by chance: that counts half.
        """
        suspects = self.scoreboard.in_flight(row)
        blame = self._blame(row)
        log.warning("a worker died with %d pages in hand and is replaced", len(suspects), extra={"event": "death"})
        for thread in range(self.plan.threads):
            self.scoreboard.set_in_flight(row, thread, "")
        self._count_crash(row, fault)
        files = Files(self.plan.root, self.id, self.settings.durable)
        store, frontier = Store(self.plan.root, files), Frontier(files, self.settings)
        with suppress(StoreError):  # the dead worker's batches still hold all of it
            for place, task in enumerate(from_lines("\n".join(suspects).encode())):
                self._blamed[task.url] += blame
                if self._blamed[task.url] >= BLAME:
                    store.put_refusal(task.url, Failure(task.url, "worker-died"), task.attempt + 1, task.depth)
                else:
                    due = time.monotonic() + 2 * place
                    frontier.hand_over([task._replace(attempt=task.attempt + 1, due=due)])
            frontier.flush()

    def _blame(self, row: int) -> int:
        limit = time.monotonic() + 5
        while self._processes[row].exitcode is None and time.monotonic() < limit:
            time.sleep(0.01)  # the pool waits for it too, and may be the first to know
        ooms, self._ooms = self._ooms, oom_kills()
        return 2 if self._processes[row].exitcode in CRASHED or self._ooms > ooms else 1

    def _count_crash(self, row: int, fault: bool) -> None:
        """Give up where starting again does not help: the same fault again and again, or deaths before any page."""
        now = time.monotonic()
        recent = self._crashes[row] = [when for when in self._crashes.get(row, []) if now - when < 60] + [now]
        if len(recent) > CRASHES and (fault or not self.scoreboard.total("pages")):
            why = "the log has the traceback" if fault else "`dmesg` tells if memory was short"
            self._error = CrawlerError(f"workers died {len(recent)} times within a minute; {why}")
            self.scoreboard.drain()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C is impatience. A second SIGTERM is not: schedulers send it to a job and to each part of it.
        if number == signal.SIGINT or not self._signals:
            self._signals += 1
        self.scoreboard.drain()

    def _end(self) -> None:
        """Leave no process behind."""
        self.scoreboard.drain()
        for row, pool in self._pools.items():
            self._processes[row].kill()
            pool.shutdown()
        self._pools.clear()

    def _exit_code(self) -> int:
        if set(self._outcomes) == {desk.OVER}:
            return errors.OVER
        if self._signals or self.scoreboard.told or self._outcomes[desk.STOPPED]:
            return errors.LIMIT if self._out_of_time and not self._signals else errors.STOPPED
        return errors.LIMIT if self._outcomes[desk.LIMIT] or self._out_of_time else errors.OVER


_scoreboard: Scoreboard | None = None
Result = TypeVar("Result")


def be_a_worker(scoreboard: Scoreboard, logs: Logs) -> None:
    """Make a pool's process a worker."""
    global _scoreboard
    _scoreboard = scoreboard
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
    raise_limits()
    logs.begin()


def check_limits(threads: int) -> None:
    """Stop where workers could never open what their visitors need: they would wait for it without an end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = pauses.files_for(threads) + pauses.STANDING
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UsageError(
            f"a worker with {threads} threads may have to open {needed} files, but only {hard} are allowed; "
            "raise `ulimit -n`, or run with fewer --concurrency"
        )


def raise_limits() -> None:
    """Open as many files as we are allowed to: the softer limit is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not everywhere may the softer one be as high
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory since it started; 0 where it does not tell."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def patiently(call: Callable[[], Result]) -> Result:
    """Ask the store until it answers, or the machine is told to stop."""
    while True:
        try:
            return call()
        except StoreAway:
            if _scoreboard is None or _scoreboard.draining:
                raise
            time.sleep(0.5)


def work(root: str, row: int, machine: str, settings: Settings) -> str:
    """A worker's whole life; how it ended."""
    from crawler.crawl.worker.visit import (
        Worker,  # only here: what reads pages takes long to load, and the supervisor reads none
    )

    assert _scoreboard is not None
    files = Files(root, secrets.token_hex(4), settings.durable)
    store = Store(root, files)
    patiently(files.share_mode)
    seeds = Seeds(store, settings)
    core = Core(row, machine)  # before the worker has threads: they stay with the one that starts them
    house = House(store, settings, seeds, _scoreboard, row, machine)
    house.look_around = core.look
    Worker(store, house, seeds).run(_scoreboard.threads)
    if house.error:
        raise house.error
    log.log(logging.DEBUG, "worker %s: %s", files.me, house.outcome)
    return house.outcome or desk.STOPPED
