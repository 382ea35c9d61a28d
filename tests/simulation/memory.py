"""What a worker has in memory does not grow with the crawl: here all limits are small, and none is passed."""

from __future__ import annotations

from typing import Any

from crawler.crawl.worker import address_pace, flush, recent, robots_cache, schedule
from crawler.crawl.worker.worker import Worker
from crawler.frontier import frontier, hosts, table

FIRST_CHUNK = 4  # tasks of a host that are read at first
SMALL: tuple[tuple[Any, str, int], ...] = (
    (hosts, "MAX_LOADED", 2),
    (hosts, "LOADED_AT_ONCE", 1),
    (table, "MAX_CHUNK", 2),
    (frontier, "REMEMBERED_URLS", 8),
    (robots_cache, "MAX_CACHED", 2),
    (flush, "MAX_RESULTS", 3),
    (flush, "GROUP", 2),
    (recent, "MAX_BYTES", 1500),
    (address_pace, "MAX_HELD", 2),
    (schedule, "MAX_PRICES", 2),
)


def too_much(worker: Worker) -> str:
    """Return of what a worker has more than it may have; empty if of nothing."""
    slots, loaded = worker.scoreboard.concurrency, worker.frontier.table._hosts.loaded
    counts = {
        "hosts": (len(loaded), hosts.MAX_LOADED + slots + flush.MAX_RESULTS + slots),
        "tasks of a host": (max((len(host.tasks) for host in loaded.values()), default=0), FIRST_CHUNK),
        "URLs that were handed over": (len(worker.frontier.recent), frontier.REMEMBERED_URLS),
        "robots.txt files": (len(worker.robots_cache._rules), robots_cache.MAX_CACHED),
        "results": (worker.flush.count, flush.MAX_RESULTS + slots),
        "bytes of records": (worker.flush.recent._bytes, recent.MAX_BYTES),
        "hosts that wait": (len(worker._address_pace._held), address_pace.MAX_HELD),
        "prices": (len(worker.schedule._prices), schedule.MAX_PRICES),
    }
    return ", ".join(f"{count} {what}" for what, (count, most) in counts.items() if count > most)
