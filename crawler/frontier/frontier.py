"""The frontier: URLs that wait, as batches in the shards' folders and as the task table that they are read into.

Anyone adds a batch to a shard's folder. Only the shard's owner removes one, and only when all of its URLs are done or
in a newer batch. A batch is for an owner, and may hold URLs of any of its shards; if a shard has another owner by now,
its URLs are handed on.

The methods that touch the mount are coroutines: `io` calls what blocks in a thread, while the worker goes on.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice

from crawler.frontier.batches import (
    GIVEN_BATCH,
    MAX_LINES,
    BatchFiles,
    from_lines,
    in_parts,
    lines_of,
    number_of,
    retries_of,
)
from crawler.frontier.hosts import IN_TURN, Host
from crawler.frontier.limits import limits_of
from crawler.frontier.recrawl import Recrawl
from crawler.frontier.table import Table
from crawler.frontier.task import PAGE, REVISIT, Task, shard_of, shard_of_host
from crawler.settings.regions import place, region_of_host
from crawler.settings.settings import Settings
from crawler.store.clock import Clock
from crawler.store.mount import Io

SMALL_PART = 8  # a batch with fewer than MAX_LINES / SMALL_PART URLs left is small, and may be merged
MAX_SMALL = 48  # small batches in a shard before the smallest of them are merged
ADDED_AT_ONCE = 500  # URLs added to the table before visits go on
FIRST_AT_ONCE = 25  # the same at the start of a long backlog, growing with what was read: pages come at once
LONGEST_STEP = 1.0  # seconds of rewriting batches, one shard after the other, before the worker does other things
LONGEST_READING = 0.25  # seconds of reading batches before the worker does other things
LONG_REST = 1800.0  # seconds that a host rests; of shorter rests the next owner knows nothing
REMEMBERED_URLS = 50_000  # that need not be handed over again, before all of them are forgotten


class Frontier:
    """The waiting URLs of a worker's shards, and the way to hand URLs to any shard."""

    def __init__(
        self,
        batch_files: BatchFiles,
        settings: Settings,
        clock: Clock,
        io: Io,
        is_sure: Callable[[], bool] = lambda: True,
        before_reading: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`is_sure` tells whether nobody can have taken over our shards; `before_reading` is for new batches."""
        self.table = Table(
            settings.order, settings.depth is not None, settings.max_share, limits_of(settings), settings.fresh_share
        )
        self.shards = settings.shards
        self.spread = settings.spread
        self._regions = settings.region_rules
        self.shard_of = partial(shard_of, shards=self.shards, spread=self.spread, regions=self._regions)  # of a task
        self._recrawl = Recrawl(settings.recrawl)
        self.owned: set[int] = set()
        self._coming: set[int] = set()  # shards that are about to be ours
        self.inboxes: dict[int, int] = {}  # shard -> first shard of its owner, as last seen
        self.sent = 0  # batches written for others
        self.batches_read = 0  # from inboxes
        self._batch_files, self._clock, self._io = batch_files, clock, io
        self.is_sure, self._before_reading = is_sure, before_reading
        self._batches: dict[int, dict[str, int]] = {}  # shard of ours -> batch name -> number in the table
        self._unread: list[tuple[int, str]] = []  # (shard, batch name), the next one last
        self._lines_read = 0  # of new batches, since there were none
        self._queue: list[Task] = []
        # Tasks in our folders that are not for us, their batch, and whether a worker has sent them.
        self._misrouted: list[tuple[Task, int, bool]] = []
        # Shards taken over from a dead worker, batches not rewritten yet, and our last batch before we had each: the
        # dead worker may know those that we had handed over to it.
        self._unsafe: dict[int, int] = {}
        self._taken_over: dict[int, float] = {}
        self.recent: dict[str, int] = {}  # name of a task -> depth at which it was handed over; for others to read
        self._last_number = 0
        self._flushing = False  # whether something is out of the queue and not in the table yet

    # ---- taking

    def take(self, unanswered: int = IN_TURN, revisits_only: bool = False) -> tuple[Task, Host] | None:
        """Return the next URL of a host that is due, or None; see `Table.take`."""
        return self.table.take(self._clock.monotonic(), unanswered, revisits_only)

    def next_due(self) -> float:
        """Return the seconds until something may be due."""
        return self.table.next_due(self._clock.monotonic())

    async def meet(self, host: Host, done: Iterable[str]) -> None:
        """Take in which keys of a new host are done; visits go on meanwhile."""
        for part in in_parts(done, ADDED_AT_ONCE):
            self.table.meet(host.name, part, partial(self._is_ours, host.name))
            await asyncio.sleep(0)

    def _is_ours(self, host: str, key: str) -> bool:
        if self.spread != "url":
            return True
        shard = place(int(key, 16), self.shards, region_of_host(host, self._regions), self._regions)
        return shard in self.owned or shard in self._coming

    def taken_over(self, task: Task) -> float:
        """Return when we took the shard of a URL over from a dead worker (monotonic); 0 if we did not."""
        return self._taken_over.get(self.shard_of(task), 0.0)

    def resting(self, longest: float) -> set[int]:
        """Return the shards that were taken over less than the `longest` delay of a host ago.

        Their last owner, who is dead, may have requested any host in them, and perhaps only we know that it did.
        """
        since = self._clock.monotonic() - longest
        return {shard for shard, when in self._taken_over.items() if when > since}

    async def adopt(self, settings: Settings) -> None:
        """Use edited settings from now on: URLs that the old ones skipped may be handed over again."""
        self.table.adopt(settings.max_share, limits_of(settings), settings.fresh_share)
        while self.table.forget_skipped():
            await asyncio.sleep(0)
        self._recrawl = Recrawl(settings.recrawl)
        for _ in self.table.drop_visits(self._recrawl.wants):
            await asyncio.sleep(0)
        self.recent.clear()

    # ---- handing over

    def hand_over(self, tasks: Iterable[Task]) -> None:
        """Queue URLs for their shards, whoever owns them; `flush` writes them there."""
        recent, queue = self.recent, self._queue
        for task in tasks:
            name = task.url if task.kind == PAGE else task.name
            if not task.attempt and task.kind != REVISIT:  # those are handed over once: they need not be remembered
                # Most links of a page were handed over lately, with another page.
                if recent.get(name, task.depth + 1) <= task.depth:
                    continue
                if len(recent) >= REMEMBERED_URLS:
                    recent.clear()
                recent[name] = task.depth
            queue.append(task)

    def retry(self, task: Task) -> None:
        """Queue a URL of ours whose failure record was removed, although it was done a moment ago."""
        self.table.forget_done(task)
        self._queue.append(task)

    async def flush(self, folders: Collection[str] = ()) -> None:
        """Write what is queued, a batch for each owner, and add our own part to the table.

        The batches are synced to the disk, and with them these `folders`.
        """
        self.hand_over(self.table.drain_mixed())
        queue, self._queue = self._queue, []
        misrouted, self._misrouted = self._misrouted, []
        tasks: dict[int, list[Task]] = defaultdict(list)
        first = min(self.owned, default=0)
        inboxes: dict[int, int] = {}
        for task in queue:
            shard = self.shard_of(task)
            if shard not in inboxes:
                inboxes[shard] = self._inbox(shard, first)
            tasks[inboxes[shard]].append(task)
        for task, _, is_from_worker in misrouted:
            shard = self.shard_of(task)
            # What a worker has sent, who saw other owners than we do, goes into the shard's own folder, which each of
            # its owners reads: between inboxes it could travel for ever.
            is_lost = is_from_worker and shard not in self._batches
            tasks[shard if is_lost else self._inbox(shard, first)].append(task)
        parts = [(home, part) for home, queued in tasks.items() for part in in_parts(queued, MAX_LINES)]
        self._flushing = bool(parts)
        try:
            written = await self._io(self._batch_files.write, parts, folders)
        except BaseException:  # the next flush writes all of it, perhaps a second time
            self._queue = queue + self._queue
            self._misrouted = misrouted + self._misrouted
            self._flushing = False
            raise
        self.table.left.subtract(batch for _, batch, _ in misrouted if batch in self.table.left)
        self.sent += sum(home not in self._batches for home, _, _ in written)
        for home, name, part in written:
            await self._take_in(home, name, part)
        self._flushing = False

    def _inbox(self, shard: int, first: int) -> int:
        """Return the shard in whose folder the owner of a shard reads what is for any of its shards: its first one.

        `first` is ours. One file for each owner, not for each shard, saves two thirds of all operations. If the owner
        has changed, whoever has that folder hands the tasks on.
        """
        if shard in self.owned:
            return first
        return shard if shard in self._batches else self.inboxes.get(shard, shard)

    # ---- the inbox

    async def own(
        self, shards: Iterable[int], inherited: Iterable[int] = (), past: Iterable[tuple[str, int]] = ()
    ) -> None:
        """Take shards that are now ours, and read their batches; the owner of `inherited` ones has not released them.

        Hosts with a `past` (see `StoreWriter.past`) are noted before any of their URLs can be taken; for those that are
        noted before, call `expect` and `note_past`.
        """
        shards = set(shards)
        if not shards <= self._coming:
            self.expect(shards)
        for part in in_parts(past, ADDED_AT_ONCE):
            self.note_past(part)
        self._coming -= shards
        self.owned.update(shards)
        self._unsafe.update(dict.fromkeys(inherited, self._batch_files.written))
        self._taken_over.update((shard, self._clock.monotonic()) for shard in inherited)
        for shard in shards:
            self._batches.setdefault(shard, {})
        await self.read_inboxes(shards, fresh=True)

    def expect(self, shards: Iterable[int]) -> None:
        """Note that these shards are about to be ours: hosts that are met from now on are met for them too."""
        self._coming = set(shards)
        self.table.gains += 1

    def is_coming(self, host: str) -> bool:
        """Tell whether a host is in one of the expected shards; all are where hosts are spread over shards."""
        return self.spread == "url" or self._shard_of_host(host) in self._coming

    def note_past(self, past: Iterable[tuple[str, int]]) -> None:
        """Note hosts of the expected shards that others have requested (see `StoreWriter.past`)."""
        is_split = self.spread == "url"
        placed = ((host, 0 if is_split else self._shard_of_host(host), bits) for host, bits in past)
        self.table.remember(it for it in placed if is_split or it[1] in self._coming)

    def _shard_of_host(self, host: str) -> int:
        return shard_of_host(host, self.shards, self.spread, self._regions)

    async def read_inboxes(self, shards: Iterable[int], fresh: bool) -> None:
        """Find new batches of these shards, and begin to read; `fresh` if cached listings will not do."""
        listed = await self._io(self._batch_files.all_names, list(shards), fresh)
        found = {(shard, name) for shard, names in listed for name in names - self._batches[shard].keys()}
        new = sorted(found.difference(self._unread), reverse=True)
        if not self._unread:
            self._lines_read = 0
        if new and self._before_reading:
            await self._before_reading()
        if sum(lines_of(name) for _, name in new) > MAX_LINES:
            await self._read_retries(new)
            # The newest one first: of the oldest most is done already, and the first page would wait for the others.
            new.append(new.pop(new.index(max(new, key=lambda batch: number_of(batch[1])))))
        self._unread = new + self._unread
        await self.read_on()

    async def _read_retries(self, new: list[tuple[int, str]]) -> None:
        """Read the retries first where there is too much to read at once: their hosts must not be requested early."""
        number = self._new_number()
        for shard, name in new:
            data = await self._io(self._batch_files.get, shard, name)
            for part in in_parts(retries_of(data or b"", self._clock), ADDED_AT_ONCE):
                placed = ((self.shard_of(task), task) for task in part)
                ours = [it for it in placed if it[0] in self._batches]
                self.table.add(ours, number, self._clock.monotonic())
                await asyncio.sleep(0)

    async def read_on(self) -> None:
        """Read some of the new batches, about MAX_LINES or for a moment: the worker has other things to do too."""
        lines, until = 0, self._clock.monotonic() + LONGEST_READING
        while self._unread and lines < MAX_LINES and self._clock.monotonic() < until:
            shard, name = self._unread[-1]
            data = await self._io(self._batch_files.get, shard, name)
            if data is not None:
                await self._take_in(shard, name, from_lines(data, self._clock))
            self._unread.pop()  # only now: until then we are not idle
            lines += lines_of(name)
            if len(self._misrouted) > MAX_LINES:
                await self.flush()

    @property
    def unread(self) -> bool:
        """Whether there are new batches that are not read yet."""
        return bool(self._unread)

    async def _take_in(self, home: int, name: str, tasks: Iterable[Task]) -> None:
        """Add a batch in a folder of ours to the table; tasks that are not for us are handed on by the next flush."""
        if home not in self._batches:
            return
        self.batches_read += 1
        number = self._batches[home][name] = self._new_number()
        # Some at a time, so that visits go on meanwhile.
        rest = iter(tasks)
        while part := list(islice(rest, self._added_at_once())):
            self.table.add(self._ours(part, number, not name.startswith(GIVEN_BATCH)), number, self._clock.monotonic())
            self._lines_read += len(part)
            await asyncio.sleep(0)

    def _added_at_once(self) -> int:
        """Return how many URLs are added before visits go on."""
        if not self._unread:
            return ADDED_AT_ONCE
        return min(max(FIRST_AT_ONCE, self._lines_read // 100), ADDED_AT_ONCE)

    def _ours(self, tasks: list[Task], number: int, is_from_worker: bool) -> list[tuple[int, Task]]:
        """Return the wanted tasks of a batch that are for us, with their shards, and put those of others aside."""
        ours: list[tuple[int, Task]] = []
        for task in tasks:
            if task.kind == REVISIT and not self._recrawl.wants(task):
                continue
            shard = self.shard_of(task)
            if shard in self._batches:
                ours.append((shard, task))
            else:
                self._misrouted.append((task, number, is_from_worker))
                self.table.left[number] += 1
                self.table.arrivals += 1  # who hands something on was not idle
        return ours

    def _new_number(self) -> int:
        self._last_number += 1
        return self._last_number

    # ---- tidying

    async def tidy(self, shard: int) -> bool:
        """Remove batches whose URLs are all done; when many small ones remain, merge the smallest (new file first).

        False if there is more to read or to rewrite before anything may be removed.
        """
        if self.queued:  # a task that merges two batches is written before they are removed
            await self.flush()
        if not await self._make_safe():
            return False
        await self._rewrite_removed(shard)
        left = self.table.left
        small = sorted(
            (n for n in self._batches[shard].values() if 0 < left[n] < MAX_LINES / SMALL_PART), key=left.__getitem__
        )
        if len(small) > MAX_SMALL:
            await self._merge(shard, small[: len(small) // 2 + 1])  # two at least: one alone would only be renamed
        for name in await self._drop_finished(shard):
            del left[self._batches[shard].pop(name)]
        return True

    async def _drop_finished(self, shard: int) -> list[str]:
        """Remove the batches of a shard that have nothing left, and return their names.

        What their tasks have brought is written before: a URL that is retried may only be queued.
        """
        finished = [name for name, number in self._batches[shard].items() if self.table.left[number] <= 0]
        if finished and self.queued:
            await self.flush()
        return await self._io(self._drop, shard, finished) if finished else []

    def _drop(self, shard: int, names: list[str]) -> list[str]:
        """Remove batches, as long as we cannot have lost their shard: its new owner would rely on them."""
        dropped: list[str] = []
        for name in names:
            if not self.is_sure():
                break
            self._batch_files.drop(shard, name)
            dropped.append(name)
        return dropped

    async def _make_safe(self) -> bool:
        """Rewrite all inherited batches under names of our own before anything is removed from any folder.

        Their last owner may only be suspended in the middle of tidying, and remove the batches that it knew when it
        resumes. URLs of a batch that it was about to remove may be in another folder by now, and seem to be there
        twice. About MAX_LINES are written at a time, and for a second; False if there is more.
        """
        lines, until = 0, self._clock.monotonic() + LONGEST_STEP
        while self._unsafe and not self._unread and lines < MAX_LINES and self._clock.monotonic() < until:
            lines += await self._rewrite(min(self._unsafe))
        return not (self._unsafe or self._unread)

    async def _rewrite(self, shard: int) -> int:
        """Rewrite some batches that others left in a shard, and return how many lines; with none left it is safe."""
        await self.read_inboxes([shard], fresh=True)
        if self._misrouted:  # their batch counts them until they are handed on: it would be rewritten again and again
            await self.flush()
        group = next(self._in_groups(self._of_others(shard)), [])
        lines = sum(self.table.left[batch] for batch in group)
        await self._merge(shard, group)
        if not group and not self._unread:
            self._unsafe.pop(shard, None)
        return lines

    def _of_others(self, shard: int) -> list[int]:
        """Return the batches in a folder that we have not written ourselves since we took it over."""
        since, is_ours = self._unsafe.get(shard, 0), self._batch_files.is_ours
        return [number for name, number in self._batches[shard].items() if not is_ours(name, since)]

    async def _rewrite_removed(self, shard: int) -> None:
        """Rewrite batches that somebody removed who believed to own this shard: each URL must be in some file."""
        needed = {name for name, number in self._batches[shard].items() if self.table.left[number] > 0}
        gone = needed and needed - await self._io(self._batch_files.names, shard, True)
        if gone:
            await self._merge(shard, {self._batches[shard][name] for name in gone})
            for name in gone:
                self.table.left.pop(self._batches[shard].pop(name), None)

    async def _merge(self, home: int, old: Iterable[int]) -> None:
        """Write the URLs of these batches that are still waiting as new ones; some may be done meanwhile: no harm."""
        for group in self._in_groups(old):
            tasks = self.table.of_batches(group)
            new = self._new_number()
            parts = [(home, part) for part in in_parts(tasks, MAX_LINES)]
            for _, name, _ in await self._io(self._batch_files.write, parts):
                self._batches[home][name] = new
            self.table.rehome(tasks, group, new)

    def _in_groups(self, batches: Iterable[int]) -> Iterator[list[int]]:
        """Yield groups of batches with at most MAX_LINES left together: only so much is in memory at a time."""
        group: list[int] = []
        lines = 0
        for batch, left in [(batch, self.table.left[batch]) for batch in batches]:
            if group and lines + left > MAX_LINES:
                yield group
                group, lines = [], 0
            if left > 0:
                group.append(batch)
                lines += left
        if group:
            yield group

    # ---- giving back

    def hold(self, shards: Iterable[int]) -> None:
        """Begin to release shards: none of their URLs are taken any more."""
        self.owned.difference_update(shards)
        self.table.hold(shards, self.spread == "url")

    async def disown(self, shards: Iterable[int], lost: Iterable[int] = ()) -> None:
        """Forget shards that are no longer ours: their URLs are written to their own folders, the others to ours.

        In the folder of a shard that is `lost` (another worker has it already) nothing is removed.
        """
        shards, lost = self._batches.keys() & set(shards), set(lost)  # not those disowned before the mount failed
        self.owned -= shards
        self._unread = [(shard, name) for shard, name in self._unread if shard not in shards]
        await self._sort(shards, lost)
        for _ in self.table.forget(shards, self.spread == "url"):
            await asyncio.sleep(0)
        homes = {number for shard in shards for number in self._batches.get(shard, {}).values()}
        for group in self._in_groups(homes):
            for task in self.table.of_batches(group)[:1]:
                await self._merge(self._inbox(self.shard_of(task), min(self.owned, default=0)), group)
        for shard in shards:
            if shard not in lost and not self.queued:  # else what is finished is left to the next owner
                await self._drop_finished(shard)
            for number in self._batches.pop(shard, {}).values():
                self.table.left.pop(number, None)
            self._unsafe.pop(shard, None)
            self._taken_over.pop(shard, None)

    async def _sort(self, shards: set[int], lost: set[int]) -> None:
        """Write the waiting URLs of these shards into the folder of each; those of a lost one may be there already."""
        for part in in_parts(self.table.of_shards(shards), MAX_LINES):
            tasks: dict[int, list[Task]] = defaultdict(list)
            now = self._clock.monotonic()
            for shard, batch, task in part:
                if shard not in lost or batch not in self._batches[shard].values():
                    tasks[shard].append(self._with_rest(task, now))
            await self._io(self._batch_files.write, list(tasks.items()))

    def _with_rest(self, task: Task, now: float) -> Task:
        """Return a task for its next owner: one whose host must rest for long, as it demanded, is due after that."""
        rest = self.table.rest_of(task.host)
        return task._replace(due=rest) if rest > max(task.due, now + LONG_REST) else task

    @property
    def queued(self) -> bool:
        """Whether something is queued that is in no batch yet."""
        return bool(self._queue or self._misrouted or self.table.mixed or self._flushing)
