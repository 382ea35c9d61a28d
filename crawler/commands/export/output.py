"""Output files: named OUT.part until they are complete."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from crawler.commands.export.formats import FORMATS, Columns, Format, Row, format_for, plain
from crawler.errors import DiskFull, StoreAway, UsageError
from crawler.store.reading import DISK_FULL, FOLDER, GONE, shape_of

SQLITE, CSV = ".sqlite", ".csv"
SQL_KINDS = {"int": "INTEGER", "float": "REAL", "bool": "INTEGER", "key": "TEXT NOT NULL PRIMARY KEY"}


class Output(Protocol):
    """Takes rows: a file of some format, or a database."""

    def add(self, rows: list[Row]) -> None:
        """Write a batch."""

    def finish(self) -> None:
        """Complete it."""

    def close(self) -> None:
        """Close it; what is incomplete and cannot be resumed is removed."""


def resolved(out: str) -> Path:
    """Return where a symbolic link leads: its target is replaced, not the link."""
    return Path(os.path.realpath(out) if os.path.islink(out) else out)


def ending(out: Path, endings: Iterable[str]) -> str:
    """Return the extension that says how a file is written."""
    for known in endings:
        if out.name.endswith(known):
            return known
    raise UsageError(f"{out} has no known extension; use one of {' '.join(endings)}")


def stop_at(out: Path, force: bool) -> None:
    """Raise an error for a file that exists, unless it may be replaced."""
    shape = shape_of(out)
    if shape == FOLDER:
        raise UsageError(f"{out} is a folder; give a file name")
    if shape and not force:
        raise UsageError(f"{out} already exists; choose another file, or --force to replace it")


def part_of(out: Path) -> Path:
    """Return the name of a file until it is complete."""
    return out.with_name(f"{out.name}.part")


def busy(part: Path) -> UsageError:
    return UsageError(f"another command is writing {part}; wait for it, or choose another file")


@contextmanager
def trouble(path: Path) -> Iterator[None]:
    """Turn errors of writing a file into ours."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in DISK_FULL:
            raise DiskFull(f"no space left for {path} ({why}); free some, and run the same command again") from error
        if getattr(error, "errno", None) in GONE:
            raise StoreAway(f"{path} cannot be written ({why}); is the mount still there?") from error
        if code == sqlite3.SQLITE_BUSY:
            raise busy(path) from error
        raise UsageError(f"{path} cannot be written ({why}); check it and its folder, or choose another") from error


def open_output(
    out: Path, table: str, columns: Columns, force: bool, safe_csv: bool = False, delimiter: str = ","
) -> Output:
    """Return a new output file, in the format that its extension names."""
    extension = ending(out, (*FORMATS, SQLITE))
    if extension != SQLITE or safe_csv:
        return OutputFile(out, format_for(extension, columns, safe_csv, delimiter), force)
    with trouble(out):
        stop_at(out, force)
    return SqliteFile(out, table, columns)


class OutputFile:
    """A file that is being written; `finish` gives it its name."""

    def __init__(self, out: Path, format: Format, force: bool) -> None:
        self.out, self.format, self.part, self.is_complete = out, format, part_of(out), False
        self.journal = out.with_name(f"{out.name}.part.json")  # how far an export is
        with trouble(self.part):
            stop_at(out, force)
            self._file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            self._lock()
            with trouble(self.part):
                self._begin(force)
        except BaseException:
            os.close(self._file)
            raise

    @property
    def resumable(self) -> bool:
        """Return whether the same command can resume the part if this one ends early."""
        return False

    def _lock(self) -> None:
        """Allow one writer at a time; no promise between machines on mounts where locks do not exclude."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise busy(self.part) from error
        except OSError:
            pass  # a disk without locks
        if not self.part.exists():  # renamed to OUT while we waited
            raise busy(self.part)

    def _begin(self, force: bool) -> None:
        """Start from the beginning, whatever a killed command has left."""
        os.ftruncate(self._file, 0)
        self.journal.unlink(missing_ok=True)
        self._write(self.format.begin())

    def add(self, rows: list[Row]) -> None:
        """Add a batch."""
        data = self.format.add(rows)
        with trouble(self.part):
            self._write(data)

    def finish(self) -> None:
        """Give the file its name."""
        data = self.format.end()
        with trouble(self.part):
            self._write(data)
            os.fsync(self._file)
            self.part.replace(self.out)
            self.is_complete = True
            self.journal.unlink(missing_ok=True)

    def close(self) -> None:
        """Close it; a part that cannot be resumed is removed."""
        if not (self.is_complete or self.resumable):
            with suppress(OSError):
                self.part.unlink()
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]


class Stdout:
    """Standard output, for the next command of a pipe."""

    def __init__(self, format: Format) -> None:
        self.format = format
        self._write(format.begin())

    def add(self, rows: list[Row]) -> None:
        """Write a batch."""
        self._write(self.format.add(rows))

    def finish(self) -> None:
        """Write the end."""
        self._write(self.format.end())

    def close(self) -> None:
        """Do nothing: it stays open."""

    def _write(self, data: bytes) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class SqliteFile:
    """A table in a new SQLite file, or with `grows` in one that may exist."""

    def __init__(self, out: Path, name: str, columns: Columns, grows: bool = False) -> None:
        self.out, self.name, self.columns, self.grows, self.is_complete = out, name, columns, grows, False
        with trouble(out):
            self.path = out if grows and out.exists() else part_of(out)
            self._db = sqlite3.connect(self.path, isolation_level=None)
        try:
            with trouble(self.path):
                self._begin()
        except BaseException:
            self._db.close()
            raise

    def _begin(self) -> None:
        """Make the table. A new file is locked until it is complete; one that grows can be read between batches."""
        if self.path != self.out:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if not self.path.exists():  # renamed while we waited
                raise busy(self.path)
            if not self.grows:
                self._clear()
            made = ", ".join(f"{_quoted(name)} {SQL_KINDS.get(kind, 'TEXT')}" for name, kind in self.columns.items())
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {self.name} ({made})")

    def _clear(self) -> None:
        """Drop the tables that a killed command has left. The file stays: another command may have opened it."""
        for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            self._db.execute(f"DROP TABLE {_quoted(name)}")

    def add(self, rows: list[Row]) -> None:
        """Write a batch, in one transaction."""
        names, marks = ", ".join(map(_quoted, self.columns)), ", ".join("?" * len(self.columns))
        insert = f"INSERT OR REPLACE INTO {self.name} ({names}) VALUES ({marks})"
        with trouble(self.path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(insert, ([_cell(row.get(name)) for name in self.columns] for row in rows))

    def finish(self) -> None:
        """Give a new file its name, while it is locked."""
        with trouble(self.path):
            self.path.replace(self.out)
        self.is_complete = True

    def close(self) -> None:
        """Close it; a part that cannot be resumed is removed."""
        if not (self.is_complete or self.grows):
            with suppress(OSError):
                self.path.unlink()
        self._db.close()


def _cell(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else plain(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
