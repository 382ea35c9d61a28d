"""The URLs that a user gives: as arguments, which may hold ranges, as lines of a file, or as a column of a table."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from crawler.commands.arguments import hidden, normalize_seed, reading
from crawler.errors import UsageError, did_you_mean
from crawler.frontier.task import sitemap_task
from crawler.web import ranges

DELIMITERS = ",;\t|"  # of tables; the one that the first line has most of is used


def add_flags(made: argparse.ArgumentParser) -> None:
    """Add the flags of commands that take URLs."""
    made.add_argument("urls", nargs="*", default=[], metavar="URL", help="where to begin; [0-90:30] and {a,b} expand")
    made.add_argument("-i", "--input-file", metavar="FILE", help="URLs, one a line; - is standard input")
    made.add_argument(
        "--sitemap", metavar="URL", action="append", default=[], help="a sitemap: what it lists are seeds; repeatable"
    )
    made.add_argument("--from", dest="table", metavar="FILE", help="a CSV table with a header; - is standard input")
    made.add_argument("--template", metavar="URL", help="a URL for each row, with {column} filled in")
    made.add_argument("-g", "--globoff", action="store_true", help="take brackets and braces in URLs as they are")


def given_seeds(options: argparse.Namespace) -> list[str]:
    """Return the URLs that the user gave, normalized."""
    pages = [normalize_seed(url) for given in options.urls for url in _expanded(given, options.globoff)]
    pages += _lines(options.input_file)
    pages += _rows(options.table, options.template)
    return pages + [sitemap_task(normalize_seed(seed)).name for seed in options.sitemap]


def _expanded(given: str, globoff: bool) -> Iterator[str]:
    try:
        yield from [given] if globoff else ranges.expand(given)
    except ValueError as error:
        # What stands before an @ may be a password, with brackets in it.
        why = "it has a range that makes no sense; with --globoff brackets stay as they are" if "@" in given else error
        raise UsageError(f"{hidden(given)!r}: {why}") from None


def _lines(file: str | None) -> Iterator[str]:
    """Yield the URLs of a file, one a line; a line that begins with # is a comment."""
    if file is None:
        return
    for number, line in enumerate(_text(file, "a text file with one URL a line").splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            yield _normalized(line.strip(), f"{file}, line {number}")


def _rows(file: str | None, template: str | None) -> Iterator[str]:
    """Yield a URL for each row of a table; rows with an empty value have none."""
    if file is None and template is None:
        return
    if file is None or template is None:
        raise UsageError("--from FILE and --template URL go together: the URL's {columns} are filled from the table")
    text = _text(file, "a CSV table")
    head = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=max(DELIMITERS, key=head.count))
    wanted = _columns(template, file, list(reader.fieldnames or ()))
    try:
        for row in reader:
            values = {name: (row[name] or "").strip() for name in wanted}
            if all(values.values()):
                yield _normalized(ranges.fill(template, values), f"{file}, line {reader.line_num}")
    except csv.Error as error:
        raise UsageError(f"{file}, line {reader.line_num}: {error}; name a CSV table") from error


def _columns(template: str, file: str, columns: list[str]) -> list[str]:
    """Return the columns that a template needs, all of which a table must have."""
    wanted = ranges.fields(template)
    if not wanted:
        raise UsageError(f"--template {template!r} has no {{column}}; name one of {', '.join(columns)}")
    for name in wanted:
        if name not in columns:
            hint = did_you_mean(name, columns, f"it has {', '.join(columns)}")
            raise UsageError(f"{file} has no column {name!r}; {hint}")
    return wanted


def _normalized(url: str, where: str) -> str:
    try:
        return normalize_seed(url)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _text(file: str, what: str) -> str:
    with reading(file, what):
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    return text.removeprefix("\ufeff")
