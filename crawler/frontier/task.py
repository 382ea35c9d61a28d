"""A task: a URL that waits, with all that is needed to visit it."""

from __future__ import annotations

from typing import NamedTuple

from crawler.web.page import PRIORITY


class Task(NamedTuple):
    """A waiting URL: one line of a batch. `due` is a time of this process's monotonic clock; 0 is at once."""

    url: str
    depth: int = 0
    attempt: int = 0
    due: float = 0.0
    hops: int = 0  # redirects in a row that led here
    priority: int = PRIORITY  # of a sitemap, in tenths: among the URLs of a host at one depth
