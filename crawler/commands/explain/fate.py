"""What became of a URL: its record, its failure record, or its place in the queue."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from typing import Any

from crawler.frontier.batches import from_lines, read_batches
from crawler.frontier.task import REVISIT, Task, retry_task
from crawler.store.mount import Files
from crawler.store.records import mark_of, utc
from crawler.store.store import Store
from crawler.web import urls
from crawler.web.page import REDIRECTS
from crawler.web.reasons import look_up

Facts = dict[str, Any]

DONE, WAITING, NEVER_SEEN, NEVER_REQUESTED = "done", "waiting", "never seen", "never requested"


def path_of(noun: str, url: str) -> str:
    """Return where a page, record or failure record is in the store."""
    return f"{noun}/{urls.host(url)}/{urls.key(url)}"


def fate_of(store: Store, url: str, shards: list[int]) -> Facts | None:
    """Return the facts of a URL that is done or waiting, or None; it may become done while we look for it."""
    return _done(store, url, shards) or _waiting(store.files, shards, url) or _done(store, url, shards)


def _done(store: Store, url: str, shards: list[int]) -> Facts | None:
    record, failure = store.record(url), store.failure(url)
    if record:
        return {"state": DONE, "record": _of_record(record)}
    if failure:
        facts = {name: failure.get(name) for name in ("reason", "detail", "attempts", "when")}
        again = _waiting(store.files, shards, retry_task(url, mark_of(failure)).name) is not None
        kind, _, meaning = look_up(str(facts["reason"]))
        return {"state": DONE, "failure": {**facts, "kind": kind, "meaning": meaning, "again": again}}
    broken = [path for path in (path_of("links", url), path_of("errs", url)) if store.files.get(path) is not None]
    return {"state": DONE, "broken": broken[0]} if broken else None


def _of_record(record: Facts) -> Facts:
    links = record.get("links")
    links = links if isinstance(links, list) else []
    redirect = links[0] if record.get("status") in REDIRECTS and links else None
    facts = {name: record.get(name) for name in ("status", "fetched", "title", "type", "bytes", "depth")}
    return {**facts, "links": len(links), "redirect": redirect}


def _waiting(files: Files, shards: Iterable[int], name: str) -> Facts | None:
    tasks = [task for task in _tasks(files, shards, Task.named(name).url) if task.name == name]
    if not tasks:
        return None
    task = max(tasks, key=lambda task: (task.attempt, -task.depth))
    waiting = {"depth": task.depth, "attempt": task.attempt, **_when(task), "priority": task.priority}
    return {"state": WAITING, "waiting": waiting}


def next_visit(files: Files, shards: Iterable[int], name: str) -> Facts | None:
    """Return when a page is visited again; None if no visit is planned or ordered."""
    visits = [it for it in _tasks(files, shards, Task.named(name).url) if it.kind == REVISIT and it.subject == name]
    # One that is done may still be in its batch: the next is the last of them, and of two orders the earlier one.
    return _when(max(visits, key=lambda it: (it.visit, -it.due))) if visits else None


def _when(task: Task) -> Facts:
    seconds = max(task.due - time.monotonic(), 0.0)
    return {"due": utc(time.time() + seconds) if seconds else None, "seconds": round(seconds)}


def _tasks(files: Files, shards: Iterable[int], url: str) -> list[Task]:
    """Return the tasks of a URL, of any kind, that are in these shards' batches."""
    batches = (data for shard in dict.fromkeys(shards) for data in read_batches(files, shard))
    return list(from_lines(b"".join(line for data in batches for line in _lines_in(data, url))))


def _lines_in(data: bytes, url: str) -> Iterator[bytes]:
    """Yield the lines of a URL in a batch, of any kind, without parsing the others: there may be a million."""
    for found in re.finditer(re.escape(f"\t{url}".encode()) + rb"(?:[\t#].*)?$", data, re.MULTILINE):
        yield data[data.rfind(b"\n", 0, found.start()) + 1 : found.end()] + b"\n"
