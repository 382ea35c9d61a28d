"""Older versions of pages: `history/<host>/<key>/<fetched>.html` and `.json`, its record, written once.

The content of a page that is no text has its own extension instead of `.html`. A version is kept before the new one
takes its name in htmls/ or files/ and in links/, the record after the content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from crawler.errors import Misshapen, StoreError
from crawler.store.directories import folder_of, leaf_of
from crawler.store.mount import Files
from crawler.store.records import from_utc, to_json, utc
from crawler.store.store import KEY, Store, file_of, path_of
from crawler.store.stream import Stream
from crawler.web import urls

HISTORY = "history"
HTML, RECORD = ".html", ".json"
VERSION = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)(\.[0-9a-z]{1,8})")  # no file has the extension json or html


def folder(name: str) -> str:
    """Return the folder of the older versions of what has a record under this name."""
    return path_of(HISTORY, name)


def keep(store: Store, name: str, record: Mapping[str, Any]) -> None:
    """Keep the stored version of a page, with its record as it is; nothing is written twice."""
    files, place = store.files, f"{folder(name)}/{_named(record)}"
    if files.size(f"{place}{RECORD}") is not None:
        return
    if file := file_of(record):
        _copy(files, file, f"{place}{_extension(record)}")
    elif record.get("sha224") and (html := store.text_bytes(name)) is not None:
        files.put(f"{place}{HTML}", html)
    files.put(f"{place}{RECORD}", to_json(dict(record)))


def _copy(files: Files, name: str, new: str) -> None:
    """Copy a file a piece at a time: it may be larger than the memory."""
    pieces = files.pieces(name)
    if pieces is None:
        return
    copy = Stream(files, folder_of(new))
    try:
        for piece in pieces:
            copy.write(piece)
        copy.finish()
        copy.publish(leaf_of(new))
    except BaseException:
        with suppress(StoreError):
            copy.discard()
        raise


def _named(record: Mapping[str, Any]) -> str:
    return utc(from_utc(str(record.get("fetched"))))


def _extension(record: Mapping[str, Any]) -> str:
    """Return the extension of a version's content."""
    file = file_of(record)
    return f".{file.rpartition('.')[2]}" if file else HTML


def content_of(record: Mapping[str, Any], place: str, version: str) -> str:
    """Return the name in the store of the content of a version, given the folder of its page."""
    return f"{place}/{version}{_extension(record)}"


def versions(files: Files, name: str) -> list[str]:
    """Return when the older versions of a page were fetched, the oldest first."""
    return versions_in(files, folder(name))


def versions_in(files: Files, place: str) -> list[str]:
    """Return the same for the folder of a page."""
    return sorted(version for version, extensions in _listed(files, place).items() if RECORD in extensions)


def _listed(files: Files, place: str) -> dict[str, list[str]]:
    """Return the extensions of the files of each version, from one listing."""
    found: dict[str, list[str]] = {}
    with suppress(Misshapen):
        for parts in filter(None, map(VERSION.fullmatch, files.names(place))):
            found.setdefault(parts[1], []).append(parts[2])
    return found


def files_of(files: Files, record: str) -> list[str]:
    """Return the names in the store of the files of a version, given that of its record."""
    place, version = folder_of(record), leaf_of(record).removesuffix(RECORD)
    return [
        f"{place}/{version}{extension}" for extension in _listed(files, place).get(version, ()) if extension != RECORD
    ]


def prune(files: Files, name: str, most: int | str, age: float | None, now: float) -> int:
    """Remove the oldest versions of a page beyond a number, and those replaced longer ago than `age`; return how many.

    A version was replaced when the next one was fetched; the last one of them has just been. The record goes first: a
    kill leaves content without one, which the next call removes.
    """
    found = _listed(files, folder(name))
    known = sorted(version for version, extensions in found.items() if RECORD in extensions)
    excess = known[: max(len(known) - most, 0)] if isinstance(most, int) else []
    old = [it for it, following in pairwise(known) if age and from_utc(following) < now - age]
    doomed = {*excess, *old}
    halves = [it for it, extensions in found.items() if RECORD not in extensions and known and it < known[-1]]
    for version in sorted({*doomed, *halves}):
        for extension in sorted(found[version], key=RECORD.__ne__):
            files.drop(f"{folder(name)}/{version}{extension}")
    return len(doomed)


def read(store: Store, name: str, version: str) -> tuple[dict[str, Any], str] | None:
    """Return the record and the text of an older version, which is empty if it is no text; None if it is gone."""
    record = record_of(store.files, folder(name), version)
    if record is None:
        return None
    html = None if "file" in record else store.files.get(content_of(record, folder(name), version))
    return record, (html or b"").decode("utf-8", "replace")


def record_of(files: Files, place: str, version: str) -> dict[str, Any] | None:
    """Return the record of a version in the folder of its page; None if it is gone or no record."""
    return _json(files.get(f"{place}/{version}{RECORD}"))


def pages(files: Files, host: str) -> Iterator[str]:
    """Yield the keys of a host's pages that have older versions."""
    with suppress(Misshapen):
        yield from filter(KEY.fullmatch, files.each_name(f"{HISTORY}/{host}"))


def records(store: Store, host: str) -> Iterator[dict[str, Any]]:
    """Yield the records of all older versions of a host's pages, page by page, the oldest first."""
    for key in sorted(pages(store.files, host)):
        for version in versions_in(store.files, f"{HISTORY}/{host}/{key}"):
            record = record_of(store.files, f"{HISTORY}/{host}/{key}", version)
            if record is not None:
                yield record


def count(files: Files, host: str) -> int:
    """Return how many older versions of a host's pages there are, from a listing for each page that has some."""
    return sum(len(versions_in(files, f"{HISTORY}/{host}/{key}")) for key in pages(files, host))


def hosts(files: Files) -> list[str]:
    """Return the hosts that have older versions, sorted."""
    return sorted(filter(urls.is_host, files.names(HISTORY)))


def _json(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
