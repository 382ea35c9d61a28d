"""The program's doors lead into the simulation: `os` and `time` where they are used, locks, and random names.

The classes themselves are the program's own. Intervals at which a worker polls without touching the store are longer,
because each poll costs real time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Any
from unittest import mock

from crawler.crawl import start, whole
from crawler.crawl.logs import log
from crawler.crawl.worker import heartbeat, upkeep
from crawler.fleet import control, members, shards
from crawler.frontier import batches, frontier
from crawler.frontier.waiting import Survey
from crawler.store import directories, jars, lock, mount, origin, reading, store, sync, writer
from crawler.store.clock import SYSTEM
from crawler.store.writer import StoreWriter
from crawler.web import safe_yaml
from simulation.memory import SMALL
from simulation.mount import Profile
from simulation.system import System
from simulation.world import Process, World

POLL = 0.1
TIDY = 1.0  # a fifth of the real one, like all times here
SURVEY = 10.0  # the real one is 300 times what it took; here nothing takes time, and counters alone show what it finds


class Time:
    """`time` as a process of the simulation sees it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def time(self) -> float:
        current = self._world.current
        return current.machine.clock.time() if current else 0.0

    def sleep(self, seconds: float) -> None:
        self._world.pause(seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


class Tokens:
    """`secrets`: names that differ from process to process and from call to call."""

    def __init__(self, world: World) -> None:
        self._world, self._count = world, 0

    def token_hex(self, size: int = 4) -> str:
        self._count += 1
        return f"{self._count:0{2 * size}x}"

    def randrange(self, most: int) -> int:
        """In place of `SystemRandom`, where nobody passes random numbers in."""
        self._count += 1
        return self._count % most


class NoLock:
    """The store's lock only saves work: what is done under it must do no harm if two do it. So here two do it."""

    def check(self) -> None:
        pass


class Pool:
    """An executor without threads of its own."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    @staticmethod
    def map(call: Callable[[Any], Any], items: Any) -> list[Any]:
        return [call(item) for item in items]


def local_lock(world: World) -> Any:
    """`LocalLock`: machines know at once which of their own processes are dead."""
    notes: dict[str, bytes] = {}
    holders: dict[str, Process] = {}

    class LocalLock:
        def __init__(self, id: str) -> None:
            self._id = id
            assert world.current is not None
            holders[id] = world.current

        def note(self, counters: dict[str, Any]) -> None:
            notes[self._id] = mount_json(counters)

        def release(self) -> None:
            self.remove(self._id)

        @staticmethod
        def died_here(id: str) -> tuple[bool, bytes | None]:
            holder, here = holders.get(id), world.current
            if holder is None or here is None or holder.machine is not here.machine or not holder.is_dead:
                return False, None
            return True, notes.get(id)

        @staticmethod
        def remove(id: str) -> None:
            holders.pop(id, None)
            notes.pop(id, None)

        @staticmethod
        def allow_heirs(id: str) -> None:
            pass

    return LocalLock


def mount_json(facts: dict[str, Any]) -> bytes:
    """As the real lock notes counters."""
    from crawler.store.records import to_json

    return to_json(facts)


@contextmanager
def alone(self: StoreWriter, *_: Any, **__: Any) -> Iterator[NoLock]:
    """`StoreWriter.alone` without the lock."""
    yield NoLock()


def survey_rarely(self: Survey, call: Callable[[], None]) -> float:
    """`Survey._run_rarely` without measuring how long it takes."""
    call()
    return self._clock.monotonic() + SURVEY


def remembered(call: Callable[..., Any]) -> Callable[..., Any]:
    """A pure function that works out each answer once: reading and writing settings would take a tenth of a run."""
    answers: dict[str, Any] = {}

    def answer(*args: Any, **kwargs: Any) -> Any:
        asked = repr((args, kwargs))
        if asked not in answers:
            answers[asked] = call(*args, **kwargs)
        return deepcopy(answers[asked])

    return answer


DUMP, LOAD = remembered(safe_yaml.dump), remembered(safe_yaml.load)


@contextmanager
def system_clock(clock: Time) -> Iterator[None]:
    """Let the clock that is the default everywhere show the time of the simulation."""
    names = ("monotonic", "time", "sleep")
    real = {name: getattr(SYSTEM, name) for name in names}
    try:
        for name in names:
            object.__setattr__(SYSTEM, name, getattr(clock, name))
        yield
    finally:
        for name, call in real.items():
            object.__setattr__(SYSTEM, name, call)


@contextmanager
def patched(world: World, system: System, profile: Profile, is_small: bool = False) -> Iterator[None]:
    """Let the program run in the simulation; `is_small` if its workers have little memory."""
    clock, tokens, locks = Time(world), Tokens(world), local_lock(world)
    changes: list[tuple[Any, str, Any]] = [
        *((module, "os", system) for module in (mount, reading, directories, sync)),
        *((module, "time", clock) for module in (mount, store, writer, whole, members)),
        *((module, "secrets", tokens) for module in (mount, writer, lock)),
        *((module, "LocalLock", locks) for module in (shards, members, whole, control)),
        (batches.RANDOM, "randrange", tokens.randrange),
        (sync, "SYNC", system.syncfs),
        (sync, "_kind", lambda root: profile.kind),
        (StoreWriter, "alone", alone),
        *((module, "ThreadPoolExecutor", Pool) for module in (start, writer)),
        (jars, "time", clock.time),
        (upkeep, "ROUND_INTERVAL", POLL),
        (upkeep, "IDLE_ROUND_INTERVAL", POLL),
        (frontier, "MAX_SMALL", 2),  # so that a small crawl merges batches too
        (upkeep, "END_INTERVAL", POLL),
        (upkeep, "TIDY_INTERVAL", TIDY),
        (heartbeat, "POLL_INTERVAL", POLL),
        (Survey, "_run_rarely", survey_rarely),
        (origin, "read_mounts", lambda: []),
        (safe_yaml, "dump", DUMP),
        (safe_yaml, "load", LOAD),
        *(SMALL if is_small else ()),
    ]
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    with ExitStack() as stack:
        for where, name, value in changes:
            stack.enter_context(mock.patch.object(where, name, value))
        stack.enter_context(system_clock(clock))
        stack.callback(log.setLevel, level)
        yield
