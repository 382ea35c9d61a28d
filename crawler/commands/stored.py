"""What a store has, counted in its folders: for `status`, `top` and `serve` while no machine is at work.

Counters of workers lack what one did between its last heartbeat and `kill -9`, and pages that were copied in.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from crawler.store.store import Store

SECONDS = 2.0  # for counting; a store that takes longer goes by the counters of its workers
READERS = 8  # hosts that are counted at the same time on a mount, where each operation has latency


class Stored(NamedTuple):
    """Pages and about their bytes, records without a page (redirects and sitemaps), and failure records by reason."""

    pages: int
    bytes: int | None  # None if there are as many pages as are known: the counters have their bytes
    others: int
    reasons: Counter[str]


class _OfHost(NamedTuple):
    """How many pages, records and failure records a host has."""

    pages: int
    records: int
    failures: int


def count_stored(
    store: Store, known: int, reasons: Counter[str], clock: Callable[[], float] = time.monotonic
) -> Stored | None:
    """Return what is stored; None if counting takes longer than SECONDS.

    Bytes are looked up only if the number of pages is not the `known` one, and failures are read only if their number
    is not that of the known `reasons`.
    """
    until = clock() + SECONDS
    hosts = sorted(store.requested_hosts())
    with ThreadPoolExecutor(READERS if store.files.has_latency() else 1) as threads:
        each = list(threads.map(lambda host: None if clock() > until else _count(store, host), hosts))
    counted = [found for found in each if found]
    if len(counted) < len(hosts):
        return None
    pages, records, failures = (sum(found[column] for found in counted) for column in range(3))
    size = None
    if pages != known:
        size = 0
        for host in hosts:
            if clock() > until:
                return None
            size += store.page_sizes(host)[1]
    if failures == reasons.total():
        return Stored(pages, size, records - pages, reasons)
    read: Counter[str] = Counter()
    for failure in store.failures() if failures else ():
        if clock() > until:
            return None
        read[str(failure.get("reason"))] += 1
    return Stored(pages, size, records - pages, read)


def _count(store: Store, host: str) -> _OfHost:
    records, pages = store.keys("links", host), store.count_pages(host)
    if pages != len(records):  # redirects, or htmls of which a killed worker had not written the records
        texts = {*store.keys("htmls", host), *store.keys("files", host)}
        pages = sum(key in texts for key in records)
    return _OfHost(pages, len(records), store.count_failures(host))
