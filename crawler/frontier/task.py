"""A task: a waiting URL with all that is needed to visit it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from crawler.settings.regions import Rules, place, region_of_host
from crawler.web import urls
from crawler.web.page import PRIORITY

BY_WAY_OF = "by way of"  # before the target in the detail of a redirect loop

PAGE, SITEMAP, ROBOTS, RETRY, REVISIT = "page", "sitemap", "robots", "retry", "revisit"  # kinds of tasks
# The same in a role, with the detail. A retry or a revisit of anything but a page has the role of that before it.
_SITEMAP = re.compile("sitemap(?:-([1-9]))?")
_ROBOTS = re.compile("robots-of-(([^~#]+)~[^#]*)")
_RETRY = re.compile("(?:(.+)#)?again~([^#]*)")
_REVISIT = re.compile("(?:(.+)#)?revisit-([1-9][0-9]{0,8}(?:-now)?)")
OVERDUE = 3600.0  # seconds: a revisit that is due for longer is overdue
NOW = "-now"  # ends the detail of a revisit that does not go by the schedule


class Task(NamedTuple):
    """A waiting URL, one line of a batch; `due` is a time of this process's monotonic clock, or 0: now."""

    url: str  # what is requested; never has a fragment
    depth: int = 0
    attempt: int = 0
    due: float = 0.0
    via: str = ""  # the redirects in a row that led here, oldest first (see `extend`)
    # From a sitemap, in tenths: sorts the URLs of a host at one depth. From the operator, plus GIVEN: sorts all of it.
    priority: int = PRIORITY
    kind: str = PAGE
    # Of a sitemap: its level, if above 1. Of a robots task: `host~token`. Of a retry: the mark of the failure record,
    # after the role of what failed unless that is a page: `sitemap-2#mark`. Of a revisit likewise: which visit of its
    # URL it is, and perhaps NOW. So each visit is a task of its own, and what is done stays done.
    detail: str = ""
    blame: int = 0  # for workers that died while they had it in hand (see `Machine._on_worker_death`)

    @classmethod
    def named(
        cls,
        name: str,
        depth: int = 0,
        attempt: int = 0,
        due: float = 0.0,
        via: str = "",
        priority: int = PRIORITY,
        blame: int = 0,
    ) -> Task:
        """Return the task with this name (see `name`); any other fragment is dropped, as it is from links."""
        url, _, role = name.partition("#")
        kind, detail = _read_role(role) if role else (PAGE, "")
        return cls(url, depth, attempt, due, via, priority, kind, detail, blame)

    @property
    def name(self) -> str:
        """The URL with the role as its fragment: what the key is made from, and the `url` of a sitemap's record."""
        return self.url if self.kind == PAGE else f"{self.url}#{self.role}"

    @property
    def role(self) -> str:
        """The kind and its detail in one word, as in a line of a batch; empty for a page."""
        if self.kind == PAGE:
            return ""
        if self.kind == SITEMAP:
            return f"sitemap-{self.detail}" if self.detail else "sitemap"
        if self.kind == ROBOTS:
            return f"robots-of-{self.detail}"
        subject, separator, mark = self.detail.rpartition("#")
        return f"{subject}{separator}revisit-{mark}" if self.kind == REVISIT else f"{subject}{separator}again~{mark}"

    @property
    def subject(self) -> str:
        """The name of the task whose record tells what became of it: for a retry or a revisit not its own name."""
        if self.kind not in (RETRY, REVISIT):
            return self.name
        role = self.detail.rpartition("#")[0]
        return f"{self.url}#{role}" if role else self.url

    @property
    def host(self) -> str:
        """The host that is requested, as its folder is named."""
        return self.url.split("/", 3)[2]

    @property
    def level(self) -> int:
        """The level of a sitemap: 1, or one more than that of the sitemap that lists it; 0 for other kinds."""
        if self.kind == REVISIT:
            return Task.named(self.subject).level
        return int(self.detail or 1) if self.kind == SITEMAP else 0

    @property
    def visit(self) -> int:
        """Which visit of its URL a revisit is: 2 is the first after that which found the page; 0 for other kinds."""
        return int(self.detail.rpartition("#")[2].removesuffix(NOW)) if self.kind == REVISIT else 0

    @property
    def is_unscheduled(self) -> bool:
        """Whether it is a revisit that somebody asked for, whatever the schedule says."""
        return self.kind == REVISIT and self.detail.endswith(NOW)

    @property
    def robots_host(self) -> str:
        """The host whose robots.txt a robots task fetches from another host; empty for other kinds."""
        return self.detail.partition("~")[0] if self.kind == ROBOTS else ""

    @property
    def is_side_task(self) -> bool:
        """Whether it is a robots task or a retry, which leaves no record of its own."""
        return self.kind in (ROBOTS, RETRY)

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


def sitemap_task(url: str, level: int = 1, depth: int = 0, via: str = "") -> Task:
    """Return the task that reads a sitemap; `level` is 1, or one more than that of the sitemap that lists it."""
    return Task(url, depth, via=via, kind=SITEMAP, detail=str(level) if level > 1 else "")


def robots_task(url: str, host: str, token: str, depth: int = 0, via: str = "") -> Task:
    """Return the task that fetches `host`'s robots.txt from another host; a new token makes a new task."""
    return Task(url, depth, via=via, kind=ROBOTS, detail=f"{host}~{token}")


def retry_task(name: str, mark: str, depth: int = 0, via: str = "") -> Task:
    """Return the task that retries what has a failure record under this name; the mark tells which record is meant."""
    url, separator, role = name.partition("#")
    return Task(url, depth, via=via, kind=RETRY, detail=f"{role}{separator}{mark}")


def revisit_task(name: str, visit: int, depth: int = 0, due: float = 0.0, now: bool = False) -> Task:
    """Return the task that visits again what has a record under this name; `now` whatever the schedule says."""
    url, separator, role = name.partition("#")
    return Task(url, depth, due=due, kind=REVISIT, detail=f"{role}{separator}{visit}{NOW if now else ''}")


def _read_role(role: str) -> tuple[str, str]:
    """Return the kind and the detail that a role stands for; those of a page if it is none."""
    if found := _SITEMAP.fullmatch(role):
        return SITEMAP, found[1] or ""
    if found := _RETRY.fullmatch(role):
        return RETRY, f"{found[1]}#{found[2]}" if found[1] else found[2]
    if found := _REVISIT.fullmatch(role):
        return REVISIT, f"{found[1]}#{found[2]}" if found[1] else found[2]
    found = _ROBOTS.fullmatch(role)
    return (ROBOTS, found[1]) if found and urls.is_host(found[2]) else (PAGE, "")


def shard_of(task: Task, shards: int, spread: str, regions: Rules = ()) -> int:
    """Return the shard of a task: that of its host's domain, of its host or, spread by URL, of its record's name."""
    return shard_of_host(task.subject if spread == "url" else task.url.split("/", 3)[2], shards, spread, regions)


@lru_cache(maxsize=16_384)  # most links of a page are on few hosts, and each is looked up several times
def shard_of_host(name: str, shards: int, spread: str = "domain", regions: Rules = ()) -> int:
    """Return the shard of a host, or of the URL of one: of those of its region, if there are any."""
    key = urls.key(urls.shard_group(name) if spread == "domain" else name)
    host = urls.host(name) if spread == "url" else name
    return place(int(key, 16), shards, region_of_host(host, regions), regions)


def extend(via: str, url: str) -> str:
    """Return the `via` of the target to which a URL with this `via` redirects."""
    return f"{via},{_mark(url)}" if via else _mark(url)


def count(via: str) -> int:
    """Return the number of redirects in a `via`."""
    return via.count(",") + 1 if via else 0


def _mark(url: str) -> str:
    return urls.key(url)[:12]
