"""`crawler changes`: which pages are new, changed, moved or gone since a time, in the order in which it was seen.

From the records: each knows when its page was first fetched, when its text last changed, when it moved and since when
it is gone. Of changes before the last one the versions in history/ know, if they are kept.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from crawler import errors
from crawler.commands.arguments import Add
from crawler.settings.values import duration
from crawler.store import history
from crawler.store.records import links_of, utc
from crawler.store.store import Store, find_host, open_store
from crawler.web import urls
from crawler.web.text import printable

NEW, CHANGED, MOVED, GONE = KINDS = ("new", "changed", "moved", "gone")
FEED_ENTRIES = 500  # the newest
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Change(NamedTuple):
    """What happened to a page, and when a visit saw it."""

    when: str
    kind: str
    url: str
    title: str = ""
    target: str = ""  # of one that moved


def commands(add: Add) -> None:
    """Add `crawler changes`."""
    made = add("changes", run, "crawler changes /mnt/shared/crawl --since 7d")
    made.add_argument(
        "--since", metavar="T", type=moment, help="a time (2026-11-01), or how long ago (7d); default: all"
    )
    made.add_argument("--host", metavar="H", action="append", default=[], help="only pages of this host; repeatable")
    made.add_argument("--json", action="store_true", help="a JSON line each")
    made.add_argument("--feed", choices=["atom"], help=f"a feed of the newest {FEED_ENTRIES}, the newest first")


def run(options: Namespace) -> int:
    """`crawler changes`."""
    store = open_store(options.store)
    hosts = sorted({find_host(store, given) for given in options.host})
    found = changes(store, options.since or "", hosts)
    if options.feed:
        print(feed(str(store.root), list(found.newest(FEED_ENTRIES))))
        return errors.OVER
    for change in found:
        print(_as_json(change) if options.json else _as_line(change))
    return errors.OVER


def moment(given: str) -> str:
    """Return a time that a user gave as the records have it; an error that says how to give one."""
    try:
        return utc(time.time() - duration(given))
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        what = "is not a time such as 2026-11-01, 2026-11-01T12:00:00Z or, for how long ago, 7d"
        raise ArgumentTypeError(f"{given!r} {what}") from error
    return utc((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


class Sorted:
    """Changes in order of time: on disk, because there may be millions."""

    def __init__(self, found: Iterator[Change]) -> None:
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.execute("CREATE TABLE change(time TEXT, kind TEXT, url TEXT, title TEXT, target TEXT)")
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?)", found)
        self._db.execute("COMMIT")

    def __iter__(self) -> Iterator[Change]:
        rows = self._db.execute("SELECT time, kind, url, title, target FROM change ORDER BY time, url, kind")
        return (Change(*row) for row in rows)

    def newest(self, most: int) -> Iterator[Change]:
        """Yield the newest, the newest first."""
        order = "ORDER BY time DESC, url, kind LIMIT ?"
        rows = self._db.execute(f"SELECT time, kind, url, title, target FROM change {order}", (most,))
        return (Change(*row) for row in rows)


def changes(store: Store, since: str = "", hosts: list[str] | None = None) -> Sorted:
    """Return what happened to the pages of a store since a time."""
    return Sorted(_found(store, since, hosts or store.hosts()))


def _found(store: Store, since: str, hosts: list[str]) -> Iterator[Change]:
    with_history = set(history.hosts(store.files))
    for host in hosts:
        older: dict[str, list[dict[str, Any]]] = {}
        for record in history.records(store, host) if host in with_history else ():
            older.setdefault(str(record.get("url")), []).append(record)
        for record in store.records(host):
            known = [*older.get(str(record.get("url")), ()), record]
            told: dict[tuple[str, str], Change] = {}  # several versions may tell of one; the oldest has its title then
            for change in (change for it in known for change in of_record(it) if change.when >= since):
                told.setdefault((change.when, change.kind), change)
            yield from told.values()


def of_record(record: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what a record tells of its page."""
    url, title = record.get("url"), str(record.get("title") or "")
    if not isinstance(url, str) or not urls.is_safe(url) or "#" in url:
        return
    first = record.get("first_fetched") or record.get("fetched")
    if record.get("sha224") or record.get("moved"):
        yield Change(str(first), NEW, url, title)
    changed, moved, gone = (record.get(name) for name in (CHANGED, MOVED, GONE))
    if moved:
        yield Change(str(moved), MOVED, url, target=next(iter(links_of(record)), ""))
    if changed and changed != moved:
        yield Change(str(changed), CHANGED, url, title)
    if gone:
        yield Change(str(gone), GONE, url)


def _as_json(change: Change) -> str:
    more = {"title": change.title} if change.title else {"target": change.target} if change.target else {}
    return json.dumps({"when": change.when, "kind": change.kind, "url": change.url, **more})


def _as_line(change: Change) -> str:
    more = f"-> {change.target}" if change.target else change.title
    return "\t".join(map(printable, (change.when, change.kind, change.url, more))).rstrip()


def feed(store: str, found: list[Change]) -> str:
    """Return changes as an Atom feed."""
    updated = found[0].when if found else utc(0)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<title>changes in {_xml(store)}</title>",
        f"<id>urn:crawl:{urls.key(store)}</id>",
        f"<updated>{updated}</updated>",
        "<author><name>crawler changes</name></author>",
    ]
    for change in found:
        lines += [
            "<entry>",
            f"<title>{change.kind}: {_xml(change.title or change.url)}</title>",
            f"<id>urn:crawl:{urls.key(f'{change.url} {change.kind} {change.when}')}</id>",
            f"<link href={quoteattr(change.target or change.url)}/>",
            f"<updated>{_xml(change.when)}</updated>",
            f"<category term={quoteattr(change.kind)}/>",
            "</entry>",
        ]
    return "\n".join([*lines, "</feed>"])


def _xml(text: str) -> str:
    return escape(_NOT_XML.sub(" ", text))
