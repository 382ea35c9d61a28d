"""Errors of the machine's own disk, where SQLite keeps what does not fit into memory ($TMPDIR)."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from crawler.errors import DiskFull, StoreError

BROKEN = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT}


@contextmanager
def named() -> Iterator[None]:
    """Raise errors of that disk as sentences that say where it is; errors of ours in SQL stay what they are."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest of an extended code says more
        where = f"the temporary folder {_folder()}"
        advice = "or set TMPDIR to a folder on another disk"
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(f"no space left in {where} ({error}); free some, {advice}") from error
        if code in BROKEN:
            raise StoreError(f"{where} cannot be used ({error}); check that disk, {advice}") from error
        raise


def _folder() -> str:
    """Return where SQLite keeps its temporary files; Python looks for another folder where it cannot write."""
    return os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
