"""The way from a worker to the network: each request with the headers and limits of its kind.

A request is sent only while this worker surely owns its host: if the mount has hung since the task was taken, another
worker may own it by now. And it is sent only if its address has not had too many: else it waits (see `address_pace`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from crawler.crawl.resources import check_spare_files
from crawler.crawl.worker.address_pace import AddressPace
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.ending import Stopped
from crawler.crawl.worker.jars import Jars
from crawler.fetch.exchange import Exchange
from crawler.fetch.trust import Trust
from crawler.fleet.shards import Shards
from crawler.frontier.hosts import Host
from crawler.frontier.task import Task
from crawler.settings.settings import LiveSettings
from crawler.web import urls
from crawler.web.page import Failure, Fetched, Place
from crawler.web.robots import MAX_ROBOTS_BYTES
from crawler.web.sitemap import MAX_SITEMAP_BYTES

if TYPE_CHECKING:
    from crawler.crawl.worker.archive import Archive

NO_DESCRIPTOR = {"dns", "connect", "tls", "timeout"}  # reasons that a lack of file descriptors may look like


class Network(Protocol):
    """What sends requests: `fetch.fetcher.Fetcher`, or the web of a test."""

    async def get(
        self,
        url: str,
        *,
        headers: tuple[str, ...] = ...,
        private: bool = ...,
        content_types: tuple[str, ...] | None = ...,
        cut: int | None = ...,
        first_contact: bool = ...,
        admit: Callable[[tuple[str, ...]], None] = ...,
        keep: Callable[[Exchange], None] | None = ...,
        place: Callable[[], Place] | None = ...,
    ) -> Fetched | Failure:
        """Send one request, unless `admit` raises an error: it is called with the addresses that it may go to.

        `keep` is given the exchange as it came.
        """
        ...


class Requests:
    """Sends the requests of a worker."""

    def __init__(
        self,
        network: Network,
        shards: Shards,
        trust: Trust,
        settings: LiveSettings,
        pace: AddressPace,
        jars: Jars,
        counters: Counters,
        archive: Archive | None = None,
    ) -> None:
        self._counters = counters
        self._network, self._shards, self._trust, self._settings = network, shards, trust, settings
        self._pace, self._jars, self._archive = pace, jars, archive

    async def get(
        self, task: Task, host: Host, place: Callable[[], Place], condition: tuple[str, ...] = ()
    ) -> Fetched | Failure:
        """3. Request a page or a sitemap, perhaps with a condition; TooSoon if its address must rest first.

        `place` makes the file of a large one.
        """
        # A sitemap may have any content type, and the beginning of one that is too long is still useful.
        limits: dict[str, Any] = {}
        if task.level:
            limits = {"content_types": (), "cut": min(self._settings.now.max_size, MAX_SITEMAP_BYTES)}
        elif not self._archive:  # an exchange is written from memory, as it came
            limits = {"place": place}
        self._check_ownership()
        response = await self._network.get(
            task.url,
            headers=(*self._settings.now.headers, *self._trust.headers_for(task.url), *condition),
            private=host.name in self._trust.private,
            first_contact=self._is_first_contact(task, host),
            admit=self._admit(host),
            keep=self._archive.keep() if self._archive else None,
            **limits,
        )
        return self._checked(response)

    async def get_robots(self, url: str, task: Task, host: Host) -> Fetched | Failure:
        """Request a robots.txt, or where it redirects to on the same host, in the turn of a task."""
        await self._jars.ready(host.name)
        self._check_ownership()
        response = await self._network.get(
            url,
            private=urls.host(url) in self._trust.private,
            content_types=(),
            cut=MAX_ROBOTS_BYTES,
            first_contact=self._is_first_contact(task, host),
            admit=self._admit(host),
            keep=self._archive.keep() if self._archive else None,
        )
        return self._checked(response)

    def _admit(self, host: Host) -> Callable[[tuple[str, ...]], None]:
        return partial(self._pace.admit, host.name, host.pace is not None and not host.kept)

    @staticmethod
    def _is_first_contact(task: Task, host: Host) -> bool:
        """Whether a host did not respond when it was last requested, if ever; a retry has the full time."""
        return not host.answered and not task.attempt

    def _check_ownership(self) -> None:
        if not self._shards.is_sure():
            raise Stopped

    def _checked(self, response: Fetched | Failure) -> Fetched | Failure:
        """Return a response, unless the request failed because we could open no socket: then the task is put back."""
        if isinstance(response, Failure) and response.reason in NO_DESCRIPTOR:
            check_spare_files()
        self._count(response)
        return response

    def _count(self, response: Fetched | Failure) -> None:
        """Count the host names that did not resolve until any host answers: they may show what this machine lacks."""
        if self._counters["answered"]:
            return
        if isinstance(response, Fetched):
            self._counters.add("answered")
        elif response.reason == "dns":
            self._counters.add("unresolved")
