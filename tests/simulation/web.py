"""A web that is a tree, so that no lost link is hidden by another one; some pages fail at first, and some for good.

Now and then all pages change, except those that never do, and some are gone then.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from random import Random
from typing import Any

from crawler.web.page import Failure, Fetched
from simulation.world import Process

KIDS = 3


class Tree:
    """Pages 0, 1, 2 ...: each links to up to three others. Page 0 is the seed; others hang on seeds added later."""

    def __init__(self, pages: int, hosts: int, random: Random) -> None:
        self.count, self._hosts = pages, hosts
        self.urls = [f"https://host{number * 7 % hosts}.example/{number}" for number in range(pages)]
        self.links = {
            url: self.urls[KIDS * number + 1 : KIDS * number + KIDS + 1] for number, url in enumerate(self.urls)
        }
        self.parent = {link: url for url, links in self.links.items() for link in links}
        self.slow = {url: random.expovariate(2) for url in self.urls}
        self.fails = {url: random.choice([0] * 12 + [1, 2]) for url in self.urls}  # so many times
        self.gone = {url for url in self.urls[pages // 2 :] if random.random() < 0.03}
        self.edition = 1
        self.constant = {url for url in self.urls if random.random() < 0.3}
        self.vanishing = {url for url in self.urls if random.random() < 0.1}  # with the second edition
        self.requests: Counter[str] = Counter()

    def body(self, url: str, edition: int) -> str:
        """The page, as it is served and stored."""
        text = "" if url in self.constant else f"<p>edition {edition}</p>"
        return f"<title>{url}</title>{text}" + "".join(f"<a href={link}>x</a>" for link in self.links[url])

    def bodies(self, url: str) -> set[bytes]:
        """The page in all its editions so far."""
        return {self.body(url, edition).encode() for edition in range(1, self.edition + 1)}

    def below(self, url: str) -> set[str]:
        """All pages that are found from this one."""
        return {url}.union(*map(self.below, () if url in self.gone else self.links[url]))

    def respond(self, url: str, headers: tuple[str, ...] = ()) -> Fetched | Failure:
        """The response to the next request."""
        self.requests[url] += 1
        if url == "https://host3.example/robots.txt":
            return Fetched(url, 302, {"location": "https://host4.example/robots-of-3.txt"})
        if url not in self.links:
            return Fetched(url, 404)
        if url in self.gone or (self.edition > 1 and headers and url in self.vanishing):  # of a revisit
            return Failure(url, "http-404")
        if self.requests[url] <= self.fails[url]:
            return Failure(url, "http-503")
        body = self.body(url, self.edition).encode()
        etag = f'"{zlib.crc32(body):x}"'
        if f"If-None-Match: {etag}" in headers:
            return Fetched(url, 304, {"etag": etag})
        return Fetched(url, 200, {"content-type": "text/html", "etag": etag}, body)


class Client:
    """The network of one worker; a `Network`."""

    def __init__(self, tree: Tree, process: Process, requested: Any) -> None:
        self._tree, self._process, self._requested = tree, process, requested

    async def get(
        self, url: str, *, headers: tuple[str, ...] = (), admit: Any = lambda addresses: None, **_: Any
    ) -> Fetched | Failure:
        admit((f"203.0.113.{sum(url.partition('/')[0].encode()) % 200}",))
        self._requested(self._process, url)
        seconds = self._tree.slow.get(url, 0.1) * (0.5 + self._process.world.random.random())
        await asyncio.sleep(seconds)
        return self._tree.respond(url, headers)
