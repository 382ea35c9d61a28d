"""The flush: for a group of results at a time, html, then the hand-over of links, then sync, then the records.

With `warc: true` their exchanges are appended to a WARC file together with the html.

A record appears only after its html is whole and its links have been handed over, both on the disk. Results wait here
until the group is written: after a kill their URLs are requested again, so there is a limit to them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from crawler.crawl.logs import log
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.handling import Handling
from crawler.crawl.worker.jars import Jars
from crawler.crawl.worker.outcome import Outcome, with_new_links
from crawler.crawl.worker.recent import SOON, RecentRecords
from crawler.crawl.worker.replacing import Replacing
from crawler.crawl.worker.schedule import Schedule
from crawler.errors import StoreAway, StoreError
from crawler.fetch.cookies import Cookie
from crawler.frontier.frontier import Frontier
from crawler.frontier.scope import Seeds
from crawler.frontier.task import Task, revisit_task
from crawler.store.clock import Clock
from crawler.store.jars import folder_of as folder_of_jars
from crawler.store.mount import Draft, Io, Run
from crawler.store.records import depth_of, failure_record, to_json
from crawler.store.store import Robots, path_of
from crawler.store.writer import StoreWriter
from crawler.web import reasons
from crawler.web.page import Failure, Saved

if TYPE_CHECKING:
    from crawler.crawl.worker.archive import Archive

GROUP, GROUP_BYTES = 256, 8 << 20  # results, or bytes of their html and links: flushed without waiting for more
MAX_RESULTS, MAX_BYTES = 512, 32 << 20  # as many may wait or be in writing; then no more URLs are taken
MAX_SEED_WARNINGS = 5  # failures of seeds that are logged as warnings before the first page

Item = TypeVar("Item")
Result = TypeVar("Result")


class Flush:
    """Collects what visits bring, and writes it in groups."""

    def __init__(
        self,
        store: StoreWriter,
        frontier: Frontier,
        seeds: Seeds,
        jars: Jars,
        counters: Counters,
        clock: Clock,
        io: Io,
        run: Run = map,
        handling: Handling | None = None,
        archive: Archive | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        """`run` calls a function for each item of a group, several at a time where each call has latency.

        `handling` calls the user's function for a page before it is written, if there is one; `archive` keeps
        exchanges as they came, if that is wanted; `schedule` tells when pages are visited again.
        """
        self._handling, self._archive, self._schedule = handling, archive, schedule
        self._store, self._files, self._frontier, self._seeds = store, store.files, frontier, seeds
        self._jars, self._counters, self._clock, self._io, self._run = jars, counters, clock, io, run
        self._replacing = Replacing(store, seeds, clock)
        self.recent = RecentRecords()
        self._waiting: list[Outcome] = []
        self._bytes = 0  # of their html and links
        self._writing = self._writing_bytes = 0  # of the group that is being written
        self._robots: dict[str, Robots] = {}
        self._robots_bytes = 0
        self._robots_tasks: dict[str, Task] = {}  # by host: to be handed over once its robots.txt is written
        self._retries = 0  # that were queued since the last flush
        self._published: list[Draft] = []  # records and failure records whose names may not be on the disk yet
        self._failed_syncs = 0  # of the store's, up to the last good sync of the records
        self._seed_warnings = 0

    # ---- what visits bring

    def put_page(
        self,
        task: Task,
        record: dict[str, Any],
        body: bytes | None = None,
        via: str = "",
        saved: Saved | None = None,
    ) -> None:
        """5 to 7. Queue a page: its body, the links to hand over, its record; a redirect or a sitemap has no body."""
        self._frontier.hand_over(self._seeds.follow(record, via, self._frontier.recent))
        outcome = Outcome(task, record, body, saved=saved, is_due_soon=self._plan(record))
        self._frontier.table.note_fetched(task, outcome.weight + (saved.size if saved else 0))
        self._handle(outcome)

    def _handle(self, outcome: Outcome) -> None:
        """Queue a result, a page after the user's function has had it."""
        if self._handling and outcome.body is not None and "file" not in outcome.record:
            self._handling.begin(outcome.task, outcome.record, outcome.body, partial(self._add, outcome))
        else:
            self._add(outcome)

    def put_revisit(
        self,
        task: Task,
        record: dict[str, Any],
        old: dict[str, Any],
        body: bytes | None = None,
        via: str = "",
        is_news: bool = False,
        is_same: bool = False,
        failure: Failure | None = None,
        saved: Saved | None = None,
    ) -> None:
        """Queue what a revisit found: the next visit and new links to hand over, html if it is another, a record."""
        if not is_same and failure is None:
            self._frontier.hand_over(self._seeds.follow(with_new_links(record, old), via, self._frontier.recent))
        is_due_soon = self._plan(record)
        found: Any = "failed" if failure else "same" if is_same else "news" if is_news else "other"
        self._handle(Outcome(task, record, body, saved=saved, found=found, old=old, is_due_soon=is_due_soon))
        if failure:
            self._log_failure(task, failure, "revisit", "revisit failed, the page stays")

    def _plan(self, record: dict[str, Any]) -> bool:
        """Hand over the next visit of a page: before its record, like its links; True if it is due soon."""
        following = self._schedule.plan(record) if self._schedule else None
        if following:
            self._frontier.hand_over([following])
        return following is not None and following.due - self._clock.monotonic() <= SOON

    def put_failure(self, task: Task, failure: Failure) -> None:
        """Queue a failure record: the URL is done, and has no page."""
        record = failure_record(task.name, failure, task.attempt + 1, task.depth, self._clock.time())
        outcome = Outcome(task, record, failure=failure.reason)
        self._frontier.table.note_fetched(task, outcome.weight)
        self._add(outcome)
        kind = reasons.kind(failure.reason)
        self._log_failure(task, failure, kind, kind)

    def put_robots(self, host: str, robots: Robots, task: Task | None = None) -> None:
        """Queue a host's robots.txt; a robots task that will replace it is handed over only when it is written."""
        if task:
            self._robots_tasks[host] = task
        self._drop_robots(host)
        self._robots[host] = robots
        self._robots_bytes += len(robots.body)

    def queued_robots(self, host: str) -> Robots | None:
        """Return a host's robots.txt that is not in the store yet."""
        return self._robots.get(host)

    def retry_later(self, task: Task, failure: Failure) -> None:
        """Hand a task over to be retried when it is due."""
        self._frontier.hand_over([task])
        self._frontier.table.delay_retry(task)
        self._retries += 1
        self._counters.add("retries")
        self._log_failure(task, failure, "retry", "will retry", attempt=task.attempt)

    def _add(self, outcome: Outcome) -> None:
        self._waiting.append(outcome)
        self._bytes += outcome.weight

    def _log_failure(self, task: Task, failure: Failure, event: str, prefix: str, **fields: Any) -> None:
        """Log a failed request: as a warning if it is one of the first seeds and no page was stored yet."""
        is_warning = not (task.depth or self._counters["pages"] or self._seed_warnings >= MAX_SEED_WARNINGS)
        self._seed_warnings += is_warning
        level = logging.WARNING if is_warning else logging.INFO
        if log.isEnabledFor(level):
            fields |= {"event": event, "url": task.name, "reason": failure.reason, "detail": failure.detail}
            why = f"{failure.reason}: {failure.detail}" if failure.detail else failure.reason
            log.log(level, "%s: %s (%s)", prefix, task.name, why, extra=fields)

    # ---- when

    @property
    def is_full(self) -> bool:
        """Whether so much waits for its flush that no more URLs may be taken.

        A robots.txt and a retry count too: after a kill they are requested again like pages, the retry too early.
        """
        if self._handling and self._handling.is_full:
            return True
        size = self._unflushed_bytes + self._writing_bytes
        return self._count_unflushed() + self._writing >= MAX_RESULTS or size >= MAX_BYTES

    @property
    def has_group(self) -> bool:
        """Whether enough waits for a flush."""
        return self._count_unflushed() >= GROUP or self._unflushed_bytes >= GROUP_BYTES

    @property
    def _unflushed_bytes(self) -> int:
        return self._bytes + self._robots_bytes + (self._archive.bytes if self._archive else 0)

    def _count_unflushed(self) -> int:
        return len(self._waiting) + len(self._robots) + self._retries + self._jars.unflushed

    @property
    def count(self) -> int:
        """How many results wait for their flush."""
        return len(self._waiting)

    @property
    def is_unflushed(self) -> bool:
        """Whether anything waits for a flush."""
        more = (self._handling.count if self._handling else 0) + (self._archive.count if self._archive else 0)
        is_waiting = self._count_unflushed() or self._writing or more
        return bool(is_waiting or self._frontier.queued or self._frontier.table.nearer)

    # ---- the flush

    async def flush(self, is_last: bool = False) -> None:
        """5, 6 and 7 for a group: write html, hand over the links, sync, then publish the records.

        Cookies that could wait are written if this `is_last` before others take over.
        """
        group, self._waiting = self._waiting, []
        size, self._bytes = self._bytes, 0
        retries, self._retries = self._retries, 0
        jars = self._jars.take(is_last)
        self._writing, self._writing_bytes = len(group) + retries, size
        drafts: list[tuple[Outcome, Draft]] = []
        published: list[Outcome] = []
        sizes: dict[str, int] = {}
        try:
            await self._sync_if_many_published()
            await self._update_depths()
            robots = dict(self._robots)
            await self._io(self._write, group, robots, jars, drafts, sizes)
            bodies = {it.folder for it in group if it.body is not None or it.saved}
            bodies |= self._replacing.folders([it.task.subject for it in group if it.found == "news"])
            await self._frontier.flush(bodies | set(map(folder_of_jars, jars)) | self._warcs)
            self._robots_are_written(robots)
            await self._jars_are_written()
            await self._archive_is_synced()
            await self._io(self._publish, drafts, published)
        except StoreError:
            done = set(map(id, published))
            left = [it for it in group if id(it) not in done]
            self._put_back([it for it in left if not it.is_lost], retries)
            self._jars.end(is_done=False)
            await self._io(self._discard, drafts)
            await self._request_again([it for it in left if it.is_lost])
            raise
        finally:
            self._writing = self._writing_bytes = 0
            self._mark_done(published, sizes)
            self._keep_recent(drafts, published)

    def _keep_recent(self, drafts: list[tuple[Outcome, Draft]], published: list[Outcome]) -> None:
        """Keep the records of pages that are visited again soon."""
        done = set(map(id, published))
        for it, draft in drafts:
            if it.is_due_soon and id(it) in done:
                self.recent.put(it.task.subject, draft.data, self._frontier.table.gains)
            else:
                self.recent.drop(it.task.subject)

    @property
    def _warcs(self) -> set[str]:
        return self._archive.folders if self._archive else set()

    async def _archive_is_synced(self) -> None:
        if self._archive:
            self._archive.synced()
            if self._archive.segments.is_full:
                await self._io(self._archive.segments.close)

    def _put_back(self, group: list[Outcome], retries: int) -> None:
        """Let results wait for the next flush, which writes everything of them anew."""
        self._waiting = group + self._waiting
        self._bytes += sum(it.weight for it in group)
        self._retries += retries

    async def _request_again(self, lost: list[Outcome]) -> None:
        """Let the URLs wait again whose bodies the disk may have lost: they cannot be written anew."""
        for it in lost:
            self._frontier.table.put_back(it.task)
        for saved in [it.saved for it in lost if it.saved]:
            with suppress(StoreError):
                await self._io(saved.place.discard)

    def _robots_are_written(self, robots: dict[str, Robots]) -> None:
        for host, written in robots.items():
            if self._robots.get(host) is written:
                self._drop_robots(host)
                if host in self._robots_tasks:
                    self._frontier.hand_over([self._robots_tasks.pop(host)])

    async def _jars_are_written(self) -> None:
        old = self._jars.end(is_done=True)
        if any(old.values()):
            await self._io(self._jars.drop, old)

    def _drop_robots(self, host: str) -> None:
        old = self._robots.pop(host, None)
        self._robots_bytes -= len(old.body) if old else 0

    def _write(
        self,
        group: list[Outcome],
        robots: dict[str, Robots],
        jars: dict[str, tuple[Cookie, ...]],
        drafts: list[tuple[Outcome, Draft]],
        sizes: dict[str, int],
    ) -> None:
        """Write exchanges, robots.txt, cookies and bodies, and the records as drafts; note the bytes of each URL."""

        def write(it: Outcome) -> None:
            self._check_owner()
            name = it.task.subject
            if it.found == "news" and it.old is not None:
                self._replacing.keep(name, it.old)
            self._write_body(it)
            folder, record = "errs" if it.failure else "links", to_json(it.record)
            drafts.append((it, self._files.draft(path_of(folder, name), record)))
            sizes[it.task.name] = (it.saved.size if it.saved else len(it.body or b"")) + len(record)

        if self._archive:
            self._archive.write()
        self._map(lambda item: self._store.put_robots(*item), robots.items())
        self._map(lambda item: self._jars.write(*item), jars.items())
        self._map(write, group)

    def _write_body(self, it: Outcome) -> None:
        if it.saved:
            it.saved.place.publish(it.record["file"], self._check_owner)
        elif it.body is not None and "file" in it.record:
            self._store.put_file(it.task.subject, it.record["file"], it.body, self._check_owner)
        elif it.body is not None:
            self._store.put_html(it.task.subject, it.body, self._check_owner)

    def _publish(self, drafts: list[tuple[Outcome, Draft]], published: list[Outcome]) -> None:
        """Give the records their names, and note those that have them: their html must not be written again."""

        def publish(written: tuple[Outcome, Draft]) -> None:
            self._files.publish(written[1], self._check_owner)
            published.append(written[0])
            self._published.append(written[1])
            if written[0].found == "news" and written[0].old is not None:
                self._replacing.prune(written[0].task.subject)
                self._replacing.note(written[0].old, written[0].record)

        self._map(publish, drafts)

    def _check_owner(self) -> None:
        """Raise an error if others may own our hosts by now: what they fetched since must not be replaced by ours."""
        if not self._frontier.is_sure():
            raise StoreAway("no heartbeat was written for so long that others may have taken over; nothing is lost")

    def _discard(self, drafts: list[tuple[Outcome, Draft]]) -> None:
        for _, draft in drafts:
            self._files.discard(draft)

    def _map(self, call: Callable[[Item], Result], items: Iterable[Item]) -> None:
        for _ in self._run(call, items):
            pass

    def _mark_done(self, group: list[Outcome], sizes: dict[str, int]) -> None:
        """Note what is done now that the records are there."""
        revisits = [it for it in group if it.found]
        self._count_revisits(revisits)
        group = [it for it in group if not it.found]
        failures = [it for it in group if it.failure]
        pages = [it for it in group if it.body is not None]
        others = [it for it in group if it.body is None and not it.failure]
        sitemaps = sum(bool(it.record.get("sitemap")) for it in others)
        for name, more in (
            ("pages", len(pages)),
            ("bytes", sum(it.record["bytes"] for it in pages)),
            ("sitemaps", sitemaps),
            ("redirects", len(others) - sitemaps),
        ):
            self._counters.add(name, more)
        for it in failures:
            self._counters.add_failure(it.failure)
        table = self._frontier.table
        made = [it.task for it in revisits]
        planned = [revisit_task(task.subject, task.visit) for task in made if task.is_unscheduled]
        table.mark_done([*made, *planned], kept=False, links=False)
        table.mark_done([it.task for it in pages], kept=True, sizes=sizes)
        table.mark_done([it.task for it in others], kept=False, sizes=sizes)
        table.mark_done([it.task for it in failures], kept=False, links=False, sizes=sizes)
        for it in [*pages, *others] if log.isEnabledFor(logging.DEBUG) else ():
            name, status = it.task.name, it.record["status"]
            facts = {"event": "page", "url": name, "status": status, "links": len(it.record["links"])}
            log.debug("%s %s", status, name, extra=facts)

    def _count_revisits(self, revisits: list[Outcome]) -> None:
        """Count visits apart from pages; what was a redirect may have become one."""
        self._counters.add("revisits", len(revisits))
        self._counters.add("unchanged", sum(it.found == "same" for it in revisits))
        self._counters.add("changed", sum(it.found == "news" for it in revisits))
        new = (it for it in revisits if it.record.get("sha224") and it.old is not None and not it.old.get("sha224"))
        self._counters.add("pages", sum(1 for _ in new))

    async def _update_depths(self) -> None:
        """With a depth limit, hand over again the links of pages that turned out to be nearer to a seed."""
        table = self._frontier.table
        while table.nearer:
            task, batch = table.nearer[0]
            record = await self._io(self._store.record, task.name)
            if record is not None and depth_of(record) > task.depth:
                record["depth"] = task.depth
                self._frontier.hand_over(self._seeds.follow(record))
                await self._frontier.flush()
                await self._io(self._store.put_record, task.name, to_json(record))
                self.recent.drop(task.name)
            table.drop_nearer(batch)

    async def sync_records(self) -> None:
        """Sync new records and failure records: a batch may be removed only after those of its URLs are on disk.

        If any sync of the store failed since they were published, they are written anew first.
        """
        await self._io(self._sync_records)

    def _sync_records(self) -> None:
        failed, published, unneeded = self._files.failed_syncs, list(self._published), self._replacing.unneeded
        if failed != self._failed_syncs:
            self._map(lambda draft: self._files.put(draft.name, draft.data, check=self._check_owner), published)
        self._files.sync({draft.folder for draft in published}, self._run)
        del self._published[: len(published)]
        self._failed_syncs = failed
        self._replacing.drop(unneeded)

    async def _sync_if_many_published(self) -> None:
        """Sync the records early if their bytes, which are kept until then, are many."""
        if sum(len(draft.data) for draft in self._published) > GROUP_BYTES:
            await self.sync_records()
