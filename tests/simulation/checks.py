"""What must hold at each step, and in the end; by what is on the disk, whatever any machine believes."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from crawler.frontier.batches import from_lines
from crawler.frontier.task import PAGE, RETRY, shard_of_host
from crawler.store.store import path_of, shard_name
from crawler.store.visits import visits_of
from simulation.disk import FOLDER, Disk, Node
from simulation.manners import Manners
from simulation.web import Tree
from simulation.world import Process, World

KEY = re.compile(r"(links|errs)/[^/]+/[0-9a-f]{24}")
BATCH = re.compile(r"frontier/\d+/[^.].*")


class Broken(AssertionError):
    """Something does not hold."""


class Checks:
    """Watches the disk and the requests."""

    def __init__(
        self, world: World, disk: Disk, tree: Tree, manners: Manners, shards: int, recrawls: bool = False
    ) -> None:
        self._world, self._disk, self._tree, self.manners, self._shards = world, disk, tree, manners, shards
        self._recrawls = recrawls
        self._visits: dict[str, int] = {}  # URL -> how many visits were ordered
        self._before: dict[str, int] = {}  # URL -> how often it had been requested when the last one was ordered
        self._requested: dict[str, int] = {}  # URL -> how often it is to be requested at least
        self._late: set[str] = set()  # host and key of what its former owner was writing when it was suspended
        self._waiting: dict[str, set[str]] = defaultdict(set)  # URL -> paths of the batches that hold it
        self.seeds: set[str] = set()
        self.disturbed = 0  # kills, power cuts and the like: so many times what is in flight may be requested again
        self._retried: set[str] = set()  # URLs that an operator has ordered once more
        self._forgotten: set[str] = set()  # URLs of tasks in batches that an operator has removed
        self.is_damaged = False  # an operator has removed a part of the frontier: the end rehydrates
        self.refreshes = 0  # that were ordered
        self.power_cuts = 0  # each ends what operators do, too
        manners.fail, manners.is_disturbed = self.fail, lambda: bool(self.disturbed)
        disk.watch = self._watch

    def fail(self, what: str) -> None:
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
            self.manners.owner_changed(rest.partition("@")[0])
        elif room in ("links", "htmls"):
            since = self.manners.owned_since.get(shard_of(rest.partition("/")[0], self._shards), 0)
            self._late |= {rest} if node.requested <= since else set()

    def _batch(self, what: str, path: str, node: Node) -> None:
        for url in _urls(node.data):
            if what == "here":
                self._waiting[url].add(path)
                continue
            self._waiting[url].discard(path)
            if self._is_lost(url) and not self.is_damaged:
                self.fail(f"{path} was removed, and {url} is neither done nor in another batch")

    def _is_lost(self, url: str) -> bool:
        """Whether a URL that a record or a seed has brought is neither done nor waiting."""
        parent = self._tree.parent.get(url)
        known = url in self.seeds or (parent is not None and self._disk.find(places_of(parent)[0]) is not None)
        return known and url in self._tree.links and not self.is_done(url) and not self._waiting[url]

    def _record(self, path: str, node: Node) -> None:
        try:
            record = json.loads(node.data)
        except ValueError:
            return self.fail(f"{path} is not whole")
        url = str(record["url"])
        if record.get("sha224") and url in self._tree.links:
            html = self._disk.find(path.replace("links/", "htmls/", 1))
            if html is None or html.data not in self._tree.bodies(url):
                self.fail(f"{path} is there before its html is whole")
        for link in self._tree.links.get(url, ()):
            if not self.is_done(link) and not self._waiting[link] and not self.is_damaged:
                return self.fail(f"{path} is there, and its link {link} is neither done nor handed over")
        return None

    def is_done(self, url: str) -> bool:
        """Whether a URL has a record or a failure record."""
        return any(self._disk.find(place) is not None for place in places_of(url))

    # ---- now and then

    def after_power_cut(self) -> None:
        """What is left of a power cut: no record without its html and links, and nothing lost."""
        self.power_cuts += 1
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
            self._nothing_is_lost("the rehydration")

    def _nothing_is_lost(self, by: str) -> None:
        for path, node in self._walk("links"):
            if KEY.fullmatch(path):
                self._record(path, node)
        lost = sorted(filter(self._is_lost, self._tree.urls))
        if lost:
            self.fail(f"{by} has lost {', '.join(lost[:3])}")

    def _walk(self, path: str) -> Iterator[tuple[str, Node]]:
        folder = self._disk.find(path)
        for name, node in sorted(folder.entries.items()) if folder else ():
            if node.mode == FOLDER:
                yield from self._walk(f"{path}/{name}")
            elif not name.startswith("."):
                yield f"{path}/{name}", node

    def over(self, process: Process, is_whole: bool, is_later: bool = False) -> None:
        """A worker concludes that the crawl is over, or that what waits is due much `is_later`.

        A retry that was ordered just then is for those who are still there, or for the next run: see `final`.
        """
        self._world.note("over")
        missing = [url for url in self.missing() if url not in self._retried and not (is_later and self._waiting[url])]
        if missing and is_whole and not self.is_damaged:
            self.fail(f"{process.name} believes that the crawl is over, but {missing[0]} is not done")

    def missing(self) -> list[str]:
        """The pages that should be there and are not."""
        wanted = set().union(*map(self._tree.below, self.seeds))
        return sorted(url for url in wanted if not self.is_done(url))

    def hold_limit(self, most: int) -> None:
        """All workers have ended because of the limit of pages; what was in flight in a kill may be beyond it."""
        records = [json.loads(node.data) for path, node in self._walk("links") if KEY.fullmatch(path)]
        pages = sum(bool(record.get("sha224")) for record in records)
        self._world.effects["limit of pages"] += 1
        if not self.disturbed and pages != most:
            self.fail(f"there are {pages} pages, and the limit is {most}")

    # ---- in the end

    def final(self) -> None:
        """No page is lost, each is what was served, and none was requested more often than it had to be."""
        missing = self.missing()
        if missing:
            self.fail(f"the crawl has ended, and {len(missing)} pages are not done: {', '.join(missing[:3])}")
        for path, node in self._walk("links"):
            self._record(path, node)
        for path, node in self._walk("errs"):
            record = json.loads(node.data) if KEY.fullmatch(path) else {}
            reason = record.get("reason")
            expected = "robots" if record.get("url") in self._tree.forbidden else "http-404"
            if record and not (self._tree.has_no_page(record["url"]) and reason == expected):
                self.fail(f"{path}: {record['url']} was given up ({reason})")
        for url, count in sorted(self._tree.requests.items()):
            most = 1 + self._tree.fails.get(url, 0) + self.disturbed + self.refreshes
            if url in self._tree.links and count > most:
                self.fail(f"{url} was requested {count} times, at most {most} are expected")
            if count < self._requested.get(url, 0) and not self.is_damaged:
                self.fail(f"{url} was requested {count} times, and `crawler retry` has ordered one more")
        self._final_visits()

    # ---- what operators order

    def expect_requests(self, failures: list[str]) -> None:
        """An operator has ordered one more request of each of these URLs."""
        self._retried.update(failures)
        for url in failures:
            if url not in self._tree.forbidden:
                self._requested[url] = self._tree.requests[url] + 1

    def forget_orders(self, folder: str) -> None:
        """The batches in a folder are about to be removed: an order that only they hold has no other trace.

        So a page that a kill has caught in the middle of such a visit keeps the newer html beside its record.
        """
        for path, node in self._walk(folder):
            for task in from_lines(node.data) if BATCH.fullmatch(path) else ():
                self._forgotten.add(task.subject)
                self._visits.pop(task.subject, None)
                self._requested.pop(task.subject, None)

    def expect_visits(self, records: list[dict[str, Any]]) -> None:
        """An operator has ordered one more visit of each of these pages."""
        for record in records:
            self._visits[record["url"]] = visits_of(record) + 1
            self._before[record["url"]] = self._tree.requests[record["url"]]

    def _final_visits(self) -> None:
        """Every visit that was ordered was made, and the next one by the schedule waits; a page is of one edition."""
        waiting = self._waiting_visits()
        for path, node in self._walk("links"):
            record = json.loads(node.data)
            url, made = record["url"], visits_of(record)
            # After a power cut that took a record, its page is a new one, which was requested later than ordered.
            is_anew = bool(self.power_cuts) and made == 1 and self._tree.requests[url] > self._before.get(url, 0)
            if made < self._visits.get(url, 0) and not is_anew and not self.is_damaged:
                self.fail(f"{path} tells of {made} visits, and {self._visits[url]} were ordered")
            if self._recrawls and url in self._tree.links and not waiting[url] > made:
                self.fail(f"{path} tells of {made} visits, and the next one is not in the frontier")
            html = self._disk.find(path.replace("links/", "htmls/", 1))
            if html is not None and not self.disturbed and html.data != self._tree.served.get(url, html.data):
                self.fail(f"{path} has another html than was sent last")
            is_of_it = html is None or record.get("sha224") in (None, hashlib.sha224(html.data).hexdigest())
            if not is_of_it and path.partition("/")[2] not in self._late and url not in self._forgotten:
                self.fail(f"{path} is the record of another html")
            if self._recrawls and record.get("changes"):
                self._older_version(path, url)

    def _older_version(self, path: str, url: str) -> None:
        """A page that has changed has an older version, and that is whole."""
        files = dict(self._disk.files(path.replace("links/", "history/", 1)))
        versions = [name.removesuffix(".json") for name in files if name.endswith(".json")]
        if not versions:
            self.fail(f"{path} has changed, and no older version is kept")
        for version in versions:
            html = files.get(f"{version}.html")
            if html is not None and html.data not in self._tree.bodies(url):
                self.fail(f"the version {version} of {path} is not whole")

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
