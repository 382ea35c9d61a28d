"""`crawler retry`: failed URLs are requested again.

Only the owner of a host writes or removes its failure records, so nothing is removed here: for each failure record a
retry task is handed over (`task.retry_task`). Whoever owns the host, now or in a later run, removes the record and
queues the URL. A kill loses nothing: the retry task waits until the URL does.
"""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crawler import errors
from crawler.commands.arguments import DURATION, Add
from crawler.crawl.start import describe_machines
from crawler.errors import UsageError, did_you_mean
from crawler.fleet.shards import inboxes, read_owners
from crawler.frontier.batches import Outbox, in_parts
from crawler.frontier.task import BY_WAY_OF, Task, extend, retry_task
from crawler.settings.settings import Settings
from crawler.store.records import assumed_depth, depth_of, from_utc, mark_of
from crawler.store.store import Store, find_host
from crawler.store.writer import open_to_write
from crawler.terminal import bar, many, say
from crawler.web import urls
from crawler.web.reasons import KINDS, REASONS, kind, row_of

PART = 10_000  # failure records that are handed over together
TOO_LONG = "too long"


class Wanted(NamedTuple):
    """Which failure records are selected: by reason or kind and by host (none: all), and written before a time."""

    reasons: frozenset[str] = frozenset()
    hosts: tuple[str, ...] = ()
    before: float = float("inf")

    def has(self, failure: dict[str, Any]) -> bool:
        """Return whether a failure record is selected; `http-4xx` includes `http-404`."""
        reason = str(failure.get("reason"))
        is_named = not self.reasons or not self.reasons.isdisjoint({reason, row_of(reason), kind(reason)})
        return is_named and from_utc(str(failure.get("when"))) < self.before


def commands(add: Add) -> None:
    """Add `crawler retry`."""
    example = "crawler retry /mnt/shared/crawl --reason timeout --reason http-5xx --older 7d"
    made = add("retry", run, example)
    made.add_argument(
        "--reason", metavar="R", action="append", default=[], help="only this reason or kind (see `status`); repeatable"
    )
    made.add_argument("--host", metavar="H", action="append", default=[], help="only URLs of this host; repeatable")
    made.add_argument("--older", metavar="TIME", type=DURATION, help="only failures older than 90s, 2h, 7d")


def run(options: Namespace) -> int:
    """`crawler retry`."""
    before = float("inf") if options.older is None else time.time() - options.older
    reasons = [check_reason(given) for given in options.reason]  # before the store is looked for
    store = open_to_write(options.store)
    say(retry(store, store.settings(), select(store, reasons, options.host, before)))
    return errors.OVER


def select(store: Store, reasons: Iterable[str], hosts: Iterable[str], before: float = float("inf")) -> Wanted:
    """Return which failure records are meant by these words; UsageError or NotThere for a word that means nothing."""
    named = frozenset(map(check_reason, reasons))
    return Wanted(named, tuple(sorted({find_host(store, given) for given in hosts})), before)


def retry(store: Store, settings: Settings, wanted: Wanted) -> str:
    """Hand over a retry task for each failure record that is selected, and return what came of it in a sentence."""
    store.files.durable = settings.durable
    outbox = Outbox(store.files, settings, inboxes(read_owners(store.files, settings.shards)))
    counts: Counter[str] = Counter()
    for part in in_parts(bar(_failures(store, wanted), "failures"), PART):
        tasks = {_task(failure, settings): str(failure["reason"]) for failure in part}
        fitting = {task: reason for task, reason in tasks.items() if urls.is_safe(task.name)}
        outbox.send(fitting)
        counts.update(fitting.values())
        counts[TOO_LONG] += len(part) - len(fitting)
    return _said(counts, describe_machines(store, settings))


def _failures(store: Store, wanted: Wanted) -> Iterator[dict[str, Any]]:
    for host in wanted.hosts or sorted(filter(urls.is_host, store.files.names("errs"))):
        for failure in store.failures(host):
            url = failure.get("url")
            if isinstance(url, str) and urls.is_safe(url) and urls.host(url) == host and wanted.has(failure):
                yield failure


def _task(failure: dict[str, Any], settings: Settings) -> Task:
    """Return the retry task of a failed URL, at its depth; old failure records do not have one."""
    target = re.fullmatch(rf"{BY_WAY_OF} (\S+)", str(failure.get("detail")))  # of a redirect loop: it may still be one
    via = extend("", target[1]) if target else ""
    depth = depth_of(failure, assumed_depth(settings))
    return retry_task(failure["url"], mark_of(failure), depth, via)


def _said(counts: Counter[str], who: str) -> str:
    long = counts.pop(TOO_LONG, 0)
    left = f" ({many(long, 'URL')} left out: too long for a retry task)" if long else ""
    if not counts:
        return f"nothing to retry{left}; `crawler status` counts them by reason"
    by_reason = ", ".join(
        f"{reason} {count:,}" for reason, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return f"{many(counts.total(), 'URL')} will be requested again: {by_reason}{left}; {who}"


def check_reason(given: str) -> str:
    """Return a reason or kind that exists, or raise UsageError."""
    known = [*KINDS, *REASONS]
    if given not in known and not re.fullmatch(r"http-\d{3}", given):
        others = f"take one of {', '.join(known)}, or one such as http-404"
        raise UsageError(f"unknown reason {given!r}; {did_you_mean(given, known, others)}")
    return given
