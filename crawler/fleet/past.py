"""What workers that ended long ago have left in `workers/`, merged into one file: that folder must not grow with them.

Every worker lists `workers/` with each heartbeat, and `crawler status` reads each file in it. So the first worker of a
machine merges now and then what is older than an hour, and so does `crawler check --repair`.

The merged file lists the workers whose counters it includes, and those are ignored from then on, whether their own
files are there or not: a kill at any moment changes no total. Workers of a machine that is still at work stay as they
are: its page budget includes their pages, which a merged file would count once more. Two machines that merge the same
workers would count them twice, so it is done under the store's lock; who does not get that at once leaves it to the
other.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from crawler.errors import Busy, StoppedWaiting
from crawler.fleet.control import ABANDONED
from crawler.fleet.heartbeats import END, Heartbeat, heartbeats, read_counters
from crawler.fleet.members import announced, store_time
from crawler.fleet.totals import totals
from crawler.settings.settings import Settings
from crawler.store.lock import StoreLock
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.writer import StoreWriter

MAX_ENDED = 100  # workers whose files are left as they are
BUSIEST = 10  # hosts that a merged file names


def merge_if_many(store: StoreWriter, settings: Settings) -> int:
    """Merge as `merge` does, unless another machine holds the store's lock; return how many workers were merged."""
    doing = "merging the counters of workers that ended"
    with suppress(StoppedWaiting, Busy), store.alone(doing, settings, is_stopped=lambda: True) as lock:
        return merge(store.files, store_time(store.files), lock)
    return 0


def merge(files: Files, clock: float, lock: StoreLock) -> int:
    """Merge the files of workers that ended long ago by the store's `clock`, if there are many; return how many."""
    counters = read_counters(files)
    _drop(files, {id for found in counters for id in found.get("folded", ())})  # left by a merge that was killed
    at_work = _machines_at_work(files, counters)
    past = [it for it in counters if it.get("machine") not in at_work and _is_past(files, it["heartbeat"], clock)]
    if len(past) <= MAX_ENDED:
        return 0
    sums = totals(past)
    ids = {found["heartbeat"].id for found in past}
    merged = Heartbeat(f"past-{secrets.token_hex(4)}", 1, END)
    facts = {**sums, "id": merged.id, "busiest": sums["busiest"].most_common(BUSIEST), "folded": sorted(ids)}
    lock.check()
    files.put(merged.name, to_json(facts))
    _drop(files, ids)
    return len(past)


def count_ended(files: Files) -> int:
    """Return how many files of workers that have ended there are."""
    return sum(heartbeat.mark == END for heartbeat in heartbeats(files.names("workers")))


def _machines_at_work(files: Files, counters: list[dict[str, Any]]) -> set[str]:
    """Return the machines that have not ended, or were killed so lately that they are still announced."""
    running = {it["machine"] for it in counters if it["heartbeat"].mark != END and "machine" in it}
    return running.union(announced(files))


def _is_past(files: Files, heartbeat: Heartbeat, clock: float) -> bool:
    return heartbeat.mark == END and clock - (files.written(heartbeat.name) or clock) > ABANDONED


def _drop(files: Files, ids: set[str]) -> None:
    for heartbeat in heartbeats(files.names("workers")):
        if heartbeat.id in ids:
            files.drop(heartbeat.name)
