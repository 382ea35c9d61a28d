"""The slate: what the workers of one machine show their supervisor, in shared memory.

No locks, so that a worker killed at any moment holds up nobody. Each worker writes its own row; all may read.
"""

from __future__ import annotations

from multiprocessing.context import SpawnContext
from typing import Any

from crawler.web.reasons import KINDS

COUNTERS = (
    *("pages", "redirects", "sitemaps", *KINDS, "retries", "bytes"),
    *("waiting", "in_flight", "hosts", "paused", "sent"),  # sent: batches that were left for other workers
)
AWAY, ROOM, FILES = WANTS = ("away", "room", "files")  # what a worker may have to wait for before it asks hosts
LINE = 3000  # bytes for one URL in flight: the longest line of a batch
SENTENCE = 1000  # bytes for why a worker waits
SETTINGS = 1 << 18  # bytes for crawl.yaml
GO, DRAIN, TOLD = 0, 1, 2  # told: an operator said stop, and a worker has seen it


class Scoreboard:
    """A row of counters and of URLs in flight for each worker, and the supervisor's word to all."""

    def __init__(self, context: SpawnContext, workers: int, threads: int) -> None:
        self.workers, self.threads = workers, threads
        self._word = context.RawValue("i", GO)
        self._numbers = context.RawArray("q", workers * len(COUNTERS))
        self._lines = context.RawArray("c", workers * threads * LINE)
        self._sentences = context.RawArray("c", workers * len(WANTS) * SENTENCE)
        self._edition = context.RawValue("q", 0)
        self._settings = context.RawArray("c", SETTINGS)
        self._unheeded = context.RawArray("c", SENTENCE)

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

    @property
    def edition(self) -> int:
        """How often the supervisor has handed out settings, twice: an odd number while it does."""
        return int(self._edition.value)

    def hand_out(self, settings: str) -> None:
        """The supervisor's settings for all workers, as crawl.yaml has them."""
        data = settings.encode() + b"\0"
        self._edition.value += 1
        self._settings[: len(data)] = data
        self._edition.value += 1

    def handed_out(self) -> tuple[int, str] | None:
        """The edition and text of those settings; None while they are being handed out."""
        edition = self.edition
        text = bytes(self._settings[:]).split(b"\0", 1)[0]
        return None if edition % 2 or edition != self.edition else (edition, text.decode())

    def note_unheeded(self, sentence: str) -> None:
        """The supervisor says what it does not take up of an edit; an empty sentence when nothing is left of it."""
        _write(self._unheeded, 0, SENTENCE, sentence)

    @property
    def unheeded(self) -> str:
        """That sentence."""
        return _read(self._unheeded, 0, SENTENCE)

    def get(self, worker: int, counter: str) -> int:
        """One counter of one worker."""
        return int(self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)])

    def set(self, worker: int, counter: str, value: int) -> None:
        """Only the worker itself writes its row."""
        self._numbers[worker * len(COUNTERS) + COUNTERS.index(counter)] = value

    def total(self, counter: str) -> int:
        """A counter of all workers of this machine."""
        return sum(self.get(worker, counter) for worker in range(self.workers))

    def set_in_flight(self, worker: int, thread: int, line: str) -> None:
        """Note the URL that a visitor is about to ask; an empty line when it is done."""
        _write(self._lines, (worker * self.threads + thread) * LINE, LINE, line)

    def in_flight(self, worker: int) -> list[str]:
        """The URLs that a worker's visitors had in hand."""
        first = worker * self.threads
        return [*filter(None, (_read(self._lines, place * LINE, LINE) for place in range(first, first + self.threads)))]

    def want(self, worker: int, kind: str, sentence: str) -> None:
        """Say what a worker waits for before it asks hosts, and why; an empty sentence when it has come."""
        _write(self._sentences, (worker * len(WANTS) + WANTS.index(kind)) * SENTENCE, SENTENCE, sentence)

    def wanted(self, kind: str) -> str:
        """Why a worker of this machine waits for this; empty if none does."""
        starts = ((worker * len(WANTS) + WANTS.index(kind)) * SENTENCE for worker in range(self.workers))
        return next(filter(None, (_read(self._sentences, start, SENTENCE) for start in starts)), "")


def _write(array: Any, start: int, size: int, text: str) -> None:
    """The first byte goes first and comes last: who reads meanwhile, or after a kill, finds nothing and no mixture."""
    data = text.encode("ascii", "backslashreplace")[: size - 1] + b"\0"
    array[start] = b"\0"
    array[start + 1 : start + len(data)] = data[1:]
    array[start] = data[:1]


def _read(array: Any, start: int, size: int) -> str:
    return bytes(array[start : start + size]).split(b"\0", 1)[0].decode("ascii")
