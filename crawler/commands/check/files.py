"""The first half of `crawler check`: each file for itself. Its name, whether it is whole, whether it is in place."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from crawler.commands.check.findings import AGAIN, Finding, Scene
from crawler.errors import Misshapen
from crawler.fleet.control import ABANDONED, PAUSE, STOP
from crawler.fleet.heartbeats import Heartbeat
from crawler.fleet.members import MACHINE, is_id
from crawler.fleet.shards import read_owners
from crawler.frontier.task import Task
from crawler.store.mount import FILE, FOLDER, LINK
from crawler.store.records import assumed_depth, depth_of
from crawler.store.store import KEY, MISSING_CACHED, shard_name
from crawler.web import urls

Facts = dict[str, Any]

NOUNS = ("htmls", "links", "errs")
ANY = (FILE, FOLDER, LINK)
MARK = 4  # bytes at the start of a body that are not part of its text
# Charsets in which some text has more bytes than in UTF-8.
LONGER = {"utf-16le", "utf-16be", "gbk", "gb18030", "iso-2022-jp", "replacement"}


# ---- what belongs to no host


def others(scene: Scene) -> Iterator[Finding]:
    """What is in the folders that are not parted by host."""
    yield from scene.sort("", lambda name: True, "", ANY)[1]
    for noun in NOUNS:  # that a host has no folder there is found out with the host
        yield from scene.sort(noun, urls.is_host, "a host", ANY)[1]
    yield from scene.sort("robots", urls.is_host, "a host")[1]
    yield from scene.sort("seeds", lambda name: True, "")[1]
    count = scene.settings.shards
    shards = {shard_name(number) for number in range(count)}
    yield from scene.sort("frontier", shards.__contains__, "a shard", (FOLDER,))[1]
    yield from _shards(scene, count)
    yield from _workers(scene)


def _shards(scene: Scene, count: int) -> Iterator[Finding]:
    def is_owned(name: str) -> bool:
        number, at, owner = name.partition("@")
        return bool(at and owner) and number.isdecimal() and int(number) < count and number == shard_name(int(number))

    yield from scene.sort("shards", is_owned, "a shard and its owner")[1]
    wrong = _without_one_name(scene, count)
    if wrong and scene.alive:  # somebody may be renaming it
        time.sleep(AGAIN)
        scene.freshen("shards")
        wrong &= _without_one_name(scene, count)
    for shard, names in sorted(wrong):
        what = f"{names} names say whose it is" if names else "no name says whose it is"
        yield Finding("shard", f"shards/{shard_name(shard)}", what)


def _without_one_name(scene: Scene, count: int) -> set[tuple[int, int]]:
    owners = read_owners(scene.files, count)
    sizes = ((shard, len(owners.get(shard, ()))) for shard in range(count))
    return {(shard, names) for shard, names in sizes if names != 1}


def _workers(scene: Scene) -> Iterator[Finding]:
    def is_word(name: str) -> bool:
        id, dot, word = name.partition(".")
        return name == PAUSE or (is_id(id) and dot + word in (MACHINE, STOP))

    names, bad = scene.sort("workers", lambda name: is_word(name) or Heartbeat.of(name), "a worker or a word to one")
    yield from bad
    for name in filter(is_word, names):
        age = scene.clock - (scene.files.written(f"workers/{name}") or scene.clock)
        if name != PAUSE and name.partition(".")[0] not in scene.alive and age > ABANDONED:
            yield Finding("word", f"workers/{name}", "its machine is gone")


# ---- what belongs to a host


class Pages:
    """The pages and refusals of a store, host by host."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.files = scene, scene.files
        for noun in NOUNS:
            scene.freshen(noun)
        self.homes = {noun: set(filter(urls.is_host, self.files.names(noun))) for noun in NOUNS}
        self.hosts = sorted(set().union(*self.homes.values()))
        self.counts: Counter[str] = Counter()

    def names(self, host: str) -> tuple[dict[str, list[str]], list[Finding]]:
        """The keys of a host's files, and what else is in its folders."""
        names: dict[str, list[str]] = {noun: [] for noun in NOUNS}
        findings: list[Finding] = []
        for noun in NOUNS:
            if host not in self.homes[noun]:
                continue
            limit = time.monotonic() + MISSING_CACHED
            while not self.scene.sees(noun, host) and time.monotonic() < limit:
                time.sleep(AGAIN)
            if self.files.is_folder(f"{noun}/{host}"):
                names[noun], bad = self.scene.sort(f"{noun}/{host}", KEY.fullmatch, "a page: it is no key")
                findings += bad
            else:
                findings.append(Finding("strange", f"{noun}/{host}", "it is no folder"))
        return names, findings

    def records(self, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        """The records of a host that are as they should be; the names of the others are left in `suspects`."""
        return self._read("links", host, keys, suspects)

    def refusals(self, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        """The same of its refusals."""
        return self._read("errs", host, keys, suspects)

    def _read(self, noun: str, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        for key in keys:
            self.counts[noun] += 1
            facts, finding = self._judge(f"{noun}/{host}/{key}")
            if finding:
                suspects.append(finding.path)
            elif facts is not None:
                yield facts

    def accuse(self, suspects: list[str]) -> Iterator[Finding]:
        """What is wrong with the suspects; while machines are at work, only after a second look a moment later."""
        if suspects and self.scene.alive:
            time.sleep(AGAIN)
        for path in suspects:
            finding = self._judge(path)[1]
            if finding:
                yield finding

    def both(self, host: str, names: dict[str, list[str]], bad: set[str]) -> Iterator[Finding]:
        """The refusals of URLs that have a good record too."""
        for key in sorted((set(names["links"]) & set(names["errs"])) - bad):
            yield Finding("both", f"errs/{host}/{key}", "its URL has a record too")

    def _judge(self, path: str) -> tuple[Facts | None, Finding | None]:
        """What is in a record or a refusal, or what is wrong with it; neither if it is gone."""
        try:
            data = self.files.get(path)
        except Misshapen:
            return None, Finding("strange", path, "it is no file")
        if data is None:
            return None, None
        facts = _facts(data)
        finding = self._broken(path, facts) or self._misplaced(path, facts) or self._without_html(path, facts)
        return (None, finding) if finding else (facts, None)

    def _broken(self, path: str, facts: Facts) -> Finding | None:
        if not facts:
            return Finding("broken", path, "it is not whole: no JSON object")
        wanted = ("url", "links") if path.startswith("links/") else ("url", "reason")
        missing = [name for name in wanted if not isinstance(facts.get(name), list if name == "links" else str)]
        if missing:
            return Finding("broken", path, f"it does not say its {missing[0]}")
        return None if urls.is_safe(facts["url"]) else Finding("broken", path, "its URL is none that can be asked")

    def _misplaced(self, path: str, facts: Facts) -> Finding | None:
        url = facts["url"]
        noun = path.partition("/")[0]
        place = f"{noun}/{urls.host(url)}/{urls.key(url)}"
        if path == place:
            return None
        return Finding("misplaced", path, f"it is of {url}, which belongs at {place}", (self._task(facts),))

    def _without_html(self, path: str, facts: Facts) -> Finding | None:
        noun, _, place = path.partition("/")
        if noun != "links" or not facts.get("sha224"):
            return None
        html = f"htmls/{place}"
        size = self.files.size(html)
        if size is None or _is_half(facts, size):  # mounts may be wrong about what they were not asked to open
            data = self.scene.store.text_bytes(facts["url"])
            size = None if data is None else len(data)
        if size is None:
            return Finding("no-html", path, f"the page {facts['url']} has no html", (self._task(facts),))
        if _is_half(facts, size):
            what = f"{size:,} bytes are left of the {facts['bytes']:,} of {facts['url']}"
            return Finding("half-html", path, what, (self._task(facts),))
        return None

    def _task(self, facts: Facts) -> Task:
        return Task(facts["url"], depth_of(facts, assumed_depth(self.scene.settings)))


def _facts(data: bytes) -> Facts:
    """The JSON object in a file; an empty one if there is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_half(record: Facts, size: int) -> bool:
    """Whether an html is shorter than it can be for a body of so many bytes: UTF-8 shortens but few charsets."""
    body = record.get("bytes")
    if not isinstance(body, int):
        return False
    return size < body - MARK if record.get("charset") not in LONGER else size == 0 and body > MARK
