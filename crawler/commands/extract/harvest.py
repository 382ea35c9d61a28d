"""What rules extract from pages: rows, and counts of what was read and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crawler.commands.extract import json_page, tables
from crawler.commands.extract import tree as trees
from crawler.commands.extract.json_page import JsonPage
from crawler.commands.extract.pool import Hand, Part
from crawler.commands.extract.rules import PAGE, URL, Column, ExtractRules
from crawler.commands.extract.tree import PageTree, TooMuch
from crawler.store.store import Page, Store
from crawler.terminal import many
from crawler.web import urls
from crawler.web.page import Unreadable

MAX_HARVEST = 4_000_000  # characters of rows in memory
MAX_SHOWN_TEXT = 30  # characters
EMPTY = "empty"
NOTHING = "the selector finds nothing"


class Cell(NamedTuple):
    """A value, or why there is none."""

    value: Any = None
    why: str = ""
    wrong: str | None = None  # a text that is not of the column's type


class ExtractedRow(NamedTuple):
    """The cell of each column, and why the row is skipped, if it is."""

    cells: list[Cell]
    skipped: str = ""
    more: dict[str, str] | None = None  # by the header of its table

    def values(self, rules: ExtractRules) -> list[Any]:
        """Return the row as it is written, without the URL."""
        found = zip(self.cells, rules.columns, strict=True)
        return [column.default if cell.value is None else cell.value for cell, column in found]


@dataclass(slots=True)
class Tally:
    """What was read, and what was not."""

    pages: int = 0
    truncated: int = 0
    rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # rows, by reason
    wrong: Counter[str] = field(default_factory=Counter)  # texts that are not of their column's type, by column
    unread: Counter[str] = field(default_factory=Counter)  # pages, by reason
    rejected: Counter[str] = field(default_factory=Counter)  # rows that a database does not take, by reason
    filled: set[str] = field(default_factory=set)  # columns that have a value in some row
    without_columns: int = 0  # rows of tables with more columns than a file can have
    examples: dict[tuple[str, str], str] = field(default_factory=dict)  # the first of each of these

    def add(self, later: Tally) -> None:
        """Add the counts of later pages."""
        self.pages += later.pages
        self.truncated += later.truncated
        self.rows += later.rows
        self.skipped += later.skipped
        self.wrong += later.wrong
        self.unread += later.unread
        self.rejected += later.rejected
        self.filled |= later.filled
        self.examples = later.examples | self.examples

    def count_unread(self, why: str, example: str) -> None:
        """Count a page that could not be read."""
        self.unread[why] += 1
        self.examples.setdefault(("unread", why), example)

    def count_wrong(self, column: str, example: str) -> None:
        """Count a text that is not of its column's type."""
        self.wrong[column] += 1
        self.examples.setdefault(("wrong", column), example)

    def count_rejected(self, why: str, example: str) -> None:
        """Count a row that a database did not take."""
        self.rows -= 1
        self.rejected[why] += 1
        self.examples.setdefault(("rejected", why), example)

    def as_text(self, columns: Iterable[str] = ()) -> str:
        """Return all counts in one line, with those of these columns that are empty in every row."""
        said = [f"{many(self.pages, 'page')} read, {many(self.rows, 'row')}"]
        if self.skipped:
            said.append("skipped: " + ", ".join(f"{count:,} {why}" for why, count in sorted(self.skipped.items())))
        if self.wrong:
            said.append("not converted: " + self._with_examples("wrong", self.wrong, "of "))
        if self.rejected:
            said.append("not written: " + self._with_examples("rejected", self.rejected))
        if empty := [name for name in columns if name not in self.filled] if self.rows else []:
            said.append("empty in every row: " + ", ".join(empty))
        if self.unread:
            said.append("not read: " + self._with_examples("unread", self.unread))
        if self.without_columns:
            said.append(f"without some of their columns: {many(self.without_columns, 'row')}")
        if self.truncated:
            said.append(f"truncated: {many(self.truncated, 'page')} larger than the parser's limits")
        return "; ".join(said)

    def _with_examples(self, noun: str, counts: Counter[str], before: str = "") -> str:
        said = (f"{count:,} {before}{name} (first {self.examples[noun, name]})" for name, count in counts.items())
        return ", ".join(said)


@dataclass(slots=True)
class Harvest:
    """What was extracted from some pages."""

    tally: Tally = field(default_factory=Tally)
    rows: list[list[Any]] = field(default_factory=list)
    shown: list[ExtractedRow] = field(default_factory=list)  # with --try: all rows, skipped ones too
    rest: Part = ()
    size: int = 0

    def add(self, row: ExtractedRow, url: str, rules: ExtractRules) -> None:
        """Add a row unless it is skipped, and count what is wrong with it."""
        if row.skipped:
            self.tally.skipped[row.skipped] += 1
        if row.skipped == EMPTY:
            return
        for cell, column in zip(row.cells, rules.columns, strict=True):
            if cell.wrong is not None:
                self.tally.count_wrong(column.name, f"{short(cell.wrong)} at {url}")
        if not row.skipped:
            more = [] if row.more is None else [row.more]
            values = row.values(rules)
            self.rows.append([url, *values, *more])
            self.tally.rows += 1
            named = zip(rules.columns, values, strict=True)
            self.tally.filled.update(column.name for column, value in named if value is not None)
            self.size += 100 + sum(len(str(value)) for value in self.rows[-1])


def read_part(root: Path, rules: ExtractRules, show: bool, part: Part, hand: Hand, since: float = 0.0) -> Harvest:
    """Read some pages, in a process of the pool; with `show` also those that the rules do not match."""
    store, found = Store(root), Harvest()
    for place, name in enumerate(part):
        if found.size > MAX_HARVEST:
            found.rest = part[place:]
            break
        if since and store.changed(*name.split("/")) < since:
            continue
        page = store.page_at(*name.split("/"))
        if not page or not (show or _is_wanted(page, name, rules, hand)):
            continue
        if "file" in page.record:
            continue  # no text to read
        html = store.text(page.url, page.record)
        if html is None:
            found.tally.count_unread("without html", page.url)
        elif rules.is_json and not json_page.is_likely(html, str(page.record.get("type"))):
            found.tally.count_unread("not JSON", page.url)
        else:
            _read_page(page.url, name, html, rules, show, hand, found)
    return found


def _is_wanted(page: Page, name: str, rules: ExtractRules, hand: Hand) -> bool:
    hand.take(name, page.url)  # the regex of `match` may hang on some URL
    try:
        return rules.admits(page.url)
    finally:
        hand.drop()


def _read_page(url: str, name: str, html: str, rules: ExtractRules, show: bool, hand: Hand, found: Harvest) -> None:
    """Add the rows of a page."""
    hand.take(name, url)
    try:
        tree = json_page.read(html) if rules.is_json else trees.read(html, rules.parser)
        found.tally.truncated += tree.is_truncated
        for row in rows_of(tree, rules, url, hand):
            found.add(row, url, rules)
            found.shown += [row] if show else []
        found.tally.pages += 1
    except TooMuch:
        found.tally.pages += 1
        found.tally.truncated += not tree.is_truncated
    except Unreadable as error:
        found.tally.count_unread(str(error), url)
    except RecursionError:
        found.tally.count_unread("nested too deeply", url)
    except Exception as error:  # noqa: BLE001 - a bug that one page meets must not end the work on millions
        found.tally.count_unread("because of a bug in the program", f"{error!r} at {url}")
    finally:
        hand.drop()


def rows_of(tree: PageTree | JsonPage, rules: ExtractRules, url: str, hand: Hand) -> Iterator[ExtractedRow]:
    """Return the rows of a page, in its order."""
    reader = _RowReader(tree, rules, url, hand)
    if rules.table and isinstance(tree, PageTree):
        named = frozenset(name.casefold() for name in rules.names)
        for node, cells in tables.rows(tree, rules.table, named):
            yield reader.row(node, cells)
        return
    for node in tree.nodes(tree.page, rules.rows) if rules.rows else [tree.page]:
        yield reader.row(node)


class _RowReader:
    """Reads the rows of one page."""

    def __init__(self, tree: PageTree | JsonPage, rules: ExtractRules, url: str, hand: Hand) -> None:
        self.tree, self.rules, self.url, self.hand = tree, rules, url, hand
        base = tree.base() if any(column.type == "url" for column in rules.columns) else None
        self.base = (urls.normalize(base, url, ()) if base is not None else None) or url

    def row(self, node: Any, more: dict[str, str] | None = None) -> ExtractedRow:
        """Return the row of an element, with what else is known of it."""
        cells = []
        for number, column in enumerate(self.rules.columns):
            self.hand.at(number)
            cells.append(self._cell(column, self._texts(column, node)))
        return ExtractedRow(cells, self._why_skipped(cells, bool(more)), more)

    def _why_skipped(self, cells: list[Cell], has_more: bool) -> str:
        """Return why a row is skipped: it is empty (as a table's head is), or lacks a required column."""
        both = list(zip(cells, self.rules.columns, strict=True))
        own = [cell for cell, column in both if not self._is_shared(column)] or cells
        if not has_more and all(cell.value is None or cell.value is False for cell in own):
            return EMPTY
        return next((f"without {column.name}" for cell, column in both if column.required and cell.value is None), "")

    def _is_shared(self, column: Column) -> bool:
        """Return whether all rows of a page have the same value here."""
        return column.source == URL or (column.source == PAGE and bool(self.rules.rows or self.rules.table))

    def _texts(self, column: Column, node: Any) -> list[str]:
        """Return the texts or attributes that a column's selector matches."""
        if column.source == URL:
            return [self.url]
        start = self.tree.page if column.source == PAGE else node
        return self.tree.texts(start, column.selector, column.type == "list")

    def _cell(self, column: Column, texts: list[str]) -> Cell:
        if column.type == "list":
            items = [item for item in map(column.clean, texts) if item]
            return Cell(items) if items else Cell(why=NOTHING)
        if not texts:
            return Cell(False) if column.type == "bool" else Cell(why=NOTHING)
        text = column.clean(texts[0])
        if text is None:
            return Cell(why=f"the regex finds nothing in {short(texts[0])}")
        if not text and column.type != "bool":
            return Cell(why="there is no text")
        try:
            return Cell(column.convert(text, self.base))
        except ValueError as error:
            return Cell(why=f"{short(text)} is {error}", wrong=text)


def short(text: str) -> str:
    """Return the beginning of a text, in quotes."""
    return repr(text if len(text) <= MAX_SHOWN_TEXT else text[: MAX_SHOWN_TEXT - 1] + "…")
