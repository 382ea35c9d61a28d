"""From a page's bytes to text, title and links; bounded in time and memory for any page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import turbohtml

from crawler.web import feeds, kinds, other_links, patterns, robots
from crawler.web.charset import decode
from crawler.web.limits import bounded
from crawler.web.page import FOLLOWED, Fetched, Reading, Unreadable
from crawler.web.text_hash import visible_hash
from crawler.web.urls import MAX_INPUT, TRACKING, normalize, normalize_links

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import Tag

__all__ = ["Unreadable", "Wants", "decode", "is_markup", "links", "read", "soup"]

MAX_TITLE = 500
MAX_ADDRESSES = 100_000  # of JSON that are looked at: many may be the same page


class Wants(NamedTuple):
    """What to read from a page."""

    parser: str = "turbohtml"  # or html5lib, the reference
    follow: tuple[str, ...] = FOLLOWED  # of page.LINK_KINDS; `feed` and `json`: in pages of these types
    nofollow: bool = False  # True: ignore links marked rel=nofollow
    tracking: frozenset[str] = frozenset(TRACKING)
    token: str = "*"  # our name in robots tags
    max_links: int = 10_000
    links_in: str = ""  # CSS: only links in elements that it selects count
    visible: bool = False  # the hash of the visible text too
    follow_match: tuple[str, ...] = ()  # patterns: only links that match one of them as they are written count


DEFAULTS = Wants()


class Attributes(Protocol):
    """The attributes of an element: the value of one, which may be empty, or None if it is not there."""

    def attr(self, name: str, /) -> str | None: ...


Element = tuple[str, Attributes]  # a tag and its attributes


@dataclass(slots=True)
class Tree:
    """What a parser found: the relevant elements in document order, and the title."""

    elements: Iterable[Element]
    title: str


@dataclass(slots=True)
class Found:
    """What the elements of a page say."""

    links: dict[str, None] = field(default_factory=dict)  # as written, without fragments; in document order
    robots: list[str] = field(default_factory=list)  # the contents of robots tags
    base: str | None = None
    title: str = ""
    cut: bool = False  # not all was read


def read(page: Fetched, wants: Wants = DEFAULTS) -> Reading:
    """Return a page's text, title, normalized links and robots tags; of a file only what its headers say."""
    kind, is_file = page.kind, page.is_file
    text, charset = ("", "") if is_file else decode(page.body, page.content_type)
    found = Found(cut=kinds.is_text(kind)) if is_file else _found(text, kind, page.content_type, wants)
    links = _normalized(found.links, page.url if found.base is None else _base(found.base, page.url), wants)
    if "link" in page.headers and not wants.links_in:  # they are in none of its elements
        named = other_links.in_headers(page.headers, wants.follow, wants.nofollow)
        links |= _normalized(dict.fromkeys(link for link in named if _matches(link, wants)), page.url, wants)
    return Reading(
        text=text,
        charset=charset,
        title=_title(found.title),
        links=tuple(islice(links, wants.max_links)),
        robots=tuple(sorted(robots.tags([page.headers.get("x-robots-tag", ""), *found.robots], wants.token))),
        capped=found.cut or len(links) > wants.max_links,
        visible=visible_hash(text, is_markup(page.content_type)) if wants.visible and not is_file else "",
    )


def _found(text: str, kind: str, content_type: str, wants: Wants) -> Found:
    """Return what a text says, by its type."""
    if "feed" in wants.follow and kind.endswith("xml") and "html" not in kind:
        feed = feeds.read(text, wants.follow, wants.max_links)
        if feed:
            links = dict.fromkeys(link for link in feed.links if _matches(link, wants))
            return Found(links, title=feed.title, cut=feed.capped)
    if "json" in wants.follow and "json" in kind:
        named = islice(other_links.in_json(text), MAX_ADDRESSES)
        return Found(dict.fromkeys(link for link in named if _matches(link, wants)))
    if not is_markup(content_type):
        return Found()
    part, cut = bounded(text, wants.parser)
    tree = _PARSERS[wants.parser](part, wants.links_in, "img" in wants.follow)
    found = _walk(tree.elements, wants)
    found.title, found.cut = tree.title, cut
    return found


def links(body: bytes, content_type: str, url: str) -> list[str]:
    """Return the normalized links of a page at `url`, in document order, without repeats."""
    return list(read(Fetched(url, 200, {"content-type": content_type}, body)).links)


def is_markup(content_type: str) -> bool:
    """Tell whether a content type has tags: plain text and JSON have none, whatever they contain."""
    kind = content_type.partition(";")[0].lower()
    return "/" not in kind or "html" in kind or "xml" in kind


# From elements to links

# The standard's "shared declarative refresh steps": a time, perhaps a separator, "url=", quotes.
_REFRESH = re.compile(
    r"[ \t\n\f\r]*+(?:[0-9]++|(?=\.))[0-9.]*+(?=[;, \t\n\f\r])[ \t\n\f\r]*+[;,]?+[ \t\n\f\r]*+"
    r"(?:url[ \t\n\f\r]*+=[ \t\n\f\r]*+)?+(?:([\"'])(?P<quoted>.*?)(?:\1|\Z)|(?P<plain>.+))",
    re.I | re.S,
)
_SPACES = " \t\n\f\r"  # around an address, which browsers remove
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def _walk(elements: Iterable[Element], wants: Wants) -> Found:
    """Walk over the elements once, and collect what they say."""
    found = Found()
    # Every <meta> is looked at for what it tells robots, also one outside of the elements whose links count.
    follow = frozenset(wants.follow) - ({"refresh"} if wants.links_in else set())
    names = ("robots", wants.token.lower())
    links, takes_a, takes_all = found.links, "a" in follow, not (wants.nofollow or wants.follow_match)
    for tag, node in elements:
        if takes_a and tag == "a":  # nearly every element
            link = node.attr("href")
            if link is None:
                link = node.attr("xlink:href")  # an SVG <a> may still use the old attribute
        elif tag in ("img", "source"):
            links.update((it, None) for it in _images(tag, node, follow) if _matches(it, wants))
            continue
        else:
            link = _address(tag, node, follow)
            if tag == "base" and found.base is None:
                found.base = node.attr("href")
            elif tag == "meta" and (node.attr("name") or "").strip().lower() in names:
                found.robots.append(node.attr("content") or "")
        if link is not None and (takes_all or _is_wanted(link, node, wants)):
            # Most links of a page are repeats, or differ only in fragments: cheaper to remove before normalizing.
            links[link.partition("#")[0] if "#" in link else link] = None
    return found


def _is_wanted(link: str, node: Attributes, wants: Wants) -> bool:
    return not (wants.nofollow and "nofollow" in _relations(node)) and _matches(link, wants)


def _matches(link: str, wants: Wants) -> bool:
    """Tell whether a link, as it is written with its fragment, is wanted; one that is too long for a URL is not."""
    if not wants.follow_match:
        return True
    written = link.strip(_SPACES)
    return len(written) <= MAX_INPUT and any(patterns.compiled(it).search(written) for it in wants.follow_match)


def _base(written: str, url: str) -> str:
    """Return the base of links: the first <base> with an href, if that is a valid URL."""
    return normalize(written, url, ()) or url


def _normalized(links: dict[str, None], base: str, wants: Wants) -> dict[str, None]:
    """Return each wanted link once, and at most one more than the cap."""
    normalized: dict[str, None] = {}
    for link in normalize_links(links, base, wants.tracking):
        if link is not None:
            normalized[link] = None
            if len(normalized) > wants.max_links:
                break
    return normalized


def _images(tag: str, node: Attributes, follow: frozenset[str]) -> Iterator[str]:
    """Yield the images of an <img>, or of a <source> that stands for one."""
    if "img" in follow:
        if tag == "img" and (source := node.attr("src")):
            yield source.partition("#")[0]
        yield from other_links.in_srcset(node.attr("srcset") or "")


def _address(tag: str, node: Attributes, follow: frozenset[str]) -> str | None:
    """Return where an element other than <a> leads, as written, if links of its kind are followed."""
    if tag == "meta":
        return _refresh(node) if "refresh" in follow else None
    if tag == "link":
        rel = _relations(node)
        return node.attr("href") if "stylesheet" not in rel and rel & follow & other_links.RELATIONS else None
    return node.attr("href" if tag == "area" else "src") if tag in follow else None


def _refresh(meta: Attributes) -> str | None:
    if (meta.attr("http-equiv") or "").lower() != "refresh":
        return None
    match = _REFRESH.match(meta.attr("content") or "")
    return (match["quoted"] or match["plain"]) if match else None


def _relations(node: Attributes) -> set[str]:
    return set((node.attr("rel") or "").lower().split())


def _title(text: str) -> str:
    """Collapse white space, drop control characters, and truncate."""
    return " ".join(_CONTROL.sub(" ", text[: 20 * MAX_TITLE]).split())[:MAX_TITLE]


# The parsers

_TAGS = ("a", "area", "iframe", "frame", "link", "meta", "base")
_IMAGES = ("img", "source")
_FACTS = ("title", "template")
_LINKS_IN = ("a[href]", "a[xlink\\:href]", "area[href]", "iframe[src]", "frame[src]", "link[href]")
_IMAGES_IN = ("img[src]", "img[srcset]", "source[srcset]")
_FACTS_IN = ("meta[content]", "base[href]", *_FACTS)
_MAX_TITLES = 20  # that are examined


@lru_cache(maxsize=16)
def _query(links_in: str, images: bool) -> str:
    """Return the selector of all that is read from a page; links only in elements that `links_in` selects."""
    links = (*_LINKS_IN, *_IMAGES_IN) if images else _LINKS_IN
    within = [f"{link}:is({links_in}, :is({links_in}) *)" for link in links]
    return ",".join((*within, *_FACTS_IN))


def check_selector(css: str) -> str:
    """Return a CSS selector; ValueError if one of the parsers does not understand it."""
    from soupsieve import SelectorSyntaxError, compile  # it belongs to BeautifulSoup, which takes long to load

    try:
        turbohtml.parse("").select(css)
        compile(css)
    except (ValueError, SelectorSyntaxError, NotImplementedError) as error:
        raise ValueError("must be a CSS selector such as '#content' or 'main, .article'") from error
    return css


def _turbohtml(text: str, links_in: str, images: bool) -> Tree:
    page = turbohtml.parse(text)
    nodes = _elements(page, links_in, images)
    tags = [node.tag for node in nodes]
    if "template" in tags:  # their content is not part of the page
        for node in nodes:
            if node.tag == "template" and node.namespace is turbohtml.Namespace.HTML:
                node.decompose()
        nodes = _elements(page, links_in, images)
        tags = [node.tag for node in nodes]
    titles = (node for tag, node in zip(tags, nodes, strict=True) if tag == "title")
    title = next((node.text for node in islice(titles, _MAX_TITLES) if not node.closest("svg")), "")
    return Tree(zip(tags, nodes, strict=True), title)


def _elements(page: turbohtml.Document, links_in: str, images: bool) -> list[turbohtml.Element]:
    if links_in:
        return page.select(_query(links_in, images))
    tags = (*_TAGS, *_FACTS)  # without a look at their attributes, which are read later: half the time of a selector
    return list(page.iter_elements((*tags, *_IMAGES) if images else tags))


# html5lib treats the content of a template as part of the page.
_TEMPLATE = re.compile(r"<template\b[^>]*+>(?:(?!</?template\b).)*+</template[^>]*+>", re.I | re.S)


def soup(text: str) -> BeautifulSoup:
    """Return a page as parsed by html5lib, without the content of templates."""
    # Imported here: they take as long to load as half of the program, and most crawls do not need them.
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning

    warnings.filterwarnings("ignore", category=MarkupResemblesLocatorWarning)
    warnings.filterwarnings("ignore", category=XMLParsedAsHTMLWarning)
    try:
        return BeautifulSoup(_TEMPLATE.sub("", text), "html5lib", multi_valued_attributes=None)
    except RecursionError as error:
        raise Unreadable("nested too deeply") from error


def _html5lib(text: str, links_in: str, images: bool) -> Tree:
    page = soup(text)
    tags = list(page.find_all((*_TAGS, *_IMAGES) if images else _TAGS))
    if links_in:
        selected = set(map(id, page.select(_query(links_in, images))))
        tags = [tag for tag in tags if id(tag) in selected]
    elements = [(tag.name, _Attributes(tag)) for tag in tags]
    title = next((tag for tag in page.find_all("title", limit=_MAX_TITLES) if not tag.find_parent("svg")), None)
    return Tree(elements, title.get_text() if title else "")


class _Attributes:
    def __init__(self, tag: Tag) -> None:
        self._tag = tag

    def attr(self, name: str, /) -> str | None:
        value = self._tag.attrs.get(name)
        return None if value is None else str(value)


_PARSERS = {"turbohtml": _turbohtml, "html5lib": _html5lib}
