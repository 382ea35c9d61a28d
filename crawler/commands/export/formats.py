"""File formats by extension: JSON Lines, CSV and Parquet."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from crawler.errors import UsageError

PACKAGE = "folder-crawler"
EXTRAS = {  # and what needs each
    "zst": ".jsonl.zst files",
    "parquet": ".parquet files",
    "warc": ".warc.gz files",
    "sql": "databases by address",
}
_encode = json.JSONEncoder(ensure_ascii=False).encode  # unescaped for grep; json.dumps would make an encoder per row
ROW_GROUP_SIZE = 32 << 20  # bytes in memory of a row group of Parquet: small groups are slow to read

# What spreadsheets take for the beginning of a formula; some skip a tab or a line break first, and some read the wide
# forms of Chinese and Japanese keyboards.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

SAFE_CSV: Any = {"action": "store_true", "help": "put an apostrophe before spreadsheet formulas"}

Row = dict[str, Any]  # by column: text, a number, a bool, a list of texts, or None
Columns = Mapping[str, str]  # int, float, bool, list or time (as `utc` writes it); any other is text


class Format:
    """The bytes of a file: its header, one chunk for each batch of rows, and its footer."""

    resumable = True  # whether more can be appended to a file that ends with a batch

    def __init__(self, columns: Columns) -> None:
        self.columns = columns

    def begin(self) -> bytes:
        """Return what comes before the first row."""
        return b""

    def add(self, rows: list[Row]) -> bytes:
        """Return the bytes of a batch."""
        raise NotImplementedError

    def end(self) -> bytes:
        """Return what comes after the last row."""
        return b""


def needed(module: str, extra: str) -> Any:
    """Return a module of an extra, or raise an error that says how to install the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{EXTRAS[extra]} need the extra {extra}, which is not installed; pip install '{PACKAGE}[{extra}]' "
            f"(crawler.pyz has it if it is built with EXTRAS={extra})"
        ) from error


class Jsonl(Format):
    """One line of JSON per row."""

    def add(self, rows: list[Row]) -> bytes:
        """Return the lines of a batch."""
        return "".join(f"{_encode(row)}\n" for row in rows).encode("utf-8", "replace")


class JsonlGzip(Jsonl):
    """The same with gzip, one member per batch; tools read them as one."""

    def begin(self) -> bytes:
        """Return an empty member: an empty file is not valid gzip."""
        return gzip.compress(b"", mtime=0)

    def add(self, rows: list[Row]) -> bytes:
        """Return the member of a batch."""
        return gzip.compress(super().add(rows), 6, mtime=0)


class JsonlZstd(Jsonl):
    """The same in one zstd frame: many readers silently stop after the first one."""

    resumable = False

    def __init__(self, columns: Columns) -> None:
        super().__init__(columns)
        self._compressor = _zstd().ZstdCompressor()

    def add(self, rows: list[Row]) -> bytes:
        """Return what the compressor has ready."""
        return bytes(self._compressor.compress(super().add(rows)))

    def end(self) -> bytes:
        """Return the rest, and the frame's end."""
        return bytes(self._compressor.flush())


def _zstd() -> Any:
    try:  # part of Python from 3.14 on
        return importlib.import_module("compression.zstd")
    except ImportError:
        return needed("backports.zstd", "zst")


class Csv(Format):
    """One line per row, quoted as RFC 4180 says; lines end as they do in Unix."""

    quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL

    def __init__(self, columns: Columns, delimiter: str = ",") -> None:
        super().__init__(columns)
        self._delimiter = delimiter

    def begin(self) -> bytes:
        """Return the names of the columns."""
        return self._lines([self.columns])

    def add(self, rows: list[Row]) -> bytes:
        """Return the lines of a batch."""
        return self._lines([plain(row.get(name)) for name in self.columns] for row in rows)

    def _lines(self, rows: Iterable[Iterable[Any]]) -> bytes:
        lines = _Lines()
        csv.writer(lines, delimiter=self._delimiter, quoting=self.quoting).writerows(rows)
        return "".join(lines).encode("utf-8", "replace")


class _Lines(list[str]):
    """What `csv` writes: it quotes a lone CR only if lines end with one, so the end is replaced afterwards."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


class SafeCsv(Csv):
    """The same for spreadsheets, which run a cell as a formula if it begins like one: such text gets an apostrophe.

    All text is quoted: where spreadsheets divide cells at another character, a formula may stand behind that one, too.
    """

    quoting = csv.QUOTE_NONNUMERIC

    def _lines(self, rows: Iterable[Iterable[Any]]) -> bytes:
        return super()._lines([_defused(cell) for cell in row] for row in rows)


def _defused(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def plain(value: Any) -> Any:
    """Return a value as text or a number: lists and bools as JSON."""
    return _encode(value) if isinstance(value, bool | list) else value


class Parquet(Format):
    """Batches in row groups; the footer says where those are, so a file without one cannot be resumed."""

    resumable = False

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
        """Return the header."""
        return self._drain.drained()

    def add(self, rows: list[Row]) -> bytes:
        """Return a row group as soon as there are enough rows for one."""
        timed = [row | {name: when(row[name]) for name in self._times} for row in rows]
        self._waiting.append(self._arrow.Table.from_pylist(timed, schema=self._schema))
        return self._group() if sum(table.nbytes for table in self._waiting) >= ROW_GROUP_SIZE else b""

    def end(self) -> bytes:
        """Return the last row group and the footer."""
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
    """A file object whose bytes are taken out as they are written."""

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
        """Return what was written since the last call."""
        found, self._parts = b"".join(self._parts), []
        return found


FORMATS: dict[str, Callable[[Columns], Format]] = {
    ".jsonl": Jsonl,
    ".jsonl.gz": JsonlGzip,
    ".jsonl.zst": JsonlZstd,
    ".csv": Csv,
    ".parquet": Parquet,
}


def format_for(extension: str, columns: Columns, safe_csv: bool, delimiter: str = ",") -> Format:
    """Return the format of a file; --safe-csv with any other than CSV is a mistake."""
    if extension == ".csv":
        return (SafeCsv if safe_csv else Csv)(columns, delimiter)
    if safe_csv:
        raise UsageError(f"--safe-csv is for .csv files, but this is {extension}; omit it")
    return FORMATS[extension](columns)


def when(fetched: str | None) -> datetime | None:
    """Return a time that `utc` wrote, or None if it is not one."""
    try:
        return datetime.strptime(fetched or "", "%Y-%m-%dT%H:%M:%S%z")
    except ValueError:
        return None
