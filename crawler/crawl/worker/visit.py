"""A worker: the life of a URL, run by `threads` request slots, each a plain loop of blocking calls.

1. `frontier.take` gives the next task of a due host.
2. robots.txt allows it, or it is excluded. (What an edit of crawl.yaml excludes is skipped before.)
3. `fetcher.get` requests once: a page or a failure.
4. `markup.read` turns bytes into text, title and links.
5. `store.put_html`.
6. `frontier.hand_over` of the links in scope.
7. `store.put_record`: done. (6 and 7 are flushed for a group of pages by `upkeep`.)
8. `politeness` says when the host may be requested next.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from crawler.crawl.logs import log
from crawler.crawl.worker import pauses, politeness
from crawler.crawl.worker.desk import Done, Stopped
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.crawl.worker.upkeep import Upkeep
from crawler.errors import StoreError
from crawler.fetch.fetcher import Fetcher
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import BY_WAY_OF, RETRY, Task, extend, retry_task
from crawler.settings import Settings, delay_for, fetch_options
from crawler.store.records import build_record, mark_of
from crawler.store.writer import StoreWriter
from crawler.web import markup, reasons, sitemap, urls
from crawler.web.page import PRIORITY, REDIRECTS, Failure, Fetched
from crawler.web.robots import MAX_ROBOTS_BYTES, Rules, token

NO_DESCRIPTOR = {"dns", "connect", "tls", "timeout"}  # reasons that a lack of file descriptors may look like
LARGE_BODY = 100_000  # bytes; parsing may take fifty times as much memory, so larger ones are read one at a time
LISTING_RETRY = 1.0  # seconds until a host's folder that could not be listed is listed again
MAX_REDIRECTS = 20  # in a row: as many as browsers follow


class Worker:
    """One process of a machine; a peer of all workers on all machines."""

    def __init__(self, store: StoreWriter, upkeep: Upkeep, seeds: Seeds) -> None:
        self.store = store
        self.upkeep = upkeep
        self.frontier = upkeep.frontier
        self.seeds = seeds
        self.fetcher = Fetcher(replace(fetch_options(self.settings), kept=pauses.connections_for(upkeep.threads)))
        upkeep.release_descriptors = self.fetcher.close_idle
        self.read_options = read_options(self.settings)
        self.robots_cache = RobotsCache(upkeep, seeds, self._get_robots)
        upkeep.survey.is_sought = self.robots_cache.is_pending
        self._reading = threading.Lock()  # held while a large page is parsed

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self.upkeep.settings

    def run(self, threads: int) -> None:
        """Work until upkeep closes: at the end of the crawl, a limit, a stop or an error."""
        for slot in range(threads):
            threading.Thread(target=self._run_slot, args=(slot,), daemon=True).start()
        try:
            self.upkeep.run()
        finally:
            self.fetcher.close()

    def _run_slot(self, slot: int) -> None:
        try:
            while not self.upkeep.closed:
                taken = self.upkeep.take(slot)
                if taken is not None:
                    self._run_task(slot, *taken)
        except Exception as error:  # noqa: BLE001 - a slot must not end silently (the local disk is full, say)
            self.upkeep.fault = error

    def _run_task(self, slot: int, task: Task, host: Host) -> None:
        try:
            self._visit_safely(task, host)
        except Stopped:
            self.frontier.table.put_back(task)
            self.frontier.table.rest(host.host, time.monotonic(), host.strain)
        except StoreError as error:
            self.frontier.table.put_back(task)
            self.upkeep.fail(error)
        finally:
            self.upkeep.finished(slot)

    def _visit_safely(self, task: Task, host: Host) -> None:
        try:
            self.visit(task, host)
        except (Stopped, StoreError):
            raise
        except Exception:  # noqa: BLE001 - a bug on one page must not end a crawl of millions
            self.upkeep.check_descriptors()
            log.exception("bug in the crawler on %s", task.name, extra={"event": "fault", "url": task.name})
            self.upkeep.put_failure(task, Failure(task.url, "fault", "see the log"))
            self._rest(host, Failure(task.url, "fault"))

    def visit(self, task: Task, host: Host) -> None:
        """The life of a URL, from taken to done."""
        if not host.met and not self._meet(task, host):
            return None
        if task.is_side_task:
            return self._run_side_task(task, host)
        if self.seeds.leave_out(task):
            self.upkeep.skip(task)
            return self._rest(host, None)
        rules = self.robots_cache.of(task)
        if rules is None:
            return self._request_robots(task, host)
        if not rules.allow(task.url):
            self.upkeep.put_failure(task, rules.why_not(task.url))
            return self._rest(host, None)
        response = self._get(task)
        self._keep(task, response)
        return self._rest(host, response)

    def _get(self, task: Task) -> Fetched | Failure:
        self.upkeep.check_ownership()
        # A sitemap may have any content type, and the beginning of one that is too long is still useful.
        limits: dict[str, Any] = {"content_types": (), "cut": self.settings.max_size} if task.level else {}
        headers, private = self.seeds.headers_for(task.url), self.seeds.names(task.host)
        return self._check_descriptors(self.fetcher.get(task.url, headers=headers, private=private, **limits))

    def _get_robots(self, url: str) -> Fetched | Failure:
        self.upkeep.check_ownership()
        private = self.seeds.names(urls.host(url))
        return self._check_descriptors(self.fetcher.get(url, private=private, content_types=(), cut=MAX_ROBOTS_BYTES))

    def _check_descriptors(self, response: Fetched | Failure) -> Fetched | Failure:
        """Return the response, unless the request failed because we could open no socket: then the task goes back."""
        if isinstance(response, Failure) and response.reason in NO_DESCRIPTOR:
            self.upkeep.check_descriptors()
        return response

    # ---- 2. what the host allows

    def _meet(self, task: Task, host: Host) -> bool:
        """Load what is done of a host that is new to us; True if it may be requested at once.

        If another worker may have requested it, it rests for one delay, because that may have been just now.
        """
        done = self.upkeep.retry_until_store_answers(self.store.done_by_others, host.host, host.past)
        if done is None:
            due = time.monotonic() + LISTING_RETRY
        else:
            kept = self.upkeep.retry_until_store_answers(self.store.count_pages, host.host) if done else 0
            is_met = self.frontier.meet(host.host, done, kept, host.gains)
            due = self._first_due(task, host)
            if is_met and not done and due <= time.monotonic():
                return True
        self.frontier.table.put_back(task)
        self.frontier.table.rest(host.host, due, host.strain)
        return False

    def _first_due(self, task: Task, host: Host) -> float:
        """Return when we may first request a host: when its last owner would have, as far as we can know."""
        now = time.monotonic()
        taken_over = self.frontier.taken_over(task)
        retry = self.frontier.table.next_retry(host.host)  # perhaps the only trace of requests by others
        if self.settings.spread == "url" or not (host.past or taken_over or retry):
            return now
        self.robots_cache.of(task)  # loads the crawl-delay that its last owner kept
        due = (now if host.past or retry else taken_over) + self._delay(host.host)
        return max(due, min(retry, now + self.settings.max_delay))

    def _request_robots(self, task: Task, host: Host) -> None:
        """Request robots.txt in a URL's turn, so that the host's pace holds; the URL waits for the next turn."""
        response = self.robots_cache.request(task)
        if isinstance(response, float):
            self.frontier.table.put_back(task)
            return self.frontier.table.rest(host.host, time.monotonic() + response, host.strain)
        if isinstance(response, Failure) and not self._has_rules(host.host):
            self._fail(task, response)
        else:
            self.frontier.table.put_back(task)
        return self._rest(host, response)

    def _has_rules(self, host: str) -> bool:
        """Whether an old copy of robots.txt can be used although the request for a new one failed."""
        return isinstance(self.robots_cache.known(host), Rules)

    def _run_side_task(self, task: Task, host: Host) -> None:
        """Run a task that brings no page: a retry by an operator, or the robots.txt of another host."""
        if task.kind != RETRY:
            return self._run_robots_task(task, host)
        self._run_retry_task(task)
        return self._rest(host, None)

    def _run_retry_task(self, task: Task) -> None:
        """Queue a URL with a failure record again, unless it was retried since and has a new failure record."""
        failure = self.upkeep.retry_until_store_answers(self.store.failure, task.subject)
        if failure and retry_task(task.subject, mark_of(failure)).name != task.name:
            return self.upkeep.drop(task)
        if failure:
            self.robots_cache.reconsider(task.host, failure)
        return self.upkeep.retry(task, failure)

    def _run_robots_task(self, task: Task, host: Host) -> None:
        """Request the robots.txt that another host redirected to a host of ours."""
        if self.robots_cache.is_delivered(task):
            self.upkeep.drop(task)
            return self._rest(host, None)
        self.robots_cache.note_request(host.host)
        response = self._get_robots(task.url)
        if isinstance(response, Failure) and self._may_retry(task, response):
            self._retry(task, response)
        else:
            self.robots_cache.deliver(task, response)
            self.upkeep.drop(task)
        return self._rest(host, response)

    # ---- 4 to 7. what the response brings

    def _keep(self, task: Task, response: Fetched | Failure) -> None:
        """Keep a page: put its html, hand over its links, then queue its record."""
        if isinstance(response, Failure):
            return self._fail(task, response)
        is_redirect = response.status in REDIRECTS
        if is_redirect and self._may_come_with_cookie(task, response):
            return self._retry(task, Failure(task.url, "redirect-loop", "to itself, with a cookie"), 0.0)
        record = self._redirect(task, response) if is_redirect else self._read(task, response)
        if isinstance(record, Failure):
            return self._fail(task, record)
        record["url"] = task.name  # for a sitemap more than what was requested
        self.frontier.hand_over(self.seeds.follow(record, extend(task.via, task.url) if is_redirect else ""))
        self.upkeep.done(Done(task, record, len(response.body)))
        return None

    def _read(self, task: Task, response: Fetched) -> dict[str, Any] | Failure:
        """Read a page, put its html and return its record; a sitemap has only a record."""
        when = time.time()
        try:
            with self._reading if len(response.body) > LARGE_BODY else nullcontext():
                if task.level:
                    return self._read_sitemap(task, response)
                reading = markup.read(response, self.read_options)
        except markup.Unreadable as error:
            return Failure(task.url, "unreadable", str(error))
        self.upkeep.retry_until_store_answers(self.store.put_html, task.url, reading.text)
        if task.depth == 0:
            self.upkeep.retry_until_store_answers(self.seeds.widen, [task.url])
        return build_record(response, reading, task.depth, reading.links, when)

    def _read_sitemap(self, task: Task, response: Fetched) -> dict[str, Any]:
        found = sitemap.read(response.body, response.content_type, task.url, self.read_options.tracking)
        record = build_record(response, None, task.depth, found.links, time.time())
        priorities = {"priorities": list(found.priorities)} if set(found.priorities) - {PRIORITY} else {}
        return record | {"capped": found.capped, "sitemap": found.kind} | priorities

    def _redirect(self, task: Task, response: Fetched) -> dict[str, Any] | Failure:
        """Return the record of a redirect: a page with one link, at the same depth; a seed's target is a seed too."""
        target = urls.normalize(response.location or "", task.url, self.settings.tracking)
        if target is None:
            return Failure(task.url, "bad-redirect", response.location or "")
        loop = self._loop(task, target)
        if loop:
            return Failure(task.url, "redirect-loop", loop)
        if task.depth == 0 and not task.level:
            self.upkeep.retry_until_store_answers(self.seeds.widen, [task.url, target])
        return build_record(response, None, task.depth, (target,), time.time())

    def _loop(self, task: Task, target: str) -> str | None:
        """Return why a redirect is a loop: to itself, back to one that led here, or too many in a row."""
        if task.hops >= MAX_REDIRECTS:
            return f"more than {MAX_REDIRECTS} in a row"
        if target == task.url:
            return "to itself"
        return f"{BY_WAY_OF} {target}" if task.came_via(target) else None

    def _may_come_with_cookie(self, task: Task, response: Fetched) -> bool:
        """Whether a redirect to itself may bring the page once it is requested with the cookie that it has just set."""
        if not self.settings.cookies or task.attempt or "set-cookie" not in response.headers:
            return False
        return urls.normalize(response.location or "", task.url, self.settings.tracking) == task.url

    def _fail(self, task: Task, failure: Failure) -> None:
        """Retry later, or write a failure record."""
        if self._may_retry(task, failure):
            self._retry(task, failure)
        else:
            self.upkeep.put_failure(task, failure)

    def _may_retry(self, task: Task, failure: Failure) -> bool:
        return reasons.look_up(failure.reason).retry and task.attempt < self.settings.retries

    def _retry(self, task: Task, failure: Failure, first: float | None = None) -> None:
        first = self.settings.retry_delay if first is None else first
        wait = politeness.retry_after(task.attempt, first, failure.retry_after, random.random())
        self.upkeep.retry_later(task._replace(attempt=task.attempt + 1, due=time.monotonic() + wait), failure)

    # ---- 8. when the host may be requested next

    def _rest(self, host: Host, response: Fetched | Failure | None) -> None:
        now = time.monotonic()
        if response is None:
            self.frontier.table.rest(host.host, now, host.strain)
            return
        delay = self._delay(host.host)
        pace = politeness.next_pace(host.strain, response, delay, now, random.random())
        lanes = self.upkeep.threads if delay == 0 and pace.strain == 0 else 1
        self.frontier.table.rest(host.host, pace.due, pace.strain, lanes, pace.due - now)

    def _delay(self, host: str) -> float:
        """Return a host's delay: ours, or the longer one of its robots.txt.

        Where a host is spread over several workers, each waits that many times longer.
        """
        rules = self.robots_cache.known(host)
        delay = delay_for(self.settings, host, rules.delay if rules else 0.0)
        return delay if self.settings.spread == "host" else delay * self.upkeep.shards.count_alive()


def read_options(settings: Settings) -> markup.Wants:
    """Return the settings that concern the reading of a page."""
    return markup.Wants(
        parser=settings.parser,
        follow=settings.follow,
        nofollow=settings.nofollow,
        tracking=frozenset(settings.tracking),
        token=token(settings.user_agent),
    )
