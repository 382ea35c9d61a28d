"""Frontiers over a small store, and what one finds on its disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from crawler.frontier.batches import BatchFiles
from crawler.frontier.frontier import Frontier
from crawler.frontier.task import Task, shard_of
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from lab.loops import Blocking, inline


class Stale(Files):
    """A client that believes an old listing until it changes something in that folder, as sshfs does for 20 s."""

    def __init__(self, root: Path, me: str) -> None:
        super().__init__(root, me, durable=False)
        self.listed: dict[str, list[str]] = {}

    def names(self, folder: str) -> list[str]:
        return self.listed.setdefault(folder, super().names(folder))

    def freshen(self, folder: str) -> bool:
        self.listed.pop(folder, None)
        return super().freshen(folder)


def make_root(folder: Path, shards: int = 2) -> None:
    StoreWriter(folder, Files(folder, "maker", durable=False)).make(Settings(shards=shards))


def frontier_of(root: Path, me: str = "me", **given: object) -> Any:
    """A frontier whose coroutines are called like functions."""
    return frontier_with(Files(root, me, durable=False), Settings(**{"shards": 2, **given}))  # type: ignore[arg-type]


def frontier_with(files: Files, settings: Settings) -> Any:
    """The same with these files and settings."""
    return Blocking(Frontier(BatchFiles(files), settings, SYSTEM, inline))


def owner_of(root: Path, me: str = "me", **given: object) -> Any:
    owner = frontier_of(root, me, **given)
    owner.own(range(owner.shards))
    return owner


def add(owner: Any, *tries: Task) -> None:
    owner.hand_over(tries)
    owner.flush()


def at(shard: int, tasks: Iterable[Task]) -> Iterator[tuple[int, Task]]:
    """Tasks for a table, all in one shard."""
    return ((shard, task) for task in tasks)


def read_all(owner: Any) -> Any:
    while owner.unread:
        owner.read_on()
    return owner


def on_disk(root: Path) -> dict[str, Task]:
    """What a new owner of all shards finds waiting, visits by a schedule too."""
    found = read_all(owner_of(root, "new", recrawl="7d"))
    numbers = [number for batches in found._batches.values() for number in batches.values()]
    return {task.name: task for task in found.table.of_batches(numbers)}


def shard_of_url(url: str, shards: int, spread: str = "domain") -> int:
    """The shard of a URL in a store without regions."""
    return shard_of(Task.named(url), shards, spread)
