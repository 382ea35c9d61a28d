"""Export: pages of a store as rows of a file or of a database, all of them or what has come since."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from crawler import config, errors, urls
from crawler.errors import UsageError
from crawler.export_file import ExportFile, Point
from crawler.export_forms import FORMS
from crawler.export_rows import Row, Selection, batches, mark, places, row
from crawler.export_sql import Sql, Sqlite
from crawler.logs import many
from crawler.show import Add, progress, say
from crawler.store import Store, open_store

ENDINGS = (*FORMS, ".sqlite")


class Target(Protocol):
    """Where an export goes: it takes batches, and says what it still lacks."""

    @property
    def mark(self) -> str:
        """From when on pages may be missing in it."""

    @property
    def pages(self) -> int:
        """How many pages were written."""

    def lacking(self, host: str, keys: list[str]) -> list[str]:
        """Those of a host's keys whose pages are not in it."""

    def add(self, rows: list[Row]) -> None:
        """Write a batch, for good."""

    def finish(self) -> None:
        """All is written."""

    def left(self) -> str:
        """What is left when the export is stopped now."""

    def close(self) -> None:
        """Let go of it."""


def commands(add: Add) -> None:
    """Add `export` to the program."""
    example = "crawler export /mnt/shared/crawl pages.parquet --host example.org"
    help = "write pages to a file or a database, a row each"
    _flags(add("export", help, run, example))


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
    wanted = _selection(options)
    store = open_store(options.store)
    for host in wanted.hosts:
        if not store.keys("links", host):
            raise UsageError(f"the store has no page of {host}; `ls {options.store}/links` lists its hosts")
    target = _open(options.out, wanted, mark(store), options.force)
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
    total = sum(1 for _ in places(store, wanted, target.lacking)) if sys.stderr.isatty() else None
    with closing(progress(places(store, wanted, target.lacking), "pages", total)) as seen:
        for batch in batches(found for place in seen if (found := row(store, wanted, place))):
            target.add(batch)
    target.finish()


def _selection(options: Namespace) -> Selection:
    """Which pages the flags ask for."""
    match = options.match or ""
    try:
        config.regex(match or ".")
    except ValueError as error:
        raise UsageError(f"--match {match!r} {error}") from error
    return Selection(
        hosts=tuple(sorted({_host(given) for given in options.host})),
        since=_time("--since", options.since),
        first=_time("--from", options.first),
        last=_time("--until", options.last),
        match=match,
        html=options.html or options.out.endswith(".warc.gz"),
    )


def _host(given: str) -> str:
    """A host in its one spelling."""
    spelled = urls.spell(f"http://{given}/")
    if spelled is None or "/" in given:
        raise UsageError(f"--host {given!r} is not a host; write example.org, or example.org:8080")
    return urls.host(spelled)


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


def _open(out: str, wanted: Selection, mark: str, force: bool) -> Target:
    """Where OUT leads, by its ending or as an address."""
    if "://" in out:
        return Sql(out, wanted, mark, force)
    path = Path(os.path.realpath(out) if os.path.islink(out) else out)
    if path.name.endswith(".sqlite"):
        return Sqlite(path, wanted, mark, force)
    for ending, form in FORMS.items():
        if path.name.endswith(ending):
            return ExportFile(path, form(wanted.html), Point(mark, wanted), force)
    raise UsageError(f"{out} has no ending that says how to write it; name a file with one of {' '.join(ENDINGS)}")
