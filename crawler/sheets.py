"""Rows into a file by its ending: .csv, .jsonl or .sqlite. It appears whole under its name, or not at all."""

from __future__ import annotations

import csv
import errno
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from crawler.errors import CrawlerError, DiskFull, UsageError

Row = Sequence[Any]  # text, numbers, true or false, lists of text, or None
Write = Callable[[Iterable[Row]], None]
Types = dict[str, str]  # of the columns, by name: as in rules
FULL = (errno.ENOSPC, errno.EDQUOT)
SQL_TYPES = {"int": "INTEGER", "float": "REAL", "bool": "INTEGER"}


def check(out: Path, force: bool) -> None:
    """Stop before any work is done for a file that could not be written."""
    if out.suffix not in KINDS:
        raise UsageError(f"{out}: its ending says what is written; it must be one of {', '.join(KINDS)}")
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file")
    if out.exists() and not force:
        raise UsageError(f"{out} is there already; name another file, or replace it with --force")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{out} cannot be written: {out.parent} is no folder in which you may; make it, or name another"
        )


@contextmanager
def sheet(out: Path, columns: Types) -> Iterator[Write]:
    """A file to write rows to; what was there under its name is replaced at the end."""
    temporary = out.with_name(f".{out.name[:200]}.{secrets.token_hex(4)}")
    try:
        with KINDS[out.suffix](temporary, columns) as write:
            yield write
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(out)
    except (OSError, sqlite3.Error) as error:
        raise _told(error, out) from error
    finally:
        with suppress(OSError):  # it has its name
            temporary.unlink()


def _told(error: OSError | sqlite3.Error, out: Path) -> CrawlerError:
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_FULL or (isinstance(error, OSError) and error.errno in FULL):
        return DiskFull(f"{out} cannot be written: the disk is full; make room and run again")
    why = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"{out} cannot be written ({why}); name another file")


@contextmanager
def _csv(path: Path, columns: Types) -> Iterator[Write]:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        yield lambda rows: writer.writerows([_plain(value) for value in row] for row in rows)


def _plain(value: Any) -> Any:
    """Lists and truth values as JSON has them: no format says how CSV does."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list) else value


@contextmanager
def _jsonl(path: Path, columns: Types) -> Iterator[Write]:
    names = list(columns)
    with path.open("w", encoding="utf-8", newline="") as file:

        def write(rows: Iterable[Row]) -> None:
            for row in rows:
                file.write(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n")

        yield write


@contextmanager
def _sqlite(path: Path, columns: Types) -> Iterator[Write]:
    """One table named rows, in one transaction: it is thrown away as a whole if anything goes wrong."""
    made = ", ".join(f"{_quoted(name)} {SQL_TYPES.get(kind, 'TEXT')}" for name, kind in columns.items())
    insert = f"INSERT INTO rows VALUES ({', '.join('?' * len(columns))})"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=OFF")
        database.execute("PRAGMA synchronous=OFF")  # it is synced when it is whole
        database.execute(f"CREATE TABLE rows ({made})")
        database.execute("BEGIN")
        yield lambda rows: _insert(database, insert, rows)
        database.execute("COMMIT")


def _insert(database: sqlite3.Connection, insert: str, rows: Iterable[Row]) -> None:
    database.executemany(
        insert, ([_plain(value) if isinstance(value, list) else value for value in row] for row in rows)
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


KINDS: dict[str, Callable[[Path, Types], AbstractContextManager[Write]]] = {
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".sqlite": _sqlite,
}
