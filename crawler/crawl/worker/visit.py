"""A worker: the life of a URL, walked by `threads` visitors, each a plain loop of blocking calls.

1. `frontier.take` gives the next URL of a host of ours that is due.
2. robots.txt allows it, or it is refused. (What crawl.yaml has come to exclude since it was found is left out before.)
3. `fetcher.get` asks once.
4. `parse.read` turns bytes into text, title and links.
5. `store.put_html` keeps the text.
6. `frontier.hand_over` gives the links in scope to their shards.
7. `store.put_record` says that it is done. (6 and 7 are flushed for a group of pages by `housekeeping`.)
8. `politeness` says when the host may be asked next.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from crawler import settings as config
from crawler.crawl.logs import log
from crawler.crawl.worker import pauses, politeness
from crawler.crawl.worker.desk import Done, Stopped
from crawler.crawl.worker.robots_cache import RobotsCache
from crawler.crawl.worker.upkeep import House
from crawler.errors import StoreError
from crawler.fetch.fetcher import Fetcher
from crawler.frontier.scope import Seeds
from crawler.frontier.table import Host
from crawler.frontier.task import BY_WAY_OF, Task, extend
from crawler.settings import Settings
from crawler.store.records import build_record, mark_of
from crawler.store.store import Store
from crawler.web import markup, reasons, sitemap, urls
from crawler.web.page import PRIORITY, REDIRECTS, Failure, Fetched
from crawler.web.robots import MAX_ROBOTS_BYTES, Rules, token

UNASKED = {"dns", "connect", "tls", "timeout"}  # what a request comes to that has no file descriptor
LARGE = 100_000  # bytes of a body; the tree of one may take fifty times as many, so these are read one at a time
NOT_YET = 1.0  # seconds until a folder that could not be seen is looked for again
HOPS = 20  # redirects in a row: as many as browsers follow


class Worker:
    """One process of a machine's pool: a full peer of every other worker on any machine."""

    def __init__(self, store: Store, house: House, seeds: Seeds) -> None:
        self.store = store
        self.house = house
        self.frontier = house.frontier
        self.seeds = seeds
        self.fetcher = Fetcher(replace(config.fetch_options(self.settings), kept=pauses.connections_for(house.threads)))
        house.let_go = self.fetcher.close_idle
        self.wants = wants(self.settings)
        self.robots_cache = RobotsCache(house, seeds, self._get_robots)
        house.survey.is_sought = self.robots_cache.is_sought
        self._reading = threading.Lock()  # held by who reads a large page

    @property
    def settings(self) -> Settings:
        """The settings as they are now."""
        return self.house.settings

    def run(self, threads: int) -> None:
        """Work until the house is closed: by the end of the crawl, a limit, a stop, or trouble."""
        visitors = [threading.Thread(target=self._visitor, args=(number,), daemon=True) for number in range(threads)]
        for visitor in visitors:
            visitor.start()
        try:
            self.house.keep()
        finally:
            self.fetcher.close()

    def _visitor(self, number: int) -> None:
        try:
            while not self.house.closed:
                taken = self.house.take(number)
                if taken is not None:
                    self._go(number, *taken)
        except Exception as error:  # noqa: BLE001 - a visitor must not end without a word (its own disk is full, say)
            self.house.fault = error

    def _go(self, number: int, task: Task, host: Host) -> None:
        try:
            self._visit_safely(task, host)
        except Stopped:
            self.frontier.table.put_back(task.url)
            self.frontier.table.rest(host.host, time.monotonic(), host.strain)
        except StoreError as error:
            self.frontier.table.put_back(task.url)
            self.house.fail(error)
        finally:
            self.house.finished(number)

    def _visit_safely(self, task: Task, host: Host) -> None:
        try:
            self.visit(task, host)
        except (Stopped, StoreError):
            raise
        except Exception:  # noqa: BLE001 - a fault of ours on one page must not end a crawl of millions
            self.house.check_descriptors()
            log.exception("a fault of the program on %s", task.url, extra={"event": "fault", "url": task.url})
            self.house.refuse(task, Failure(task.url, "fault", "see the log"))
            self._rest(host, Failure(task.url, "fault"))

    def visit(self, task: Task, host: Host) -> None:
        """The life of a URL, from taken to settled."""
        if not host.met and not self._meet(task, host):
            return None
        if urls.is_side_task(task.url):
            return self._run_errand(task, host)
        if self.seeds.leave_out(task):
            self.house.leave_out(task)
            return self._rest(host, None)
        rules = self.robots_cache.of(task)
        if rules is None:
            return self._ask_robots(task, host)
        if not rules.allow(urls.bare(task.url)):
            self.house.refuse(task, rules.why_not(task.url))
            return self._rest(host, None)
        answer = self._get(task.url)
        self._keep(task, answer)
        return self._rest(host, answer)

    def _get(self, url: str) -> Fetched | Failure:
        host = urls.host(url)
        self.house.be_sure()
        # A sitemap may be of any type, and of one that is too long the beginning is worth having.
        terms: dict[str, Any] = {"content_types": (), "cut": self.settings.max_size} if urls.sitemap_level(url) else {}
        headers, private = self.seeds.headers_for(url), self.seeds.names(host)
        return self._fairly(self.fetcher.get(url, headers=headers, private=private, **terms))

    def _get_robots(self, url: str) -> Fetched | Failure:
        self.house.be_sure()
        private = self.seeds.names(urls.host(url))
        return self._fairly(self.fetcher.get(url, private=private, content_types=(), cut=MAX_ROBOTS_BYTES))

    def _fairly(self, answer: Fetched | Failure) -> Fetched | Failure:
        """An answer, unless nothing was asked because we could open no connection: then the URL goes back."""
        if isinstance(answer, Failure) and answer.reason in UNASKED:
            self.house.check_descriptors()
        return answer

    # ---- 2. what the host allows

    def _meet(self, task: Task, host: Host) -> bool:
        """Meet a host that comes up for the first time, by what is settled of it; True if it may be asked at once.

        If somebody may have asked it before, a listing tells, and it rests for one delay: perhaps they asked just now.
        """
        settled = self.house.retry_until_store_answers(self.store.done_by_others, host.host, host.past)
        if settled is None:
            due = time.monotonic() + NOT_YET
        else:
            kept = self.house.retry_until_store_answers(self.store.kept, host.host) if settled else 0
            is_met = self.frontier.meet(host.host, settled, kept, host.gains)
            due = self._first_due(task, host)
            if is_met and not settled and due <= time.monotonic():
                return True
        self.frontier.table.put_back(task.url)
        self.frontier.table.rest(host.host, due, host.strain)
        return False

    def _first_due(self, task: Task, host: Host) -> float:
        """When a host may be asked for the first time by us: as its last owner would have, as far as we can know."""
        now = time.monotonic()
        taken_over = self.frontier.taken_over(task.url)
        retry = self.frontier.table.next_retry(host.host)  # perhaps all that came of what others asked
        if self.settings.spread == "url" or not (host.past or taken_over or retry):
            return now
        self.robots_cache.of(task)  # learns the crawl-delay that its last owner kept
        due = (now if host.past or retry else taken_over) + self._delay(host.host)
        return max(due, min(retry, now + self.settings.max_delay))

    def _ask_robots(self, task: Task, host: Host) -> None:
        """Ask for robots.txt in a URL's turn: it comes through the host's own pace, and the URL waits for its next."""
        answer = self.robots_cache.ask(task)
        if isinstance(answer, float):
            self.frontier.table.put_back(task.url)
            return self.frontier.table.rest(host.host, time.monotonic() + answer, host.strain)
        if isinstance(answer, Failure) and not self._has_rules(host.host):
            self._fail(task, answer)
        else:
            self.frontier.table.put_back(task.url)
        return self._rest(host, answer)

    def _has_rules(self, host: str) -> bool:
        """Whether there are rules to go by, though robots.txt could not be had just now: an old copy's."""
        return isinstance(self.robots_cache.known(host), Rules)

    def _run_errand(self, task: Task, host: Host) -> None:
        """Do what an operator or another host has sent us for."""
        refused = urls.retry_task_url(task.url)
        if refused is None:
            return self._bring_robots(task, host)
        self._take_back(task, refused)
        return self._rest(host, None)

    def _take_back(self, task: Task, url: str) -> None:
        """Have a refused URL asked again; but not if it was, and is refused anew: that is not what was meant."""
        refusal = self.house.retry_until_store_answers(self.store.refusal, url)
        if refusal and urls.as_retry_task(url, mark_of(refusal)) != task.url:
            return self.house.dismiss(task)
        if refusal:
            self.robots_cache.reconsider(urls.host(url), refusal)
        return self.house.ask_again(task, url, refusal)

    def _bring_robots(self, task: Task, host: Host) -> None:
        """Ask a host of ours for the robots.txt of another one, which it is said to have."""
        if self.robots_cache.is_delivered(task):
            self.house.dismiss(task)
            return self._rest(host, None)
        self.robots_cache.leave_a_trace(host.host)
        answer = self._get_robots(task.url)
        if isinstance(answer, Failure) and self._may_pass(task, answer):
            self._again(task, answer)
        else:
            self.robots_cache.deliver(task, answer)
            self.house.dismiss(task)
        return self._rest(host, answer)

    # ---- 4 to 7. what the answer brings

    def _keep(self, task: Task, answer: Fetched | Failure) -> None:
        """Keep a page: its html, then its links handed over, then its record."""
        if isinstance(answer, Failure):
            return self._fail(task, answer)
        is_redirect = answer.status in REDIRECTS
        if is_redirect and self._may_come_with_cookie(task, answer):
            return self._again(task, Failure(task.url, "redirect-loop", "to itself, with a cookie"), 0.0)
        record = self._redirect(task, answer) if is_redirect else self._read(task, answer)
        if isinstance(record, Failure):
            return self._fail(task, record)
        self.frontier.hand_over(self.seeds.follow(record, extend(task.via, task.url) if is_redirect else ""))
        self.house.done(Done(task, record, len(answer.body)))
        return None

    def _read(self, task: Task, answer: Fetched) -> dict[str, Any] | Failure:
        """Read a page, keep its text, and give its record; of a sitemap nothing but the record is kept."""
        when = time.time()
        try:
            with self._reading if len(answer.body) > LARGE else nullcontext():
                if urls.sitemap_level(task.url):
                    return self._read_sitemap(task, answer)
                reading = markup.read(answer, self.wants)
        except markup.Unreadable as error:
            return Failure(task.url, "unreadable", str(error))
        self.house.retry_until_store_answers(self.store.put_html, task.url, reading.text)
        if task.depth == 0:
            self.house.retry_until_store_answers(self.seeds.widen, [task.url])
        return build_record(answer, reading, task.depth, reading.links, when)

    def _read_sitemap(self, task: Task, answer: Fetched) -> dict[str, Any]:
        found = sitemap.read(answer.body, answer.content_type, urls.bare(task.url), self.wants.tracking)
        record = build_record(answer, None, task.depth, found.links, time.time())
        said = {"priorities": list(found.priorities)} if set(found.priorities) - {PRIORITY} else {}
        return record | {"capped": found.capped, "sitemap": found.kind} | said

    def _redirect(self, task: Task, answer: Fetched) -> dict[str, Any] | Failure:
        """The record of a redirect: a link at the same depth, and of a seed it is a seed."""
        target = urls.normalize(answer.location or "", urls.bare(task.url), self.settings.tracking)
        if target is None:
            return Failure(task.url, "bad-redirect", answer.location or "")
        loop = self._loop(task, target)
        if loop:
            return Failure(task.url, "redirect-loop", loop)
        if task.depth == 0 and not urls.sitemap_level(task.url):
            self.house.retry_until_store_answers(self.seeds.widen, [task.url, target])
        return build_record(answer, None, task.depth, (target,), time.time())

    def _loop(self, task: Task, target: str) -> str | None:
        """Why a redirect leads nowhere: to itself, back to one that led here, or too many in a row."""
        if task.hops >= HOPS:
            return f"more than {HOPS} in a row"
        if target == urls.bare(task.url):
            return "to itself"
        return f"{BY_WAY_OF} {target}" if task.came_via(target) else None

    def _may_come_with_cookie(self, task: Task, answer: Fetched) -> bool:
        """Whether a page that leads to itself will be there when it is asked with the cookie that it has just set."""
        if not self.settings.cookies or task.attempt or "set-cookie" not in answer.headers:
            return False
        return urls.normalize(answer.location or "", task.url, self.settings.tracking) == task.url

    def _fail(self, task: Task, failure: Failure) -> None:
        """Ask again later, or refuse for good."""
        if self._may_pass(task, failure):
            self._again(task, failure)
        else:
            self.house.refuse(task, failure)

    def _may_pass(self, task: Task, failure: Failure) -> bool:
        return reasons.look_up(failure.reason).retry and task.attempt < self.settings.retries

    def _again(self, task: Task, failure: Failure, first: float | None = None) -> None:
        first = self.settings.retry_delay if first is None else first
        wait = politeness.retry_after(task.attempt, first, failure.retry_after, random.random())
        self.house.again(task._replace(attempt=task.attempt + 1, due=time.monotonic() + wait), failure)

    # ---- 8. when the host may be asked next

    def _rest(self, host: Host, answer: Fetched | Failure | None) -> None:
        now = time.monotonic()
        if answer is None:
            self.frontier.table.rest(host.host, now, host.strain)
            return
        delay = self._delay(host.host)
        pace = politeness.next_pace(host.strain, answer, delay, now, random.random())
        lanes = self.house.threads if delay == 0 and pace.strain == 0 else 1
        self.frontier.table.rest(host.host, pace.due, pace.strain, lanes, pace.due - now)

    def _delay(self, host: str) -> float:
        """The delay of a host: ours, or a longer one that its robots.txt asks for.

        Where a host is split over workers, each waits as much longer as there are of them.
        """
        rules = self.robots_cache.known(host)
        delay = config.delay_for(self.settings, host, rules.delay if rules else 0.0)
        return delay if self.settings.spread == "host" else delay * self.house.shards.crowd_at_work()


def wants(settings: Settings) -> markup.Wants:
    """The settings that concern the reading of a page."""
    return markup.Wants(
        parser=settings.parser,
        follow=settings.follow,
        nofollow=settings.nofollow,
        tracking=frozenset(settings.tracking),
        token=token(settings.user_agent),
    )
