"""A task: a waiting URL with all that is needed to visit it."""

from __future__ import annotations

from typing import NamedTuple

from crawler.web import urls
from crawler.web.page import PRIORITY

BY_WAY_OF = "by way of"  # before the target in the detail of a redirect loop


class Task(NamedTuple):
    """A waiting URL, one line of a batch; `due` is a time of this process's monotonic clock, or 0: now."""

    url: str
    depth: int = 0
    attempt: int = 0
    due: float = 0.0
    via: str = ""  # the redirects in a row that led here, oldest first (see `extend`)
    priority: int = PRIORITY  # from a sitemap, in tenths: sorts the URLs of a host at one depth

    @property
    def hops(self) -> int:
        """How many redirects in a row led here."""
        return count(self.via)

    def came_via(self, url: str) -> bool:
        """Tell whether a URL is one of these redirects.

        They travel with the task, so a redirect loop is seen at its last member, whoever visits it and when. A loop
        that links enter at several members has no failure: each of them redirects to a URL that is known.
        """
        return _mark(url) in self.via.split(",")


def extend(via: str, url: str) -> str:
    """Return the `via` of the target to which a URL with this `via` redirects."""
    return f"{via},{_mark(url)}" if via else _mark(url)


def count(via: str) -> int:
    """Return the number of redirects in a `via`."""
    return via.count(",") + 1 if via else 0


def _mark(url: str) -> str:
    return urls.key(urls.bare(url))[:12]
