"""A worker: the life of a URL, walked by `threads` visitors, each a plain loop of blocking calls.

1. `frontier.take` gives the next URL of a host of ours that is due.
2. robots.txt allows it, or it is refused.
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
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from crawler import config, parse, politeness, reasons, urls
from crawler.config import Settings
from crawler.desk import Done, Stopped
from crawler.errors import StoreError
from crawler.fetch import Fetcher
from crawler.housekeeping import House
from crawler.logs import log
from crawler.records import REDIRECTS, Failure, Page, Reading, Try
from crawler.robots import LONGEST, Rules
from crawler.seeds import Seeds
from crawler.store import Robots, Store, build_record
from crawler.table import Host

REMEMBERED = 2000  # hosts whose rules are kept in memory
ROBOTS_AGE = 24 * 3600.0
HOPS = 5  # redirects of a robots.txt that are followed
FREELY = Rules(b"", "*")
LARGE = 100_000  # bytes of a body; the tree of one may take fifty times as many, so these are read one at a time
NOT_YET = 1.0  # seconds until a folder that could not be seen is looked for again


@dataclass(frozen=True, slots=True)
class Down:
    """The rules of a host that is given up: nothing may be asked, for this reason."""

    failure: Failure

    def allow(self, url: str) -> bool:
        """Whether we may ask this URL: no."""
        return False

    def why_not(self, url: str) -> Failure:
        """Why a URL of this host is refused."""
        return replace(self.failure, url=url)


class Worker:
    """One process of a machine's pool: a full peer of every other worker on any machine."""

    def __init__(self, store: Store, settings: Settings, house: House, seeds: Seeds) -> None:
        self.store = store
        self.settings = settings
        self.house = house
        self.frontier = house.frontier
        self.seeds = seeds
        self.fetcher = Fetcher(config.terms(settings))
        self.wants = wants(settings)
        self._rules: OrderedDict[str, tuple[Rules | Down, float]] = OrderedDict()
        self._down: OrderedDict[str, int] = OrderedDict()  # how often a host's robots.txt could not be had
        self._lock = threading.Lock()
        # One at a time, and by one thread: the memory that a thread's pages took stays with the thread.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="large pages")

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

    def _go(self, number: int, task: Try, host: Host) -> None:
        try:
            self._visit_safely(task, host)
        except Stopped:
            self.frontier.table.put_back(task.url)
            self.frontier.table.rest(host.host, time.monotonic(), host.strain)
        except StoreError as error:
            self.frontier.table.put_back(task.url)
            self.house.fail(error)
        finally:
            self.house.landed(number)

    def _visit_safely(self, task: Try, host: Host) -> None:
        try:
            self.visit(task, host)
        except (Stopped, StoreError):
            raise
        except Exception:  # noqa: BLE001 - a fault of ours on one page must not end a crawl of millions
            log.exception("a fault of the program on %s", task.url, extra={"event": "fault", "url": task.url})
            self.house.refuse(task, Failure(task.url, "fault", "see the log"))
            self._rest(host, FREELY, Failure(task.url, "fault"))

    def visit(self, task: Try, host: Host) -> None:
        """The life of a URL, from taken to settled."""
        if not host.met:
            return self._meet(task, host)
        answer: Page | Failure | None = None
        rules = self._rules_of(task, host.host)
        if isinstance(rules, Page):  # robots.txt was asked for just now, in this URL's place
            self.frontier.table.put_back(task.url)
            answer, rules = rules, self._known_rules(host.host)
        elif isinstance(rules, Failure):
            self._fail(task, rules)
            answer = rules
        elif not rules.allow(task.url):
            self.house.refuse(task, rules.why_not(task.url))
        else:
            answer = self._get(task.url)
            self._keep(task, answer)
        return self._rest(host, rules, answer)

    def _get(self, url: str) -> Page | Failure:
        host = urls.host(url)
        self.house.be_sure()
        return self.fetcher.get(url, headers=self.seeds.headers_for(url), private=self.seeds.names(host))

    # ---- 2. what the host allows

    def _meet(self, task: Try, host: Host) -> None:
        """Meet a host that comes up for the first time: a listing says what is settled of it.

        If somebody may have asked it before, it rests for one delay first: perhaps they asked a moment ago.
        """
        table = self.frontier.table
        settled = self.house.insist(self.store.settled_by_others, host.host, host.past)
        if settled is None:
            table.put_back(task.url)
            return table.rest(host.host, time.monotonic() + NOT_YET, host.strain)
        kept = self.house.insist(self.store.pages, host.host) if settled else 0
        self.frontier.meet(host.host, settled, kept, host.gains)
        table.put_back(task.url)
        return table.rest(host.host, self._first_due(task.url, host), host.strain)

    def _first_due(self, url: str, host: Host) -> float:
        """When a host may be asked for the first time by us: as its last owner would have, as far as we can know."""
        now = time.monotonic()
        taken_over = self.frontier.taken_over(url)
        retry = self.frontier.table.next_retry(host.host)  # perhaps all that came of what others asked
        if self.settings.spread == "url" or not (host.past or taken_over or retry):
            return now
        known = self.house.insist(self.store.robots, host.host) if self.settings.robots else None
        delay = self._delay(self._remember(host.host, known) if known else FREELY)
        due = (now if host.past or retry else taken_over) + delay
        return max(due, min(retry, now + self.settings.max_delay))

    def _rules_of(self, task: Try, host: str) -> Rules | Down | Page | Failure:
        """The host's rules; or what came when its robots.txt was asked for just now."""
        if not self.settings.robots:
            return FREELY
        with self._lock:
            rules, read = self._rules.get(host, (None, 0.0))
        if rules is None or time.time() - read > ROBOTS_AGE:
            known = self.house.insist(self.store.robots, host)
            if known is None or time.time() - known.read > ROBOTS_AGE:
                return self._ask_robots(task, host)
            rules = self._remember(host, known)
        return rules

    def _known_rules(self, host: str) -> Rules | Down:
        with self._lock:
            return self._rules.get(host, (FREELY, 0.0))[0]

    def _ask_robots(self, task: Try, host: str) -> Page | Failure:
        """Ask for robots.txt in the URL's place: it comes through the host's own pace, so the URL waits its turn.

        No answer, no page: then the URL has failed as its robots.txt did.
        """
        answer = self._follow(urls.spell("/robots.txt", task.url) or task.url)
        if isinstance(answer, Failure):
            if not answer.reason.startswith("http-4") or reasons.look_up(answer.reason).again:
                return self._host_is_down(task, host, answer)
            answer = Page(answer.url, int(answer.reason.removeprefix("http-")))
        robots = Robots(time.time(), answer.status, answer.body)
        self.house.insist(self.store.put_robots, host, robots)
        self._remember(host, robots)
        return answer

    def _follow(self, url: str) -> Page | Failure:
        for _ in range(HOPS + 1):
            self.house.be_sure()
            answer = self.fetcher.get(url, private=self.seeds.names(urls.host(url)), types=(), cut=LONGEST)
            if isinstance(answer, Failure) or answer.location is None:
                return answer
            target = urls.spell(answer.location, url)
            if target is None:
                break
            url = target
            time.sleep(self.settings.delay)  # the next hop may be the same host
        return Page(url, 404)  # a chain without an end says no more than no file does

    def _host_is_down(self, task: Try, host: str, answer: Failure) -> Failure:
        """After as many tries as a URL has, the host is given up: its other URLs are refused without asking."""
        failure = Failure(task.url, answer.reason, f"robots.txt: {answer.detail}", answer.retry_after)
        with self._lock:
            tries = self._down[host] = self._down.pop(host, 0) + 1
            if len(self._down) > REMEMBERED:
                self._down.popitem(last=False)
            if tries > self.settings.retries:
                self._note_rules(host, Down(failure), time.time())
        return failure

    def _remember(self, host: str, robots: Robots) -> Rules:
        rules = Rules(robots.body, self.settings.user_agent)
        with self._lock:
            self._down.pop(host, None)
            self._note_rules(host, rules, robots.read)
        return rules

    def _note_rules(self, host: str, rules: Rules | Down, read: float) -> None:
        self._rules[host] = rules, read
        if len(self._rules) > REMEMBERED:
            self._rules.popitem(last=False)

    # ---- 4 to 7. what the answer brings

    def _keep(self, task: Try, answer: Page | Failure) -> None:
        """Keep a page: its html, then its links handed over, then its record."""
        when = time.time()
        if isinstance(answer, Failure):
            return self._fail(task, answer)
        reading: Reading | None = None
        if answer.status in REDIRECTS:
            target = urls.spell(answer.location or "", task.url, self.settings.tracking)
            if target is None:
                return self._fail(task, Failure(task.url, "bad-redirect", answer.location or ""))
            links: tuple[str, ...] = (target,)
        else:
            try:
                if len(answer.body) > LARGE:
                    reading = self._reader.submit(self._read, answer).result()
                else:
                    reading = self._read(answer)
            except parse.Unreadable as error:
                return self._fail(task, Failure(task.url, "unreadable", str(error)))
            links = reading.links
        self.frontier.hand_over(self._in_scope(task, links, redirect=reading is None))
        record = build_record(answer, reading, task.depth, links, when)
        self.house.done(Done(task, record, len(answer.body)))
        return None

    def _read(self, page: Page) -> Reading:
        """Read a page and keep its text, which nobody needs in memory from then on."""
        reading = parse.read(page, self.wants)
        self.house.insist(self.store.put_html, page.url, reading.text)
        return replace(reading, text="")

    def _in_scope(self, task: Try, links: Iterable[str], redirect: bool) -> list[Try]:
        """The links that the crawl follows; a redirect is a link at the same depth, and of a seed it is a seed."""
        depth = task.depth if redirect else task.depth + 1
        if self.settings.depth is not None and depth > self.settings.depth:
            return []
        if task.depth == 0:
            self.house.insist(self.seeds.widen, [task.url, *(links if redirect else ())])
        return [Try(link, depth) for link in links if self.seeds.scope.admits(link)]

    def _fail(self, task: Try, failure: Failure) -> None:
        """Ask again later, or refuse for good."""
        if reasons.look_up(failure.reason).again and task.attempt < self.settings.retries:
            wait = politeness.retry_after(task.attempt, self.settings.retry_delay, failure.retry_after, random.random())
            self.house.again(Try(task.url, task.depth, task.attempt + 1, time.monotonic() + wait), failure)
        else:
            self.house.refuse(task, failure)

    # ---- 8. when the host may be asked next

    def _rest(self, host: Host, rules: Rules | Down | Page | Failure, answer: Page | Failure | None) -> None:
        delay = self._delay(rules)
        now = time.monotonic()
        if answer is None:
            self.frontier.table.rest(host.host, now, host.strain)
            return
        pace = politeness.next_pace(host.strain, answer, delay, now, random.random())
        lanes = self.house.threads if delay == 0 and pace.strain == 0 else 1
        self.frontier.table.rest(host.host, pace.due, pace.strain, lanes)

    def _delay(self, rules: Rules | Down | Page | Failure) -> float:
        wanted = rules.delay if isinstance(rules, Rules) else 0.0
        return max(self.settings.delay, min(wanted, self.settings.max_delay))


def wants(settings: Settings) -> parse.Wants:
    """The settings that concern the reading of a page."""
    return parse.Wants(
        parser=settings.parser,
        follow=settings.follow,
        nofollow=settings.nofollow,
        tracking=frozenset(settings.tracking),
    )
