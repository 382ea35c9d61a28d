"""The seeds and what follows from them: the scope, so which links are followed.

Whom the operator trusts does not follow from seeds: anybody who can write into the store may add one (see `trust`).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, islice, repeat
from typing import Any

from crawler.frontier.task import ROBOTS, Task, sitemap_task
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.kept import REDIRECT
from crawler.store.records import depth_of, links_of
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.web import kinds, patterns, urls
from crawler.web.page import GIVEN, PRIORITY
from crawler.web.traps import TRAPS, trap

SITEMAP_LEVELS = 3  # how deep sitemaps may name other sitemaps
SITEMAPS_PER_ROBOTS = 500  # that are read from one robots.txt
SEED_PRIORITY = ".priority-"  # in the name of a file of seeds, before the number
YEAR_CACHED = 600.0  # seconds until the current year is looked up again
NOTHING: Mapping[str, int] = {}


class Seeds:
    """The seeds of a crawl as one worker knows them; `refresh` reads new ones."""

    def __init__(self, store: Store, settings: Settings, clock: Clock = SYSTEM) -> None:
        self.store = store
        self.settings = settings
        self.skipped: Counter[str] = Counter()  # links that a trap's rule removed or changed, waiting URLs now excluded
        self.scope = Scope(
            settings.scope, (), settings.include, settings.exclude, settings.traps, clock, settings.content_types
        )
        self.narrow = settings.scope != "any"
        self._known: set[str] = set()
        self._widened = 0  # how often the scope has changed: part of the cache's key
        # Pages of a site share most of their links.
        self._judge_once = lru_cache(maxsize=8_192)(self._judge)

    def refresh(self, freshen: bool = True) -> None:
        """Read new seeds, from a fresh listing: with an outdated scope, links would be lost for good."""
        if freshen:
            self.store.files.freshen("seeds")
        for name, seeds in self.store.seeds(self._known):
            self._known.add(name)
            for url in seeds if self.narrow else ():
                self._add(url)

    def beyond_scope(self, seeds: Iterable[str]) -> list[str]:
        """Return the seeds that the scope does not contain yet; the scope `page` is not widened."""
        if self.settings.scope in ("any", "page"):  # a sitemap may list very many pages
            return []
        return [url for url in seeds if self.scope.refuses(url) == "scope"]

    def widen(self, seed: str) -> None:
        """Add a seed's redirect (example.org to www.example.org), or what a sitemap that the user gave lists."""
        StoreWriter(self.store.root, self.store.files).add_seeds([seed], f"{REDIRECT}{urls.key(seed)}")
        self._add(seed)

    def _add(self, url: str) -> None:
        self.scope.add(url)
        self._widened += 1

    def adopt(self, settings: Settings) -> None:
        """Use edited settings from now on."""
        self.settings = settings
        self.scope.go_by(settings.include, settings.exclude)
        self._widened += 1

    # ---- which links are followed

    def follow(self, record: Mapping[str, Any], via: str = "", known: Mapping[str, int] = NOTHING) -> list[Task]:
        """Return the links of a record that the crawl follows, as tasks to hand over.

        A page's links are one deeper. A redirect or a sitemap has no page, so its links have its own depth. Links that
        are `known` at their depth or nearer are left out (see `Frontier.recent`).
        """
        depth = depth_of(record) + (record.get("sha224") is not None)
        if self._is_too_far(depth) or (self.settings.robots and "nofollow" in (record.get("robots") or ())):
            return []
        visited, kind = Task.named(str(record.get("url"))), record.get("sitemap")
        if visited.level and kind in (None, "index"):  # a redirect of a sitemap, or a sitemap of sitemaps
            named = filter(urls.is_safe, links_of(record))
            return list(self._sitemaps(named, visited.host, depth, visited.level + (kind is not None), via))
        wanted = depth == 0  # a seed's redirect, or listed in a sitemap that the user gave: seeds too
        despite = () if not wanted else ("scope",) if visited.level else ("scope", "extension")
        tasks = []
        for link, priority in zip(links_of(record), _priorities(record), strict=False):
            if known.get(link, depth + 1) <= depth:  # as most are, with another page
                continue
            followed, traps, given = self._judge_once(link, despite, self._widened)
            for rule in traps:
                self._count(rule)
            if followed is not None:
                tasks.append(Task(followed, depth, 0, 0.0, via, priority if given is None else given))
        return tasks

    def leave_out(self, task: Task) -> bool:
        """Tell whether a waiting URL is excluded by now: the patterns may have been edited since it was found."""
        rule = bars(self.scope, task)
        if rule:
            self._count(rule)
        return rule is not None

    def sitemaps(self, named: Iterable[str], host: str, depth: int) -> list[Task]:
        """Return the sitemaps in a host's robots.txt as tasks to hand over."""
        if not self.settings.sitemaps or self.settings.scope == "page" or self._is_too_far(depth):
            return []
        normalized = (
            urls.normalize(link, f"http://{host}/", self.settings.removed_parameters)
            for link in islice(named, SITEMAPS_PER_ROBOTS)
        )
        return list(self._sitemaps(filter(None, normalized), host, depth, 1))

    def _sitemaps(self, links: Iterable[str], host: str, depth: int, level: int, via: str = "") -> Iterator[Task]:
        """Yield the sitemaps on the domain that names them, or in scope; not excluded, and not nested too deep."""
        home = urls.domain(host) or host
        for link in links if level <= SITEMAP_LEVELS else ():
            near = urls.host(link) == host or urls.domain(urls.host(link)) == home
            despite = ("scope", "include", "extension") if near else ("extension",)
            if self.scope.refuses(link, despite) is None:
                yield sitemap_task(link, level, depth, via)

    def _judge(
        self, link: str, despite: tuple[str, ...], _widened: int
    ) -> tuple[str | None, tuple[str, ...], int | None]:
        """Return a link as it is handed over, or None if it is not followed, and the traps' rules that were applied.

        Also the priority that the operator gave it. People edit records, so check `is_safe`.
        """
        if not urls.is_safe(link):
            return None, (), None
        plain = urls.without_session(link) if "session" in self.settings.traps else link
        rule = self.scope.refuses(plain, despite)
        traps = (("session",) if plain != link else ()) + ((rule,) if rule in TRAPS else ())
        given = given_priority(self.settings, plain) if self.settings.priorities else None
        return (plain if rule is None else None), traps, given

    def _count(self, rule: str) -> None:
        self.skipped[rule] += 1

    def _is_too_far(self, depth: int) -> bool:
        return self.settings.depth is not None and depth > self.settings.depth


def given_priority(settings: Settings, url: str) -> int | None:
    """Return the priority that the operator gave a URL by a pattern, plus GIVEN; None if no pattern is found in it."""
    found = (number for pattern, number in settings.priorities.items() if patterns.compiled(pattern).search(url))
    number = next(found, None)
    return None if number is None else GIVEN + number


def seed_tasks(file: str, names: Iterable[str], settings: Settings) -> Iterator[Task]:
    """Yield the tasks of a file of seeds, with the priority that its name says, or else that of their pattern."""
    said = re.search(rf"{re.escape(SEED_PRIORITY)}(\d+)", file)
    for task in map(Task.named, names):
        given = GIVEN + int(said[1]) if said else given_priority(settings, task.url)
        yield task if given is None else task._replace(priority=given)


def bars(scope: Scope, task: Task) -> str | None:
    """Return which of the user's patterns excludes a waiting URL: "include", "exclude", or None.

    Seeds and sitemaps need no include; robots tasks are always allowed. The scope itself is not checked: another
    worker may have widened it.
    """
    if task.kind == ROBOTS or not scope.has_patterns:
        return None
    is_named = task.depth == 0 or task.level > 0
    return scope.bars(task.url, despite=("include",) if is_named else ())


def _priorities(record: Mapping[str, Any]) -> Iterator[int]:
    """Yield the priorities of a record's links, from a sitemap; the default where it has none."""
    said = record.get("priorities")
    tenths = said if isinstance(said, list) else ()
    return chain((ten if ten in range(11) else PRIORITY for ten in tenths), repeat(PRIORITY))


class Scope:
    """Which links are followed: those as near a seed as `kind` says, by include and exclude, and no traps."""

    def __init__(
        self,
        kind: str,
        seeds: Iterable[str] = (),
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        traps: Iterable[str] = (),
        clock: Clock = SYSTEM,
        content_types: tuple[str, ...] = (),
    ) -> None:
        """Take normalized seeds; a URL must match one of `include`, if there are any, and none of `exclude`."""
        self._is_anywhere = kind == "any"
        self._places = KINDS[kind]
        self._marks: set[str] = set()
        self.go_by(include, exclude)
        self._traps = frozenset(traps)
        self._content_types = content_types
        self._clock, self._year, self._year_until = clock, 0, 0.0
        for seed in seeds:
            self.add(seed)

    def go_by(self, include: Iterable[str], exclude: Iterable[str]) -> None:
        """Use these patterns from now on."""
        self._include = [*map(patterns.compiled, include)]
        self._exclude = [*map(patterns.compiled, exclude)]
        self.has_patterns = bool(self._include or self._exclude)

    def add(self, seed: str) -> None:
        """Add a normalized URL as a seed."""
        *_, nearest = self._places(seed)
        self._marks.add(nearest)

    def admits(self, url: str) -> bool:
        """Tell whether a normalized URL is followed."""
        return self.refuses(url) is None

    def refuses(self, url: str, despite: Collection[str] = ()) -> str | None:
        """Return the rule that excludes a normalized URL: "scope", "include", "exclude", a trap's name, or None.

        The rules named in `despite` ("scope", "include", "extension") are not applied.
        """
        if not (self._is_anywhere or "scope" in despite) and self._marks.isdisjoint(self._places(url)):
            return "scope"
        rule = self.bars(url, despite) if self.has_patterns else None
        if rule is not None or not self._traps:
            return rule
        is_judged = "extension" in self._traps and "extension" not in despite
        if is_judged and kinds.unwanted_extension(url, self._content_types):
            return "extension"
        if self._clock.monotonic() >= self._year_until:
            self._look_up_year()
        return trap(url, self._traps, self._year)

    def bars(self, url: str, despite: Collection[str] = ()) -> str | None:
        """Return which of the user's patterns exclude a normalized URL: "include", "exclude", or None."""
        if self._include and "include" not in despite and not any(pattern.search(url) for pattern in self._include):
            return "include"
        return "exclude" if any(pattern.search(url) for pattern in self._exclude) else None

    @property
    def places(self) -> list[str]:
        """The pages, folders, hosts or domains that seeds have marked, depending on the kind."""
        return sorted(self._marks)

    def _look_up_year(self) -> None:
        self._year, self._year_until = time.gmtime(self._clock.time()).tm_year, self._clock.monotonic() + YEAR_CACHED


# Each kind lists the places that contain a URL, the nearest last. A seed marks its nearest place, and a URL in
# any marked place is admitted: the cost does not grow with the number of seeds.


def _page(url: str) -> Iterable[str]:
    return (url,)


def _directories(url: str) -> Iterator[str]:
    # Without the scheme: http and https are the same site here.
    place = url.partition("://")[2].partition("?")[0]
    end = place.find("/") + 1
    while end:
        yield place[:end]
        end = place.find("/", end) + 1


def _host(url: str) -> Iterable[str]:
    return (urls.host(url),)


def _domain(url: str) -> Iterable[str]:
    name = urls.host(url)
    return (urls.domain(name) or name,)


def _anywhere(url: str) -> Iterable[str]:
    return ("",)


KINDS: dict[str, Callable[[str], Iterable[str]]] = {
    "page": _page,
    "prefix": _directories,
    "host": _host,
    "domain": _domain,
    "any": _anywhere,
}
