"""Reads XML from strangers a piece at a time: bounded in time and memory for any input, and without entities."""

from __future__ import annotations

from collections.abc import Iterable
from xml.parsers import expat

from crawler.web.page import Unreadable
from crawler.web.urls import MAX_INPUT

# More than any sitemap or feed needs: a parser keeps every name, every open element, and each tag until it is complete.
MAX_XML_ELEMENTS = 2_000_000
MAX_XML_NAMES = 10_000
MAX_XML_DEPTH = 50
MAX_XML_TAG = 256 * 1024
SPACE = "\ufeff \t\r\n"


class Cut(Exception):
    """Stops reading; what was read before counts."""


class SafeXml:
    """A document of which a subclass reads what it knows, in any namespace: `path` has the names of open elements."""

    def __init__(self) -> None:
        self.elements = 0
        self.path: list[str] = []  # without the root's prefix
        self.prefix = ""
        self.text = ""
        # The text has been converted to UTF-8, whatever its declaration says.
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._declare

    def take(self, texts: Iterable[str]) -> None:
        """Parse a document; Cut where it is broken, Unreadable if it declares entities or `begin` says so."""
        fed = 0
        try:
            for text in texts:
                piece = text.encode("utf-8", "replace")
                self.parser.Parse(piece, False)
                fed += len(piece)
                if fed - self.parser.CurrentByteIndex > MAX_XML_TAG or len(self.parser.intern) > MAX_XML_NAMES:
                    raise Cut
            self.parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise Cut from error

    def begin(self, root: str) -> None:
        """Begin a document with this root, without its prefix; raise Unreadable if that is none of ours."""
        raise NotImplementedError

    def opened(self, attributes: dict[str, str]) -> None:
        """Note the element that was opened just now; `collect` its text if it is wanted."""
        raise NotImplementedError

    def closed(self) -> None:
        """Note the element that is closed just now; `collected` is its text."""
        raise NotImplementedError

    def collect(self, text: str = "") -> None:
        """Collect the text of this element, after the given one."""
        self.text = text
        self.parser.CharacterDataHandler = self._more

    def collected(self) -> str:
        """Return the text that was collected, and collect no more."""
        self.parser.CharacterDataHandler = None
        return self.text.strip(SPACE)

    def _more(self, text: str) -> None:
        self.text = (self.text + text)[: MAX_INPUT + 1]  # too long for a URL

    def _declare(self, *_: object) -> None:
        raise Unreadable("declares entities")  # which could expand a billion times, or read local files

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if len(self.path) >= MAX_XML_DEPTH or self.elements > MAX_XML_ELEMENTS:
            raise Cut
        if not self.path:
            prefix, colon, root = name.rpartition(":")
            self.prefix = prefix + colon
            self.begin(root)
        self.path.append(name.removeprefix(self.prefix))
        self.opened(attributes)

    def _end(self, _: str) -> None:
        self.closed()
        self.path.pop()
