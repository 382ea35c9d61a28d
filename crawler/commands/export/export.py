"""`crawler export`: pages of a store as rows of a file or a database, all of them or only new ones."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Protocol

from crawler import errors
from crawler.commands.arguments import Add
from crawler.commands.export.formats import FORMATS, SAFE_CSV, Columns, Format, Row, format_for
from crawler.commands.export.output import SQLITE, Output, OutputFile, ending, resolved, trouble
from crawler.commands.export.rows import (
    COLUMNS,
    HTML_COLUMN,
    Place,
    Selection,
    batches,
    next_since,
    places,
    read_time,
    rows,
)
from crawler.commands.export.sql import Sql, Sqlite
from crawler.commands.export.warc import Warc
from crawler.errors import UsageError
from crawler.settings import values
from crawler.store.store import Store, find_host, open_store
from crawler.terminal import bar, count, many, say

WARC = ".warc.gz"
FILES: dict[str, Callable[[Columns], Format]] = {**FORMATS, WARC: Warc}
ENDINGS = (*FILES, SQLITE)


class Target(Output, Protocol):
    """An output that can be resumed."""

    @property
    def next_since(self) -> str:
        """The time from which on pages may be missing in it."""

    @property
    def pages(self) -> int:
        """The number of pages that were written."""

    def missing(self, host: str, keys: list[str]) -> list[str]:
        """Return those of a host's keys whose pages are not in it."""

    def after(self, place: Place) -> str:
        """Return up to which version a page is in it; nothing if it is not."""

    def when_stopped(self) -> str:
        """Return what an export that is stopped now leaves."""


def commands(add: Add) -> None:
    """Add `export` to the program."""
    example = "crawler export /mnt/shared/crawl pages.parquet --host example.org"
    _flags(add("export", run, example))


def _flags(made: ArgumentParser) -> None:
    made.usage = "crawler export STORE OUT [FLAG ...]"
    help = f"a file ({' '.join(ENDINGS)}) or a database URL (postgresql+psycopg://USER@HOST/NAME)"
    made.add_argument("out", metavar="OUT", help=help)
    made.add_argument("--html", action="store_true", help="include the text of each page")
    made.add_argument("--host", metavar="HOST", action="append", default=[], help="only pages of this host; repeatable")
    made.add_argument("--match", metavar="RE", help="only pages whose URL matches")
    made.add_argument("--from", metavar="TIME", dest="first", help="fetched at TIME or later: 2026-11-17T09:00:00Z")
    made.add_argument("--until", metavar="TIME", dest="last", help="fetched before TIME")
    made.add_argument("--since", metavar="TIME", help="only pages stored since the export that printed this")
    made.add_argument("--versions", action="store_true", help="also older versions of pages, a row each")
    made.add_argument("--safe-csv", **SAFE_CSV)
    made.add_argument("--force", action="store_true", help="replace the file, or all rows of the database")


def run(options: Namespace) -> int:
    """`crawler export`."""
    store = open_store(options.store)
    wanted = _selection(store, options)
    target = _open(options.out, store, wanted, options.force)
    if target.pages:
        say(f"resuming after {many(target.pages, 'page')}")
    try:
        _write(store, wanted, target)
    except KeyboardInterrupt:
        say(f"stopped; {target.when_stopped()}", sys.stderr)
        return errors.STOPPED
    finally:
        target.close()
    say(f"{many(target.pages, 'page')} written to {options.out}")
    if store.unreadable:
        left_out = f"left out {many(store.unreadable, 'record')} that could not be read"
        say(f"warning: {left_out}; `crawler check {options.store}` names each", sys.stderr)
    say(f"for the next incremental export: --since {target.next_since}")
    return errors.OVER


def _write(store: Store, wanted: Selection, target: Target) -> None:
    """Write the missing pages, a batch at a time."""
    total = count(places(store, wanted, target.missing))
    with closing(bar(places(store, wanted, target.missing), "pages", total)) as seen:
        for batch in batches(found for place in seen for found in rows(store, wanted, place, target.after(place))):
            target.add(batch)
    target.finish()


def _selection(store: Store, options: Namespace) -> Selection:
    """Return the pages that the flags select."""
    match = options.match or ""
    try:
        values.regex(match or ".")
    except ValueError as error:
        raise UsageError(f"--match {match!r} {error}") from error
    return Selection(
        hosts=tuple(sorted({find_host(store, given) for given in options.host})),
        since=read_time("--since", options.since),
        first=read_time("--from", options.first),
        last=read_time("--until", options.last),
        match=match,
        html=options.html or options.out.endswith(WARC),
        files=options.out.endswith(WARC),
        safe_csv=options.safe_csv,
        versions=options.versions,
    )


def _open(out: str, store: Store, wanted: Selection, force: bool) -> Target:
    """Open OUT, by its extension or as a URL."""
    since = next_since(store)
    columns = COLUMNS | (HTML_COLUMN if wanted.html else {})
    path, extension = (None, "a database") if "://" in out else (resolved(out), ending(resolved(out), ENDINGS))
    format = format_for(extension, columns, True) if wanted.safe_csv else None
    if path is None:
        return Sql(out, wanted, since, force)
    if extension == SQLITE:
        return Sqlite(path, wanted, since, force)
    checkpoint = Checkpoint(since, str(store.root.absolute()), wanted)
    return ExportFile(path, format or FILES[extension](columns), checkpoint, force)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far an export is: the last page that is complete in the part; what follows it may be truncated."""

    next_since: str
    store: str
    wanted: Selection
    host: str = ""
    key: str = ""
    offset: int = 0
    pages: int = 0
    version: str = ""  # of that page


class ExportFile(OutputFile):
    """An output file that is resumed where its format allows it; the checkpoint is a file beside its part."""

    def __init__(self, out: Path, format: Format, checkpoint: Checkpoint, force: bool) -> None:
        self.checkpoint = checkpoint
        super().__init__(out, format, force)

    @property
    def next_since(self) -> str:
        """The time at which the part was begun, maybe by an earlier run: pages stored since may be missing in it."""
        return self.checkpoint.next_since

    @property
    def pages(self) -> int:
        """The number of pages in it."""
        return self.checkpoint.pages

    @property
    def resumable(self) -> bool:
        """Return whether the same command can resume the part."""
        return self.format.resumable and self.pages > 0

    def _begin(self, force: bool) -> None:
        """Resume the part of a killed export of the same pages, or start from the beginning."""
        left = self._left(force)
        if left is None:
            super()._begin(force)
        else:
            self.checkpoint = left
            os.ftruncate(self._file, left.offset)
            os.lseek(self._file, 0, os.SEEK_END)

    def _left(self, force: bool) -> Checkpoint | None:
        """Return how far the part is, or None if there is nothing to resume."""
        left = self._read_checkpoint() if self.format.resumable else None
        if left is None or os.fstat(self._file).st_size < left.offset:
            return None
        if (left.store, left.wanted) == (self.checkpoint.store, self.checkpoint.wanted):
            return left
        if force:
            return None
        raise UsageError(
            f"{self.part} is from an export of another store or with other flags; "
            "use those to resume it, or --force to start again"
        )

    def _read_checkpoint(self) -> Checkpoint | None:
        try:
            told = json.loads(self.journal.read_bytes())
            wanted = Selection(**{**told["wanted"], "hosts": tuple(told["wanted"]["hosts"])})
            return Checkpoint(**{**told, "wanted": wanted, "offset": int(told["offset"]), "pages": int(told["pages"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None  # there is none, or half of one after a power cut

    def missing(self, host: str, keys: list[str]) -> list[str]:
        """Return the keys of a host that come after the last page of the part."""
        if host == self.checkpoint.host:
            last = self.checkpoint.key
            return [key for key in keys if key > last or (key == last and self.checkpoint.wanted.versions)]
        return keys if host > self.checkpoint.host else []

    def after(self, place: Place) -> str:
        """Return up to which version a page is in the part, if it is the last one there."""
        return self.checkpoint.version if place == (self.checkpoint.host, self.checkpoint.key) else ""

    def add(self, rows: list[Row]) -> None:
        """Add a batch; it is on the disk before the checkpoint says so."""
        super().add(rows)
        host, key, version = rows[-1]["host"], rows[-1]["key"], str(rows[-1]["fetched"])
        with trouble(self.part):
            offset = os.lseek(self._file, 0, os.SEEK_CUR)
            done = self.pages + len(rows)
            new = replace(self.checkpoint, host=host, key=key, version=version, offset=offset, pages=done)
            if self.format.resumable:
                self._write_checkpoint(new)
        self.checkpoint = new

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        os.fsync(self._file)
        new = self.journal.with_name(f".{self.journal.name}")
        new.write_text(json.dumps(asdict(checkpoint)))
        new.replace(self.journal)

    def when_stopped(self) -> str:
        """Return what an export that is stopped now leaves."""
        if self.resumable:
            return f"{many(self.pages, 'page')} are in {self.part}; the same command resumes"
        return "nothing was written; the same command starts again"
