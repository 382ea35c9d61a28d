"""Rows to the bytes of a file, by its ending: JSON Lines, CSV and Parquet."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from crawler.errors import UsageError

PACKAGE = "folder-crawler"
_encode = json.JSONEncoder(ensure_ascii=False).encode  # letters that grep finds; json.dumps would make one for each row
GROUP = 32 << 20  # bytes of a row group of Parquet in memory: small ones make it slow to read

Row = dict[str, Any]  # text, numbers, true or false, lists of text, or None, by column
Columns = Mapping[str, str]  # the kind of each column: int, float, bool, list, time (as `utc` writes it); else text


class Form:
    """How a file begins, what a batch of rows adds to it, and how it ends: most have nothing before and behind."""

    goes_on = True  # whether more can be added to a file that was cut off behind a batch

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def begin(self) -> bytes:
        """What stands before the first row."""
        return b""

    def add(self, rows: list[Row]) -> bytes:
        """A batch."""
        raise NotImplementedError

    def end(self) -> bytes:
        """What stands behind the last row."""
        return b""


def needed(module: str, extra: str) -> Any:
    """A module that only some forms need, or one sentence about how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"this needs the module {error.name or module}, which is not installed; pip install '{PACKAGE}[{extra}]' "
            f"(crawler.pyz has it if it is built with EXTRAS={extra})"
        ) from error


class JsonLines(Form):
    """A line of JSON for each row, with all that is in it."""

    def add(self, rows: list[Row]) -> bytes:
        """A line each."""
        return "".join(f"{_encode(row)}\n" for row in rows).encode("utf-8", "replace")


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

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
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


class Csv(Form):
    """A line for each row, by RFC 4180: what holds a comma, a quote or any end of a line is quoted."""

    def begin(self) -> bytes:
        """The names of the columns."""
        return self._lines([self.columns])

    def add(self, rows: list[Row]) -> bytes:
        """A line each."""
        return self._lines([plain(row.get(name)) for name in self.columns] for row in rows)

    def _lines(self, rows: Iterable[Iterable[Any]]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)
        return text.getvalue().encode("utf-8", "replace")


def plain(value: Any) -> Any:
    """A value for cells that know only text and numbers: lists and truth values as JSON has them."""
    return _encode(value) if isinstance(value, bool | list) else value


class Parquet(Form):
    """Batches in row groups; what tells where those are stands at the end, so no half file can be gone on with."""

    goes_on = False

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._arrow = needed("pyarrow", "parquet")
        self._drain = _Drain()
        self._times = [name for name, kind in columns.items() if kind == "time"]
        self._schema = self._arrow.schema([(name, self._type(kind)) for name, kind in columns.items()])
        parquet = needed("pyarrow.parquet", "parquet")
        self._writer = parquet.ParquetWriter(self._drain, self._schema, compression="zstd")
        self._waiting: list[Any] = []

    def begin(self) -> bytes:
        """The first bytes of the form."""
        return self._drain.drained()

    def add(self, rows: list[Row]) -> bytes:
        """A row group, when enough are together for one."""
        timed = [row | {name: when(row[name]) for name in self._times} for row in rows]
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

    def _type(self, kind: str) -> Any:
        arrow, text = self._arrow, self._arrow.string()
        kinds = {"int": arrow.int64(), "float": arrow.float64(), "bool": arrow.bool_(), "list": arrow.list_(text)}
        return kinds.get(kind, arrow.timestamp("ms", tz="UTC") if kind == "time" else text)


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


FORMS: dict[str, Callable[[Columns], Form]] = {
    ".jsonl": JsonLines,
    ".jsonl.gz": GzippedJsonLines,
    ".jsonl.zst": ZstdJsonLines,
    ".csv": Csv,
    ".parquet": Parquet,
}


def when(fetched: str | None) -> datetime | None:
    """A time that `utc` wrote; None if it is not one."""
    try:
        return datetime.strptime(fetched or "", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
