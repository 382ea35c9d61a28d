"""A page as a tree: the same selectors and the same text with either parser."""

from __future__ import annotations

import re
from typing import Any

import turbohtml

from crawler.web.limits import bounded
from crawler.web.markup import soup

MAX_WORK = 40_000_000  # characters read to make the texts of one page
NODE_WORK = 4  # a node counts as so many characters
# Elements on a line or in a cell of their own: their text is separated from what is around it.
BLOCKS = frozenset(re.findall(r"\w+", """
    address article aside blockquote body br button caption center dd details dialog dir div dl dt fieldset figcaption
    figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li main menu nav ol optgroup option p pre
    search section select summary table tbody td textarea tfoot th thead title tr ul"""))  # fmt: skip
NOT_TEXT = frozenset({"script", "style", "template"})


class TooMuch(Exception):
    """Making the texts of this page takes too much work."""


def read(text: str, parser: str) -> PageTree:
    """Parse as much of a page as the parser's limits allow."""
    part, is_truncated = bounded(text, parser)
    return Soup(part, is_truncated) if parser == "html5lib" else Turbo(part, is_truncated)


class PageTree:
    """A parsed page: `page` is the document, `root` its <html>."""

    page: Any
    root: Any

    def __init__(self, is_truncated: bool) -> None:
        self.is_truncated = is_truncated
        self._left = MAX_WORK

    def find(self, node: Any, css: str) -> list[Any]:
        """Return the elements within a node that a selector matches, in their order; without one, the node."""
        return list(node.select(css)) if css else [self._element(node)]

    def first(self, node: Any, css: str) -> Any | None:
        """Return the first of them."""
        return node.select_one(css) if css else self._element(node)

    def _element(self, node: Any) -> Any:
        return self.root if node is self.page else node

    def text(self, node: Any) -> str:
        """Return all text in an element, on one line, with white space folded.

        Scripts, styles and templates within it do not count.
        """
        left, found = [*reversed(self._parts(node))], []
        while left:
            part = left.pop()
            self._left -= NODE_WORK
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
        """Return the value of an attribute, or None."""
        raise NotImplementedError

    def _parts(self, node: Any) -> list[Any]:
        """Return the texts and elements directly within an element."""
        raise NotImplementedError

    def _tag(self, node: Any) -> str:
        raise NotImplementedError


class Turbo(PageTree):
    """A page as turbohtml reads it."""

    def __init__(self, text: str, is_truncated: bool) -> None:
        super().__init__(is_truncated)
        self.page = turbohtml.parse(text)
        self.root = self.page.root
        for node in self.page.select("template"):  # its content is not part of the page
            if node.namespace is turbohtml.Namespace.HTML:
                node.decompose()

    def attribute(self, node: turbohtml.Element, name: str) -> str | None:
        """Return the value of an attribute, or None."""
        return node.attr(name)

    def _parts(self, node: turbohtml.Node) -> list[Any]:
        found: list[Any] = []
        for part in node.children:
            if isinstance(part, turbohtml.Text | turbohtml.CData):
                found.append(part.data)
            elif isinstance(part, turbohtml.Element) and part.tag not in NOT_TEXT:
                found.append(part)
        return found

    def _tag(self, node: turbohtml.Element) -> str:
        return node.tag


class Soup(PageTree):
    """A page as BeautifulSoup and html5lib read it."""

    def __init__(self, text: str, is_truncated: bool) -> None:
        super().__init__(is_truncated)
        self.page = soup(text)
        self.root = self.page.html

    def attribute(self, node: Any, name: str) -> str | None:
        """Return the value of an attribute, or None."""
        value: str | None = node.attrs.get(name, node.attrs.get(name.lower()))
        return value

    def _parts(self, node: Any) -> list[Any]:
        from bs4.element import PreformattedString, Tag  # loaded already, but only with html5lib

        found: list[Any] = []
        for part in node.children:
            if isinstance(part, Tag):
                found += [part] if part.name not in NOT_TEXT else []
            elif not isinstance(part, PreformattedString):  # a comment, or the like
                found.append(str(part))
        return found

    def _tag(self, node: Any) -> str:
        return str(node.name)
