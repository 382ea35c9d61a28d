"""Export: pages of a store as rows of a file or of a database, all of them or what has come since."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Protocol

from crawler import errors, settings
from crawler.commands.arguments import Add
from crawler.commands.export.formats import FORMS, Columns, Form
from crawler.commands.export.output import SQLITE, Rows, ending, resolved
from crawler.commands.export.resume import ExportFile, Point
from crawler.commands.export.rows import COLUMNS, HTML, Selection, batches, mark, places, row
from crawler.commands.export.sql import Sql, Sqlite
from crawler.commands.export.warc import Warc
from crawler.errors import UsageError
from crawler.store.store import Store, find_host, open_store
from crawler.terminal import bar, count, many, say

WARC = ".warc.gz"
FILES: dict[str, Callable[[Columns], Form]] = {**FORMS, WARC: Warc}
ENDINGS = (*FILES, SQLITE)


class Target(Rows, Protocol):
    """Where an export goes: it takes batches for good, and says what it still lacks."""

    @property
    def mark(self) -> str:
        """From when on pages may be missing in it."""

    @property
    def pages(self) -> int:
        """How many pages were written."""

    def lacking(self, host: str, keys: list[str]) -> list[str]:
        """Those of a host's keys whose pages are not in it."""

    def left(self) -> str:
        """What is left when the export is stopped now."""


def commands(add: Add) -> None:
    """Add `export` to the program."""
    example = "crawler export /mnt/shared/crawl pages.parquet --host example.org"
    _flags(add("export", run, example))


def _flags(made: ArgumentParser) -> None:
    help = f"a file ({' '.join(ENDINGS)}) or the address of a database (postgresql+psycopg://USER@HOST/NAME)"
    made.add_argument("out", metavar="OUT", help=help)
    made.add_argument("--html", action="store_true", help="with the text of each page")
    made.add_argument("--host", metavar="HOST", action="append", default=[], help="pages of this host; repeatable")
    made.add_argument("--match", metavar="RE", help="pages in whose URL this is found")
    made.add_argument("--from", metavar="TIME", dest="first", help="fetched at TIME or later: 2026-11-17T09:00:00Z")
    made.add_argument("--until", metavar="TIME", dest="last", help="fetched before TIME")
    made.add_argument("--since", metavar="MARK", help="pages that the export which printed this mark may not have")
    made.add_argument("--force", action="store_true", help="replace a file; write all rows of a database again")


def run(options: Namespace) -> int:
    """`crawler export`."""
    store = open_store(options.store)
    wanted = _selection(store, options)
    target = _open(options.out, store, wanted, options.force)
    if target.pages:
        say(f"going on: {many(target.pages, 'page')} are there already")
    try:
        _write(store, wanted, target)
    except KeyboardInterrupt:
        say(f"stopped; {target.left()}", sys.stderr)
        return errors.STOPPED
    finally:
        target.close()
    say(f"{many(target.pages, 'page')} written to {options.out}\nmark: {target.mark}")
    return errors.OVER


def _write(store: Store, wanted: Selection, target: Target) -> None:
    """The export: what is lacking is read and written a batch at a time."""
    total = count(places(store, wanted, target.lacking))
    with closing(bar(places(store, wanted, target.lacking), "pages", total)) as seen:
        for batch in batches(found for place in seen if (found := row(store, wanted, place))):
            target.add(batch)
    target.finish()


def _selection(store: Store, options: Namespace) -> Selection:
    """Which pages the flags ask for."""
    match = options.match or ""
    try:
        settings.regex(match or ".")
    except ValueError as error:
        raise UsageError(f"--match {match!r} {error}") from error
    return Selection(
        hosts=tuple(sorted({find_host(store, given) for given in options.host})),
        since=_time("--since", options.since),
        first=_time("--from", options.first),
        last=_time("--until", options.last),
        match=match,
        html=options.html or options.out.endswith(WARC),
    )


def _time(flag: str, given: str | None) -> str:
    """A time as records have it."""
    if not given:
        return ""
    try:
        time = datetime.fromisoformat(given)
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{flag} {given!r} is not a time; write 2026-11-17 or 2026-11-17T09:00:00Z (UTC)") from error
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _open(out: str, store: Store, wanted: Selection, force: bool) -> Target:
    """Where OUT leads, by its ending or as an address."""
    began = mark(store)
    if "://" in out:
        return Sql(out, wanted, began, force)
    path = resolved(out)
    form = ending(path, ENDINGS)
    if form == SQLITE:
        return Sqlite(path, wanted, began, force)
    columns = COLUMNS | (HTML if wanted.html else {})
    return ExportFile(path, FILES[form](columns), Point(began, str(store.root.absolute()), wanted), force)
