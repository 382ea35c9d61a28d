"""`crawler check --repair`. No content is deleted: it is moved to lost/.

No machine may be working: a worker remembers what is done, and would not request again what a repair removes. A machine
that starts meanwhile finds the frontier marked as incomplete and waits. If the repair is killed, the mark makes the
next run rehydrate.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from crawler.commands.check.findings import Problem, Scene, look
from crawler.crawl.whole import may_go_on
from crawler.errors import Busy
from crawler.fleet.shards import FREE
from crawler.frontier import rehydrate
from crawler.frontier.batches import Outbox
from crawler.settings.settings import Settings
from crawler.store import segments
from crawler.store.directories import leaf_of
from crawler.store.history import HISTORY, RECORD, files_of
from crawler.store.lock import StoreLock
from crawler.store.reading import FOLDER
from crawler.store.records import utc
from crawler.store.store import file_of
from crawler.store.writer import StoreWriter
from crawler.terminal import say


@contextmanager
def alone(store: StoreWriter, settings: Settings, quick: bool = False) -> Iterator[tuple[Scene, StoreLock]]:
    """Lock a store on which no machine is working until the repair is done."""
    store.files.durable = settings.durable
    with store.alone("repairing or rehydrating the store", settings, lambda text: say(text, sys.stderr)) as lock:
        # With something else in place of the folder there is no frontier to mark: it is made when that was moved away.
        is_folder = store.files.shapes("").get("frontier", FOLDER) == FOLDER
        is_new = is_folder and store.files.create(rehydrate.MARK)
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
            rehydrate.rehydrate(self.store, self.settings, lambda _: None, may_go_on(self.store, self.settings))
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
            # If it is not there, the folder that it was in may be a file, which is in lost/ by now.
            if self.files.written(content) is not None:
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
