"""`crawler check --repair`. No content is deleted: it is moved to lost/.

No machine may be working: a worker remembers what is done, and would not request again what a repair removes. A machine
that starts meanwhile finds the frontier marked as incomplete and waits. If the repair is killed, the mark makes the
next run rehydrate.
"""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from crawler.commands import status
from crawler.commands.check.findings import Problem, Scene, look
from crawler.errors import Busy
from crawler.fleet.control import ABANDONED
from crawler.fleet.heartbeats import END, Heartbeat, read_counters
from crawler.fleet.shards import FREE
from crawler.frontier import rehydrate
from crawler.frontier.batches import Outbox
from crawler.settings.settings import Settings
from crawler.store import segments
from crawler.store.directories import leaf_of
from crawler.store.history import HISTORY, RECORD, files_of
from crawler.store.lock import StoreLock
from crawler.store.mount import Files
from crawler.store.records import to_json, utc
from crawler.store.store import file_of
from crawler.store.writer import StoreWriter
from crawler.terminal import say

MAX_ENDED = 100  # workers whose files are left as they are


@contextmanager
def alone(store: StoreWriter, settings: Settings, quick: bool = False) -> Iterator[tuple[Scene, StoreLock]]:
    """Lock a store on which no machine is working until the repair is done."""
    store.files.durable = settings.durable
    with store.alone("repairing or rehydrating the store", settings, lambda text: say(text, sys.stderr)) as lock:
        is_new = store.files.create(rehydrate.MARK)
        scene = look(store, settings, quick)
        if scene.alive:
            if is_new:
                store.files.drop(rehydrate.MARK)
            raise Busy(
                f"machines are working on {store.root}, or died less than a minute ago; "
                f"run `crawler stop {store.root}` first, or try again in a minute"
            )
        yield scene, lock
        lock.check()
        store.files.drop(rehydrate.MARK)  # not after an error: then the next run rehydrates


class Repair:
    """Repairs problems in batches: URLs to request again are handed over before anything is moved."""

    def __init__(self, store: StoreWriter, settings: Settings, lock: StoreLock) -> None:
        self.store, self.files, self.settings, self._lock = store, store.files, settings, lock
        self.lost = f"lost/{utc(time.time())}"
        self._outbox = Outbox(store.files, settings)

    def repair(self, problems: Sequence[Problem]) -> None:
        """Repair these problems."""
        self._lock.check()
        self._outbox.send(task for problem in problems for task in problem.tasks)
        for problem in problems:
            self._repair(problem)

    def _repair(self, problem: Problem) -> None:
        if problem.kind in ("temporary", "control"):
            self.files.drop(problem.path)
        elif problem.kind == "shard":
            self._free(problem.path)
        elif problem.kind == "frontier":
            rehydrate.rehydrate(self.store, self.settings, lambda _: None)
        elif problem.kind == "no-index":
            segments.index(self.files, leaf_of(problem.path).removesuffix(segments.SEGMENT))
        elif problem.kind != "lost-link":
            self._move_to_lost(problem.path)

    def _move_to_lost(self, path: str) -> None:
        """Move a file, and the html or file of a record with it, to its path below lost/."""
        noun, _, place = path.partition("/")
        if noun == "links":
            record = self.store.read(noun, *place.split("/", 1)) if "/" in place else None
            content = (record and file_of(record)) or f"htmls/{place}"
            self.files.move(content, f"{self.lost}/{content}")
        if noun == HISTORY and path.endswith(RECORD):
            for content in files_of(self.files, path):
                self.files.move(content, f"{self.lost}/{content}")
        self.files.move(path, f"{self.lost}/{path}")

    def _free(self, path: str) -> None:
        """Leave a shard with one name: nobody is working, so it is free."""
        number = path.partition("/")[2]
        self.files.create(f"{path}@{FREE}")
        for name in self.files.names("shards"):
            if name.startswith(f"{number}@") and name != f"{number}@{FREE}":
                self.files.drop(f"shards/{name}")


def fold(files: Files, clock: float) -> int:
    """Merge the files of workers that ended long ago, if there are many; return how many there were.

    The merged file lists the workers whose counts it includes, and those are then ignored: a kill changes no total. A
    second merged file replaces the first without that list.
    """
    counters = read_counters(files)
    _drop(files, {id for found in counters for id in found.get("folded", ())})  # left by a fold that was killed
    past = [found for found in counters if _is_past(files, found["heartbeat"], clock)]
    if len(past) <= MAX_ENDED:
        return 0
    sums = status.totals(past)
    facts = {**sums, "busiest": sums["busiest"].most_common(10)}
    ids = {found["heartbeat"].id for found in past}
    for _ in range(2):
        sum_of = Heartbeat(f"past-{secrets.token_hex(4)}", 1, END)
        files.put(sum_of.name, to_json({"id": sum_of.id, **facts, "folded": sorted(ids)}))
        _drop(files, ids)
        ids = {sum_of.id}
    return len(past)


def _is_past(files: Files, heartbeat: Heartbeat, clock: float) -> bool:
    return heartbeat.mark == END and clock - (files.written(heartbeat.name) or clock) > ABANDONED


def _drop(files: Files, ids: set[str]) -> None:
    for heartbeat in filter(None, map(Heartbeat.of, files.names("workers"))):
        if heartbeat.id in ids:
            files.drop(heartbeat.name)
