"""Whether the frontier is whole, and how it becomes so again: when a run starts, and when it finds nothing left to do.

A frontier is not whole if somebody removed a part of it, if a rehydration was interrupted, or in a copy: frontier/ and
links/ were copied at different moments.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from crawler.crawl.logs import log
from crawler.fleet.control import STOP
from crawler.fleet.heartbeats import END, Heartbeat, newest_in, read_counters
from crawler.fleet.local_lock import LocalLock
from crawler.fleet.shards import read_owners
from crawler.frontier import rehydrate
from crawler.frontier.batches import LOSS, Outbox, in_parts
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store import origin
from crawler.store.records import assumed_depth, depth_of, to_json, utc
from crawler.store.store import CONTENT
from crawler.store.writer import StoreWriter
from crawler.terminal import many

LOOK_EVERY = 0.2  # seconds
HANDED_OVER_AT_ONCE = 1000
TOTALS = ("pages", "redirects", "sitemaps", "bytes")


def make_whole(store: StoreWriter, settings: Settings, me: str, show: rehydrate.Show) -> bool:
    """Rehydrate if the frontier is not whole, alone among all machines; return whether it was not.

    While others are at work it is only noted: what they have in flight has no record yet, so the one that finds
    nothing left to do rehydrates.
    """
    if not rehydrate.is_needed(store) and origin.is_known(store.files):
        return False
    order = f"workers/{me}{STOP}"
    doing = "rehydrating or repairing the store"
    with store.alone(doing, settings, show, lambda: store.files.get(order) is not None):
        is_copy = not origin.is_known(store.files)
        if not rehydrate.is_needed(store) and not is_copy:
            return True
        if is_in_use(store, settings):
            _note_for_later(store, me)
        else:
            if is_copy:
                show("this store was copied, or is mounted in a new way: checking it against its records")
                complete(store, settings, show)
            rehydrate.rehydrate(store, settings, show, may_go_on(store, settings))
            recount(store)
        origin.note(store.files)
    return True


def _note_for_later(store: StoreWriter, me: str) -> None:
    """Have the crawl rehydrate before its end, if its frontier is incomplete; a new mount of a live store is fine."""
    if rehydrate.is_needed(store):
        store.files.create(f"{LOSS}{me}")


def is_in_use(store: StoreWriter, settings: Settings) -> bool:
    """Tell whether workers are at work here: a heartbeat changes while we look. (In a copy all of them stand still.)"""
    alive = {id: beat for id, beat in newest_in(store.files).items() if _may_be_alive(beat)}
    limit = time.monotonic() + settings.dead_after / 2
    while alive and time.monotonic() < limit:
        time.sleep(LOOK_EVERY)
        store.files.freshen("workers")
        now = newest_in(store.files)
        if any(now.get(id, beat) != beat for id, beat in alive.items()):
            return True
    return False


def may_go_on(store: StoreWriter, settings: Settings) -> bool:
    """Tell whether a shard belongs to a worker that has neither ended nor been declared dead: it may be suspended.

    When it goes on, it may record pages whose links were handed over before the frontier was lost.
    """
    owners = set().union(*read_owners(store.files, settings.shards).values())
    return any(id in owners and _may_be_alive(beat) for id, beat in newest_in(store.files).items())


def _may_be_alive(heartbeat: Heartbeat) -> bool:
    return heartbeat.mark != END and not LocalLock.died_here(heartbeat.id)[0]


def complete(store: StoreWriter, settings: Settings, show: rehydrate.Show) -> None:
    """Request the pages again whose records came with a copy, but not their html or file; the records go to lost/.

    A copy without any html, or without any file, was made so on purpose.
    """
    came = {noun for noun in CONTENT if store.files.names(noun)}
    if not came:
        return
    lost, outbox, count = f"lost/{utc(time.time())}", Outbox(store.files, settings), 0
    for host in store.hosts():
        without = set(store.keys("links", host)).difference(*(store.keys(noun, host) for noun in CONTENT))
        records = ((key, store.read("links", host, key)) for key in sorted(without))
        pages = ((key, record) for key, record in records if record and _is_incomplete(record, came))
        for part in in_parts(pages, HANDED_OVER_AT_ONCE):
            outbox.send(Task.named(it["url"], depth_of(it, assumed_depth(settings))) for _, it in part)
            for key, _ in part:
                store.files.move(f"links/{host}/{key}", f"{lost}/links/{host}/{key}")
            count += len(part)
    if count:
        show(f"{many(count, 'record')} without html or file moved to {lost}; their pages are requested again")


def _is_incomplete(record: Mapping[str, Any], came: set[str]) -> bool:
    """Tell whether the record of a page lacks content of which the copy has some."""
    is_page = record.get("sha224") and record.get("url")
    return bool(is_page) and ("files" if "file" in record else "htmls") in came


def recount(store: StoreWriter) -> None:
    """Correct the counters by what is stored: pages may have come with a copy, without the counters of their workers.

    To be called while no worker is alive. Records are read only if there are more or fewer than the counters say.
    """
    counted: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for found in read_counters(store.files):
        counted.update({name: int(found.get(name, 0)) for name in TOTALS})
        reasons.update(found.get("reasons", {}))
    stored = sum(len(store.done(host)) for host in _hosts(store))
    if stored == counted["pages"] + counted["redirects"] + counted["sitemaps"] + reasons.total():
        return
    actual: Counter[str] = Counter()
    for record in store.records():
        kind = "pages" if record.get("sha224") else "sitemaps" if record.get("sitemap") else "redirects"
        size = record.get("bytes")
        actual.update({kind: 1, "bytes": size if kind == "pages" and isinstance(size, int) else 0})
    why = Counter(str(failure.get("reason")) for failure in store.failures())
    more = {name: actual[name] - counted[name] for name in TOTALS}
    by_reason = {reason: why[reason] - reasons[reason] for reason in {*why, *reasons}}
    counter = Heartbeat(f"counted-{store.files.me}", 1, END)
    facts = {"id": counter.id, "when": utc(time.time()), **more, "reasons": by_reason}
    store.files.put(counter.name, to_json(facts))
    log.info("the counters were corrected by what is stored: %s", facts)


def _hosts(store: StoreWriter) -> list[str]:
    return sorted({*store.files.names("links"), *store.files.names("errs")})
