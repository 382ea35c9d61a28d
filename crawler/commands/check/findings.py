"""The problems that `crawler check` finds, what a repair does about each, and the store that is checked."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from crawler.errors import Misshapen, StoreError
from crawler.fleet import members
from crawler.fleet.heartbeats import ALIVE
from crawler.fleet.local_lock import LocalLock
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.reading import FILE
from crawler.store.store import Store

RECHECK_AFTER = 1.0  # seconds: what looks wrong may be about to change
TEMPORARY_MAX_AGE = 600.0  # seconds: a temporary file may belong to a command without a heartbeat
TEMPORARY = re.compile(r"\.([\w-]+?)-[0-9a-f]{8}(?:-[0-9a-f]+)?", re.ASCII)

# Each kind of problem, and what a repair does about it.
KINDS = {
    "broken": "moved to lost/; its URL is requested again if anything links to it",
    "misplaced": "moved to lost/, and its URL is requested again",
    "no-html": "the record is moved to lost/, and its URL is requested again",
    "half-html": "record and html are moved to lost/, and the URL is requested again",
    "changed-html": "record and html are moved to lost/, and the URL is requested again",
    "orphan-html": "moved to lost/",
    "no-file": "the record is moved to lost/, and its URL is requested again",
    "half-file": "record and file are moved to lost/, and the URL is requested again",
    "changed-file": "record and file are moved to lost/, and the URL is requested again",
    "orphan-file": "moved to lost/",
    "both": "the failure record is moved to lost/",
    "cookies": "moved to lost/; the crawl continues without them",
    "unexpected": "moved to lost/",
    "temporary": "removed",
    "half-batch": "moved to lost/; its tasks are handed over again",
    "lost-link": "handed over",
    "shard": "given one name",
    "control": "removed",
    "no-index": "indexed",
    "frontier": "rebuilt from the records (rehydrated)",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a file of the store; `tasks` are to be requested (again) because of it."""

    kind: str
    path: str  # or the URL of a lost link
    what: str
    tasks: tuple[Task, ...] = ()


@dataclass(slots=True)
class Scene:
    """A store that is checked, who was working on it at the start, and counts of what is harmless."""

    store: Store
    settings: Settings
    clock: float  # the time by the store's clock
    alive: frozenset[str] = frozenset()  # ids of workers and machines
    dead: frozenset[str] = frozenset()
    quick: bool = False  # no html is read
    harmless: Counter[str] = field(default_factory=Counter)
    revisiting: Keys | frozenset[str] = (
        frozenset()
    )  # keys of pages whose next visit is due: one may have been killed in the middle

    @property
    def files(self) -> Files:
        """Return the store's files."""
        return self.store.files

    def freshen(self, folder: str) -> bool:
        """Make the next listing fresh; False if the folder is missing. A read-only store is taken as it is."""
        with suppress(StoreError):
            return self.files.freshen(folder)
        return True

    def sees(self, noun: str, host: str) -> bool:
        """Return whether a host's folder is visible if it exists: a client may miss it for a minute."""
        return self.freshen(f"{noun}/{host}") or host not in self.files.names(noun)

    def sort(
        self, folder: str, fits: Callable[[str], object], what: str, holds: Sequence[str] = (FILE,)
    ) -> tuple[list[str], list[Problem]]:
        """Return the names in a folder that fit and are what it `holds`, sorted, and the problems with the others.

        The listing is fresh: by a stale one, what machines have done since would seem lost, even after they ended.
        """
        good: list[str] = []
        bad: list[Problem] = []
        self.freshen(folder)
        for name, shape in sorted(self.shapes(folder).items()):
            path = f"{folder}/{name}" if folder else name
            if name.startswith("."):
                bad += self._temporary(path, name)
            elif not fits(name):
                bad.append(Problem("unexpected", path, f"not the name of {what}"))
            elif shape not in holds:
                bad.append(Problem("unexpected", path, f"not a {holds[0]}"))
            else:
                good.append(name)
        return good, bad

    def get(self, path: str) -> bytes | None:
        """Return the bytes of a file; None if there is none, or something else is in its place."""
        with suppress(Misshapen):
            return self.files.get(path)
        return None

    def shapes(self, folder: str) -> dict[str, str]:
        """Return the names in a folder with their types; none through a symbolic link, which is found elsewhere."""
        with suppress(Misshapen):
            return self.files.shapes(folder)
        return {}

    def _temporary(self, path: str, name: str) -> list[Problem]:
        """Return a problem for a temporary file whose writer is dead; other hidden files are not ours."""
        found = TEMPORARY.fullmatch(name)
        written = self.files.written(path) if found and found[1] not in self.alive else None
        if found is None or written is None:
            return []
        if found[1] not in self.dead and self.clock - written < TEMPORARY_MAX_AGE:
            self.harmless["temporary files that may be in use"] += 1
            return []
        return [Problem("temporary", path, "its writer is gone")]


def look(store: Store, settings: Settings, quick: bool = False) -> Scene:
    """Return the store and who works on it; a worker whose process died on this machine does not count."""
    seen = members.look(store.files, settings)
    workers = {
        worker["id"]: worker["machine"]
        for worker in seen.workers
        if worker["state"] == ALIVE and not LocalLock.died_here(worker["id"])[0]
    }
    starting = {machine["id"] for machine in seen.machines if machine["state"] == members.STARTING}
    alive = frozenset({*workers, *filter(None, workers.values()), *starting})
    known = {worker["id"] for worker in seen.workers} | {machine["id"] for machine in seen.machines}
    return Scene(store, settings, members.store_time(store.files), alive, frozenset(known - alive), quick)


class Keys:
    """A set of keys, on the local disk: there may be many millions."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE known(key BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, keys: Iterable[str]) -> None:
        """Add keys."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO known VALUES (?)", ((bytes.fromhex(key),) for key in keys))
        self._db.execute("COMMIT")

    def __contains__(self, key: str) -> bool:
        """Return whether a key was added."""
        return self._db.execute("SELECT 1 FROM known WHERE key = ?", (bytes.fromhex(key),)).fetchone() is not None
