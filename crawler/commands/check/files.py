"""The first half of `crawler check`: each file by itself: its name, its content, its place."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from crawler.commands.check.findings import RECHECK_AFTER, Problem, Scene
from crawler.commands.check.versions import measure, of_versions
from crawler.errors import Misshapen
from crawler.fleet.budgets import Budget
from crawler.fleet.control import ABANDONED, PAUSE, STOP
from crawler.fleet.heartbeats import Heartbeat
from crawler.fleet.members import MACHINE, is_id
from crawler.frontier.task import Task
from crawler.store import jars
from crawler.store.history import HISTORY
from crawler.store.reading import FILE, FOLDER, LINK, OTHER
from crawler.store.records import assumed_depth, depth_of, html_hash
from crawler.store.segments import FOLDER as WARCS
from crawler.store.segments import NAME as WARC_NAME
from crawler.store.segments import SEGMENT, unindexed, worker_of
from crawler.store.store import FILE_NAME, FOLDERS, KEY, MISSING_CACHED, file_of, shard_name
from crawler.web import urls

Facts = dict[str, Any]

NOUNS = ("htmls", "files", "links", "errs")
OUR_FOLDERS = {*FOLDERS, HISTORY, WARCS}
ANY = (FILE, FOLDER, LINK, OTHER)
MAX_BOM = 4  # bytes at the start of a body that are not part of its text
# Charsets in which some text has more bytes than in UTF-8.
LONGER = {"utf-16le", "utf-16be", "gbk", "gb18030", "iso-2022-jp", "replacement"}


# ---- files that belong to no host


def others(scene: Scene) -> Iterator[Problem]:
    """Return the problems in the folders that are not divided by host."""
    yield from scene.sort("", lambda name: True, "", ANY)[1]
    for name, shape in sorted(scene.shapes("").items()):
        if shape == LINK:
            yield Problem("unexpected", name, "a symbolic link, through which nothing is read or written")
        elif shape != FOLDER and name in OUR_FOLDERS:
            yield Problem("unexpected", name, "not a folder")
    for noun in NOUNS:  # whether a host's folder is one is checked with the host
        yield from scene.sort(noun, urls.is_host, "a host", ANY)[1]
    yield from scene.sort("robots", urls.is_host, "a host")[1]
    yield from _cookies(scene)
    yield from of_versions(scene)
    yield from scene.sort("seeds", lambda name: True, "")[1]
    count = scene.settings.shards
    shards = {shard_name(number) for number in range(count)}
    yield from scene.sort("frontier", shards.__contains__, "a shard", (FOLDER,))[1]
    yield from _shards(scene, count)
    yield from _workers(scene)
    yield from _warcs(scene)


def _cookies(scene: Scene) -> Iterator[Problem]:
    hosts, bad = scene.sort(jars.FOLDER, urls.is_host, "a host", (FOLDER,))
    yield from bad
    for host in hosts:
        names, bad = scene.sort(jars.folder_of(host), jars.NAME.fullmatch, "a file of cookies")
        yield from bad
        for name in names:
            try:
                jars.read(scene.files, host, name)
            except jars.NotOurs:
                scene.harmless["cookies that only another user may read"] += 1
            except jars.BadJar as error:
                yield Problem("cookies", f"{jars.folder_of(host)}/{name}", str(error))


def _shards(scene: Scene, count: int) -> Iterator[Problem]:
    def is_owned(name: str) -> bool:
        number, at, owner = name.partition("@")
        return bool(at and owner) and number.isdecimal() and int(number) < count and number == shard_name(int(number))

    names, bad = scene.sort("shards", is_owned, "a shard and its owner")
    yield from bad
    wrong = _without_one_name(names, count)
    if wrong and scene.alive:  # a machine may be renaming it
        time.sleep(RECHECK_AFTER)
        wrong &= _without_one_name(scene.sort("shards", is_owned, "")[0], count)
    for shard, owners in sorted(wrong):
        what = f"{owners} files name an owner" if owners else "no file names its owner"
        yield Problem("shard", f"shards/{shard_name(shard)}", what)


def _without_one_name(names: Iterable[str], count: int) -> set[tuple[int, int]]:
    """Return the shards that have no name or several, and how many."""
    found = Counter(int(name.partition("@")[0]) for name in names)
    return {(shard, found[shard]) for shard in range(count) if found[shard] != 1}


def _workers(scene: Scene) -> Iterator[Problem]:
    def is_control(name: str) -> bool:
        id, dot, extension = name.partition(".")
        return name == PAUSE or (is_id(id) and dot + extension in (MACHINE, STOP)) or Budget.of(name) is not None

    names, bad = scene.sort(
        "workers", lambda name: is_control(name) or Heartbeat.of(name), "a heartbeat or a control file"
    )
    yield from bad
    for name in filter(is_control, names):
        age = scene.clock - (scene.files.written(f"workers/{name}") or scene.clock)
        if name != PAUSE and name.partition(".")[0] not in scene.alive and age > ABANDONED:
            yield Problem("control", f"workers/{name}", "its machine is gone")


def _warcs(scene: Scene) -> Iterator[Problem]:
    yield from scene.sort(WARCS, WARC_NAME.fullmatch, "a WARC file or its index")[1]
    with suppress(Misshapen):  # a link in place of the folder is a finding of its own
        for name in unindexed(scene.files):
            if worker_of(name) not in scene.alive:
                yield Problem("no-index", f"{WARCS}/{name}{SEGMENT}", "its worker died before it wrote the index")


# ---- files of a host


class Pages:
    """The records and failure records of a store, host by host."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.files = scene, scene.files
        for noun in NOUNS:
            scene.freshen(noun)
        self.homes = {noun: set(filter(urls.is_host, scene.shapes(noun))) for noun in NOUNS}
        self.hosts = sorted(set().union(*self.homes.values()))
        self.counts: Counter[str] = Counter()

    def names(self, host: str) -> tuple[dict[str, list[str]], list[Problem]]:
        """Return the keys of a host's files, and the problems with other files in its folders."""
        names: dict[str, list[str]] = {noun: [] for noun in NOUNS}
        problems: list[Problem] = []
        for noun in NOUNS:
            if host not in self.homes[noun]:
                continue
            limit = time.monotonic() + MISSING_CACHED
            while not self.scene.sees(noun, host) and time.monotonic() < limit:
                time.sleep(RECHECK_AFTER)
            if self.files.is_folder(f"{noun}/{host}"):
                fits, what = (
                    (FILE_NAME, "a file (a key and an extension)") if noun == "files" else (KEY, "a page (a key)")
                )
                names[noun], bad = self.scene.sort(f"{noun}/{host}", fits.fullmatch, what)
                problems += bad
            else:
                problems.append(Problem("unexpected", f"{noun}/{host}", "not a folder"))
        return names, problems

    def records(self, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        """Return the good records of a host; the paths of the others are added to `suspects`."""
        return self._read("links", host, keys, suspects)

    def failures(self, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        """Return its good failure records, likewise."""
        return self._read("errs", host, keys, suspects)

    def _read(self, noun: str, host: str, keys: Iterable[str], suspects: list[str]) -> Iterator[Facts]:
        for key in keys:
            self.counts[noun] += 1
            facts, problem = self._examine(f"{noun}/{host}/{key}")
            if problem:
                suspects.append(problem.path)
            elif facts is not None:
                yield facts

    def confirm(self, suspects: list[str]) -> Iterator[Problem]:
        """Return the problems with the suspects; while machines are working, after a second look a moment later."""
        if suspects and self.scene.alive:
            time.sleep(RECHECK_AFTER)
        for path in suspects:
            problem = self._examine(path)[1]
            if problem:
                yield problem

    def both(self, host: str, names: dict[str, list[str]], bad: set[str]) -> Iterator[Problem]:
        """Return the failure records of URLs that also have a good record."""
        for key in sorted((set(names["links"]) & set(names["errs"])) - bad):
            yield Problem("both", f"errs/{host}/{key}", "its URL also has a record")

    def _examine(self, path: str) -> tuple[Facts | None, Problem | None]:
        """Return the content of a record or failure record, or the problem with it; neither if it is gone."""
        try:
            data = self.files.get(path)
        except Misshapen:
            return None, Problem("unexpected", path, "not a file")
        if data is None:
            return None, None
        facts = _facts(data)
        if path.startswith("links/") and "url" in facts and facts["url"] is None:
            return None, None  # of an old corpus: a page whose URL nobody knows
        problem = self._broken(path, facts) or self._misplaced(path, facts)
        if problem is None and path.startswith("links/") and facts.get("sha224"):
            problem = self._without_file(path, facts) if "file" in facts else self._without_html(path, facts)
        return (None, problem) if problem else (facts, None)

    def _broken(self, path: str, facts: Facts) -> Problem | None:
        if not facts:
            return Problem("broken", path, "incomplete or not a JSON object")
        wanted = ("url", "links") if path.startswith("links/") else ("url", "reason")
        missing = [name for name in wanted if not isinstance(facts.get(name), list if name == "links" else str)]
        if missing:
            return Problem("broken", path, f"it has no {missing[0]}")
        return None if urls.is_safe(facts["url"]) else Problem("broken", path, "its URL cannot be requested")

    def _misplaced(self, path: str, facts: Facts) -> Problem | None:
        url = facts["url"]
        noun = path.partition("/")[0]
        place = f"{noun}/{urls.host(url)}/{urls.key(url)}"
        if path == place:
            return None
        return Problem("misplaced", path, f"it is for {url}, which belongs in {place}", (self._task(facts),))

    def _without_html(self, path: str, facts: Facts) -> Problem | None:
        place = path.partition("/")[2]
        data = size = None
        with suppress(Misshapen):  # a link in place of the host's folder is a finding of its own
            size = self.files.size(f"htmls/{place}")
        if not self.scene.quick or size is None or _is_half(facts, size):
            # Some mounts report sizes wrongly until a file is opened.
            data = self.scene.store.text_bytes(facts["url"])
            size = None if data is None else len(data)
        if size is None:
            return Problem("no-html", path, f"the page {facts['url']} has no html", (self._task(facts),))
        problem = self._of_html(path, facts, data, size)
        return None if problem and self._is_revisited(path) else problem

    def _of_html(self, path: str, facts: Facts, data: bytes | None, size: int) -> Problem | None:
        """Return the problem with a page that has an html: it is not the one that its record is about."""
        if _is_half(facts, size):
            what = f"{size:,} of the {facts['bytes']:,} bytes of {facts['url']}"
            return Problem("half-html", path, what, (self._task(facts),))
        # Records of older versions have no hash of what was stored.
        if data is not None and facts.get("html_sha224") not in (None, html_hash(data)):
            what = f"the html of {facts['url']} is not what was stored"
            return Problem("changed-html", path, what, (self._task(facts),))
        return None

    def _without_file(self, path: str, facts: Facts) -> Problem | None:
        name, url, task = file_of(facts), facts["url"], (self._task(facts),)
        size = hashed = None
        if name:
            with suppress(Misshapen):
                size = self.files.size(name)
                if size is None or not self.scene.quick:
                    size, hashed = measure(self.files, name)
        if size is None:
            return Problem("no-file", path, f"the page {url} has no file", task)
        is_half, is_other = size != facts.get("bytes"), hashed not in (None, facts["sha224"])
        if (is_half or is_other) and self._is_revisited(path):
            return None
        if is_half:
            return Problem("half-file", path, f"{size:,} of the {facts.get('bytes')} bytes of {url}", task)
        return Problem("changed-file", path, f"the file of {url} is not what was stored", task) if is_other else None

    def _is_revisited(self, path: str) -> bool:
        """Tell whether a page whose content is another than its record says may be in the middle of a visit."""
        found = path.rpartition("/")[2] in self.scene.revisiting
        self.scene.harmless["pages whose visit was interrupted, and will be made again"] += found
        return found

    def _task(self, facts: Facts) -> Task:
        return Task.named(facts["url"], depth_of(facts, assumed_depth(self.scene.settings)))


def _facts(data: bytes) -> Facts:
    """Return the JSON object in a file, or an empty one."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_half(record: Facts, size: int) -> bool:
    """Return whether an html is too short for its body: few charsets become shorter in UTF-8."""
    body = record.get("bytes")
    if not isinstance(body, int):
        return False
    return size < body - MAX_BOM if record.get("charset") not in LONGER else size == 0 and body > MAX_BOM
