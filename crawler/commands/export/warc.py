"""WARC files, which the tools of web archives read."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from crawler import __version__
from crawler.commands.export.formats import PACKAGE, Columns, Format, Row, needed, when
from crawler.fetch.exchange import phrase
from crawler.store.records import to_json

DESCRIPTION = "pages as stored by a crawl: decoded to UTF-8 text, with the HTTP headers that their records keep"
EPOCH = "1970-01-01T00:00:00Z"  # for a page whose record has no valid time
CHANGED = frozenset({"content-type", "content-encoding", "transfer-encoding", "content-length"})  # by decoding
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+", re.ASCII)
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


class Warc(Format):
    """Two records per page: a `response`, made of what is kept of it, and its row as `metadata`."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._warcio = needed("warcio.warcwriter", "warc")
        self._headers = needed("warcio.statusandheaders", "warc").StatusAndHeaders

    def begin(self) -> bytes:
        """Return the record that describes the file."""
        info = {"software": f"{PACKAGE}/{__version__}", "format": "WARC File Format 1.1", "description": DESCRIPTION}
        return self._records(lambda writer: writer.write_record(writer.create_warcinfo_record(None, info)))

    def add(self, rows: list[Row]) -> bytes:
        """Return the records of a batch, one gzip member each, as WARC requires."""

        def write(writer: Any) -> None:
            for found in rows:
                self._write(writer, found)

        return self._records(write)

    def _records(self, write: Callable[[Any], None]) -> bytes:
        made = io.BytesIO()
        write(self._warcio.WARCWriter(made, gzip=True, warc_version="1.1"))
        return made.getvalue()

    def _write(self, writer: Any, found: Row) -> None:
        def record(kind: str, block: bytes, content_type: str, http: Any = None, **more: str) -> Any:
            date = found["fetched"] if when(found["fetched"]) else EPOCH
            headers = {"WARC-Date": date, **more}
            return writer.create_warc_record(
                found["url"], kind, io.BytesIO(block), len(block), content_type, headers, http_headers=http
            )

        saved: bytes | None = found.get("body")  # of a page that is no text
        body = (found["html"] or "").encode() if saved is None else saved
        status = found["status"] if 100 <= (found["status"] or 0) <= 999 else 200
        shown = _http_headers(found, len(body), saved is None)
        http = self._headers(f"{status} {phrase(status)}", shown, protocol="HTTP/1.1")
        page = record("response", body, "application/http; msgtype=response", http)
        told = to_json({name: value for name, value in found.items() if name not in ("html", "body")})
        about = {"WARC-Refers-To": page.rec_headers.get_header("WARC-Record-ID")}
        writer.write_record(page)
        writer.write_record(record("metadata", told, "application/json", **about))


def _http_headers(found: Row, length: int, is_text: bool) -> list[tuple[str, str]]:
    """Return the headers that fit what is kept of a page; what decoding changed is called X-Orig-..., as others do."""
    content_type = found["type"] if _TYPE.fullmatch(found["type"] or "") else "text/html"
    charset = "; charset=utf-8" if is_text else ""
    made = [("Content-Type", content_type + charset), ("Content-Length", str(length))]
    for name, value in found["headers"].items():
        if not _NAME.fullmatch(name):
            continue  # edited by hand
        shown = f"x-orig-{name}" if name in CHANGED else name
        made += [(shown, line) for line in value.splitlines()]
    return made
