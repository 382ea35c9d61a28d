"""A worker's housekeeping: flush, inbox, pulse, fair share, and when to end; `take` to `done` are for its visitors."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from crawler import urls
from crawler.config import Settings
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.frontier import Frontier, all_of
from crawler.logs import log
from crawler.records import Failure, Try
from crawler.seeds import Seeds
from crawler.shards import Shards, read_counters
from crawler.slate import Slate
from crawler.store import Store, to_json, utc
from crawler.table import Host

FLUSH = 0.3  # seconds that a page waits for others to be flushed with
QUICK = 0.2  # seconds between looks and between beats when the end is near
TIDY = 5.0
GRACE = 5.0  # seconds that a worker which is told to stop waits for a store that is away
COMPLAINTS = 5  # failures of seeds that are shown while there is no page at all
OVER, STOPPED, LIMIT, BURIED = "over", "stopped", "limit", "buried"

Args = ParamSpec("Args")
Result = TypeVar("Result")


class Stopped(Exception):
    """The worker ends before this page could be kept: it stays in the frontier."""


@dataclass(frozen=True, slots=True)
class Done:
    """A page whose html is kept and whose links are queued: what is left is its record."""

    task: Try
    record: dict[str, Any]
    bytes: int


class House:
    """All that a worker's visitors share. One thread keeps it; another shows the pulse."""

    def __init__(self, store: Store, settings: Settings, seeds: Seeds, slate: Slate, row: int, machine: str) -> None:
        self.store, self.files, self.settings, self.seeds = store, store.files, settings, seeds
        self.slate, self.row, self.machine, self.threads = slate, row, machine, slate.threads
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="flush")
        self.frontier = Frontier(self.files, settings, self._pool.map, seeds.refresh)
        self.table = self.frontier.table
        self.shards = Shards(self.files, settings, slate.workers)
        self.closed = False
        self.outcome: str | None = None
        self.error: StoreError | None = None
        self.fault: Exception | None = None  # of a visitor, to be raised where the machine sees it
        lock = threading.RLock()
        self._news, self._clock = threading.Condition(lock), threading.Condition(lock)
        self._scouted = False
        self._done: list[Done] = []
        self._first_done = 0.0
        self._counters: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._base = {name: slate.get(row, name) for name in ("pages", "redirects", "refusals", "retries", "bytes")}
        self._elsewhere = 0  # pages of other machines and earlier runs, when there is a limit
        self._complaints = 0
        self._leaving: set[int] = set()
        self._unsynced: set[str] = set()
        self._looked = self._next_tidy = 0.0
        self._vouched = -1
        self._away_since: float | None = None
        self._born = time.time()
        self._parent = os.getppid()

    # ---- for the visitors

    def take(self, visitor: int) -> tuple[Try, Host] | None:
        """1. The next URL that is due, or None after a short wait."""
        with self._news:
            must_wait = self._must_wait()
            taken = None if must_wait else self.frontier.take()
            self._show_flying()
            if taken is None:
                self._wait_for_news(must_wait)
                return None
            self._news.notify()  # there may be more
        task = taken[0]
        self.slate.fly(self.row, visitor, f"{task.depth}\t{task.attempt}\t{task.url}")
        return taken

    def _wait_for_news(self, must_wait: bool) -> None:
        """One visitor watches the clock for the next host that is due; the others sleep until they are called."""
        if must_wait or self._scouted:
            self._news.wait(0.2)
            return
        self._scouted = True
        self._clock.wait(min(0.2, max(self.frontier.next_due(), 0.001)))
        self._scouted = False

    def _must_wait(self) -> bool:
        """In flight is what is taken and not settled: never more than twice the visitors, or a kill would cost more."""
        if self.outcome or self._away_since or not self.shards.is_sure() or self.slate.draining:
            return True
        return self.table.taken >= 2 * self.threads or self._limit_is_near()

    def _limit_is_near(self) -> bool:
        """Announce one more page before counting, so that two workers who look at once both see both."""
        if self.settings.limit is None:
            return False
        self.slate.set(self.row, "flying", self.table.taken + 1)
        return self._elsewhere + self.slate.total("pages") + self.slate.total("flying") > self.settings.limit

    def _show_flying(self) -> None:
        self.slate.set(self.row, "flying", self.table.taken)

    def landed(self, visitor: int) -> None:
        """A visitor has nothing in hand."""
        self.slate.fly(self.row, visitor, "")
        with self._news:
            self._clock.notify()  # its host has a new time: the watch must be set again

    def done(self, done: Done) -> None:
        """7. A page waits for its record."""
        with self._news:
            self._first_done = self._first_done or time.monotonic()
            self._done.append(done)

    def again(self, task: Try, failure: Failure) -> None:
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

    def refuse(self, task: Try, failure: Failure) -> None:
        """A URL is refused for good."""
        self.insist(self.store.put_refusal, task.url, failure, task.attempt + 1)
        with self.table.lock:
            self._unsynced.add(f"errs/{urls.host(task.url)}")
            self._refusals[failure.reason] += 1
        self.table.settle(task, kept=False, links=False)
        self.count("refusals")
        facts = {"event": "refusal", "url": task.url, "reason": failure.reason, "detail": failure.detail}
        log.log(self._loudness(task), "refused: %s (%s %s)", task.url, failure.reason, failure.detail, extra=facts)

    def _loudness(self, task: Try) -> int:
        """A seed that fails while there is no page at all is worth a word to somebody who waits."""
        if task.depth or self._counters["pages"] or self._complaints >= COMPLAINTS:
            return logging.INFO
        self._complaints += 1
        return logging.WARNING

    def insist(self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        """Ask the store until it answers: a mount that is away is never the fault of a page."""
        while True:
            try:
                return call(*args, **kwargs)
            except StoreAway as error:
                self._pause(error)
                if self.closed or self.slate.draining:
                    raise Stopped from error

    def fail(self, error: StoreError) -> None:
        """The store cannot go on: end, and say why."""
        self.error = self.error or error
        self.outcome = self.outcome or STOPPED

    def count(self, name: str, more: int = 1) -> None:
        """Add to a counter that the supervisor sees."""
        with self.table.lock:
            self._counters[name] += more
            self.slate.set(self.row, name, self._base[name] + self._counters[name])

    # ---- the housekeeper

    def keep(self) -> None:
        """Keep house until the end, then leave it in good order."""
        try:
            self.insist(self.seeds.refresh)
            self.insist(self._count_elsewhere)
            self.insist(self.shards.beat, self.counters(), None)
        except Stopped:
            self.closed = True
            return
        pulse = threading.Thread(target=self._pulse, daemon=True, name="pulse")
        pulse.start()
        while not self._may_leave():
            if self.fault:
                raise self.fault
            try:
                self._round()
            except StoreAway as error:
                self._pause(error)
            except StoreError as error:
                self.fail(error)
        self.closed = True
        pulse.join(self.settings.patience)
        if self.outcome != BURIED:
            self._leave()

    def _round(self) -> None:
        if os.getppid() != self._parent:
            os._exit(1)  # our supervisor is gone; where the kernel does not see to it, we do
        self._flush_if_due()
        now = time.monotonic()
        if now - self._looked > self._patience_to_look() and not self.outcome:
            self._look()
            self._looked = time.monotonic()
        if now >= self._next_tidy:
            self._tidy()
            self._next_tidy = time.monotonic() + TIDY
        self._back_again()
        with self._news:
            self._news.wait(0.05)

    def _patience_to_look(self) -> float:
        """Idle workers look more often when all are idle, because then the end is near."""
        if not self._is_idle():
            return self.settings.pulse
        return QUICK if self._near_the_end() else self.settings.pulse

    def _flush_if_due(self) -> None:
        with self._news:
            many, old = len(self._done) >= self.threads, time.monotonic() - self._first_done > FLUSH
        if many or self.outcome or self.slate.draining or (old and self._is_unflushed()):
            self.flush()

    def flush(self) -> None:
        """6 and 7 for a group of pages: links to their shards, all of it to the disk, then the records."""
        with self._news:
            done, self._done, self._first_done = self._done, [], 0.0
        try:
            self._bring_nearer()
            self.frontier.flush()
            folders = {f"htmls/{urls.host(item.task.url)}" for item in done if item.record["sha224"]}
            all_of(self._pool.map(self.files.settle, folders))
            all_of(self._pool.map(self._put_record, done))
        except StoreError:
            with self._news:
                self._done = done + self._done
            raise
        for item in done:
            self._settle(item)
        if done:
            self.shards.trace.note(self.counters())
        with self._news:
            self._show_flying()
            self._clock.notify_all()
            self._news.notify_all()

    def _put_record(self, item: Done) -> None:
        self.store.put_record(item.task.url, to_json(item.record))

    def _settle(self, item: Done) -> None:
        with self.table.lock:
            self._unsynced.add(f"links/{urls.host(item.task.url)}")
        if item.record["sha224"]:
            self.count("pages")
            self.count("bytes", item.bytes)
        else:
            self.count("redirects")
        self.table.settle(item.task, kept=bool(item.record["sha224"]))
        facts = {
            "event": "page",
            "url": item.task.url,
            "status": item.record["status"],
            "links": len(item.record["links"]),
        }
        log.debug("%s %s", item.record["status"], item.task.url, extra=facts)

    def _bring_nearer(self) -> None:
        """With a depth limit, a page that turns out to be nearer to a seed hands its links over again."""
        while self.table.nearer:
            task, batch = self.table.nearer[0]
            record = self.store.record(task.url)
            if record is not None and record.get("depth", 0) > task.depth:
                depth = task.depth + (record.get("sha224") is not None)
                if self.settings.depth is not None and depth <= self.settings.depth:
                    links = filter(self.seeds.scope.admits, record.get("links", ()))
                    self.frontier.hand_over(Try(link, depth) for link in links)
                    self.frontier.flush()
                self.store.put_record(task.url, to_json({**record, "depth": task.depth}))
            self.table.drop_nearer(batch)

    def _look(self) -> None:
        """Look into the inboxes and at the other workers."""
        beat = self.shards.pulse.beat
        idle = self._is_idle()
        for shard in list(self.frontier.owned):
            self.frontier.read_inbox(shard, fresh=idle)
        self._balance()
        if idle and self._is_idle():
            self._vouched = beat

    def _balance(self) -> None:
        gained, unwanted = self.shards.balance(self.frontier.owned | self._leaving)
        for shard in gained:
            self.frontier.own(shard)
        for shard in set(unwanted) - self._leaving:
            self.frontier.hold(shard)
            self._leaving.add(shard)
        if gained or unwanted:
            log.info("shards: %d, +%d -%d", len(self.frontier.owned), len(gained), len(unwanted))
        for shard in [shard for shard in self._leaving if not self.table.in_flight(shard)]:
            self._give_back(shard)

    def _give_back(self, shard: int) -> None:
        self._sync_records()
        if self.shards.owns(shard):
            with suppress(DiskFull):  # then it stays untidy, which is no loss
                self.frontier.tidy(shard, all_of_it=True)
        self.frontier.disown(shard)
        self.shards.release(shard)
        self._leaving.discard(shard)

    def _tidy(self) -> None:
        self._sync_records()
        for shard in list(self.frontier.owned):
            self.frontier.tidy(shard)
        self._count_elsewhere()

    def _count_elsewhere(self) -> None:
        """With a page limit, the pages of other machines and of earlier runs count too."""
        if self.settings.limit is not None:
            found = read_counters(self.files)
            self._elsewhere = sum(worker.get("pages", 0) for worker in found if worker.get("machine") != self.machine)

    def _sync_records(self) -> None:
        """A batch goes only after the receipts of its URLs are on the disk."""
        with self.table.lock:
            unsynced, self._unsynced = self._unsynced, set()
        try:
            all_of(self._pool.map(self.files.settle, unsynced))
        except StoreError:
            with self.table.lock:
                self._unsynced |= unsynced
            raise

    # ---- the pulse

    def _pulse(self) -> None:
        last = time.monotonic()
        while not self.closed:
            if time.monotonic() - last < self._rest_between_beats():
                time.sleep(0.05)
                continue
            last = time.monotonic()
            try:
                self._beat()
            except StoreAway as error:
                log.debug("no pulse: %s", error)
            except StoreError as error:
                self.fail(error)
            except Exception:  # noqa: BLE001 - without a pulse, this worker would neither work nor end
                log.exception("a fault of the program in the pulse", extra={"event": "fault"})

    def _rest_between_beats(self) -> float:
        """A beat that says idle also says that the inboxes were looked into since the last one: it waits for that."""
        if self._vouched != self.shards.pulse.beat:
            return max(self.settings.pulse, self.settings.patience / 4 if self._is_idle() else 0.0)
        return QUICK if self._near_the_end() else self.settings.pulse

    def _near_the_end(self) -> bool:
        """Whether we have yet to say that we are idle, or all have."""
        return not self.shards.pulse.idle or self.shards.all_idle()

    def _beat(self) -> None:
        vouched = self._vouched == self.shards.pulse.beat and self._is_idle()
        if not self.shards.beat(self.counters(), self.table.arrivals if vouched else None):
            log.warning("this worker was silent for too long and was replaced; it begins anew")
            self.outcome = BURIED
        elif vouched and self.shards.all_is_done():
            self.outcome = self.outcome or OVER

    def _is_idle(self) -> bool:
        """Nothing waiting, in flight, queued or unflushed."""
        return not (self.table.waiting or self._leaving or self._is_unflushed())

    def _is_unflushed(self) -> bool:
        return bool(self._done or self.frontier.queued or self.table.nearer)

    # ---- trouble and the end

    def _pause(self, error: StoreAway) -> None:
        """Wait a little for a mount that is away; nothing is asked meanwhile."""
        if self._away_since is None:
            self._away_since = time.monotonic()
            log.warning("pausing: %s", error, extra={"event": "away"})
        time.sleep(0.5)

    def _back_again(self) -> None:
        if self._away_since is not None and self.store.exists():
            log.warning("the store is back after %.0f s", time.monotonic() - self._away_since, extra={"event": "back"})
            self._away_since = None

    def _may_leave(self) -> bool:
        if self.outcome is None and self.slate.draining:
            self.outcome = STOPPED
        if self.outcome is None and self._limit_is_reached():
            self.outcome = LIMIT
        if self.error or self.outcome in (OVER, BURIED):
            return True
        if self.outcome and self._away_since and time.monotonic() - self._away_since > GRACE:
            return True  # the store does not come back: what is in flight stays in the frontier
        return self.outcome is not None and not self.table.taken and not self._done

    def _limit_is_reached(self) -> bool:
        limit = self.settings.limit
        return limit is not None and self._elsewhere + self.slate.total("pages") >= limit

    def _leave(self) -> None:
        """Flush, tidy, give every shard back and say goodbye; what fails here is done by whoever comes next."""
        with suppress(StoreError):
            self.flush()
        last = self.counters()
        for shard in [*self.frontier.owned, *self._leaving]:
            with suppress(StoreError):
                self._give_back(shard)
        with suppress(StoreError):
            self.shards.say_goodbye({**last, "shards": 0})

    def counters(self) -> dict[str, Any]:
        """What this worker has done and what it has before it, for `workers/`."""
        with self.table.lock:
            refusals = dict(self._refusals)
        self.slate.set(self.row, "waiting", self.table.waiting)
        self.slate.set(self.row, "hosts", self.table.hosts())
        return {
            "id": self.files.me,
            "machine": self.machine,
            "name": platform.node(),
            "pid": os.getpid(),
            "started": utc(self._born),
            "when": utc(time.time()),
            **{name: self._counters[name] for name in ("pages", "redirects", "retries", "bytes")},
            "refusals": refusals,
            "waiting": self.table.waiting,
            "flying": self.table.taken,
            "hosts": self.table.hosts(),
            "cut": self.table.cut,
            "shards": len(self.frontier.owned),
            "busiest": self.table.busiest(10),
        }
