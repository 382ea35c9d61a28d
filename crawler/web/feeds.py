"""Feeds (RSS, Atom): from text to the links of their items; bounded like sitemaps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from crawler.web.page import Unreadable
from crawler.web.safe_xml import SPACE, Cut, SafeXml

CHUNK = 64 * 1024  # characters
# By the root's name: the paths of the elements that hold a link, and of the one that holds the title.
_SHAPES = {
    "rss": (("rss", "channel"), ("rss", "channel", "item")),
    "feed": (("feed",), ("feed", "entry")),
    "RDF": (("RDF", "channel"), ("RDF", "item")),
}
_ADDRESSES = {"enclosure": "url", "content": "src", "media:content": "url"}  # of elements whose attribute is the link


@dataclass(slots=True)
class Feed:
    """What a feed says: its title, and its links as written, in document order."""

    title: str = ""
    links: dict[str, None] = field(default_factory=dict)
    capped: bool = False  # not all was read: too long, or broken


def read(text: str, follow: Collection[str], most: int) -> Feed | None:
    """Return the links of a feed, of each item and of the feed itself as `follow` says; None if it is no feed."""
    reader = _Reader(follow, most)
    try:
        reader.take(_pieces(text.lstrip(SPACE)))
    except Cut:
        reader.feed.capped = True
    except Unreadable:
        return None
    return reader.feed if reader.is_feed else None


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), CHUNK):
        yield text[start : start + CHUNK]


class _Reader(SafeXml):
    def __init__(self, follow: Collection[str], most: int) -> None:
        super().__init__()
        self.feed, self.is_feed = Feed(), False
        self._most, self._is_collecting = most, False
        self._places: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        # What a link of an item may be, and one of the feed itself: a page of it that comes before or after.
        self._of_items = {"alternate", "enclosure", *follow}
        self._of_feed = {"alternate", *follow} - {"canonical"}

    def begin(self, root: str) -> None:
        if root not in _SHAPES:
            raise Unreadable("no feed")
        self.is_feed, self._places = True, _SHAPES[root]

    def opened(self, attributes: dict[str, str]) -> None:
        *outer, name = self.path
        if tuple(outer) not in self._places:
            return
        is_item = tuple(outer) == self._places[1]
        name = name.removeprefix("atom:")
        if name == "link" and "href" in attributes:
            if attributes.get("rel", "alternate") in (self._of_items if is_item else self._of_feed):
                self._add(attributes["href"])
        elif name in _ADDRESSES and is_item:
            self._add(attributes.get(_ADDRESSES[name], ""))
        elif name == "link" or (name == "title" and not is_item):
            self._is_collecting = True
            self.collect()

    def closed(self) -> None:
        if not self._is_collecting or tuple(self.path[:-1]) not in self._places:
            return
        self._is_collecting, text = False, self.collected()
        if self.path[-1] == "title":
            self.feed.title = self.feed.title or text
        else:
            self._add(text)

    def _add(self, link: str) -> None:
        if link.strip(SPACE):
            self.feed.links[link.strip(SPACE)] = None
        if len(self.feed.links) > self._most:
            raise Cut
