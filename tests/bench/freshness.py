"""Rules for revisits on synthetic webs: the share of page-time in which the stored copy is the live page.

Run: `python tests/bench/freshness.py`. Pages change by Poisson processes with rates of their own; each rule may make
the same number of requests, its earliest due first. Rules: a fixed interval; Nutch's (+40 % if unchanged, -20 % if
changed, with its shift towards the change); StormCrawler's (+50 % / half way to the least); as often as it changes;
ours (`crawler.frontier.recrawl`: one price per host, and the page's own visits, changes and time watched); the optimum
for rates that are known.

Then for a host with ten pages from the first visit on, where nothing limits the requests: a fixed interval and ours.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable
from math import exp, inf, log
from random import Random
from typing import NamedTuple, Protocol

from crawler.frontier.recrawl import DAY, best_interval, chosen_interval, next_price, rate_of

DAYS, WARM, STEP = 240.0, 90.0, 1 / 12  # the first days do not count; requests are made every two hours


class Web(NamedTuple):
    """How often pages change: a lognormal distribution, and a part that hardly ever does."""

    name: str
    median: float  # changes a day
    still: float  # the share of pages that change once in 3,000 days


WEBS = (Web("calm", 1 / 20, 0.35), Web("fast", 1 / 2, 0.1))
HOSTS = 20  # small ones
BUDGETS = (3.0, 10.0, 30.0)  # days between two visits of a page, on average


class Page:
    """A page, and what a crawler may know of it."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.last = self.checked = 0.0  # visits
        self.interval = 0.0
        self.visits, self.changes = 1, 0
        self.changed = 0.0


class Rule(Protocol):
    """Decides when a page is visited again."""

    def first(self) -> float: ...
    def next(self, page: Page, now: float, changed: bool) -> float: ...


class Fixed:
    def __init__(self, every: float, pages: list[Page]) -> None:
        self.every = every

    def first(self) -> float:
        return self.every

    def next(self, page: Page, now: float, changed: bool) -> float:
        return self.every


class Nutch(Fixed):
    """AdaptiveFetchSchedule with nutch-default.xml."""

    def first(self) -> float:
        return 30.0

    def next(self, page: Page, now: float, changed: bool) -> float:
        page.interval = (page.interval or 30.0) * (0.8 if changed else 1.4)
        page.changed = now if changed else page.changed
        unchanged_for = now - page.changed
        page.interval = min(max(page.interval, unchanged_for, 60 / 86400), 365.0)
        return max(page.interval - 0.3 * unchanged_for, 60 / 86400)


class Storm(Fixed):
    """AdaptiveScheduler with its defaults: a day first, an hour to two weeks."""

    def first(self) -> float:
        return 1.0

    def next(self, page: Page, now: float, changed: bool) -> float:
        old = page.interval or 1.0
        page.interval = 0.5 * old + 0.5 / 24 if changed else min(old * 1.5, 14.0)
        return page.interval


class AsOften(Fixed):
    """As often as it changes, as far as that is known."""

    def __init__(self, every: float, pages: list[Page]) -> None:
        super().__init__(every, pages)
        self.scale = 1.0

    def next(self, page: Page, now: float, changed: bool) -> float:
        rate = rate_of(page.visits - 1, page.changes, page.checked * DAY, self.every * DAY) * DAY
        interval = min(max(self.scale / rate, self.every / 100), 8 * self.every)
        self.scale *= exp(0.02 * (1 - interval / self.every))
        return interval


class Ours(Fixed):
    def __init__(self, every: float, pages: list[Page]) -> None:
        super().__init__(every, pages)
        self.price = 0.0

    def next(self, page: Page, now: float, changed: bool) -> float:
        seconds = chosen_interval(page.visits - 1, page.changes, page.checked * DAY, self.every * DAY, self.price)
        self.price = next_price(self.price, seconds, self.every * DAY)
        return seconds / DAY


class Optimum(Fixed):
    def __init__(self, every: float, pages: list[Page]) -> None:
        super().__init__(every, pages)
        low, high = -25.0, 15.0
        for _ in range(60):
            middle = (low + high) / 2
            asked = sum(1 / self._of(page.rate, exp(middle)) for page in pages)
            low, high = (middle, high) if asked > len(pages) / every else (low, middle)
        self.price = exp(high)

    def _of(self, rate: float, price: float) -> float:
        found = best_interval(rate, price)
        return max(found, STEP) if found < inf else 1e9

    def next(self, page: Page, now: float, changed: bool) -> float:
        return self._of(page.rate, self.price)


RULES: tuple[tuple[str, Callable[[float, list[Page]], Rule]], ...] = (
    ("fixed interval", Fixed),
    ("Nutch", Nutch),
    ("StormCrawler", Storm),
    ("as often as it changes", AsOften),
    ("ours", Ours),
    ("optimum, rates known", Optimum),
)


def make_pages(web: Web, count: int, chance: Random) -> list[Page]:
    rates = (1 / 3000 if chance.random() < web.still else exp(chance.gauss(log(web.median), 1.8)) for _ in range(count))
    return [Page(min(max(rate, 1 / 3000), 24.0)) for rate in rates]


class Result(NamedTuple):
    fresh: float
    used: float  # of the requests that were allowed
    unchanged: float  # of the requests: for these a 304 would do


def simulate(
    web: Web,
    every: float,
    rule: Callable[[float, list[Page]], Rule],
    count: int = 1000,
    days: float = DAYS,
    warm: float = WARM,
    is_limited: bool = True,
    seed: int = 1,
) -> Result:
    """Let a rule visit a web for some months; `is_limited` to the requests that it may make."""
    chance = Random(seed)
    pages = make_pages(web, count, chance)
    made, fresh, used, unchanged, allowed, now = rule(every, pages), 0.0, 0, 0, 0.0, 0.0
    change = [chance.expovariate(page.rate) for page in pages]
    due = [(chance.random() * made.first(), number) for number in range(count)]
    heapq.heapify(due)
    while now < days:
        now += STEP
        allowed = min(allowed + count / every * STEP, 3 * count / every * STEP + 1)
        while due and due[0][0] <= now and (allowed >= 1 or not is_limited):
            allowed -= 1
            _, number = heapq.heappop(due)
            page = pages[number]
            changed = change[number] < now
            fresh += max(min(change[number], now) - max(page.last, warm), 0.0)
            used, unchanged = used + (now > warm), unchanged + (now > warm and not changed)
            page.visits, page.changes = page.visits + 1, page.changes + changed
            page.last = page.checked = now
            if changed:
                change[number] = now + chance.expovariate(page.rate)
            heapq.heappush(due, (now + made.next(page, now, changed), number))
    fresh += sum(max(min(change[n], days) - max(page.last, warm), 0.0) for n, page in enumerate(pages))
    period = days - warm
    return Result(fresh / (count * period), used / (period * count / every), unchanged / max(used, 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=2000)
    options = parser.parse_args()
    for web in WEBS:
        for every in BUDGETS:
            print(f"\n{web.name} web, each page once in {every:g} days on average\n{'':24}  fresh   used  unchanged")
            for name, rule in RULES:
                found = simulate(web, every, rule, options.pages)
                print(f"{name:24}  {found.fresh:.3f}  {found.used:5.2f}  {found.unchanged:9.2f}", flush=True)
            for name, rule in ("fixed, a small host", Fixed), ("ours, a small host", Ours):
                small = [simulate(web, every, rule, 10, 20 * every, 0.0, False, seed) for seed in range(HOSTS)]
                fresh, used = (sum(it[part] for it in small) / HOSTS for part in (0, 1))
                print(f"{name:24}  {fresh:.3f}  {used:5.2f}", flush=True)


if __name__ == "__main__":
    main()
