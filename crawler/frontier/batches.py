"""Batches: write-once files of tasks in the shards' folders, one task a line.

A batch's name ends with its number of lines, so that a listing shows how much is waiting.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from random import Random, SystemRandom
from typing import TypeVar

from crawler.errors import Misshapen, StoreError
from crawler.frontier.task import PAGE, Task, shard_of
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.inboxes import MADE, WHOLE, batch_names, folder, make_folder, mark_of, shards_in
from crawler.store.mount import Files, Run
from crawler.store.store import shard_name
from crawler.web import urls
from crawler.web.page import PRIORITY

GIVEN_BATCH = "given-"  # begins the name of a batch that no worker has written
COMMON_SHARD = 0  # in whose folder a few seeds are left for whoever comes first, while nobody is at work
LOSS = "frontier/.emptied-"  # while there is a name that begins so, the frontier may lack something
MAX_LINES = 10_000  # in a batch: what a reader holds in memory, and reads before it does other things
RANDOM = SystemRandom()
LISTINGS = 3  # of a folder whose batches change while they are read
RETRY_LINE = re.compile(rb"\n\d+\t0*[1-9].*(?=\n)")  # begins with the end of the line before: found 20 times as fast
TASK_LINE = re.compile(
    r"(\d{1,9})\t(\d{1,9})\t(\d{1,12})(?:\+(\d{1,9}))?\t(\S+)"  # depth, attempt, due, URL
    r"(?:\t([0-9a-f,]*)\t(10|2\d|30|\d)(?:\t(\S+)(?:\t(\d))?)?)?"  # via, priority, role, blame
)

Item = TypeVar("Item")


class BatchFiles:
    """Lists, reads, writes and removes batches; `run` calls a function for each item, as an executor's `map` does."""

    def __init__(
        self,
        files: Files,
        run: Run = map,
        clock: Clock = SYSTEM,
        random: Random = RANDOM,
        warn: Callable[[str], None] = lambda _: None,
        begin: str = "",
    ) -> None:
        """`warn` tells the operator that somebody has removed batches; the names of ours `begin` so."""
        self.files = files
        self._run, self._clock, self._warn = run, clock, warn
        self._prefix = (
            f"{begin}{files.me}-{random.randrange(1 << 16):04x}-"  # a machine has more than one writer under its name
        )
        self._count = 0
        self._in_doubt: list[tuple[int, str]] = []  # batches that may not be on the disk: their tasks are written again
        self._has_warned = False
        self._known: set[int] = set()  # shards whose folder is there, as far as we know
        self._made: set[int] = set()  # shards with the mark that their folder was made

    def names(self, shard: int, fresh: bool) -> set[str]:
        """Return a shard's batches, without those of ours in doubt; `fresh` if a cached listing will not do."""
        if fresh:
            self.files.freshen(folder(shard))
        found = batch_names(self.files, shard)
        if fresh and WHOLE not in found:
            self._note_loss(shard)
        return found - {WHOLE} - {name for home, name in self._in_doubt if home == shard}

    def _note_loss(self, shard: int) -> None:
        """Note that somebody has emptied or removed the folder of a shard: before its end, the crawl rehydrates.

        Not at once: what others hand over just now may be gone too, and their records are not written yet.
        """
        mark = f"{folder(shard)}/{WHOLE}"
        if self.files.get(mark) is not None:  # a listing of a folder that changes meanwhile may lack a name
            return
        is_all_lost = self.files.get(MADE) is None  # the whole frontier, and all marks with it
        if not is_all_lost and self.files.get(mark_of(shard)) is None:  # it is being made: nothing was in it yet
            return
        self._mark_loss(shard, f"{folder(shard)} was emptied or removed")
        self.files.create(mark)

    def _mark_loss(self, shard: int, what: str) -> None:
        self.files.create(f"{LOSS}{self._prefix}{shard_name(shard)}")
        if not self._has_warned:
            self._warn(f"{what}; before its end the crawl rehydrates from the records")
            self._has_warned = True

    def all_names(self, shards: Iterable[int], fresh: bool) -> list[tuple[int, set[str]]]:
        """Return each shard that has a folder with the names of its batches."""
        wanted = set(shards)
        if not wanted <= self._known:
            if fresh:
                self.files.freshen("frontier")
            # Those that were made, too: one that is gone was removed.
            self._known.update(*shards_in(self.files.all_names("frontier")))
        return list(self._run(lambda shard: (shard, self.names(shard, fresh)), sorted(wanted & self._known)))

    def get(self, shard: int, name: str) -> bytes | None:
        """Return a batch, or None if it is gone; a loss is noted if it is shorter than its name says."""
        path = f"{folder(shard)}/{name}"
        data = self.files.get(path)
        if data is not None and is_cut(name, data):
            self._mark_loss(shard, f"a part of {path} is gone")
            return whole_lines(data)
        return data

    def write(
        self, parts: list[tuple[int, list[Task]]], folders: Collection[str] = ()
    ) -> list[tuple[int, str, list[Task]]]:
        """Write a batch for each (shard, tasks), several at a time, and sync their folders and these `folders`.

        Return each shard and its tasks with the name of the batch.
        """
        self._drop_those_in_doubt()
        new = self._make_folders({shard for shard, _ in parts})
        named = [(shard, self._new_name(len(part)), part) for shard, part in parts]
        try:
            for _ in self._run(self._put, named):
                pass
            self.files.sync({folder(shard) for shard, _ in parts}.union(folders, new), self._run)
        except StoreError:
            self._in_doubt = [(shard, name) for shard, name, _ in named]
            with suppress(StoreError):  # now: the next attempt writes all of them again, and may need the space
                self._drop_those_in_doubt()
            raise
        return named

    def _make_folders(self, shards: set[int]) -> set[str]:
        """Make the folders of shards that never had one; return the folders in which there are new names to sync.

        One that was made and is gone, somebody has removed: it is made with its batch, but without its mark, so that
        its owner notes the loss.
        """
        if shards <= self._made:
            return set()
        self._made.update(shards_in(self.files.all_names("frontier"))[1])
        new = sorted(shards - self._made)
        for _ in self._run(partial(make_folder, self.files), new):
            pass
        self._made.update(new)
        return {"frontier"} if new else set()

    def _drop_those_in_doubt(self) -> None:
        """Remove the batches of a write that failed: an owner that has read one would take their copies for surplus.

        An owner rewrites a batch that disappears (see `Frontier.tidy`), so that its tasks are on the disk after all. We
        do not read those in our own folders meanwhile: what we take from one would be nowhere when it is removed.
        """
        while self._in_doubt:
            self.drop(*self._in_doubt[-1])
            self._in_doubt.pop()

    def _put(self, batch: tuple[int, str, list[Task]]) -> None:
        shard, name, part = batch
        self.files.put(f"{folder(shard)}/{name}", to_lines(part, self._clock), later=True)

    def _new_name(self, lines: int) -> str:
        self._count += 1
        return f"{self._prefix}{self._count:06d}.{lines}"

    @property
    def written(self) -> int:
        """The number of the last batch that we wrote."""
        return self._count

    def is_ours(self, name: str, since: int = 0) -> bool:
        """Tell whether we wrote this batch, and it is newer than our batch of the number `since`."""
        return name.startswith(self._prefix) and int(name.removeprefix(self._prefix).partition(".")[0]) > since

    def drop(self, shard: int, name: str) -> None:
        """Remove a batch."""
        self.files.drop(f"{folder(shard)}/{name}")


class Outbox:
    """Hands tasks over for who owns no shard: a command, or a supervisor.

    `inboxes` tells the first shard of each shard's owner (see `fleet.shards.inboxes`); without it each shard's own
    folder is as good, and whoever owns it reads it a little later.
    """

    def __init__(
        self, files: Files, settings: Settings, inboxes: Mapping[int, int] | None = None, run: Run = map
    ) -> None:
        self._batch_files = BatchFiles(files, run, begin=GIVEN_BATCH)
        self._shard_of = partial(
            shard_of, shards=settings.shards, spread=settings.spread, regions=settings.region_rules
        )
        self._inboxes = inboxes or {}

    def send(self, tasks: Iterable[Task]) -> None:
        """Write tasks where their owners will find them, on the disk when this returns."""
        by_home: dict[int, list[Task]] = defaultdict(list)
        for task in tasks:
            shard = self._shard_of(task)
            by_home[self._inboxes.get(shard, shard)].append(task)
        parts = [(home, part) for home, queued in by_home.items() for part in in_parts(queued, MAX_LINES)]
        self._batch_files.write(parts)


def read_batches(files: Files, shard: int) -> Iterator[bytes]:
    """Yield a shard's batches; what was in one that disappears meanwhile is in the next listing."""
    read: set[str] = set()
    for _ in range(LISTINGS):
        gone = False
        for name in sorted(batch_names(files, shard) - read - {WHOLE}):
            read.add(name)
            with suppress(Misshapen):  # somebody may have left a folder there
                data = files.get(f"{folder(shard)}/{name}")
                gone = gone or data is None
                yield data or b""
        if not gone:
            return


def lines_of(name: str) -> int:
    """Return the number of lines of a batch, from its name."""
    lines = name.rpartition(".")[2]
    return int(lines) if lines.isdecimal() else 0


def number_of(name: str) -> int:
    """Return which batch of its writer it is, from its name: the newest has the highest."""
    number = name.rpartition(".")[0].rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def is_cut(name: str, data: bytes) -> bool:
    """Tell whether a batch has fewer lines than its name says."""
    return data.count(b"\n") < lines_of(name)


def whole_lines(data: bytes) -> bytes:
    """Return a batch without the line in which it was cut: that one may hold another URL, which is valid, too."""
    return data[: data.rfind(b"\n") + 1]


def in_parts(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Yield lists of at most so many items."""
    rest = iter(items)
    while part := list(islice(rest, most)):
        yield part


def to_lines(tasks: Iterable[Task], clock: Clock = SYSTEM) -> bytes:
    """Return a batch, tab-separated: depth, attempt, due, url [, via, priority [, role [, blame]]].

    The last four are left out where they are the defaults: a page has no role (see `Task.role`). Due is 0 or
    `written+seconds`: a reader waits no longer than those seconds, whatever its clock says.
    """
    now, wall = clock.monotonic(), int(clock.time())
    return "".join([_line(task, now, wall) for task in tasks]).encode("ascii")


def _line(task: Task, now: float, wall: int) -> str:
    due = f"{wall}+{max(task.due - now, 0):.0f}" if task.due else "0"
    role = "" if task.kind == PAGE else task.role
    if task.blame:
        role = f"{role or PAGE}\t{task.blame}"
    more = f"\t{task.via}\t{task.priority}" if role or task.via or task.priority != PRIORITY else ""
    more = f"{more}\t{role}" if role else more
    return f"{task.depth}\t{task.attempt}\t{due}\t{task.url}{more}\n"


def from_lines(data: bytes, clock: Clock = SYSTEM) -> Iterator[Task]:
    """Yield the tasks of a batch; invalid lines (of a file made by hand, say) are passed over.

    Lines of old batches have the role as the fragment of the URL.
    """
    now, wall = clock.monotonic(), clock.time()
    for line in data.decode("ascii", "replace").splitlines():
        found = TASK_LINE.fullmatch(line)
        name = _name(found) if found else ""
        if found and urls.is_safe(name):
            seconds = int(found[4] or 0)
            due = now + min(max(int(found[3]) + seconds - wall, 0), seconds) if seconds else 0.0
            via, priority = _via(found[6] or ""), int(found[7] or PRIORITY)
            yield Task.named(name, int(found[1]), int(found[2]), due, via, priority, int(found[9] or 0))


def _name(line: re.Match[str]) -> str:
    return f"{line[5]}#{line[8]}" if line[8] else line[5]


def retries_of(data: bytes, clock: Clock = SYSTEM) -> Iterator[Task]:
    """Yield the tasks of a batch that were attempted before."""
    return from_lines(b"".join(RETRY_LINE.findall(b"\n" + data)), clock)


def _via(field: str) -> str:
    """Return the redirects that led to a task; batches of version 0.1.0 hold only their number."""
    return field if len(field) > 3 else ",".join(["0" * 12] * int(field or 0))
