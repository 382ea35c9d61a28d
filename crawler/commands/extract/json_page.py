"""A JSON page: values and their texts by JSONPath, bounded in time and memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from crawler.commands.export.rows import clean
from crawler.commands.extract.selectors import Selector, compiled
from crawler.commands.extract.tree import MAX_WORK, NODE_WORK, TooMuch
from crawler.web.page import Unreadable

MAX_VALUES = 1_000_000  # of a page: each is an object in memory
ROOT = "$"


def is_likely(text: str, content_type: str) -> bool:
    """Return whether a page is JSON by its type, or begins as if it were: not every API says what it sends."""
    return "json" in content_type.lower() or text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")


def read(text: str) -> JsonPage:
    """Parse a page; raise Unreadable if it is not JSON, or too large."""
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise Unreadable(f"with more than {MAX_VALUES:,} values")
    try:
        return JsonPage(json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None))
    except ValueError as error:
        raise Unreadable("with invalid JSON") from error


class JsonPage:
    """A parsed page: `page` is its value."""

    is_truncated = False

    def __init__(self, page: Any) -> None:
        self.page = page
        self._left = MAX_WORK

    def nodes(self, node: Any, selector: Selector) -> Iterator[Any]:
        """Return the values that a JSONPath finds from a value on."""
        from jsonpath import JSONPathError

        if not isinstance(node, dict | list):  # the library would parse a text once more
            yield from [node] if selector.path == ROOT else []
            return
        try:
            for found in compiled(selector.path).finditer(node):
                self._charge(NODE_WORK)
                yield found.obj
        except JSONPathError as error:
            raise Unreadable("nested too deeply") from error

    def texts(self, node: Any, selector: Selector, every: bool) -> list[str]:
        """Return what a JSONPath finds, as texts: every one, or only the first. `null` is nothing."""
        texts = []
        for value in self._items(node, selector) if every else self.nodes(node, selector):
            if value is not None:
                texts.append(self._text(value))
                if not every:
                    break
        return texts

    def base(self) -> None:
        """Return nothing: links in JSON are relative to its URL."""

    def _items(self, node: Any, selector: Selector) -> list[Any]:
        """Return all values; of a single array its items."""
        found = list(self.nodes(node, selector))
        return found[0] if len(found) == 1 and isinstance(found[0], list) else found

    def _text(self, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self._charge(len(text))
        return clean(text)

    def _charge(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise TooMuch
