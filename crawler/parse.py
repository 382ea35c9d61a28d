"""Bytes to text, title and links: pure, and bounded whatever the page."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from crawler.charset import decode
from crawler.records import FOLLOWED, Page, Reading, Unreadable
from crawler.robots import tags
from crawler.urls import TRACKING, spell, spell_link

if TYPE_CHECKING:
    from bs4.element import Tag

__all__ = ["Unreadable", "Wants", "decode", "links", "read"]

MAX_TITLE = 500


@dataclass(frozen=True, slots=True)
class Wants:
    """What the operator wants read from a page."""

    parser: str = "lexbor"  # or html5lib, the reference
    follow: tuple[str, ...] = FOLLOWED  # of records.LINK_KINDS
    nofollow: bool = False  # True: leave out single links marked rel=nofollow
    tracking: frozenset[str] = frozenset(TRACKING)
    token: str = "*"  # what robots tags know us by
    max_links: int = 10_000


DEFAULTS = Wants()
Attributes = Mapping[str, str | None]
Element = tuple[str, Attributes]


@dataclass(slots=True)
class Tree:
    """What a parser found: the elements that can matter, in document order, and the title."""

    elements: Sequence[Element]
    title: str


def read(page: Page, wants: Wants = DEFAULTS) -> Reading:
    """Read a page: its text, its title, its links in their one spelling, and what it says to robots."""
    text, charset = decode(page.body, page.content_type)
    part, cut = _bounded(text, wants.parser) if _is_markup(page.content_type) else ("", False)
    tree = _PARSERS[wants.parser](part)
    found = list(_spelled(tree.elements, page.url, wants))
    return Reading(
        text=text,
        charset=charset,
        title=_title(tree.title),
        links=tuple(found[: wants.max_links]),
        robots=tuple(sorted(tags(_said_to_robots(page, tree.elements, wants.token), wants.token))),
        capped=cut or len(found) > wants.max_links,
    )


def links(body: bytes, content_type: str, url: str) -> list[str]:
    """Return the links of a page at `url`: spelled, in document order, without repeats."""
    return list(read(Page(url, 200, {"content-type": content_type}, body)).links)


def _is_markup(content_type: str) -> bool:
    """Whether a page has tags at all: what says that it is plain text or JSON has none, whatever is in it."""
    kind = content_type.partition(";")[0].lower()
    return "/" not in kind or "html" in kind or "xml" in kind


# From elements to links

# The standard's "shared declarative refresh steps": a time, perhaps a separator, "url=", quotes.
_REFRESH = re.compile(
    r"[ \t\n\f\r]*+(?:[0-9]++|(?=\.))[0-9.]*+(?=[;, \t\n\f\r])[ \t\n\f\r]*+[;,]?+[ \t\n\f\r]*+"
    r"(?:url[ \t\n\f\r]*+=[ \t\n\f\r]*+)?+(?:([\"'])(?P<quoted>.*?)(?:\1|\Z)|(?P<plain>.+))",
    re.I | re.S,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def _spelled(elements: Sequence[Element], url: str, wants: Wants) -> Iterator[str]:
    """Give each wanted link once, and no more than one beyond the cap."""
    base = _base(elements, url)
    seen: set[str] = set()
    # Most links of a page are repeats, or differ in their fragments only: cheaper to see before the spelling.
    for link in dict.fromkeys(link.partition("#")[0] for link in _wanted(elements, wants)):
        spelled = spell_link(link, base, wants.tracking)
        if spelled is not None and spelled not in seen:
            seen.add(spelled)
            yield spelled
        if len(seen) > wants.max_links:
            return


def _base(elements: Iterable[Element], url: str) -> str:
    """Return what links are relative to: the first <base> with an href, if that is an address at all."""
    for tag, attributes in elements:
        if tag == "base" and "href" in attributes:
            return spell(attributes["href"] or "", url, ()) or url
    return url


def _wanted(elements: Iterable[Element], wants: Wants) -> Iterator[str]:
    """Give the addresses of the kinds of link that are to be followed, as the page writes them."""
    for tag, attributes in elements:
        link = _address(tag, attributes, wants.follow)
        if link is not None and not (wants.nofollow and "nofollow" in _words(attributes, "rel")):
            yield link


def _address(tag: str, attributes: Attributes, follow: tuple[str, ...]) -> str | None:
    if tag in ("a", "area", "iframe", "frame"):
        return _value(attributes, _ADDRESS[tag]) if tag in follow else None
    if tag == "link":
        rel = _words(attributes, "rel")
        is_wanted = "stylesheet" not in rel and not rel.isdisjoint(follow) and rel & _RELATIONS
        return _value(attributes, ("href",)) if is_wanted else None
    return _refresh(attributes) if tag == "meta" and "refresh" in follow else None


# An SVG <a> may still write its address the old way.
_ADDRESS = {"a": ("href", "xlink:href"), "area": ("href",), "iframe": ("src",), "frame": ("src",)}
_RELATIONS = {"next", "prev", "alternate", "canonical"}


def _value(attributes: Attributes, names: tuple[str, ...]) -> str | None:
    """Return the first of these that is there; without a value it is an empty address: the page itself."""
    for name in names:
        if name in attributes:
            return attributes[name] or ""
    return None


def _refresh(meta: Attributes) -> str | None:
    if (meta.get("http-equiv") or "").lower() != "refresh":
        return None
    match = _REFRESH.match(meta.get("content") or "")
    return (match["quoted"] or match["plain"]) if match else None


def _said_to_robots(page: Page, elements: Iterable[Element], token: str) -> Iterator[str]:
    """Give what the headers and each <meta> say to all robots, or to the one of this name."""
    yield page.headers.get("x-robots-tag", "")
    for tag, meta in elements:
        if tag == "meta" and (meta.get("name") or "").strip().lower() in ("robots", token.lower()):
            yield meta.get("content") or ""


def _words(attributes: Attributes, name: str) -> set[str]:
    return set((attributes.get(name) or "").lower().split())


def _title(text: str) -> str:
    """Fold white space, drop control characters, and keep a bounded part."""
    return " ".join(_CONTROL.sub(" ", text[: 20 * MAX_TITLE]).split())[:MAX_TITLE]


# The two parsers

_TAGS = ("a", "area", "iframe", "frame", "link", "meta", "base")
_QUERY = "a[href],a[xlink\\:href],area[href],iframe[src],frame[src],link[href],meta[content],base[href],title"


def _lexbor(text: str) -> Tree:
    tree = LexborHTMLParser(text, options=_options(text))
    elements: list[Element] = []
    titles: list[LexborNode] = []
    for node in tree.css(_QUERY):
        tag = node.tag or ""
        if tag == "title":
            titles.append(node)
        else:
            elements.append((tag, node.attributes))
    return Tree(elements, next((node.text() for node in titles[:20] if not _is_drawn(node)), ""))


_SELECTED, _OPTION = re.compile("<(?i:selectedcontent)"), re.compile("<(?i:option)")


def _options(text: str) -> LexborDocumentOptions:
    """Events fill in <selectedcontent>, which is rare; they make 50,000 times <option> take seconds."""
    is_rare = _SELECTED.search(text) and len(_OPTION.findall(text)) < 2_000
    return LexborDocumentOptions.UNDEF if is_rare else LexborDocumentOptions.WO_EVENTS


def _is_drawn(node: LexborNode | None) -> bool:
    """Whether a <title> is a drawing's, not the page's."""
    while node is not None and node.tag != "svg":
        node = node.parent
    return node is not None


# html5lib does not know that what is in a template is not in the page.
_TEMPLATE = re.compile(r"<template\b[^>]*+>(?:(?!</?template\b).)*+</template[^>]*+>", re.I | re.S)


def _html5lib(text: str) -> Tree:
    # Imported here: they take as long to load as half of the program, and most crawls never need them.
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning

    warnings.filterwarnings("ignore", category=MarkupResemblesLocatorWarning)
    warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)
    try:
        soup = BeautifulSoup(_TEMPLATE.sub("", text), "html5lib", multi_valued_attributes=None)
    except RecursionError as error:
        raise Unreadable("nested too deeply") from error
    elements = [(tag.name, _plain(tag)) for tag in soup.find_all(_TAGS)]
    title = next((tag for tag in soup.find_all("title", limit=20) if not tag.find_parent("svg")), None)
    return Tree(elements, title.get_text() if title else "")


def _plain(tag: Tag) -> dict[str, str | None]:
    return {str(name): str(value) for name, value in tag.attrs.items()}


_PARSERS = {"lexbor": _lexbor, "html5lib": _html5lib}


# Armour. What a page costs grows with its tags times the elements that are open: so that is counted first.


class _Limits(NamedTuple):
    """What a parser can take."""

    tags: int  # as many cannot hurt, however nested
    depths: int  # summed over all tags
    copies: int
    pieces: int  # tags and attributes, each a node in memory, and other things that a parser stops at
    work: float  # pieces times characters: html5lib adds each piece to a copy of what it has


_LIMITS = {
    "lexbor": _Limits(20_000, 100_000_000, 1_000_000, 1_000_000, math.inf),
    "html5lib": _Limits(500, 1_000_000, 50_000, 50_000, 50_000_000_000),
}
_MAX_ROOTS = 1_000
_MAX_ATTRIBUTES = 300
_LONG_TAG = 500
_LONG = 65_536
_LARGE = 500_000  # characters; a page that is longer is always counted

# A parser opens these anew in every paragraph until they are closed: 40 KB can make a gigabyte of tree.
_STYLES = ("b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
# The flag stands behind the "<": in front of it, it would make a search read every character by itself. What begins
# with another letter is left out first: to compare without case takes long.
_STYLE = rf"<(?=[bcefinstuBCEFINSTU])(?i:{'|'.join(_STYLES)})"
_STYLED = re.compile(rf"{_STYLE}[\s/]")
_PLAIN = re.compile(rf"""{_STYLE}(?:\s+[\w-]+="[^"<>]*")+>""")
# These have no end, or end by themselves: a page may leave any number of them open.
_FLAT = frozenset(re.findall(r"\w+", """
    a p li dd dt tr td th tbody thead tfoot option optgroup rp rt area base basefont bgsound br col embed
    frame hr img image input keygen link meta param source track wbr"""))  # fmt: skip
_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+"""
_TAG = re.compile(
    rf"<(?i:!--.*?(?:-->|\Z)|(script|style)\b.*?(?:</\1|\Z)|(?P<end>/?)(?P<name>[a-z][^\s/>]*+)"
    rf"(?P<many>(?:{_ATTRIBUTE}){{{_MAX_ATTRIBUTES}}})?+(?:{_ATTRIBUTE})*+)",
    re.S,
)


def _bounded(text: str, parser: str) -> tuple[str, bool]:
    """Return as much of a text as a parser can take in reasonable time, and whether that is less than all."""
    if _is_harmless(text, _LIMITS[parser]):
        return text, False
    tally = _Tally(_LIMITS[parser])
    at = 0
    for tag in _TAG.finditer(text):
        if not (tally.affords_text(text, at, tag.start()) and tally.affords(tag)):
            return text[:at], True
        at = tag.end()
    return (text, False) if tally.affords_text(text, at, len(text)) else (text[:at], True)


def _is_harmless(text: str, limits: _Limits) -> bool:
    """Whether a glance is enough, as it is for nearly every page: the count costs more than the parser."""
    tags = text.count("<")
    if tags > limits.tags or len(text) > _LARGE or (len(text) > _LONG and max(map(len, text.split("<"))) > _LONG):
        return False
    if tags <= 1_000:
        return True
    styled = len(_STYLED.findall(text))
    return tags * styled <= limits.copies or tags * _most_kept(text, styled) <= limits.copies


def _most_kept(text: str, styled: int) -> int:
    """How many styles a parser can have to open anew at most: of those alike it keeps three.

    Only those count as alike that are plainly written, so that what one looks like is what a parser reads.
    """
    plain = _PLAIN.findall(text)
    return 3 * len(set(plain)) + styled - len(plain)


# Where html5lib stops in a text, and in a comment or a script.
_STOPS = re.compile("[&<\0-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")
_STOPS_WITHIN = re.compile(_STOPS.pattern[:-1] + "-]")
# What stands in a table but in no cell of it is moved in front of it, past all that was moved before.
_TABLE = frozenset({"table", "thead", "tbody", "tfoot", "tr", "colgroup", "col"})
_CELL = frozenset({"td", "th", "caption"})
_STRAY = 5


def _pieces(tag: str) -> int:
    """A tag's words and, if it is long, all that a parser stops at; words within quotes count too: seldom many."""
    words = tag.replace("/", " ").split()
    if len(tag) <= _LONG_TAG:
        return len(words)
    names = (len(word.partition("=")[0]) for word in words if len(word) > _LONG_TAG)
    return len(words) + sum(names) + sum(tag.count(stop) for stop in "&=/\"'<`\0")


class _Tally:
    """What a parser would have to bear so far; an estimate, which a page written against it can mislead."""

    def __init__(self, limits: _Limits) -> None:
        self.limits = limits
        self.opened: Counter[str] = Counter()
        self.styles: dict[str, list[str]] = {name: [] for name in _STYLES}
        self.alike: Counter[str] = Counter()
        self.astray = False
        self.depth = self.depths = self.kept = self.copies = self.roots = self.pieces = 0

    def affords(self, tag: re.Match[str]) -> bool:
        """Count one more tag, and say whether the page is still worth parsing."""
        end, name, many = tag.group("end", "name", "many")
        if not name:  # a comment, a script or a style
            return self.affords_text(tag.string, *tag.span(), _STOPS_WITHIN)
        name = name.lower()
        if name not in _FLAT:
            if not end:
                self._open(name, tag)
            elif self.opened.get(name):
                self._close(name)
        self.astray = not end if name in _TABLE else self.astray and name not in _CELL
        self.depths += self.depth
        self.copies += self.kept
        is_cheap = self.depths <= self.limits.depths and self.copies <= self.limits.copies
        return (
            is_cheap
            and self._takes(_pieces(tag[0]) + _STRAY * self.astray, tag.end())
            and self.roots <= _MAX_ROOTS
            and not many
        )

    def affords_text(self, text: str, start: int, end: int, stops: re.Pattern[str] = _STOPS) -> bool:
        """Count where a parser stops in what is no tag; only html5lib minds."""
        if self.limits.work == math.inf:
            return True
        found = end - start - len(stops.sub("", text[start:end]))
        return self._takes(found + (end - start) // 500, end)

    def _takes(self, pieces: int, end: int) -> bool:
        self.pieces += pieces
        return self.pieces <= self.limits.pieces and self.pieces * end <= self.limits.work

    def _open(self, name: str, tag: re.Match[str]) -> None:
        self.opened[name] += 1
        self.depth += 1
        self.roots += name in ("html", "body")
        if name in self.styles:
            whole = tag[0]
            self.styles[name].append(whole)
            self.alike[whole] += 1
            self.kept += self.alike[whole] <= 3  # of those alike, a parser keeps three

    def _close(self, name: str) -> None:
        self.opened[name] -= 1
        self.depth -= 1
        if self.styles.get(name):
            whole = self.styles[name].pop()
            self.kept -= self.alike[whole] <= 3
            self.alike[whole] -= 1
