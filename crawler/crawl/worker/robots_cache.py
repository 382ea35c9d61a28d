"""What each host allows: its robots.txt, asked for in the turn of one of its URLs and remembered for a day.

By RFC 9309: 2xx is read, a redirect is followed (five at most), 4xx means that there are no rules, and 5xx or no answer
means hands off and try again later. 408 and 429 ask us to come again, and so they count with the latter.

A redirect to another host is an *errand*: a waiting URL that the owner of that host asks for in its turn, so that no
host is ever asked outside its own pace. What it brings is left in robots/<host>, where we look for it.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from crawler import settings as config
from crawler.crawl.worker import politeness
from crawler.crawl.worker.desk import Desk
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task, count, extend
from crawler.settings import Settings
from crawler.store.records import from_utc
from crawler.store.store import Robots
from crawler.web import reasons, urls
from crawler.web.page import REDIRECTS, Failure, Fetched
from crawler.web.robots import Rules

REMEMBERED = 2000  # hosts whose rules are kept in memory
UNDER_WAY = 50_000  # hosts whose robots.txt is being looked for: who forgets one asks it again
HEAVY = 128 << 20  # bytes that they may take together
AGE = 24 * 3600.0
HOUR = 3600.0
HOPS = 5  # redirects of a robots.txt that are followed
UNREACHABLE = 503  # what is noted of a robots.txt on another host that could not be had
ROBOTS = "robots.txt:"  # how a refusal's detail begins that is for want of one
FREELY = Rules(b"", "*")
Noted = TypeVar("Noted")


@dataclass(frozen=True, slots=True)
class Down:
    """The rules of a host that is given up: nothing may be asked, for this reason."""

    failure: Failure
    delay = 0.0
    weight = 0

    def allow(self, url: str) -> bool:
        """Whether we may ask this URL: no."""
        return False

    def why_not(self, url: str) -> Failure:
        """Why a URL of this host is refused."""
        return replace(self.failure, url=url)


@dataclass(frozen=True, slots=True)
class Step:
    """Where a host's robots.txt has led us so far."""

    url: str  # to be asked next
    via: str = ""  # the redirects on this host that led to it
    sent: float = 0.0  # when another host was sent for it (monotonic)

    def wait(self, now: float) -> float:
        """Seconds until we look again for what an errand brings: seldom, when it takes long."""
        waited = now - self.sent
        return max(1.0, min(waited / 4, 60.0)) if waited < HOUR else 0.0


class RobotsCache:
    """The rules of the hosts that a worker asks, and how it comes by them."""

    def __init__(self, desk: Desk, seeds: Seeds, get: Callable[[str], Fetched | Failure]) -> None:
        self.desk, self.store, self.frontier, self.seeds = desk, desk.store, desk.frontier, seeds
        self._get = get  # asks for a robots.txt
        self._rules: OrderedDict[str, tuple[Rules | Down, float]] = OrderedDict()
        self._steps: OrderedDict[str, Step] = OrderedDict()
        self._weight = 0
        self._failed: OrderedDict[str, int] = OrderedDict()  # how often a host's robots.txt could not be had
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """The settings as they are now."""
        return self.desk.settings

    def of(self, task: Task) -> Rules | Down | None:
        """The rules of a URL's host; None if its robots.txt is to be asked for first."""
        if not self.settings.robots:
            return FREELY
        host = urls.host(task.url)
        with self._lock:
            rules, read = self._rules.get(host, (None, 0.0))
            is_under_way = host in self._steps
        if rules is not None and time.time() - read <= AGE:
            return rules
        return None if is_under_way else self._look_up(task, host)

    def _look_up(self, task: Task, host: str) -> Rules | Down | None:
        stored = self._stored(host)
        return self._remember(task, host, stored) if stored else None

    def _stored(self, host: str) -> Robots | None:
        """A host's robots.txt as the store has it, if it is not too old to go by."""
        stored = self.desk.retry_until_store_answers(self.store.robots, host)
        if stored is None or stored.status in REDIRECTS or time.time() - stored.read > AGE:
            return None
        return stored

    def known(self, host: str) -> Rules | Down | None:
        """The rules of a host without asking it; so many others may have come by that they are not in memory."""
        with self._lock:
            rules = self._rules.get(host, (None, 0.0))[0]
        stored = self._stored(host) if rules is None and self.settings.robots else None
        return self._read(f"http://{host}/", stored) if stored else rules

    def is_sought(self, host: str) -> bool:
        """Whether a host's robots.txt was asked for and could not be had yet."""
        return host in self._steps or host in self._failed

    def ask(self, task: Task) -> Fetched | Failure | float:
        """Ask for robots.txt, or where it has led, in the turn of a URL; or seconds to wait until an errand is done.

        A failure is the URL's too: no answer, no page. Unless there is an old copy, which is better than none.
        """
        host = urls.host(task.url)
        home = urls.normalize("/robots.txt", urls.bare(task.url)) or task.url
        with self._lock:
            step = self._steps.get(host, Step(home))
        if step.sent:
            rules = self._look_up(task, host)
            wait = config.delay_for(self.settings, host, rules.delay) if rules else step.wait(time.monotonic())
            if rules or wait:
                return wait
        answer = self._get(home if step.sent else step.url)
        if isinstance(answer, Fetched) and answer.location is not None:
            step = replace(step, url=answer.url, via=extend(step.via, answer.url))
            return self._go_on(task, host, step, answer)
        return self._take(task, host, answer)

    def _go_on(self, task: Task, host: str, step: Step, answer: Fetched) -> Fetched | Failure:
        """Follow a redirect: on the same host in its next turn, elsewhere by an errand."""
        target = _target(answer.location or "", step.url, host)
        if target is None or count(step.via) > HOPS:
            return self._take(task, host, Fetched(answer.url, 404))  # it says no more than no file does
        self.leave_a_trace(host, answer.status)
        if urls.host(target) == host:
            self._note(self._steps, host, Step(target, step.via))
        else:
            self.frontier.hand_over([self._errand(task, target, host, step.via)])
            self._note(self._steps, host, replace(step, via="", sent=time.monotonic()))
        return answer

    def leave_a_trace(self, host: str, status: int = 302) -> None:
        """Whoever has this host after us must see that it was asked, though there are no rules to show for it yet."""
        if self.desk.retry_until_store_answers(self.store.robots, host) is None:
            self.desk.retry_until_store_answers(self.store.put_robots, host, Robots(time.time(), status, b""))

    def _errand(self, task: Task, target: str, host: str, via: str) -> Task:
        return Task(urls.as_robots_task(target, host, secrets.token_hex(4)), task.depth, via=via)

    def deliver(self, task: Task, answer: Fetched | Failure) -> None:
        """Leave what an errand brought in the other host's robots.txt; or send it on, if that is elsewhere again."""
        host = urls.robots_task_host(task.url) or ""
        location = answer.location if isinstance(answer, Fetched) else None
        target = _target(location, urls.bare(task.url), host) if location else None
        if target and task.hops < HOPS:
            self.frontier.hand_over([self._errand(task, target, host, extend(task.via, task.url))])
        else:
            found = Fetched(task.url, 404) if location else _without_rules(answer)
            self.desk.retry_until_store_answers(self.store.put_robots, host, self._found(host, found))

    def _found(self, host: str, found: Fetched | Failure) -> Robots:
        if isinstance(found, Fetched):
            return Robots(time.time(), found.status, found.body)
        return self._old_copy(host) or Robots(time.time(), UNREACHABLE, b"")

    def is_delivered(self, task: Task) -> bool:
        """Whether what an errand is sent for is there: it may have been sent twice, by two owners or after an hour."""
        return self._stored(urls.robots_task_host(task.url) or "") is not None

    def _take(self, task: Task, host: str, answer: Fetched | Failure) -> Fetched | Failure:
        found = _without_rules(answer)
        if isinstance(found, Failure):
            return self._no_answer(task, host, found)
        robots = Robots(time.time(), found.status, found.body)
        self.desk.retry_until_store_answers(self.store.put_robots, host, robots)
        self._remember(task, host, robots)
        return found

    def _no_answer(self, task: Task, host: str, answer: Failure) -> Failure:
        """After as many tries as a URL has, the host is given up: its other URLs are refused without asking.

        Between them it is left alone for as long as a URL: each of its URLs would ask at once, and all be refused soon.
        """
        failure = Failure(task.url, answer.reason, f"{ROBOTS} {answer.detail}", answer.retry_after)
        old = self._old_copy(host)
        if old:
            self._remember(task, host, old)
            return failure
        with self._lock:
            tries = self._failed.get(host, 0) + 1
        self._note(self._failed, host, tries)
        if tries > self.settings.retries or not reasons.look_up(answer.reason).retry:
            self._note_rules(host, Down(failure), time.time())
            return failure
        wait = politeness.retry_after(tries - 1, self.settings.retry_delay, answer.retry_after, random.random())
        return replace(failure, retry_after=wait)

    def _old_copy(self, host: str) -> Robots | None:
        """What there is to go by for an hour where no newer robots.txt can be had."""
        old = self.desk.retry_until_store_answers(self.store.robots, host)
        has_rules = old is not None and old.status < 500 and old.status not in REDIRECTS
        return replace(old, read=time.time() - AGE + HOUR) if old and has_rules else None

    def reconsider(self, host: str, refusal: dict[str, Any]) -> None:
        """Go no longer by a robots.txt, or the want of one, by which a URL was refused that is to be asked again."""
        if refusal.get("reason") != "robots" and not str(refusal.get("detail")).startswith(ROBOTS):
            return
        until = from_utc(str(refusal.get("when"))) + 1.0  # it is written in whole seconds
        with self._lock:
            rules, read = self._rules.get(host, (None, 0.0))
            if rules is not None and read < until:
                del self._rules[host]
                self._weight -= rules.weight
                self._failed.pop(host, None)
        stored = self.desk.retry_until_store_answers(self.store.robots, host)
        if stored and stored.read < until:
            self.desk.retry_until_store_answers(self.store.drop_robots, host)

    def _remember(self, task: Task, host: str, robots: Robots) -> Rules | Down:
        """Keep the rules of a host, and hand over the sitemaps that they name: each time, for a kill may have come."""
        rules = self._read(task.url, robots)
        if isinstance(rules, Rules):
            self.frontier.hand_over(self.seeds.sitemaps(rules.sitemaps, host, task.depth + 1))
        with self._lock:
            self._failed.pop(host, None)
            self._steps.pop(host, None)
        self._note_rules(host, rules, robots.read)
        return rules

    def _read(self, url: str, robots: Robots) -> Rules | Down:
        if robots.status >= 500:
            return Down(Failure(url, f"http-{robots.status}", f"{ROBOTS} on another host"))
        return Rules(robots.body, self.settings.user_agent)

    def _note_rules(self, host: str, rules: Rules | Down, read: float) -> None:
        with self._lock:
            old = self._rules.pop(host, None)
            self._rules[host] = rules, read
            self._weight += rules.weight - (old[0].weight if old else 0)
            while len(self._rules) > REMEMBERED or (self._weight > HEAVY and len(self._rules) > 1):
                self._weight -= self._rules.popitem(last=False)[1][0].weight

    def _note(self, notes: OrderedDict[str, Noted], host: str, noted: Noted) -> None:
        with self._lock:
            notes[host] = noted
            notes.move_to_end(host)
            if len(notes) > UNDER_WAY:
                notes.popitem(last=False)


def _target(location: str, base: str, host: str) -> str | None:
    """Where a redirect of a host's robots.txt leads; None where no errand could be sent: its line would be too long."""
    target = urls.normalize(location, base, ())
    return target if target and urls.is_safe(urls.as_robots_task(target, host, "0" * 8)) else None


def _without_rules(answer: Fetched | Failure) -> Fetched | Failure:
    """What was answered to robots.txt: where nothing is there for us, a page without rules."""
    if isinstance(answer, Fetched) or reasons.look_up(answer.reason).retry:
        return answer
    if answer.reason.startswith("http-4"):
        return Fetched(answer.url, int(answer.reason.removeprefix("http-")))
    return Fetched(answer.url, 404) if answer.reason == "bad-redirect" else answer
