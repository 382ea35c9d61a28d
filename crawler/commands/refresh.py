"""`crawler refresh`: stored pages are visited again now, whatever the schedule says.

Nothing is removed: for each page a revisit is handed over, and whoever owns the host makes it, now or in a later run.
"""

from __future__ import annotations

import re
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import Any

from crawler import errors
from crawler.commands.arguments import DURATION, Add, flag
from crawler.crawl.start import describe_machines
from crawler.fleet.shards import inboxes, read_owners
from crawler.frontier.batches import Outbox, in_parts
from crawler.frontier.recrawl import task_now
from crawler.settings import values
from crawler.settings.settings import Settings
from crawler.store.store import Store, find_host
from crawler.store.visits import last_visit
from crawler.store.writer import StoreWriter, open_to_write
from crawler.terminal import bar, many, say
from crawler.web import patterns, urls

PART = 10_000  # revisits that are handed over together


def commands(add: Add) -> None:
    """Add `crawler refresh`."""
    made = add("refresh", run, "crawler refresh /mnt/shared/crawl --match /latest/ --older 1d")
    made.add_argument("--host", metavar="H", action="append", default=[], help="only pages of this host; repeatable")
    made.add_argument("--match", metavar="RE", type=flag(values.regex), help="only URLs that match this pattern")
    made.add_argument("--older", metavar="TIME", type=DURATION, help="only pages last visited longer ago: 2h, 30d")


def run(options: Namespace) -> int:
    """`crawler refresh`."""
    store = open_to_write(options.store)
    settings = store.settings()
    store.files.durable = settings.durable
    hosts = sorted({find_host(store, given) for given in options.host})
    before = float("inf") if options.older is None else time.time() - options.older
    count = refresh(store, settings, bar(_wanted(store, hosts, options.match, before), "pages"))
    who = describe_machines(store, settings)
    say(
        f"{many(count, 'page')} will be visited again; {who}"
        if count
        else "no stored page matches; nothing was changed"
    )
    return errors.OVER


def refresh(store: StoreWriter, settings: Settings, records: Iterable[dict[str, Any]]) -> int:
    """Hand over a visit of each of these pages, and return how many there were."""
    outbox = Outbox(store.files, settings, inboxes(read_owners(store.files, settings.shards)))
    count = 0
    for part in in_parts(records, PART):
        outbox.send(map(task_now, part))
        count += len(part)
    return count


def _wanted(store: Store, hosts: list[str], match: str | None, before: float) -> Iterator[dict[str, Any]]:
    pattern = patterns.compiled(match) if match else re.compile("")
    for host in hosts or store.hosts():
        for record in store.records(host):
            url = record.get("url")
            is_ours = isinstance(url, str) and urls.is_safe(url) and urls.host(url) == host
            if is_ours and last_visit(record) < before and pattern.search(str(url)):
                yield record
