"""Who is at work: the machines and workers of a crawl as an operator sees them. (Workers watch each other by `shards`.)

No clock of another machine is read if it can be helped: the age of a pulse is what the file server says of it, compared
with what the server says of a name that is made just now. Not promised: a mount that stamps names with its clients' own
clocks makes ages wrong by as much as those differ; so what looks silent is looked at once more, a pulse later.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from crawler.errors import StoreError
from crawler.fleet.heartbeats import END, NUMBERS, Heartbeat, read_counters, said
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json, utc

MACHINE = ".machine"  # `workers/<id>.machine` is there from before a machine's first worker until after its last
STARTING, ALIVE, SILENT, ENDED = "starting", "alive", "silent", "ended"
PATIENCE_AT_START = 60.0  # seconds that a machine has for its first pulse before it counts as silent
MINUTE = 60.0

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Members:
    """Machines and workers, each as a JSON value."""

    machines: list[Facts]
    workers: list[Facts]
    counters: list[Facts]  # what the workers say of themselves, as it is

    @property
    def alive(self) -> list[Facts]:
        """The workers whose pulse goes."""
        return [worker for worker in self.workers if worker["state"] == ALIVE]

    @property
    def of_the_living(self) -> list[Facts]:
        """What these say of themselves."""
        ids = {worker["id"] for worker in self.alive}
        return [found for found in self.counters if found["heartbeat"].id in ids]

    @property
    def at_work(self) -> list[Facts]:
        """The machines that work or are about to."""
        return [machine for machine in self.machines if machine["state"] in (STARTING, ALIVE)]


@dataclass(frozen=True, slots=True)
class Memory:
    """What one who looks again and again need not ask again: what is under a name in `workers/` stays as it is."""

    counters: dict[str, Facts] = field(default_factory=dict)
    _shown: dict[str, tuple[Heartbeat, float]] = field(default_factory=dict)  # since when, by our own clock

    def age(self, files: Files, heartbeat: Heartbeat, clock: float) -> float:
        """Seconds since a pulse was shown: by its stamp when it is new to us, and then since we saw it change."""
        known = self._shown.get(heartbeat.id)
        if known is None or known[0] != heartbeat:
            # Who is gone since the listing has just beaten.
            written = (files.written(heartbeat.name) or clock) if known is None else clock
            known = self._shown[heartbeat.id] = heartbeat, time.monotonic() - max(clock - written, 0.0)
        return time.monotonic() - known[1]


class Rate:
    """How many a second over about the last minute, from a count that only grows; the clock is passed in."""

    def __init__(self, now: float) -> None:
        self._seen = deque([(now, 0)])

    def note(self, count: int, now: float) -> float:
        """Take in the count as it is now."""
        if now - self._seen[-1][0] >= 1:
            self._seen.append((now, count))
        while len(self._seen) > 1 and now - self._seen[1][0] >= MINUTE:
            self._seen.popleft()
        then, old = self._seen[0]
        return round((count - old) / max(now - then, 1.0), 2)


class Minutes:
    """How a worker's counts stood at each full minute of its last hour, the oldest first; the clock is passed in."""

    def __init__(self, now: float) -> None:
        self._next = now + MINUTE
        self._stood: deque[tuple[int, ...]] = deque(maxlen=60)

    def note(self, counts: tuple[int, ...], now: float) -> list[tuple[int, ...]]:
        """Take in the counts as they are now."""
        while now >= self._next:
            self._stood.append(counts)
            self._next += MINUTE
        return list(self._stood)


def announce(files: Files, machine: str) -> None:
    """Say that a machine is about to start workers, so that no `crawler stop` misses it."""
    facts = {"machine": machine, "name": platform.node(), "pid": os.getpid(), "started": utc(time.time())}
    files.put(f"workers/{machine}{MACHINE}", to_json(facts))


def announced(files: Files) -> list[str]:
    """The ids of the machines that have said so, and have not ended in good order."""
    names = (name.removesuffix(MACHINE) for name in files.names("workers") if name.endswith(MACHINE))
    return sorted(filter(is_id, names))


def is_id(text: object) -> bool:
    """Whether this can be the id of a machine: it becomes a part of names."""
    return isinstance(text, str) and re.fullmatch(r"[\w-]{1,64}", text, re.ASCII) is not None


def look(files: Files, settings: Settings, again: bool = True, memory: Memory | None = None) -> Members:
    """Who is there; `again` looks twice at what seems silent, which takes a little longer than a pulse."""
    memory = memory or Memory()
    clock = _clock(files)
    counters = read_counters(files, memory.counters)
    ages = [memory.age(files, found["heartbeat"], clock) for found in counters]
    workers = [_worker(found, age, settings.dead_after) for found, age in zip(counters, ages, strict=True)]
    silent = [worker for worker in workers if worker["state"] == SILENT]
    if silent and again:
        time.sleep(1.5 * settings.heartbeat)
        with suppress(StoreError):
            files.freshen("workers")
        _look_again(files, silent)
    for worker in workers:
        del worker["heartbeat"]
    workers.sort(key=lambda worker: (worker["state"], worker["machine"], worker["id"]))
    return Members(_machines(files, workers, clock), workers, counters)


def find(files: Files, settings: Settings, id: str) -> Facts:
    """One worker, by reading alone: its age is by our own clock, and if it seems silent, it is looked at once more."""
    heartbeats = [
        heartbeat for heartbeat in map(Heartbeat.of, files.names("workers")) if heartbeat and heartbeat.id == id
    ]
    heartbeat = max(heartbeats, key=lambda heartbeat: heartbeat.beat, default=Heartbeat(id, 0))
    found: Facts = {}
    with suppress(ValueError, TypeError):
        found = said(files.get(heartbeat.name) or b"{}")
    age = Memory().age(files, heartbeat, time.time())
    worker = _worker({**found, "heartbeat": heartbeat}, age, settings.dead_after)
    worker["state"] = worker["state"] if heartbeats else SILENT  # somebody removed its file
    if worker["state"] == SILENT:
        time.sleep(1.5 * settings.heartbeat)
        _look_again(files, [worker])
    return worker


def _clock(files: Files) -> float:
    with suppress(StoreError):
        return files.clock("workers")
    return time.time()  # a store that we may only read


def _worker(found: Facts, age: float, dead_after: float) -> Facts:
    heartbeat: Heartbeat = found["heartbeat"]
    state = ENDED if heartbeat.mark == END else SILENT if age > dead_after else ALIVE
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


def _look_again(files: Files, silent: list[Facts]) -> None:
    """A clock may be wrong; a pulse that goes on is not."""
    heartbeats = filter(None, map(Heartbeat.of, files.names("workers")))
    now = {
        heartbeat.id: heartbeat
        for heartbeat in sorted(heartbeats, key=lambda heartbeat: (heartbeat.beat, heartbeat.mark))
    }
    for worker in silent:
        heartbeat = now.get(worker["id"])
        if heartbeat and heartbeat.mark == END:
            worker["state"] = ENDED
        elif heartbeat and heartbeat != worker["heartbeat"]:
            worker["state"], worker["age"] = ALIVE, 0


def _machines(files: Files, workers: list[Facts], clock: float) -> list[Facts]:
    crews: dict[str, list[Facts]] = {}
    for worker in workers:
        crews.setdefault(worker["machine"], []).append(worker)
    crews.pop("", None)
    starting = [_starting(files, id, clock) for id in announced(files) if id not in crews]
    machines = [*starting, *(_machine(id, crew) for id, crew in crews.items())]
    return sorted(machines, key=lambda machine: (machine["state"], machine["name"], machine["id"]))


def _machine(id: str, crew: list[Facts]) -> Facts:
    states = {worker["state"] for worker in crew}
    state = next(state for state in (ALIVE, SILENT, ENDED) if state in states)
    here = [worker for worker in crew if worker["state"] == state]
    alive = here if state == ALIVE else []
    return {
        "id": id,
        "name": here[0]["name"],
        "state": state,
        "age": min(worker["age"] for worker in here),
        "started": min(worker["started"] for worker in crew),
        "workers": len(here) if state != ENDED else 0,
        "pages": sum(worker["pages"] for worker in crew),
        "rate": round(sum(worker["rate"] for worker in alive), 2),
        **{name: sum(worker[name] for worker in alive) for name in ("waiting", "in_flight", "shards")},
    }


def _starting(files: Files, id: str, clock: float) -> Facts:
    """A machine without any pulse: it is about to start its workers, or was killed before it could."""
    name = f"workers/{id}{MACHINE}"
    age = max(clock - (files.written(name) or clock), 0.0)
    found: Facts = {}
    with suppress(ValueError, TypeError):
        found = dict(json.loads(files.get(name) or b"{}"))
    return {
        "id": id,
        "name": str(found.get("name", "")),
        "state": STARTING if age < PATIENCE_AT_START else SILENT,
        "age": round(age),
        "started": str(found.get("started", "")),
        **dict.fromkeys(("workers", "pages", "rate", "waiting", "in_flight", "shards"), 0),
    }
