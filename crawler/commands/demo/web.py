"""The demo webs: many hosts with generated pages, and what a complete crawl of them must contain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from random import Random
from zlib import crc32

from crawler.commands.demo.expected import Expected, compare
from crawler.commands.demo.pages import CHARSETS, HTML, Leaf, dress, fact, halves, rooted
from crawler.commands.http_server import Reply

__all__ = ["DemoWeb", "Expected", "Leaf", "Site", "Web", "WebReply", "compare"]

ROBOTS = "/robots.txt"
MOVED_ROBOTS = "/rules/robots.txt"
CLOSED = "/private/"


@dataclass(frozen=True, slots=True)
class WebReply(Reply):
    """A reply after a delay in seconds; with `compress`, gzip is used if the client accepts it."""

    delay: float = 0.0
    compress: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A host: its robots.txt (or None), whether that is redirected to another path, and its charset."""

    robots: str | None = None
    moved: bool = False
    charset: str = "utf-8"

    def closed(self, path: str) -> bool:
        """Return whether robots.txt disallows this path."""
        return CLOSED in (self.robots or "") and path.startswith(CLOSED)


class Web(ABC):
    """A web: its seeds and what each URL is; replies and expectations follow from these."""

    def __init__(self) -> None:
        self._requested: set[str] = set()

    @abstractmethod
    def seeds(self) -> list[str]:
        """Return the URLs from which all others can be reached."""

    @abstractmethod
    def leaf(self, url: str) -> Leaf | None:
        """Return what a normalized URL is, or None."""

    def site(self, host: str) -> Site:
        """Return a host; without robots.txt unless the web says otherwise."""
        return Site()

    def reply(self, host: str, path: str) -> WebReply:
        """Return the reply to a request; only that of a flaky URL depends on earlier requests."""
        url = f"http://{host}{path}"
        if path in (ROBOTS, MOVED_ROBOTS):
            return _reply_robots(self.site(host), path)
        leaf = self.leaf(url)
        if leaf and leaf.flaky and url not in self._requested:
            self._requested.add(url)
            return WebReply(503, (("Retry-After", "1"),), b"busy")
        return _reply(url, leaf or Leaf(status=404))

    def expected(self, depth: int | None = None) -> Expected:
        """Return what a crawl must contain, found without parsing HTML."""
        found = Expected()
        seen: set[str] = set()
        queue: deque[tuple[str, int, tuple[str, ...]]] = deque((url, 0, ()) for url in self.seeds())
        while queue:
            url, level, way = queue.popleft()
            if url in seen or (depth is not None and level > depth):
                continue
            seen.add(url)
            for link in self._add_expected(url, found, way):
                # A redirect's target is no deeper than the redirect.
                redirected = url in found.redirects
                queue.appendleft((link, level, (*way, url))) if redirected else queue.append((link, level + 1, ()))
        return found

    def _add_expected(self, url: str, found: Expected, way: tuple[str, ...]) -> tuple[str, ...]:
        """Add a URL, to which these redirects have led, and return its links."""
        host, path = halves(url)
        leaf = self.leaf(url) or Leaf(status=404)
        if self.site(host).closed(path):
            found.failures[url] = "robots"
        elif 300 <= leaf.status < 400 and leaf.links[0] in (*way, url):
            found.failures[url] = "redirect-loop"
        elif 300 <= leaf.status < 400:
            found.redirects[url] = leaf.links[0]
            return leaf.links
        elif leaf.status != 200 or leaf.type != HTML:
            found.failures[url] = "wrong-type" if leaf.status == 200 else f"http-{leaf.status}"
        else:
            found.pages[url] = fact(url, leaf)
            return leaf.links
        return ()


def _reply(url: str, leaf: Leaf) -> WebReply:
    tag = crc32(url.encode())
    charset = "; charset=" + leaf.charset if leaf.type == HTML and leaf.label == "header" else ""
    headers = [("Content-Type", leaf.type + charset)]
    if 300 <= leaf.status < 400:
        headers.append(("Location", rooted(leaf.links[0], url) if tag % 2 else leaf.links[0]))
    if leaf.status != 200:
        return WebReply(leaf.status, tuple(headers), f"<title>{leaf.status}</title>".encode(), delay=leaf.delay)
    if leaf.type != HTML:
        return WebReply(200, tuple(headers), bytes(range(256)) * 16, delay=leaf.delay)
    headers.append(("ETag", f'"{tag:08x}"'))
    return WebReply(200, tuple(headers), dress(url, leaf), delay=leaf.delay, compress=tag % 3 == 0)


def _reply_robots(site: Site, path: str) -> WebReply:
    if site.robots is None or (path == MOVED_ROBOTS and not site.moved):
        return WebReply(404, (("Content-Type", "text/plain"),), b"none")
    if site.moved and path == ROBOTS:
        return WebReply(301, (("Location", MOVED_ROBOTS),))
    return WebReply(200, (("Content-Type", "text/plain"),), site.robots.encode())


HOST_NAMES = ("garden", "harbour", "library", "museum", "bakery", "orchard", "station", "theatre", "bücher",
         "mill")  # fmt: skip
PATHS = ("/page-{}.html", "/topic/{}/", "/a/b/c/{}.html", "/list?page={}&sort=name", "/caf%C3%A9/{}",
         "/Notes/{}.HTML", "/find?q=red%20rose&n={}")  # fmt: skip
OTHERS = "User-agent: otherbot\nDisallow: /\n\n"
KEEP_OUT = f"{OTHERS}User-agent: *\nDisallow: {CLOSED}\n"


class DemoWeb(Web):
    """Hosts of very different sizes, with redirects, dead links, unusual charsets and disallowed paths."""

    def __init__(self, hosts: int = 300, pages: int = 4000, seed: int = 1) -> None:
        super().__init__()
        self._rng = Random(seed)
        whole = sum(1 / rank for rank in range(1, hosts + 1))
        sizes = [max(1, round(pages / whole / rank)) for rank in range(1, hosts + 1)]
        names = [f"{HOST_NAMES[i % len(HOST_NAMES)]}-{i:03d}.example".encode("idna").decode() for i in range(hosts)]
        self._sites = {name: self._draw_site(i, sizes[i]) for i, name in enumerate(names)}
        self._pages = {name: self._draw_paths(name, size) for name, size in zip(names, sizes, strict=True)}
        self._links: dict[str, list[str]] = {url: [] for urls in self._pages.values() for url in urls}
        self._leaves: dict[str, Leaf] = {}
        self._join(names)
        self._mix(names)
        self._add_trouble(names)
        self._leaves |= {url: self._draw_leaf(url) for url in self._links}

    @property
    def hosts(self) -> int:
        """How many hosts it has."""
        return len(self._sites)

    def seeds(self) -> list[str]:
        """Return the largest host's home page."""
        return [next(iter(self._links))]

    def leaf(self, url: str) -> Leaf | None:
        """Return what was drawn for this URL."""
        return self._leaves.get(url)

    def site(self, host: str) -> Site:
        """Return what was drawn for this host."""
        return self._sites.get(host, Site())

    def _draw_site(self, number: int, size: int) -> Site:
        pace = "Crawl-delay: 0.2\n" if size <= 10 else ""
        robots = (KEEP_OUT, None, OTHERS + "User-agent: *\nAllow: /\n", KEEP_OUT + pace, KEEP_OUT)[number % 5]
        charset = self._rng.choice([*CHARSETS]) if number % 3 == 2 else "utf-8"
        return Site(robots, moved=number % 5 == 4, charset=charset)

    def _draw_paths(self, name: str, size: int) -> list[str]:
        rest = [self._rng.choice(PATHS).format(number) for number in range(1, size)]
        return [f"http://{name}{path}" for path in ["/", *rest]]

    def _join(self, names: list[str]) -> None:
        """Link every page from one before it, so that the seed reaches all."""
        for rank, name in enumerate(names):
            urls = self._pages[name]
            if rank:
                self._link(self._rng.choice(self._pages[names[self._rng.randrange(rank)]]), urls[0])
            for number in range(1, len(urls)):
                self._link(urls[(number - 1) // 5], urls[number])

    def _link(self, page: str, target: str) -> None:
        """Link two pages, sometimes only through up to three redirects."""
        for _ in range(self._rng.choice((1, 1, 2, 3)) if self._rng.random() < 0.04 else 0):
            detour = f"http://{halves(page)[0]}/go/{len(self._leaves)}"
            self._leaves[detour] = Leaf((target,), status=self._rng.choice((301, 302, 307, 308)))
            target = detour
        self._links[page].append(target)

    def _mix(self, names: list[str]) -> None:
        """Add redundant links, within hosts and between them."""
        for name in names:
            for url in self._pages[name]:
                near = self._rng.choices(self._pages[name], k=self._rng.randrange(5))
                others = self._rng.choices(names, k=self._rng.randrange(3))
                far = [self._rng.choice(self._pages[other]) for other in others]
                self._links[url] += [link for link in near + far if link != url]

    def _add_trouble(self, names: list[str]) -> None:
        """Add URLs that are gone, disallowed or not pages; and once each, a failing page and a redirect loop."""
        for number, url in enumerate(self._links):
            # The first pages have one of each kind, so that even a small web has them all.
            kind = number if number < len(TROUBLES) else self._rng.randrange(len(TROUBLES) * 8)
            if kind < len(TROUBLES):
                path, leaf = TROUBLES[kind]
                self._add(url, f"http://{halves(url)[0]}{path.format(number)}", leaf)
        first, last = (f"http://{names[i]}/circle/{i}" for i in (0, -1))
        self._add(self.seeds()[0], first, Leaf((last,), status=302))
        self._leaves[last] = Leaf((first,), status=301)
        self._add(self.seeds()[0], f"http://{names[-1]}/broken", Leaf(status=500))

    def _add(self, page: str, url: str, leaf: Leaf | None) -> None:
        self._links[page].append(url)
        if leaf:
            self._leaves[url] = leaf

    def _draw_leaf(self, url: str) -> Leaf:
        rng = self._rng
        charset = self._sites[halves(url)[0]].charset
        label = "" if charset == "utf-16" else rng.choice(("header", "header", "meta", ""))
        shape = rng.choice(("base", "refresh", "frame")) if rng.random() < 0.06 else ""
        delay = rng.uniform(0.3, 1.0) if rng.random() < 0.01 else 0.0
        links = tuple(dict.fromkeys(self._links[url]))
        return Leaf(links, charset=charset, label=label, shape=shape, delay=delay, flaky=rng.random() < 0.004)


TROUBLES: tuple[tuple[str, Leaf | None], ...] = (
    ("/dead/{}.html", None),
    ("/gone/{}.html", Leaf(status=410)),
    ("/paper/{}", Leaf(type="application/pdf")),
    ("/photo/{}", Leaf(type="image/png")),
    (CLOSED + "{}.html", Leaf()),
)
