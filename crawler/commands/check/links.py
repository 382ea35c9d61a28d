"""The second half of `crawler check`: the frontier, and whether every URL that should wait is in it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from crawler.commands.check.findings import RECHECK_AFTER, Keys, Problem, Scene
from crawler.errors import Misshapen, StoreError
from crawler.frontier.batches import from_lines, in_parts, is_cut, lines_of, read_batches, whole_lines
from crawler.frontier.limits import StoredLimits
from crawler.frontier.rehydrate import FoundLinks
from crawler.frontier.scope import Seeds
from crawler.frontier.task import REVISIT, Task
from crawler.store.inboxes import folder, made_shards
from crawler.store.kept import REDIRECT
from crawler.store.writer import NOT_HANDED_OVER
from crawler.terminal import bar
from crawler.web import urls

RECHECKS = 3  # of the frontier while machines are working: a URL may move from one batch to another meanwhile
RECHECK_SIZE = 1000  # links or htmls
DUE_SOON = 60.0  # seconds: clocks differ

Item = TypeVar("Item")


def due_revisits(scene: Scene) -> Keys:
    """Return the keys of the pages whose next visit is due: a new html may be there before its record is."""
    keys = Keys()
    for shard in made_shards(scene.files, scene.settings.shards) if scene.settings.recrawl is not None else ():
        for data in read_batches(scene.files, shard):
            soon = time.monotonic() + DUE_SOON
            due = (task for task in from_lines(data) if task.kind == REVISIT and task.due <= soon)
            keys.add(urls.key(task.subject) for task in due)
    return keys


class Links:
    """All URLs that records lead to, and all that wait."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.files = scene, scene.files
        self.seeds = Seeds(scene.store, scene.settings)
        scene.freshen("seeds")
        self.seeds.refresh(freshen=False)
        self.found = FoundLinks()
        self.limits = StoredLimits(scene.store, scene.settings)
        self.done, self.waiting = Keys(), Keys()
        self._orphans = sqlite3.connect("", isolation_level=None)
        self._orphans.execute("CREATE TABLE orphan(host TEXT, name TEXT)")
        for name, seeds in scene.store.seeds():
            # The next run hands the new ones over.
            if not name.startswith(REDIRECT) and not name.endswith(NOT_HANDED_OVER):
                self.found.add(map(Task.named, seeds))

    def note_orphans(self, host: str, names: Iterable[str]) -> None:
        """Remember htmls and files that no record names; those whose URL waits are as they should be."""
        self._orphans.executemany("INSERT INTO orphan VALUES (?, ?)", ((host, name) for name in names))

    def will_wait(self, tasks: Iterable[Task]) -> None:
        """Count URLs as waiting."""
        self.waiting.add(urls.key(task.subject) for task in tasks)

    # ---- batches

    def batches(self) -> Iterator[Problem]:
        """Read all batches; return the problems with them."""
        self.scene.freshen("frontier")
        shards = made_shards(self.files, self.scene.settings.shards)
        for home in bar(map(folder, shards), "frontier", len(shards)):
            names, bad = self.scene.sort(home, lambda name: True, "")
            yield from bad
            for name in names:
                yield from self._batch(f"{home}/{name}")

    def _batch(self, path: str) -> Iterator[Problem]:
        try:
            data = self.files.get(path)
        except Misshapen:
            yield Problem("unexpected", path, "not a file")
            return
        if data is None:  # removed since the listing
            return
        tasks = list(from_lines(whole_lines(data) if is_cut(path, data) else data))
        self._read(tasks)
        done = sum(urls.key(task.name) in self.done for task in tasks)
        self.scene.harmless["tasks in batches whose URLs are done"] += done
        if is_cut(path, data):
            lines = data.count(b"\n")
            what = f"{lines:,} of the {lines_of(path):,} lines that its name says"
            yield Problem("half-batch", path, what, tuple(tasks))

    def _read_again(self) -> None:
        """Add what waits by now."""
        time.sleep(RECHECK_AFTER)
        for home in map(folder, range(self.scene.settings.shards)):
            self.scene.freshen(home)
            for name in self.files.names(home):
                with suppress(StoreError):
                    self._read(list(from_lines(self.files.get(f"{home}/{name}") or b"")))

    def _read(self, tasks: list[Task]) -> None:
        self.will_wait(tasks)
        self.limits.add_waiting({task.host for task in tasks})

    def _confirm(self, part: list[Item], is_lost: Callable[[Item], bool]) -> list[Item]:
        """Return what is still lost after a few more looks, if machines are working."""
        for _ in range(RECHECKS if self.scene.alive else 0):
            if part:
                self._read_again()
                part = list(filter(is_lost, part))
        return part

    # ---- links

    def lost(self) -> Iterator[Problem]:
        """Return the links in scope that are neither done nor waiting."""
        for part in in_parts(self._not_waiting(), RECHECK_SIZE):
            for task in self._confirm(part, self._is_lost):
                yield Problem("lost-link", task.name, "in scope, but neither done nor waiting", (task,))

    def _not_waiting(self) -> Iterator[Task]:
        last, is_full = "", False
        for task in self.found.not_done(self.scene.store):
            if urls.key(task.name) in self.waiting or not urls.is_safe(task.name):
                continue
            if task.host != last:  # a host that has reached a limit: its other URLs are skipped on purpose
                last, is_full = task.host, self.limits.reached(task.host) is not None
            if not is_full:
                yield task

    def _is_lost(self, task: Task) -> bool:
        """Return whether a URL does not wait and, by fresh listings, is not done."""
        host, key = task.host, urls.key(task.name)
        if key in self.waiting:
            return False
        return all(
            self.scene.sees(noun, host) and self.scene.get(f"{noun}/{host}/{key}") is None for noun in ("links", "errs")
        )

    def expect_all(self) -> None:
        """Count all URLs that are not done as waiting: the frontier is gone and will be rebuilt."""
        for part in in_parts(self.found.not_done(self.scene.store), RECHECK_SIZE):
            self.will_wait(part)

    # ---- htmls and files without a record

    def orphans(self) -> Iterator[Problem]:
        """Return htmls and files whose URLs neither wait nor have a record: nothing would ever complete them."""
        rows = self._orphans.execute("SELECT host, name FROM orphan")
        for part in in_parts(filter(self._is_orphan, rows), RECHECK_SIZE):
            for host, name in self._confirm(part, self._is_orphan):
                kind, what = ("orphan-file", "files") if "." in name else ("orphan-html", "htmls")
                yield Problem(kind, f"{what}/{host}/{name}", "it has no record, and its URL does not wait")

    def _is_orphan(self, row: tuple[str, str]) -> bool:
        host, name = row
        noun, key = "files" if "." in name else "htmls", name.partition(".")[0]
        if key in self.waiting:
            self.scene.harmless[f"{noun} of URLs that wait"] += 1
            return False
        record = self.scene.store.read("links", host, key)
        if noun == "htmls" and self.scene.get(f"links/{host}/{key}") is not None:
            return False
        if noun == "files" and record is not None and record.get("file") == name:
            return False
        with suppress(Misshapen):
            return self.files.size(f"{noun}/{host}/{name}") is not None
        return False
