"""A page as a tree: the same selectors and the same text with either parser; XPath with turbohtml only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import turbohtml

from crawler.commands.extract.contains import Outline
from crawler.commands.extract.selectors import XPATH, Selector
from crawler.web.limits import bounded
from crawler.web.markup import soup
from crawler.web.page import Unreadable
from crawler.web.visible import BLOCKS, NOT_TEXT

MAX_WORK = 40_000_000  # characters read to make the texts of one page
NODE_WORK = 4  # a node counts as so many characters


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
        self._marked: set[str] = set()
        self._outline: Outline | None = None

    def nodes(self, node: Any, selector: Selector) -> Iterable[Any]:
        """Return the elements that a selector finds from a node, in their order; an empty one finds the node."""
        if selector.kind == XPATH:
            return [found for found in self._xpath(node, selector.path) if not isinstance(found, str)]
        for name, text in selector.needles:
            self._mark(name, text)
        start: Iterable[Any] = [self._element(node)] if selector.siblings or not selector.path else [node]
        for how, what in selector.siblings:
            start = self._siblings(start, how, what)
        return (found for one in start for found in one.select(selector.path)) if selector.path else start

    def texts(self, node: Any, selector: Selector, every: bool) -> list[str]:
        """Return the texts or attributes that a selector finds: every one, or only the first."""
        if selector.kind == XPATH:
            found = self._xpath(node, selector.path)
            return [self._xpath_text(item) for item in (found if every else found[:1])]
        if selector.attribute:
            values = (self.attribute(element, selector.attribute) for element in self.nodes(node, selector))
            return [value.strip() for value in values if value is not None]
        elements = self.nodes(node, selector) if every else self._first(node, selector)
        return [self.text(element) for element in elements]

    def base(self) -> str | None:
        """Return what the page says its links are relative to."""
        found = self.page.select_one("base[href]")
        return None if found is None else self.attribute(found, "href")

    def _first(self, node: Any, selector: Selector) -> list[Any]:
        if selector.path and not selector.siblings and not selector.needles:  # the parser stops at the first
            found = node.select_one(selector.path)
        else:
            found = next(iter(self.nodes(node, selector)), None)
        return [] if found is None else [found]

    def _siblings(self, nodes: Iterable[Any], how: str, what: str) -> Iterator[Any]:
        """Return the next sibling of each node (+), or all that follow (~), if they match."""
        for node in nodes:
            for other in self._following(node):
                self.charge(1)
                if self._matches(other, what):
                    yield other
                if how == "+":
                    break

    def _mark(self, name: str, text: str) -> None:
        """Give an attribute to every element that contains a text."""
        if name in self._marked:
            return
        self._marked.add(name)
        self._outline = self._outline or Outline(self)
        for element in self._outline.holders(text):
            self.set_attribute(element, name)

    def charge(self, nodes: int, characters: int = 0) -> None:
        """Count work; raise TooMuch when a page has taken its share."""
        self._left -= NODE_WORK * nodes + characters
        if self._left < 0:
            raise TooMuch

    def _element(self, node: Any) -> Any:
        return self.root if node is self.page else node

    def text(self, node: Any) -> str:
        """Return all text in an element, on one line, with white space folded.

        Scripts, styles and templates within it do not count.
        """
        left, found = [*reversed(self.parts(node))], []
        while left:
            part = left.pop()
            self._left -= NODE_WORK
            if isinstance(part, str):
                found.append(part)
                self._left -= len(part)
            else:
                gap = [" "] if self.tag(part) in BLOCKS else []
                left += [*gap, *reversed(self.parts(part)), *gap]
            if self._left < 0:
                raise TooMuch
        return " ".join("".join(found).split())

    def attribute(self, node: Any, name: str) -> str | None:
        """Return the value of an attribute, or None."""
        raise NotImplementedError

    def is_block(self, node: Any) -> bool:
        """Return whether the text of an element is separated from what is around it."""
        return self.tag(node) in BLOCKS

    def set_attribute(self, node: Any, name: str) -> None:
        """Give an element an attribute, without a value."""
        raise NotImplementedError

    def parts(self, node: Any) -> list[Any]:
        """Return the texts and elements directly within an element."""
        raise NotImplementedError

    def tag(self, node: Any) -> str:
        """Return the name of an element."""
        raise NotImplementedError

    def _following(self, node: Any) -> Iterator[Any]:
        """Return the elements that follow a node beside it."""
        raise NotImplementedError

    def _matches(self, node: Any, css: str) -> bool:
        raise NotImplementedError

    def _xpath(self, node: Any, path: str) -> list[Any]:
        """Return what an XPath finds: elements, and texts of all that is not an element."""
        raise NotImplementedError

    def _xpath_text(self, found: Any) -> str:
        return found if isinstance(found, str) else self.text(found)


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

    def set_attribute(self, node: turbohtml.Element, name: str) -> None:
        """Give an element an attribute, without a value."""
        node.attrs[name] = ""

    def parts(self, node: turbohtml.Node) -> list[Any]:
        """Return the texts and elements directly within an element."""
        found: list[Any] = []
        for part in node.children:
            if isinstance(part, turbohtml.Text | turbohtml.CData):
                found.append(part.data)
            elif isinstance(part, turbohtml.Element) and part.tag not in NOT_TEXT:
                found.append(part)
        return found

    def tag(self, node: turbohtml.Element) -> str:
        """Return the name of an element."""
        return node.tag

    def _following(self, node: turbohtml.Element) -> Iterator[turbohtml.Element]:
        return (other for other in node.next_siblings if isinstance(other, turbohtml.Element))

    def _matches(self, node: turbohtml.Element, css: str) -> bool:
        return node.matches(css)

    def _xpath(self, node: turbohtml.Node, path: str) -> list[Any]:
        """Return what an XPath finds: elements, and texts of all that is not an element."""
        try:
            found = node.xpath(path)
        except ValueError as error:
            raise Unreadable(f"on which the XPath {path} fails: {error}") from error
        items = found if isinstance(found, list) else [found]
        self.charge(len(items))
        return [item if isinstance(item, turbohtml.Element) else self._folded(item) for item in items]

    def _folded(self, item: Any) -> str:
        if isinstance(item, bool):
            return str(item).lower()
        if isinstance(item, float):
            return str(int(item)) if item.is_integer() else str(item)
        text = str(item if isinstance(item, str) else getattr(item, "data", ""))
        self.charge(0, len(text))
        return " ".join(text.split())


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

    def set_attribute(self, node: Any, name: str) -> None:
        """Give an element an attribute, without a value."""
        node.attrs[name] = ""

    def parts(self, node: Any) -> list[Any]:
        """Return the texts and elements directly within an element."""
        from bs4.element import PreformattedString, Tag  # loaded already, but only with html5lib

        found: list[Any] = []
        for part in node.children:
            if isinstance(part, Tag):
                found += [part] if part.name not in NOT_TEXT else []
            elif not isinstance(part, PreformattedString):  # a comment, or the like
                found.append(str(part))
        return found

    def tag(self, node: Any) -> str:
        """Return the name of an element."""
        return str(node.name)

    def _following(self, node: Any) -> Iterator[Any]:
        return (other for other in node.next_siblings if other.name)

    def _matches(self, node: Any, css: str) -> bool:
        return bool(node.css.match(css))
