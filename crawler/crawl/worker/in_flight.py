"""The tasks in flight: visits are started for the hosts that are due, as many at a time as the limits allow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.worker.ending import Ending
from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.limit import PageLimit
from crawler.crawl.worker.pauses import Pauses
from crawler.fleet.shards import Shards
from crawler.frontier.batches import to_lines
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import IN_TURN, LAST, NEVER, Host
from crawler.frontier.task import Task
from crawler.store.clock import Clock

# Hosts that have not answered may hold one in so many of the slots in turn with others, and while no other host is due.
IN_TURN_SHARE, LAST_SHARE = 4, 2
MIN_WAIT = 0.001  # seconds

Visit = Callable[[Task, Host], Coroutine[Any, Any, None]]


class InFlight:
    """Starts visits, each in a slot: a task on the event loop, and a cell of the scoreboard."""

    def __init__(
        self,
        frontier: Frontier,
        flush: Flush,
        pauses: Pauses,
        limit: PageLimit,
        shards: Shards,
        ending: Ending,
        scoreboard: Scoreboard,
        row: int,
        clock: Clock,
    ) -> None:
        self._frontier, self._flush, self._pauses, self._limit = frontier, flush, pauses, limit
        self._shards, self._ending, self._clock = shards, ending, clock
        self._scoreboard, self._row = scoreboard, row
        self.paused = False  # by an operator
        self.fault: BaseException | None = None  # of a visit or the table, to be raised where the supervisor sees it
        self._slots = scoreboard.concurrency
        self._free = list(range(self._slots - 1, -1, -1))
        self._unanswered = 0  # slots that hosts hold which have not answered
        self._max_in_turn, self._max_unanswered = (max(self._slots // it, 1) for it in (IN_TURN_SHARE, LAST_SHARE))
        self._running: set[asyncio.Task[None]] = set()
        self._visit: Visit | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False  # whether `fill` will be called at the end of this step of the loop
        self._was_sure = True

    @property
    def count(self) -> int:
        """How many visits are running."""
        return len(self._running)

    def start(self, visit: Visit) -> None:
        """Visit tasks with this coroutine from now on, on the running loop."""
        self._loop, self._visit = asyncio.get_running_loop(), visit
        self.fill()

    def stop(self) -> None:
        """End all visits; their tasks stay in the frontier."""
        if self._timer:
            self._timer.cancel()
        self._visit = None
        for running in list(self._running):
            running.cancel()

    def fill(self) -> None:
        """1. Take tasks and start their visits until there is none to take; then wait for the next host to be due."""
        self._is_due = False
        if self._visit is None:
            return
        try:
            may_take = self._may_take()
            while may_take and self._free:
                is_at_limit = self._limit.is_near(self._frontier.table.taken)
                may_take = not is_at_limit or self._has_revisits()
                taken = self._frontier.take(self._turn_of_unanswered(), is_at_limit) if may_take else None
                if taken is None:
                    break
                self._begin(self._visit, *taken)
            self._limit.show(self._frontier.table.taken)
            self._wake_when_due(may_take)
        except Exception as error:  # noqa: BLE001 - the loop would log it and go on (the local disk is full, say)
            self.fault = error

    def _turn_of_unanswered(self) -> int:
        """Return when hosts may go that have not answered: a tenth of the web is dead, and must not delay the rest."""
        if self._unanswered < self._max_in_turn:
            return IN_TURN
        return LAST if self._unanswered < self._max_unanswered else NEVER

    def fill_soon(self) -> None:
        """Call `fill` once what the loop does now is done: something may be due, or a slot is free."""
        if not self._is_due and self._loop is not None:
            self._is_due = True
            self._loop.call_soon(self.fill)

    def _wake_when_due(self, may_take: bool) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._loop is not None and may_take and self._free:
            self._timer = self._loop.call_later(max(self._frontier.next_due(), MIN_WAIT), self.fill)

    def _begin(self, visit: Visit, task: Task, host: Host) -> None:
        assert self._loop is not None
        slot, is_unanswered = self._free.pop(), not host.answered
        self._unanswered += is_unanswered  # now: more tasks are taken before the visit runs
        self._scoreboard.set_in_flight(self._row, slot, to_lines([task], self._clock))
        running = self._loop.create_task(visit(task, host))
        self._running.add(running)
        running.add_done_callback(partial(self._finish, slot, is_unanswered))

    def _finish(self, slot: int, is_unanswered: bool, running: asyncio.Task[None]) -> None:
        """Free the slot of a visit that has ended, or was cancelled before it ran."""
        self._running.discard(running)
        self._unanswered -= is_unanswered
        self._scoreboard.set_in_flight(self._row, slot, b"")
        self._free.append(slot)
        if not running.cancelled() and running.exception():
            self.fault = running.exception()
        self.fill_soon()

    def _may_take(self) -> bool:
        """Whether tasks may be taken now, but for the limit of pages; while they are, nothing of this changes."""
        if self._ending.draining or self.paused or self._pauses.kinds or self._flush.is_full:
            return False
        return self._is_sure()

    def _has_revisits(self) -> bool:
        """Whether there may be something to take at the limit of pages: a revisit is no new page."""
        return self._frontier.table.revisits > 0

    def _is_sure(self) -> bool:
        """Whether nobody can have declared us dead yet; a hanging mount raises no error, so it is logged here."""
        sure = self._shards.is_sure()
        if not sure and self._was_sure:
            log.warning(
                "pausing: no heartbeat could be written for %.0f s; does the mount hang?", self._shards.dead_after / 2
            )
        elif sure and not self._was_sure:
            log.warning("resuming: heartbeats can be written again")
        self._was_sure = sure
        return sure
