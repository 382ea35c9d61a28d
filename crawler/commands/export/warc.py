"""WARC files, which the tools of web archives read."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

from crawler import __version__
from crawler.commands.export.formats import PACKAGE, Columns, Format, Row, needed, when
from crawler.store.records import to_json

DESCRIPTION = "pages as stored by a crawl: decoded to UTF-8 text, without their HTTP headers"
EPOCH = "1970-01-01T00:00:00Z"  # for a page whose record has no valid time
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


class Warc(Format):
    """Two records per page: a `resource`, which is WARC's name for content without HTTP headers, and its `metadata`."""

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._warcio = needed("warcio.warcwriter", "warc")

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
        def record(kind: str, block: bytes, content_type: str, **more: str) -> Any:
            date = found["fetched"] if when(found["fetched"]) else EPOCH
            headers = {"WARC-Date": date, **more}
            return writer.create_warc_record(
                found["url"], kind, io.BytesIO(block), len(block), content_type, warc_headers_dict=headers
            )

        content_type = found["type"] if _TYPE.fullmatch(found["type"] or "") else "text/html"
        body = found.get("body")  # of a page that is no text
        if body is not None:
            page = record("resource", body, content_type)
        else:
            page = record("resource", (found["html"] or "").encode(), f"{content_type}; charset=utf-8")
        told = to_json({name: value for name, value in found.items() if name not in ("html", "body")})
        about = {"WARC-Refers-To": page.rec_headers.get_header("WARC-Record-ID")}
        writer.write_record(page)
        writer.write_record(record("metadata", told, "application/json", **about))
