"""Retry: refused URLs are asked again.

Who refuses a URL and who takes the refusal back is the same worker: the owner of its host. So nothing is removed here:
for each refusal an errand that names it is handed over (`urls.as_retry_task`), and whoever owns the host, now or in a
later run, removes the refusal and lets the URL wait again. Kill anybody meanwhile: the errand waits until the URL does.
"""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crawler import errors
from crawler import settings as config
from crawler.crawl.start import describe_machines
from crawler.errors import UsageError
from crawler.fleet.shards import inboxes, read_owners
from crawler.frontier.frontier import Frontier, in_parts
from crawler.frontier.task import BY_WAY_OF, Task, extend
from crawler.settings import Settings
from crawler.store.records import depth_of, farthest, from_utc, mark_of
from crawler.store.store import Store, find_host, open_to_write
from crawler.terminal import Add, bar, flag, many, say
from crawler.web import urls
from crawler.web.reasons import REASONS, row_of

PART = 10_000  # refusals that are handed over together
TOO_LONG = "too long"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which refusals are meant: by reason and by host (none: all), and those written before a time."""

    reasons: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()
    before: float = float("inf")

    def has(self, refusal: dict[str, Any]) -> bool:
        """Whether a refusal is meant; `http-4xx` means `http-404` too."""
        reason = str(refusal.get("reason"))
        is_named = not self.reasons or not self.reasons.isdisjoint({reason, row_of(reason)})
        return is_named and from_utc(str(refusal.get("when"))) < self.before


def commands(add: Add) -> None:
    """Add `crawler retry`."""
    example = "crawler retry /mnt/shared/crawl --reason timeout --reason http-5xx --older 7d"
    made = add("retry", "have refused URLs asked again", run, example)
    made.add_argument(
        "--reason", metavar="R", action="append", default=[], help="only these (see `status`); repeatable"
    )
    made.add_argument("--host", metavar="H", action="append", default=[], help="only URLs of this host; repeatable")
    made.add_argument(
        "--older", metavar="TIME", type=flag(config.duration), help="only those refused longer ago than 90s, 2h, 7d"
    )


def run(options: Namespace) -> int:
    """`crawler retry`."""
    before = float("inf") if options.older is None else time.time() - options.older
    reasons = frozenset(map(_reason, options.reason))
    store = open_to_write(options.store)
    wanted = Wanted(reasons, tuple(sorted({find_host(store, given) for given in options.host})), before)
    say(retry(store, store.settings(), wanted))
    return errors.OVER


def retry(store: Store, settings: Settings, wanted: Wanted) -> str:
    """Hand over an errand for each refusal that is meant; what came of it, as a sentence."""
    store.files.durable = settings.durable
    frontier = Frontier(store.files, settings)
    frontier.inboxes = inboxes(read_owners(store.files, settings.shards))
    counts: Counter[str] = Counter()
    for part in in_parts(bar(_refusals(store, wanted), "refusals"), PART):
        errands = {_errand(refusal, settings): str(refusal["reason"]) for refusal in part}
        fitting = {errand: reason for errand, reason in errands.items() if urls.is_safe(errand.url)}
        frontier.hand_over(fitting)
        frontier.flush()
        counts.update(fitting.values())
        counts[TOO_LONG] += len(part) - len(fitting)
    return _said(counts, describe_machines(store, settings))


def _refusals(store: Store, wanted: Wanted) -> Iterator[dict[str, Any]]:
    for host in wanted.hosts or sorted(filter(urls.is_host, store.files.names("errs"))):
        for refusal in store.refusals(host):
            url = refusal.get("url")
            if isinstance(url, str) and urls.is_safe(url) and urls.host(url) == host and wanted.has(refusal):
                yield refusal


def _errand(refusal: dict[str, Any], settings: Settings) -> Task:
    """The errand to ask a refused URL again, as far from a seed as it was; old refusals do not say how far."""
    target = re.fullmatch(rf"{BY_WAY_OF} (\S+)", str(refusal.get("detail")))  # of a redirect loop: it may still be one
    via = extend("", target[1]) if target else ""
    return Task(urls.as_retry_task(refusal["url"], mark_of(refusal)), depth_of(refusal, farthest(settings)), via=via)


def _said(counts: Counter[str], who: str) -> str:
    long = counts.pop(TOO_LONG, 0)
    left = f" ({many(long, 'URL')} left out: too long to be asked again)" if long else ""
    if not counts:
        return f"no refusal is to be asked again{left}; `crawler status` counts them by reason"
    by_reason = ", ".join(
        f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return f"{many(counts.total(), 'refusal')} to be asked again: {by_reason}{left}; {who}"


def _reason(given: str) -> str:
    if given not in REASONS and not re.fullmatch(r"http-\d{3}", given):
        raise UsageError(f"there is no reason {given!r}; the reasons are {', '.join(REASONS)}, or one such as http-404")
    return given
