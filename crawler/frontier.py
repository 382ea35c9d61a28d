"""The frontier: batches in the shards' folders on the mount, and the task table that they are read into.

Anyone adds a batch to a shard; only the shard's owner removes one, and only when all of its URLs are settled or
stand in a newer batch. A batch's name ends with its number of lines, so a listing tells the backlog.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from crawler import urls
from crawler.config import Settings
from crawler.files import Files
from crawler.records import Try
from crawler.store import shard_name
from crawler.table import Host, Table

LOT = 20_000  # lines in a batch at most: what a reader holds in memory
MANY = 48  # batches in a shard before the smallest become one
REMEMBERED = 100_000  # URLs that need not be handed over again


Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


class Frontier:
    """A worker's part of what waits, and its way to hand URLs to any shard."""

    def __init__(
        self, files: Files, settings: Settings, run: Run = map, before_news: Callable[[], None] | None = None
    ) -> None:
        self.files = files
        self._before_news = before_news  # called when there are new batches, before any of their URLs can be taken
        self._run = run  # calls a function for each item, as `map` or an executor's `map` does
        self.table = Table(settings.order, settings.depth is not None, settings.max_per_host)
        self.shards = settings.shards
        self.spread = settings.spread
        self.owned: set[int] = set()
        self._batches: dict[int, dict[str, int]] = {}  # shard -> batch name -> number in the table
        self._lots: dict[int, list[Try]] = defaultdict(list)
        self._recent: OrderedDict[str, int] = OrderedDict()  # URL -> depth at which it was handed over
        self._lock = threading.Lock()
        self._token = secrets.token_hex(2)  # a machine makes more than one frontier under its name
        self._numbers = 0

    def shard_of(self, url: str) -> int:
        """The shard that a URL belongs to."""
        return urls.shard(url, self.shards, self.spread)

    # ---- taking

    def take(self) -> tuple[Try, Host] | None:
        """The next URL of a host of ours that is due, or None if none is due now."""
        return self.table.take(time.monotonic(), time.time())

    def next_due(self) -> float:
        """Seconds until something may be due."""
        return self.table.next_due(time.monotonic(), time.time())

    def meet(self, host: str, settled: set[str], kept: int) -> None:
        """Learn what is settled of a host that has come up for the first time, and how many pages of it are kept."""
        self.table.meet(host, settled, kept, self._is_ours)

    def _is_ours(self, key: str) -> bool:
        return self.spread == "host" or urls.shard_of_key(key, self.shards) in self.owned

    # ---- handing over

    def hand_over(self, tries: Iterable[Try]) -> None:
        """Queue URLs for their shards, whoever owns them; `flush` brings them there."""
        with self._lock:
            for task in tries:
                if task.attempt or self._is_news(task):
                    self._lots[self.shard_of(task.url)].append(task)

    def _is_news(self, task: Try) -> bool:
        """Most links of a page were handed over a moment ago: a batch that holds them is there or on its way."""
        if self._recent.get(task.url, task.depth + 1) <= task.depth:
            return False
        self._recent[task.url] = task.depth
        if len(self._recent) > REMEMBERED:
            self._recent.popitem(last=False)
        return True

    def flush(self) -> None:
        """Write what is queued, a batch per shard, and take our own shards' part into the table."""
        self.hand_over(self.table.drain_mixed())
        with self._lock:
            lots, self._lots = self._lots, defaultdict(list)
        try:
            written = self._write([(shard, part) for shard, lot in lots.items() for part in in_parts(lot, LOT)])
        except BaseException:
            with self._lock:  # nothing of it is lost: the next flush writes it, perhaps once more
                for shard, lot in lots.items():
                    self._lots[shard].extend(lot)
            raise
        for shard, name, part in written:
            self._take_in(shard, name, part)

    def _write(self, parts: list[tuple[int, list[Try]]]) -> list[tuple[int, str, list[Try]]]:
        """Write a batch for each part, many at a time: a mount answers many requests in the time of one."""
        named = [(shard, self._new_name(len(part)), part) for shard, part in parts]
        all_of(self._run(lambda batch: self.files.put(f"{folder(batch[0])}/{batch[1]}", to_lines(batch[2])), named))
        all_of(self._run(self.files.settle, {folder(shard) for shard, _ in parts}))
        return named

    def _new_name(self, lines: int) -> str:
        self._numbers += 1
        return f"{self.files.me}-{self._token}-{self._numbers:06d}.{lines}"

    # ---- the inbox

    def own(self, shard: int) -> None:
        """A shard is ours: read what waits in it."""
        self.owned.add(shard)
        self._batches.setdefault(shard, {})
        self.read_inbox(shard, fresh=True)

    def read_inbox(self, shard: int, fresh: bool) -> None:
        """Read the batches of a shard that are new; `fresh` when the listing must not be an old one."""
        if fresh:
            self.files.freshen(folder(shard))
        news = sorted(set(self.files.names(folder(shard))) - self._batches[shard].keys())
        if news and self._before_news:
            self._before_news()
        for name in news:
            data = self.files.get(f"{folder(shard)}/{name}")
            if data is not None:
                self._take_in(shard, name, from_lines(data))

    def _take_in(self, shard: int, name: str, tries: Iterable[Try]) -> None:
        if shard in self._batches:
            number = self._batches[shard][name] = self._new_number()
            self.table.add(tries, number, self.shard_of)
            if shard not in self.owned:  # it is being given back, and this is news of a URL that was in flight
                self.table.hold([number])

    def _new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # ---- tidying

    def tidy(self, shard: int, all_of_it: bool = False) -> None:
        """Remove batches that are all settled; when many remain, the smallest become one (new file first)."""
        if self.queued:  # what mixes two batches is written before they may go
            self.flush()
        self._write_again(shard)
        batches = self._batches[shard]
        left = self.table.left
        done = [name for name, number in batches.items() if left[number] <= 0]
        kept = sorted((name for name in batches if name not in set(done)), key=lambda name: left[batches[name]])
        small = kept if all_of_it else kept[: len(kept) // 2] if len(kept) > MANY else []
        if len(small) > 1 or any(left[batches[name]] < lines_of(name) for name in small):
            self._merge(shard, {batches[name] for name in small})
            done += small
        for name in done:
            self.files.drop(f"{folder(shard)}/{name}")
            left.pop(batches.pop(name), None)

    def _write_again(self, shard: int) -> None:
        """Somebody else who believed to own this shard may have tidied it: what we count on must be in some file."""
        there = set(self.files.names(folder(shard)))
        gone = {
            name for name, number in self._batches[shard].items() if name not in there and self.table.left[number] > 0
        }
        if gone:
            self._merge(shard, {self._batches[shard][name] for name in gone})
            for name in gone:
                self.table.left.pop(self._batches[shard].pop(name), None)

    def _merge(self, shard: int, old: set[int]) -> None:
        """Write what still waits in these batches once more; what is settled meanwhile does no harm there."""
        parts = in_parts(self.table.of_batches(old), LOT)
        for _, name, part in self._write([(shard, part) for part in parts]):
            new = self._batches[shard][name] = self._new_number()
            self.table.rehome(part, old, new)

    def hold(self, shard: int) -> None:
        """Begin to give a shard back: nothing of it is given out any more."""
        self.owned.discard(shard)
        self.table.hold(self._batches[shard].values())

    def disown(self, shard: int) -> None:
        """A shard is no longer ours."""
        self.owned.discard(shard)
        self.table.forget(shard, self._batches.pop(shard, {}).values(), self.spread == "url")

    @property
    def queued(self) -> bool:
        """Whether something is queued that no shard has yet."""
        return any(self._lots.values()) or bool(self.table.mixed)


def folder(shard: int) -> str:
    """Where a shard's batches are."""
    return f"frontier/{shard_name(shard)}"


def lines_of(name: str) -> int:
    """How many lines a batch has, by its name; 0 for a file that somebody else has put there."""
    lines = name.rpartition(".")[2]
    return int(lines) if lines.isdigit() else 0


def all_of(results: Iterable[object]) -> None:
    """Wait for all results, and raise what any of them raised."""
    for _ in results:
        pass


def in_parts(tries: Iterable[Try], most: int) -> Iterator[list[Try]]:
    """Lists of at most so many."""
    rest = iter(tries)
    while part := list(islice(rest, most)):
        yield part


def to_lines(tries: Iterable[Try]) -> bytes:
    """A batch: one tab-separated line each of depth, attempt, due, url."""
    return "".join(f"{task.depth}\t{task.attempt}\t{task.due:.0f}\t{task.url}\n" for task in tries).encode("ascii")


LINE = re.compile(r"(\d{1,9})\t(\d{1,9})\t(\d{1,12})\t(\S+)")


def from_lines(data: bytes) -> Iterator[Try]:
    """The URLs of a batch; a line that is not one (a hand-made file, say) is passed over."""
    for line in data.decode("ascii", "replace").splitlines():
        found = LINE.fullmatch(line)
        if found and urls.is_safe(found[4]):
            yield Try(found[4], int(found[1]), int(found[2]), float(found[3]))
