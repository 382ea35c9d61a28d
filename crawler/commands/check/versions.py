"""The part of `crawler check` about older versions of pages: `history/`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from crawler.commands.check.findings import Problem, Scene
from crawler.store.history import HISTORY, RECORD, VERSION, content_of, record_of
from crawler.store.mount import Files
from crawler.store.reading import FOLDER
from crawler.store.store import KEY
from crawler.web import urls

Facts = dict[str, Any]


def of_versions(scene: Scene) -> Iterator[Problem]:
    """Return the problems with older versions: strange names, and records without the content that they are about."""
    hosts, bad = scene.sort(HISTORY, urls.is_host, "a host", (FOLDER,))
    yield from bad
    for host in hosts:
        keys, bad = scene.sort(f"{HISTORY}/{host}", KEY.fullmatch, "a page (a key)", (FOLDER,))
        yield from bad
        for key in keys:
            yield from _of_page(scene, f"{HISTORY}/{host}/{key}")


def _of_page(scene: Scene, place: str) -> Iterator[Problem]:
    names, bad = scene.sort(place, VERSION.fullmatch, "a version (the time at which it was fetched)")
    yield from bad
    records = {name.removesuffix(RECORD) for name in names if name.endswith(RECORD)}
    for version in sorted(records):
        wrong = _wrong(scene, place, version)
        if wrong:
            yield Problem("version", f"{place}/{version}{RECORD}", wrong)
    halves = {name.rpartition(".")[0] for name in names} - records
    scene.harmless["older versions that were being kept or pruned when a worker was killed"] += len(halves)


def _wrong(scene: Scene, place: str, version: str) -> str:
    """Return what is wrong with a version; nothing if it was pruned meanwhile."""
    record = record_of(scene.files, place, version)
    if record is None:
        return "not the record of a version" if scene.get(f"{place}/{version}{RECORD}") is not None else ""
    url = record.get("url")
    if not isinstance(url, str) or not urls.is_safe(url) or place != f"{HISTORY}/{urls.host(url)}/{urls.key(url)}":
        return f"it is of another page, {json.dumps(url)}"
    return _of_content(scene, record, content_of(record, place, version)) if record.get("sha224") else ""


def _of_content(scene: Scene, record: Facts, name: str) -> str:
    size = scene.files.size(name)
    if size is None:
        return f"{name} is missing" if scene.get(f"{name.rpartition('.')[0]}{RECORD}") is not None else ""
    if "file" in record and size != record.get("bytes"):
        return f"{name} has {size:,} of its {record.get('bytes')} bytes"
    wanted = record.get("sha224" if "file" in record else "html_sha224")
    if not scene.quick and wanted and measure(scene.files, name)[1] not in (None, wanted):
        return f"{name} is not what was stored"
    return ""


def measure(files: Files, name: str) -> tuple[int | None, str | None]:
    """Return the size and the hash of a file, which may be larger than the memory."""
    pieces = files.pieces(name)
    if pieces is None:
        return None, None
    size, found = 0, hashlib.sha224()
    for piece in pieces:
        size += len(piece)
        found.update(piece)
    return size, found.hexdigest()
