"""A web whose pages change by known laws, in simulated time, and a worker that keeps up with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.worker import upkeep
from crawler.crawl.worker.ending import STOPPED
from crawler.frontier.task import Task
from crawler.store.records import from_utc, utc
from crawler.web.page import Failure, Fetched
from lab import simulation
from lab.frontiers import add, frontier_of
from lab.simulation import EPOCH
from lab.workers import SimulatedSetup

HOST = "http://news.example"
HOUR, DAY = 3600.0, 86400.0
START = EPOCH + 1000.0  # when a simulation begins, by its wall clock


@contextmanager
def coarse(seconds: float = 900.0) -> Iterator[None]:
    """Let workers look around only so often: there are millions of rounds in a week."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "ROUND_INTERVAL", seconds)
        patch.setattr(upkeep, "IDLE_ROUND_INTERVAL", seconds)
        patch.setattr(upkeep, "TIDY_INTERVAL", 3600.0)
        patch.setattr(simulation, "POLL_INTERVAL", seconds)
        yield


class Law:
    """How a page changes: every so many seconds, from the start."""

    def __init__(
        self,
        every: float = 0.0,
        nonce: bool = False,
        gone_after: float = 0.0,
        moves_after: float = 0.0,
        validators: bool = True,
        links: tuple[str, ...] = (),
    ) -> None:
        self.every, self.nonce, self.gone_after, self.moves_after = every, nonce, gone_after, moves_after
        self.validators, self.links = validators, links

    def version(self, age: float) -> int:
        return int(age // self.every) if self.every else 0

    def html(self, path: str, age: float) -> bytes:
        nonce = f"<script>var nonce = {age!r}</script><!-- {age!r} -->" if self.nonce else ""
        links = "".join(f"<a href={link}>x</a>" for link in self.links)
        return f"<title>{path}</title>{nonce}<p>version {self.version(age)}</p>{links}".encode()


class WithSitemap(Law):
    """A sitemap that says of each page when it last changed; one that lies says so of all, each time."""

    def __init__(self, laws: dict[str, Law], lies: bool, host: str = HOST) -> None:
        super().__init__(validators=False)
        self.laws, self.lies, self.host = laws, lies, host

    def html(self, path: str, age: float) -> bytes:
        entries = "".join(self._entry(page, law, age) for page, law in self.laws.items())
        return f"<urlset>{entries}</urlset>".encode()

    def _entry(self, path: str, law: Law, age: float) -> str:
        when = utc(START + (age if self.lies else law.version(age) * law.every))
        return f"<url><loc>{self.host}{path}</loc><lastmod>{when}</lastmod></url>"


class ChangingWeb:
    """Answers requests by the laws of its pages; knows what was asked when, and with which answer."""

    def __init__(self, laws: dict[str, Law], now: Callable[[], float]) -> None:
        self.laws, self.now = laws, now
        self.asked: list[tuple[float, str, int]] = []  # seconds from the start, path, status

    @property
    def age(self) -> float:
        return self.now() - START

    async def get(self, url: str, headers: tuple[str, ...] = (), **_: Any) -> Fetched | Failure:
        path = url.removeprefix(HOST)
        found = self.answer(url, path, headers)
        if path != "/robots.txt":
            status = found.status if isinstance(found, Fetched) else int(found.reason.removeprefix("http-"))
            self.asked.append((self.age, path, status))
        return found

    def answer(self, url: str, path: str, headers: tuple[str, ...]) -> Fetched | Failure:
        law, age = self.laws.get(path), self.age
        if path == "/robots.txt":
            return Fetched(url, 404)
        if law is None or (law.gone_after and age >= law.gone_after):
            return Failure(url, "http-404")
        if law.moves_after and age >= law.moves_after:
            return Fetched(url, 301, {"location": f"{path}-moved"})
        etag = f'"{law.version(age)}{f"-{age}" if law.nonce else ""}"'
        if law.validators and f"If-None-Match: {etag}" in headers:
            return Fetched(url, 304, {"etag": etag})
        validators = {"etag": etag, "last-modified": formatdate(START + law.version(age) * law.every, usegmt=True)}
        return Fetched(
            url, 200, {"content-type": "text/html", **(validators if law.validators else {})}, law.html(path, age)
        )

    def visits(self, path: str) -> list[float]:
        """When a page was asked for, in seconds from the start."""
        return [age for age, asked, _ in self.asked if asked == path]

    def statuses(self, path: str) -> list[int]:
        return [status for _, asked, status in self.asked if asked == path]


def freshness(web: ChangingWeb, since: float) -> float:
    """The share of page-time from a moment on in which the stored version was the live one."""
    fresh = total = 0.0
    for path, law in web.laws.items():
        visits = [*web.visits(path), web.age]
        for seen, following in pairwise(visits):
            stale = (law.version(seen) + 1) * law.every if law.every else following
            start = max(seen, since)
            fresh += max(min(stale, following) - start, 0.0)
            total += max(following - start, 0.0)
    return fresh / total


class Keeping(SimulatedSetup):
    """A worker that keeps up with a changing web for a while; its rounds are coarse, because weeks pass."""

    web: ChangingWeb

    def __init__(self, root: Path, laws: dict[str, Law], **given: Any) -> None:
        super().__init__(
            root, self._get, **{"scope": "any", "delay": 1.0, "heartbeat": 3600.0, "dead_after": 36000.0, **given}
        )
        self.web = ChangingWeb(laws, self.simulation.clock.time)
        self.worker.upkeep.forever = True

    async def _get(self, url: str, **how: Any) -> Fetched | Failure:
        return await self.web.get(url, **how)

    def keep_up(self, seconds: float, seed: str = "/") -> None:
        """Run until so much time has passed; then stop as an operator would."""
        if seed:
            add(frontier_of(self.root, "seed"), Task(HOST + seed))
        self.simulation.loop.call_later(seconds, self.scoreboard.drain)
        with coarse():
            assert self.run() == STOPPED

    def record(self, path: str) -> dict[str, Any]:
        found = self.store.record(HOST + path)
        assert found is not None
        return found

    def since_start(self, record: dict[str, Any], field: str) -> float:
        return from_utc(record[field]) - START
