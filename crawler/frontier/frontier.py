"""The frontier: batches in the shards' folders on the mount, and the task table that they are read into.

Anyone adds a batch to a shard's folder; only the shard's owner removes one, and only when all of its URLs are settled
or stand in a newer batch. A batch is for an owner, and may hold URLs of any of its shards; what is not the owner's any
more it hands on. A batch's name ends with its number of lines, so a listing tells the backlog.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TypeVar

from crawler.errors import DiskFull, Misshapen, StoreError
from crawler.frontier.table import Host, Table
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import Files, Run
from crawler.store.store import shard_name
from crawler.web import urls
from crawler.web.page import PRIORITY

LOT = 10_000  # lines in a batch at most: what a reader holds in memory, and reads before it does other things
MANY = 48  # small batches in a shard, less than half a lot, before the smallest of them become one
AT_ONCE = 500  # URLs that are taken into the table before others get their turn at it
GIVE_WAY = 0.001  # seconds; a lock that is released and taken again without a pause is never another's
REMEMBERED = 50_000  # URLs that need not be handed over again, before they are forgotten together
LOOKS = 3  # at a folder whose batches change under our eyes


Item = TypeVar("Item")


class Frontier:
    """A worker's part of what waits, and its way to hand URLs to any shard."""

    def __init__(
        self, files: Files, settings: Settings, run: Run = map, before_news: Callable[[], None] | None = None
    ) -> None:
        self.files = files
        self._before_news = before_news  # called when there are new batches, before any of their URLs can be taken
        self._run = run  # calls a function for each item, as `map` or an executor's `map` does
        self.table = Table(settings.order, settings.depth is not None, settings.max_per_host, settings.max_share)
        self.shards = settings.shards
        self.spread = settings.spread
        self.is_sure: Callable[[], bool] = lambda: True  # whether nobody can have taken our shards from us
        self.owned: set[int] = set()
        self.inboxes: dict[int, int] = {}  # shard -> first shard of its owner, as last seen
        self._batches: dict[int, dict[str, int]] = {}  # shard of ours -> batch name -> number in the table
        self._unread: list[tuple[int, str]] = []  # (shard, batch name) that were found, the next one last
        self.sent = 0  # batches that were left for others
        self._queue: list[Task] = []
        self._misrouted: list[
            tuple[Task, int]
        ] = []  # what we found in our folders but is not for us, and in which batch
        self._unsafe: set[int] = set()  # shards inherited from a dead worker and not written anew yet
        self._taken_over: dict[int, float] = {}
        self._recent: dict[str, int] = {}  # URL -> depth at which it was handed over
        self._lock = threading.Lock()
        self._mine = f"{files.me}-{secrets.token_hex(2)}-"  # a machine makes more than one frontier under its name
        self._numbers = 0

    def shard_of(self, url: str) -> int:
        """The shard that a URL belongs to; who has it asked again is who refused it."""
        return _shard((urls.retry_task_url(url) or url) if self.spread == "url" else urls.host(url), self.shards)

    # ---- taking

    def take(self) -> tuple[Task, Host] | None:
        """The next URL of a host of ours that is due, or None if none is due now."""
        return self.table.take(time.monotonic())

    def next_due(self) -> float:
        """Seconds until something may be due."""
        return self.table.next_due(time.monotonic())

    def meet(self, host: str, settled: set[str], kept: int, gains: int | None = None) -> bool:
        """Learn what is settled of a host that has come up for the first time, and how many pages of it are kept."""
        return self.table.meet(host, settled, kept, self._is_ours, gains)

    def _is_ours(self, key: str) -> bool:
        return self.spread == "host" or urls.shard_of_key(key, self.shards) in self.owned

    def taken_over(self, url: str) -> float:
        """When the shard of a URL came to us from a dead worker (monotonic); 0 if it did not."""
        return self._taken_over.get(self.shard_of(url), 0.0)

    def adopt(self, settings: Settings) -> None:
        """Go by edited settings: what was left out by the old ones may be handed over again."""
        self.table.max_per_host, self.table.max_share = settings.max_per_host, settings.max_share
        with self._lock:
            self._recent.clear()
        self.table.reconsider()

    # ---- handing over

    def hand_over(self, tries: Iterable[Task]) -> None:
        """Queue URLs for their shards, whoever owns them; `flush` brings them there."""
        with self._lock:
            self._queue.extend(task for task in tries if task.attempt or self._is_news(task))

    def ask_again(self, task: Task) -> None:
        """Queue a URL of ours whose refusal was taken back: this is news, though it was settled a moment ago."""
        self.table.unsettle(task.url)
        with self._lock:
            self._queue.append(task)

    def _is_news(self, task: Task) -> bool:
        """Most links of a page were handed over a moment ago: a batch that holds them is there or on its way."""
        if self._recent.get(task.url, task.depth + 1) <= task.depth:
            return False
        if len(self._recent) >= REMEMBERED:
            self._recent.clear()
        self._recent[task.url] = task.depth
        return True

    def flush(self, folders: Collection[str] = ()) -> None:
        """Write what is queued, a batch for each owner, and take our own part into the table.

        All of it is settled, and with it these `folders`.
        """
        self.hand_over(self.table.drain_mixed())
        with self._lock:
            queue, self._queue = self._queue, []
        inboxes = {shard: self._inbox(shard) for shard in range(self.shards)}
        lots: dict[int, list[Task]] = defaultdict(list)
        for task in queue:
            lots[inboxes[self.shard_of(task.url)]].append(task)
        for task, _ in self._misrouted:
            shard = self.shard_of(task.url)
            lots[inboxes[shard] if shard in self._batches else shard].append(task)
        try:
            written = self._write([(home, part) for home, lot in lots.items() for part in in_parts(lot, LOT)], folders)
        except BaseException:
            with self._lock:  # nothing of it is lost: the next flush writes it, perhaps once more
                self._queue = queue + self._queue
            raise
        self.table.left.subtract(batch for _, batch in self._misrouted if batch in self.table.left)
        self._misrouted.clear()
        self.sent += sum(home not in self._batches for home, _, _ in written)
        for home, name, part in written:
            self._take_in(home, name, part)

    def _inbox(self, shard: int) -> int:
        """The folder where the owner of a shard finds what is for any of its shards: that of its first one.

        A file for each owner, and not for each shard, is a third of all operations. That the owner may have changed
        does no harm: whoever has that folder hands on what is not its own.
        """
        if shard in self.owned:
            return min(self.owned)
        return shard if shard in self._batches else self.inboxes.get(shard, shard)

    def _write(
        self, parts: list[tuple[int, list[Task]]], folders: Collection[str] = ()
    ) -> list[tuple[int, str, list[Task]]]:
        """Write a batch for each part, many at a time: a mount answers many requests in the time of one."""
        named = [(home, self._new_name(len(part)), part) for home, part in parts]
        try:
            all_of(self._run(self._put, named))
        except DiskFull:
            for home, name, _ in named:  # all of it is written anew: the next try must not find still less room
                with suppress(StoreError):
                    self.files.drop(f"{folder(home)}/{name}")
            raise
        self.files.settle({folder(home) for home, _ in parts}.union(folders), self._run)
        return named

    def _put(self, batch: tuple[int, str, list[Task]]) -> None:
        home, name, part = batch
        self.files.put(f"{folder(home)}/{name}", to_lines(part), later=True)

    def _new_name(self, lines: int) -> str:
        self._numbers += 1
        return f"{self._mine}{self._numbers:06d}.{lines}"

    # ---- the inbox

    def own(self, shards: Iterable[int], inherited: Iterable[int] = (), past: Iterable[tuple[str, int]] = ()) -> None:
        """Shards are ours: read what waits in them. Those that are `inherited` were not given back by their owner.

        Hosts that have a `past` (see `Store.past`) are noted before any of their URLs can be taken.
        """
        shards = list(shards)
        noted = self._of_shards(past, shards)
        self.owned.update(shards)
        self.table.remember(noted)
        self._unsafe.update(inherited)
        self._taken_over.update((shard, time.monotonic()) for shard in inherited)
        for shard in shards:
            self._batches.setdefault(shard, {})
        self.read_inboxes(shards, fresh=True)

    def _of_shards(self, past: Iterable[tuple[str, int]], shards: list[int]) -> list[tuple[str, int, int]]:
        """Of hosts with a past those that are in these shards, with their shard; all of them where hosts are split."""
        if self.spread == "url":
            return [(host, 0, bits) for host, bits in past]
        placed = ((host, _shard(host, self.shards), bits) for host, bits in past)
        return [found for found in placed if found[1] in shards]

    def read_inboxes(self, shards: Iterable[int], fresh: bool) -> None:
        """Find the batches of shards that are new, and begin to read; `fresh` if the listings must not be old ones."""
        listed = list(self._run(lambda shard: (shard, self._names(shard, fresh)), shards))
        found = {(shard, name) for shard, names in listed for name in names - self._batches[shard].keys()}
        news = sorted(found.difference(self._unread), reverse=True)
        if news and self._before_news:
            self._before_news()
        if sum(lines_of(name) for _, name in news) > LOT:
            self._read_retries(news)
        self._unread = news + self._unread
        self.read_on()

    def _read_retries(self, news: list[tuple[int, str]]) -> None:
        """Of what is too much to be read at once, know the retries first: until then their hosts are not asked."""
        batches = (self._get(shard, name) or b"" for shard, name in news)
        found = (task for data in batches for task in from_lines(b"".join(RETRY.findall(data))))
        ours = (task for task in found if self.shard_of(task.url) in self._batches)
        number = self._new_number()
        for part in in_parts(ours, LOT):
            self.table.add(part, number, self.shard_of)

    def read_on(self) -> None:
        """Read what was found, about a lot of it: a worker with a million URLs before it must do other things too."""
        lines = 0
        while self._unread and lines < LOT:
            shard, name = self._unread[-1]
            data = self._get(shard, name)
            if data is not None:
                self._take_in(shard, name, from_lines(data))
            self._unread.pop()  # only now: while it is there, we are not idle
            lines += lines_of(name)
            if len(self._misrouted) > LOT:
                self.flush()

    @property
    def unread(self) -> bool:
        """Whether batches were found that are not read yet."""
        return bool(self._unread)

    def _get(self, shard: int, name: str) -> bytes | None:
        return self.files.get(f"{folder(shard)}/{name}")

    def _names(self, shard: int, fresh: bool) -> set[str]:
        if fresh:
            self.files.freshen(folder(shard))
        return set(self.files.names(folder(shard)))

    def _take_in(self, home: int, name: str, tries: Iterable[Task]) -> None:
        """Take a batch in a folder of ours into the table; what is not for us is handed on by the next flush."""
        if home not in self._batches:
            return
        number = self._batches[home][name] = self._new_number()
        for part in in_parts(tries, AT_ONCE):
            self.table.add(self._ours(part, number), number, self.shard_of)
            if len(part) == AT_ONCE:
                time.sleep(GIVE_WAY)

    def _ours(self, tries: list[Task], number: int) -> list[Task]:
        """Of what is in a batch, what is for us; the rest is put aside."""
        ours: list[Task] = []
        for task in tries:
            if self.shard_of(task.url) in self._batches:
                ours.append(task)
            else:
                self._misrouted.append((task, number))
                self.table.left[number] += 1
                self.table.arrivals += 1  # we are not idle all the while if we hand something on
        return ours

    def _new_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # ---- tidying

    def tidy(self, shard: int) -> bool:
        """Remove batches that are all settled; when many remain, the smallest become one (new file first).

        False if there is more to read, or to write anew, before anything may be removed.
        """
        if self.queued:  # what mixes two batches is written before they may go
            self.flush()
        if not self._make_safe():
            return False
        self._write_again(shard)
        left = self.table.left
        small = sorted((n for n in self._batches[shard].values() if 0 < left[n] < LOT // 2), key=left.__getitem__)
        if len(small) > MANY:
            self._merge(shard, small[: len(small) // 2])
        for name, number in list(self._batches[shard].items()):
            if self._drop(shard, name, number):
                del self._batches[shard][name], left[number]
        return True

    def _drop(self, home: int, name: str, number: int) -> bool:
        """Remove a batch of which nothing is left, if we can be sure to be its owner: else another may count on it."""
        if self.table.left[number] > 0 or not self.is_sure():
            return False
        self.files.drop(f"{folder(home)}/{name}")
        return True

    def _make_safe(self) -> bool:
        """Write all that we inherited anew, under names of our own, before anything is removed from any folder.

        Its last owner may only be asleep in the middle of tidying, and remove the batches that it knew when it wakes.
        What it was about to remove in one folder may stand in another by now, and seem to be there twice. About a lot
        is written at a time; False if there is more.
        """
        lines = 0
        while self._unsafe and not self._unread and lines < LOT:
            lines += self._write_anew(min(self._unsafe))
        return not (self._unsafe or self._unread)

    def _write_anew(self, shard: int) -> int:
        """Write a lot of what others have left in a shard's folder; how many lines. Without any, the shard is safe."""
        self.read_inboxes([shard], fresh=True)
        lot = next(self._in_lots(self._of_others(shard)), [])
        lines = sum(self.table.left[batch] for batch in lot)
        self._merge(shard, lot)
        if not lot and not self._unread:
            self._unsafe.discard(shard)
        return lines

    def _of_others(self, shard: int) -> list[int]:
        """The batches in a folder that we have not written ourselves."""
        return [number for name, number in self._batches[shard].items() if not name.startswith(self._mine)]

    def _write_again(self, shard: int) -> None:
        """Somebody else who believed to own this shard may have tidied it: what we count on must be in some file."""
        counted = {name for name, number in self._batches[shard].items() if self.table.left[number] > 0}
        gone = counted and counted - self._names(shard, fresh=True)
        if gone:
            self._merge(shard, {self._batches[shard][name] for name in gone})
            for name in gone:
                self.table.left.pop(self._batches[shard].pop(name), None)

    def _merge(self, home: int, old: Iterable[int]) -> None:
        """Write what still waits in these batches once more; what is settled meanwhile does no harm there."""
        for lot in self._in_lots(old):
            tries = self.table.of_batches(lot)
            new = self._new_number()
            for _, name, _ in self._write([(home, part) for part in in_parts(tries, LOT)]):
                self._batches[home][name] = new
            self.table.rehome(tries, lot, new)

    def _in_lots(self, batches: Iterable[int]) -> Iterator[list[int]]:
        """Batches that have something left, together as much as one may hold: only so much is in memory at a time."""
        lot: list[int] = []
        lines = 0
        for batch, left in [(batch, self.table.left[batch]) for batch in batches]:
            if lot and lines + left > LOT:
                yield lot
                lot, lines = [], 0
            if left > 0:
                lot.append(batch)
                lines += left
        if lot:
            yield lot

    # ---- giving back

    def hold(self, shards: Iterable[int]) -> None:
        """Begin to give shards back: nothing of them is given out any more."""
        self.owned.difference_update(shards)
        self.table.hold(shards)

    def disown(self, shards: Iterable[int], lost: Iterable[int] = ()) -> None:
        """Shards are no longer ours: what waits in them is left in their own folders, what we keep goes to ours.

        In the folder of a shard that is `lost` (another worker has it already) nothing is removed.
        """
        shards, lost = self._batches.keys() & set(shards), set(lost)  # not those that were done before the mount went
        self.owned -= shards
        self._unread = [(shard, name) for shard, name in self._unread if shard not in shards]
        self._sort(shards, lost)
        self.table.forget(shards, self.spread == "url")
        homes = {number for shard in shards for number in self._batches.get(shard, {}).values()}
        for lot in self._in_lots(homes):
            for task in self.table.of_batches(lot)[:1]:
                self._merge(self._inbox(self.shard_of(task.url)), lot)
        for shard in shards:
            for name, number in self._batches.get(shard, {}).items():
                if shard not in lost:
                    self._drop(shard, name, number)
            for number in self._batches.pop(shard, {}).values():
                self.table.left.pop(number, None)
            self._unsafe.discard(shard)
            self._taken_over.pop(shard, None)

    def _sort(self, shards: set[int], lost: set[int]) -> None:
        """Write what waits in these shards into the folder of each; what is lost may be there already."""
        for part in in_parts(self.table.of_shards(shards), LOT):
            lots: dict[int, list[Task]] = defaultdict(list)
            for shard, batch, task in part:
                if shard not in lost or batch not in self._batches[shard].values():
                    lots[shard].append(task)
            self._write(list(lots.items()))

    @property
    def queued(self) -> bool:
        """Whether something is queued that no shard has yet."""
        return bool(self._queue or self._misrouted or self.table.mixed)


@lru_cache(maxsize=16_384)  # of a page's links many are on few hosts, and each is looked up several times
def _shard(of: str, shards: int) -> int:
    return urls.shard_of_key(urls.key(of), shards)


def folder(shard: int) -> str:
    """Where a shard's batches are."""
    return f"frontier/{shard_name(shard)}"


def batches(files: Files, shard: int) -> Iterator[bytes]:
    """The batches in a shard's folder; one that is gone since the listing has a successor in the next."""
    read: set[str] = set()
    for _ in range(LOOKS):
        gone = False
        for name in sorted(set(files.names(folder(shard))) - read):
            read.add(name)
            with suppress(Misshapen):  # a folder that somebody left there, say, is passed over
                data = files.get(f"{folder(shard)}/{name}")
                gone = gone or data is None
                yield data or b""
        if not gone:
            return


def lines_of(name: str) -> int:
    """How many lines a batch has, as its name tells."""
    lines = name.rpartition(".")[2]
    return int(lines) if lines.isdecimal() else 0


def all_of(results: Iterable[object]) -> None:
    """Wait for all results, and raise what any of them raised."""
    for _ in results:
        pass


def in_parts(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Lists of at most so many."""
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part


def to_lines(tries: Iterable[Task]) -> bytes:
    """A batch: one tab-separated line each of depth, attempt, due, url; and via and priority where they say something.

    Due is 0 or `written+seconds`: whoever reads it waits no longer than those seconds, whatever its clock says.
    """
    now, wall = time.monotonic(), int(time.time())
    return "".join(_line(task, now, wall) for task in tries).encode("ascii")


def _line(task: Task, now: float, wall: int) -> str:
    due = f"{wall}+{max(task.due - now, 0):.0f}" if task.due else "0"
    more = f"\t{task.via}\t{task.priority}" if task.via or task.priority != PRIORITY else ""
    return f"{task.depth}\t{task.attempt}\t{due}\t{task.url}{more}\n"


RETRY = re.compile(rb"^\d+\t0*[1-9].*\n", re.MULTILINE)
LINE = re.compile(r"(\d{1,9})\t(\d{1,9})\t(\d{1,12})(?:\+(\d{1,9}))?\t(\S+)(?:\t([0-9a-f,]*)\t(10|\d))?")


def from_lines(data: bytes) -> Iterator[Task]:
    """The URLs of a batch; a line that is not one (a hand-made file, say) is passed over."""
    now, wall = time.monotonic(), time.time()
    for line in data.decode("ascii", "replace").splitlines():
        found = LINE.fullmatch(line)
        if found and urls.is_safe(found[5]):
            seconds = int(found[4] or 0)
            due = now + min(max(int(found[3]) + seconds - wall, 0), seconds) if seconds else 0.0
            yield Task(found[5], int(found[1]), int(found[2]), due, _via(found[6] or ""), int(found[7] or PRIORITY))


def _via(field: str) -> str:
    """The redirects that led to a task; batches of version 0.1.0 have only their number, so none of them is known."""
    return field if len(field) > 3 else ",".join(["0" * 12] * int(field or 0))
