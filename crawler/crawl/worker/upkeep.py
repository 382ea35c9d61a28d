"""A worker's housekeeping: flush, inbox, pulse, fair share, and when to end."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from crawler import settings as config
from crawler.crawl.logs import log
from crawler.crawl.scoreboard import ROOM, TOLD, Scoreboard
from crawler.crawl.worker import pauses
from crawler.crawl.worker.desk import LIMIT, MARKED_DEAD, OVER, RETRY, STOPPED, Desk, Stopped
from crawler.crawl.worker.pauses import Want
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.fleet.control import PAUSE, STOP
from crawler.fleet.heartbeats import ALL, read_counters
from crawler.frontier.scope import Seeds
from crawler.settings import Settings
from crawler.store.writer import StoreWriter

LEISURE = 1.0  # seconds that a page waits for others to be flushed with while all workers are busy
QUICK = 0.2  # the same while one is idle, and between looks for what a neighbour has left
ENDING = 0.05  # seconds between looks, and between beats, when the end is near
STEP = 0.02  # seconds between two thoughts of whether something is due
SELDOM = 4  # looks at the other workers for one into all inboxes
TIDY = 5.0
GRACE = 5.0  # seconds that a worker which is told to stop waits for a store that is away or full


class House(Desk):
    """A desk and all that goes on behind it: one thread keeps house, another shows the pulse."""

    def __init__(
        self, store: StoreWriter, settings: Settings, seeds: Seeds, scoreboard: Scoreboard, row: int, machine: str
    ) -> None:
        super().__init__(store, settings, seeds, scoreboard, row, machine)
        self._leaving: set[int] = set()
        self._looked = self._listened = self._next_measure = 0.0
        self._heard = 0
        self._next_tidy = time.monotonic() + TIDY
        self._looks = 0
        self._vouched, self._thorough = -1, False
        self._parent = os.getppid()
        self._edition = 0  # of the settings that our supervisor hands out

    # ---- the housekeeper

    def keep(self) -> None:
        """Keep house until the end, then leave it in good order."""
        try:
            self.retry_until_store_answers(self.seeds.refresh)
            self.retry_until_store_answers(self._count_elsewhere)
            self.retry_until_store_answers(self.shards.beat, self.counters(), "")
            self._heed()
            self.retry_until_store_answers(self._look_for_room)
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
                self._bear(error)
            except StoreError as error:
                self.fail(error)
        self.closed = True
        heartbeat.join(self.settings.dead_after)
        if self.outcome != MARKED_DEAD:
            self._leave()

    def _round(self) -> None:
        if os.getppid() != self._parent:
            os._exit(1)  # our supervisor is gone; where the kernel does not see to it, we do
        if self.scoreboard.edition != self._edition:
            self._adopt()
        self._flush_if_due()
        now = time.monotonic()
        if now - self._looked > self._wait_before_look() and not self.outcome:
            self._look()
            self._looked = time.monotonic()
        self._listen(now)
        self.frontier.read_on()
        if now >= self._next_tidy:
            done = self._tidy()
            self._next_tidy = time.monotonic() + TIDY if done else 0.0
        self._go_on()
        self._full.wait(STEP)

    def _adopt(self) -> None:
        """Go by the settings that our supervisor hands out: crawl.yaml was edited."""
        handed = self.scoreboard.handed_out()
        if handed is None:
            return
        edition, text = handed
        self.settings = Settings(**config.parse(text, "crawl.yaml"))
        self.seeds.adopt(self.settings)
        self.frontier.adopt(self.settings)
        self.survey.adopt(self.settings)
        self._count_elsewhere()
        self._edition = edition

    def _wait_before_look(self) -> float:
        """Idle workers look more often when all are idle, because then the end is near."""
        if not self._is_idle():
            return self.settings.heartbeat
        return ENDING if self._near_the_end() else self.settings.heartbeat

    def _listen(self, now: float) -> None:
        """If little waits, look at once for what another worker of this machine has left, perhaps for us."""
        sent = self.scoreboard.total("sent") - self.scoreboard.get(self.row, "sent")
        is_hungry = self.table.waiting < 2 * self.threads
        if sent != self._heard and is_hungry and now - self._listened > QUICK and not self.outcome:
            self._heard, self._listened = sent, now
            self.frontier.read_inboxes(sorted(self.frontier.owned)[:1], fresh=True)

    def _flush_if_due(self) -> None:
        lot = QUICK if self.shards.any_idle() else LEISURE
        old = time.monotonic() - self._first_done > lot
        # Where nothing else is known, the links of the page that waits are all that there may be to do.
        last = bool(self._done) and self.table.waiting <= len(self._done)
        if self._full.is_set() or last or self.outcome or self.scoreboard.draining or (old and self._is_unflushed()):
            self.flush()

    def _look(self) -> None:
        """Look into the inboxes and at the other workers."""
        beat = self.shards.heartbeat.beat
        idle = self._is_idle()
        thorough = idle and self.shards.all_idle()
        self._read_inboxes(idle, thorough)
        self._balance()
        if idle and self._is_idle():
            self._vouched, self._thorough = beat, thorough

    def _read_inboxes(self, idle: bool, thorough: bool) -> None:
        """Others leave what is for us in our first shard's folder: the rest is looked into now and then.

        When all are idle, each look is into all of them, for it decides on the end.
        """
        self._looks += 1
        shards = sorted(self.frontier.owned)
        self.frontier.read_inboxes(shards[:1], fresh=True)
        if thorough or self._looks % SELDOM == 0:
            self.frontier.read_inboxes(shards[1:], fresh=idle)

    def _balance(self) -> None:
        gained, unwanted = self.shards.balance(self.frontier.owned | self._leaving)
        if gained:
            self._gain(gained)
        new = set(unwanted) - self._leaving
        self.frontier.hold(new)
        self._leaving |= new
        self.frontier.inboxes = self.shards.inboxes
        if gained or new:
            log.info("shards: %d, +%d -%d", len(self.frontier.owned), len(gained), len(new))
        self._give_back({shard for shard in self._leaving if not self.table.in_flight(shard)})

    def _gain(self, gained: dict[int, bool]) -> None:
        """Shards are ours: know which hosts others have asked before any of their URLs can be taken."""
        inherited = [shard for shard, is_inherited in gained.items() if is_inherited]
        self.frontier.own(gained, inherited, self.store.past())
        if inherited:
            self._next_tidy = 0.0  # it is written anew at once

    def _give_back(self, shards: set[int]) -> None:
        if not shards:
            return
        self.flush()
        self._bring_nearer()
        self.sync_records()
        self.frontier.disown(shards, shards - self.shards.own_still(shards))
        for shard in shards:
            self.shards.release(shard)
        self._leaving -= shards

    def _tidy(self) -> bool:
        """Tidy all shards; False if there is more to do before, in a moment."""
        self.look_around()
        self.files.directories.close_kept()  # now and then: what a user has moved must not be held on to
        self.sync_records()
        self._count_elsewhere()
        return all(map(self.frontier.tidy, list(self.frontier.owned)))

    def _count_elsewhere(self) -> None:
        """With a page limit, the pages of other machines and of earlier runs count too."""
        if self.settings.max_pages is not None:
            found = read_counters(self.files)
            self._elsewhere = sum(worker.get("pages", 0) for worker in found if worker.get("machine") != self.machine)

    # ---- the pulse

    def _heartbeat(self) -> None:
        last = time.monotonic()
        while not self.closed:
            if time.monotonic() - last < self._rest_between_beats():
                time.sleep(STEP)
                continue
            last = time.monotonic()
            try:
                self._beat()
                self._look_for_room()
            except (StoreAway, DiskFull) as error:
                log.debug("no pulse: %s", error)
            except StoreError as error:
                self.fail(error)
            except Exception:  # noqa: BLE001 - without a pulse, this worker would neither work nor end
                log.exception("a fault of the program in the pulse", extra={"event": "fault"})

    def _rest_between_beats(self) -> float:
        """A beat that says idle also says that the inboxes were looked into since the last one: it waits for that."""
        if self.paused:
            return self.settings.heartbeat
        if self._vouched != self.shards.heartbeat.beat:
            return max(self.settings.heartbeat, self.settings.dead_after / 4 if self._is_idle() else 0.0)
        return ENDING if self._near_the_end() else self.settings.heartbeat

    def _near_the_end(self) -> bool:
        """Whether we have yet to say that we are idle, or all have."""
        if self.paused:
            return False
        return not self.shards.heartbeat.idle or self.shards.all_idle() or self._is_all_done_here()

    def _is_all_done_here(self) -> bool:
        """Whether nothing waits on this machine and no other is at work: nobody needs a pulse to tell us."""
        return self.shards.count_alive() == self.scoreboard.workers and not self.scoreboard.total("waiting")

    def _beat(self) -> None:
        arrivals = self.table.arrivals  # before we look whether we are idle: what comes now must not be counted as done
        vouched = self._vouched == self.shards.heartbeat.beat and self._is_idle()
        mark = f"{arrivals}{ALL if self._thorough else ''}" if vouched else ""
        if not self.shards.beat(self.counters(), mark):
            log.warning("this worker was silent for too long and was replaced; it begins anew")
            self.outcome = MARKED_DEAD
            return
        self._heed()
        if vouched and not self.paused and (self.shards.all_is_done() or self.shards.others_proved_the_end()):
            self.outcome = self.outcome or OVER

    def _heed(self) -> None:
        """Do what operators say: their words are names among the pulses (see `control`)."""
        self.paused = PAUSE in self.shards.orders
        self.scoreboard.set(self.row, "paused", int(self.paused))
        if self.machine + STOP in self.shards.orders:
            self.scoreboard.drain(TOLD)

    def _is_idle(self) -> bool:
        """Nothing unread, waiting, in flight, queued or unflushed."""
        return not (self.frontier.unread or self.table.waiting or self._leaving or self._is_unflushed())

    def _is_unflushed(self) -> bool:
        return bool(self._done or self.frontier.queued or self.table.nearer)

    # ---- trouble and the end

    def _look_for_room(self) -> None:
        """Stop asking while there is still room for pulses, batches and records."""
        if ROOM not in self._wants and time.monotonic() >= self._next_measure:
            self._next_measure = time.monotonic() + self.settings.heartbeat
            sentence = pauses.shortage(self.files, self.settings)
            if sentence:
                self.wait_for(Want(ROOM, sentence, self._has_room))

    def _go_on(self) -> None:
        """See what has come of that which we wait for; what a visitor still fails at has not."""
        for want in list(self._wants.values()):
            if time.monotonic() - want.seen > 2 * RETRY:
                want.seen = time.monotonic()
                if want.is_met():
                    self._wants.pop(want.kind)
                    self.scoreboard.want(self.row, want.kind, "")

    def _may_leave(self) -> bool:
        now = time.monotonic()
        if self.outcome is None and self.scoreboard.draining:
            self.outcome = STOPPED
        if self.outcome is None and self._limit_is_reached():
            self.outcome = LIMIT
        if self.error or self.outcome in (OVER, MARKED_DEAD):
            return True
        if self.outcome and any(want.stuck_since and now - want.stuck_since > GRACE for want in self._wants.values()):
            return True  # it does not come back, or has no room: what is in flight stays in the frontier
        return self.outcome is not None and not self.table.taken and not self._done

    def _limit_is_reached(self) -> bool:
        limit = self.settings.max_pages
        return limit is not None and self._elsewhere + self.scoreboard.total("pages") >= limit

    def _leave(self) -> None:
        """Flush, tidy, give every shard back and say goodbye; what fails here is done by whoever comes next."""
        with suppress(StoreError):
            self.flush()
        last = self.counters(afresh=True)
        mine = self.frontier.owned | self._leaving
        try:
            self._give_back(mine)
        except StoreError:  # no room to sort it, say: whoever has its folders next hands on what is not for them
            with suppress(StoreError):
                for shard in mine:
                    self.shards.release(shard)
        with suppress(StoreError):
            self.shards.sign_off({**last, "shards": 0})
