"""What must hold at each step, and in the end; by what is on the disk, whatever any machine believes."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from crawler.frontier.batches import from_lines
from crawler.frontier.task import PAGE, RETRY, shard_of_host
from crawler.store.store import path_of, shard_name
from crawler.store.visits import visits_of
from crawler.web import urls
from simulation.disk import FOLDER, Disk, Node
from simulation.web import Tree
from simulation.world import Process, World

KEY = re.compile(r"(links|errs)/[^/]+/[0-9a-f]{24}")
BATCH = re.compile(r"frontier/\d+/[^.].*")


class Broken(AssertionError):
    """Something does not hold."""


class Checks:
    """Watches the disk and the requests."""

    def __init__(self, world: World, disk: Disk, tree: Tree, delay: float, shards: int, recrawls: bool = False) -> None:
        self._world, self._disk, self._tree, self._delay, self._shards = world, disk, tree, delay, shards
        self._recrawls = recrawls
        self._visits: dict[str, int] = {}  # URL -> how many visits were ordered
        self._owned_since: dict[str, float] = {}  # shard -> when its owner took it
        self._late: set[str] = set()  # host and key of what its former owner was writing when it was suspended
        self._waiting: dict[str, set[str]] = defaultdict(set)  # URL -> paths of the batches that hold it
        self._last: dict[str, tuple[float, bool]] = {}  # host -> when it was requested, and whether by its owner
        self.seeds: set[str] = set()
        self.disturbed = 0  # kills, power cuts and the like: so many times what is in flight may be requested again
        self.is_damaged = False  # an operator has removed a part of the frontier: the end rehydrates
        self.refreshes = 0  # that were ordered
        self.requests: Counter[str] = Counter()
        disk.watch = self._watch

    def _fail(self, what: str) -> None:
        """End the simulation after this step: an error raised here might be caught by the program."""
        self._world.failure = self._world.failure or Broken(what)

    # ---- at each step

    def _watch(self, what: str, path: str, node: Node) -> None:
        if node.mode == FOLDER:
            return
        if what == "here":
            self._note_owners(path, node)
        if BATCH.fullmatch(path):
            self._batch(what, path, node)
        elif what == "here" and path.startswith("links/") and KEY.fullmatch(path):
            self._record(path, node)

    def _note_owners(self, path: str, node: Node) -> None:
        """Note who owns what, and what was written by one who was about to when another took over."""
        room, _, rest = path.partition("/")
        if room == "shards":
            self._owned_since[rest.partition("@")[0]] = self._world.now
        elif room in ("links", "htmls"):
            since = self._owned_since.get(self._shard(rest.partition("/")[0]), 0)
            self._late |= {rest} if node.requested <= since else set()

    def _shard(self, host: str) -> str:
        return shard_of(host, self._shards)

    def _batch(self, what: str, path: str, node: Node) -> None:
        for url in _urls(node.data):
            if what == "here":
                self._waiting[url].add(path)
                continue
            self._waiting[url].discard(path)
            if self._is_lost(url) and not self.is_damaged:
                self._fail(f"{path} was removed, and {url} is neither done nor in another batch")

    def _is_lost(self, url: str) -> bool:
        """Whether a URL that a record or a seed has brought is neither done nor waiting."""
        parent = self._tree.parent.get(url)
        known = url in self.seeds or (parent is not None and self._disk.find(places_of(parent)[0]) is not None)
        return known and url in self._tree.links and not self.is_done(url) and not self._waiting[url]

    def _record(self, path: str, node: Node) -> None:
        try:
            record = json.loads(node.data)
        except ValueError:
            return self._fail(f"{path} is not whole")
        url = str(record["url"])
        if record.get("sha224") and url in self._tree.links:
            html = self._disk.find(path.replace("links/", "htmls/", 1))
            if html is None or html.data not in self._tree.bodies(url):
                self._fail(f"{path} is there before its html is whole")
        for link in self._tree.links.get(url, ()):
            if not self.is_done(link) and not self._waiting[link] and not self.is_damaged:
                return self._fail(f"{path} is there, and its link {link} is neither done nor handed over")
        return None

    def request(self, process: Process, url: str) -> None:
        """A request is sent."""
        host, now = urls.host(url), self._world.now
        self._world.note(f"request {url}")
        owns = self._disk.find(f"shards/{self._shard(host)}@{process.name}") is not None
        if self._has_ended(process.name):
            self._fail(f"{url} was requested by {process.name}, whose last heartbeat says that it has ended or is dead")
        before, owned = self._last.get(host, (-1e9, False))
        if not owns:
            self._fail(f"{url} was requested by {process.name}, which does not own it")
        if owns and owned and now < before + self._delay - 1e-6:
            self._fail(f"{host} was requested after {now - before:.3f} s by its owner {process.name}")
        self._last[host] = now, owns
        self.requests[url] += 1

    def _has_ended(self, worker: str) -> bool:
        """Whether a worker has signed off, or others have marked it dead because it was silent."""
        folder = self._disk.find("workers")
        names = folder.entries if folder else ()
        return any(name.startswith(f"{worker}@") and name.endswith(".end") for name in names)

    def is_done(self, url: str) -> bool:
        """Whether a URL has a record or a failure record."""
        return any(self._disk.find(place) is not None for place in places_of(url))

    # ---- now and then

    def after_power_cut(self) -> None:
        """What is left of a power cut: no record without its html and links, and nothing lost."""
        self._waiting.clear()
        for path, node in self._walk("frontier"):
            for url in _urls(node.data) if BATCH.fullmatch(path) else ():
                self._waiting[url].add(path)
        if not self.is_damaged:
            self._nothing_is_lost("the power cut")

    def after_rehydration(self, is_whole: bool) -> None:
        """A machine has made the frontier again from the records: all that holds otherwise holds again."""
        if self.is_damaged and is_whole:
            self.is_damaged = False
            self._visits.clear()  # an order that was in what is gone must be repeated
            self._nothing_is_lost("the rehydration")

    def _nothing_is_lost(self, by: str) -> None:
        for path, node in self._walk("links"):
            if KEY.fullmatch(path):
                self._record(path, node)
        lost = sorted(filter(self._is_lost, self._tree.urls))
        if lost:
            self._fail(f"{by} has lost {', '.join(lost[:3])}")

    def _walk(self, path: str) -> Iterator[tuple[str, Node]]:
        folder = self._disk.find(path)
        for name, node in sorted(folder.entries.items()) if folder else ():
            if node.mode == FOLDER:
                yield from self._walk(f"{path}/{name}")
            elif not name.startswith("."):
                yield f"{path}/{name}", node

    def over(self, process: Process, is_whole: bool) -> None:
        """A worker concludes that the crawl is over."""
        self._world.note("over")
        missing = self.missing()
        if missing and is_whole and not self.is_damaged:
            self._fail(f"{process.name} believes that the crawl is over, but {missing[0]} is not done")

    def missing(self) -> list[str]:
        """The pages that should be there and are not."""
        wanted = set().union(*map(self._tree.below, self.seeds))
        return sorted(url for url in wanted if not self.is_done(url))

    # ---- in the end

    def final(self) -> None:
        """No page is lost, each is what was served, and none was requested more often than it had to be."""
        missing = self.missing()
        if missing:
            self._fail(f"the crawl has ended, and {len(missing)} pages are not done: {', '.join(missing[:3])}")
        for path, node in self._walk("links"):
            self._record(path, node)
        for path, node in self._walk("errs"):
            record = json.loads(node.data) if KEY.fullmatch(path) else {}
            if record and record["url"] not in self._tree.gone:
                self._fail(f"{path}: {record['url']} was given up ({record['reason']})")
        for url, count in sorted(self.requests.items()):
            most = 1 + self._tree.fails.get(url, 0) + self.disturbed + self.refreshes
            if url in self._tree.links and count > most:
                self._fail(f"{url} was requested {count} times, at most {most} are expected")
        self._final_visits()

    # ---- visits of pages that are there

    def expect_visits(self, records: list[dict[str, Any]]) -> None:
        """An operator has ordered one more visit of each of these pages."""
        for record in records:
            self._visits[record["url"]] = visits_of(record) + 1

    def _final_visits(self) -> None:
        """Every visit that was ordered was made, and the next one by the schedule waits; a page is of one edition."""
        waiting = self._waiting_visits()
        for path, node in self._walk("links"):
            record = json.loads(node.data)
            url, made = record["url"], visits_of(record)
            if made < self._visits.get(url, 0) and not self.is_damaged:
                self._fail(f"{path} tells of {made} visits, and {self._visits[url]} were ordered")
            if self._recrawls and url in self._tree.links and not waiting[url] > made:
                self._fail(f"{path} tells of {made} visits, and the next one is not in the frontier")
            html = self._disk.find(path.replace("links/", "htmls/", 1))
            is_of_it = html is None or record.get("sha224") in (None, hashlib.sha224(html.data).hexdigest())
            if not is_of_it and path.partition("/")[2] not in self._late:
                self._fail(f"{path} is the record of another html")
            if self._recrawls and record.get("changes") and not self._disk.find(path.replace("links/", "history/", 1)):
                self._fail(f"{path} has changed, and no older version is kept")

    def _waiting_visits(self) -> dict[str, int]:
        """Which visit of each URL the frontier holds; the last, if there are several."""
        found: dict[str, int] = defaultdict(int)
        for path, node in self._walk("frontier"):
            for task in from_lines(node.data) if BATCH.fullmatch(path) else ():
                found[task.subject] = max(found[task.subject], task.visit)
        return found


@lru_cache(1000)
def _urls(data: bytes) -> tuple[str, ...]:
    """The pages that wait in a batch: also those that an operator wants to have retried, before they are queued."""
    return tuple(task.subject for task in from_lines(data) if task.kind in (PAGE, RETRY))


@lru_cache(1000)
def shard_of(host: str, shards: int) -> str:
    """The name of the shard of a host."""
    return shard_name(shard_of_host(host, shards, "domain"))


@lru_cache(1000)
def places_of(url: str) -> tuple[str, str]:
    """Where the record of a URL is, or its failure record."""
    return path_of("links", url), path_of("errs", url)
