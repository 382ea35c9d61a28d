"""What a store has, counted in its folders: for `status`, `top` and `serve` while no machine is at work.

Counters of workers lack what one did between its last heartbeat and `kill -9`, and pages that were copied in.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from crawler.store.store import Store

SECONDS = 2.0  # for counting; a store that takes longer goes by the counters of its workers


class Stored(NamedTuple):
    """Pages and about their bytes, records without a page (redirects and sitemaps), and failure records by reason."""

    pages: int
    bytes: int
    others: int
    reasons: Counter[str]


def count_stored(store: Store, known: Counter[str], clock: Callable[[], float] = time.monotonic) -> Stored | None:
    """Return what is stored; None if counting takes longer than SECONDS.

    The reasons of failures are read only if their number is not that of the `known` ones.
    """
    until = clock() + SECONDS
    pages = size = records = failures = 0
    for host in sorted(store.requested_hosts()):
        if clock() > until:
            return None
        more, bytes = store.page_sizes(host)
        of_host = store.keys("links", host)
        if more != len(of_host):  # redirects, or htmls of which a killed worker had not written the records
            texts = {*store.keys("htmls", host), *store.keys("files", host)}
            more = sum(key in texts for key in of_host)
        pages, size = pages + more, size + bytes
        records += len(of_host)
        failures += store.count_failures(host)
    if failures == known.total():
        return Stored(pages, size, records - pages, known)
    reasons: Counter[str] = Counter()
    for found in store.failures() if failures else ():
        if clock() > until:
            return None
        reasons[str(found.get("reason"))] += 1
    return Stored(pages, size, records - pages, reasons)
