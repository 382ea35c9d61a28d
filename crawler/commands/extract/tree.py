"""A page as a tree in which rules look: one language of selectors and one kind of text, whichever parser reads."""

from __future__ import annotations

import re
from typing import Any

import turbohtml

from crawler.web.limits import bounded
from crawler.web.markup import soup

MOST = 40_000_000  # characters that may be looked at to make the texts of one page; a node is worth a few
NODE = 4
# What stands on a line or in a cell of its own: its text is apart from what is around it.
BLOCKS = frozenset(re.findall(r"\w+", """
    address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre
    search section select summary table tbody td textarea tfoot th thead title tr ul"""))  # fmt: skip
SILENT = frozenset({"script", "style", "template"})


class TooMuch(Exception):
    """The texts that are asked of one page are more than any page is worth."""


def read(text: str, parser: str) -> Tree:
    """Parse as much of a page as the parser can take."""
    part, is_cut = bounded(text, parser)
    return Soup(part, is_cut) if parser == "html5lib" else Turbo(part, is_cut)


class Tree:
    """A page that was parsed; `page` is where to look for what may be anywhere on it, `root` its <html>."""

    page: Any
    root: Any

    def __init__(self, is_cut: bool) -> None:
        self.is_cut = is_cut
        self._left = MOST

    def find(self, node: Any, css: str) -> list[Any]:
        """The elements within a node that a selector matches, in the order of the page; without one, the node."""
        return list(node.select(css)) if css else [self._element(node)]

    def first(self, node: Any, css: str) -> Any | None:
        """The first of them."""
        return node.select_one(css) if css else self._element(node)

    def _element(self, node: Any) -> Any:
        return self.root if node is self.page else node

    def text(self, node: Any) -> str:
        """All text in an element, on one line: white space is folded, and what stands on its own is apart.

        What scripts, styles and templates hold is no text, unless the element itself is one.
        """
        left, found = [*reversed(self._parts(node))], []
        while left:
            part = left.pop()
            self._left -= NODE
            if isinstance(part, str):
                found.append(part)
                self._left -= len(part)
            else:
                gap = [" "] if self._tag(part) in BLOCKS else []
                left += [*gap, *reversed(self._parts(part)), *gap]
            if self._left < 0:
                raise TooMuch
        return " ".join("".join(found).split())

    def attribute(self, node: Any, name: str) -> str | None:
        """The value of an attribute; None if there is none of this name."""
        raise NotImplementedError

    def _parts(self, node: Any) -> list[Any]:
        """The texts and the elements right within an element."""
        raise NotImplementedError

    def _tag(self, node: Any) -> str:
        raise NotImplementedError


class Turbo(Tree):
    """A page as turbohtml reads it."""

    def __init__(self, text: str, is_cut: bool) -> None:
        super().__init__(is_cut)
        self.page = turbohtml.parse(text)
        self.root = self.page.root
        for node in self.page.select("template"):  # what is in one is not in the page
            if node.namespace is turbohtml.Namespace.HTML:
                node.decompose()

    def attribute(self, node: turbohtml.Element, name: str) -> str | None:
        """The value of an attribute; None if there is none of this name."""
        return node.attr(name)

    def _parts(self, node: turbohtml.Node) -> list[Any]:
        found: list[Any] = []
        for part in node.children:
            if isinstance(part, turbohtml.Text | turbohtml.CData):
                found.append(part.data)
            elif isinstance(part, turbohtml.Element) and part.tag not in SILENT:
                found.append(part)
        return found

    def _tag(self, node: turbohtml.Element) -> str:
        return node.tag


class Soup(Tree):
    """A page as BeautifulSoup and html5lib read it."""

    def __init__(self, text: str, is_cut: bool) -> None:
        super().__init__(is_cut)
        self.page = soup(text)
        self.root = self.page.html

    def attribute(self, node: Any, name: str) -> str | None:
        """The value of an attribute; None if there is none of this name."""
        value: str | None = node.attrs.get(name, node.attrs.get(name.lower()))
        return value

    def _parts(self, node: Any) -> list[Any]:
        from bs4.element import PreformattedString, Tag  # loaded already, but only where html5lib is asked for

        found: list[Any] = []
        for part in node.children:
            if isinstance(part, Tag):
                found += [part] if part.name not in SILENT else []
            elif not isinstance(part, PreformattedString):  # a comment, or the like
                found.append(str(part))
        return found

    def _tag(self, node: Any) -> str:
        return str(node.name)
