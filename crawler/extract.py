"""Data from stored pages, by rules: no site is asked again, and the store is only read."""

from __future__ import annotations

import argparse
import os
import sys
from argparse import Namespace
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from crawler import config, errors, rules, sheets, urls
from crawler.errors import UsageError
from crawler.harvest import EMPTY, WIDE, Harvest, Row, Tally, read_part
from crawler.logs import many
from crawler.readers import PATIENCE, Lost, Part, Readers, parts
from crawler.rules import Rules
from crawler.show import Add, say
from crawler.store import Store, open_store

SHOWN = 20  # rows of a page that --try shows


def commands(add: Add) -> None:
    """`crawler extract`."""
    example = "crawler extract /mnt/shared/crawl complaints.yaml complaints.csv"
    made = add("extract", "take data from stored pages by rules, without asking any site again", run, example)
    made.add_argument("rules", type=Path, metavar="RULES.yaml", help="which pages, which rows, which columns")
    made.add_argument("out", type=Path, nargs="?", metavar="OUT", help="a new file: .csv, .jsonl or .sqlite")
    made.add_argument("--try", dest="url", metavar="URL", help="show what the rules give on one stored page")
    made.add_argument("--force", action="store_true", help="replace OUT if it is there")
    made.add_argument(
        "-j", "--workers", type=_count, default=os.cpu_count() or 1, metavar="N", help="processes (default: cores)"
    )


def _count(given: str) -> int:
    try:
        return int(config.whole(1, 1024)(given))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{given!r} {error}") from error


def run(options: Namespace) -> int:
    """`crawler extract`."""
    if (options.out is None) == (options.url is None):
        raise UsageError("name either OUT, a file to write, or a page of the store with --try URL")
    if options.out:
        sheets.check(options.out, options.force)
    given = read_rules(options.rules)
    store = open_store(options.store)
    if options.url:
        say(try_page(store, given, options.url))
    else:
        tally = extract(store, given, options.out, options.workers)
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


def extract(store: Store, rules: Rules, out: Path, workers: int) -> Tally:
    """Write what the rules give on all pages of a store; what was read and what was not."""
    from tqdm import tqdm

    tally = Tally()
    wanted = parts(store, filter(rules.admits_host, store.hosts()))
    types = dict(zip(rules.names, ["url", *(column.type for column in rules.columns)], strict=True))
    bar = tqdm(unit=" pages", file=sys.stderr, disable=not sys.stderr.isatty(), leave=False)
    harvests = closing(_harvests(store, rules, False, wanted, workers, tally))
    with bar, sheets.sheet(out, types) as write, harvests as given:
        for found in given:
            write(found.rows)
            bar.set_postfix(rows=tally.rows, refresh=False)
            bar.update(tally.pages - bar.n)
    return tally


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
    url = urls.spell(given, tracking=store.settings().tracking) or given
    record = store.record(url) if urls.is_safe(url) else None
    if not record or not record.get("sha224"):
        raise UsageError(f"{given} is no page of the store; `crawler explain {store.root} {given}` tells why")
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
    text = config.show(tuple(value) if isinstance(value, list) else value)
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
