"""A file of rows: OUT.part until it is whole, so that there is never half a file under its name."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from crawler.commands.export.formats import FORMS, Columns, Form, Row, plain
from crawler.errors import DiskFull, UsageError
from crawler.store.mount import DISK_FULL

SQLITE = ".sqlite"
SQL_KINDS = {"int": "INTEGER", "float": "REAL", "bool": "INTEGER", "key": "TEXT NOT NULL PRIMARY KEY"}


class Rows(Protocol):
    """What takes rows: a file of some form, or a database."""

    def add(self, rows: list[Row]) -> None:
        """Write a batch."""

    def finish(self) -> None:
        """All is written."""

    def close(self) -> None:
        """Let go of it; what is not whole, and cannot be gone on with, is removed."""


def resolved(out: str) -> Path:
    """Where a name leads: what stands behind a link is replaced, and the link stays."""
    return Path(os.path.realpath(out) if os.path.islink(out) else out)


def ending(out: Path, endings: Iterable[str]) -> str:
    """The ending that says how a file is written."""
    for known in endings:
        if out.name.endswith(known):
            return known
    raise UsageError(f"{out} has no ending that says how to write it; name a file with one of {' '.join(endings)}")


def stop_at(out: Path, force: bool) -> None:
    """Stop at a file that is there already, unless it may be replaced."""
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; name another file, or give --force to replace it")


def part_of(out: Path) -> Path:
    """What a file is called until it is whole."""
    return out.with_name(f"{out.name}.part")


def busy(part: Path) -> UsageError:
    """Two must not write one file."""
    return UsageError(f"another command is writing {part}; wait for it, or name another file")


@contextmanager
def trouble(path: Path) -> Iterator[None]:
    """What speaks against writing a file, as one sentence."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in DISK_FULL:
            raise DiskFull(f"there is no room for {path} ({why}); make room, and run the same command again") from error
        if code == sqlite3.SQLITE_BUSY:
            raise busy(path) from error
        raise UsageError(f"{path} cannot be written ({why}); check it and its folder, or name another") from error


def new_sheet(out: Path, table: str, columns: Columns, force: bool) -> Rows:
    """A new file of rows, in the form that its ending names."""
    form = ending(out, (*FORMS, SQLITE))
    if form != SQLITE:
        return Sheet(out, FORMS[form](columns), force)
    stop_at(out, force)
    return SqliteFile(out, table, columns)


class Sheet:
    """A file of some form as it is written; only `finish` gives it its name."""

    def __init__(self, out: Path, form: Form, force: bool) -> None:
        self.out, self.form, self.part, self.is_whole = out, form, part_of(out), False
        self.journal = out.with_name(f"{out.name}.part.json")  # how far an export has come with its part
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
    def goes_on(self) -> bool:
        """Whether the same command goes on with the part, if this one ends early."""
        return False

    def _lock(self) -> None:
        """One at a time; not promised between machines on mounts where locks do not exclude."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise busy(self.part) from error
        except OSError:
            pass  # a disk without locks
        if not self.part.exists():  # it got its name while we waited: what we have opened is OUT
            raise busy(self.part)

    def _begin(self, force: bool) -> None:
        """Begin anew, whatever a killed command has left."""
        os.ftruncate(self._file, 0)
        self.journal.unlink(missing_ok=True)
        self._write(self.form.begin())

    def add(self, rows: list[Row]) -> None:
        """Add a batch."""
        data = self.form.add(rows)
        with trouble(self.part):
            self._write(data)

    def finish(self) -> None:
        """Give the file its name."""
        data = self.form.end()
        with trouble(self.part):
            self._write(data)
            os.fsync(self._file)
            self.part.replace(self.out)
            self.is_whole = True
            self.journal.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of it; a part that cannot be gone on with is removed."""
        if not (self.is_whole or self.goes_on):
            with suppress(OSError):
                self.part.unlink()
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]


class SqliteFile:
    """A table of an SQLite file: of a new one, or of one that is there already and grows."""

    def __init__(self, out: Path, name: str, columns: Columns, grows: bool = False) -> None:
        self.out, self.name, self.columns, self.grows, self.is_whole = out, name, columns, grows, False
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
        """Make the table, alone: whoever adds to a file that has its name lets others read it between two batches."""
        if self.path != self.out:
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if not self.path.exists():  # it got its name while we waited
                raise busy(self.path)
            if not self.grows:
                self._clear()
            made = ", ".join(f"{_quoted(name)} {SQL_KINDS.get(kind, 'TEXT')}" for name, kind in self.columns.items())
            self._db.execute(f"CREATE TABLE IF NOT EXISTS {self.name} ({made})")

    def _clear(self) -> None:
        """Drop what a killed command has left in the part; another may be about to write it, so it is not removed."""
        for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            self._db.execute(f"DROP TABLE {_quoted(name)}")

    def add(self, rows: list[Row]) -> None:
        """Write a batch, whole or not at all."""
        names, marks = ", ".join(map(_quoted, self.columns)), ", ".join("?" * len(self.columns))
        insert = f"INSERT OR REPLACE INTO {self.name} ({names}) VALUES ({marks})"
        with trouble(self.path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(insert, ([_cell(row.get(name)) for name in self.columns] for row in rows))

    def finish(self) -> None:
        """Give a new file its name, while nobody else can write it."""
        with trouble(self.path):
            self.path.replace(self.out)
        self.is_whole = True

    def close(self) -> None:
        """Let go of it; a part that cannot be gone on with is removed."""
        if not (self.is_whole or self.grows):
            with suppress(OSError):
                self.path.unlink()
        self._db.close()


def _cell(value: Any) -> Any:
    """A value as SQLite has it: truth values are numbers there."""
    return int(value) if isinstance(value, bool) else plain(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
