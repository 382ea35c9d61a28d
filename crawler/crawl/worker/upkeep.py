"""A worker's upkeep: flushes, inboxes, heartbeat, its share of the shards, and when to end."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import OPERATOR_STOP, SPACE, Scoreboard
from crawler.crawl.worker import pauses
from crawler.crawl.worker.desk import LIMIT, MARKED_DEAD, OVER, STOPPED, STORE_RETRY_INTERVAL, Desk, Stopped
from crawler.crawl.worker.pauses import Pause
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.fleet.control import PAUSE, STOP
from crawler.fleet.heartbeats import ALL, read_counters
from crawler.frontier.scope import Seeds
from crawler.settings import Settings, parse
from crawler.store.writer import StoreWriter

FLUSH_INTERVAL = 1.0  # seconds that a page waits to be flushed with others while all workers are busy
IDLE_FLUSH_INTERVAL = 0.2  # the same while a worker is idle; also between checks for batches from this machine
END_INTERVAL = 0.05  # seconds between polls, and between heartbeats, when the end is near
ROUND_INTERVAL = 0.02  # seconds
FULL_POLL_EVERY = 4  # polls of our first inbox for one of all inboxes
TIDY_INTERVAL = 5.0  # seconds
STOP_TIMEOUT = 5.0  # seconds that a stopping worker waits for a store that is away or full


class Upkeep(Desk):
    """A Desk and its background work: one thread runs the rounds, another the heartbeat."""

    def __init__(
        self, store: StoreWriter, settings: Settings, seeds: Seeds, scoreboard: Scoreboard, row: int, machine: str
    ) -> None:
        super().__init__(store, settings, seeds, scoreboard, row, machine)
        self._releasing: set[int] = set()
        self._polled = self._neighbours_polled = self._next_space_check = 0.0
        self._sent_seen = 0
        self._next_tidy = time.monotonic() + TIDY_INTERVAL
        self._polls = 0
        self._polled_idle_at, self._polled_all = -1, False  # heartbeat of the last idle poll; was it of all inboxes
        self._parent = os.getppid()
        self._edition = 0  # of the settings that the supervisor publishes

    # ---- the rounds

    def run(self) -> None:
        """Run until the end of this worker, then hand everything back."""
        try:
            self.retry_until_store_answers(self.seeds.refresh)
            self.retry_until_store_answers(self._count_elsewhere)
            self.retry_until_store_answers(self.shards.beat, self.counters(), "")
            self._obey_operator()
            self.retry_until_store_answers(self._check_space)
        except Stopped:
            self.closed = True
            return
        heartbeat = threading.Thread(target=self._heartbeat, daemon=True, name="heartbeat")
        heartbeat.start()
        while not self._may_leave():
            if self.fault:
                raise self.fault
            try:
                self._round()
            except (StoreAway, DiskFull) as error:
                self._pause_for(error)
            except StoreError as error:
                self.fail(error)
        self.closed = True
        heartbeat.join(self.settings.dead_after)
        if self.outcome != MARKED_DEAD:
            self._leave()

    def _round(self) -> None:
        if os.getppid() != self._parent:
            os._exit(1)  # the supervisor is gone, and the kernel has not killed us
        if self.scoreboard.edition != self._edition:
            self._apply_settings()
        self._flush_if_due()
        now = time.monotonic()
        if now - self._polled > self._poll_interval() and not self.outcome:
            self._poll()
            self._polled = time.monotonic()
        self._poll_neighbours(now)
        self.frontier.read_on()
        if now >= self._next_tidy:
            done = self._tidy()
            self._next_tidy = time.monotonic() + TIDY_INTERVAL if done else 0.0
        self._end_pauses()
        self._full.wait(ROUND_INTERVAL)

    def _apply_settings(self) -> None:
        """Apply the settings that the supervisor publishes after an edit of crawl.yaml."""
        published = self.scoreboard.published_settings()
        if published is None:
            return
        edition, text = published
        self.settings = Settings(**parse(text, "crawl.yaml"))
        self.seeds.adopt(self.settings)
        self.frontier.adopt(self.settings)
        self.survey.adopt(self.settings)
        self._count_elsewhere()
        self._edition = edition

    def _poll_interval(self) -> float:
        """Return the seconds between polls; idle workers poll more often when all are idle, because the end is near."""
        if not self._is_idle():
            return self.settings.heartbeat
        return END_INTERVAL if self._near_the_end() else self.settings.heartbeat

    def _poll_neighbours(self, now: float) -> None:
        """If few tasks wait, read our inbox at once after another worker of this machine has handed tasks over."""
        sent = self.scoreboard.total("sent") - self.scoreboard.get(self.row, "sent")
        is_due = now - self._neighbours_polled > IDLE_FLUSH_INTERVAL and not self.outcome
        if sent != self._sent_seen and is_due and self.table.waiting < 2 * self.threads:
            self._sent_seen, self._neighbours_polled = sent, now
            self.frontier.read_inboxes(sorted(self.frontier.owned)[:1], fresh=True)

    def _flush_if_due(self) -> None:
        interval = IDLE_FLUSH_INTERVAL if self.shards.any_idle() else FLUSH_INTERVAL
        old = time.monotonic() - self._first_done > interval
        # If nothing else waits, the links of these pages may be all there is to do.
        last = bool(self._done) and self.table.waiting <= len(self._done)
        if self._full.is_set() or last or self.outcome or self.scoreboard.draining or (old and self._is_unflushed()):
            self.flush()

    def _poll(self) -> None:
        """Read the inboxes, and take or release shards."""
        beat = self.shards.heartbeat.beat
        idle = self._is_idle()
        thorough = idle and self.shards.all_idle()
        self._read_inboxes(idle, thorough)
        self._balance()
        if idle and self._is_idle():
            self._polled_idle_at, self._polled_all = beat, thorough

    def _read_inboxes(self, idle: bool, thorough: bool) -> None:
        """Read our first shard's inbox, which others write to; the rest only now and then.

        When all workers are idle, each poll reads all of them, because it decides whether the crawl is over.
        """
        self._polls += 1
        shards = sorted(self.frontier.owned)
        self.frontier.read_inboxes(shards[:1], fresh=True)
        if thorough or self._polls % FULL_POLL_EVERY == 0:
            self.frontier.read_inboxes(shards[1:], fresh=idle)

    def _balance(self) -> None:
        gained, unwanted = self.shards.balance(self.frontier.owned | self._releasing)
        if gained:
            self._acquire(gained)
        new = set(unwanted) - self._releasing
        self.frontier.hold(new)
        self._releasing |= new
        self.frontier.inboxes = self.shards.inboxes
        if gained or new:
            log.info("shards: %d, +%d -%d", len(self.frontier.owned), len(gained), len(new))
        self._release({shard for shard in self._releasing if not self.table.in_flight(shard)})

    def _acquire(self, gained: dict[int, bool]) -> None:
        """Own these shards; hosts that others have requested are known before any of their URLs can be taken."""
        inherited = [shard for shard, is_inherited in gained.items() if is_inherited]
        self.frontier.own(gained, inherited, self.store.past())
        if inherited:
            self._next_tidy = 0.0  # write what we inherited to batches of our own at once

    def _release(self, shards: set[int]) -> None:
        if not shards:
            return
        self.flush()
        self._update_depths()
        self.sync_records()
        self.frontier.disown(shards, shards - self.shards.own_still(shards))
        for shard in shards:
            self.shards.release(shard)
        self._releasing -= shards

    def _tidy(self) -> bool:
        """Tidy all shards; False if there is more to read first."""
        self.check_cpu()
        self.files.directories.close_kept()  # regularly: a user may have moved a folder that we keep open
        self.sync_records()
        self._count_elsewhere()
        return all(map(self.frontier.tidy, list(self.frontier.owned)))

    def _count_elsewhere(self) -> None:
        """With max_pages, count the pages of other machines and of earlier runs too."""
        if self.settings.max_pages is not None:
            found = read_counters(self.files)
            self._elsewhere = sum(worker.get("pages", 0) for worker in found if worker.get("machine") != self.machine)

    # ---- the heartbeat

    def _heartbeat(self) -> None:
        last = time.monotonic()
        while not self.closed:
            if time.monotonic() - last < self._beat_interval():
                time.sleep(ROUND_INTERVAL)
                continue
            last = time.monotonic()
            try:
                self._beat()
                self._check_space()
            except (StoreAway, DiskFull) as error:
                log.debug("heartbeat not written: %s", error)
            except StoreError as error:
                self.fail(error)
            except Exception:  # noqa: BLE001 - without a heartbeat, this worker would neither work nor end
                log.exception("bug in the crawler: the heartbeat failed", extra={"event": "fault"})

    def _beat_interval(self) -> float:
        """Return the seconds between heartbeats; one that says idle also says that we polled since the last one."""
        if self.paused:
            return self.settings.heartbeat
        if self._polled_idle_at != self.shards.heartbeat.beat:
            return max(self.settings.heartbeat, self.settings.dead_after / 4 if self._is_idle() else 0.0)
        return END_INTERVAL if self._near_the_end() else self.settings.heartbeat

    def _near_the_end(self) -> bool:
        """Whether our next heartbeat is the first to say idle, or all workers are idle."""
        if self.paused:
            return False
        return not self.shards.heartbeat.idle or self.shards.all_idle() or self._is_all_done_here()

    def _is_all_done_here(self) -> bool:
        """Whether nothing waits on this machine and no other runs: then no heartbeat of others is needed."""
        return self.shards.count_alive() == self.scoreboard.workers and not self.scoreboard.total("waiting")

    def _beat(self) -> None:
        arrivals = self.table.arrivals  # before the idle check: tasks that arrive after it must not count as done
        is_idle = self._polled_idle_at == self.shards.heartbeat.beat and self._is_idle()
        mark = f"{arrivals}{ALL if self._polled_all else ''}" if is_idle else ""
        if not self.shards.beat(self.counters(), mark):
            log.warning("this worker showed no heartbeat for too long and was declared dead; restarting it")
            self.outcome = MARKED_DEAD
            return
        self._obey_operator()
        if is_idle and not self.paused and (self.shards.all_is_done() or self.shards.others_proved_the_end()):
            self.outcome = self.outcome or OVER

    def _obey_operator(self) -> None:
        """Pause or stop if an operator says so; their commands are names among the heartbeats (see `fleet.control`)."""
        self.paused = PAUSE in self.shards.orders
        self.scoreboard.set(self.row, "paused", int(self.paused))
        if self.machine + STOP in self.shards.orders:
            self.scoreboard.drain(OPERATOR_STOP)

    def _is_idle(self) -> bool:
        """Nothing unread, waiting, in flight, queued or unflushed."""
        return not (self.frontier.unread or self.table.waiting or self._releasing or self._is_unflushed())

    def _is_unflushed(self) -> bool:
        return bool(self._done or self.frontier.queued or self.table.nearer)

    # ---- pauses and the end

    def _check_space(self) -> None:
        """Pause while there is still space for heartbeats, batches and records."""
        if SPACE not in self._pauses and time.monotonic() >= self._next_space_check:
            self._next_space_check = time.monotonic() + self.settings.heartbeat
            reason = pauses.shortage(self.files, self.settings)
            if reason:
                self.pause(Pause(SPACE, reason, self._has_space))

    def _end_pauses(self) -> None:
        """End the pauses that are over; one that a request slot ran into just now is not."""
        for pause in list(self._pauses.values()):
            if time.monotonic() - pause.checked > 2 * STORE_RETRY_INTERVAL:
                pause.checked = time.monotonic()
                if pause.is_over():
                    self._pauses.pop(pause.kind)
                    self.scoreboard.set_pause(self.row, pause.kind, "")

    def _may_leave(self) -> bool:
        now = time.monotonic()
        if self.outcome is None and self.scoreboard.draining:
            self.outcome = STOPPED
        if self.outcome is None and self._limit_is_reached():
            self.outcome = LIMIT
        if self.error or self.outcome in (OVER, MARKED_DEAD):
            return True
        blocked = [pause.blocked_since for pause in self._pauses.values() if pause.blocked_since]
        if self.outcome and blocked and now - min(blocked) > STOP_TIMEOUT:
            return True  # the store does not recover: what is in flight stays in the frontier
        return self.outcome is not None and not self.table.taken and not self._done

    def _limit_is_reached(self) -> bool:
        limit = self.settings.max_pages
        return limit is not None and self._elsewhere + self.scoreboard.total("pages") >= limit

    def _leave(self) -> None:
        """Flush, release all shards and write the last heartbeat; what fails here is done by the next owners."""
        with suppress(StoreError):
            self.flush()
        last = self.counters(afresh=True)
        mine = self.frontier.owned | self._releasing
        try:
            self._release(mine)
        except StoreError:  # no space, say: the next owners hand on what is not for them
            with suppress(StoreError):
                for shard in mine:
                    self.shards.release(shard)
        with suppress(StoreError):
            self.shards.sign_off({**last, "shards": 0})
