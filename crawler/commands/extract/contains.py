"""`:contains(TEXT)`: which elements have a text in them, found for all elements of a page in one pass."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crawler.commands.extract.tree import PageTree


class Outline:
    """A page's text on one line, and where in it each element begins and ends.

    Comparing the text of every element by itself would take the square of a page's size, if that is nested deeply.
    """

    def __init__(self, tree: PageTree) -> None:
        self._tree = tree
        self._elements: list[Any] = []
        self._starts, self._ends = array("l"), array("l")
        self._words: list[str] = []
        self._length, self._gap = 0, False
        self._walk(tree.root)
        self._text = "".join(self._words)

    def holders(self, text: str) -> Iterator[Any]:
        """Return the elements whose text contains this one; also scripts and styles, which are no text of others."""
        places = array("l", self._places(text))
        for element, start, end in zip(self._elements, self._starts, self._ends, strict=True):
            place = bisect_left(places, start)
            if place < len(places) and places[place] + len(text) <= end:
                yield element
        yield from (element for element in self._tree.page.select("script, style") if text in self._tree.text(element))

    def _places(self, text: str) -> Iterator[int]:
        place = self._text.find(text)
        while place >= 0:
            yield place
            place = self._text.find(text, place + 1)  # they may overlap

    def _walk(self, root: Any) -> None:
        left: list[Any] = [root]
        while left:
            part = left.pop()
            if isinstance(part, str):
                self._add(part)
                self._tree.charge(1, len(part))
            elif isinstance(part, int):  # the end of an element
                self._ends[part] = self._length
                self._gap |= self._tree.is_block(self._elements[part])
            else:
                left += [self._begin(part), *reversed(self._tree.parts(part))]
                self._tree.charge(1)

    def _begin(self, element: Any) -> int:
        """Note where an element begins; return its number."""
        self._gap |= self._tree.is_block(element)
        self._elements.append(element)
        self._starts.append(self._length + (self._gap and self._length > 0))
        self._ends.append(0)
        return len(self._elements) - 1

    def _add(self, text: str) -> None:
        words = " ".join(text.split())
        self._gap |= text[:1].isspace()
        if words:
            if self._gap and self._length:
                words = f" {words}"
            self._words.append(words)
            self._length += len(words)
            self._gap = text[-1].isspace()
