"""What each host allows: its robots.txt, requested in the turn of one of its URLs and cached for a day.

By RFC 9309: 2xx is parsed, a redirect is followed (five at most), and 4xx means that there are no rules. On 5xx or no
response the host is skipped and retried on the normal schedule; so are 408 and 429.

A redirect to another host becomes a *robots task*, which the owner of that host requests in its turn, so that no host
is ever requested outside its own pace. The result is stored in robots/<host>, where we look for it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple, TypeVar

from crawler.crawl.worker import politeness
from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.network import Requests
from crawler.crawl.worker.pauses import Pauses
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task, count, extend, robots_task
from crawler.settings.settings import LiveSettings, delay_for
from crawler.store.clock import Clock
from crawler.store.records import from_utc
from crawler.store.store import Robots
from crawler.store.writer import StoreWriter
from crawler.web import reasons, urls
from crawler.web.page import REDIRECTS, Failure, Fetched
from crawler.web.robots import Rules

MAX_CACHED = 5000  # hosts whose rules are kept in memory
MAX_CACHED_BYTES = 128 << 20  # that these rules may take
MAX_PENDING = 50_000  # hosts whose robots.txt is being requested; one that is forgotten is requested again
MAX_AGE = 24 * 3600.0  # seconds
HOUR = 3600.0
MAX_REDIRECTS = 5  # of a robots.txt that are followed
UNREACHABLE = 503  # the status stored for a robots.txt on another host that could not be fetched
DETAIL = "robots.txt:"  # starts the detail of failures that are due to a missing robots.txt
ALLOW_ALL = Rules(b"", "*")
Noted = TypeVar("Noted")


@dataclass(frozen=True, slots=True)
class Down:
    """The rules of a host whose robots.txt cannot be fetched: nothing may be requested."""

    failure: Failure
    delay = 0.0
    weight = 0

    def allow(self, url: str) -> bool:
        """Whether we may request this URL: no."""
        return False

    def why_not(self, url: str) -> Failure:
        """Return the failure for a URL of this host."""
        return replace(self.failure, url=url)


class Step(NamedTuple):
    """How far the request for a host's robots.txt has come, after redirects."""

    url: str  # to be requested next
    via: str = ""  # the redirects on this host that led to it
    sent: float = 0.0  # when a robots task for another host was handed over (monotonic)

    def wait(self, now: float) -> float:
        """Return the seconds until we check again for the result of a robots task; 0 after an hour: start over."""
        waited = now - self.sent
        return max(1.0, min(waited / 4, 60.0)) if waited < HOUR else 0.0


class RobotsCache:
    """The rules of the hosts that a worker requests."""

    def __init__(
        self,
        store: StoreWriter,
        frontier: Frontier,
        seeds: Seeds,
        requests: Requests,
        flush: Flush,
        pauses: Pauses,
        settings: LiveSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._store, self._frontier, self._seeds, self._requests = store, frontier, seeds, requests
        self._flush, self._pauses, self._settings = flush, pauses, settings
        self._clock, self._random = clock, random
        self._rules: OrderedDict[str, tuple[Rules | Down, float]] = OrderedDict()
        self._steps: OrderedDict[str, Step] = OrderedDict()
        self._weight = 0
        self._failed: OrderedDict[str, int] = OrderedDict()  # failed requests for a host's robots.txt

    async def of(self, task: Task, host: Host) -> Rules | Down | None:
        """Return the rules for a URL's host; None if its robots.txt must be requested first."""
        if not self._settings.now.robots:
            return ALLOW_ALL
        rules, read = self._rules.get(host.name, (None, 0.0))
        if rules is not None and self._clock.time() - read <= MAX_AGE:
            return rules
        if host.name in self._steps or self._is_new(host):
            return None
        return await self._look_up(task, host.name)

    def _is_new(self, host: Host) -> bool:
        """Whether nobody can have stored a host's robots.txt yet: it was never requested, and is ours alone."""
        was_requested = host.pace is not None or host.past or host.name in self._rules
        return self._settings.now.spread != "url" and not was_requested

    async def _look_up(self, task: Task, host: str) -> Rules | Down | None:
        stored = await self._stored(host)
        return self._cache(task, host, stored) if stored else None

    async def _stored(self, host: str) -> Robots | None:
        """Return a host's robots.txt from the store, if it is not too old."""
        stored = await self._read_stored(host)
        if stored is None or stored.status in REDIRECTS or self._clock.time() - stored.read > MAX_AGE:
            return None
        return stored

    async def _read_stored(self, host: str) -> Robots | None:
        return self._flush.queued_robots(host) or await self._pauses.until_store_answers(self._store.robots, host)

    async def known(self, host: str) -> Rules | Down | None:
        """Return a host's rules from memory or the store, without a request."""
        rules = self._rules.get(host, (None, 0.0))[0]
        if rules is not None or not self._settings.now.robots:
            return rules
        stored = await self._stored(host)
        return self._read(f"http://{host}/", stored) if stored else None

    def delay(self, host: str) -> float:
        """Return the delay that the rules in memory want; 0 if they want none, or are not there."""
        rules = self._rules.get(host, (None, 0.0))[0]
        return rules.delay if rules else 0.0

    def is_pending(self, host: str) -> bool:
        """Whether a host's robots.txt was requested and is not there yet."""
        return host in self._steps or host in self._failed

    async def request(self, task: Task, host: Host) -> Fetched | Failure | float:
        """Request robots.txt, or its redirect target, in a URL's turn; or return seconds to wait for a robots task.

        A failure is the URL's failure too, unless an old copy of robots.txt can be used.
        """
        name = host.name
        home = urls.normalize("/robots.txt", task.url) or task.url
        step = self._steps.get(name, Step(home))
        if step.sent:
            rules = await self._look_up(task, name)
            settings = self._settings.now
            wait = delay_for(settings, name, rules.delay) if rules else step.wait(self._clock.monotonic())
            if rules or wait:
                return wait
        response = await self._requests.get_robots(home if step.sent else step.url, task, host)
        if isinstance(response, Fetched) and response.location is not None:
            step = step._replace(url=response.url, via=extend(step.via, response.url))
            return await self._redirect(task, name, step, response)
        return await self._put(task, name, response)

    async def _redirect(self, task: Task, host: str, step: Step, response: Fetched) -> Fetched | Failure:
        """Follow a redirect: on the same host in its next turn, on another host by a robots task."""
        target = _target(response.location or "", step.url, host)
        if target is None or count(step.via) > MAX_REDIRECTS:
            return await self._put(task, host, Fetched(response.url, 404))  # as if there were no robots.txt
        if urls.host(target) == host:
            await self.note_request(host, response.status)
            self._note(self._steps, host, Step(target, step.via))
        else:
            await self.note_request(host, response.status, self._robots_task(task, target, host, step.via))
            self._note(self._steps, host, step._replace(via="", sent=self._clock.monotonic()))
        return response

    async def note_request(self, host: str, status: int = 302, task: Task | None = None) -> None:
        """Leave a note for the next owner of this host that it was requested, although there are no rules yet.

        A robots task is handed over after it: the note must not replace what the task brings.
        """
        stored, queued = await self._read_stored(host), self._flush.queued_robots(host)
        if stored is None or queued:
            self._flush.put_robots(host, queued or Robots(self._clock.time(), status, b""), task)
        elif task:
            self._frontier.hand_over([task])

    def _robots_task(self, task: Task, target: str, host: str, via: str) -> Task:
        return robots_task(target, host, f"{self._random.getrandbits(32):08x}", task.depth, via)

    async def deliver(self, task: Task, response: Fetched | Failure) -> None:
        """Store the result of a robots task for the other host; or follow one more redirect."""
        host = task.robots_host
        location = response.location if isinstance(response, Fetched) else None
        target = _target(location, task.url, host) if location else None
        if target and task.hops < MAX_REDIRECTS:
            self._frontier.hand_over([self._robots_task(task, target, host, extend(task.via, task.url))])
        else:
            found = Fetched(task.url, 404) if location else _without_rules(response)
            # At once: the task is done when its result is in the store.
            await self._pauses.until_store_answers(self._store.put_robots, host, await self._found(host, found))

    async def _found(self, host: str, found: Fetched | Failure) -> Robots:
        if isinstance(found, Fetched):
            return Robots(self._clock.time(), found.status, found.body)
        return await self._old_copy(host) or Robots(self._clock.time(), UNREACHABLE, b"")

    async def is_delivered(self, task: Task) -> bool:
        """Whether the result of a robots task is there: a second task for the same file may have brought it."""
        return await self._stored(task.robots_host) is not None

    async def _put(self, task: Task, host: str, response: Fetched | Failure) -> Fetched | Failure:
        found = _without_rules(response)
        if isinstance(found, Failure):
            return await self._no_response(task, host, found)
        robots = Robots(self._clock.time(), found.status, found.body)
        self._flush.put_robots(host, robots)
        self._cache(task, host, robots)
        return found

    async def _no_response(self, task: Task, host: str, response: Failure) -> Failure:
        """Retry as often as a URL; after that, the host's other URLs fail without a request.

        The host rests between the retries: else each of its URLs would retry at once, and all would soon fail.
        """
        failure = Failure(task.url, response.reason, f"{DETAIL} {response.detail}", response.retry_after)
        old = await self._old_copy(host)
        if old:
            self._cache(task, host, old)
            return failure
        tries = self._failed.get(host, 0) + 1
        self._note(self._failed, host, tries)
        settings = self._settings.now
        if tries > settings.retries or not reasons.look_up(response.reason).retry:
            self._note_rules(host, Down(failure), self._clock.time())
            return failure
        dice = self._random.random()
        wait = politeness.retry_after(tries - 1, settings.retry_delay, response.retry_after, dice)
        return replace(failure, retry_after=wait)

    async def _old_copy(self, host: str) -> Robots | None:
        """Return the stored robots.txt, to be used for an hour when no newer one can be fetched."""
        old = await self._read_stored(host)
        has_rules = old is not None and old.status < 500 and old.status not in REDIRECTS
        return old._replace(read=self._clock.time() - MAX_AGE + HOUR) if old and has_rules else None

    async def reconsider(self, host: str, failure: dict[str, Any]) -> None:
        """Forget the robots.txt, or the lack of one, that caused a failure record whose URL is retried."""
        if failure.get("reason") != "robots" and not str(failure.get("detail")).startswith(DETAIL):
            return
        until = from_utc(str(failure.get("when"))) + 1.0  # the record has whole seconds
        rules, read = self._rules.get(host, (None, 0.0))
        if rules is not None and read < until:
            del self._rules[host]
            self._weight -= rules.weight
            self._failed.pop(host, None)
        stored = await self._read_stored(host)
        if stored and stored.read < until:
            await self._pauses.until_store_answers(self._store.drop_robots, host)

    def _cache(self, task: Task, host: str, robots: Robots) -> Rules | Down:
        """Cache a host's rules and hand over its sitemaps, each time: a kill may have lost them."""
        rules = self._read(task.url, robots)
        if isinstance(rules, Rules):
            self._frontier.hand_over(self._seeds.sitemaps(rules.sitemaps, host, task.depth + 1))
        self._failed.pop(host, None)
        self._steps.pop(host, None)
        self._note_rules(host, rules, robots.read)
        return rules

    def _read(self, url: str, robots: Robots) -> Rules | Down:
        if robots.status >= 500:
            return Down(Failure(url, f"http-{robots.status}", f"{DETAIL} on another host"))
        return Rules(robots.body, self._settings.now.user_agent)

    def _note_rules(self, host: str, rules: Rules | Down, read: float) -> None:
        old = self._rules.pop(host, None)
        self._rules[host] = rules, read
        self._weight += rules.weight - (old[0].weight if old else 0)
        while len(self._rules) > MAX_CACHED or (self._weight > MAX_CACHED_BYTES and len(self._rules) > 1):
            self._weight -= self._rules.popitem(last=False)[1][0].weight

    @staticmethod
    def _note(notes: OrderedDict[str, Noted], host: str, noted: Noted) -> None:
        notes[host] = noted
        notes.move_to_end(host)
        if len(notes) > MAX_PENDING:
            notes.popitem(last=False)


def _target(location: str, base: str, host: str) -> str | None:
    """Return where a redirect of a robots.txt leads; None if the robots task would be too long for a batch."""
    target = urls.normalize(location, base, ())
    return target if target and urls.is_safe(robots_task(target, host, "0" * 8).name) else None


def _without_rules(response: Fetched | Failure) -> Fetched | Failure:
    """Return the response to a robots.txt request, with 4xx as a page without rules."""
    if isinstance(response, Fetched) or reasons.look_up(response.reason).retry:
        return response
    if response.reason.startswith("http-4"):
        return Fetched(response.url, int(response.reason.removeprefix("http-")))
    return Fetched(response.url, 404) if response.reason == "bad-redirect" else response
