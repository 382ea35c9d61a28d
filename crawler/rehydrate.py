"""Rehydrate: make the frontier again from the records alone, so that frontier/ may be lost, or left out of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from crawler import urls
from crawler.config import Settings
from crawler.frontier import Frontier, folder, in_parts
from crawler.records import Try
from crawler.seeds import REDIRECT, Seeds
from crawler.store import Store, depth_of, links_of, shard_name

MARK = "frontier/.rehydrating"  # while it is there, the frontier is not whole

Show = Callable[[str], None]


def is_needed(store: Store, settings: Settings) -> bool:
    """Whether the frontier is gone, or a rehydration was cut off: each shard's folder is made with the store."""
    shards = {shard_name(number) for number in range(settings.shards)}
    return not shards <= set(store.files.names("frontier")) or store.files.get(MARK) is not None


def rehydrate(store: Store, settings: Settings, show: Show) -> int:
    """Hand over every link of every record that is in scope and not settled; how many there were."""
    store.files.make("frontier")
    store.files.create(MARK)
    for number in range(settings.shards):
        store.files.make(folder(number))
    seeds = Seeds(store, settings)
    seeds.refresh()
    if not store.files.names("seeds"):
        _find_seeds(store, seeds)
    found = _Found()
    for _, urls_of_file in store.seeds():
        found.add((url, 0) for url in urls_of_file)
    for number, host in enumerate(store.hosts()):
        found.add(_links(store, host, settings, seeds))
        if number % 100 == 99:
            show(f"rehydrating: {number + 1} hosts read")
    count = _hand_over(store, settings, found)
    store.files.drop(MARK)
    show(f"rehydrated: {count} URLs are waiting")
    return count


def _find_seeds(store: Store, seeds: Seeds) -> None:
    """A copy may have come without seeds/: the records at depth 0 tell what they were, though not who named them."""
    found = (record.get("url") for record in store.records() if record.get("depth") == 0)
    firsts = (Try(url) for url in found if isinstance(url, str) and urls.is_safe(url))
    for part in in_parts(firsts, 10_000):
        store.add_seeds((task.url for task in part), REDIRECT + urls.key(part[0].url))
    seeds.refresh()


def _links(store: Store, host: str, settings: Settings, seeds: Seeds) -> Iterator[tuple[str, int]]:
    for record in store.records(host):
        depth = depth_of(record) + (record.get("sha224") is not None)
        if settings.depth is None or depth <= settings.depth:
            yield from ((link, depth) for link in links_of(record) if seeds.scope.admits(link))


def _hand_over(store: Store, settings: Settings, found: _Found) -> int:
    frontier = Frontier(store.files, settings)
    count = 0
    for part in in_parts(found.unsettled(store), 10_000):
        frontier.hand_over(part)
        frontier.flush()
        count += len(part)
    return count


class _Found:
    """All links ever seen, each once with its smallest depth: on disk, because there may be many millions."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE found(host TEXT, url TEXT, depth INT, PRIMARY KEY (host, url)) WITHOUT ROWID")

    def add(self, links: Iterable[tuple[str, int]]) -> None:
        """Note links and their depths."""
        rows = ((urls.host(url), url, depth) for url, depth in links)
        self._db.execute("BEGIN")
        nearest = "ON CONFLICT (host, url) DO UPDATE SET depth = min(depth, excluded.depth)"
        self._db.executemany(f"INSERT INTO found VALUES (?, ?, ?) {nearest}", rows)
        self._db.execute("COMMIT")

    def unsettled(self, store: Store) -> Iterator[Try]:
        """The links without record or refusal."""
        settled: set[str] = set()
        last = ""
        for host, url, depth in self._db.execute("SELECT host, url, depth FROM found ORDER BY host, depth"):
            if host != last:
                settled, last = store.settled(host), host
            if urls.key(url) not in settled:
                yield Try(url, depth)
