"""`crawler extract`: data from stored pages, by rules. It makes no requests, and only reads the store."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from crawler import errors, settings
from crawler.commands.arguments import WORKERS, Add
from crawler.commands.browse import find_page
from crawler.commands.export.formats import FORMATS
from crawler.commands.export.output import SQLITE, open_output, resolved
from crawler.commands.extract import rules
from crawler.commands.extract.harvest import EMPTY, MAX_SHOWN_TEXT, ExtractedRow, Harvest, Tally, read_part
from crawler.commands.extract.pool import GIVE_UP_AFTER, LostPage, Part, ReaderPool, parts
from crawler.commands.extract.rules import ExtractRules
from crawler.errors import UsageError
from crawler.store.store import Store, open_store
from crawler.terminal import bar, count, many, say
from crawler.web import urls
from crawler.web.text import printable

MAX_SHOWN_ROWS = 20  # of a page, by --try


def commands(add: Add) -> None:
    """`crawler extract`."""
    example = "crawler extract /mnt/shared/crawl complaints.yaml complaints.csv"
    made = add("extract", run, example)
    made.add_argument("rules", type=Path, metavar="RULES.yaml", help="says which pages, rows and columns")
    endings = " ".join((*FORMATS, SQLITE))
    made.add_argument("out", nargs="?", metavar="OUT", help=f"the file to write ({endings})")
    made.add_argument("--try", dest="url", metavar="URL", help="show what the rules extract from one stored page")
    made.add_argument("--force", action="store_true", help="replace OUT if it exists")
    made.add_argument("-j", "--workers", **WORKERS)


def run(options: Namespace) -> int:
    """`crawler extract`."""
    if (options.out is None) == (options.url is None):
        raise UsageError("give either OUT, the file to write, or --try URL, a page of the store")
    given = read_rules(options.rules)
    store = open_store(options.store)
    if options.url:
        say(try_page(store, given, options.url))
        return errors.OVER
    try:
        tally = extract(store, given, resolved(options.out), options.workers, options.force)
    except KeyboardInterrupt:
        say("stopped; nothing was written; the same command starts again", sys.stderr)
        return errors.STOPPED
    say(f"{tally.as_text()}; written to {options.out}")
    return errors.OVER


def read_rules(path: Path) -> ExtractRules:
    """Return the rules in a file."""
    try:
        return rules.read(path.read_text("utf-8").removeprefix("\ufeff"), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); give a YAML file of rules") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason}); give a YAML file of rules") from error


def extract(store: Store, rules: ExtractRules, out: Path, workers: int, force: bool = False) -> Tally:
    """Write what the rules extract from all pages of a store; return what was read and what was not."""
    tally = Tally()
    columns = dict(zip(rules.names, ["url", *(column.type for column in rules.columns)], strict=True))
    with (
        closing(open_output(out, "rows", columns, force)) as output,
        closing(bar(admitted(store, rules), "pages", count(admitted(store, rules)))) as seen,
        closing(_harvests(store, rules, False, parts(seen), workers, tally)) as harvests,
    ):
        for found in harvests:
            output.add([dict(zip(columns, row, strict=True)) for row in found.rows])
        output.finish()
    return tally


def admitted(store: Store, rules: ExtractRules) -> Iterator[str]:
    """Return all records of the hosts that the rules admit, as host/key."""
    for host in filter(rules.admits_host, store.hosts()):
        yield from (f"{host}/{key}" for key in store.keys("links", host))


def _harvests(
    store: Store, rules: ExtractRules, show: bool, wanted: Iterator[Part], workers: int, tally: Tally
) -> Generator[Harvest, None, None]:
    """Return the harvest of each part, in order, and add it to the tally."""
    readers = ReaderPool(workers, partial(read_part, store.root.absolute(), rules, show), partial(_warn, rules))
    with closing(readers.results(wanted)) as results:
        for found in results:
            if isinstance(found, LostPage):
                tally.count_unread(found.why, found.url)
            else:
                tally.add(found.tally)
                yield found


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
    lines = [["row", *rules.names[1:]]]
    for number, row in enumerate(shown[:MAX_SHOWN_ROWS], 1):
        lines.append([str(number), *map(_letters, row.values(rules))])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
    if len(shown) > MAX_SHOWN_ROWS:
        yield f"and {many(len(shown) - MAX_SHOWN_ROWS, 'row')} more"


def _letters(value: Any) -> str:
    if value is None:
        return "-"
    text = printable(settings.show(tuple(value) if isinstance(value, list) else value))  # an attribute may have lines
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
