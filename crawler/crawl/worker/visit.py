"""The life of a URL: a coroutine on the worker's event loop, with `await` where it waits.

1. `frontier.take` gives the next task of a due host.
2. robots.txt allows it, or it is excluded. (What an edit of crawl.yaml excludes is skipped before.)
3. `requests.get` requests once: a page or a failure. (If its address has had too many requests, the URL waits.)
4. `markup.read` turns bytes into text, title and links.
5. `store.put_html`.
6. `frontier.hand_over` of the links in scope.
7. `store.put_record`: done. (5 to 7 are written for a group of pages by `flush`.)
8. `politeness` says when the host may be requested next.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from crawler.crawl.logs import log
from crawler.crawl.resources import check_spare_files
from crawler.crawl.worker import politeness
from crawler.crawl.worker.address_pace import TooSoon
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.ending import Ending, Stopped
from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.jars import Jars
from crawler.crawl.worker.network import Requests
from crawler.crawl.worker.pauses import Pauses
from crawler.crawl.worker.reader import Reader
from crawler.crawl.worker.revisits import Revisits
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.errors import DiskFull, NoDescriptors, StoreAway, StoreError
from crawler.fleet.shards import Shards
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import BY_WAY_OF, RETRY, REVISIT, Task, extend, retry_task
from crawler.settings.settings import LiveSettings, delay_for
from crawler.store.clock import Clock
from crawler.store.records import build_record, mark_of
from crawler.store.writer import StoreWriter, encode_page
from crawler.web import reasons, urls
from crawler.web.page import REDIRECTS, Failure, Fetched, Saved, Unreadable
from crawler.web.robots import Rules

LARGE_TEXT = 256 << 10  # characters of a page and its links
ROOM_INTERVAL = 0.05  # seconds until a large page tries again to be queued for its flush
LISTING_RETRY = 1.0  # seconds until a host's folder that could not be listed is listed again
MET_AT_ONCE = 16  # hosts that others have requested: with all of them at once each would wait for the last
MAX_REDIRECTS = 20  # in a row: as many as browsers follow
MAX_LANES = 16  # requests at a time to a host without a delay


class Visits:
    """Visits URLs, any number at a time."""

    def __init__(
        self,
        store: StoreWriter,
        frontier: Frontier,
        seeds: Seeds,
        requests: Requests,
        robots_cache: RobotsCache,
        jars: Jars,
        flush: Flush,
        revisits: Revisits,
        pauses: Pauses,
        counters: Counters,
        shards: Shards,
        ending: Ending,
        settings: LiveSettings,
        clock: Clock,
        random: Random,
        concurrency: int,
        reader: Reader,
    ) -> None:
        self._store, self._frontier, self._table, self._seeds = store, frontier, frontier.table, seeds
        self._requests, self._robots, self._jars, self._flush = requests, robots_cache, jars, flush
        self._revisits = revisits
        self._pauses, self._counters, self._shards, self._ending = pauses, counters, shards, ending
        self._settings, self._clock, self._random = settings, clock, random
        self._lanes = min(concurrency, MAX_LANES)
        self._reader = reader
        self._meeting = asyncio.Semaphore(MET_AT_ONCE)

    async def run(self, task: Task, host: Host) -> None:
        """Visit a URL; whatever happens, its host rests afterwards, and the URL is done or waits again."""
        try:
            await self._visit_safely(task, host)
        except Stopped:
            self._put_back(task, host)
        except TooSoon as wait:
            self._put_back(task, host, self._clock.monotonic() + wait.seconds, keeps_turn=True)
        except NoDescriptors as error:
            self._pauses.note(error)
            self._put_back(task, host)
        except StoreAway as error:  # while a large body was saved: the page is not to blame
            self._pauses.note(error)
            self._put_back(task, host, self._clock.monotonic() + self._delay(host))
        except StoreError as error:
            self._put_back(task, host)
            self._ending.fail(error)

    def _put_back(self, task: Task, host: Host, due: float | None = None, keeps_turn: bool = False) -> None:
        self._table.put_back(task)
        self._table.rest(host, self._clock.monotonic() if due is None else due, keeps_turn=keeps_turn)

    async def _visit_safely(self, task: Task, host: Host) -> None:
        try:
            await self.visit(task, host)
        except DiskFull as error:  # by a large body, which may be more than the disk has
            self._pauses.note(error)
            await self._fail(task, Failure(task.url, "no-room", str(error)))
            self._table.rest(host, self._clock.monotonic() + self._delay(host))
        except (Stopped, TooSoon, StoreError, sqlite3.OperationalError):
            raise  # the last one is of the machine's own disk: no page is to blame
        except Exception:  # noqa: BLE001 - a bug on one page must not end a crawl of millions
            check_spare_files()
            log.exception("bug in the crawler on %s", task.name, extra={"event": "fault", "url": task.name})
            await self._put_failure(task, Failure(task.url, "fault", "see the log"))
            self._rest(host, Failure(task.url, "fault"))

    async def visit(self, task: Task, host: Host) -> None:
        """The life of a URL, from taken to done."""
        if not host.met and not await self._meet(task, host):
            return None
        if other := self._table.uncounted(host):
            await self._count_domain(other)
        if task.is_side_task:
            return await self._run_side_task(task, host)
        if self._seeds.scope.has_patterns and self._reader.noted(task, self._seeds.leave_out, task):
            self._skip(task)
            return self._rest(host, None)
        old = await self._revisits.find(task) if task.kind == REVISIT else None
        if task.kind == REVISIT and old is None:
            self._drop(task)
            return self._rest(host, None)
        rules = await self._robots.of(task, host)
        if rules is None:
            return await self._request_robots(task, host)
        known = host.robots_delay
        host.robots_delay = rules.delay
        if host.pace is None and self._rests_longer(task, host, known):
            return None
        if not rules.allow(task.url):
            await self._put_failure(task, rules.why_not(task.url))
            return self._rest(host, None)
        sent = await self._jars.prepare(task)
        condition = self._revisits.condition(old) if old else ()
        response = await self._requests.get(task, host, partial(self._store.new_file, task.url), condition)
        try:
            wait = await self._jars.ask_again(task, response, sent)
            if wait is not None:
                await self._discard(response)
                self._retry(task, _without_cookie(task, response), wait)
            else:
                await self._keep(task, response, old)
        except BaseException:
            await self._discard(response)
            raise
        return self._rest(host, response)

    def _skip(self, task: Task) -> None:
        """Remove a task that the settings now exclude; a rehydration brings it back if they change again."""
        self._table.skip(task)
        log.info("skipped: %s", task.name, extra={"event": "skipped", "url": task.name})

    # ---- 2. what the host allows

    async def _meet(self, task: Task, host: Host) -> bool:
        """Load what is done of a host that is new to us; True if it may be requested at once.

        If another worker may have requested it, it rests for one delay, because that may have been just now. It keeps
        its turn: otherwise all hosts of a crawl that is resumed would be met before the first page comes.
        """
        gains = self._table.gains
        done, kept, size = await self._look_into_past(host) if host.past else (0, 0, 0)
        if done is None:
            self._put_back(task, host, self._clock.monotonic() + LISTING_RETRY)
            return False
        self._jars.meet(host.name, bool(host.past))
        is_met = self._table.set_met(host, kept, gains, size)
        due = await self._first_due(task, host)
        if is_met and not done and due <= self._clock.monotonic():
            return True
        self._put_back(task, host, due, keeps_turn=True)
        return False

    async def _look_into_past(self, host: Host) -> tuple[int | None, int, int]:
        """Load what is done of a host (see `_load_done`), and return also how much of it is stored."""
        async with self._meeting:
            done = await self._load_done(host)
            stored = await self._pauses.until_store_answers(self._store.stored_size, host.name) if done else (0, 0)
        return done, *stored

    async def _load_done(self, host: Host) -> int | None:
        """Load which URLs of a host others have done, and return how many; None if its folders cannot be seen yet."""
        call = self._pauses.until_store_answers
        keys = await call(self._store.done_by_others, host.name, host.past)
        if keys is None:
            return None
        done = 0
        while part := await call(keys.next):
            await self._frontier.meet(host, part)
            done += len(part)
        return done

    async def _count_domain(self, other: str) -> None:
        """Count what is stored of another host of the domain, which is not known: one with each visit, until all are.

        With a million stored pages this takes a few listings, and only a domain with a past needs any.
        """
        stored = await self._pauses.until_store_answers(self._store.stored_size, other)
        self._table.count_unmet(other, *stored)

    async def _first_due(self, task: Task, host: Host) -> float:
        """Return when we may first request a host: when its last owner would have, as far as we can know."""
        now = self._clock.monotonic()
        taken_over = self._frontier.taken_over(task)
        retry = self._table.next_retry(host.name)  # perhaps the only trace of requests by others
        settings = self._settings.now
        if settings.spread == "url" or not (host.past or taken_over or retry):
            return now
        rules = await self._robots.of(task, host)  # has the crawl-delay that its last owner kept
        host.robots_delay = rules.delay if rules else 0.0
        due = (now if host.past or retry else taken_over) + self._delay(host)
        return max(due, min(retry, now + settings.max_delay))

    def _rests_longer(self, task: Task, host: Host, known: float) -> bool:
        """Whether a host must rest for the delay that its robots.txt wants before our first request; if so, it does.

        Its last owner had requested it, and the robots.txt, which is on another host, came after we met it: it has
        rested for the delay that was `known` then.
        """
        settings = self._settings.now
        if delay_for(settings, host.name, host.robots_delay) <= delay_for(settings, host.name, known):
            return False
        delay = self._delay(host)
        self._table.put_back(task)
        self._table.rest(host, self._clock.monotonic() + delay, pace=delay, keeps_turn=True)
        return True

    async def _request_robots(self, task: Task, host: Host) -> None:
        """Request robots.txt in a URL's turn, so that the host's pace holds; the URL waits for the next turn."""
        response = await self._robots.request(task, host)
        if isinstance(response, float):
            return self._put_back(task, host, self._clock.monotonic() + response)
        if isinstance(response, Failure) and not isinstance(await self._robots.known(host.name), Rules):
            await self._fail(task, response)
        else:
            self._table.put_back(task)
        host.robots_delay = self._robots.delay(host.name)
        return self._rest(host, response, keeps_turn=True)

    async def _run_side_task(self, task: Task, host: Host) -> None:
        """Run a task that brings no page: a retry by an operator, or the robots.txt of another host."""
        if task.kind == RETRY:
            await self._run_retry_task(task)
            return self._rest(host, None)
        return await self._run_robots_task(task, host)

    async def _run_retry_task(self, task: Task) -> None:
        """Queue a URL with a failure record again, unless it was retried since and has a new failure record."""
        name, call = task.subject, self._pauses.until_store_answers
        failure = await call(self._store.failure, name)
        if failure is None or retry_task(name, mark_of(failure)).name == task.name:
            if failure:
                await self._robots.reconsider(task.host, failure)
            if await call(self._store.drop_failure, name) and failure:
                self._counters.drop_failure(str(failure.get("reason")))
            if await call(self._store.record, name) is None:
                self._frontier.retry(Task.named(name, task.depth, via=task.via))
        self._drop(task)

    async def _run_robots_task(self, task: Task, host: Host) -> None:
        """Request the robots.txt that another host redirected to a host of ours."""
        if await self._robots.is_delivered(task):
            self._drop(task)
            return self._rest(host, None)
        rules = await self._robots.known(host.name)
        host.robots_delay = rules.delay if rules else 0.0
        await self._robots.note_request(host.name)
        response = await self._requests.get_robots(task.url, task, host)
        if isinstance(response, Failure) and self._may_retry(task, response):
            self._retry(task, response)
        else:
            await self._robots.deliver(task, response)
            self._drop(task)
        return self._rest(host, response, keeps_turn=True)

    def _drop(self, task: Task) -> None:
        """Remove a task that leaves no record: one for robots.txt or a retry that is done, a revisit not to be made."""
        self._table.mark_done([task], kept=False, links=False)

    # ---- 4 to 7. what the response brings

    async def _keep(self, task: Task, response: Fetched | Failure, old: dict[str, Any] | None = None) -> None:
        """Read what came, and leave it for the flush; or retry later, or fail. `old` is the record of a revisit."""
        if isinstance(response, Failure):
            return await self._fail(task, response)
        if response.status in REDIRECTS:
            return await self._redirect(task, response, old)
        if old is not None and self._revisits.is_same(old, response):
            await self._discard(response)
            return self._revisits.keep_same(task, old, response)
        when = self._clock.time()
        try:
            if task.level:
                found = await self._reader.sitemap(task, response)
                return await self._put_page(task, found | {"url": task.subject}, old=old)
            reading = await self._reader.page(task, response)
        except Unreadable as error:
            return await self._fail(task, Failure(task.url, "unreadable", str(error)))
        if task.depth == 0:
            await self._widen(task.url)
        body = encode_page(response, reading)
        record = build_record(response, reading, task.depth, reading.links, when, body)
        if len(body) + sum(map(len, reading.links)) > LARGE_TEXT:
            await self._wait_for_room()
        return await self._put_page(task, record, body, saved=response.saved, old=old)

    async def _discard(self, response: Fetched | Failure) -> None:
        """Remove the file of a large body that is not kept."""
        if isinstance(response, Fetched) and response.saved:
            with suppress(StoreError):
                await self._pauses.until_store_answers(response.saved.place.discard)

    async def _put_page(
        self,
        task: Task,
        record: dict[str, Any],
        body: bytes | None = None,
        via: str = "",
        saved: Saved | None = None,
        old: dict[str, Any] | None = None,
    ) -> None:
        """Leave a page for the flush; its links are judged here, so it is noted as a page that is read."""
        if old is not None:
            return await self._revisits.keep(task, old, record, body, via, saved)
        return self._reader.noted(task, self._flush.put_page, task, record, body, via, saved)

    async def _wait_for_room(self) -> None:
        """Let a large page wait, and with it those that wait for its memory, while much is still to be written."""
        while self._flush.is_full:
            if self._ending.draining:
                raise Stopped
            await asyncio.sleep(ROOM_INTERVAL)

    async def _redirect(self, task: Task, response: Fetched, old: dict[str, Any] | None = None) -> None:
        """Keep a redirect: a page with one link, at the same depth; a seed's target is a seed too."""
        target = urls.normalize(response.location or "", task.url, self._settings.now.removed_parameters)
        if target is None:
            return await self._fail(task, Failure(task.url, "bad-redirect", response.location or ""))
        if target == task.url and self._may_come_with_cookie(task, response):
            return self._retry(task, Failure(task.url, "redirect-loop", "to itself, with a cookie"), 0.0)
        loop = self._loop(task, target)
        if loop:
            return await self._fail(task, Failure(task.url, "redirect-loop", loop))
        if task.depth == 0 and not task.level:
            await self._widen(task.url, target)
        record = build_record(response, None, task.depth, (target,), self._clock.time())
        return await self._put_page(task, record | {"url": task.subject}, via=extend(task.via, task.url), old=old)

    async def _widen(self, *found: str) -> None:
        """Widen the scope by seeds that it does not contain yet."""
        for url in self._seeds.beyond_scope(found):
            await self._pauses.until_store_answers(self._seeds.widen, url)

    def _loop(self, task: Task, target: str) -> str | None:
        """Return why a redirect is a loop: to itself, back to one that led here, or too many in a row."""
        if task.hops >= MAX_REDIRECTS:
            return f"more than {MAX_REDIRECTS} in a row"
        if target == task.url:
            return "to itself"
        return f"{BY_WAY_OF} {target}" if task.came_via(target) else None

    def _may_come_with_cookie(self, task: Task, response: Fetched) -> bool:
        """Whether a redirect to itself may bring the page once it is requested with the cookie that it has just set."""
        return self._settings.now.cookies and not task.attempt and "set-cookie" in response.headers

    async def _fail(self, task: Task, failure: Failure) -> None:
        """Retry later, or write a failure record."""
        if self._may_retry(task, failure):
            self._retry(task, failure)
        else:
            await self._put_failure(task, failure)

    async def _put_failure(self, task: Task, failure: Failure) -> None:
        """Leave a failure record for the flush; after a failed revisit the page stays, and its record says so."""
        if task.kind != REVISIT:
            self._flush.put_failure(task, failure)
        elif not await self._revisits.fail(task, failure):
            self._drop(task)

    def _may_retry(self, task: Task, failure: Failure) -> bool:
        return reasons.look_up(failure.reason).retry and task.attempt < self._settings.now.retries

    def _retry(self, task: Task, failure: Failure, first: float | None = None) -> None:
        first = self._settings.now.retry_delay if first is None else first
        wait = politeness.retry_after(task.attempt, first, failure.retry_after, self._random.random())
        later = task._replace(attempt=task.attempt + 1, due=self._clock.monotonic() + wait)
        self._flush.retry_later(later, failure)

    # ---- 8. when the host may be requested next

    def _rest(self, host: Host, response: Fetched | Failure | None, keeps_turn: bool = False) -> None:
        now = self._clock.monotonic()
        if response is None:
            return self._table.rest(host, now)
        delay = self._delay(host)
        pace = politeness.next_pace(host.strain, response, delay, now, self._random.random())
        return self._table.rest(
            host,
            pace.due,
            strain=pace.strain,
            lanes=self._lanes if delay == 0 and pace.strain == 0 else 1,
            pace=pace.due - now,
            answered=politeness.is_answer(response),
            keeps_turn=keeps_turn,
        )

    def _delay(self, host: Host) -> float:
        """Return a host's delay: ours, or the longer one of its robots.txt.

        Where a host is spread over several workers, each waits that many times longer.
        """
        settings = self._settings.now
        delay = delay_for(settings, host.name, host.robots_delay)
        return delay * self._shards.count_alive() if delay and settings.spread == "url" else delay


def _without_cookie(task: Task, response: Fetched | Failure) -> Failure:
    """Return why a URL is requested again, for the log."""
    reason = response.reason if isinstance(response, Failure) else f"http-{response.status}"
    return Failure(task.url, reason, "without a cookie that the host gives to others")
