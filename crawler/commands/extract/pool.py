"""A pool of processes that read a store's pages in parts; results come in the store's order.

A page that kills its process twice, or takes longer than a minute, is given up; the others are read.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from crawler.crawl import child
from crawler.crawl.scoreboard import Scoreboard
from crawler.errors import CrawlerError

PART_PAGES = 200
PARTS_AHEAD = 3  # for each reader; results that come too early are kept in memory
WARN_AFTER, GIVE_UP_AFTER = 3.0, 60.0  # seconds that one page takes
POLL_EVERY = 0.2  # seconds
MAX_IDLE_DEATHS = 5  # of readers that had no page in hand: starting more does not help

Part = tuple[str, ...]  # some pages, each as host/key, in the store's order


@dataclass(frozen=True, slots=True)
class LostPage:
    """A page that was given up, and why."""

    url: str
    why: str
    column: int = -1  # the number of the column that was too slow, if one was


class PartResult(Protocol):
    """The result of reading a part; `rest` are the pages that are still to be read."""

    rest: Part


Result = TypeVar("Result", bound=PartResult)


class Hand:
    """What a reader is working on, in shared memory: the name and URL of a page, and the number of a column."""

    def __init__(self, scoreboard: Scoreboard, numbers: Any, row: int) -> None:
        self._scoreboard, self._numbers, self._row = scoreboard, numbers, row

    def take(self, name: str, url: str) -> None:
        """Begin with a page. Call it after reading the file: a slow mount is not the page's fault."""
        self._numbers[self._row] = -1
        self._scoreboard.set_in_flight(self._row, 0, f"{name} {url}".encode("ascii", "backslashreplace"))

    def at(self, number: int) -> None:
        """Begin with a column of the page."""
        self._numbers[self._row] = number

    def drop(self) -> None:
        """The page is done."""
        self._scoreboard.set_in_flight(self._row, 0, b"")


def parts(names: Iterable[str]) -> Iterator[Part]:
    """Split pages into parts."""
    left = iter(names)
    while part := tuple(islice(left, PART_PAGES)):
        yield part


@dataclass(slots=True)
class _Queued(Generic[Result]):
    """A part in the queue: what is still to be read of it, and its results so far."""

    part: Part
    found: list[Result | LostPage] = field(default_factory=list)
    in_progress: bool = False


class _Reader(Generic[Result]):
    """One process."""

    def __init__(self, readers: ReaderPool[Result], row: int) -> None:
        self.row = row
        self.pool = child.make_pool(_be_a_reader, readers.scoreboard, readers.numbers, row)
        self.queued: _Queued[Result] | None = None
        self.future: Future[Result] | None = None
        self.page, self.took, self.is_warned, self.is_killed = "", 0.0, False, False

    def begin(self, read: Callable[[Part, Hand], Result], queued: _Queued[Result]) -> None:
        """Have it read a part."""
        queued.in_progress = True
        self.queued = queued
        self.future = child.submit(self.pool, _work, read, queued.part)

    def kill(self) -> None:
        """Kill the process."""
        for process in list((self.pool._processes or {}).values()):
            process.kill()


class ReaderPool(Generic[Result]):
    """Up to `count` processes that `read` parts; `warn` is called for a page that takes long."""

    def __init__(self, count: int, read: Callable[[Part, Hand], Result], warn: Callable[[str, int], None]) -> None:
        self.count, self._read, self._warn = count, read, warn
        self.scoreboard = Scoreboard(child.CONTEXT, count, 1)
        self.numbers = child.CONTEXT.RawArray("i", count)
        self._readers: dict[int, _Reader[Result]] = {}
        self._deaths: Counter[str] = Counter()
        self._polled = time.monotonic()

    def results(self, parts: Iterator[Part]) -> Generator[Result | LostPage, None, None]:
        """Return the results of the parts, in their order."""
        queue: deque[_Queued[Result]] = deque()
        try:
            while True:
                while len(queue) < PARTS_AHEAD * self.count and (part := next(parts, None)):
                    queue.append(_Queued(part))
                if not queue:
                    return
                self._hand_out(queue)
                self._poll()
                while queue and queue[0].found:
                    yield queue[0].found.pop(0)
                    if not (queue[0].found or queue[0].in_progress or queue[0].part):
                        queue.popleft()
        finally:
            self._end()

    def _hand_out(self, queue: Iterable[_Queued[Result]]) -> None:
        for number, queued in enumerate(queue):
            # A part that is not the next one keeps at most one result in memory.
            if queued.in_progress or not queued.part or (number and queued.found):
                continue
            reader = self._idle()
            if not reader:
                return
            reader.begin(self._read, queued)

    def _idle(self) -> _Reader[Result] | None:
        for reader in self._readers.values():
            if not reader.queued:
                return reader
        row = next((row for row in range(self.count) if row not in self._readers), None)
        if row is None:
            return None
        self.scoreboard.set_in_flight(row, 0, b"")
        self._readers[row] = _Reader(self, row)
        return self._readers[row]

    def _poll(self) -> None:
        """Wait a moment, collect results, and check what takes too long."""
        futures = [reader.future for reader in self._readers.values() if reader.future]
        wait(futures, POLL_EVERY, FIRST_COMPLETED)
        now = time.monotonic()
        passed, self._polled = min(now - self._polled, 1.0), now  # bounded: this process may have been suspended
        for reader in list(self._readers.values()):
            if reader.future and reader.future.done():
                self._collect(reader)
            elif reader.future:
                self._check_time(reader, passed)

    def _collect(self, reader: _Reader[Result]) -> None:
        assert reader.future and reader.queued
        queued, future = reader.queued, reader.future
        reader.queued = reader.future = None
        queued.in_progress = False
        try:
            found = future.result()
        except BrokenProcessPool:
            self._on_death(reader, queued)
        else:
            queued.found.append(found)
            queued.part = found.rest

    def _check_time(self, reader: _Reader[Result], passed: float) -> None:
        page = "".join(self.scoreboard.in_flight(reader.row))
        if page != reader.page:
            reader.page, reader.took, reader.is_warned = page, 0.0, False
        reader.took += passed
        if not page or reader.took < WARN_AFTER:
            return
        if not reader.is_warned:
            reader.is_warned = True
            self._warn(page.partition(" ")[2], self.numbers[reader.row])
        if reader.took > GIVE_UP_AFTER and not reader.is_killed:
            reader.is_killed = True
            reader.kill()

    def _on_death(self, reader: _Reader[Result], queued: _Queued[Result]) -> None:
        """Put its part back in the queue, without the page that it was working on if that is to blame."""
        name, _, url = "".join(self.scoreboard.in_flight(reader.row)).partition(" ")
        reader.pool.shutdown()
        del self._readers[reader.row]
        self._deaths[name] += 1
        if not name and self._deaths[name] > MAX_IDLE_DEATHS:
            raise CrawlerError("processes that read the store die at once; check with `dmesg` whether memory ran out")
        if name and (reader.is_killed or self._deaths[name] > 1):
            why = f"slower than {GIVE_UP_AFTER:.0f} s" if reader.is_killed else "that crashed the parser"
            queued.found.append(LostPage(url, why, self.numbers[reader.row] if reader.is_killed else -1))
            queued.part = tuple(other for other in queued.part if other != name)

    def _end(self) -> None:
        """Kill all processes."""
        for reader in self._readers.values():
            reader.kill()
            reader.pool.shutdown()
        self._readers.clear()


_hand: Hand | None = None


def _be_a_reader(scoreboard: Scoreboard, numbers: Any, row: int) -> None:
    global _hand
    _hand = Hand(scoreboard, numbers, row)


def _work(read: Callable[[Part, Hand], Result], part: Part) -> Result:
    assert _hand
    return read(part, _hand)
