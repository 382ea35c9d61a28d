"""Sitemaps: from bytes to links in order of priority; streamed, and bounded in time and memory for any input."""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain

from crawler.web.charset import BOMS, from_header, prescan
from crawler.web.page import PRIORITY, Unreadable
from crawler.web.safe_xml import SPACE, Cut, SafeXml
from crawler.web.urls import MAX_INPUT, TRACKING, normalize

__all__ = ["Sitemap", "Unreadable", "read"]

# What the protocol allows in one file.
MAX_SITEMAP_BYTES = 50 * 1024 * 1024  # after decompression
MAX_ENTRIES = 50_000
CHUNK = 64 * 1024
SLICE = 4 * 1024  # compressed bytes at a time: little is copied however much they expand

NEVER = -1e12  # seconds; older than any date that can be written
_GZIP = b"\x1f\x8b"
_STARTS = (*BOMS, (b"<\0", "utf-16le"), (b"\0<", "utf-16be"))


@dataclass(frozen=True, slots=True)
class Sitemap:
    """The links of a sitemap: pages (`urlset`, `text`) or other sitemaps (`index`), the most important first."""

    kind: str
    links: tuple[str, ...]
    priorities: tuple[int, ...]  # of each link, in tenths
    capped: bool  # not all was read: more than the limits, or broken
    modified: Mapping[str, float] = field(default_factory=dict, compare=False)  # when a link says that it last was


def read(body: bytes, content_type: str, url: str, tracking: Collection[str] = frozenset(TRACKING)) -> Sitemap:
    """Read the body of `url` as a sitemap of any kind, gzipped or not; Unreadable if it is not a sitemap."""
    found = _Found(url, tracking)
    try:
        found.take(_texts(body, content_type))
        capped = False
    except Cut:
        capped = True
    if not found.kind:
        raise Unreadable("no sitemap")
    best: dict[str, int] = {}
    for entry in sorted(found.entries, key=lambda entry: (-entry.priority, -entry.modified)):
        best.setdefault(entry.link, entry.priority)
    modified = {entry.link: entry.modified for entry in found.entries if entry.modified > NEVER}
    return Sitemap(found.kind, tuple(best), tuple(best.values()), capped, modified)


# From bytes to text


def _texts(body: bytes, content_type: str) -> Iterator[str]:
    """Yield the text in pieces, without leading white space and BOM."""
    charset = _charset(_head(body), content_type)
    decoder = codecs.getincrementaldecoder(charset)("replace")
    is_begun = False
    for chunk in _bounded(_inflated(body) if body.startswith(_GZIP) else _chunks(body, CHUNK)):
        text = decoder.decode(chunk)
        text = text if is_begun else text.lstrip(SPACE)
        is_begun = is_begun or text != ""
        yield text
    yield decoder.decode(b"", final=True)


def _head(body: bytes) -> bytes:
    if not body.startswith(_GZIP):
        return body[:1024]
    try:
        return zlib.decompressobj(wbits=31).decompress(body[:SLICE], 1024)
    except zlib.error:
        return b""


def _charset(head: bytes, content_type: str) -> str:
    """Return the codec: as the first bytes show, else as header or declaration say if the bytes allow it."""
    shown = next((name for start, name in _STARTS if head.startswith(start)), None)
    said = from_header(content_type) or prescan(head) or "utf-8"
    name = shown or ("utf-8" if said.startswith("utf-16") else said)
    try:
        return codecs.lookup(name).name  # a name from the standard's table, never a label from the web
    except LookupError:
        return "utf-8"


def _chunks(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


def _inflated(body: bytes) -> Iterator[bytes]:
    """Yield the content of all members of a gzip file; what follows the last one is padding."""
    member = zlib.decompressobj(wbits=31)
    for piece in _chunks(body, SLICE):
        while piece:
            try:
                yield member.decompress(piece, CHUNK)
            except zlib.error as error:
                raise Cut from error
            piece = member.unused_data or member.unconsumed_tail
            if member.eof and piece:
                if not _GZIP.startswith(piece[:2]):
                    return
                member = zlib.decompressobj(wbits=31)
    if not member.eof:
        raise Cut


def _bounded(chunks: Iterable[bytes]) -> Iterator[bytes]:
    room = MAX_SITEMAP_BYTES
    for chunk in chunks:
        yield chunk[:room]
        room -= len(chunk)
        if room < 0:
            raise Cut


# From text to entries


@dataclass(slots=True)
class _Entry:
    link: str = ""
    priority: int = PRIORITY
    modified: float = NEVER


# By the root's name: the kind, the path of its entries, and which of their children holds the link.
_SHAPES = {
    "urlset": ("urlset", ["urlset", "url"], "loc"),
    "sitemapindex": ("index", ["sitemapindex", "sitemap"], "loc"),
    "rss": ("urlset", ["rss", "channel", "item"], "link"),
    "feed": ("urlset", ["feed", "entry"], "link"),
}


@dataclass(slots=True)
class _Found:
    """What was found so far in a sitemap at `url`."""

    url: str
    tracking: Collection[str]
    kind: str = ""
    count: int = 0
    entries: list[_Entry] = field(default_factory=list)

    def take(self, texts: Iterator[str]) -> None:
        """Read a document, XML or plain text."""
        first = next((text for text in texts if text), "")
        if first.startswith("<"):
            _Xml(self).take(chain([first], texts))
        else:
            self._lines(first, texts)

    def add(self, entry: _Entry) -> None:
        """Add an entry with its URL normalized, if it has one and the limit allows."""
        self.count += 1
        if self.count > MAX_ENTRIES:
            raise Cut
        link = normalize(entry.link, self.url, self.tracking) if entry.link else None
        if link is not None:
            self.entries.append(replace(entry, link=link))

    def _lines(self, rest: str, texts: Iterable[str]) -> None:
        for text in texts:
            *lines, rest = re.split(r"[\r\n]+", rest + text)
            self._addresses(lines)
            rest = rest[: MAX_INPUT + 1]  # too long for a URL
        self._addresses(re.split(r"[\r\n]+", rest))

    def _addresses(self, lines: Iterable[str]) -> None:
        for line in lines:
            if line.strip(SPACE)[:8].lower().startswith(("http://", "https://")):
                self.kind = "text"
                self.add(_Entry(line.strip(SPACE)))


class _Xml(SafeXml):
    """Reads entries from XML in any namespace; skips elements of extensions (image:loc)."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self.found = found
        self.place: list[str] = []  # of entries: one of _SHAPES
        self.address = ""
        self.entry = _Entry()

    def begin(self, root: str) -> None:
        if root not in _SHAPES:
            raise Unreadable(f"no sitemap: its root is <{self.prefix}{root}"[:80] + ">")
        self.found.kind, self.place, self.address = _SHAPES[root]

    def opened(self, attributes: dict[str, str]) -> None:
        if self.path == self.place:
            self.entry = _Entry()
        elif self.path[:-1] == self.place:
            self.collect(_href(attributes))

    def closed(self) -> None:
        if self.path == self.place:
            self.found.add(self.entry)
        elif self.path[:-1] == self.place:
            self._set(self.path[-1], self.collected())

    def _set(self, name: str, text: str) -> None:
        if name == self.address:
            self.entry.link = self.entry.link or text
        elif name == "priority":
            self.entry.priority = _tenths(text)
        elif name in ("lastmod", "updated"):
            self.entry.modified = _moment(text)


def _href(attributes: dict[str, str]) -> str:
    """Return the link of an Atom element, if it is to the page itself."""
    return attributes.get("href", "") if attributes.get("rel", "alternate") == "alternate" else ""


def _tenths(text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        return PRIORITY
    return int(value * 10 + 0.5) if 0 <= value <= 1 else PRIORITY


def _moment(text: str) -> float:
    """Return the time of a W3C datetime of any precision; NEVER if it is not one."""
    day = text + "-01-01"[len(text) - 4 :] if len(text) in (4, 7) else text
    try:
        moment = datetime.fromisoformat(day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return NEVER
