"""What a worker's visitors share: where they take URLs and leave what came of them, and the flush behind it."""

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
from crawler.crawl.scoreboard import AWAY, FILES, ROOM, WANTS, Scoreboard
from crawler.crawl.worker import pauses
from crawler.crawl.worker.pauses import Want
from crawler.errors import DiskFull, NoDescriptors, StoreAway, StoreError
from crawler.fleet.members import Minutes, Rate
from crawler.fleet.shards import Shards
from crawler.frontier.frontier import Frontier, in_parts, to_lines
from crawler.frontier.scope import Seeds
from crawler.frontier.table import Host
from crawler.frontier.task import Task
from crawler.frontier.waiting import PAUSE, TURN, Survey
from crawler.settings import Settings
from crawler.store.mount import Draft
from crawler.store.records import depth_of, to_json, utc
from crawler.store.store import Store
from crawler.web import urls
from crawler.web.page import Failure
from crawler.web.reasons import KINDS
from crawler.web.reasons import kind as kind_of

COMPLAINTS = 5  # failures of seeds that are shown while there is no page at all
COUNTED = ("pages", "redirects", "sitemaps", *KINDS, "retries", "bytes")
AT_ONCE = 8  # files or folders that a flush writes or syncs at a time; more cost more to share out than they gain
RETRY = 0.5  # seconds until what the store could not do is tried again
OVER, STOPPED, LIMIT, MARKED_DEAD = "over", "stopped", "limit", "buried"  # how a worker ends

Args = ParamSpec("Args")
Result = TypeVar("Result")
Item = TypeVar("Item")


class Stopped(Exception):
    """The worker ends, or may have been replaced, before this page could be asked or kept: it stays in the frontier."""


@dataclass(frozen=True, slots=True)
class Done:
    """A page whose html is kept and whose links are queued: what is left is its record."""

    task: Task
    record: dict[str, Any]
    bytes: int


class Desk:
    """A worker's desk: visitors come to it from all sides, the housekeeper flushes it."""

    def __init__(
        self, store: Store, settings: Settings, seeds: Seeds, scoreboard: Scoreboard, row: int, machine: str
    ) -> None:
        self.store, self.files, self.settings, self.seeds = store, store.files, settings, seeds
        self.scoreboard, self.row, self.machine, self.threads = scoreboard, row, machine, scoreboard.threads
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="flush")
        self.frontier = Frontier(self.files, settings, self._share_out, seeds.refresh)
        self.table = self.frontier.table
        self.shards = Shards(self.files, settings, scoreboard.workers)
        self.frontier.is_sure = self.shards.is_sure
        self.closed = self.paused = False
        self.outcome: str | None = None
        self.error: StoreError | None = None
        self.fault: Exception | None = None  # of a visitor, to be raised where the machine sees it
        self._descriptors = pauses.files_for(scoreboard.threads)
        self.files.places.hold = pauses.places_for(scoreboard.threads)
        self._taking = threading.Lock()  # to look whether one may take, and to take
        lock = threading.RLock()  # only who watches the clock asks the table meanwhile: all visitors come by here
        self._news, self._clock = threading.Condition(lock), threading.Condition(lock)
        self._told = self._asleep = 0  # how often there was news, and how many visitors sleep until there is some
        self._scouted = False
        self._full = threading.Event()  # as many pages wait for their record as there are visitors
        self._settling = threading.Lock()
        self._done: list[Done] = []
        self._first_done = 0.0
        self._counters: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._base = {name: scoreboard.get(row, name) for name in COUNTED}
        self._elsewhere = 0  # pages of other machines and earlier runs, when there is a limit
        self._complaints = 0
        self._unsynced: set[str] = set()
        self._wants: dict[str, Want] = {}
        for kind in WANTS:
            scoreboard.want(row, kind, "")  # of a worker that died in this row
        self.let_go: Callable[[], None] = lambda: None  # closes what is open only to save time
        self.look_around: Callable[[], None] = lambda: None  # sees to where this process runs
        self._sure = True
        self._born = time.time()
        self._rate, self._minutes = Rate(time.monotonic()), Minutes(time.monotonic())
        self.survey = Survey(self.table, settings)

    def take(self, visitor: int) -> tuple[Task, Host] | None:
        """1. The next URL that is due, or None after a short wait."""
        told = self._told
        with self._taking:
            must_wait = self.paused or self._must_wait()
            taken = None if must_wait else self.frontier.take()
            self._show_in_flight()
        if taken is None:
            self._wait_for_news(must_wait, told)
            return None
        if self._asleep:
            self._tell()  # there may be more
        task = taken[0]
        self.scoreboard.set_in_flight(self.row, visitor, to_lines([task]).decode().strip())
        return taken

    def _wait_for_news(self, must_wait: bool, told: int) -> None:
        """One visitor watches the clock for the next host that is due; the others sleep until they are called."""
        with self._news:
            if self._told != told:
                return
            if must_wait or self._scouted:
                self._asleep += 1
                self._news.wait(0.2)
                self._asleep -= 1
                return
            self._scouted = True
            self._clock.wait(min(0.2, max(self.frontier.next_due(), 0.001)))
            self._scouted = False

    def _tell(self) -> None:
        """Call one visitor who sleeps: if it finds something, it calls the next."""
        with self._news:
            self._told += 1
            self._news.notify()

    def _must_wait(self) -> bool:
        """In flight is what is taken and not settled: never more than twice the visitors, or a kill would cost more."""
        if self.outcome or self._wants or not self._is_sure() or self.scoreboard.draining:
            return True
        return self.table.taken >= 2 * self.threads or self._limit_is_near()

    def _is_sure(self) -> bool:
        """Whether nobody can believe us dead yet; a mount that hangs is no error, so it is said here."""
        sure = self.shards.is_sure()
        if not sure and self._sure:
            half = self.settings.dead_after / 2
            log.warning("pausing: no sign of life could be given for %.0f s; is the mount hanging?", half)
        elif sure and not self._sure:
            log.warning("going on: the store takes signs of life again")
        self._sure = sure
        return sure

    def be_sure(self) -> None:
        """Go no further if the mount has hung since a URL was taken: others may own its host by now."""
        if not self.shards.is_sure():
            raise Stopped

    def _limit_is_near(self) -> bool:
        """Announce one more page before counting, so that two workers who look at once both see both."""
        if self.settings.max_pages is None:
            return False
        self.scoreboard.set(self.row, "in_flight", self.table.taken + 1)
        return (
            self._elsewhere + self.scoreboard.total("pages") + self.scoreboard.total("in_flight")
            > self.settings.max_pages
        )

    def _show_in_flight(self) -> None:
        self.scoreboard.set(self.row, "in_flight", self.table.taken)

    def finished(self, visitor: int) -> None:
        """A visitor has nothing in hand."""
        self.scoreboard.set_in_flight(self.row, visitor, "")
        if self._scouted:
            with self._news:
                self._clock.notify()  # its host has a new time: the watch must be set again

    def done(self, done: Done) -> None:
        """7. A page waits for its record."""
        with self._settling:
            self._first_done = self._first_done or time.monotonic()
            self._done.append(done)
            if len(self._done) >= self.threads:
                self._full.set()

    def again(self, task: Task, failure: Failure) -> None:
        """A URL will be asked again, later."""
        self.frontier.hand_over([task])
        self.count("retries")
        facts = {
            "event": "retry",
            "url": task.url,
            "reason": failure.reason,
            "detail": failure.detail,
            "attempt": task.attempt,
        }
        log.log(self._loudness(task), "again later: %s (%s %s)", task.url, failure.reason, failure.detail, extra=facts)

    def dismiss(self, task: Task) -> None:
        """A URL has brought what it was asked for, and leaves the frontier without a record: an errand."""
        self.table.settle([task], kept=False, links=False)

    def leave_out(self, task: Task) -> None:
        """A URL is not asked, as the settings are now; it leaves the frontier, and a rehydration brings it back."""
        self.table.leave_out(task.url)
        log.info("left out: %s", task.url, extra={"event": "skipped", "url": task.url})

    def refuse(self, task: Task, failure: Failure) -> None:
        """A URL is refused for good."""
        self.retry_until_store_answers(self.store.put_refusal, task.url, failure, task.attempt + 1, task.depth)
        with self.table.lock:
            self._unsynced.add(f"errs/{urls.host(task.url)}")
            self._reasons[failure.reason] += 1
        self.table.settle([task], kept=False, links=False)
        self.count(kind_of(failure.reason))
        facts = {"event": "failure", "url": task.url, "reason": failure.reason, "detail": failure.detail}
        log.log(self._loudness(task), "no page: %s (%s %s)", task.url, failure.reason, failure.detail, extra=facts)

    def ask_again(self, errand: Task, url: str, refusal: dict[str, Any] | None) -> None:
        """A refusal is taken back, and its URL waits again; the errand to do so is there until it does."""
        if self.retry_until_store_answers(self.store.take_back, url) and refusal:
            with self.table.lock:
                self._reasons[str(refusal.get("reason"))] -= 1
        if self.retry_until_store_answers(self.store.record, url) is None:
            self.frontier.ask_again(Task(url, errand.depth, via=errand.via))
        self.dismiss(errand)

    def _loudness(self, task: Task) -> int:
        """A seed that fails while there is no page at all is worth a word to somebody who waits."""
        if task.depth or self._counters["pages"] or self._complaints >= COMPLAINTS:
            return logging.INFO
        self._complaints += 1
        return logging.WARNING

    def retry_until_store_answers(
        self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Ask the store until it answers: a mount that is away is never the fault of a page."""
        while True:
            try:
                return call(*args, **kwargs)
            except (StoreAway, DiskFull) as error:
                self._bear(error)
                if self.closed or self.scoreboard.draining:
                    raise Stopped from error

    def _bear(self, error: StoreAway | DiskFull) -> None:
        """Wait a little for a mount that is away or full; nothing is asked meanwhile."""
        if isinstance(error, DiskFull):
            want = Want(ROOM, f"{error}; it goes on by itself", self._has_room)
        elif isinstance(error, NoDescriptors):
            want = Want(FILES, str(error), self._can_open)
        else:
            want = Want(AWAY, str(error), self.store.exists)
        want.stuck_since = time.monotonic()
        self.wait_for(want)
        time.sleep(RETRY)

    def wait_for(self, want: Want) -> None:
        """Ask no host until this is met; the supervisor says so, once for all its workers."""
        with self._news:
            known = self._wants.setdefault(want.kind, want)
            known.seen = want.seen
            known.stuck_since = known.stuck_since or want.stuck_since
            self.scoreboard.want(self.row, want.kind, known.sentence)

    def _has_room(self) -> bool:
        """Whether there is room again: by the numbers, with some to spare, and by a write that succeeds."""
        return not pauses.shortage(self.files, self.settings, pauses.MORE) and self.files.has_room()

    def _can_open(self) -> bool:
        """Whether all visitors could have what they need to ask, at once."""
        self.let_go()
        self.files.places.let_go()
        return pauses.can_open(self._descriptors)

    def check_descriptors(self) -> None:
        """Go no further if this process can open no files: then it is no fault of a page that it could not be had.

        Others may have closed some in the meantime, so more than one must be left.
        """
        if not pauses.can_open(self._descriptors):
            why = "too many files are open to ask anybody; raise `ulimit -n`, or run with fewer --concurrency"
            self.wait_for(Want(FILES, why, self._can_open))
            raise Stopped

    def fail(self, error: StoreError) -> None:
        """The store cannot go on: end, and say why."""
        self.error = self.error or error
        self.outcome = self.outcome or STOPPED

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter that the supervisor sees."""
        with self.table.lock:
            self._counters[name] += more
            self.scoreboard.set(self.row, name, self._base[name] + self._counters[name])

    # ---- for the housekeeper

    def flush(self) -> None:
        """6 and 7 for a group of pages: links to their shards, all of it to the disk, then the records' names."""
        with self._settling:
            done, self._done, self._first_done = self._done, [], 0.0
            self._full.clear()
        drafts: list[Draft] = []
        try:
            self._bring_nearer()
            self._share_out(lambda item: drafts.append(self._draft_record(item)), done)
            self.frontier.flush({f"htmls/{urls.host(item.task.url)}" for item in done if item.record["sha224"]})
            self._share_out(self.files.publish, drafts)
        except StoreError:
            for draft in drafts:
                self.files.discard(draft)
            with self._settling:
                self._done = done + self._done
            raise
        self.scoreboard.set(self.row, "sent", self.frontier.sent)
        self._settle(done)
        if done:
            self.shards.trace.note(self.counters())
        with self._taking:  # or it would hide the page that a visitor has just announced there
            self._show_in_flight()
        self._tell()
        with self._news:
            self._clock.notify()

    def _share_out(self, call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """Call for each item, some at a time: a mount answers a few requests in the time of one."""
        items = list(items)
        parts = in_parts(items, -(-len(items) // AT_ONCE) or 1)
        return [result for some in self._pool.map(lambda part: list(map(call, part)), parts) for result in some]

    def _draft_record(self, item: Done) -> Draft:
        return self.store.draft_record(item.task.url, to_json(item.record))

    def _settle(self, done: list[Done]) -> None:
        with self.table.lock:
            self._unsynced.update(f"links/{urls.host(item.task.url)}" for item in done)
        pages = [item for item in done if item.record["sha224"]]
        others = [item for item in done if not item.record["sha224"]]
        sitemaps = sum(bool(item.record.get("sitemap")) for item in others)
        self.count("pages", len(pages))
        self.count("bytes", sum(item.bytes for item in pages))
        self.count("sitemaps", sitemaps)
        self.count("redirects", len(others) - sitemaps)
        self.table.settle([item.task for item in pages], kept=True)
        self.table.settle([item.task for item in others], kept=False)
        for item in done if log.isEnabledFor(logging.DEBUG) else ():
            url, status = item.task.url, item.record["status"]
            facts = {"event": "page", "url": url, "status": status, "links": len(item.record["links"])}
            log.debug("%s %s", status, url, extra=facts)

    def _bring_nearer(self) -> None:
        """With a depth limit, a page that turns out to be nearer to a seed hands its links over again."""
        while self.table.nearer:
            task, batch = self.table.nearer[0]
            record = self.store.record(task.url)
            if record is not None and depth_of(record) > task.depth:
                record["depth"] = task.depth
                self.frontier.hand_over(self.seeds.follow(record))
                self.frontier.flush()
                self.store.put_record(task.url, to_json(record))
            self.table.drop_nearer(batch)

    def sync_records(self) -> None:
        """A batch goes only after the receipts of its URLs are on the disk."""
        with self.table.lock:
            unsynced, self._unsynced = self._unsynced, set()
        try:
            self.files.settle(unsynced, self._share_out)
        except StoreError:
            with self.table.lock:
                self._unsynced |= unsynced
            raise

    def counters(self, afresh: bool = False) -> dict[str, Any]:
        """What this worker has done and what it has before it, for `workers/`."""
        with self.table.lock:
            reasons, pages = dict(self._reasons), self._counters["pages"]
            rate = self._rate.note(pages, time.monotonic())
            minutes = self._minutes.note((pages, self.table.waiting), time.monotonic())
        survey = self.survey.facts(next(iter(self._wants), PAUSE if self.paused else TURN), afresh)
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
            "reasons": reasons,
            "rate": rate,
            "waiting": self.table.waiting,
            "in_flight": self.table.taken,
            "skipped": self.table.cut,
            "traps": dict(self.seeds.cut),
            "shards": len(self.frontier.owned),
            "blocked": {kind: want.sentence for kind, want in list(self._wants.items())},
            "ignored_settings": self.scoreboard.unheeded,
            "minutes": minutes,
            **survey,
        }
