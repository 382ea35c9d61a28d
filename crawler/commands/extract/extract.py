"""Data from stored pages, by rules: no site is asked again, and the store is only read."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from crawler import errors, settings
from crawler.commands.arguments import WHOLE, Add
from crawler.commands.browse import find_page
from crawler.commands.export.formats import FORMS
from crawler.commands.export.output import SQLITE, new_sheet, resolved
from crawler.commands.extract import rules
from crawler.commands.extract.harvest import EMPTY, WIDE, Harvest, Row, Tally, read_part
from crawler.commands.extract.pool import PATIENCE, Lost, Part, Readers, parts
from crawler.commands.extract.rules import Rules
from crawler.errors import UsageError
from crawler.store.store import Store, open_store
from crawler.terminal import bar, count, many, say
from crawler.web import urls
from crawler.web.text import printable

SHOWN = 20  # rows of a page that --try shows


def commands(add: Add) -> None:
    """`crawler extract`."""
    example = "crawler extract /mnt/shared/crawl complaints.yaml complaints.csv"
    made = add("extract", run, example)
    made.add_argument("rules", type=Path, metavar="RULES.yaml", help="which pages, which rows, which columns")
    endings = " ".join((*FORMS, SQLITE))
    made.add_argument("out", nargs="?", metavar="OUT", help=f"a new file ({endings})")
    made.add_argument("--try", dest="url", metavar="URL", help="show what the rules give on one stored page")
    made.add_argument("--force", action="store_true", help="replace OUT if it is there")
    made.add_argument(
        "-j",
        "--workers",
        type=WHOLE,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: cores)",
    )


def run(options: Namespace) -> int:
    """`crawler extract`."""
    if (options.out is None) == (options.url is None):
        raise UsageError("name either OUT, a file to write, or a page of the store with --try URL")
    given = read_rules(options.rules)
    store = open_store(options.store)
    if options.url:
        say(try_page(store, given, options.url))
        return errors.OVER
    try:
        tally = extract(store, given, resolved(options.out), options.workers, options.force)
    except KeyboardInterrupt:
        say("stopped; nothing is left of it; the same command begins anew", sys.stderr)
        return errors.STOPPED
    say(f"{tally.as_text()}; {options.out} is written")
    return errors.OVER


def read_rules(path: Path) -> Rules:
    """The rules in a file."""
    try:
        return rules.read(path.read_text("utf-8").removeprefix("\ufeff"), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); name a YAML file of rules") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text ({error.reason}); name a YAML file of rules") from error


def extract(store: Store, rules: Rules, out: Path, workers: int, force: bool = False) -> Tally:
    """Write what the rules give on all pages of a store; what was read and what was not."""
    tally = Tally()
    columns = dict(zip(rules.names, ["url", *(column.type for column in rules.columns)], strict=True))
    with (
        closing(new_sheet(out, "rows", columns, force)) as sheet,
        closing(bar(admitted(store, rules), "pages", count(admitted(store, rules)))) as seen,
        closing(_harvests(store, rules, False, parts(seen), workers, tally)) as harvests,
    ):
        for found in harvests:
            sheet.add([dict(zip(columns, row, strict=True)) for row in found.rows])
        sheet.finish()
    return tally


def admitted(store: Store, rules: Rules) -> Iterator[str]:
    """All records of the hosts that are wanted, as host/key."""
    for host in filter(rules.admits_host, store.hosts()):
        yield from (f"{host}/{key}" for key in store.keys("links", host))


def _harvests(
    store: Store, rules: Rules, show: bool, wanted: Iterator[Part], workers: int, tally: Tally
) -> Generator[Harvest, None, None]:
    """What each part gave, in order; it is added to the tally."""
    readers = Readers(workers, partial(read_part, store.root.absolute(), rules, show), partial(_tell, rules))
    with closing(readers.results(wanted)) as results:
        for found in results:
            if isinstance(found, Lost):
                tally.lose(found.why, found.url)
            else:
                tally.add(found.tally)
                yield found


def _tell(rules: Rules, url: str, number: int) -> None:
    """Say where it hangs: a regex or a selector may take for ever on a page that was written against it."""
    from tqdm import tqdm

    at = f"column {rules.columns[number].name}" if number >= 0 else "`match` or the page itself"
    with tqdm.external_write_mode(file=sys.stderr):
        say(f"{url} takes long ({at}); it is given up after {PATIENCE:.0f} s, and Ctrl-C ends all", sys.stderr)


# ---- one page, to try the rules on


def try_page(store: Store, rules: Rules, given: str) -> str:
    """What the rules give on one stored page, as a table, and why it is not more."""
    url = find_page(store, given)["url"]
    tally, host = Tally(), urls.host(url)
    wanted: Iterator[Part] = iter([(f"{host}/{urls.key(url)}",)])
    shown = [row for found in _harvests(store, rules, True, wanted, 1, tally) for row in found.shown]
    lines = [*_table(shown, rules), *_reasons(shown, rules), tally.as_text()]
    if not rules.admits_host(host):
        lines.append("without --try this page is left out: none of `hosts` is its host")
    elif not rules.admits(url):
        lines.append("without --try this page is left out: `match` is not found in its URL")
    return "\n".join(lines)


def _table(shown: list[Row], rules: Rules) -> Iterator[str]:
    """The first rows of a page, and a number for each."""
    lines = [["row", *rules.names[1:]]]
    for number, row in enumerate(shown[:SHOWN], 1):
        lines.append([str(number), *map(_letters, row.values(rules))])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
    if len(shown) > SHOWN:
        yield f"and {many(len(shown) - SHOWN, 'row')} more"


def _letters(value: Any) -> str:
    if value is None:
        return "-"
    text = printable(settings.show(tuple(value) if isinstance(value, list) else value))  # an attribute may have lines
    return text if len(text) <= WIDE else text[: WIDE - 1] + "…"


def _reasons(shown: list[Row], rules: Rules) -> Iterator[str]:
    """Why rows are left out, and cells empty."""
    for number, row in enumerate(shown[:SHOWN], 1):
        if row.left_out:
            yield f"row {number} is left out: {row.left_out}"
        if row.left_out == EMPTY:
            continue
        empty: dict[str, list[str]] = {}
        for cell, column in zip(row.cells, rules.columns, strict=True):
            if cell.why:
                empty.setdefault(cell.why, []).append(column.name)
        yield from (f"row {number}, {', '.join(names)}: {why}" for why, names in empty.items())
