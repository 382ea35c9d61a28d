"""`crawler extract`: data from stored pages, by rules. It makes no requests, and only reads the store."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from crawler import errors
from crawler.commands.arguments import WORKERS, Add
from crawler.commands.browse import find_page
from crawler.commands.export.formats import FORMATS, SAFE_CSV, Row, format_for
from crawler.commands.export.output import CSV, SQLITE, Output, Stdout, ending, open_output, resolved, stop_at
from crawler.commands.export.rows import next_since, read_time
from crawler.commands.extract import rules
from crawler.commands.extract.database import DatabaseTable, Target
from crawler.commands.extract.harvest import EMPTY, MAX_SHOWN_TEXT, ExtractedRow, Harvest, Tally, read_part
from crawler.commands.extract.pool import GIVE_UP_AFTER, LostPage, Part, ReaderPool, parts
from crawler.commands.extract.rules import MAX_COLUMNS, URL, ExtractRules
from crawler.commands.extract.spool import Spool
from crawler.errors import UsageError
from crawler.settings import settings as config
from crawler.store.records import from_utc
from crawler.store.store import Store, open_store
from crawler.terminal import bar, count, many, say
from crawler.web import urls
from crawler.web.text import printable

MAX_SHOWN_ROWS = 20  # of a page, by --try
MAX_SLOW_PAGES = 3  # that one column makes us give up
STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Options:
    """How rows are written, and from which pages they are."""

    workers: int = 1
    force: bool = False
    delimiter: str = ","
    safe_csv: bool = False
    since: str = ""  # as `utc` writes it; empty: all pages
    target: Target = field(default_factory=Target)


def commands(add: Add) -> None:
    """`crawler extract`."""
    example = "crawler extract /mnt/shared/crawl complaints.yaml complaints.csv"
    made = add("extract", run, example)
    made.usage = "crawler extract STORE RULES.yaml [OUT] [FLAG ...]"
    made.add_argument("rules", type=Path, metavar="RULES.yaml", help="says which pages, rows and columns")
    endings = " ".join((*FORMATS, SQLITE))
    help = f"a file ({endings}), a database URL, or - for CSV to standard output"
    made.add_argument("out", nargs="?", metavar="OUT", help=help)
    made.add_argument("--try", dest="url", metavar="URL", help="show what the rules extract from one stored page")
    made.add_argument("--safe-csv", **SAFE_CSV)
    made.add_argument("--delimiter", metavar="CHAR", help="between the columns of CSV (default: a comma)")
    made.add_argument("--since", metavar="TIME", help="only pages stored since the extract that printed this")
    made.add_argument("--table", metavar="NAME", help="table of the database (default: rows)")
    help = "of the table: tells its rows apart; repeatable"
    made.add_argument("--key", metavar="COLUMN", action="append", default=[], help=help)
    help = "name of a column in the table; repeatable"
    made.add_argument("--map", metavar="COLUMN=NAME", action="append", default=[], help=help)
    made.add_argument("--force", action="store_true", help="replace OUT if it exists")
    made.add_argument("-j", "--workers", **WORKERS)


def run(options: Namespace) -> int:
    """`crawler extract`."""
    if (options.out is None) == (options.url is None):
        raise UsageError("give either OUT, the file to write, or --try URL, a page of the store")
    given = read_rules(options.rules)
    how = _options(options, given)
    store = open_store(options.store)
    if options.url:
        say(try_page(store, given, options.url))
        return errors.OVER
    said_to = sys.stderr if options.out == STDOUT else None
    since = next_since(store)
    try:
        tally = extract(store, given, options.out, how)
    except KeyboardInterrupt:
        left = "what was written is incomplete" if _is_kept(options.out) else "nothing was written"
        say(f"stopped; {left}; the same command starts again", sys.stderr)
        return errors.STOPPED
    where = "" if options.out == STDOUT else f"; written to {options.out}"
    say(f"{tally.as_text(column.name for column in given.columns)}{where}", said_to)
    say(f"for the next incremental extract: --since {since}", said_to)
    return errors.OVER


def _is_kept(out: str) -> bool:
    """Return whether what was written before a Ctrl-C stays."""
    return out == STDOUT or "://" in out


def _options(options: Namespace, rules: ExtractRules) -> Options:
    """Return the flags, checked."""
    out = options.out or ""
    delimiter = "\t" if options.delimiter == r"\t" else options.delimiter
    if delimiter is not None and (len(delimiter) != 1 or delimiter.isalnum() or delimiter in '"\r\n\0'):
        raise UsageError(f"--delimiter {delimiter!r} must be one character such as ';', or '\\t' for a tab")
    if delimiter and not (out == STDOUT or out.endswith(CSV)):
        raise UsageError(f"--delimiter works only with CSV: a file that ends with {CSV}, or {STDOUT}")
    if options.safe_csv and _is_kept(out) and out != STDOUT:
        raise UsageError("--safe-csv is for CSV, but this is a database; omit it")
    names = dict(_renaming(given, rules) for given in options.map)
    if (options.table or options.key or names) and "://" not in out:
        raise UsageError("--table, --key and --map work only with a database URL; a file of SQLite has sqlite:///PATH")
    if options.force and _is_kept(out):
        raise UsageError("--force replaces files; in a database rows are replaced by their page or by --key")
    return Options(
        options.workers,
        options.force,
        delimiter or ",",
        options.safe_csv,
        read_time("--since", options.since),
        Target(out, options.table or "rows", tuple(options.key), names),
    )


def _renaming(given: str, rules: ExtractRules) -> tuple[str, str]:
    ours, _, theirs = given.partition("=")
    if not ours or not theirs:
        raise UsageError(f"--map {given!r} must be COLUMN=NAME, such as heading=title")
    if ours not in rules.names and not rules.table:
        raise UsageError(f"--map {given!r}: the rules have no column {ours}; they have {', '.join(rules.names)}")
    return ours, theirs


def read_rules(path: Path) -> ExtractRules:
    """Return the rules in a file."""
    try:
        return rules.read(path.read_text("utf-8").removeprefix("\ufeff"), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give a YAML file of rules") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason}); give a YAML file of rules") from error


def extract(store: Store, rules: ExtractRules, out: str, how: Options) -> Tally:
    """Write what the rules extract from all pages of a store; return what was read and what was not."""
    tally = Tally()
    write = _write_tables if rules.table else _write
    with closing(_read(store, rules, how, tally)) as harvests:
        write(harvests, rules, out, how, tally)
    return tally


def _read(store: Store, rules: ExtractRules, how: Options, tally: Tally) -> Generator[Harvest, None, None]:
    """Return the harvests of all pages, in order. Nothing is read before the first is wanted: OUT is checked sooner."""
    since = from_utc(how.since) if how.since else 0.0
    pages = partial(admitted, store, rules, since)
    with (
        closing(bar(pages(), "pages", count(pages()))) as seen,
        closing(_harvests(store, rules, False, parts(seen), how.workers, tally, since)) as harvests,
    ):
        yield from harvests


def _write(harvests: Iterator[Harvest], rules: ExtractRules, out: str, how: Options, tally: Tally) -> None:
    """Write rows as they come."""
    columns = _columns(rules)
    with closing(_open(out, columns, how, tally)) as output:
        for found in harvests:
            _add(output, columns, [dict(zip(rules.names, row, strict=True)) for row in found.rows])
        output.finish()


def _write_tables(harvests: Iterator[Harvest], rules: ExtractRules, out: str, how: Options, tally: Tally) -> None:
    """Write rows when all are there: only then it is known which columns the tables have."""
    if not _is_kept(out):
        stop_at(resolved(out), how.force)
        ending(resolved(out), (*FORMATS, SQLITE))
    with closing(Spool(rules.names, MAX_COLUMNS)) as spool:
        for found in harvests:
            spool.add(found.rows)
        columns = {**_columns(rules), **dict.fromkeys(spool.more, "text")}
        tally.without_columns = spool.dropped
        with closing(_open(out, columns, how, tally)) as output:
            for rows in spool.batches():
                _add(output, columns, rows)
            output.finish()


def _add(output: Output, columns: dict[str, str], rows: list[Row]) -> None:
    """Write rows; a database is also told the URL of each, to say which it does not take."""
    if not isinstance(output, DatabaseTable):
        rows = [{name: row.get(name) for name in columns} for row in rows]
    output.add(rows)


def _columns(rules: ExtractRules) -> dict[str, str]:
    """Return the columns that are written, with their types."""
    found = dict(zip(rules.names, ["url", *(column.type for column in rules.columns)], strict=True))
    return found if rules.url else {name: kind for name, kind in found.items() if name != URL}


def _open(out: str, columns: dict[str, str], how: Options, tally: Tally) -> Output:
    """Open OUT: standard output, a database, or a file by its extension."""
    if out == STDOUT:
        return Stdout(format_for(CSV, columns, how.safe_csv, how.delimiter))
    if "://" in out:
        return DatabaseTable(how.target, columns, tally)
    return open_output(resolved(out), "rows", columns, how.force, how.safe_csv, how.delimiter)


def admitted(store: Store, rules: ExtractRules, since: float = 0.0) -> Iterator[str]:
    """Return all records of the hosts that the rules admit and that have changed since, as host/key."""
    for host in filter(rules.admits_host, store.hosts()):
        if not since or store.changed(host) >= since:
            yield from (f"{host}/{key}" for key in store.keys("links", host))


def _harvests(
    store: Store,
    rules: ExtractRules,
    show: bool,
    wanted: Iterator[Part],
    workers: int,
    tally: Tally,
    since: float = 0.0,
) -> Generator[Harvest, None, None]:
    """Return the harvest of each part, in order, and add it to the tally."""
    slow: Counter[int] = Counter()  # pages that were given up at each column
    read = partial(read_part, store.root.absolute(), rules, show, since=since)
    readers = ReaderPool(workers, read, partial(_warn, rules))
    with closing(readers.results(wanted)) as results:
        for found in results:
            if isinstance(found, LostPage):
                tally.count_unread(found.why, found.url)
                slow[found.column] += 1
                _check_slow(rules, found, slow[found.column])
            else:
                tally.add(found.tally)
                yield found


def _check_slow(rules: ExtractRules, lost: LostPage, pages: int) -> None:
    """Refuse a column that was too slow on several pages: on a large store the others would take weeks."""
    if lost.column >= 0 and pages >= MAX_SLOW_PAGES:
        name = rules.columns[lost.column].name
        raise UsageError(
            f"column {name} is too slow: {pages} pages took over {GIVE_UP_AFTER:.0f} s, the last was {lost.url}; "
            "simplify its regex: no repetition inside of a repetition, as in (a+)+"
        )


def _warn(rules: ExtractRules, url: str, number: int) -> None:
    """Print where it hangs: some regular expressions and selectors take very long on some pages."""
    from tqdm import tqdm

    at = f"column {rules.columns[number].name}" if number >= 0 else "`match` or the page itself"
    with tqdm.external_write_mode(file=sys.stderr):
        say(f"{url} takes long ({at}) and is given up after {GIVE_UP_AFTER:.0f} s; Ctrl-C stops", sys.stderr)


# ---- one page, to try the rules on


def try_page(store: Store, rules: ExtractRules, given: str) -> str:
    """Return what the rules extract from one stored page as a table, and why rows and cells are missing."""
    url = find_page(store, given)["url"]
    tally, host = Tally(), urls.host(url)
    wanted: Iterator[Part] = iter([(f"{host}/{urls.key(url)}",)])
    shown = [row for found in _harvests(store, rules, True, wanted, 1, tally) for row in found.shown]
    lines = [*_table(shown, rules), *_reasons(shown, rules), tally.as_text()]
    if not rules.admits_host(host):
        lines.append("without --try this page is skipped: its host is not in `hosts`")
    elif not rules.admits(url):
        lines.append("without --try this page is skipped: its URL does not match `match`")
    return "\n".join(lines)


def _table(shown: list[ExtractedRow], rules: ExtractRules) -> Iterator[str]:
    more = list(dict.fromkeys(name for row in shown[:MAX_SHOWN_ROWS] for name in row.more or ()))
    lines = [["row", *rules.names[1:], *map(_letters, more)]]
    for number, row in enumerate(shown[:MAX_SHOWN_ROWS], 1):
        values = [*row.values(rules), *((row.more or {}).get(name) for name in more)]
        lines.append([str(number), *map(_letters, values)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
    if len(shown) > MAX_SHOWN_ROWS:
        yield f"and {many(len(shown) - MAX_SHOWN_ROWS, 'row')} more"


def _letters(value: Any) -> str:
    if value is None:
        return "-"
    text = printable(config.show(tuple(value) if isinstance(value, list) else value))  # an attribute may have lines
    return text if len(text) <= MAX_SHOWN_TEXT else text[: MAX_SHOWN_TEXT - 1] + "…"


def _reasons(shown: list[ExtractedRow], rules: ExtractRules) -> Iterator[str]:
    for number, row in enumerate(shown[:MAX_SHOWN_ROWS], 1):
        if row.skipped:
            yield f"row {number} is skipped: {row.skipped}"
        if row.skipped == EMPTY:
            continue
        empty: dict[str, list[str]] = {}
        for cell, column in zip(row.cells, rules.columns, strict=True):
            if cell.why:
                empty.setdefault(cell.why, []).append(column.name)
        yield from (f"row {number}, {', '.join(names)}: {why}" for why, names in empty.items())
