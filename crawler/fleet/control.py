"""An operator's orders to the machines at work: stop, pause, resume.

An order is a name in `workers/`, because every worker lists that folder with each heartbeat anyway: `workers/pause` is
for all, `workers/<machine>.stop` for one machine. Ids are random and new with each run, so an old order to stop never
affects a later run.

`stop` promises that every machine that had announced itself before `stop` listed the folder gets the order, whether its
workers have started or not (a run announces itself before anything that takes long). One that announces itself later is
a later run, and is not stopped. A machine that is told to stop finishes what is in flight, releases its shards and
removes the order; the order to a machine that died is removed by a later `run` or `stop`, when it is an hour old.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from crawler.errors import DiskFull, StoreError
from crawler.fleet.budgets import BUDGET, Budget
from crawler.fleet.heartbeats import ALIVE, END, ENDED, SILENT, Watch, heartbeats, read_counters
from crawler.fleet.local_lock import LocalLock
from crawler.fleet.members import MACHINE, STARTING, Facts, Members, announced, look
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.terminal import many
from crawler.web.text import printable

PAUSE = "pause"
STOP = ".stop"
ABANDONED = 3600.0  # seconds after which orders and announcements of a machine without a heartbeat are removed
SHOW_EVERY = 10.0  # seconds between messages while we wait
START_WAIT = 10.0  # seconds that we wait for the first heartbeat of a machine
MACHINES_NAMED = 8  # one by one

Show = Callable[[str], object]


def is_paused(files: Files) -> bool:
    """Tell whether an operator has paused the crawl: while this file exists, no requests are sent."""
    return files.get(f"workers/{PAUSE}") is not None


def pause(store: Store) -> str:
    """Have all machines, also those that start later, send no more requests; return a message about it."""
    is_new = store.files.create(f"workers/{PAUSE}")
    store.files.sync({"workers"})  # a power cut must not take back what the operator was told
    if not is_new:
        return f"{store.root} is paused already; `crawler resume {store.root}` resumes it"
    count = _at_work(store)
    if not count:
        return f"paused; no machine is running; `crawler run {store.root}` will wait for `crawler resume {store.root}`"
    verb = "stops" if count == 1 else "stop"
    return f"paused; {many(count, 'machine')} {verb} requesting within seconds; `crawler resume {store.root}` resumes"


def resume(store: Store) -> str:
    """Have all machines resume; return a message about it."""
    was_paused = store.files.drop(f"workers/{PAUSE}")
    store.files.sync({"workers"})  # also if an earlier attempt has removed it, and failed here
    if not was_paused:
        return f"{store.root} is not paused"
    count = _at_work(store)
    if not count:
        return f"no longer paused; no machine is running; `crawler run {store.root}` resumes the crawl"
    return f"no longer paused; {many(count, 'machine')} {'resumes' if count == 1 else 'resume'} within seconds"


def _at_work(store: Store) -> int:
    settings, _ = store.settings_or_defaults()
    return len(look(store.files, settings, again=False).at_work)


def withdraw(files: Files, machine: str) -> None:
    """Remove the announcement and the budget of a machine that has ended, and an order to it."""
    with suppress(StoreError):  # then a later run removes them
        files.drop(f"workers/{machine}{MACHINE}")
        files.drop(f"workers/{machine}{STOP}")
        for name in files.names("workers"):
            if name.startswith(machine + BUDGET):
                files.drop(f"workers/{name}")


def sweep(files: Files) -> None:
    """Remove announcements of and orders to machines that died, an hour later (one that hung might have resumed).

    Those that died on this computer are known by their locks, and go at once.
    """
    names = [name for name in files.names("workers") if name.endswith((MACHINE, STOP)) or Budget.of(name)]
    clock = files.clock("workers") if names else 0.0
    dead = {id for id in announced(files) if LocalLock.died_here(id)[0]}
    old = {name for name in names if clock - (files.written(f"workers/{name}") or clock) > ABANDONED}
    old |= {name for name in names if name.partition(".")[0] in dead}
    if not old:
        return
    busy = {found.get("machine") for found in read_counters(files) if found["heartbeat"].mark != END}
    for name in sorted(old):
        if name.partition(".")[0] not in busy:
            files.drop(f"workers/{name}")
    for id in sorted(dead - busy):
        LocalLock.remove(id)


def stop(store: Store, show: Show, clock: Clock = SYSTEM) -> bool:
    """Tell every machine to stop cleanly, and wait for them; return whether all that are alive have stopped."""
    settings, _ = store.settings_or_defaults()  # must work while crawl.yaml is invalid
    with suppress(DiskFull):
        sweep(store.files)
    members = look(store.files, settings)
    told = [machine for machine in members.machines if machine["state"] != ENDED]
    # A machine whose workers were all marked dead while it hung may resume: it is told, but not waited for.
    for id in sorted({machine["id"] for machine in told}.union(announced(store.files))):
        _tell(store.files, id)
    if not told:
        show(f"no machine is running on {store.root}; there is nothing to stop")
        return True
    show(f"told {many(len(told), 'machine')} to stop: {_named(told)}")
    awaited = [machine for machine in told if machine["state"] != SILENT]
    late = _StopWait(store.files, settings, members, awaited, clock).wait(show)
    ended = len(awaited) - len(late)
    if ended:
        verb = "has" if ended == 1 else "have"
        show(f"{many(ended, 'machine')} {verb} stopped cleanly; `crawler run {store.root}` resumes the crawl")
    for machine in told:
        if machine["state"] == SILENT:
            show(f"{_name(machine)} is silent: if it is dead, others take over; if it recovers, it stops")
    return not [machine for machine in late if machine["state"] != SILENT]


def _tell(files: Files, id: str) -> None:
    """Leave an order to stop; on a full disk the machine's announcement is renamed to it, which needs no space."""
    try:
        files.create(f"workers/{id}{STOP}")
    except DiskFull:
        if not files.claim(f"workers/{id}{MACHINE}", f"workers/{id}{STOP}"):
            raise


def _name(machine: Facts) -> str:
    return printable(f"{machine['id']} on {machine['name'] or '?'}")


def _named(machines: list[Facts]) -> str:
    more = f" and {len(machines) - MACHINES_NAMED} more" if len(machines) > MACHINES_NAMED else ""
    return ", ".join(map(_name, machines[:MACHINES_NAMED])) + more


class _StopWait:
    """Waits until machines have ended, by names in `workers/` and our own clock alone."""

    def __init__(self, files: Files, settings: Settings, members: Members, machines: list[Facts], clock: Clock) -> None:
        self.files, self._clock = files, clock
        self.machines = list(machines)
        self.watch = Watch(settings.dead_after, settings.heartbeat)
        self.limit = settings.dead_after + settings.timeout + SHOW_EVERY  # a request may take its timeout
        self._pause = min(0.5, settings.heartbeat)
        self._began = clock.monotonic()
        self._counters: dict[str, Facts] = {}  # that were read
        self._workers = {
            machine["id"]: {worker["id"] for worker in members.workers if worker["machine"] == machine["id"]}
            for machine in machines
        }

    def wait(self, show: Show) -> list[Facts]:
        """Wait for a while; return the machines that have not ended, with the state SILENT if they fell silent."""
        began = shown = self._clock.monotonic()
        while self._look() and self._clock.monotonic() - began < self.limit:
            if self._clock.monotonic() - shown > SHOW_EVERY:
                shown = self._clock.monotonic()
                show(f"waiting for {_named(self.machines)}")
            self._clock.sleep(self._pause)
        for machine in self.machines:
            if machine["state"] != SILENT:
                show(f"{_name(machine)} has not stopped within {self.limit:.0f} s; it will when its requests end")
        return self.machines

    def _look(self) -> bool:
        """Look once, and tell whether there is still a machine to wait for."""
        with suppress(DiskFull):  # then a cached listing must do
            self.files.freshen("workers")
        names = set(self.files.names("workers"))
        self.watch.look(heartbeats(names), self._clock.monotonic())
        self._find_started()
        for machine in [machine for machine in self.machines if self._is_gone(machine["id"], names)]:
            self.machines.remove(machine)
            self.files.drop(f"workers/{machine['id']}{STOP}")  # it may have ended before it saw the order
        return any(machine["state"] != SILENT for machine in self.machines)

    def _find_started(self) -> None:
        """Find the workers of machines that had none yet; one that shows none for a while was killed before it could.

        If it is only slow (it may rehydrate the store), it finds the order when it starts, and stops.
        """
        starting = {machine["id"]: machine for machine in self.machines if machine["state"] == STARTING}
        for found in read_counters(self.files, self._counters) if starting else ():
            machine = starting.pop(str(found.get("machine")), None)
            if machine:
                machine["state"] = ALIVE
                self._workers[machine["id"]].add(found["heartbeat"].id)
        if self._clock.monotonic() - self._began > START_WAIT:
            for machine in starting.values():
                machine["state"] = SILENT

    def _is_gone(self, id: str, names: set[str]) -> bool:
        """Tell whether a machine has ended; set the state of one that has fallen silent."""
        seen = [self.watch.seen[worker] for worker in self._workers[id] if worker in self.watch.seen]
        running = [worker for worker in seen if worker.heartbeat.mark != END]
        if running and all(worker.still >= self.watch.dead_after for worker in running):
            next(machine for machine in self.machines if machine["id"] == id)["state"] = SILENT
        return not running and id + MACHINE not in names
