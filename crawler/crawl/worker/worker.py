"""A worker: one process of a machine, with one event loop. Here its parts are made and given to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from functools import lru_cache, partial
from random import Random
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from crawler.crawl import resources
from crawler.crawl.logs import log
from crawler.crawl.scoreboard import HANDLER, Scoreboard
from crawler.crawl.watchdog import TICK_INTERVAL
from crawler.crawl.worker.address_pace import AddressPace
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.ending import MARKED_DEAD, STOPPED, Ending
from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.handling import Handling
from crawler.crawl.worker.heartbeat import HeartbeatThread
from crawler.crawl.worker.in_flight import InFlight
from crawler.crawl.worker.jars import Jars
from crawler.crawl.worker.limit import PageLimit
from crawler.crawl.worker.network import Network, Requests
from crawler.crawl.worker.pauses import Pauses
from crawler.crawl.worker.reader import Reader
from crawler.crawl.worker.revisits import Revisits
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.crawl.worker.schedule import Schedule
from crawler.crawl.worker.upkeep import Upkeep
from crawler.crawl.worker.visit import Visits
from crawler.fetch.cookies import Cookies
from crawler.fetch.trust import Trust
from crawler.fleet.shards import Shards
from crawler.frontier.batches import BatchFiles, in_parts, to_lines
from crawler.frontier.frontier import Frontier
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task
from crawler.frontier.waiting import Survey
from crawler.settings.settings import LiveSettings, Settings
from crawler.store import local_disk
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Io
from crawler.store.writer import StoreWriter

if TYPE_CHECKING:
    from crawler.crawl.handler import OnPage
    from crawler.fetch.fetcher import Fetcher

WRITERS = 8  # files of a flush that are written at the same time to a mount, where each operation has latency

Args = ParamSpec("Args")
Item = TypeVar("Item")
Result = TypeVar("Result")


class Worker:
    """One process of a machine; a peer of all workers on all machines."""

    def __init__(
        self,
        store: StoreWriter,
        settings: Settings,
        network: Network,
        scoreboard: Scoreboard,
        row: int,
        machine: str,
        io: Io,
        run: Callable[..., Iterable[object]] = map,
        clock: Clock = SYSTEM,
        random: Random | None = None,
        check_cpu: Callable[[], None] = lambda: None,
        trust: Trust | None = None,
        on_page: OnPage | None = None,
        cookies: Cookies | None = None,
    ) -> None:
        """`io` makes calls that block, `run` those for many files; `network` sends requests, with these `cookies`.

        `on_page` takes pages.
        """
        self.settings, self.clock, self.scoreboard, self._row = LiveSettings(settings), clock, scoreboard, row
        self._store, self._io, self._run, self._random = store, io, run, random or Random()
        self._noted: tuple[Task | None, bytes] = (None, b"")  # the task that was noted last, and its line
        self._make_ties(settings, machine)
        self._make_frontier(settings)
        self._make_flush(settings, on_page, cookies or Cookies())
        self._make_visits(network, trust or Trust())
        self._make_upkeep(settings, machine, check_cpu)

    def _make_ties(self, settings: Settings, machine: str) -> None:
        """Make what ties it to its machine and to other workers: ending, counters, pauses, limit, shards."""
        scoreboard, row, clock = self.scoreboard, self._row, self.clock
        self.ending = Ending(scoreboard)
        self.counters = Counters(scoreboard, row, clock)
        self.pauses = Pauses(self._store, self.settings, scoreboard, row, self.ending, clock, self._io)
        self.limit = PageLimit(self.settings, scoreboard, row, clock)
        self.shards = Shards(
            self._store.files, settings, scoreboard.workers, clock, self._random, self._run, row, machine
        )

    def _make_frontier(self, settings: Settings) -> None:
        """Make what tells which URLs wait, and when pages are visited again."""
        self.seeds = Seeds(self._store, settings, self.clock)
        batch_files = BatchFiles(self._store.files, self._run, self.clock, self._random, log.warning)
        refresh = partial(self._io, self.seeds.refresh)
        self.frontier = Frontier(batch_files, settings, self.clock, self._io, self.shards.is_sure, refresh)
        self.schedule = Schedule(self.settings, self.clock)

    def _make_flush(self, settings: Settings, on_page: OnPage | None, cookies: Cookies) -> None:
        """Make the way of results to the store."""
        store, clock, random = self._store, self.clock, self._random
        self.jars = Jars(
            store,
            cookies,
            self.frontier,
            self.pauses,
            self.shards,
            self.settings,
            self.scoreboard,
            self._row,
            clock,
        )
        note = partial(self._note_reading, reader=HANDLER)
        self.handling = Handling(on_page, self.counters, note) if on_page else None
        self.archive: Archive | None = None
        if settings.warc:
            from crawler.crawl.worker.archive import Archive  # here: few crawls need it

            self.archive = Archive(store.files, settings, clock, random)
        self.flush = Flush(
            store,
            self.frontier,
            self.seeds,
            self.jars,
            self.counters,
            clock,
            self._io,
            self._run,
            self.handling,
            self.archive,
            self.schedule,
        )
        self.revisits = Revisits(store, self.frontier, self.flush, self.schedule, self.pauses, clock)

    def _make_visits(self, network: Network, trust: Trust) -> None:
        """Make what visits URLs: in flight, requests, robots.txt, the reader, the visits themselves."""
        store, live, clock = self._store, self.settings, self.clock
        self.in_flight = InFlight(
            self.frontier,
            self.flush,
            self.pauses,
            self.limit,
            self.shards,
            self.ending,
            self.scoreboard,
            self._row,
            clock,
        )
        self._address_pace = AddressPace(live, clock)
        self.requests = Requests(
            network, self.shards, trust, live, self._address_pace, self.jars, self.counters, self.archive
        )
        self.robots_cache = RobotsCache(
            store, self.frontier, self.seeds, self.requests, self.flush, self.pauses, live, clock, self._random
        )
        self.visits = Visits(
            store,
            self.frontier,
            self.seeds,
            self.requests,
            self.robots_cache,
            self.jars,
            self.flush,
            self.revisits,
            self.pauses,
            self.counters,
            self.shards,
            self.ending,
            live,
            clock,
            self._random,
            self.scoreboard.concurrency,
            Reader(live, clock, self._note_reading),
        )

    def _make_upkeep(self, settings: Settings, machine: str, check_cpu: Callable[[], None]) -> None:
        """Make what goes on beside the visits: the upkeep and the heartbeat."""
        is_pending, holds = self.robots_cache.is_pending, self._address_pace.holds
        self.survey = Survey(self.frontier.table, settings, self.clock, is_pending, holds)
        self.upkeep = Upkeep(
            self._store,
            self.frontier,
            self.seeds,
            self.shards,
            self.flush,
            self.in_flight,
            self.pauses,
            self.counters,
            self.limit,
            self.survey,
            self.ending,
            self.settings,
            self.scoreboard,
            self._row,
            machine,
            self.clock,
            self._io,
            check_cpu,
            self.archive,
        )
        self.heartbeat = HeartbeatThread(self.upkeep, self.shards, self.ending, self.clock)

    async def run(self) -> None:
        """Work until the end of the crawl, a limit, a stop or an error; then hand everything back."""
        if not await self.upkeep.begin():
            return
        self.heartbeat.start()
        self.in_flight.start(self.visits.run)
        try:
            await self.upkeep.run()
        finally:
            self.ending.closed = True
            self.in_flight.stop()
            if self.handling:
                self.handling.stop()
        await self.heartbeat.wait(self.settings.now.dead_after)
        if self.ending.outcome != MARKED_DEAD:
            await self.upkeep.leave()

    def _note_reading(self, task: Task | None, reader: int, size: int = 0) -> None:
        noted = self._noted  # the thread for large pages may replace it
        if task is not None and task is not noted[0]:  # else its page was read just before, and now its links are
            noted = self._noted = task, to_lines([task], self.clock)
        self.scoreboard.set_reading(self._row, reader, noted[1] if task else b"", size)


class WriterThreads:
    """The threads in which calls that block are made; a group of files is written by several where that is faster."""

    def __init__(self, has_latency: bool) -> None:
        self._callers = ThreadPoolExecutor(WRITERS, thread_name_prefix="io")
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write") if has_latency else None

    async def io(self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        """Make a call that may block, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._callers, partial(call, *args, **kwargs))

    def run(self, call: Callable[[Item], Result], items: Iterable[Item]) -> Iterable[Result]:
        """Call for each item: a few at a time where each operation has latency."""
        if self._writers is None:
            return map(call, items)
        items = list(items)
        parts = in_parts(items, -(-len(items) // WRITERS) or 1)
        running = [self._writers.submit(lambda part: list(map(call, part)), part) for part in parts]
        wait(running)  # also if one fails: who cleans up after that must not be overtaken by the others
        return [result for some in running for result in some.result()]


def keep_ticking(scoreboard: Scoreboard, row: int) -> None:
    """Show on the scoreboard that the running event loop makes progress, as long as it does."""
    scoreboard.tick(row)
    asyncio.get_running_loop().call_later(TICK_INTERVAL, keep_ticking, scoreboard, row)


def run_worker(
    store: StoreWriter,
    settings: Settings,
    scoreboard: Scoreboard,
    row: int,
    machine: str,
    check_cpu: Callable[[], None],
    trust: Trust,
    on_page: OnPage | None = None,
) -> str:
    """Run a worker to its end in this process, and return its outcome."""
    scoreboard.set_id(row, store.files.me)
    store.files.directories.max_kept = resources.folders_for(scoreboard.concurrency)
    threads = WriterThreads(store.files.has_latency())

    async def run() -> Worker:
        keep_ticking(scoreboard, row)
        cookies = _cookies(store, trust)
        fetcher = _fetcher(settings, trust, scoreboard.concurrency, cookies)
        worker = Worker(
            store,
            settings,
            fetcher,
            scoreboard,
            row,
            machine,
            threads.io,
            threads.run,
            check_cpu=check_cpu,
            trust=trust,
            on_page=on_page,
            cookies=cookies,
        )
        try:
            await worker.run()
        finally:
            fetcher.close()
        return worker

    with local_disk.named():
        worker = asyncio.run(run())
    if worker.ending.error:
        raise worker.ending.error
    log.debug("worker %s: %s", store.files.me, worker.ending.outcome)
    return worker.ending.outcome or STOPPED


def _cookies(store: StoreWriter, trust: Trust) -> Cookies:
    """Return the cookies of a worker.

    Of a host that gets secrets of the operator's, nothing goes to the store: it may be as good as a password.
    """
    is_stored = lru_cache(4096)(lambda host: not trust.is_secret(host))
    return Cookies(trust.own_cookies, store.files.me, is_stored)


def _fetcher(settings: Settings, trust: Trust, concurrency: int, cookies: Cookies) -> Fetcher:
    """Return what sends the requests of a worker, so many at a time."""
    from crawler.fetch.fetcher import Fetcher  # here: tests of a worker need no HTTP client
    from crawler.settings.settings import fetch_options

    kept = resources.connections_for(concurrency)
    return Fetcher(replace(fetch_options(settings, trust), concurrency=concurrency, kept=kept), cookies)
