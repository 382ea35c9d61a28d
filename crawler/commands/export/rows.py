"""Which pages are exported, and the row of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from crawler.commands.export.formats import Row
from crawler.errors import UsageError
from crawler.store.records import from_utc, utc
from crawler.store.store import Page, Store, file_of
from crawler.web import patterns

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
    "file": "text",
    "key": "key",
}
HTML_COLUMN = {"html": "text"}
MAX_TEXT = 16_000  # characters of a title or the like: a TEXT of MySQL holds as many
BATCH_ROWS, BATCH_SIZE = 2_000, 16 << 20  # kept in memory, and repeated after a kill
MARGIN = 600.0  # seconds: more than listings are stale, flushes take and clocks of a mount's servers differ

Place = tuple[str, str]
Missing = Callable[[str, list[str]], list[str]]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which pages, and whether with their text; times are as `utc` writes them, and empty for no limit."""

    hosts: tuple[str, ...] = ()  # sorted
    since: str = ""
    first: str = ""
    last: str = ""
    match: str = ""
    html: bool = False
    files: bool = False  # also the content of pages that are no text
    safe_csv: bool = False


def next_since(store: Store) -> str:
    """Return the time for `--since` of the next export: no page that this export misses is older.

    It is the time of the folder that changes with every heartbeat, by the store's clock. At worst it is too early, and
    some pages are exported twice. On sshfs, which does not tell when a file got its name, files that were copied with
    their old times may be missed.
    """
    return utc(max(store.files.changed("workers") - MARGIN, 0.0))


def read_time(flag: str, given: str | None) -> str:
    """Return a time in the format of records."""
    if not given:
        return ""
    try:
        time = datetime.fromisoformat(given)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{flag} {given!r} is not a time; use 2026-11-17 or 2026-11-17T09:00:00Z (UTC)") from error
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def places(store: Store, wanted: Selection, missing: Missing) -> Iterator[Place]:
    """Return host and key of each record that may be selected and is missing in the output, in a stable order."""
    since = from_utc(wanted.since)
    for host in wanted.hosts or store.hosts():
        if not since or store.changed(host) >= since:
            yield from ((host, key) for key in missing(host, store.keys("links", host)))


def row(store: Store, wanted: Selection, place: Place) -> Row | None:
    """Return the row of a page, or None if it is not a page or not selected."""
    if wanted.since and store.changed(*place) < from_utc(wanted.since):
        return None
    page = store.page_at(*place)
    if page is None or not _is_selected(page, wanted):
        return None
    found, name = _row(store, page, wanted.html), file_of(page.record)
    return {**found, "body": store.files.get(name) or b""} if wanted.files and name else found


def _is_selected(page: Page, wanted: Selection) -> bool:
    fetched = str(page.record.get("fetched") or "")
    if fetched < wanted.first or (wanted.last and not "" < fetched < wanted.last):
        return False
    return not wanted.match or patterns.compiled(wanted.match).search(page.url)


def _row(store: Store, page: Page, with_html: bool) -> Row:
    """Return a record as a row whose types are certain: records may be edited by hand."""
    text = store.text(page.url) if with_html else None
    made = {
        **page.record,
        "host": page.host,
        "text_length": _text_length(store, page, text),
        "file": file_of(page.record),
        "link_count": len(page.links),
        "key": page.key,
    }
    found: Row = {name: (_whole if kind == "int" else _text)(made.get(name)) for name, kind in COLUMNS.items()}
    found["links"] = page.links
    found["headers"] = _headers(page.record.get("headers"))
    return {**found, "html": text and clean(text)} if with_html else found


def _headers(value: Any) -> dict[str, str]:
    """Return the headers of a record; none if it was written by an older version."""
    pairs = value.items() if isinstance(value, dict) else ()
    return {clean(name): clean(text) for name, text in pairs if isinstance(text, str)}


def _text_length(store: Store, page: Page, text: str | None) -> int | None:
    if "file" in page.record:
        return None
    return store.text_size(page.url) if text is None else len(text.encode("utf-8", "replace"))


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 63 else None


def _text(value: Any) -> str | None:
    return clean(value[:MAX_TEXT]) if isinstance(value, str) else None


def clean(text: str) -> str:
    """Return text that every database accepts: no NUL, no lone surrogate."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split rows into batches that fit into memory, however large the pages are."""
    batch: list[Row] = []
    size = 0
    for found in rows:
        batch.append(found)
        size += 1000 + 100 * len(found["links"]) + len(found.get("html") or "") + len(found.get("body") or b"")
        if len(batch) >= BATCH_ROWS or size >= BATCH_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
