"""A pool of processes that read a store: the pages of all hosts in parts, and what each part gave in the store's order.

A page that kills its reader twice, or holds it for longer than a minute, is lost alone: the others go on.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from crawler import errors
from crawler.crawl.scoreboard import Scoreboard
from crawler.errors import CrawlerError

LOT = 200  # pages of a part
AHEAD = 3  # parts in hand for each reader: what is read too early waits for its turn in memory
SLOW, PATIENCE = 3.0, 60.0  # seconds after which a page that holds its reader is named, and given up
LOOK = 0.2  # seconds between two looks at the readers
DEATHS = 5  # of readers with no page in hand: then starting more does not help
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


Part = tuple[str, ...]  # some pages, each as host/key, in the store's order


@dataclass(frozen=True, slots=True)
class Lost:
    """A page that was given up, and why."""

    url: str
    why: str


class Found(Protocol):
    """What reading a part gave; `rest` are the pages that were left for another time."""

    rest: Part


Result = TypeVar("Result", bound=Found)


class Hand:
    """What a reader has in hand, where its parent sees it: the name and URL of a page, and a number within it."""

    def __init__(self, scoreboard: Scoreboard, numbers: Any, row: int) -> None:
        self._scoreboard, self._numbers, self._row = scoreboard, numbers, row

    def take(self, name: str, url: str) -> None:
        """From now on it is this page that takes so long; not before it is read, which a mount may hold up."""
        self._numbers[self._row] = -1
        self._scoreboard.set_in_flight(self._row, 0, f"{name} {url}")

    def at(self, number: int) -> None:
        """Say which part of the work on it is begun."""
        self._numbers[self._row] = number

    def drop(self) -> None:
        """The page is done."""
        self._scoreboard.set_in_flight(self._row, 0, "")


def parts(names: Iterable[str]) -> Iterator[Part]:
    """Pages, in parts."""
    left = iter(names)
    while part := tuple(islice(left, LOT)):
        yield part


@dataclass(slots=True)
class _Place(Generic[Result]):
    """A part's place in the line: what is still to be read of it, and what was found."""

    part: Part
    found: list[Result | Lost] = field(default_factory=list)
    in_work: bool = False


class _Reader(Generic[Result]):
    """One process: a pool of its own, because a dead process breaks its whole pool."""

    def __init__(self, readers: Readers[Result], row: int) -> None:
        self.row = row
        initial = (os.getpid(), readers.scoreboard, readers.numbers, row)
        self.pool = ProcessPoolExecutor(1, mp_context=readers.context, initializer=_be_a_reader, initargs=initial)
        self.place: _Place[Result] | None = None
        self.future: Future[Result] | None = None
        self.line, self.took, self.is_told, self.is_doomed = "", 0.0, False, False

    def begin(self, read: Callable[[Part, Hand], Result], place: _Place[Result]) -> None:
        """Have it read a part."""
        place.in_work = True
        self.place = place
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # it is born deaf: a Ctrl-C is for its parent to hear
        self.future = self.pool.submit(_work, read, place.part)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def kill(self) -> None:
        """End it at once."""
        for process in list((self.pool._processes or {}).values()):
            process.kill()


class Readers(Generic[Result]):
    """So many processes at most; `read` is what each does with a part, `told` hears of a page that takes long."""

    def __init__(self, count: int, read: Callable[[Part, Hand], Result], told: Callable[[str, int], None]) -> None:
        self.count, self._read, self._told = count, read, told
        self.context = multiprocessing.get_context("spawn")
        self.scoreboard = Scoreboard(self.context, count, 1)
        self.numbers = self.context.RawArray("i", count)
        self._readers: dict[int, _Reader[Result]] = {}
        self._deaths: Counter[str] = Counter()
        self._looked = time.monotonic()

    def results(self, parts: Iterator[Part]) -> Generator[Result | Lost, None, None]:
        """What the parts gave, in their order, however many read them."""
        line: deque[_Place[Result]] = deque()
        try:
            while True:
                while len(line) < AHEAD * self.count and (part := next(parts, None)):
                    line.append(_Place(part))
                if not line:
                    return
                self._give_out(line)
                self._watch()
                while line and line[0].found:
                    yield line[0].found.pop(0)
                    if not (line[0].found or line[0].in_work or line[0].part):
                        line.popleft()
        finally:
            self._end()

    def _give_out(self, line: Iterable[_Place[Result]]) -> None:
        for number, place in enumerate(line):
            # Of a part that is not next in line one lot of results is enough to keep in memory.
            if place.in_work or not place.part or (number and place.found):
                continue
            reader = self._idle()
            if not reader:
                return
            reader.begin(self._read, place)

    def _idle(self) -> _Reader[Result] | None:
        for reader in self._readers.values():
            if not reader.place:
                return reader
        row = next((row for row in range(self.count) if row not in self._readers), None)
        if row is None:
            return None
        self.scoreboard.set_in_flight(row, 0, "")
        self._readers[row] = _Reader(self, row)
        return self._readers[row]

    def _watch(self) -> None:
        """Wait for a moment, take what was found, and see who takes too long."""
        futures = [reader.future for reader in self._readers.values() if reader.future]
        wait(futures, LOOK, FIRST_COMPLETED)
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, 1.0), now  # however long we were stopped ourselves
        for reader in list(self._readers.values()):
            if reader.future and reader.future.done():
                self._gather(reader)
            elif reader.future:
                self._look_at(reader, passed)

    def _gather(self, reader: _Reader[Result]) -> None:
        assert reader.future and reader.place
        place, future = reader.place, reader.future
        reader.place = reader.future = None
        place.in_work = False
        try:
            found = future.result()
        except BrokenProcessPool:
            self._mark_dead(reader, place)
        else:
            place.found.append(found)
            place.part = found.rest

    def _look_at(self, reader: _Reader[Result], passed: float) -> None:
        line = "".join(self.scoreboard.in_flight(reader.row))
        if line != reader.line:
            reader.line, reader.took, reader.is_told = line, 0.0, False
        reader.took += passed
        if not line or reader.took < SLOW:
            return
        if not reader.is_told:
            reader.is_told = True
            self._told(line.partition(" ")[2], self.numbers[reader.row])
        if reader.took > PATIENCE and not reader.is_doomed:
            reader.is_doomed = True
            reader.kill()

    def _mark_dead(self, reader: _Reader[Result], place: _Place[Result]) -> None:
        """Have its part read again by another, without the page that it had in hand if that is to blame."""
        name, _, url = "".join(self.scoreboard.in_flight(reader.row)).partition(" ")
        reader.pool.shutdown()
        del self._readers[reader.row]
        self._deaths[name] += 1
        if not name and self._deaths[name] > DEATHS:
            raise CrawlerError("processes that read the store die at once; `dmesg` tells if memory was short")
        if name and (reader.is_doomed or self._deaths[name] > 1):
            why = f"for longer than {PATIENCE:.0f} s" if reader.is_doomed else "that killed what read them"
            place.found.append(Lost(url, why))
            place.part = tuple(other for other in place.part if other != name)

    def _end(self) -> None:
        """Leave no process behind."""
        for reader in self._readers.values():
            reader.kill()
            reader.pool.shutdown()
        self._readers.clear()


_hand: Hand | None = None


def _be_a_reader(parent: int, scoreboard: Scoreboard, numbers: Any, row: int) -> None:
    """Make a pool process a reader: it dies with its parent, and leaves signals to it."""
    global _hand
    with suppress(OSError, AttributeError):  # not Linux: the check of the parent's id must do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(errors.STOPPED)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _hand = Hand(scoreboard, numbers, row)


def _work(read: Callable[[Part, Hand], Result], part: Part) -> Result:
    assert _hand
    return read(part, _hand)
