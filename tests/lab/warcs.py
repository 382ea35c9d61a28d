"""WARC files as the tools of others read them, up to where they are cut off."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Found:
    """A record: its type, its headers, its HTTP head (status and headers) and its body, decoded."""

    kind: str
    headers: dict[str, str]
    status: str
    http: dict[str, str]
    body: bytes

    @property
    def url(self) -> str:
        return self.headers.get("WARC-Target-URI", "")


def segments(root: Path) -> list[Path]:
    """The WARC files of a store."""
    return sorted((root / "warcs").glob("*.warc.gz"))


def by_warcio(path: Path) -> list[Found]:
    """All records, with bodies as a browser would see them; digests are checked."""
    warcio: Any = importlib.import_module("warcio.archiveiterator")
    found = []
    with path.open("rb") as file:
        try:
            for record in warcio.ArchiveIterator(file, check_digests="raise"):
                http = record.http_headers
                body = record.content_stream().read()
                found.append(
                    Found(
                        record.rec_type,
                        dict(record.rec_headers.headers),
                        http.statusline if http else "",
                        {name.lower(): value for name, value in http.headers} if http else {},
                        body,
                    )
                )
        except (EOFError, importlib.import_module("warcio.exceptions").ArchiveLoadFailed):
            pass  # cut off
    return found


def by_fastwarc(path: Path) -> list[tuple[str, str]]:
    """Type and URL of each whole record."""
    warc: Any = importlib.import_module("fastwarc.warc")
    found = []
    with path.open("rb") as file:
        for record in warc.ArchiveIterator(file, parse_http=True):
            record.reader.read()
            found.append((record.headers["WARC-Type"], record.headers.get("WARC-Target-URI") or ""))
    return found


def index(path: Path) -> list[tuple[str, str, dict[str, str]]]:
    """The lines of a CDXJ file: key, timestamp and facts."""
    lines = [line.split(" ", 2) for line in path.read_text("ascii").splitlines()]
    return [(key, stamp, json.loads(facts)) for key, stamp, facts in lines]


def at(path: Path, offset: int, length: int) -> Found:
    """The record that an index says is there."""
    part = path.with_name(f".part-{offset}")
    with path.open("rb") as file:
        file.seek(offset)
        part.write_bytes(file.read(length))
    (found,) = by_warcio(part)
    part.unlink()
    return found
