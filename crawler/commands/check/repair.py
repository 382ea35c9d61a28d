"""What `crawler check --repair` does about what was found. Nothing of the web is deleted: it is moved to lost/.

Only while nobody is at work: a worker knows by heart what is settled, and would not ask again what a repair takes away.
A machine that begins meanwhile finds the frontier marked as not whole, and waits; if the repair is killed, the mark
makes the next run rehydrate.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from crawler.commands import status
from crawler.commands.check.findings import Finding, Scene, look
from crawler.errors import Busy
from crawler.fleet.control import ABANDONED
from crawler.fleet.heartbeats import END, Heartbeat, read_counters
from crawler.fleet.shards import FREE
from crawler.frontier import rehydrate
from crawler.frontier.frontier import Frontier
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json, utc
from crawler.store.writer import StoreWriter

MANY = 100  # ended workers whose files may stay as they are


@contextmanager
def alone(store: StoreWriter, settings: Settings) -> Iterator[Scene]:
    """A store on which nobody works until the repair is done, as it was found."""
    store.files.durable = settings.durable
    with store.alone("repairing or rehydrating the store"):
        is_new = store.files.create(rehydrate.MARK)
        scene = look(store, settings)
        if scene.alive:
            if is_new:
                store.files.drop(rehydrate.MARK)
            raise Busy(
                f"machines are at work on {store.root}, or died less than a minute ago; "
                f"`crawler stop {store.root}` first, or repair it in a minute"
            )
        yield scene
        store.files.drop(rehydrate.MARK)  # not if the repair was cut off: then the next run rehydrates


class Repair:
    """Mends findings, some at a time: what is to be asked again waits before anything is moved."""

    def __init__(self, store: StoreWriter, settings: Settings) -> None:
        self.store, self.files, self.settings = store, store.files, settings
        self.lost = f"lost/{utc(time.time())}"
        self._frontier = Frontier(store.files, settings)

    def mend(self, findings: Sequence[Finding]) -> None:
        """Mend these."""
        self._frontier.hand_over(task for finding in findings for task in finding.tasks)
        self._frontier.flush()
        for finding in findings:
            self._mend(finding)

    def _mend(self, finding: Finding) -> None:
        if finding.kind in ("temporary", "word"):
            self.files.drop(finding.path)
        elif finding.kind == "shard":
            self._free(finding.path)
        elif finding.kind == "frontier":
            rehydrate.rehydrate(self.store, self.settings, lambda _: None)
        elif finding.kind != "lost-link":
            self._put_aside(finding.path)

    def _put_aside(self, path: str) -> None:
        """Move a file, and the html of a record with it, to where it was found under lost/."""
        noun, _, place = path.partition("/")
        if noun == "links":
            self.files.move(f"htmls/{place}", f"{self.lost}/htmls/{place}")
        self.files.move(path, f"{self.lost}/{path}")

    def _free(self, path: str) -> None:
        """Leave a shard with one name: nobody is at work, so it is free."""
        number = path.partition("/")[2]
        self.files.create(f"{path}@{FREE}")
        for name in self.files.names("shards"):
            if name.startswith(f"{number}@") and name != f"{number}@{FREE}":
                self.files.drop(f"shards/{name}")


def fold(files: Files, clock: float) -> int:
    """Make one file of those of workers that ended long ago, if there are many; how many there were.

    The sum names those whom it stands for, and they do not count beside it: a kill changes no total. A second sum
    stands for the first, and need not remember them.
    """
    counters = read_counters(files)
    _drop(files, {id for found in counters for id in found.get("folded", ())})  # left by one that was cut off
    past = [found for found in counters if _is_past(files, found["heartbeat"], clock)]
    if len(past) <= MANY:
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
