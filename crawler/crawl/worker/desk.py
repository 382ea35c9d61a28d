"""What a worker's request slots share: the tasks they take, the results they leave, and the flush of these."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import DESCRIPTORS, PAUSES, SPACE, STORE_AWAY, Scoreboard
from crawler.crawl.worker import pauses
from crawler.crawl.worker.counters import Minutes, RecentRate
from crawler.crawl.worker.pauses import Pause
from crawler.errors import DiskFull, NoDescriptors, StoreAway, StoreError
from crawler.fleet.shards import Shards
from crawler.frontier.batches import in_parts, to_lines
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task
from crawler.frontier.waiting import PAUSE, TURN, Survey
from crawler.settings import Settings
from crawler.store.mount import Draft
from crawler.store.records import depth_of, to_json, utc
from crawler.store.writer import StoreWriter
from crawler.web import reasons
from crawler.web.page import Failure

MAX_SEED_WARNINGS = 5  # failures of seeds that are logged as warnings before the first page
COUNTED = ("pages", "redirects", "sitemaps", "retries", "bytes", *reasons.KINDS)
FLUSH_PARTS = 8  # parts of a flush that are written or synced concurrently; more parts cost more than they gain
STORE_RETRY_INTERVAL = 0.5  # seconds
OVER, STOPPED, LIMIT, MARKED_DEAD = "over", "stopped", "limit", "marked dead"  # outcomes of a worker

Args = ParamSpec("Args")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Stopped(Exception):
    """The worker ends or may have been replaced before this task was done; the task stays in the frontier."""


@dataclass(frozen=True, slots=True)
class Done:
    """A page whose html is stored and whose links are queued; only its record is missing."""

    task: Task
    record: dict[str, Any]
    bytes: int


class Desk:
    """The shared state of a worker: request slots take tasks and leave results, upkeep flushes them."""

    def __init__(
        self, store: StoreWriter, settings: Settings, seeds: Seeds, scoreboard: Scoreboard, row: int, machine: str
    ) -> None:
        self.store, self.files, self.settings, self.seeds = store, store.files, settings, seeds
        self.scoreboard, self.row, self.machine, self.threads = scoreboard, row, machine, scoreboard.threads
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="flush")
        self.frontier = Frontier(self.files, settings, self._map_in_parts, seeds.refresh)
        self.table = self.frontier.table
        self.shards = Shards(self.files, settings, scoreboard.workers)
        self.frontier.is_sure = self.shards.is_sure
        self.closed = self.paused = False
        self.outcome: str | None = None
        self.error: StoreError | None = None
        self.fault: Exception | None = None  # of a request slot, to be raised where the machine sees it
        self._descriptors = pauses.files_for(scoreboard.threads)
        self.files.directories.max_kept = pauses.folders_for(scoreboard.threads)
        self._taking = threading.Lock()  # held while checking whether a task may be taken, and taking it
        lock = threading.RLock()  # never held over a query of the table, except by the slot that watches the clock
        self._work, self._clock = threading.Condition(lock), threading.Condition(lock)
        self._wakeups = self._sleeping = 0  # wakeups so far, and request slots that wait for one
        self._clock_watched = False
        self._full = threading.Event()  # as many pages wait for their record as there are request slots
        self._done_lock = threading.Lock()
        self._done: list[Done] = []
        self._first_done = 0.0
        self._counters: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._base = {name: scoreboard.get(row, name) for name in COUNTED}
        self._elsewhere = 0  # pages of other machines and earlier runs, when there is a limit
        self._seed_warnings = 0
        self._unsynced: set[str] = set()
        self._pauses: dict[str, Pause] = {}
        for kind in PAUSES:
            scoreboard.set_pause(row, kind, "")  # left by a worker that died in this row
        self.release_descriptors: Callable[[], None] = lambda: None  # closes connections kept open for reuse
        self.check_cpu: Callable[[], None] = lambda: None  # moves this process off a contended core
        self._was_sure = True
        self._born = time.time()
        self._rate, self._minutes = RecentRate(time.monotonic()), Minutes(time.monotonic())
        self.survey = Survey(self.table, settings)

    def take(self, slot: int) -> tuple[Task, Host] | None:
        """1. Return the next task of a due host, or None after a short wait."""
        wakeups = self._wakeups
        with self._taking:
            must_wait = self.paused or self._must_wait()
            taken = None if must_wait else self.frontier.take()
            self._show_in_flight()
        if taken is None:
            self._wait_for_work(must_wait, wakeups)
            return None
        if self._sleeping:
            self._wake_one()  # there may be more
        task = taken[0]
        self.scoreboard.set_in_flight(self.row, slot, to_lines([task]).decode().strip())
        return taken

    def _wait_for_work(self, must_wait: bool, wakeups: int) -> None:
        """Let one slot wait until the next host is due; the others sleep until they are woken."""
        with self._work:
            if self._wakeups != wakeups:
                return
            if must_wait or self._clock_watched:
                self._sleeping += 1
                self._work.wait(0.2)
                self._sleeping -= 1
                return
            self._clock_watched = True
            self._clock.wait(min(0.2, max(self.frontier.next_due(), 0.001)))
            self._clock_watched = False

    def _wake_one(self) -> None:
        """Wake one sleeping slot; if it finds a task, it wakes the next."""
        with self._work:
            self._wakeups += 1
            self._work.notify()

    def _must_wait(self) -> bool:
        """Whether no task may be taken now; at most two tasks per slot are in flight, because a kill repeats those."""
        if self.outcome or self._pauses or not self._is_sure() or self.scoreboard.draining:
            return True
        return self.table.taken >= 2 * self.threads or self._limit_is_near()

    def _is_sure(self) -> bool:
        """Whether nobody can have declared us dead yet; a hanging mount raises no error, so it is logged here."""
        sure = self.shards.is_sure()
        if not sure and self._was_sure:
            half = self.settings.dead_after / 2
            log.warning("pausing: no heartbeat could be written for %.0f s; does the mount hang?", half)
        elif sure and not self._was_sure:
            log.warning("resuming: heartbeats can be written again")
        self._was_sure = sure
        return sure

    def check_ownership(self) -> None:
        """Raise Stopped if the mount has hung since a task was taken: another worker may own its host by now."""
        if not self.shards.is_sure():
            raise Stopped

    def _limit_is_near(self) -> bool:
        """Announce one more page before counting, so that two workers that check concurrently see each other."""
        if self.settings.max_pages is None:
            return False
        self.scoreboard.set(self.row, "in_flight", self.table.taken + 1)
        return (
            self._elsewhere + self.scoreboard.total("pages") + self.scoreboard.total("in_flight")
            > self.settings.max_pages
        )

    def _show_in_flight(self) -> None:
        self.scoreboard.set(self.row, "in_flight", self.table.taken)

    def finished(self, slot: int) -> None:
        """Note that a request slot is free."""
        self.scoreboard.set_in_flight(self.row, slot, "")
        if self._clock_watched:
            with self._work:
                self._clock.notify()  # its host has a new due time

    def done(self, done: Done) -> None:
        """7. Queue a page for its record."""
        with self._done_lock:
            self._first_done = self._first_done or time.monotonic()
            self._done.append(done)
            if len(self._done) >= self.threads:
                self._full.set()

    def retry_later(self, task: Task, failure: Failure) -> None:
        """Hand a task over to be retried when it is due."""
        self.frontier.hand_over([task])
        self.count("retries")
        self._log_failure(task, failure, "retry", "will retry", attempt=task.attempt)

    def drop(self, task: Task) -> None:
        """Remove a robots or retry task that is done; it leaves no record."""
        self.table.mark_done([task], kept=False, links=False)

    def skip(self, task: Task) -> None:
        """Remove a task that the settings now exclude; a rehydration brings it back if they change again."""
        self.table.skip(task)
        log.info("skipped: %s", task.name, extra={"event": "skipped", "url": task.name})

    def put_failure(self, task: Task, failure: Failure) -> None:
        """Write a failure record: the URL is done, and has no page."""
        self.retry_until_store_answers(self.store.put_failure, task.name, failure, task.attempt + 1, task.depth)
        with self.table.lock:
            self._unsynced.add(f"errs/{task.host}")
            self._failures[failure.reason] += 1
        self.table.mark_done([task], kept=False, links=False)
        kind = reasons.kind(failure.reason)
        self.count(kind)
        self._log_failure(task, failure, kind, kind)

    def retry(self, task: Task, failure: dict[str, Any] | None) -> None:
        """Remove the failure record that a retry task names and queue its URL; the task stays until that is done."""
        name = task.subject
        if self.retry_until_store_answers(self.store.drop_failure, name) and failure:
            with self.table.lock:
                self._failures[str(failure.get("reason"))] -= 1
        if self.retry_until_store_answers(self.store.record, name) is None:
            self.frontier.retry(Task.named(name, task.depth, via=task.via))
        self.drop(task)

    def _log_failure(self, task: Task, failure: Failure, event: str, prefix: str, **fields: Any) -> None:
        """Log a failed request: as a warning if it is one of the first seeds and no page was stored yet."""
        is_warning = not (task.depth or self._counters["pages"] or self._seed_warnings >= MAX_SEED_WARNINGS)
        self._seed_warnings += is_warning
        fields |= {"event": event, "url": task.name, "reason": failure.reason, "detail": failure.detail}
        level = logging.WARNING if is_warning else logging.INFO
        log.log(level, "%s: %s (%s %s)", prefix, task.name, failure.reason, failure.detail, extra=fields)

    def retry_until_store_answers(
        self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Call until the store answers; raise Stopped if the worker ends meanwhile."""
        while True:
            try:
                return call(*args, **kwargs)
            except (StoreAway, DiskFull) as error:
                self._pause_for(error)
                if self.closed or self.scoreboard.draining:
                    raise Stopped from error

    def _pause_for(self, error: StoreAway | DiskFull) -> None:
        """Pause requests because of a store error, and wait a little."""
        if isinstance(error, DiskFull):
            pause = Pause(SPACE, f"{error}; waiting for space", self._has_space)
        elif isinstance(error, NoDescriptors):
            pause = Pause(DESCRIPTORS, str(error), self._can_open)
        else:
            pause = Pause(STORE_AWAY, str(error), self.store.exists)
        pause.blocked_since = time.monotonic()
        self.pause(pause)
        time.sleep(STORE_RETRY_INTERVAL)

    def pause(self, pause: Pause) -> None:
        """Send no requests until this pause is over; the supervisor logs it once for all its workers."""
        with self._work:
            known = self._pauses.setdefault(pause.kind, pause)
            known.checked = pause.checked
            known.blocked_since = known.blocked_since or pause.blocked_since
            self.scoreboard.set_pause(self.row, pause.kind, known.reason)

    def _has_space(self) -> bool:
        """Whether there is space again: by the free counts, with some to spare, and by a write that succeeds."""
        return not pauses.shortage(self.files, self.settings, pauses.RESUME_FACTOR) and self.files.has_room()

    def _can_open(self) -> bool:
        """Whether all request slots could open the files that they need, at the same time."""
        self.release_descriptors()
        self.files.directories.close_kept()
        return pauses.can_open(self._descriptors)

    def check_descriptors(self) -> None:
        """Pause and raise Stopped if this process is out of file descriptors: then the page is not to blame.

        Other slots may have closed some since the failure, so enough for all slots must be free.
        """
        if not pauses.can_open(self._descriptors):
            reason = "too many open files to send requests; raise `ulimit -n`, or lower --concurrency"
            self.pause(Pause(DESCRIPTORS, reason, self._can_open))
            raise Stopped

    def fail(self, error: StoreError) -> None:
        """End this worker because of an error of the store that does not pass."""
        self.error = self.error or error
        self.outcome = self.outcome or STOPPED

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter on the scoreboard."""
        with self.table.lock:
            self._counters[name] += more
            self.scoreboard.set(self.row, name, self._base[name] + self._counters[name])

    # ---- for upkeep

    def flush(self) -> None:
        """6 and 7 for a group of pages: hand over their links, sync, then publish the records."""
        with self._done_lock:
            done, self._done, self._first_done = self._done, [], 0.0
            self._full.clear()
        drafts: list[Draft] = []
        try:
            self._update_depths()
            self._map_in_parts(lambda item: drafts.append(self._draft_record(item)), done)
            self.frontier.flush({f"htmls/{item.task.host}" for item in done if item.record["sha224"]})
            self._map_in_parts(self.files.publish, drafts)
        except StoreError:
            for draft in drafts:
                self.files.discard(draft)
            with self._done_lock:
                self._done = done + self._done
            raise
        self.scoreboard.set(self.row, "sent", self.frontier.sent)
        self._mark_done(done)
        if done:
            self.shards.local_lock.note(self.counters())
        with self._taking:  # else it could hide a page that a slot has just announced there
            self._show_in_flight()
        self._wake_one()
        with self._work:
            self._clock.notify()

    def _map_in_parts(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call for each item, a few concurrently, because each operation on a mount has latency."""
        items = list(items)
        parts = in_parts(items, -(-len(items) // FLUSH_PARTS) or 1)
        return [result for some in self._pool.map(lambda part: list(map(call, part)), parts) for result in some]

    def _draft_record(self, item: Done) -> Draft:
        return self.store.draft_record(item.task.name, to_json(item.record))

    def _mark_done(self, done: list[Done]) -> None:
        with self.table.lock:
            self._unsynced.update(f"links/{item.task.host}" for item in done)
        pages = [item for item in done if item.record["sha224"]]
        others = [item for item in done if not item.record["sha224"]]
        sitemaps = sum(bool(item.record.get("sitemap")) for item in others)
        self.count("pages", len(pages))
        self.count("bytes", sum(item.bytes for item in pages))
        self.count("sitemaps", sitemaps)
        self.count("redirects", len(others) - sitemaps)
        self.table.mark_done([item.task for item in pages], kept=True)
        self.table.mark_done([item.task for item in others], kept=False)
        for item in done if log.isEnabledFor(logging.DEBUG) else ():
            url, status = item.task.name, item.record["status"]
            facts = {"event": "page", "url": url, "status": status, "links": len(item.record["links"])}
            log.debug("%s %s", status, url, extra=facts)

    def _update_depths(self) -> None:
        """With a depth limit, hand over again the links of pages that turned out to be nearer to a seed."""
        while self.table.nearer:
            task, batch = self.table.nearer[0]
            record = self.store.record(task.name)
            if record is not None and depth_of(record) > task.depth:
                record["depth"] = task.depth
                self.frontier.hand_over(self.seeds.follow(record))
                self.frontier.flush()
                self.store.put_record(task.name, to_json(record))
            self.table.drop_nearer(batch)

    def sync_records(self) -> None:
        """Sync new records and failure records: a batch may be removed only after those of its URLs are on disk."""
        with self.table.lock:
            unsynced, self._unsynced = self._unsynced, set()
        try:
            self.files.sync(unsynced, self._map_in_parts)
        except StoreError:
            with self.table.lock:
                self._unsynced |= unsynced
            raise

    def counters(self, afresh: bool = False) -> dict[str, Any]:
        """Return this worker's counters and state, for `workers/`."""
        with self.table.lock:
            failures, pages = dict(self._failures), self._counters["pages"]
            rate = self._rate.note(pages, time.monotonic())
            minutes = self._minutes.note((pages, self.table.waiting), time.monotonic())
        survey = self.survey.facts(next(iter(self._pauses), PAUSE if self.paused else TURN), afresh)
        self.scoreboard.set(self.row, "waiting", self.table.waiting)
        self.scoreboard.set(self.row, "hosts", survey["hosts"])
        return {
            "id": self.files.me,
            "machine": self.machine,
            "name": platform.node(),
            "pid": os.getpid(),
            "started": utc(self._born),
            "when": utc(time.time()),
            **{name: self._counters[name] for name in ("pages", "redirects", "sitemaps", "retries", "bytes")},
            "reasons": failures,
            "rate": rate,
            "waiting": self.table.waiting,
            "in_flight": self.table.taken,
            "skipped": self.table.skipped,
            "traps": dict(self.seeds.skipped),
            "shards": len(self.frontier.owned),
            "blocked": {kind: pause.reason for kind, pause in list(self._pauses.items())},
            "ignored_settings": self.scoreboard.ignored_settings,
            "minutes": minutes,
            **survey,
        }
