"""A worker's upkeep: flushes, inboxes, its share of the shards, tidying, and when to end.

One coroutine runs the rounds, so what changes the frontier's folders happens one thing after the other, while visits go
on between the steps.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import OPERATOR_STOP, Scoreboard
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.ending import LATER, LIMIT, OVER, REPLACED, STOPPED, Ending, Stopped
from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.in_flight import InFlight
from crawler.crawl.worker.limit import PageLimit
from crawler.crawl.worker.pauses import Pauses
from crawler.errors import DiskFull, StoreAway, StoreError
from crawler.fleet.control import PAUSE, STOP
from crawler.fleet.heartbeats import ALL
from crawler.fleet.heartbeats import LATER as LATER_MARK
from crawler.fleet.past import MAX_ENDED, merge_if_many
from crawler.fleet.shards import Shards, too_many_workers
from crawler.frontier.frontier import Frontier
from crawler.frontier.scope import Seeds
from crawler.frontier.waiting import PAUSE as OPERATOR_PAUSE
from crawler.frontier.waiting import TURN, Survey
from crawler.settings.settings import LiveSettings, Settings, longest_delay, parse
from crawler.store.clock import Clock
from crawler.store.mount import Io
from crawler.store.records import utc
from crawler.store.writer import StoreWriter

if TYPE_CHECKING:
    from crawler.crawl.worker.archive import Archive

FLUSH_INTERVAL = 1.0  # seconds that a page waits to be flushed with others while all workers are busy
IDLE_FLUSH_INTERVAL = 0.2  # the same while a worker is idle; also between checks for batches from this machine
END_INTERVAL = 0.05  # seconds between polls, and between heartbeats, when the end is near
QUICK_BEATS, MAX_DOUBLINGS = 20, 10  # heartbeats that come so soon after each other; then the time between them doubles
ROUND_INTERVAL = 0.02  # seconds
IDLE_ROUND_INTERVAL = 0.05  # the same while a worker is idle, and only looks for what others send
POLLED_AT_ONCE = 16  # other inboxes that are read with our first one, in turn
TIDY_INTERVAL = 5.0  # seconds
INDEX_INTERVAL = 60.0  # seconds between looks for WARC files that dead workers have left without an index
MERGE_INTERVAL = 600.0  # seconds between attempts to merge what workers that ended long ago have left
STOP_TIMEOUT = 5.0  # seconds that a stopping worker waits for a store that is away or full
FAR = 3600.0  # seconds: for what is due later than that, a run does not wait
FEW = 32  # waiting tasks: with fewer, batches from this machine are looked for at once


class Upkeep:
    """The background work of a worker."""

    def __init__(
        self,
        store: StoreWriter,
        frontier: Frontier,
        seeds: Seeds,
        shards: Shards,
        flush: Flush,
        in_flight: InFlight,
        pauses: Pauses,
        counters: Counters,
        limit: PageLimit,
        survey: Survey,
        ending: Ending,
        settings: LiveSettings,
        scoreboard: Scoreboard,
        row: int,
        machine: str,
        clock: Clock,
        io: Io,
        check_cpu: Callable[[], None] = lambda: None,
        archive: Archive | None = None,
    ) -> None:
        """`check_cpu` moves this process off a contended core."""
        self._archive = archive
        self._indexing: asyncio.Task[None] | None = None
        self._merging: asyncio.Task[None] | None = None
        self._next_indexing = self._next_merge = 0.0
        self._store, self._files, self._frontier, self._table = store, store.files, frontier, frontier.table
        self._seeds, self._shards, self._flush, self._in_flight = seeds, shards, flush, in_flight
        self._pauses, self._counters, self._limit, self._survey = pauses, counters, limit, survey
        self._ending, self._settings, self._clock, self._io = ending, settings, clock, io
        self._scoreboard, self._row, self._machine, self._check_cpu = scoreboard, row, machine, check_cpu
        self._releasing: set[int] = set()
        self._polled = self._neighbours_polled = 0.0
        self._next_tidy = clock.monotonic() + TIDY_INTERVAL
        self._sent_seen = self._next_polled = 0
        self._warned_of_shards = False  # that there are more workers than shards
        # The heartbeats at which the last poll that found us idle began, and the last one of all our inboxes.
        self._polled_idle_at = self._polled_all_at = -1
        self._far_beat = 0  # the last heartbeat at which the end was not near
        self._parent = os.getppid()
        self._edition = 0  # of the settings that the supervisor publishes
        self._born = clock.time()
        self._next_due: float | None = None  # wall-clock time of the next URL, if none is due within the hour
        self.forever = scoreboard.forever
        self._unflushed_since = 0.0
        self._warned: set[str] = set()  # limits that were reached

    # ---- the rounds

    async def begin(self) -> bool:
        """Read the seeds, show the first heartbeat and look for orders; False if the worker is to end at once."""
        call = self._pauses.until_store_answers
        try:
            await call(self._seeds.refresh)
            await call(self._shards.beat, self.report()[0], "")
            self.obey_operator()
            await self._check_space()
        except Stopped:
            self._ending.closed = True
            self._ending.end(STOPPED)
            return False
        return True

    async def _check_space(self) -> None:
        with suppress(StoreAway, DiskFull):  # the rounds will meet it again
            await self._pauses.check_space()

    async def run(self) -> None:
        """Run rounds until this worker ends; then nothing is in flight, unless the store does not recover."""
        while not self._may_leave():
            if self._in_flight.fault:
                raise self._in_flight.fault
            try:
                await self._round()
            except (StoreAway, DiskFull) as error:
                await self._pauses.wait_after(error)
            except StoreError as error:
                self._ending.fail(error)
            self._in_flight.fill_soon()

    async def _round(self) -> None:
        if os.getppid() != self._parent:
            os._exit(1)  # the supervisor is gone, and the kernel has not killed us
        if self._scoreboard.edition != self._edition:
            await self._apply_settings()
        await self._flush_if_due()
        self._look_ahead()
        if not self._ending.draining:
            await self._keep_shards()
        await self._pauses.check_space()
        await self._pauses.end_those_over()
        self._in_flight.fill_soon()
        await asyncio.sleep(self._round_interval())

    def _round_interval(self) -> float:
        """Return the seconds until the next round: none while there are batches to read."""
        if self._frontier.unread and not self._ending.draining:
            return 0.0
        return IDLE_ROUND_INTERVAL if self.is_idle() else ROUND_INTERVAL

    async def _keep_shards(self) -> None:
        """Read inboxes, take or release shards, tidy: what a worker that ends leaves to the next owners."""
        now = self._clock.monotonic()
        if now - self._polled > self._poll_interval():
            await self._poll()
            self._polled = self._clock.monotonic()
            self._in_flight.fill_soon()
        await self._poll_neighbours(now)
        await self._frontier.read_on()
        if now >= self._next_tidy:
            done = await self._tidy()
            self._next_tidy = self._clock.monotonic() + TIDY_INTERVAL if done else 0.0

    async def _apply_settings(self) -> None:
        """Apply the settings that the supervisor publishes after an edit of crawl.yaml."""
        published = self._scoreboard.published_settings()
        if published is None:
            return
        edition, text = published
        self._settings.now = Settings(**parse(text, "crawl.yaml"))
        self._seeds.adopt(self._settings.now)
        await self._frontier.adopt(self._settings.now)
        self._survey.adopt(self._settings.now)
        self._edition = edition

    def _poll_interval(self) -> float:
        """Return the seconds between polls; idle workers poll more often when all are idle, because the end is near."""
        heartbeat = self._settings.now.heartbeat
        return self._end_interval() if self.is_idle() and self._near_the_end() else heartbeat

    async def _poll_neighbours(self, now: float) -> None:
        """If few tasks wait, read our inbox at once after another worker of this machine has handed tasks over."""
        sent = self._scoreboard.total("sent") - self._scoreboard.get(self._row, "sent")
        is_due = now - self._neighbours_polled > IDLE_FLUSH_INTERVAL
        if sent != self._sent_seen and is_due and self._table.waiting - self._table.taken < FEW:
            self._sent_seen, self._neighbours_polled = sent, now
            await self._frontier.read_inboxes(sorted(self._frontier.owned)[:1], fresh=True)

    async def _flush_if_due(self) -> bool:
        """Flush if it is time for it, and tell whether it was."""
        if not self._flush.is_unflushed:
            return False
        now = self._clock.monotonic()
        self._unflushed_since = self._unflushed_since or now
        is_old = now - self._unflushed_since > (IDLE_FLUSH_INTERVAL if self._shards.any_idle() else FLUSH_INTERVAL)
        # If nothing else waits, what these pages link to may be all there is to do.
        is_all = self._table.waiting <= self._flush.count
        is_due = self._flush.has_group or is_old or is_all or self._ending.draining
        if is_due:
            await self.flush()
        return is_due

    async def flush(self, is_last: bool = False) -> None:
        """Flush, and tell the other workers of this machine; `is_last` before shards are given away."""
        had_results = self._flush.count > 0
        self._unflushed_since = 0.0
        await self._flush.flush(is_last)
        self._scoreboard.set(self._row, "sent", self._frontier.sent)
        if had_results:
            counters, _ = self.report()
            await self._io(self._shards.local_lock.note, counters)
        self._in_flight.fill_soon()

    async def _poll(self) -> None:
        """Read the inboxes, and take or release shards."""
        beat = self._shards.heartbeat.beat
        idle = self.is_idle()
        thorough = idle and self._shards.all_idle()
        await self._read_inboxes(idle, thorough)
        await self._balance()
        self._look_ahead()
        if idle and self.is_idle():
            self._polled_idle_at = beat
            self._polled_all_at = beat if thorough else -1

    async def _read_inboxes(self, idle: bool, thorough: bool) -> None:
        """Read our first shard's inbox, which others write to, and in turn some of the rest.

        When all workers are idle, each poll reads all of them, because it decides whether the crawl is over.
        """
        shards = sorted(self._frontier.owned)
        rest = shards[1:]
        start = self._next_polled if self._next_polled < len(rest) else 0
        self._next_polled = start + POLLED_AT_ONCE
        await self._frontier.read_inboxes(shards[:1], fresh=True)
        some = rest if thorough else rest[start : self._next_polled]
        await self._frontier.read_inboxes(some, fresh=idle)

    async def _balance(self) -> None:
        gained, unwanted = await self._io(self._shards.balance, self._frontier.owned | self._releasing)
        if gained:
            await self._acquire(gained)
            await self._io(self._shards.find_inboxes)  # others that start with us have claimed theirs meanwhile
        new = set(unwanted) - self._releasing
        self._frontier.hold(new)
        self._releasing |= new
        self._frontier.inboxes = self._shards.inboxes
        if gained and self._frontier.queued:  # seeds for others, who wait for them
            await self.flush()
        self._warn_of_idle_workers()
        if gained or new:
            log.info("shards: %d, +%d -%d", len(self._frontier.owned), len(gained), len(new))
        await self._release(self._releasing - self._table.shards_in_flight() - self._resting())

    def _warn_of_idle_workers(self) -> None:
        """Log once for this machine that there are more workers than shards: some have nothing to do."""
        alive, shards = self._shards.count_alive(), self._shards.count
        if self._row == 0 and alive > shards and not self._warned_of_shards:
            self._warned_of_shards = True
            log.warning("warning: %s", too_many_workers(alive, shards), extra={"event": "shards"})

    async def _acquire(self, gained: dict[int, bool]) -> None:
        """Own these shards; hosts that others have requested are known before any of their URLs can be taken."""
        inherited = [shard for shard, is_inherited in gained.items() if is_inherited]
        self._frontier.expect(gained)
        past = self._store.past(self._frontier.is_coming)
        while part := await self._io(past.next):
            self._frontier.note_past(part)
            await self._flush_if_due()  # there may be a million hosts, and visits go on
        await self._frontier.own(gained, inherited)
        if inherited:
            self._next_tidy = 0.0  # write what we inherited to batches of our own at once

    def _resting(self) -> set[int]:
        """Return the shards that are not released yet: who claims a free one does not know that hosts must rest."""
        return self._frontier.resting(longest_delay(self._settings.now))

    async def _release(self, shards: set[int]) -> None:
        """Give shards away: each is free then, but one whose hosts must rest is left to an heir, who lets them rest."""
        if not shards:
            return
        free = shards - self._resting()
        await self.flush(is_last=True)
        await self._flush.sync_records()
        lost = shards - await self._io(self._shards.own_still, shards)
        await self._frontier.disown(shards, lost)
        await self._io(self._shards.release_all, free)
        self._releasing -= shards

    async def _tidy(self) -> bool:
        """Tidy all shards; False if there is more to read first."""
        self._warn_of_limits()
        self._check_cpu()
        self._files.directories.close_kept()  # regularly: a user may have moved a folder that we keep open
        await self._flush.sync_records()
        self._index_left_soon()
        self._merge_past_soon()
        for shard in list(self._frontier.owned):
            if await self._flush_if_due():  # on a slow mount each shard takes long
                await self._flush.sync_records()  # or batches would be removed before these are on the disk
            if self._ending.draining or not await self._frontier.tidy(shard):
                return False
        return True

    def _index_left_soon(self) -> None:
        """Index what dead workers have left, in the background: on each machine its first worker does so."""
        now = self._clock.monotonic()
        is_running = self._indexing and not self._indexing.done()
        if self._archive and self._row == 0 and now >= self._next_indexing and not is_running:
            self._next_indexing = now + INDEX_INTERVAL
            self._indexing = asyncio.create_task(self._index_left(self._archive))

    async def _index_left(self, archive: Archive) -> None:
        with suppress(StoreError):  # the next look finds them again
            await self._io(archive.index_left)

    def _merge_past_soon(self) -> None:
        """Merge what workers that ended have left in `workers/`, likewise, if they are many."""
        now = self._clock.monotonic()
        if self._row == 0 and now >= self._next_merge and self._shards.count_ended() > MAX_ENDED:
            self._next_merge = now + MERGE_INTERVAL
            self._merging = asyncio.create_task(self._merge_past())

    async def _merge_past(self) -> None:
        with suppress(StoreError):  # the next attempt continues
            merged = await self._io(merge_if_many, self._store, self._settings.now)
            log.debug("merged the counters of %d workers that ended long ago", merged)

    def _warn_of_limits(self) -> None:
        """Say once of each limit that it was reached: its default may not be what the operator wants."""
        for rule in self._table.skipped.keys() - self._warned:
            self._warned.add(rule)
            log.warning("URLs are skipped because of %s; `crawler status` counts them, crawl.yaml changes it", rule)

    # ---- for the heartbeat, which calls `beat_interval` and `obey_operator` from its own thread

    def beat_interval(self) -> float:
        """Return the seconds between heartbeats: fewer near the end, if we have polled since the last one."""
        has_polled = self._polled_idle_at == self._shards.heartbeat.beat
        return self._end_interval() if has_polled and self._near_the_end() else self._settings.now.heartbeat

    def obey_operator(self) -> bool:
        """Pause or stop if an operator says so; their orders are names among the heartbeats (see `fleet.control`)."""
        self._in_flight.paused = PAUSE in self._shards.orders
        self._scoreboard.set(self._row, "paused", int(self._in_flight.paused))
        if self._machine + STOP in self._shards.orders:
            self._scoreboard.drain(OPERATOR_STOP)
        return self._in_flight.paused

    def report(self, afresh: bool = False) -> tuple[dict[str, Any], str]:
        """Return this worker's counters for `workers/`, and the mark of its heartbeat if it is idle."""
        self._look_ahead()
        arrivals = self._table.arrivals
        later = LATER_MARK if self._table.waiting else ""
        polled = f"{ALL}{self._polled_all_at}" if self._polled_all_at >= 0 else ""
        return self._facts(afresh), f"{arrivals}{later}{polled}" if self.is_idle() else ""

    def _facts(self, afresh: bool) -> dict[str, Any]:
        due = next(iter(self._pauses.kinds), OPERATOR_PAUSE if self._in_flight.paused else TURN)
        survey = self._survey.facts(due, afresh)
        waiting = self._table.waiting - self._table.revisits
        self._scoreboard.set(self._row, "waiting", waiting)
        self._scoreboard.set(self._row, "tasks", self._table.waiting)
        self._scoreboard.set(self._row, "hosts", survey["hosts"])
        return {
            "id": self._files.me,
            "machine": self._machine,
            "name": os.uname().nodename,
            "pid": os.getpid(),
            "started": utc(self._born),
            "when": utc(self._clock.time()),
            **self._counters.facts(waiting),
            "waiting": waiting,
            "in_flight": self._table.taken,
            "skipped": self._table.skipped.total(),
            "limits": dict(self._table.skipped),
            "traps": dict(self._seeds.skipped),
            "shards": len(self._frontier.owned),
            **({"next_due": utc(self._next_due)} if self._next_due is not None else {}),
            "blocked": self._pauses.reasons,
            "ignored_settings": self._scoreboard.ignored_settings,
            **survey,
        }

    def is_idle(self) -> bool:
        """Whether nothing is unread, in flight, queued or unflushed, and nothing waits that is due within the hour."""
        is_waiting = self._table.waiting and self._next_due is None
        return not (self._frontier.unread or is_waiting or self._releasing or self._flush.is_unflushed)

    def _look_ahead(self) -> None:
        """Note when the next URL is due, if none is within the hour; only here, because other threads ask too."""
        wait = self._table.earliest() - self._clock.monotonic() if self._table.waiting else 0.0
        self._next_due = self._clock.time() + wait if FAR < wait < inf else None

    def _near_the_end(self) -> bool:
        """Whether our next heartbeat is the first to say idle, or all workers are idle."""
        if self._in_flight.paused or self.forever:
            return False
        is_near = not self._shards.heartbeat.idle or self._shards.all_idle() or self._is_all_done_here()
        if not is_near:
            self._far_beat = self._shards.heartbeat.beat
        return is_near

    def _end_interval(self) -> float:
        """Return the seconds between looks near the end: if something holds it up, such as a dead worker, they grow."""
        beats = self._shards.heartbeat.beat - self._far_beat
        doublings = min(max(beats - QUICK_BEATS, 0), MAX_DOUBLINGS)
        return min(END_INTERVAL * 2.0**doublings, self._settings.now.heartbeat / 4)

    def _is_all_done_here(self) -> bool:
        """Whether nothing waits on this machine and no other runs: then no heartbeat of others is needed."""
        return self._shards.count_alive() == self._scoreboard.workers and not self._scoreboard.total("waiting")

    # ---- the end

    def _may_leave(self) -> bool:
        ending = self._ending
        if self._scoreboard.draining:
            ending.end(STOPPED)
        elif self._limit.is_reached() and not self._awaits_revisits():
            ending.end(LIMIT)
        if ending.error or ending.outcome in (OVER, LATER, *REPLACED):
            return True
        if ending.outcome and self._pauses.blocked_for() > STOP_TIMEOUT:
            return True  # the store does not recover: what is in flight stays in the frontier
        return ending.outcome is not None and not self._table.taken and not self._flush.count

    def _awaits_revisits(self) -> bool:
        """Whether the worker goes on at the limit of pages, because a page is visited again within the hour."""
        if self._settings.now.recrawl is not None and (not self._polled or self._frontier.unread):
            return True  # it does not know yet what waits
        if not self._table.revisits:
            return False
        return self.forever or self._table.next_revisit() - self._clock.monotonic() < FAR

    async def leave(self) -> None:
        """Flush, release all shards and write the last heartbeat; what fails here is done by the next owners."""
        with suppress(StoreError):
            await self.flush()
            if self._archive:
                await self._io(self._archive.close)
        self._warn_of_limits()
        last, _ = self.report(afresh=True)
        mine = self._frontier.owned | self._releasing
        free = mine - self._resting()
        with suppress(StoreError):  # if this sync fails, that of the release writes anew what it may have lost
            await self._flush.sync_records()
        try:
            await self._release(mine)
        except StoreError:  # no space, say: the next owners hand on what is not for them
            with suppress(StoreError):
                await self._io(self._shards.release_all, free)
        with suppress(StoreError):
            await self._io(self._shards.sign_off, {**last, "shards": 0})
        if self._archive and self._row == 0 and self._ending.outcome in (OVER, LATER, LIMIT):
            await self._index_left(self._archive)
