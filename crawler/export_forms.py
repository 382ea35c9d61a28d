"""The forms of a file: rows to the bytes of JSON Lines, CSV, Parquet and WARC."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Protocol

from crawler.errors import UsageError
from crawler.export_rows import COLUMNS, WHOLE, Row
from crawler.store import to_json
from crawler.version import __version__

PACKAGE = "folder-crawler"
SAID = "pages as a crawl has stored them: decoded, as UTF-8 text, without the headers that came over the wire"
EPOCH = "1970-01-01T00:00:00Z"  # for a page whose record does not tell when it was fetched
GROUP = 32 << 20  # bytes of a row group of Parquet in memory: small ones make it slow to read
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)


class Form(Protocol):
    """How a file begins, what a batch of rows adds to it, and how it ends."""

    goes_on: bool  # whether more can be added to a file that was cut off behind a batch

    def begin(self) -> bytes:
        """What stands before the first row."""

    def add(self, rows: list[Row]) -> bytes:
        """A batch."""

    def end(self) -> bytes:
        """What stands behind the last row."""


def needed(module: str, extra: str) -> Any:
    """A module that only some exports need, or one sentence about how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this needs the module {error.name or module}, which is not installed; pip install '{PACKAGE}[{extra}]' "
            f"(crawler.pyz has it if it is built with EXTRAS={extra})"
        ) from error


class JsonLines:
    """A line of JSON for each page; `links` is the list of them."""

    goes_on = True

    def __init__(self, html: bool) -> None:
        self.html = html

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def add(self, rows: list[Row]) -> bytes:
        """A line each."""
        return b"".join(map(to_json, rows))

    def end(self) -> bytes:
        """Nothing."""
        return b""


class GzippedJsonLines(JsonLines):
    """The same, each batch a gzip member of its own: tools read them as one."""

    def begin(self) -> bytes:
        """An empty member: a file of no bytes would not be gzip."""
        return gzip.compress(b"", mtime=0)

    def add(self, rows: list[Row]) -> bytes:
        """A member."""
        return gzip.compress(super().add(rows), 6, mtime=0)


class ZstdJsonLines(JsonLines):
    """The same in one zstd frame: many readers stop behind the first one without a word, so none is begun later."""

    goes_on = False

    def __init__(self, html: bool) -> None:
        super().__init__(html)
        self._compressor = _zstd().ZstdCompressor()

    def add(self, rows: list[Row]) -> bytes:
        """What the compressor does not keep for later."""
        return bytes(self._compressor.compress(super().add(rows)))

    def end(self) -> bytes:
        """The rest, and the frame's end."""
        return bytes(self._compressor.flush())


def _zstd() -> Any:
    """Python has it from 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return needed("backports.zstd", "zst")


class Csv:
    """A line for each page, by RFC 4180: what holds a comma, a quote or the end of a line is quoted."""

    goes_on = True

    def __init__(self, html: bool) -> None:
        self.columns = _columns(html)

    def begin(self) -> bytes:
        """The names of the columns."""
        return self._lines([{name: name for name in self.columns}])

    def add(self, rows: list[Row]) -> bytes:
        """A line each."""
        return self._lines(rows)

    def end(self) -> bytes:
        """Nothing."""
        return b""

    def _lines(self, rows: Iterable[Row]) -> bytes:
        text = io.StringIO(newline="")
        csv.DictWriter(text, self.columns, extrasaction="ignore").writerows(rows)
        return text.getvalue().encode()


class Parquet:
    """Batches in row groups; what tells where those are stands at the end, so no half file can be gone on with."""

    goes_on = False

    def __init__(self, html: bool) -> None:
        self._arrow = needed("pyarrow", "parquet")
        self._drain = _Drain()
        self._schema = self._arrow.schema([(name, self._type(name)) for name in _columns(html)])
        parquet = needed("pyarrow.parquet", "parquet")
        self._writer = parquet.ParquetWriter(self._drain, self._schema, compression="zstd")
        self._waiting: list[Any] = []

    def begin(self) -> bytes:
        """The first bytes of the form."""
        return self._drain.drained()

    def add(self, rows: list[Row]) -> bytes:
        """A row group, when enough are together for one."""
        timed = [{**found, "fetched": when(found["fetched"])} for found in rows]
        self._waiting.append(self._arrow.Table.from_pylist(timed, schema=self._schema))
        return self._group() if sum(table.nbytes for table in self._waiting) >= GROUP else b""

    def end(self) -> bytes:
        """The last row group, and where all of them are."""
        last = self._group() if self._waiting else b""
        self._writer.close()
        return last + self._drain.drained()

    def _group(self) -> bytes:
        self._writer.write_table(self._arrow.concat_tables(self._waiting))
        self._waiting = []
        return self._drain.drained()

    def _type(self, name: str) -> Any:
        if name == "fetched":
            return self._arrow.timestamp("ms", tz="UTC")
        return self._arrow.int64() if name in WHOLE else self._arrow.string()


class _Drain(io.RawIOBase):
    """A file that only counts, and gives away what was written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        self._written += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._written

    def drained(self) -> bytes:
        """What was written since the last time."""
        found, self._parts = b"".join(self._parts), []
        return found


class Warc:
    """Two records for each page: a `resource`, which is what WARC calls a page without what came over the wire, and a
    `metadata` with its row. A `response` would have to make up headers.
    """

    goes_on = True

    def __init__(self, html: bool) -> None:
        self._warcio = needed("warcio.warcwriter", "warc")

    def begin(self) -> bytes:
        """What this file is."""
        info = {"software": f"{PACKAGE}/{__version__}", "format": "WARC File Format 1.1", "description": SAID}
        return self._records(lambda writer: writer.write_record(writer.create_warcinfo_record(None, info)))

    def add(self, rows: list[Row]) -> bytes:
        """The records of each page, each a gzip member of its own, as WARC asks for."""

        def write(writer: Any) -> None:
            for found in rows:
                self._write(writer, found)

        return self._records(write)

    def end(self) -> bytes:
        """Nothing."""
        return b""

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
        page = record("resource", (found["html"] or "").encode(), f"{content_type}; charset=utf-8")
        told = to_json({name: value for name, value in found.items() if name != "html"})
        about = {"WARC-Refers-To": page.rec_headers.get_header("WARC-Record-ID")}
        writer.write_record(page)
        writer.write_record(record("metadata", told, "application/json", **about))


FORMS: dict[str, Callable[[bool], Form]] = {
    ".jsonl": JsonLines,
    ".jsonl.gz": GzippedJsonLines,
    ".jsonl.zst": ZstdJsonLines,
    ".csv": Csv,
    ".parquet": Parquet,
    ".warc.gz": Warc,
}


def when(fetched: str | None) -> datetime | None:
    """A time that `utc` wrote; None if it is not one."""
    try:
        return datetime.strptime(fetched or "", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None


def _columns(html: bool) -> tuple[str, ...]:
    return (*COLUMNS, "html") if html else COLUMNS
