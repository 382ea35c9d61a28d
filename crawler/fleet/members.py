"""The machines and workers of a crawl, as an operator sees them. (Workers watch each other: see `shards`.)

The age of a heartbeat is its file's time compared with that of a file made just now, both by the file server's clock.
Not promised: on a mount where clients stamp files, ages are wrong by as much as their clocks differ; so a worker that
seems silent is looked at again, a heartbeat later.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crawler.errors import StoreError
from crawler.fleet.heartbeats import (
    ALIVE,
    ENDED,
    NUMBERS,
    SILENT,
    Heartbeat,
    newest_in,
    parse_counters,
    read_counters,
    state_of,
)
from crawler.fleet.local_lock import LocalLock
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json, utc

MACHINE = ".machine"  # `workers/<id>.machine` exists from before a machine's first worker until after its last
STARTING = "starting"  # the state of a machine without a worker yet; others have those of workers
START_SECONDS = 60.0  # for the first heartbeat of a machine before it counts as silent

Facts = dict[str, Any]


class Members(NamedTuple):
    """Machines and workers, each as a JSON object."""

    machines: list[Facts]
    workers: list[Facts]
    counters: list[Facts]  # of the workers, as they wrote them

    @property
    def alive(self) -> list[Facts]:
        """The workers that are alive."""
        return [worker for worker in self.workers if worker["state"] == ALIVE]

    @property
    def counters_alive(self) -> list[Facts]:
        """The counters of the workers that are alive."""
        ids = {worker["id"] for worker in self.alive}
        return [found for found in self.counters if found["heartbeat"].id in ids]

    @property
    def at_work(self) -> list[Facts]:
        """The machines that are alive or starting."""
        return [machine for machine in self.machines if machine["state"] in (STARTING, ALIVE)]


@dataclass(frozen=True, slots=True)
class Memory:
    """Caches what repeated looks would read again: a file in `workers/` never changes."""

    counters: dict[str, Facts] = field(default_factory=dict)
    _shown: dict[str, tuple[Heartbeat, float]] = field(default_factory=dict)  # and since when, by our own clock

    def age(self, files: Files, heartbeat: Heartbeat, clock: float) -> float:
        """Return the age of a heartbeat: by its file when we first see the worker, later since we saw it change."""
        known = self._shown.get(heartbeat.id)
        if known is None or known[0] != heartbeat:
            # A file that is gone since the listing was replaced just now.
            written = (files.written(heartbeat.name) or clock) if known is None else clock
            known = self._shown[heartbeat.id] = heartbeat, time.monotonic() - max(clock - written, 0.0)
        return time.monotonic() - known[1]


def announce(files: Files, machine: str) -> None:
    """Announce a machine before it starts workers, so that no `crawler stop` misses it."""
    facts = {"machine": machine, "name": os.uname().nodename, "pid": os.getpid(), "started": utc(time.time())}
    files.put(f"workers/{machine}{MACHINE}", to_json(facts))


def announced(files: Files) -> list[str]:
    """Return the ids of the machines that announced themselves and have not ended cleanly."""
    names = (name.removesuffix(MACHINE) for name in files.names("workers") if name.endswith(MACHINE))
    return sorted(filter(is_id, names))


def is_id(text: object) -> bool:
    """Tell whether this can be the id of a machine: it becomes part of file names."""
    return isinstance(text, str) and re.fullmatch(r"[\w-]{1,64}", text, re.ASCII) is not None


def look(files: Files, settings: Settings, again: bool = True, memory: Memory | None = None) -> Members:
    """Return who is there; `again` looks twice if a worker seems silent, which takes about a heartbeat."""
    memory = memory or Memory()
    clock = store_time(files)
    counters = read_counters(files, memory.counters)
    ages = [memory.age(files, found["heartbeat"], clock) for found in counters]
    workers = [_worker(found, age, settings.dead_after) for found, age in zip(counters, ages, strict=True)]
    silent = [worker for worker in workers if worker["state"] == SILENT]
    if silent and again:
        time.sleep(1.5 * settings.heartbeat)
        with suppress(StoreError):
            files.freshen("workers")
        _look_again(files, silent, settings.dead_after)
    for worker in workers:
        del worker["heartbeat"]
    workers.sort(key=lambda worker: (worker["state"], worker["machine"], worker["id"]))
    return Members(_machines(files, workers, clock), workers, counters)


def find(files: Files, settings: Settings, id: str) -> Facts:
    """Return one worker without writing: its age is by our own clock, and if it seems silent, it is looked at again."""
    last = newest_in(files).get(id)
    heartbeat = last or Heartbeat(id, 0)
    found: Facts = {}
    with suppress(ValueError, TypeError):
        found = parse_counters(files.get(heartbeat.name) or b"{}")
    age = Memory().age(files, heartbeat, time.time())
    worker = _worker({**found, "heartbeat": heartbeat}, age, settings.dead_after)
    worker["state"] = worker["state"] if last else SILENT  # somebody removed its file
    if worker["state"] == SILENT:
        time.sleep(1.5 * settings.heartbeat)
        _look_again(files, [worker], settings.dead_after)
    return worker


def store_time(files: Files) -> float:
    """Return the time by the store's clock, or by ours where the store is read-only."""
    with suppress(StoreError):
        return files.clock("workers")
    return time.time()


def _worker(found: Facts, age: float, dead_after: float) -> Facts:
    heartbeat: Heartbeat = found["heartbeat"]
    state = state_of(heartbeat, age, dead_after)
    machine = found.get("machine")
    return {
        "id": heartbeat.id,
        "name": str(found.get("name", "")),
        "machine": machine if is_id(machine) else "",
        "started": str(found.get("started", "")),
        "ignored_settings": str(found.get("ignored_settings", "")),
        **{name: found.get(name, 0) for name in NUMBERS},
        **({} if state == ALIVE else {"rate": 0}),
        "age": round(age),
        "state": state,
        "heartbeat": heartbeat,
    }


def _look_again(files: Files, silent: list[Facts], dead_after: float) -> None:
    """Correct the state of workers that show a new heartbeat: the clock was wrong."""
    last = newest_in(files)
    for worker in silent:
        heartbeat = last.get(worker["id"])
        if heartbeat and heartbeat != worker["heartbeat"]:
            worker["state"] = state_of(heartbeat, 0.0, dead_after)
            worker["age"] = 0 if worker["state"] == ALIVE else worker["age"]


def _machines(files: Files, workers: list[Facts], clock: float) -> list[Facts]:
    by_machine: dict[str, list[Facts]] = {}
    for worker in workers:
        by_machine.setdefault(worker["machine"], []).append(worker)
    by_machine.pop("", None)
    starting = [_starting(files, id, clock) for id in announced(files) if id not in by_machine]
    machines = [*starting, *(_machine(id, its_workers) for id, its_workers in by_machine.items())]
    return sorted(machines, key=lambda machine: (machine["state"], machine["name"], machine["id"]))


def _machine(id: str, workers: list[Facts]) -> Facts:
    states = {worker["state"] for worker in workers}
    state = next(state for state in (ALIVE, SILENT, ENDED) if state in states)
    here = [worker for worker in workers if worker["state"] == state]
    alive = here if state == ALIVE else []
    return {
        "id": id,
        "name": here[0]["name"],
        "state": state,
        "age": min(worker["age"] for worker in here),
        "started": min(worker["started"] for worker in workers),
        "workers": len(here) if state != ENDED else 0,
        "pages": sum(worker["pages"] for worker in workers),
        "rate": round(sum(worker["rate"] for worker in alive), 2),
        **{name: sum(worker[name] for worker in alive) for name in ("waiting", "in_flight", "shards")},
    }


def _starting(files: Files, id: str, clock: float) -> Facts:
    """Return a machine without heartbeats: it is about to start its workers, or was killed before it could.

    On this computer its lock tells; elsewhere only time does.
    """
    name = f"workers/{id}{MACHINE}"
    age = max(clock - (files.written(name) or clock), 0.0)
    found: Facts = {}
    with suppress(ValueError, TypeError):
        found = dict(json.loads(files.get(name) or b"{}"))
    return {
        "id": id,
        "name": str(found.get("name", "")),
        "state": ENDED if LocalLock.died_here(id)[0] else STARTING if age < START_SECONDS else SILENT,
        "age": round(age),
        "started": str(found.get("started", "")),
        **dict.fromkeys(("workers", "pages", "rate", "waiting", "in_flight", "shards"), 0),
    }
