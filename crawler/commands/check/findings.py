"""What `crawler check` finds, what a repair makes of it, and what is known of the store while it is looked at."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from crawler.errors import StoreError
from crawler.fleet import members
from crawler.fleet.local_lock import Trace
from crawler.fleet.members import ALIVE
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import FILE, Files
from crawler.store.store import Store

AGAIN = 1.0  # seconds after which a second look is taken at what may only be about to change
YOUNG = 600.0  # seconds for which a temporary file may be that of a command which nobody has announced
TEMPORARY = re.compile(r"\.([\w-]+)-[0-9a-f]{8}", re.ASCII)

# Each kind of finding, and what a repair does about it.
KINDS = {
    "broken": "moved to lost/; its URL is asked again if anything leads there",
    "misplaced": "moved to lost/, and its URL is asked again",
    "no-html": "the record is moved to lost/, and its URL is asked again",
    "half-html": "record and html are moved to lost/, and the URL is asked again",
    "stray-html": "moved to lost/",
    "both": "the refusal is moved to lost/",
    "strange": "moved to lost/",
    "temporary": "removed",
    "half-batch": "moved to lost/; what it holds is handed over anew",
    "lost-link": "handed over",
    "shard": "given one name",
    "word": "removed",
    "frontier": "made again from the records (rehydrated)",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, under a name in the store; `tasks` are to be asked (again) for it."""

    kind: str
    path: str  # of a link that was lost, its URL
    what: str
    tasks: tuple[Task, ...] = ()


@dataclass(slots=True)
class Scene:
    """A store that is looked at, who was at work there when that began, and what was met that does no harm."""

    store: Store
    settings: Settings
    clock: float  # by the store's own clock
    alive: frozenset[str] = frozenset()  # ids of workers and machines
    dead: frozenset[str] = frozenset()
    harmless: Counter[str] = field(default_factory=Counter)

    @property
    def files(self) -> Files:
        """The store's files."""
        return self.store.files

    def freshen(self, folder: str) -> bool:
        """Have the next listing be a new one, False if it is not there; a store that may only be read is as it is."""
        with suppress(StoreError):
            return self.files.freshen(folder)
        return True

    def sees(self, noun: str, host: str) -> bool:
        """Whether a host's folder can be seen if it is there: a client may believe for a minute that it is missing."""
        return self.freshen(f"{noun}/{host}") or host not in self.files.names(noun)

    def sort(
        self, folder: str, fits: Callable[[str], object], what: str, holds: Sequence[str] = (FILE,)
    ) -> tuple[list[str], list[Finding]]:
        """The names in a folder that fit and are what it `holds`, sorted, and what is to be said of the others.

        The listing is a new one: by an old one, what machines have done since would seem lost, even when they are not
        at work any more.
        """
        good: list[str] = []
        bad: list[Finding] = []
        self.freshen(folder)
        for name, shape in sorted(self.files.shapes(folder).items()):
            path = f"{folder}/{name}" if folder else name
            if name.startswith("."):
                bad += self._temporary(path, name)
            elif not fits(name):
                bad.append(Finding("strange", path, f"it is not the name of {what}"))
            elif shape not in holds:
                bad.append(Finding("strange", path, f"it is no {holds[0]}"))
            else:
                good.append(name)
        return good, bad

    def _temporary(self, path: str, name: str) -> list[Finding]:
        """A temporary file of somebody who is dead, as far as one can know; others' hidden names are not ours."""
        found = TEMPORARY.fullmatch(name)
        written = self.files.written(path) if found and found[1] not in self.alive else None
        if found is None or written is None:
            return []
        if found[1] not in self.dead and self.clock - written < YOUNG:
            self.harmless["temporary files that somebody may be writing"] += 1
            return []
        return [Finding("temporary", path, "whoever wrote it is gone")]


def look(store: Store, settings: Settings) -> Scene:
    """See who is at work; one whose process died on this machine is not, however short its pulse has stood still."""
    seen = members.look(store.files, settings)
    workers = {
        worker["id"]: worker["machine"]
        for worker in seen.workers
        if worker["state"] == ALIVE and not Trace.of_the_dead(worker["id"])[0]
    }
    starting = {machine["id"] for machine in seen.machines if machine["state"] == members.STARTING}
    alive = frozenset({*workers, *filter(None, workers.values()), *starting})
    known = {worker["id"] for worker in seen.workers} | {machine["id"] for machine in seen.machines}
    return Scene(store, settings, members.store_time(store.files), alive, frozenset(known - alive))


class Keys:
    """A set of keys, on this machine's disk: there may be many millions."""

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE known(key BLOB PRIMARY KEY) WITHOUT ROWID")

    def add(self, keys: Iterable[str]) -> None:
        """Take in keys."""
        self._db.execute("BEGIN")
        self._db.executemany("INSERT OR IGNORE INTO known VALUES (?)", ((bytes.fromhex(key),) for key in keys))
        self._db.execute("COMMIT")

    def __contains__(self, key: str) -> bool:
        """Whether a key was taken in."""
        return self._db.execute("SELECT 1 FROM known WHERE key = ?", (bytes.fromhex(key),)).fetchone() is not None
