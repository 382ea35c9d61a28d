"""The slate: what the workers of one machine show their supervisor, in shared memory.

No locks, so that a worker killed at any moment holds up nobody. Each worker writes its own row; all may read.
"""

from __future__ import annotations

from multiprocessing.context import SpawnContext

COUNTERS = ("pages", "redirects", "sitemaps", "refusals", "retries", "bytes", "waiting", "flying", "hosts", "paused")
LINE = 2600  # bytes for one URL in flight: the longest line of a batch
GO, DRAIN, TOLD = 0, 1, 2  # told: an operator said stop, and a worker has seen it


class Slate:
    """A row of counters and of URLs in flight for each worker, and the supervisor's word to all."""

    def __init__(self, context: SpawnContext, workers: int, threads: int) -> None:
        self.workers, self.threads = workers, threads
        self._word = context.RawValue("i", GO)
        self._numbers = context.RawArray("q", workers * len(COUNTERS))
        self._lines = context.RawArray("c", workers * threads * LINE)

    @property
    def draining(self) -> bool:
        """Whether the workers are to finish what is in flight and end."""
        return bool(self._word.value != GO)

    @property
    def told(self) -> bool:
        """Whether that is because an operator said so."""
        return bool(self._word.value == TOLD)

    def drain(self, word: int = DRAIN) -> None:
        """Tell all workers to finish; the first word counts."""
        if not self.draining:
            self._word.value = word

    def get(self, worker: int, counter: str) -> int:
        """One counter of one worker."""
        return int(self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)])

    def set(self, worker: int, counter: str, value: int) -> None:
        """Only the worker itself writes its row."""
        self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)] = value

    def total(self, counter: str) -> int:
        """A counter of all workers of this machine."""
        return sum(self.get(worker, counter) for worker in range(self.workers))

    def fly(self, worker: int, thread: int, line: str) -> None:
        """Note the URL that a visitor is about to ask; an empty line when it is done."""
        data = line.encode("ascii")[: LINE - 1] + b"\0"
        start = (worker * self.threads + thread) * LINE
        self._lines[start : start + len(data)] = data

    def flying(self, worker: int) -> list[str]:
        """The URLs that a worker's visitors had in hand."""
        first = worker * self.threads
        lines = (self._lines[start * LINE : (start + 1) * LINE] for start in range(first, first + self.threads))
        return [line.split(b"\0", 1)[0].decode("ascii") for line in lines if line[:1] != b"\0"]
