"""Whole tables: their header names the columns; cells that span rows and columns count in each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from crawler.commands.extract.selectors import Selector
from crawler.commands.extract.tree import PageTree

MAX_WIDTH = 500  # columns of a table
MAX_NAME = 60  # characters of a column's name: databases take no more than 63
_HEAD = ":scope > thead > tr"
_BODY = ":scope > tr, :scope > tbody > tr, :scope > tfoot > tr"


class _Line(NamedTuple):
    """A row of a table: its element, the text of each column, and whether it has only header cells."""

    node: Any
    texts: list[str]
    is_header: bool


def rows(tree: PageTree, selector: Selector, reserved: Collection[str]) -> Iterator[tuple[Any, dict[str, str]]]:
    """Return each row of the tables on a page: its element, and its texts by the names in the header.

    Names that are reserved, in any case, are left out.
    """
    for node in tree.nodes(tree.page, selector):
        table = node if tree.tag(node) == "table" else node.select_one("table")
        if table is not None:
            yield from _rows_of_one(tree, table, reserved)


def _rows_of_one(tree: PageTree, table: Any, reserved: Collection[str]) -> Iterator[tuple[Any, dict[str, str]]]:
    header = [line.texts for line in _lines(tree, table.select(_HEAD))]
    names, is_open = _names(header), not header
    for line in _lines(tree, table.select(_BODY)):
        if is_open and (line.is_header or not header):  # without header cells, the first row is the header
            header.append(line.texts)
            names, is_open = _names(header), line.is_header
            continue
        is_open = False
        if line.texts in header:  # long tables repeat it
            continue
        names += [f"column {number + 1}" for number in range(len(names), len(line.texts))]
        named = zip(names, line.texts, strict=False)
        yield line.node, {name: text for name, text in named if text and name.casefold() not in reserved}


def _lines(tree: PageTree, rows: Iterable[Any]) -> Iterator[_Line]:
    """Return the rows of a table as a grid."""
    from_above: dict[int, tuple[int, str]] = {}  # by column: how many rows more, and the text
    for node in rows:
        texts: list[str] = []
        cells = [part for part in tree.parts(node) if not isinstance(part, str) and tree.tag(part) in ("td", "th")]
        for cell in cells:
            _take_from_above(tree, texts, from_above)
            text, down = tree.text(cell), _span(tree, cell, "rowspan")
            for _ in range(min(_span(tree, cell, "colspan"), MAX_WIDTH - len(texts))):
                tree.charge(1, len(text))
                if down > 1:
                    from_above[len(texts)] = (down - 1, text)
                texts.append(text)
        _take_from_above(tree, texts, from_above)
        yield _Line(node, texts, bool(cells) and all(tree.tag(cell) == "th" for cell in cells))


def _take_from_above(tree: PageTree, texts: list[str], from_above: dict[int, tuple[int, str]]) -> None:
    while len(texts) in from_above:
        left, text = from_above.pop(len(texts))
        tree.charge(1, len(text))
        if left > 1:
            from_above[len(texts)] = (left - 1, text)
        texts.append(text)


def _span(tree: PageTree, cell: Any, name: str) -> int:
    given = (tree.attribute(cell, name) or "").strip()
    return max(1, int(given)) if given.isascii() and given.isdigit() and len(given) < 6 else 1


def _names(header: list[list[str]]) -> list[str]:
    """Return a name for each column: what all rows of the header say of it, once each; made different by numbers."""
    found: list[str] = []
    seen: set[str] = set()
    for number in range(max(map(len, header), default=0)):
        said = dict.fromkeys(line[number] for line in header if number < len(line) and line[number])
        name = wanted = " ".join(said)[:MAX_NAME].strip() or f"column {number + 1}"
        repeat = 1
        while name.casefold() in seen:
            repeat += 1
            name = f"{wanted} {repeat}"
        seen.add(name.casefold())
        found.append(name)
    return found
