"""What is exported: which pages of a store, and the row that is made of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from crawler.commands.export.formats import Row
from crawler.store.records import from_utc, utc
from crawler.store.store import Page, Store

COLUMNS = {
    "url": "text",
    "host": "text",
    "title": "text",
    "fetched": "time",
    "status": "int",
    "text_length": "int",
    "link_count": "int",
    "type": "text",
    "charset": "text",
    "depth": "int",
    "bytes": "int",
    "sha224": "text",
    "key": "key",
}
HTML = {"html": "text"}
LONGEST = 16_000  # characters of a title or the like: as many as a TEXT of MySQL always holds
ROWS, WEIGHT = 2_000, 16 << 20  # of a batch: so much is in memory, and is done again after a kill
MARGIN = 600.0  # seconds: more than listings are old, flushes take and clocks of one mount's servers differ

Place = tuple[str, str]
Lacking = Callable[[str, list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pages, and whether with their text; times as `utc` writes them, nothing for no limit."""

    hosts: tuple[str, ...] = ()  # sorted
    since: str = ""
    first: str = ""
    last: str = ""
    match: str = ""
    html: bool = False


def mark(store: Store) -> str:
    """A time by the mount's clock which no page that this export does not find is older than.

    It is read off the folder that changes with every pulse, so nothing is written and no machine's clock counts. At
    worst it is too early, and some pages are exported twice. Not promised on sshfs, which does not tell when a file
    came to its name: that files copied there with their old times are found.
    """
    return utc(max(store.files.changed("workers") - MARGIN, 0.0))


def places(store: Store, wanted: Selection, lacking: Lacking) -> Iterator[Place]:
    """The host and key of each record that may be wanted, in a stable order; `lacking` leaves out what is done."""
    since = from_utc(wanted.since)
    for host in wanted.hosts or store.hosts():
        if not since or store.changed(host) >= since:
            yield from ((host, key) for key in lacking(host, store.keys("links", host)))


def row(store: Store, wanted: Selection, place: Place) -> Row | None:
    """The row of a page; None if it is none, or not wanted."""
    if wanted.since and store.changed(*place) < from_utc(wanted.since):
        return None
    page = store.page_at(*place)
    return _row(store, page, wanted.html) if page and _is_wanted(page, wanted) else None


def _is_wanted(page: Page, wanted: Selection) -> bool:
    fetched = str(page.record.get("fetched") or "")
    if fetched < wanted.first or (wanted.last and not "" < fetched < wanted.last):
        return False
    return not wanted.match or re.search(wanted.match, page.url) is not None


def _row(store: Store, page: Page, with_html: bool) -> Row:
    """What a record tells, in types that a table can rely on: it may have been made by hand."""
    text = store.text(page.url) if with_html else None
    made = {
        **page.record,
        "host": page.host,
        "text_length": store.text_size(page.url) if text is None else len(text.encode("utf-8", "replace")),
        "link_count": len(page.links),
        "key": page.key,
    }
    found: Row = {name: (_whole if kind == "int" else _text)(made.get(name)) for name, kind in COLUMNS.items()}
    found["links"] = page.links
    return {**found, "html": text and _clean(text)} if with_html else found


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _text(value: Any) -> str | None:
    return _clean(value[:LONGEST]) if isinstance(value, str) else None


def _clean(text: str) -> str:
    """Text that every database takes: no NUL, no lone surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in lists that fit into memory, however large the pages are."""
    batch: list[Row] = []
    weight = 0
    for found in rows:
        batch.append(found)
        weight += 1000 + 100 * len(found["links"]) + len(found.get("html") or "")
        if len(batch) >= ROWS or weight >= WEIGHT:
            yield batch
            batch, weight = [], 0
    if batch:
        yield batch
