"""Visits of pages that are in the store: with a condition, so that what has not changed is not sent again.

The record of a page knows its earlier visits (`store.visits`). A visit ends with a new record, whatever it found, and
before that the next visit is handed over: a kill between the two costs one more visit.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.lastmods import Lastmods
from crawler.crawl.worker.pauses import Pauses
from crawler.crawl.worker.schedule import Schedule
from crawler.frontier.frontier import Frontier
from crawler.frontier.task import Task, revisit_task
from crawler.store import visits
from crawler.store.clock import Clock
from crawler.store.writer import StoreWriter
from crawler.web.markup import is_markup
from crawler.web.page import Failure, Fetched, Saved
from crawler.web.text_hash import visible_hash

Record = dict[str, Any]
NOT_MODIFIED = 304
_SENDABLE = re.compile(r"[!-~](?:[ -~]{0,1000}[!-~])?")  # people edit records: nothing else goes into a header


class Revisits:
    """What is different for a page that is in the store."""

    def __init__(
        self, store: StoreWriter, frontier: Frontier, flush: Flush, schedule: Schedule, pauses: Pauses, clock: Clock
    ) -> None:
        self._store, self._frontier, self._flush, self._schedule = store, frontier, flush, schedule
        self._pauses, self._clock = pauses, clock
        self._lastmods = Lastmods(store, frontier, pauses)

    async def find(self, task: Task) -> Record | None:
        """Return the record of a page that is to be visited; None if this visit was made, or is not to be made now."""
        record = self._flush.recent.get(task.subject, self._frontier.table.gains)
        if record is None or task.visit != visits.visits_of(record) + 1:
            record = await self._pauses.until_store_answers(self._store.record, task.subject)
        if record is None or task.visit <= visits.visits_of(record):
            return None
        if task.is_unscheduled or task.attempt:
            return record
        if self._schedule.rules.mean(record) is None:  # the setting has changed since: no more visits of this page
            return None
        if self._schedule.is_early(record):  # the setting has changed since this visit was planned
            later = self._schedule.rules.task(record, self._clock.monotonic(), self._clock.time())
            if later:
                self._frontier.hand_over([revisit_task(task.subject, task.visit + 1, task.depth, later.due)])
            return None
        return record

    def condition(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the headers that ask for a page only if it has changed."""
        if not (record.get("sha224") or record.get("sitemap")):
            return ()
        named = (("If-None-Match", record.get("etag")), ("If-Modified-Since", record.get("last_modified")))
        return tuple(f"{name}: {it}" for name, it in named if isinstance(it, str) and _SENDABLE.fullmatch(it))

    def is_same(self, old: Mapping[str, Any], response: Fetched) -> bool:
        """Tell whether a response shows, before it is read, that the page is as it was."""
        if response.status == NOT_MODIFIED:
            return True
        came = response.saved.sha224 if response.saved else hashlib.sha224(response.body).hexdigest()
        return bool(old.get("sha224")) and old["sha224"] == came

    def keep_same(self, task: Task, old: Record, response: Fetched) -> None:
        """Leave a page that is as it was for the flush: only its record is written."""
        found = {name: response.headers.get(header) for name, header in _VALIDATORS if response.headers.get(header)}
        record = visits.unchanged(old, task.visit, self._clock.time()) | found
        self._lastmods.judge(task.subject, False)
        self._flush.put_revisit(task, record, old, is_same=True)

    async def keep(
        self,
        task: Task,
        old: Record,
        new: Record,
        body: bytes | None = None,
        via: str = "",
        saved: Saved | None = None,
    ) -> None:
        """Leave what came instead of the stored page for the flush."""
        if "file" in new:  # what is no text has changed if its bytes have
            is_news, is_same = True, False
        elif body is None:
            is_news = any(old.get(name) != new.get(name) for name in ("links", "status", "sitemap"))
            is_same = not is_news and not old.get("sha224")
        else:
            text = body.decode("utf-8", "replace")
            new = {"text_sha224": visible_hash(text, is_markup(str(new.get("type")))), **new}
            is_same, is_news = False, new["text_sha224"] != await self._text_of(task, old)
        if new.get("sitemap"):
            await self._lastmods.note(old, new)
        self._lastmods.judge(task.subject, is_news)
        record = visits.replaced(old, new, task.visit, self._clock.time(), is_news)
        self._flush.put_revisit(task, record, old, body, via, is_news, is_same, saved=saved)

    async def _text_of(self, task: Task, old: Mapping[str, Any]) -> str | None:
        """Return the hash of the stored page's visible text; records from before the setting do not have it."""
        if not old.get("sha224") or old.get("text_sha224"):
            return old.get("text_sha224")
        html: bytes | None = await self._pauses.until_store_answers(self._store.text_bytes, task.subject)
        return visible_hash((html or b"").decode("utf-8", "replace"), is_markup(str(old.get("type"))))

    async def fail(self, task: Task, failure: Failure) -> bool:
        """Leave a failure for the flush: the page stays; False if there is none any more."""
        old: Record | None = await self._pauses.until_store_answers(self._store.record, task.subject)
        if old is None or task.visit <= visits.visits_of(old):
            return False
        record = visits.failed(old, failure, task.visit, self._clock.time())
        self._flush.put_revisit(task, record, old, failure=failure)
        return True


_VALIDATORS = (("etag", "etag"), ("last_modified", "last-modified"))
