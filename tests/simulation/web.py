"""A web that is a tree, so that no lost link is hidden by another one; some pages fail at first, and some for good.

Now and then all pages change, except those that never do, and some are gone then. With rules, hosts forbid pages and
want longer delays, share addresses, and say when they may be requested again.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

from crawler.web import urls
from crawler.web.page import Failure, Fetched
from simulation.world import Process

if TYPE_CHECKING:
    from simulation.manners import Manners

KIDS = 3
SECRETS_OF, SECRET, PRIVATE = "host1.example", "X-Key: of the operator", "host2.example"
REDIRECTED, ELSEWHERE = "host3.example", "https://host4.example/robots-of-3.txt"


class Tree:
    """Pages 0, 1, 2 ...: each links to up to three others. Page 0 is the seed; others hang on seeds added later."""

    def __init__(self, pages: int, hosts: int, random: Random, rules: Random | None = None) -> None:
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
        self.served: dict[str, bytes] = {}  # what each page was when it was last sent
        self.forbidden: set[str] = set()  # by robots.txt
        self.retry_delay = 1.0
        self._delays: dict[str, float] = {}  # the Crawl-delay of hosts
        self._retry_after: dict[str, float] = {}  # of URLs that fail
        self._addresses: dict[str, str] = {}
        if rules:
            self._make_rules(rules)

    def _make_rules(self, random: Random) -> None:
        for host in sorted({urls.host(url) for url in self.urls}):
            if random.random() < 0.4:
                self._delays[host] = random.choice([0.5, 1.0])
            if random.random() < 0.5:
                self._addresses[host] = f"203.0.113.{random.choice([201, 202])}"
        self.forbidden = {url for url in self.urls[1:] if random.random() < 0.05}
        self._retry_after = {url: random.uniform(2, 4) for url in self.urls if random.random() < 0.3}

    def robots(self, host: str) -> bytes | None:
        """The robots.txt of a host; None if it has none."""
        paths = [url.rpartition("/")[2] for url in self.urls if url in self.forbidden and urls.host(url) == host]
        lines = [f"Disallow: /{path}$\n" for path in paths]
        lines += [f"Crawl-delay: {self._delays[host]}\n"] if host in self._delays else []
        return "".join(["User-agent: *\n", *lines]).encode() if lines else None

    def rules_of(self, url: str) -> str:
        """Whose robots.txt this URL brings; empty if none, also if it only tells where that is."""
        if url == ELSEWHERE:
            return REDIRECTED
        host = urls.host(url)
        return host if url.endswith("/robots.txt") and host != REDIRECTED else ""

    def crawl_delay(self, host: str) -> float:
        """The delay that the robots.txt of a host wants."""
        return self._delays.get(host, 0.0)

    def address(self, host: str) -> str:
        """Where a host is."""
        return self._addresses.get(host) or f"203.0.113.{sum(f'https:{host}'.encode()) % 200}"

    def body(self, url: str, edition: int) -> str:
        """The page, as it is served and stored."""
        text = "" if url in self.constant else f"<p>edition {edition}</p>"
        return f"<title>{url}</title>{text}" + "".join(f"<a href={link}>x</a>" for link in self.links[url])

    def bodies(self, url: str) -> set[bytes]:
        """The page in all its editions so far."""
        return {self.body(url, edition).encode() for edition in range(1, self.edition + 1)}

    def below(self, url: str) -> set[str]:
        """All pages that are found from this one."""
        return {url}.union(*map(self.below, () if self.has_no_page(url) else self.links[url]))

    def has_no_page(self, url: str) -> bool:
        """Whether a URL brings a failure record."""
        return url in self.gone or url in self.forbidden

    def respond(self, url: str, headers: tuple[str, ...] = ()) -> Fetched | Failure:
        """The response to the next request."""
        self.requests[url] += 1
        if url == f"https://{REDIRECTED}/robots.txt":
            return Fetched(url, 302, {"location": ELSEWHERE})
        if url not in self.links:
            robots = self.robots(self.rules_of(url)) if self.rules_of(url) else None
            return Fetched(url, 404) if robots is None else Fetched(url, 200, {"content-type": "text/plain"}, robots)
        if url in self.gone or (self.edition > 1 and headers and url in self.vanishing):  # of a revisit
            return Failure(url, "http-404")
        if self.requests[url] <= self.fails[url]:
            return Failure(url, "http-503", "", self._retry_after.get(url))
        body = self.body(url, self.edition).encode()
        etag = f'"{zlib.crc32(body):x}"'
        if f"If-None-Match: {etag}" in headers:
            return Fetched(url, 304, {"etag": etag})
        self.served[url] = body
        return Fetched(url, 200, {"content-type": "text/html", "etag": etag}, body)


class Client:
    """The network of one worker; a `Network`."""

    def __init__(self, tree: Tree, process: Process, manners: Manners) -> None:
        self._tree, self._process, self._manners = tree, process, manners

    async def get(
        self,
        url: str,
        *,
        headers: tuple[str, ...] = (),
        private: bool = False,
        admit: Any = lambda addresses: None,
        **_: Any,
    ) -> Fetched | Failure:
        address = self._tree.address(urls.host(url))
        admit((address,))
        self._manners.request(self._process, url, headers, private, address)
        seconds = self._tree.slow.get(url, 0.1) * (0.5 + self._process.world.random.random())
        await asyncio.sleep(seconds)
        response = self._tree.respond(url, tuple(line for line in headers if line != SECRET))
        self._manners.response(self._process, url, response)
        return response
