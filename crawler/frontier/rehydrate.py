"""Rehydrate: make the frontier again from the records, so that frontier/ may be lost or left out of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from crawler.frontier.batches import Outbox, folder, in_parts
from crawler.frontier.scope import REDIRECT, Seeds
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import FOLDER
from crawler.store.records import depth_of
from crawler.store.store import Store, shard_name
from crawler.store.writer import StoreWriter
from crawler.terminal import bar, many
from crawler.web import urls
from crawler.web.robots import Rules

MARK = "frontier/.rehydrating"  # while this file exists, the frontier is incomplete
LINKS_AT_ONCE = 10_000  # in memory

Show = Callable[[str], None]


def is_needed(store: Store, settings: Settings) -> bool:
    """Tell whether a shard's folder is missing (all are made with the store), or a rehydration was interrupted."""
    shards = {shard_name(number) for number in range(settings.shards)}
    folders = {name for name, shape in store.files.shapes("frontier").items() if shape == FOLDER}
    return not shards <= folders or store.files.get(MARK) is not None


def rehydrate(store: StoreWriter, settings: Settings, show: Show) -> int:
    """Hand over every link of every record that is in scope and not done; return how many there were."""
    store.files.make("frontier")
    store.files.create(MARK)
    for number in range(settings.shards):
        store.files.make(folder(number))
    seeds = Seeds(store, settings)
    seeds.refresh()
    if not store.files.names("seeds"):
        _find_seeds(store, seeds)
    found = FoundLinks()
    for _, names in store.seeds():
        found.add(map(Task.named, names))
    hosts = store.hosts()
    show(f"rehydrating from the records of {many(len(hosts), 'host')}")
    for host in bar(hosts, "hosts", len(hosts)):
        found.add(_links(store, host, settings, seeds))
    count = _hand_over(store, settings, found)
    store.files.drop(MARK)
    show(f"rehydrated: {many(count, 'URL')} {'is' if count == 1 else 'are'} waiting")
    return count


def _find_seeds(store: StoreWriter, seeds: Seeds) -> None:
    """Restore seeds/ in a copy without it: the records at depth 0 show what they were, not which the user gave."""
    found = (record.get("url") for record in store.records() if record.get("depth") == 0)
    firsts = (name for name in found if isinstance(name, str) and urls.is_safe(name))
    for part in in_parts(firsts, LINKS_AT_ONCE):
        store.add_seeds(part, REDIRECT + urls.key(part[0]))
    seeds.refresh()


def _links(store: Store, host: str, settings: Settings, seeds: Seeds) -> Iterator[Task]:
    """Yield the links in a host's records, and the sitemaps in its robots.txt."""
    nearest: list[int] = []
    for record in store.records(host):
        nearest = [min([depth_of(record), *nearest])]
        yield from seeds.follow(record)
    robots = store.robots(host) if settings.robots and urls.is_host(host) else None
    if robots and nearest:
        yield from seeds.sitemaps(Rules(robots.body, settings.user_agent).sitemaps, host, nearest[0] + 1)


def _hand_over(store: Store, settings: Settings, found: FoundLinks) -> int:
    outbox = Outbox(store.files, settings)
    count = 0
    for part in in_parts(found.not_done(store), LINKS_AT_ONCE):
        outbox.send(part)
        count += len(part)
    return count


class FoundLinks:
    """All links, each once with its smallest depth: on disk, because there may be many millions."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        columns = "host TEXT, name TEXT, depth INT, priority INT, PRIMARY KEY (host, name)"
        self._db.execute(f"CREATE TABLE found({columns}) WITHOUT ROWID")

    def add(self, links: Iterable[Task]) -> None:
        """Add links with their depths and priorities."""
        rows = ((task.host, task.name, task.depth, task.priority) for task in links)
        self._db.execute("BEGIN")
        best = "SET depth = min(depth, excluded.depth), priority = max(priority, excluded.priority)"
        self._db.executemany(f"INSERT INTO found VALUES (?, ?, ?, ?) ON CONFLICT (host, name) DO UPDATE {best}", rows)
        self._db.execute("COMMIT")

    def not_done(self, store: Store) -> Iterator[Task]:
        """Yield the links that have neither a record nor a failure record."""
        done: set[str] = set()
        last = ""
        (total,) = self._db.execute("SELECT count(*) FROM found").fetchone()
        rows = self._db.execute("SELECT * FROM found ORDER BY host, depth, priority DESC")
        for host, name, depth, priority in bar(rows, "links", total):
            if host != last:
                done, last = store.done(host), host
            if urls.key(name) not in done:
                yield Task.named(name, depth, priority=priority)
