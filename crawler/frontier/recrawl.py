"""When a page is visited again: by the setting `recrawl`, and by what its record tells of earlier visits. Pure.

A fixed interval is what it says. The adaptive rule (`chosen_interval`) estimates from a page's own visits, changes and
the time watched how often it changes. Each host has a price of a request, one number; a page is visited when the
freshness that a visit brings is worth that price, so pages that never change and pages that change all the time are
visited less often than those between. The price follows from the mean interval that the user wants.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from typing import Any

from crawler.frontier.task import REVISIT, Task, revisit_task
from crawler.settings.values import duration
from crawler.store import visits
from crawler.store.records import depth_of
from crawler.web import patterns, urls

DAY = 86400.0
DEFAULT_MEAN = 7 * DAY  # of the adaptive rule
LISTS_SOONER = 4  # times as often as pages are feeds and sitemaps visited: they tell of the rest
FEEDS = ("application/rss+xml", "application/atom+xml", "application/feed+json")
MOST_DOUBLINGS = 5  # of the interval after failures
PRIOR = 0.25  # as many visits' worth of doubt about a page of which little is known
BOUNDS = 1 / 100, 8.0  # of the mean: the shortest and the longest interval
STEP = 0.2  # by which one visit moves the price, as a logarithm


def rate_of(visits: int, changes: int, watched: float, mean: float) -> float:
    """Return how often a page changes a second, from its revisits, the changes that they found, and the time watched.

    Several changes between two visits look like one, for which the logarithm makes up (Cho and Garcia-Molina). A page
    of which little is known is taken to change once in the mean interval.
    """
    span = (watched + PRIOR * mean) / (visits + PRIOR)  # between two visits
    unchanged = visits - changes + PRIOR
    return -log(unchanged / (visits + 2 * PRIOR)) / span


def best_interval(rate: float, price: float) -> float:
    """Return the interval at which one more visit brings as much freshness as it costs; infinity if none does."""
    worth = price * rate
    if worth >= 1:
        return inf
    low, high = 0.0, 60.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 - (1 + middle) * exp(-middle) < worth else (low, middle)
    return high / rate


def chosen_interval(visits: int, changes: int, watched: float, mean: float, price: float) -> float:
    """Return the seconds until the next visit by the adaptive rule; `price` is a logarithm, in means."""
    found = best_interval(rate_of(visits, changes, watched, mean), mean * exp(price - 1))
    return min(max(found, BOUNDS[0] * mean), BOUNDS[1] * mean)


def next_price(price: float, interval: float, mean: float) -> float:
    """Return the price after a page got this interval: over all visits of a host their mean becomes the wanted one."""
    return price + STEP * (1 - interval / mean)


class Recrawl:
    """The setting `recrawl`, ready for use."""

    def __init__(self, given: Any) -> None:
        by_pattern = given if isinstance(given, Mapping) else {} if given is None else {"*": given}
        self._rules: list[tuple[patterns.Pattern | None, float | str | None]] = [
            (None if it == "*" else patterns.compiled(it), rule) for it, rule in by_pattern.items()
        ]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def _rule(self, url: str) -> float | str | None:
        for pattern, rule in self._rules:
            if pattern is None or pattern.search(url):
                return rule
        return None

    def wants(self, task: Task) -> bool:
        """Tell whether a task is no visit by a schedule, or one of a page that is visited again."""
        return task.kind != REVISIT or task.is_unscheduled or self._rule(task.url) is not None

    def mean(self, record: Mapping[str, Any]) -> float | None:
        """Return the interval of a page, for the adaptive rule on average; None if it is never visited again."""
        rule = self._rule(str(record.get("url")).partition("#")[0])
        if isinstance(rule, str):
            rule = duration(rule.split()[1]) if " " in rule else DEFAULT_MEAN
        is_list = record.get("sitemap") or record.get("type") in FEEDS
        return rule if rule is None else rule / LISTS_SOONER if is_list else rule

    def interval(self, record: Mapping[str, Any]) -> float | None:
        """Return the seconds from the last visit of a page to the next; None if there is none."""
        mean = self.mean(record)
        if mean is None:
            return None
        seconds = self._adaptive(record, mean) if self.is_adaptive(record) else mean
        return seconds * 2.0 ** min(visits.number(record, "failures"), MOST_DOUBLINGS)

    def is_adaptive(self, record: Mapping[str, Any]) -> bool:
        """Tell whether a page's interval goes by its own history."""
        return isinstance(self._rule(str(record.get("url")).partition("#")[0]), str)

    @staticmethod
    def _adaptive(record: Mapping[str, Any], mean: float) -> float:
        seen = max(visits.visits_of(record) - 1 - visits.number(record, "failures"), 0)
        changes = min(visits.number(record, "changes"), seen)
        return chosen_interval(seen, changes, visits.number(record, "watched"), mean, price_in(record) or 0.0)

    def due(self, record: Mapping[str, Any]) -> float | None:
        """Return when a page is to be visited next, by the wall clock; None if never."""
        seconds = self.interval(record)
        return None if seconds is None else visits.last_visit(record) + seconds

    def task(self, record: Mapping[str, Any], now: float, wall: float, is_new: bool = False) -> Task | None:
        """Return the next visit of a page as a task; `now` and `wall` are what time it is, by both clocks.

        If it should have been visited before and never was again, or the setting `is_new`, it gets a time within the
        coming interval, each page its own: so a store whose setting has changed is not fetched all at once.
        """
        name, due = str(record.get("url")), self.due(record)
        if due is None or not urls.is_safe(name):
            return None
        if due < wall and (is_new or visits.visits_of(record) == 1):
            due = wall + (self.interval(record) or 0.0) * _lot(name)
        return revisit_task(name, visits.visits_of(record) + 1, depth_of(record), now + max(due - wall, 0.001))


def task_now(record: Mapping[str, Any]) -> Task:
    """Return the task that visits a page again whatever the schedule says."""
    return revisit_task(str(record["url"]), visits.visits_of(record) + 1, depth_of(record), now=True)


def price_in(record: Mapping[str, Any]) -> float | None:
    """Return the price in a record, if it has one that makes sense."""
    found = record.get("price")
    return float(found) if isinstance(found, int | float) and -50 < found < 50 else None


def _lot(name: str) -> float:
    """Return a number from 0 to 1 that is always the same for a name."""
    return int(urls.key(name)[:8], 16) / (1 << 32)
