"""The way from a worker to the network: each request with the headers and limits of its kind.

A request is sent only while this worker surely owns its host: if the mount has hung since the task was taken, another
worker may own it by now.
"""

from __future__ import annotations

from typing import Any, Protocol

from crawler.crawl.resources import check_spare_files
from crawler.crawl.worker.ending import Stopped
from crawler.fleet.shards import Shards
from crawler.frontier.hosts import Host
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task
from crawler.settings import LiveSettings
from crawler.web import urls
from crawler.web.page import Failure, Fetched
from crawler.web.robots import MAX_ROBOTS_BYTES

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
    ) -> Fetched | Failure:
        """Send one request."""
        ...


class Requests:
    """Sends the requests of a worker."""

    def __init__(self, network: Network, shards: Shards, seeds: Seeds, settings: LiveSettings) -> None:
        self._network, self._shards, self._seeds, self._settings = network, shards, seeds, settings

    async def get(self, task: Task, host: Host) -> Fetched | Failure:
        """3. Request a page or a sitemap."""
        # A sitemap may have any content type, and the beginning of one that is too long is still useful.
        limits: dict[str, Any] = {"content_types": (), "cut": self._settings.now.max_size} if task.level else {}
        self._check_ownership()
        response = await self._network.get(
            task.url,
            headers=self._seeds.headers_for(task.url),
            private=self._seeds.names(host.name),
            first_contact=self._is_first_contact(task, host),
            **limits,
        )
        return _checked(response)

    async def get_robots(self, url: str, task: Task, host: Host) -> Fetched | Failure:
        """Request a robots.txt, or where it redirects to on the same host, in the turn of a task."""
        self._check_ownership()
        response = await self._network.get(
            url,
            private=self._seeds.names(urls.host(url)),
            content_types=(),
            cut=MAX_ROBOTS_BYTES,
            first_contact=self._is_first_contact(task, host),
        )
        return _checked(response)

    @staticmethod
    def _is_first_contact(task: Task, host: Host) -> bool:
        """Whether a host did not respond when it was last requested, if ever; a retry has the full time."""
        return not host.answered and not task.attempt

    def _check_ownership(self) -> None:
        if not self._shards.is_sure():
            raise Stopped


def _checked(response: Fetched | Failure) -> Fetched | Failure:
    """Return a response, unless the request failed because we could open no socket: then the task is put back."""
    if isinstance(response, Failure) and response.reason in NO_DESCRIPTOR:
        check_spare_files()
    return response
