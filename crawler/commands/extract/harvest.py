"""What rules give on pages: rows, and a tally of what was read and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crawler.commands.extract import tree as trees
from crawler.commands.extract.pool import Hand, Part
from crawler.commands.extract.rules import PAGE, URL, Column, Rules
from crawler.commands.extract.tree import TooMuch, Tree
from crawler.store.store import Page, Store
from crawler.terminal import many
from crawler.web import urls
from crawler.web.page import Unreadable

ENOUGH = 4_000_000  # characters of rows that are kept in memory before they are handed over
WIDE = 30  # letters of a text that are shown
EMPTY = "empty"
NOTHING = "the selector finds nothing"


class Cell(NamedTuple):
    """A value, or why there is none."""

    value: Any = None
    why: str = ""
    wrong: str | None = None  # a text that is not of the column's type


class Row(NamedTuple):
    """What was found for each column, and why the row is left out, if it is."""

    cells: list[Cell]
    left_out: str = ""

    def values(self, rules: Rules) -> list[Any]:
        """The row as it is written, but for the URL."""
        found = zip(self.cells, rules.columns, strict=True)
        return [column.default if cell.value is None else cell.value for cell, column in found]


@dataclass(slots=True)
class Tally:
    """What was read, and what was not."""

    pages: int = 0
    cut: int = 0
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # by why
    wrong: Counter[str] = field(default_factory=Counter)  # by column
    unread: Counter[str] = field(default_factory=Counter)  # by why
    examples: dict[tuple[str, str], str] = field(default_factory=dict)  # the first of each of these

    def add(self, later: Tally) -> None:
        """Count what another has counted, of pages that come later."""
        self.pages += later.pages
        self.cut += later.cut
        self.rows += later.rows
        self.left_out += later.left_out
        self.wrong += later.wrong
        self.unread += later.unread
        self.examples = later.examples | self.examples

    def lose(self, why: str, example: str) -> None:
        """Count a page that could not be read."""
        self.unread[why] += 1
        self.examples.setdefault(("unread", why), example)

    def doubt(self, column: str, example: str) -> None:
        """Count a text that is not of its column's type."""
        self.wrong[column] += 1
        self.examples.setdefault(("wrong", column), example)

    def as_text(self) -> str:
        """All of it in one line."""
        said = [f"{many(self.pages, 'page')} read, {many(self.rows, 'row')}"]
        if self.left_out:
            said.append("left out: " + ", ".join(f"{count:,} {why}" for why, count in sorted(self.left_out.items())))
        if self.wrong:
            said.append("not converted: " + self._told("wrong", self.wrong, "of "))
        if self.unread:
            said.append("not read: " + self._told("unread", self.unread))
        if self.cut:
            said.append(f"cut short: {many(self.cut, 'page')} with too much on them")
        return "; ".join(said)

    def _told(self, noun: str, counts: Counter[str], before: str = "") -> str:
        """Each count, with the first of what it counts."""
        told = (f"{count:,} {before}{name} (first {self.examples[noun, name]})" for name, count in counts.items())
        return ", ".join(told)


@dataclass(slots=True)
class Harvest:
    """What some pages gave."""

    tally: Tally = field(default_factory=Tally)
    rows: list[list[Any]] = field(default_factory=list)
    shown: list[Row] = field(default_factory=list)  # all of them, if somebody wants to see what was left out
    rest: Part = ()
    size: int = 0

    def add(self, row: Row, url: str, rules: Rules) -> None:
        """Add a row, unless it is left out, and count what is wrong with it."""
        if row.left_out:
            self.tally.left_out[row.left_out] += 1
        if row.left_out == EMPTY:
            return
        for cell, column in zip(row.cells, rules.columns, strict=True):
            if cell.wrong is not None:
                self.tally.doubt(column.name, f"{short(cell.wrong)} at {url}")
        if not row.left_out:
            self.rows.append([url, *row.values(rules)])
            self.tally.rows += 1
            self.size += 100 + sum(len(str(value)) for value in self.rows[-1])


def read_part(root: Path, rules: Rules, show: bool, part: Part, hand: Hand) -> Harvest:
    """Read some pages, in a process of its own; `show`: whatever the rules say of which pages."""
    store, found = Store(root), Harvest()
    for place, name in enumerate(part):
        if found.size > ENOUGH:
            found.rest = part[place:]
            break
        page = store.page_at(*name.split("/"))
        if not page or not (show or _is_wanted(page, name, rules, hand)):
            continue
        html = store.text(page.url)
        if html is None:
            found.tally.lose("without html", page.url)
        else:
            _read_page(page.url, name, html, rules, show, hand, found)
    return found


def _is_wanted(page: Page, name: str, rules: Rules, hand: Hand) -> bool:
    hand.take(name, page.url)  # a user's regex, on a stranger's URL
    try:
        return rules.admits(page.url)
    finally:
        hand.drop()


def _read_page(url: str, name: str, html: str, rules: Rules, show: bool, hand: Hand, found: Harvest) -> None:
    """Add the rows of a page to those that were found."""
    hand.take(name, url)
    try:
        tree = trees.read(html, rules.parser)
        found.tally.cut += tree.is_cut
        for row in rows_of(tree, rules, url, hand):
            found.add(row, url, rules)
            found.shown += [row] if show else []
        found.tally.pages += 1
    except TooMuch:
        found.tally.pages += 1
        found.tally.cut += not tree.is_cut
    except (Unreadable, RecursionError):
        found.tally.lose("nested too deeply", url)
    except Exception as error:  # noqa: BLE001 - a fault of ours on one page must not end the work on millions
        found.tally.lose("by a fault of the program", f"{error!r} at {url}")
    finally:
        hand.drop()


def rows_of(tree: Tree, rules: Rules, url: str, hand: Hand) -> Iterator[Row]:
    """The rows of a page, in its order."""
    look = _Look(tree, rules, url, hand)
    for node in tree.find(tree.page, rules.rows) if rules.rows else [tree.page]:
        yield look.row(node)


class _Look:
    """A look at one page."""

    def __init__(self, tree: Tree, rules: Rules, url: str, hand: Hand) -> None:
        self.tree, self.rules, self.url, self.hand = tree, rules, url, hand
        has_links = any(column.type == "url" for column in rules.columns)
        base = tree.first(tree.page, "base[href]") if has_links else None
        self.base = (urls.normalize(tree.attribute(base, "href") or "", url, ()) if base is not None else None) or url

    def row(self, node: Any) -> Row:
        """The row that an element is."""
        cells = []
        for number, column in enumerate(self.rules.columns):
            self.hand.at(number)
            cells.append(self._cell(column, self._texts(column, node)))
        return Row(cells, self._left_out(cells))

    def _left_out(self, cells: list[Cell]) -> str:
        """Why a row does not count: there is nothing in it (as in a table's head), or it lacks what it must have."""
        both = list(zip(cells, self.rules.columns, strict=True))
        own = [cell for cell, column in both if not self._is_shared(column)] or cells
        if all(cell.value is None or cell.value is False for cell in own):
            return EMPTY
        return next((f"without {column.name}" for cell, column in both if column.required and cell.value is None), "")

    def _is_shared(self, column: Column) -> bool:
        """Whether all rows of a page have this in common."""
        return column.source == URL or (column.source == PAGE and self.rules.rows is not None)

    def _texts(self, column: Column, node: Any) -> list[str]:
        """The texts or attributes that a column's selector matches: all of them for a list, else the first."""
        if column.source == URL:
            return [self.url]
        start = self.tree.page if column.source == PAGE else node
        if column.attribute:
            found = (self.tree.attribute(element, column.attribute) for element in self.tree.find(start, column.css))
            return [value.strip() for value in found if value is not None]
        if column.type == "list":
            return [self.tree.text(element) for element in self.tree.find(start, column.css)]
        element = self.tree.first(start, column.css)
        return [] if element is None else [self.tree.text(element)]

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
    """The beginning of a text, in quotes."""
    return repr(text if len(text) <= WIDE else text[: WIDE - 1] + "…")
