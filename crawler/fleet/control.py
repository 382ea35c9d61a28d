"""An operator's word to the machines at work: stop, pause, resume.

A word is a name in `workers/`, because every worker lists that folder with each pulse anyway: `workers/pause` is for
all, `workers/<machine>.stop` for one machine. Ids are random and new with each run, so an old stop never hurts a
later one.

What `stop` promises: every machine that had announced itself before `stop` listed the folder is told, whether its
workers have started or not (`begin` announces it before anything that takes long). One that announces itself after is
a later run, and goes on. A told machine finishes what is in flight, gives its shards back and removes the word;
the word to a machine that died is removed by a later `run` or `stop`, when it is an hour old.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from crawler.errors import DiskFull, StoreError
from crawler.fleet.heartbeats import END, Heartbeat, Watch, read_counters
from crawler.fleet.members import ENDED, MACHINE, SILENT, Facts, Members, announced, look
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.terminal import many
from crawler.web.text import printable

PAUSE = "pause"
STOP = ".stop"
LITTER = 3600.0  # seconds after which words by or to a machine without a pulse are removed
SHOWN = 10.0  # seconds between sentences of one who waits
NAMED = 8  # machines that are named one by one

Show = Callable[[str], object]


def is_paused(files: Files) -> bool:
    """Whether an operator has said that no host is to be asked."""
    return files.get(f"workers/{PAUSE}") is not None


def pause(store: Store) -> str:
    """Have all machines, those that come later too, stop asking hosts; what came of it, as a sentence."""
    if not store.files.create(f"workers/{PAUSE}"):
        return f"{store.root} is paused already; `crawler resume {store.root}` goes on"
    count = _at_work(store)
    if not count:
        return f"paused; nobody is at work, and `crawler run {store.root}` will wait for `crawler resume {store.root}`"
    verb = "stops" if count == 1 else "stop"
    return f"paused; {many(count, 'machine')} {verb} asking within seconds; `crawler resume {store.root}` goes on"


def resume(store: Store) -> str:
    """Have all machines go on; what came of it, as a sentence."""
    if not store.files.drop(f"workers/{PAUSE}"):
        return f"{store.root} is not paused"
    count = _at_work(store)
    if not count:
        return f"no longer paused; nobody is at work, and `crawler run {store.root}` goes on"
    return f"no longer paused; {many(count, 'machine')} {'goes' if count == 1 else 'go'} on within seconds"


def _at_work(store: Store) -> int:
    settings, _ = store.settings_or_defaults()
    return len(look(store.files, settings, again=False).at_work)


def withdraw(files: Files, machine: str) -> None:
    """A machine has ended: neither its announcement nor a word to it is needed any more."""
    with suppress(StoreError):  # then a later run removes them
        files.drop(f"workers/{machine}{MACHINE}")
        files.drop(f"workers/{machine}{STOP}")


def sweep(files: Files) -> None:
    """Remove announcements of and words to machines that died, an hour later (one that hung might have come back)."""
    words = [name for name in files.names("workers") if name.endswith((MACHINE, STOP))]
    clock = files.clock("workers") if words else 0.0
    old = [name for name in words if clock - (files.written(f"workers/{name}") or clock) > LITTER]
    if not old:
        return
    busy = {found.get("machine") for found in read_counters(files) if found["heartbeat"].mark != END}
    for name in old:
        if name.partition(".")[0] not in busy:
            files.drop(f"workers/{name}")


def stop(store: Store, show: Show) -> bool:
    """Tell every machine at work to end in good order, and wait for them; whether all that are alive have ended."""
    settings, _ = store.settings_or_defaults()  # an operator's word does not wait until an edit is right
    with suppress(DiskFull):
        sweep(store.files)
    members = look(store.files, settings)
    told = [machine for machine in members.machines if machine["state"] != ENDED]
    # One whose workers were all buried while it hung may come back: it is told, though nobody waits for it.
    for id in {machine["id"] for machine in told} | set(announced(store.files)):
        _tell(store.files, id)
    if not told:
        show(f"nobody is at work on {store.root}; there is nothing to stop")
        return True
    show(f"told {many(len(told), 'machine')} to stop: {_named(told)}")
    awaited = [machine for machine in told if machine["state"] != SILENT]
    late = _Waiting(store.files, settings, members, awaited).wait(show)
    ended = len(awaited) - len(late)
    if ended:
        verb = "has" if ended == 1 else "have"
        show(f"{many(ended, 'machine')} {verb} ended in good order; `crawler run {store.root}` goes on")
    for machine in told:
        if machine["state"] == SILENT:
            show(f"{_name(machine)} is silent: if it is dead, others take over; if it wakes up, it stops")
    return not [machine for machine in late if machine["state"] != SILENT]


def _tell(files: Files, id: str) -> None:
    """Leave the word for a machine; where there is no room for a new name, its announcement becomes the word."""
    try:
        files.create(f"workers/{id}{STOP}")
    except DiskFull:
        if not files.claim(f"workers/{id}{MACHINE}", f"workers/{id}{STOP}"):
            raise


def _name(machine: Facts) -> str:
    return printable(f"{machine['id']} on {machine['name'] or '?'}")


def _named(machines: list[Facts]) -> str:
    more = f" and {len(machines) - NAMED} more" if len(machines) > NAMED else ""
    return ", ".join(map(_name, machines[:NAMED])) + more


class _Waiting:
    """Somebody who waits until machines are gone, by names in `workers/` and their own clock alone."""

    def __init__(self, files: Files, settings: Settings, members: Members, machines: list[Facts]) -> None:
        self.files = files
        self.machines = list(machines)
        self.watch = Watch(settings.dead_after, settings.heartbeat)
        self.limit = settings.dead_after + settings.timeout + SHOWN  # a page in flight may take as long as it may
        self._pause = min(0.5, settings.heartbeat)
        self._crews = {
            machine["id"]: {worker["id"] for worker in members.workers if worker["machine"] == machine["id"]}
            for machine in machines
        }

    def wait(self, show: Show) -> list[Facts]:
        """Wait for a while; the machines that have not ended, those that fell silent marked as such."""
        began = shown = time.monotonic()
        while self._look() and time.monotonic() - began < self.limit:
            if time.monotonic() - shown > SHOWN:
                shown = time.monotonic()
                show(f"waiting for {_named(self.machines)}")
            time.sleep(self._pause)
        for machine in self.machines:
            if machine["state"] != SILENT:
                show(f"{_name(machine)} has not ended within {self.limit:.0f} s; it will when it is done")
        return self.machines

    def _look(self) -> bool:
        """Whether there is still somebody to wait for."""
        with suppress(DiskFull):  # then a listing that may be a little old must do
            self.files.freshen("workers")
        names = set(self.files.names("workers"))
        self.watch.look(filter(None, map(Heartbeat.of, names)), time.monotonic())
        for machine in [machine for machine in self.machines if self._is_gone(machine["id"], names)]:
            self.machines.remove(machine)
            self.files.drop(f"workers/{machine['id']}{STOP}")  # it may have ended before it could see it
        return any(machine["state"] != SILENT for machine in self.machines)

    def _is_gone(self, id: str, names: set[str]) -> bool:
        """Whether a machine has ended; one that has fallen silent is marked."""
        seen = [self.watch.seen[worker] for worker in self._crews[id] if worker in self.watch.seen]
        running = [worker for worker in seen if worker.heartbeat.mark != END]
        if running and all(worker.still >= self.watch.dead_after for worker in running):
            next(machine for machine in self.machines if machine["id"] == id)["state"] = SILENT
        return not running and id + MACHINE not in names
