"""The second half of `crawler check`: what waits, and whether all that should wait does."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from crawler.commands.check.findings import AGAIN, Finding, Keys, Scene
from crawler.errors import Misshapen, StoreError
from crawler.frontier.frontier import folder, from_lines, in_parts, lines_of
from crawler.frontier.rehydrate import Found
from crawler.frontier.scope import REDIRECT, Seeds
from crawler.frontier.task import Task
from crawler.store.store import NEW
from crawler.terminal import bar
from crawler.web import urls

LOOKS = 3  # at what waits, while machines are at work: a URL may go from one batch into another as we look
PART = 1000  # links or htmls that are looked for again together

Item = TypeVar("Item")


class Links:
    """All that the records lead to, and all that waits."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.files = scene, scene.files
        self.seeds = Seeds(scene.store, scene.settings)
        scene.freshen("seeds")
        self.seeds.refresh(freshen=False)
        self.found = Found()
        self.settled, self.waiting = Keys(), Keys()
        self._misrouted = sqlite3.connect("", isolation_level=None)
        self._misrouted.execute("CREATE TABLE stray(host TEXT, key TEXT)")
        for name, seeds in scene.store.seeds():
            if not name.startswith(REDIRECT) and not name.endswith(NEW):  # new ones are handed over by the next run
                self.found.add(map(Task, seeds))

    def note_misrouted(self, host: str, keys: Iterable[str]) -> None:
        """Remember htmls that have no record: whether that is as it should be, what waits will tell."""
        self._misrouted.executemany("INSERT INTO stray VALUES (?, ?)", ((host, key) for key in keys))

    def will_wait(self, tasks: Iterable[Task]) -> None:
        """Count URLs as waiting."""
        self.waiting.add(urls.key(urls.retry_task_url(task.url) or task.url) for task in tasks)

    # ---- batches

    def batches(self) -> Iterator[Finding]:
        """Read all batches, each into what waits; those that are not whole."""
        shards = self.scene.settings.shards
        for home in bar(map(folder, range(shards)), "what waits", shards):
            names, bad = self.scene.sort(home, lambda name: True, "")
            yield from bad
            for name in names:
                yield from self._batch(f"{home}/{name}")

    def _batch(self, path: str) -> Iterator[Finding]:
        try:
            data = self.files.get(path)
        except Misshapen:
            yield Finding("strange", path, "it is no file")
            return
        if data is None:  # tidied away since the listing
            return
        tasks = list(from_lines(data))
        self.will_wait(tasks)
        settled = sum(urls.key(task.url) in self.settled for task in tasks)
        self.scene.harmless["lines of settled URLs in batches"] += settled
        lines = data.count(b"\n")
        if lines < lines_of(path):
            what = f"{lines:,} lines are left of the {lines_of(path):,} that its name tells"
            yield Finding("half-batch", path, what, tuple(tasks))

    def _read_again(self) -> None:
        """Take in what waits by now."""
        time.sleep(AGAIN)
        for home in map(folder, range(self.scene.settings.shards)):
            self.scene.freshen(home)
            for name in self.files.names(home):
                with suppress(StoreError):
                    self.will_wait(from_lines(self.files.get(f"{home}/{name}") or b""))

    def _insist(self, part: list[Item], is_lost: Callable[[Item], bool]) -> list[Item]:
        """What is still lost after a few more looks, if machines are at work."""
        for _ in range(LOOKS if self.scene.alive else 0):
            if part:
                self._read_again()
                part = list(filter(is_lost, part))
        return part

    # ---- links

    def lost(self) -> Iterator[Finding]:
        """The links that the crawl goes on with, and that are neither settled nor waiting."""
        for part in in_parts(self._not_waiting(), PART):
            for task in self._insist(part, self._is_lost):
                yield Finding("lost-link", task.url, "it is in scope, but neither settled nor waiting", (task,))

    def _not_waiting(self) -> Iterator[Task]:
        last, is_full = "", False
        for task in self.found.unsettled(self.scene.store):
            if urls.host(task.url) != last:
                last = urls.host(task.url)
                is_full = self._is_full(last)
            if not is_full and urls.is_safe(task.url) and urls.key(task.url) not in self.waiting:
                yield task

    def _is_full(self, host: str) -> bool:
        """Whether a host has as many pages as it may: what else it has is left out on purpose."""
        most = self.scene.settings.max_per_host
        return most is not None and self.scene.store.kept(host) >= most

    def _is_lost(self, task: Task) -> bool:
        """Whether a URL does not wait, and by new listings is not settled."""
        host, key = urls.host(task.url), urls.key(task.url)
        if key in self.waiting:
            return False
        return all(
            self.scene.sees(noun, host) and self.files.get(f"{noun}/{host}/{key}") is None for noun in ("links", "errs")
        )

    def expect_all(self) -> None:
        """Count all that is not settled as waiting: the frontier is gone, and will be made again."""
        for part in in_parts(self.found.unsettled(self.scene.store), PART):
            self.will_wait(part)

    # ---- htmls without a record

    def misrouted(self) -> Iterator[Finding]:
        """Htmls whose URLs do not wait and have no record: nobody would ever finish them."""
        rows = self._misrouted.execute("SELECT host, key FROM stray")
        for part in in_parts(filter(self._is_misrouted, rows), PART):
            for host, key in self._insist(part, self._is_misrouted):
                yield Finding("stray-html", f"htmls/{host}/{key}", "it has no record, and its URL does not wait")

    def _is_misrouted(self, row: tuple[str, str]) -> bool:
        place = "/".join(row)
        if row[1] in self.waiting:
            self.scene.harmless["htmls of URLs that wait"] += 1
            return False
        return self.files.get(f"links/{place}") is None and self.files.get(f"htmls/{place}") is not None
