"""One machine: a supervisor that starts workers, shows progress, forwards signals and replaces dead workers."""

from __future__ import annotations

import re
import resource
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_for_processes
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from crawler import errors
from crawler.crawl import child, process
from crawler.crawl.handler import Handler
from crawler.crawl.logs import Logs, log
from crawler.crawl.page_budget import PageBudget
from crawler.crawl.progress import Progress
from crawler.crawl.reload import SettingsWatcher, Verdict
from crawler.crawl.resources import BASE_FILES, concurrency_for, files_for
from crawler.crawl.scoreboard import DESCRIPTORS, PAUSES, SPACE, STORE_AWAY, Scoreboard
from crawler.crawl.visit_planner import VisitPlanner
from crawler.crawl.watchdog import Watchdog, longest_silence
from crawler.crawl.worker import ending, schedule
from crawler.errors import CrawlerError, StoreError, UsageError
from crawler.fetch.trust import Trust
from crawler.fleet.local_lock import LocalLock
from crawler.frontier.batches import Outbox, from_lines
from crawler.frontier.task import REVISIT, Task
from crawler.settings.settings import Settings, render
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.terminal import many
from crawler.web.page import Failure

CONCURRENCY = 512  # requests open per worker, unless said
MAX_BLAME = 4  # a page with this much blame for dead workers gets a failure record
CHANCE_PAUSES = (0.0, 8.0, 64.0)  # seconds until a page with that much blame is retried, if it most likely had bad luck
CRASHED = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
FEW_SUSPECTS = 16
SUSPECT_SECONDS, SUSPECTS_SECONDS = 2.0, 60.0  # between the retries of two suspects, and for all of them at most
EXIT_SECONDS = 5.0  # for the process of a worker that has ended
MAX_CRASHES = 5  # per worker and minute, before the machine gives up
FIRST_LOOKUPS = 20  # of host names: if none of them succeeds and no host has answered, the machine is warned of
NO_LOOKUPS = (
    "warning: the first %d lookups of host names on this machine all failed: does its DNS work, and does its command "
    "have the same --connect-to and --proxy as those of the other machines? `crawler retry %s --reason dns` requests "
    "again what has failed by then"
)
RESUMED = {
    STORE_AWAY: "the store responds again",
    SPACE: "the store has space again",
    DESCRIPTORS: "files can be opened again",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of one machine; machines of a crawl may differ in them."""

    root: Path
    workers: int
    concurrency: int
    time_limit: float | None = None
    quiet: bool = False
    forever: bool = False
    logs: Logs = field(default_factory=Logs)
    id: str = field(default_factory=lambda: secrets.token_hex(4))
    region: str = ""
    trust: Trust = field(default_factory=Trust)  # given to workers by way of memory, never of the store
    handler: Handler | None = None  # of a Python program: called for each page


class Machine:
    """`crawler run` on a store that exists: runs workers until the crawl is over or something stops it."""

    def __init__(self, plan: Plan, settings: Settings, began: float | None = None) -> None:
        """`began` is when the machine started, if it was at work before (monotonic)."""
        self.plan = plan
        self.settings = settings
        self.id = plan.id
        self.scoreboard = Scoreboard(child.CONTEXT, plan.workers, plan.concurrency)
        self.scoreboard.forever = plan.forever
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._work: dict[Future[str], int] = {}
        self._outcomes: Counter[str] = Counter()
        self._processes: dict[int, BaseProcess] = {}
        self._watchdog = Watchdog(self.scoreboard, longest_silence(settings))
        self._hung: set[int] = set()  # rows of the workers that we have killed because they made no progress
        self._late: set[int] = set()  # likewise, because they did not end when they were to
        self._blamed: Counter[str] = Counter()
        self._ooms = oom_kills()
        self._crashes: dict[int, list[float]] = {}
        self._error: CrawlerError | None = None
        self._signals = 0
        self._out_of_time = self._stop_logged = self._paused = False
        self._is_lookup_judged = False  # whether names resolve on this machine
        self._pauses: dict[str, float] = {}  # kinds of pauses of our workers, since when
        self._began = time.monotonic() if began is None else began
        self._planner = VisitPlanner(StoreWriter(plan.root, Files(plan.root, self.id)))

    @property
    def elapsed(self) -> float:
        """Seconds since this machine started."""
        return time.monotonic() - self._began

    def run(self) -> int:
        """Run to the end and return the exit code."""
        # Not restored here: a second Ctrl-C after the end must not change the exit code of the command.
        child.on_signals(self._on_signal)
        progress = Progress(self.scoreboard, self.plan.quiet)
        budget = PageBudget(Files(self.plan.root, self.id), self.id, self.scoreboard, lambda: self.settings)
        ended = threading.Event()
        try:
            for row in range(self.plan.workers):
                self._start(row)
            # In its own thread, because a mount may hang.
            watcher = SettingsWatcher(Files(self.plan.root, self.id), self.settings)
            threading.Thread(target=watcher.watch, args=(self._apply, ended), daemon=True, name="settings").start()
            budget.start()
            self._planner.plan(self.settings)
            while self._work and self._signals < 2:
                self._watch()
                self._log_changes()
                progress.show()
                if self._signals:
                    progress.announce_stop()
        finally:
            progress.close()
            ended.set()
            self._planner.stop()
            self._end()
            budget.stop()
        if self._error:
            raise self._error
        return self._exit_code()

    def _start(self, row: int) -> None:
        self._watchdog.begin(row)
        self.scoreboard.set_id(row, "")
        pool = self._pools[row] = child.make_pool(process.init_worker, self.scoreboard, self.plan.logs)
        plan = self.plan
        given = (str(plan.root), row, plan.region, self.id, self.settings, plan.trust, plan.handler)
        self._work[child.submit(pool, process.work, *given)] = row
        (self._processes[row],) = pool._processes.values()

    def _watch(self) -> None:
        """Wait a moment, and handle workers that have ended."""
        limits = [limit for limit in (self.plan.time_limit, self.settings.time_limit) if limit is not None]
        if limits and self.elapsed > min(limits):
            self._out_of_time = True
            self.scoreboard.drain()
        ended, _ = wait(self._work, timeout=0.2)
        for future in ended:
            row = self._work.pop(future)
            outcome = self._outcome(row, future)
            self._close(row)
            if outcome in ending.REPLACED and not self.scoreboard.draining:
                self._start(row)
            else:
                self._outcomes[outcome] += 1
        for row in self._watchdog.look(set(self._work.values()) - self._hung):
            self._kill_hung(row)
        for row in self._watchdog.overdue(set(self._work.values()) - self._hung - self._late, self.settings):
            self._kill_late(row)

    def _outcome(self, row: int, ended: Future[str]) -> str:
        """Return the outcome of a worker that has ended."""
        try:
            outcome = ended.result()
        except BrokenProcessPool:
            if row in self._late:
                return ending.STOPPED
            self._on_worker_death(row)
            return ending.MARKED_DEAD
        except CrawlerError as error:
            self._error = self._error or error
            self.scoreboard.drain()
            return ending.STOPPED
        except Exception:  # noqa: BLE001 - a bug in one worker must not end the machine
            log.exception("bug in the crawler: a worker failed and is replaced", extra={"event": "fault"})
            self._processes[row].kill()
            self._on_worker_death(row, fault=True)
            return ending.MARKED_DEAD
        if outcome == ending.NO_HEARTBEAT:
            self._count_crash(row, fault=True)
        return outcome

    def _close(self, row: int) -> None:
        """End the process of a worker that has ended: a thread of it may hang, and would keep it for ever."""
        pool, process = self._pools.pop(row), self._processes[row]
        pool.shutdown(wait=False)
        if not wait_for_processes([process.sentinel], EXIT_SECONDS):
            process.kill()
        pool.shutdown()
        self._hung.discard(row)
        LocalLock.allow_heirs(self.scoreboard.id_of(row))

    def _kill_hung(self, row: int) -> None:
        """Kill a worker that makes no progress, also while it is to finish; `_on_worker_death` does the rest."""
        self._hung.add(row)
        seconds = self._watchdog.seconds
        pages = ", ".join(task.name for task in from_lines("\n".join(self.scoreboard.reading(row)).encode()))
        extra = {"event": "worker-hung", "seconds": round(seconds), "url": pages}
        log.warning("worker made no progress for %.0f s%s; killing it", seconds, pages and f" on {pages}", extra=extra)
        self._processes[row].kill()

    def _kill_late(self, row: int) -> None:
        """Kill a worker that does not end although it was told to: no page is to blame, and nothing is lost.

        A user's function is waited for, however long it takes.
        """
        if self.plan.handler:
            return
        self._late.add(row)
        in_flight = many(len(self.scoreboard.in_flight(row)), "open request")
        message = "a worker could not finish in time, because the store is slow or hangs; killing it (%s)"
        log.warning(f"{message}: what it had in flight is requested again", in_flight, extra={"event": "worker-late"})
        self._processes[row].kill()

    def _apply(self, verdict: Verdict) -> None:
        """Apply an edit of crawl.yaml, and log it once for all workers."""
        before, after = self.settings.recrawl, verdict.settings.recrawl
        is_replanned = repr(before) != repr(after)  # not by ==: the order of patterns counts
        if is_replanned and not self._planner.unschedule():
            return
        if verdict.applied:
            self.settings = verdict.settings
            self.scoreboard.publish_settings(render(verdict.settings))
            log.warning(verdict.applied, extra={"event": "settings"})
            if is_replanned:
                self._planner.plan(verdict.settings)
        self.scoreboard.set_ignored_settings(verdict.warning)
        if verdict.warning:
            log.warning(verdict.warning, extra={"event": "settings"})

    def _log_changes(self) -> None:
        """Log stops, pauses and resumes once per machine; the workers only note them on the scoreboard."""
        if self.scoreboard.stop_requested and not self._stop_logged:
            self._stop_logged = True
            log.warning("stopping: `crawler stop` was called; finishing the pages in flight", extra={"event": "stop"})
        paused = bool(self.scoreboard.total("paused"))
        if paused != self._paused:
            self._paused = paused
            message = f"paused: no requests until `crawler resume {self.plan.root}`" if paused else "resumed"
            log.warning(message, extra={"event": "paused" if paused else "resumed", "reason": "operator"})
        for kind in PAUSES:
            self._log_pause(kind, self.scoreboard.pause_reason(kind))
        self._warn_of_lookups()

    def _warn_of_lookups(self) -> None:
        """Warn once if no host name resolves: its URLs would fail one after the other, and nobody know why."""
        if not self._is_lookup_judged and self.scoreboard.total("unresolved") >= FIRST_LOOKUPS:
            self._is_lookup_judged = True
            if not self.scoreboard.total("answered"):
                log.warning(NO_LOOKUPS, FIRST_LOOKUPS, self.plan.root, extra={"event": "lookups"})

    def _log_pause(self, kind: str, reason: str) -> None:
        if reason and kind not in self._pauses:
            self._pauses[kind] = time.monotonic()
            log.warning("pausing: %s", reason, extra={"event": "paused", "reason": kind})
        elif not reason and kind in self._pauses:
            seconds = time.monotonic() - self._pauses.pop(kind)
            extra = {"event": "resumed", "reason": kind, "seconds": round(seconds, 1)}
            log.warning("resuming after %.0f s: %s", seconds, RESUMED[kind], extra=extra)

    def _on_worker_death(self, row: int, fault: bool = False) -> None:
        """Blame a page for a dead worker: the one that it was reading, or else all that it had in flight.

        A page that crashes two workers, makes two run out of memory, or two hang, gets a failure record. A kill from
        outside looks much the same and may hit the same page twice by chance, so it counts half, as does a crash with
        many suspects, and a hang in which no page was read (somebody has suspended the process, say). Suspects are
        retried, each at its own time, to tell them apart, and after growing pauses if none was read at a kill: who
        kills workers again and again would soon hit one page four times. All else waits in the worker's batches.
        """
        in_flight, reading = self.scoreboard.in_flight(row), self.scoreboard.reading(row)
        has_hung, suspects = row in self._hung, reading or in_flight
        has_crashed = self._has_crashed(row) or bool(has_hung and reading)
        if not has_crashed and len(suspects) > FEW_SUSPECTS:
            suspects = []  # most likely a kill from outside
        blame = 2 if has_crashed and len(suspects) <= FEW_SUSPECTS else 1
        extra = {"event": "worker-died", "in_flight": len(in_flight)}
        log.warning("worker died with %s in flight; replaced", many(len(in_flight), "page"), extra=extra)
        self.scoreboard.clear_tasks(row)
        self._count_crash(row, fault)
        how = f"the worker made no progress for {self._watchdog.seconds:.0f} s" if has_hung else ""
        is_chance = not (has_crashed or reading)
        with suppress(StoreError):  # the dead worker's batches still hold all of them
            self._blame([*from_lines("\n".join(suspects).encode())], blame, how, is_chance)

    def _blame(self, suspects: list[Task], blame: int, how: str, is_chance: bool) -> None:
        """Retry suspects, or write their failure records. The blame goes along: another machine may be next."""
        files = Files(self.plan.root, self.id, self.settings.durable)
        store, outbox = StoreWriter(self.plan.root, files), Outbox(files, self.settings)
        step = min(SUSPECT_SECONDS, SUSPECTS_SECONDS / max(len(suspects), 1))
        retried: list[Task] = []
        for number, task in enumerate(suspects):
            total = self._blamed[task.name] = max(self._blamed[task.name], task.blame) + blame
            if total >= MAX_BLAME:
                self._give_up(store, outbox, task, Failure(task.url, "worker-died", how))
            else:
                pause = CHANCE_PAUSES[total - 1] if is_chance else 0.0
                due = time.monotonic() + step * number + pause
                retried.append(task._replace(attempt=task.attempt + 1, due=due, blame=total))
        outbox.send(retried)

    def _give_up(self, store: StoreWriter, outbox: Outbox, task: Task, failure: Failure) -> None:
        if task.kind == REVISIT:
            schedule.give_up(store, outbox, self.settings, task, failure)
        else:
            store.put_failure(task.name, failure, task.attempt + 1, task.depth)

    def _has_crashed(self, row: int) -> bool:
        """Whether a dead worker crashed or ran out of memory, so that it was not killed from outside."""
        limit = time.monotonic() + 5
        while self._processes[row].exitcode is None and time.monotonic() < limit:
            time.sleep(0.01)  # the pool waits for it too, and may collect it first
        ooms, self._ooms = self._ooms, oom_kills()
        return self._processes[row].exitcode in CRASHED or self._ooms > ooms

    def _count_crash(self, row: int, fault: bool) -> None:
        """Give up where a restart does not help: the same bug again and again, or deaths before any page."""
        now = time.monotonic()
        recent = self._crashes[row] = [when for when in self._crashes.get(row, []) if now - when < 60] + [now]
        if len(recent) > MAX_CRASHES and (fault or not self.scoreboard.total("pages")):
            why = "the log has the traceback" if fault else "`dmesg` shows whether memory ran out"
            self._error = CrawlerError(f"workers died {len(recent)} times within a minute; {why}")
            self.scoreboard.drain()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C means now. A second SIGTERM does not: schedulers signal a job and each of its processes.
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

    @property
    def is_waiting(self) -> bool:
        """Whether the run ended because nothing is due within the hour."""
        return bool(self._outcomes[ending.LATER]) and set(self._outcomes) <= {ending.OVER, ending.LATER}

    def _exit_code(self) -> int:
        if set(self._outcomes) == {ending.OVER}:
            return errors.OVER
        if self.is_waiting:
            return errors.LIMIT
        if self._signals or self.scoreboard.stop_requested or self._outcomes[ending.STOPPED]:
            return errors.LIMIT if self._out_of_time and not self._signals else errors.STOPPED
        return errors.LIMIT if self._outcomes[ending.LIMIT] or self._out_of_time else errors.OVER


def allowed_concurrency(given: int | None) -> int:
    """Return the requests that a worker may have open: as many as given, or the default as far as files allow it.

    Fails early where the limit of open files is too low: workers would wait for descriptors forever.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = sys.maxsize if hard == resource.RLIM_INFINITY else concurrency_for(hard)
    if most >= (given or 1):
        return given or min(CONCURRENCY, most)
    needed = files_for(given or 1) + BASE_FILES
    raise UsageError(
        f"--concurrency {given or 1} may need {needed} open files per worker, but only {hard} are allowed; "
        "raise `ulimit -n`, or lower --concurrency"
    )


def oom_kills() -> int:
    """Return how many processes the kernel has killed for lack of memory since boot; 0 if unknown."""
    try:
        found = re.search(r"^oom_kill (\d+)$", Path("/proc/vmstat").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
