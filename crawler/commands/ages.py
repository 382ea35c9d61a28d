"""The age of a corpus: how long ago its pages were last visited, from a sample of their records.

A store may have a million records, and a mount carries a few hundred operations a second. So some pages of the busiest
hosts and of some others are read, for a moment; each counts for as many pages as it stands for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice, zip_longest
from random import Random
from typing import Any

from crawler.errors import Misshapen
from crawler.store.store import KEY, Store
from crawler.store.visits import when
from crawler.terminal import many
from crawler.web import urls

HOUR, DAY = 3600.0, 86400.0
RANGES = (("1 h", HOUR), ("1 d", DAY), ("7 d", 7 * DAY), ("30 d", 30 * DAY))  # up to so old; the rest is OLDER
OLDER = "older"
NAMES = (*(name for name, _ in RANGES), OLDER)
HOSTS, PAGES = 20, 10  # hosts beside the busiest that are looked at, and pages of each
MAX_HOSTS, MAX_KEYS = 10_000, 1000  # names of a listing that are read
SECONDS = 0.5  # that it may take; a page that has begun is read to its end

Facts = dict[str, Any]


class Sampler:
    """Estimates the ages of a store's pages."""

    def __init__(self, store: Store, random: Random) -> None:
        self._store, self._random = store, random

    def ages(self, busiest: Mapping[str, int], seconds: float = SECONDS) -> Facts | None:
        """Return the share of pages up to each age, and how many were read; None if there are none.

        `busiest` are hosts and how many pages each has, as the workers count them.
        """
        limit, sampled = time.monotonic() + seconds, 0
        strata: list[dict[str, float]] = [{}, {}]  # of the busiest hosts, and of the others
        groups = [list(busiest), self._others(busiest)]
        seen = [0.0, 0.0]
        for place, host in _by_turns(*(self._random.sample(it, min(len(it), HOSTS)) for it in groups)):
            if sampled and time.monotonic() > limit:
                break
            found, pages = self._of_host(host, busiest.get(host))
            sampled += len(found)
            seen[place] += pages if place == 0 else 1
            for name in found:
                strata[place][name] = strata[place].get(name, 0.0) + pages / len(found)
        scales = [sum(busiest.values()) / (seen[0] or 1.0), len(groups[1]) / (seen[1] or 1.0)]
        sums = {name: sum(strata[place].get(name, 0.0) * scales[place] for place in (0, 1)) for name in NAMES}
        total = sum(sums.values())
        return {"sample": sampled, **{name: round(sums[name] / total, 4) for name in NAMES}} if total else None

    def _others(self, busiest: Mapping[str, int]) -> list[str]:
        names = islice(filter(urls.is_host, self._store.files.each_name("links")), MAX_HOSTS)
        return sorted(set(names) - busiest.keys())

    def _of_host(self, host: str, known: int | None) -> tuple[list[str], int]:
        """Return the ranges of some pages of a host, and how many pages it has, as far as that is known."""
        keys: list[str] = []
        with suppress(Misshapen):
            keys = list(islice(filter(KEY.fullmatch, self._store.files.each_name(f"links/{host}")), MAX_KEYS))
        chosen = self._random.sample(keys, min(len(keys), PAGES))
        pages = [page for key in chosen if (page := self._store.page_at(host, key))]
        now = time.time()
        found = [range_of(now - when(page.record, "checked", "fetched")) for page in pages]
        return found, known or round(len(keys) * len(pages) / max(len(chosen), 1))


def _by_turns(first: list[str], second: list[str]) -> list[tuple[int, str]]:
    """Return the items of two lists by turns, each with the number of its list."""
    pairs = zip_longest(first, second)
    return [(place, it) for pair in pairs for place, it in enumerate(pair) if it is not None]


def range_of(age: float) -> str:
    """Return the name of the range of an age in seconds."""
    return next((name for name, most in RANGES if age <= most), OLDER)


def chart(ages: Facts, bars: str) -> str:
    """Return a bar and a share for each range, in one line."""
    most = max(ages[name] for name in NAMES)
    told = (f"{name} {bars[_step(ages[name] / most, bars)]} {ages[name]:.0%}" for name in NAMES)
    return f"{', '.join(told)} (a sample of {many(ages['sample'], 'page')})"


def _step(share: float, bars: str) -> int:
    """Return the height of a bar; only nothing has none."""
    return max(round(share * (len(bars) - 1)), 1) if share else 0
