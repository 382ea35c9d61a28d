"""Rehydrate: make the frontier again from the records, so that frontier/ may be lost or left out of a copy."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby, takewhile
from typing import Any

from crawler.errors import Misshapen, StoreError
from crawler.frontier.batches import LOSS, Outbox, in_parts
from crawler.frontier.recrawl import Recrawl
from crawler.frontier.scope import Seeds, seed_tasks
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store import kept, local_disk
from crawler.store.clock import SYSTEM
from crawler.store.directories import leaf_of
from crawler.store.inboxes import MADE, WHOLE, batch_names, make_folder, shards_in
from crawler.store.reading import FOLDER
from crawler.store.records import depth_of
from crawler.store.store import KEY, Store
from crawler.store.writer import StoreWriter
from crawler.terminal import bar, many
from crawler.web import urls

MARK = "frontier/.rehydrating"  # while this file exists, the frontier is incomplete
SCHEDULED = "frontier/.recrawl"  # the setting by which all pages have a next visit in the frontier
SCHEDULING = f"{SCHEDULED}@"  # begins the name that this file has, with an id, until they have
LINKS_AT_ONCE = 10_000  # in memory
REMEMBERED_LINKS = 100_000  # that need not be added again, before all of them are forgotten
CACHE_KB = 16_000  # of memory in which links are sorted
DONE = -1  # the depth of what is done: it comes before links to it

Show = Callable[[str], None]


def is_needed(store: Store) -> bool:
    """Tell whether the frontier may lack something.

    It is missing, or a shard's folder that was made is, a worker found one emptied, or a rehydration was interrupted.
    Whether each folder is whole is seen by who owns it, with the listings that it makes anyway.
    """
    with suppress(StoreError):  # a read-only store is taken as it is
        store.files.freshen("frontier")
    shapes = store.files.shapes("frontier")
    folders, _ = shards_in([name for name, shape in shapes.items() if shape == FOLDER])
    _, made = shards_in(shapes)
    is_marked = leaf_of(MARK) in shapes or any(name.startswith(leaf_of(LOSS)) for name in shapes)
    return leaf_of(MADE) not in shapes or not made <= folders or is_marked


def is_whole(store: Store) -> bool:
    """Tell whether nothing is lacking, after a look into each shard's folder: an emptied one lacks its mark."""
    _, made = shards_in(store.files.all_names("frontier"))
    return not is_needed(store) and all(WHOLE in batch_names(store.files, shard) for shard in made)


def rehydrate(store: StoreWriter, settings: Settings, show: Show, in_use: bool = False) -> int:
    """Hand over every link of every record that is in scope and not done; return how many there were.

    While machines are at work, or one that is silent may go on (`in_use`), a loss is noted, and the crawl rehydrates
    again before its end: pages in flight have no records yet, and their links may have been handed over before it.
    """
    store.files.make("frontier")
    if in_use and not is_whole(store):
        store.files.create(f"{LOSS}{store.files.me}")
    store.files.create(MARK)
    noted = [] if in_use else [f"frontier/{name}" for name in store.files.all_names("frontier")]
    for shard in sorted(set().union(*shards_in(store.files.all_names("frontier")))):
        make_folder(store.files, shard)
    store.files.create(MADE)
    seeds = Seeds(store, settings)
    seeds.refresh()
    if not store.files.names("seeds"):
        kept.restore_seeds(store.files)
        _find_seeds(store, seeds)
    schedule = _begin_schedule(store, settings)
    with local_disk.named():
        count = _hand_over_all(store, settings, seeds, show)
    store.files.claim(schedule, SCHEDULED)
    for name in filter(lambda name: name.startswith(LOSS), noted):
        store.files.drop(name)
    store.files.drop(MARK)
    show(f"rehydrated: {many(count, 'URL')} {'is' if count == 1 else 'are'} waiting")
    return count


def _hand_over_all(store: StoreWriter, settings: Settings, seeds: Seeds, show: Show) -> int:
    found = FoundLinks()
    for file, names in store.seeds():
        found.add(seed_tasks(file, names, settings))
    hosts = _hosts(store)
    show(f"rehydrating from the records of {many(len(hosts), 'host')}")
    for host in bar(hosts, "hosts", len(hosts)):
        found.add(_links(store, host, settings, seeds))
    _hand_over_revisits(store, settings, hosts)
    return _hand_over(store, settings, found)


def is_scheduled(store: Store, settings: Settings) -> bool:
    """Tell whether all pages have the next visit that the setting `recrawl` gives them."""
    known = store.files.get(SCHEDULED)
    return known == _setting(settings) or (known is None and settings.recrawl is None)


def schedule_all(
    store: StoreWriter, settings: Settings, show: Show, is_stopped: Callable[[], bool] = lambda: False
) -> None:
    """Hand over the next visit of each page, if that was not done for this setting yet: `recrawl` was edited.

    One that `is_stopped` on the way counts as not done, and so does one that began before `unschedule`.
    """
    if is_scheduled(store, settings):
        return
    schedule = _begin_schedule(store, settings)
    if settings.recrawl is not None:
        hosts = _hosts(store)
        if hosts:
            show(f"scheduling the next visits of the pages of {many(len(hosts), 'host')}")
        _hand_over_revisits(store, settings, hosts, is_new=True, is_stopped=is_stopped)
    if is_stopped():
        store.files.drop(schedule)
    else:
        store.files.claim(schedule, SCHEDULED)


def unschedule(store: Store, but_for: Settings | None = None) -> None:
    """Note that pages may lack their next visit, but for those of one setting; to be called before workers go by it.

    They drop visits that the setting does not want, also if it is undone a moment later. Whoever is just planning may
    have passed a page whose next visit a worker of ours dropped or never planned, and so is not done either.
    """
    store.files.freshen("frontier")
    found = [name for name in store.files.all_names("frontier") if name.startswith(leaf_of(SCHEDULING))]
    for name in [*(f"frontier/{name}" for name in found), SCHEDULED]:  # in this order: the first become the last
        if but_for is None or store.files.get(name) != _setting(but_for):
            store.files.drop(name)


def _setting(settings: Settings) -> bytes:
    return f"{settings.recrawl}\n".encode("ascii", "backslashreplace")


def _begin_schedule(store: Store, settings: Settings) -> str:
    """Return the name of the file that becomes SCHEDULED once all visits are handed over."""
    name = f"{SCHEDULING}{store.files.me}"
    store.files.put(name, _setting(settings))
    return name


def _hand_over_revisits(
    store: Store,
    settings: Settings,
    hosts: Iterable[str],
    is_new: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Hand over the next visit of each page of these hosts; one that is in a batch already does not count twice."""
    rules = Recrawl(settings.recrawl)
    if not rules:
        return
    outbox = Outbox(store.files, settings)
    now, wall = SYSTEM.monotonic(), SYSTEM.time()
    records = takewhile(lambda _: not is_stopped(), (record for host in hosts for record in _records(store, host)))
    tasks = filter(None, (rules.task(record, now, wall, is_new) for record in bar(records, "pages")))
    for part in in_parts(tasks, LINKS_AT_ONCE):
        outbox.send(part)


def _find_seeds(store: StoreWriter, seeds: Seeds) -> None:
    """Restore seeds/ in a copy without it: the records at depth 0 show what they were, not which the user gave."""
    found = (record.get("url") for record in store.records() if record.get("depth") == 0)
    firsts = (name for name in found if isinstance(name, str) and urls.is_safe(name))
    for part in in_parts(firsts, LINKS_AT_ONCE):
        store.add_seeds(part, kept.REDIRECT + urls.key(part[0]))
    seeds.refresh()


def _hosts(store: Store) -> list[str]:
    """Return the hosts with records, also one whose first another machine has just written."""
    store.files.freshen("links")
    return store.hosts()


def _records(store: Store, host: str) -> Iterator[dict[str, Any]]:
    """Yield a host's records, also those that another machine has just written: a cached listing may lack them."""
    with suppress(Misshapen):
        store.files.freshen(f"links/{host}")
    yield from store.records(host)


def _links(store: Store, host: str, settings: Settings, seeds: Seeds) -> Iterator[Task]:
    """Yield the links in a host's records, and the sitemaps in its robots.txt."""
    from crawler.web.robots import Rules  # here, because few runs rehydrate

    nearest: list[int] = []
    for record in _records(store, host):
        nearest = [min([depth_of(record), *nearest])]
        yield from seeds.follow(record)
    robots = store.robots(host) if settings.robots and urls.is_host(host) else None
    if robots and nearest:
        yield from seeds.sitemaps(Rules(robots.body, settings.user_agent).sitemaps, host, nearest[0] + 1)


def _hand_over(store: Store, settings: Settings, found: FoundLinks) -> int:
    outbox = Outbox(store.files, settings)
    count = 0
    for part in in_parts(found.not_done(store), LINKS_AT_ONCE):
        outbox.send(sorted(part, key=lambda task: (task.depth, -task.priority)))
        count += len(part)
    return count


class FoundLinks:
    """All links and all that is done: on disk, because there may be many millions.

    They are appended as they come, and sorted once: an index would be changed at random for each of them, which takes
    longer the more there are.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{CACHE_KB};")
        self._db.execute("CREATE TABLE found(host TEXT, key BLOB, depth INT, priority INT, name TEXT)")
        self._recent: dict[str, tuple[int, int]] = {}

    def add(self, links: Iterable[Task]) -> None:
        """Add links with their depths and priorities."""
        self._append(
            (task.host, bytes.fromhex(urls.key(task.name)), task.depth, task.priority, task.name)
            for task in links
            if self._is_new(task)
        )

    def _add_done(self, store: Store) -> None:
        """Add the keys of all records and failure records; a link in place of a folder holds none of them."""
        for noun in ("links", "errs"):
            with suppress(Misshapen):
                for host in filter(urls.is_host, store.files.names(noun)):
                    self._append((host, bytes.fromhex(key), DONE, 0, "") for key in _keys(store, f"{noun}/{host}"))

    def _append(self, rows: Iterator[tuple[str, bytes, int, int, str]]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO found VALUES (?, ?, ?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _is_new(self, task: Task) -> bool:
        """Tell whether a link was not added lately: most links of a page were, with another page of its host."""
        depth, priority = self._recent.get(task.name, (task.depth + 1, task.priority))
        if depth <= task.depth and priority >= task.priority:
            return False
        if len(self._recent) >= REMEMBERED_LINKS:
            self._recent.clear()
        self._recent[task.name] = min(depth, task.depth), max(priority, task.priority)
        return True

    def not_done(self, store: Store) -> Iterator[Task]:
        """Yield the links that have neither a record nor a failure record, each once with its smallest depth."""
        self._recent.clear()
        self._add_done(store)
        (total,) = self._db.execute("SELECT count(*) FROM found").fetchone()
        rows = self._db.execute("SELECT host, key, depth, priority, name FROM found ORDER BY host, key, depth")
        for _, same in groupby(bar(rows, "links", total), key=lambda row: row[:2]):
            _, _, depth, priority, name = next(same)
            if depth != DONE:
                yield Task.named(name, depth, priority=max([priority, *(row[3] for row in same)]))


def _keys(store: Store, folder: str) -> Iterator[str]:
    with suppress(Misshapen):
        yield from filter(KEY.fullmatch, store.files.each_name(folder))
