"""Webs for tests: a tree, in which no lost link goes unnoticed, and equal hosts; and the gaps in a server's log."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from crawler.commands.demo.pages import Leaf, halves
from crawler.commands.demo.server import LoggedRequest
from crawler.commands.demo.web import Web


class TreeWeb(Web):
    """Each page is linked from exactly one other, so that no lost link goes unnoticed."""

    def __init__(self, hosts: int = 1, fanout: int = 4, depth: int = 5, delay: float = 0.0) -> None:
        super().__init__()
        self.hosts, self.fanout, self.depth, self.delay = hosts, fanout, depth, delay

    def seeds(self) -> list[str]:
        """Return the root."""
        return [self._url("/")]

    def leaf(self, url: str) -> Leaf | None:
        """Return a node; its path says where it is: /0/3 is the first child's fourth child."""
        path = halves(url)[1]
        steps = path.strip("/").split("/") if path != "/" else []
        sound = all(step.isdigit() and int(step) < self.fanout for step in steps)
        if not sound or len(steps) > self.depth or url != self._url("/" + "/".join(steps)):
            return None
        below = range(self.fanout if len(steps) < self.depth else 0)
        stem = path.rstrip("/")
        return Leaf(tuple(self._url(f"{stem}/{child}") for child in below), delay=self.delay)

    def _url(self, path: str) -> str:
        return f"http://tree-{crc32(path.encode()) % self.hosts:03d}.example{path}"


class FlatWeb(Web):
    """Equal hosts with the same number of pages each, found through a chain of index pages."""

    def __init__(self, hosts: int = 100, pages: int = 1, delay: float = 0.0) -> None:
        super().__init__()
        self.hosts, self.pages, self.delay = hosts, pages, delay

    def seeds(self) -> list[str]:
        """Return the first index page."""
        return ["http://index.example/0"]

    def leaf(self, url: str) -> Leaf | None:
        """Return an index page, with fifty hosts and the next index page, or a page in a host's tree of tens."""
        host, path = halves(url)
        kind, _, rest = host.removesuffix(".example").partition("-")
        number = int(path[1:] or 0) if path[1:].isdigit() or path == "/" else -1
        if (kind, rest) == ("index", "") and 0 <= number * 50 < self.hosts:
            homes = range(number * 50, min(number * 50 + 50, self.hosts))
            onward = [f"http://index.example/{number + 1}"] if number * 50 + 50 < self.hosts else []
            return Leaf((*onward, *(f"http://flat-{home}.example/" for home in homes)), delay=self.delay)
        if kind != "flat" or not rest.isdigit() or int(rest) >= self.hosts or not 0 <= number < self.pages:
            return None
        below = range(number * 10 + 1, min(number * 10 + 11, self.pages))
        return Leaf(tuple(f"http://{host}/{child}" for child in below), delay=self.delay)


def gaps(log: Iterable[LoggedRequest]) -> dict[str, float]:
    """Return each host's shortest time from a reply to the next request; negative if they overlap."""
    shortest: dict[str, float] = {}
    ends: dict[str, float] = {}
    for request in sorted(log):
        if request.host in ends:
            gap = request.start - ends[request.host]
            shortest[request.host] = min(gap, shortest.get(request.host, gap))
        ends[request.host] = max(request.end, ends.get(request.host, request.end))
    return shortest
