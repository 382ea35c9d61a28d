"""Older versions of pages: `history/<host>/<key>/<fetched>.html` and `.json`, its record, written once.

A version is kept before the new one takes its name in htmls/ and links/, the record after the html.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from crawler.errors import Misshapen
from crawler.store.mount import Files
from crawler.store.records import from_utc, to_json, utc
from crawler.store.store import KEY, Store, path_of
from crawler.web import urls

HISTORY = "history"
HTML, RECORD = ".html", ".json"
VERSION = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\.(?:html|json)")


def folder(name: str) -> str:
    """Return the folder of the older versions of what has a record under this name."""
    return path_of(HISTORY, name)


def keep(store: Store, name: str, record: Mapping[str, Any]) -> None:
    """Keep the stored version of a page, with its record as it is; nothing is written twice."""
    files, place = store.files, f"{folder(name)}/{_named(record)}"
    html = store.text_bytes(name) if record.get("sha224") else None
    if files.size(f"{place}{RECORD}") is not None:
        return
    if html is not None:
        files.put(f"{place}{HTML}", html)
    files.put(f"{place}{RECORD}", to_json(dict(record)))


def _named(record: Mapping[str, Any]) -> str:
    return utc(from_utc(str(record.get("fetched"))))


def versions(files: Files, name: str) -> list[str]:
    """Return when the older versions of a page were fetched, the oldest first."""
    return _versions_in(files, folder(name))


def _versions_in(files: Files, place: str) -> list[str]:
    with suppress(Misshapen):
        return sorted({found[1] for it in files.names(place) if (found := VERSION.fullmatch(it)) and it[-5:] == RECORD})
    return []


def prune(files: Files, name: str, most: int | str, age: float | None, now: float) -> int:
    """Remove the oldest versions of a page beyond a number, and those replaced longer ago than `age`; return how many.

    A version was replaced when the next one was fetched; the last one of them has just been.
    """
    known = versions(files, name)
    excess = known[: max(len(known) - most, 0)] if isinstance(most, int) else []
    old = [it for it, following in pairwise(known) if age and from_utc(following) < now - age]
    for version in {*excess, *old}:
        files.drop(f"{folder(name)}/{version}{HTML}")
        files.drop(f"{folder(name)}/{version}{RECORD}")
    return len({*excess, *old})


def read(store: Store, name: str, version: str) -> tuple[dict[str, Any], str] | None:
    """Return the record and the text of an older version; None if it is gone."""
    record = _json(store.files.get(f"{folder(name)}/{version}{RECORD}"))
    html = store.files.get(f"{folder(name)}/{version}{HTML}")
    return None if record is None else (record, (html or b"").decode("utf-8", "replace"))


def pages(files: Files, host: str) -> Iterator[str]:
    """Yield the keys of a host's pages that have older versions."""
    with suppress(Misshapen):
        yield from filter(KEY.fullmatch, files.each_name(f"{HISTORY}/{host}"))


def records(store: Store, host: str) -> Iterator[dict[str, Any]]:
    """Yield the records of all older versions of a host's pages, page by page, the oldest first."""
    for key in sorted(pages(store.files, host)):
        for version in _versions_in(store.files, f"{HISTORY}/{host}/{key}"):
            record = _json(store.files.get(f"{HISTORY}/{host}/{key}/{version}{RECORD}"))
            if record is not None:
                yield record


def hosts(files: Files) -> list[str]:
    """Return the hosts that have older versions, sorted."""
    return sorted(filter(urls.is_host, files.names(HISTORY)))


def _json(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
