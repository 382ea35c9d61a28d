"""Rehydrate: make the frontier again from the records alone, so that frontier/ may be lost, or left out of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from crawler.frontier.frontier import Frontier, folder, in_parts
from crawler.frontier.scope import REDIRECT, Seeds
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import FOLDER
from crawler.store.records import depth_of
from crawler.store.store import Store, shard_name
from crawler.terminal import bar, many
from crawler.web import urls
from crawler.web.robots import Rules

MARK = "frontier/.rehydrating"  # while it is there, the frontier is not whole

Show = Callable[[str], None]


def is_needed(store: Store, settings: Settings) -> bool:
    """Whether the frontier is gone, or a rehydration was cut off: each shard's folder is made with the store."""
    shards = {shard_name(number) for number in range(settings.shards)}
    folders = {name for name, shape in store.files.shapes("frontier").items() if shape == FOLDER}
    return not shards <= folders or store.files.get(MARK) is not None


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
    found = Found()
    for _, urls_of_file in store.seeds():
        found.add(map(Task, urls_of_file))
    hosts = store.hosts()
    show(f"rehydrating from the records of {many(len(hosts), 'host')}")
    for host in bar(hosts, "hosts", len(hosts)):
        found.add(_links(store, host, settings, seeds))
    count = _hand_over(store, settings, found)
    store.files.drop(MARK)
    show(f"rehydrated: {many(count, 'URL')} {'is' if count == 1 else 'are'} waiting")
    return count


def _find_seeds(store: Store, seeds: Seeds) -> None:
    """A copy may have come without seeds/: the records at depth 0 tell what they were, though not who named them."""
    found = (record.get("url") for record in store.records() if record.get("depth") == 0)
    firsts = (Task(url) for url in found if isinstance(url, str) and urls.is_safe(url))
    for part in in_parts(firsts, 10_000):
        store.add_seeds((task.url for task in part), REDIRECT + urls.key(part[0].url))
    seeds.refresh()


def _links(store: Store, host: str, settings: Settings, seeds: Seeds) -> Iterator[Task]:
    """What the records of a host lead to, and the sitemaps that its robots.txt names."""
    nearest: list[int] = []
    for record in store.records(host):
        nearest = [min([depth_of(record), *nearest])]
        yield from seeds.follow(record)
    robots = store.robots(host) if settings.robots and urls.is_host(host) else None
    if robots and nearest:
        yield from seeds.sitemaps(Rules(robots.body, settings.user_agent).sitemaps, host, nearest[0] + 1)


def _hand_over(store: Store, settings: Settings, found: Found) -> int:
    frontier = Frontier(store.files, settings)
    count = 0
    for part in in_parts(found.unsettled(store), 10_000):
        frontier.hand_over(part)
        frontier.flush()
        count += len(part)
    return count


class Found:
    """All links ever seen, each once with its smallest depth: on disk, because there may be many millions."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        columns = "host TEXT, url TEXT, depth INT, priority INT, PRIMARY KEY (host, url)"
        self._db.execute(f"CREATE TABLE found({columns}) WITHOUT ROWID")

    def add(self, links: Iterable[Task]) -> None:
        """Note links, their depths and their priorities."""
        rows = ((urls.host(task.url), task.url, task.depth, task.priority) for task in links)
        self._db.execute("BEGIN")
        best = "SET depth = min(depth, excluded.depth), priority = max(priority, excluded.priority)"
        self._db.executemany(f"INSERT INTO found VALUES (?, ?, ?, ?) ON CONFLICT (host, url) DO UPDATE {best}", rows)
        self._db.execute("COMMIT")

    def unsettled(self, store: Store) -> Iterator[Task]:
        """The links without record or refusal."""
        settled: set[str] = set()
        last = ""
        (total,) = self._db.execute("SELECT count(*) FROM found").fetchone()
        rows = self._db.execute("SELECT * FROM found ORDER BY host, depth, priority DESC")
        for host, url, depth, priority in bar(rows, "links", total):
            if host != last:
                settled, last = store.settled(host), host
            if urls.key(url) not in settled:
                yield Task(url, depth, priority=priority)
