"""Which pages are exported, and the row of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from crawler.commands.export.formats import Row
from crawler.errors import UsageError
from crawler.store import history
from crawler.store.records import from_utc, utc
from crawler.store.store import Page, Store, file_of
from crawler.web import patterns, urls

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
    versions: bool = False  # also older ones, a row each


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


def rows(store: Store, wanted: Selection, place: Place, after: str = "") -> Iterator[Row]:
    """Yield the rows of a page, none if it is not selected: the newest version, and before it perhaps all older ones.

    With older ones, only those that were fetched after a time.
    """
    if wanted.versions:
        yield from (found for found in _older(store, wanted, place) if str(found["fetched"]) > after)
    newest = _newest(store, wanted, place)
    if newest and (not after or str(newest["fetched"]) > after):
        yield newest


def _newest(store: Store, wanted: Selection, place: Place) -> Row | None:
    """Return the row of a page, or None if it is not a page or not selected."""
    if wanted.since and store.changed(*place) < from_utc(wanted.since):
        return None
    page = store.page_at(*place)
    if page is None or not _is_selected(page, wanted):
        return None
    name = file_of(page.record)
    text = store.text(page.url, page.record) if wanted.html else None
    length = None if "file" in page.record else store.text_size(page.url) if text is None else _length(text)
    return _with_body(store, wanted, _row(page, text, length, name, wanted.html), name)


def _older(store: Store, wanted: Selection, place: Place) -> Iterator[Row]:
    """Yield the rows of the older versions of a page, the oldest first."""
    folder, since = "/".join((history.HISTORY, *place)), from_utc(wanted.since)
    for version in history.versions_in(store.files, folder):
        if since and store.files.changed(f"{folder}/{version}{history.RECORD}") < since:
            continue
        page = _page(store, history.record_of(store.files, folder, version), folder)
        if page and _is_selected(page, wanted):
            name = history.content_of(page.record, folder, version)
            is_file = "file" in page.record
            data = store.files.get(name) if wanted.html and not is_file else None
            text = None if data is None else data.decode("utf-8", "replace")
            length = None if is_file else store.files.size(name)
            found = _row(page, text, length, name if is_file else None, wanted.html)
            yield _with_body(store, wanted, found, name if is_file else None)


def _page(store: Store, record: dict[str, Any] | None, folder: str) -> Page | None:
    """Return the page that the record of an older version is about; None for a redirect, and one in a wrong place."""
    url = record.get("url") if record else None
    if not record or not record.get("sha224") or not isinstance(url, str) or not urls.is_safe(url):
        return None
    return Page(url, record, store) if folder == history.folder(url) else None


def _with_body(store: Store, wanted: Selection, found: Row, file: str | None) -> Row:
    return {**found, "body": store.files.get(file) or b""} if wanted.files and file else found


def _is_selected(page: Page, wanted: Selection) -> bool:
    fetched = str(page.record.get("fetched") or "")
    if fetched < wanted.first or (wanted.last and not "" < fetched < wanted.last):
        return False
    return not wanted.match or patterns.compiled(wanted.match).search(page.url)


def _row(page: Page, text: str | None, length: int | None, file: str | None, with_html: bool) -> Row:
    """Return a record as a row whose types are certain: records may be edited by hand."""
    made = {
        **page.record,
        "host": page.host,
        "text_length": length,
        "file": file,
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


def _length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


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
