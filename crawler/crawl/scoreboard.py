"""Shared memory between a machine's supervisor and its workers.

There are no locks, so a worker killed at any moment blocks nobody. Each worker writes only its own row; all may read.
"""

from __future__ import annotations

from multiprocessing.context import BaseContext
from typing import Any

from crawler.web.reasons import KINDS

LOOKUPS = ("unresolved", "answered")  # requests whose host name did not resolve, until the first response
COUNTERS = (
    *("pages", "redirects", "sitemaps", "retries", "bytes", *KINDS, "handler_errors"),
    *("revisits", "unchanged", "changed"),
    *("waiting", "in_flight", "hosts", "paused", "sent"),  # sent: batches handed over to other workers
    *LOOKUPS,
    "tasks",  # that wait, revisits too: what a worker that ends writes to its shards' folders
    "jars",  # files of cookies that were written
    *("ticks", "large_pages", "large_bytes"),  # signs of progress (see `watchdog`)
)
TICKS = COUNTERS.index("ticks")
STORE_AWAY, SPACE, DESCRIPTORS = PAUSES = ("store_away", "space", "descriptors")  # why a worker sends no requests
LOOP, LARGE, HANDLER = READERS = range(3)  # who reads a page in a worker: its loop, two threads
TASK_BYTES = 3000  # for one task in flight: the longest line of a batch
REASON_BYTES = 1000  # for why a worker pauses
ID_BYTES = 64
SETTINGS_BYTES = 1 << 18  # for crawl.yaml
RUN, DRAIN, OPERATOR_STOP = 0, 1, 2  # operator stop: a worker has seen `crawler stop`


class Scoreboard:
    """One row per worker with its counters and tasks in flight, and what the supervisor tells all workers."""

    def __init__(self, context: BaseContext, workers: int, concurrency: int) -> None:
        self.workers, self.concurrency = workers, concurrency
        self.forever = False  # whether the machine waits for new URLs instead of ending
        self._state = context.RawValue("i", RUN)
        self._numbers = context.RawArray("q", workers * len(COUNTERS))
        self._tasks = context.RawArray("c", workers * concurrency * TASK_BYTES)
        self._read = context.RawArray("c", workers * len(READERS) * TASK_BYTES)
        self._pauses = context.RawArray("c", workers * len(PAUSES) * REASON_BYTES)
        self._ids = context.RawArray("c", workers * ID_BYTES)
        self._edition = context.RawValue("q", 0)
        self._settings = context.RawArray("c", SETTINGS_BYTES)
        self._ignored_settings = context.RawArray("c", REASON_BYTES)
        self._budget = context.RawValue("q", 0)
        self._budget_when = context.RawValue("d", 0.0)
        self._limit_reached = context.RawValue("b", 0)

    @property
    def draining(self) -> bool:
        """Whether the workers are to finish what is in flight and exit."""
        return bool(self._state.value != RUN)

    @property
    def stop_requested(self) -> bool:
        """Whether they drain because of `crawler stop`."""
        return bool(self._state.value == OPERATOR_STOP)

    def drain(self, state: int = DRAIN) -> None:
        """Tell all workers to finish; only the first call has an effect."""
        if not self.draining:
            self._state.value = state

    @property
    def edition(self) -> int:
        """The version of the published settings; odd while the supervisor writes them."""
        return int(self._edition.value)

    def publish_settings(self, settings: str) -> None:
        """Give all workers these settings, in the format of crawl.yaml."""
        data = settings.encode() + b"\0"
        self._edition.value += 1
        self._settings[: len(data)] = data
        self._edition.value += 1

    def published_settings(self) -> tuple[int, str] | None:
        """Return the edition and text of the settings; None while they are being written."""
        edition = self.edition
        text = bytes(self._settings[:]).split(b"\0", 1)[0]
        return None if edition % 2 or edition != self.edition else (edition, text.decode())

    def set_ignored_settings(self, warning: str) -> None:
        """Say which edits of crawl.yaml are ignored and why; empty if none is."""
        _write_text(self._ignored_settings, 0, REASON_BYTES, warning)

    @property
    def ignored_settings(self) -> str:
        """Which edits of crawl.yaml are ignored and why."""
        return _read(self._ignored_settings, 0, REASON_BYTES)

    def set_budget(self, most: int, when: float, is_limit_reached: bool) -> None:
        """Say how many pages the workers may bring together, as of a monotonic time, while `max_pages` is set."""
        self._budget.value = most
        self._budget_when.value = when
        self._limit_reached.value = is_limit_reached

    @property
    def budget(self) -> tuple[int, float]:
        """How many pages the workers may bring together, and when that was found."""
        return int(self._budget.value), float(self._budget_when.value)

    @property
    def is_limit_reached(self) -> bool:
        """Whether the crawl, on all machines, has as many pages as wanted."""
        return bool(self._limit_reached.value)

    def get(self, worker: int, counter: str) -> int:
        """Return a counter of one worker."""
        return int(self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)])

    def set(self, worker: int, counter: str, value: int) -> None:
        """Set a counter; only the worker itself writes its row."""
        self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)] = value

    def tick(self, worker: int) -> None:
        """Show that a worker's event loop makes progress."""
        self._numbers[worker * len(COUNTERS) + TICKS] += 1

    def set_id(self, worker: int, id: str) -> None:
        """Note the id of a worker that begins."""
        _write_text(self._ids, worker * ID_BYTES, ID_BYTES, id)

    def id_of(self, worker: int) -> str:
        """Return the id of a worker; empty before it begins."""
        return _read(self._ids, worker * ID_BYTES, ID_BYTES)

    def total(self, counter: str) -> int:
        """Return the sum of a counter over all workers of this machine."""
        return sum(self.get(worker, counter) for worker in range(self.workers))

    def set_in_flight(self, worker: int, slot: int, line: bytes) -> None:
        """Note the task that is visited in a slot, as a line of a batch; an empty line when it is finished."""
        _write(self._tasks, (worker * self.concurrency + slot) * TASK_BYTES, TASK_BYTES, line)

    def in_flight(self, worker: int) -> list[str]:
        """Return the tasks that a worker has in flight, as lines of a batch."""
        return _lines(self._tasks, worker * self.concurrency, self.concurrency)

    def set_reading(self, worker: int, reader: int, line: bytes, size: int = 0) -> None:
        """Note the task whose page one of the READERS is reading; an empty line after."""
        _write(self._read, (len(READERS) * worker + reader) * TASK_BYTES, TASK_BYTES, line)
        if reader == LARGE:
            self.set(worker, "large_bytes", size)
            self.set(worker, "large_pages", (self.get(worker, "large_pages") // 2 + 1) * 2 - bool(line))

    def reading(self, worker: int) -> list[str]:
        """Return the tasks whose pages a worker is reading."""
        return _lines(self._read, len(READERS) * worker, len(READERS))

    def clear_tasks(self, worker: int) -> None:
        """Remove what a dead worker had in flight."""
        for slot in range(self.concurrency):
            self.set_in_flight(worker, slot, b"")
        for reader in READERS:
            self.set_reading(worker, reader, b"")

    def set_pause(self, worker: int, kind: str, reason: str) -> None:
        """Say why a worker sends no requests; an empty reason when it resumes."""
        _write_text(self._pauses, (worker * len(PAUSES) + PAUSES.index(kind)) * REASON_BYTES, REASON_BYTES, reason)

    def pause_reason(self, kind: str) -> str:
        """Return why a worker of this machine pauses; empty if none has this kind of pause."""
        starts = ((worker * len(PAUSES) + PAUSES.index(kind)) * REASON_BYTES for worker in range(self.workers))
        return next(filter(None, (_read(self._pauses, start, REASON_BYTES) for start in starts)), "")


def _write_text(array: Any, start: int, size: int, text: str) -> None:
    _write(array, start, size, text.encode("ascii", "backslashreplace"))


def _write(array: Any, start: int, size: int, data: bytes) -> None:
    """Write a line so that a reader, also after a kill halfway, sees all or nothing: the first byte is written last."""
    array[start] = b"\0"
    data = data[: size - 1].rstrip()
    if data:
        cells = memoryview(array).cast("B")  # ctypes would write one byte after the other
        cells[start + 1 : start + len(data) + 1] = data[1:] + b"\0"
        cells[start] = data[0]


def _lines(array: Any, first: int, count: int) -> list[str]:
    cells = range(first, first + count)
    return [*filter(None, (_read(array, cell * TASK_BYTES, TASK_BYTES) for cell in cells))]


def _read(array: Any, start: int, size: int) -> str:
    return bytes(array[start : start + size]).split(b"\0", 1)[0].decode("ascii")
