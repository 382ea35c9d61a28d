"""From a page's bytes to text, title and links; bounded in time and memory for any page."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import turbohtml

from crawler.web.charset import decode
from crawler.web.limits import bounded
from crawler.web.page import FOLLOWED, Fetched, Reading, Unreadable
from crawler.web.robots import tags
from crawler.web.urls import TRACKING, normalize, normalize_link

if TYPE_CHECKING:
    from bs4 import BeautifulSoup
    from bs4.element import Tag

__all__ = ["Unreadable", "Wants", "decode", "links", "read", "soup"]

MAX_TITLE = 500


@dataclass(frozen=True, slots=True)
class Wants:
    """What to read from a page."""

    parser: str = "turbohtml"  # or html5lib, the reference
    follow: tuple[str, ...] = FOLLOWED  # of page.LINK_KINDS
    nofollow: bool = False  # True: ignore links marked rel=nofollow
    tracking: frozenset[str] = frozenset(TRACKING)
    token: str = "*"  # our name in robots tags
    max_links: int = 10_000


DEFAULTS = Wants()
Attributes = Mapping[str, Any]  # values are text or None; `rel` may be a list of words
Element = tuple[str, Attributes]


@dataclass(slots=True)
class Tree:
    """What a parser found: the relevant elements in document order, and the title."""

    elements: Sequence[Element]
    title: str


def read(page: Fetched, wants: Wants = DEFAULTS) -> Reading:
    """Return a page's text, title, normalized links and robots tags."""
    text, charset = decode(page.body, page.content_type)
    part, cut = bounded(text, wants.parser) if _is_markup(page.content_type) else ("", False)
    tree = _PARSERS[wants.parser](part)
    found = list(_normalized(tree.elements, page.url, wants))
    return Reading(
        text=text,
        charset=charset,
        title=_title(tree.title),
        links=tuple(found[: wants.max_links]),
        robots=tuple(sorted(tags(_robots_tags(page, tree.elements, wants.token), wants.token))),
        capped=cut or len(found) > wants.max_links,
    )


def links(body: bytes, content_type: str, url: str) -> list[str]:
    """Return the normalized links of a page at `url`, in document order, without repeats."""
    return list(read(Fetched(url, 200, {"content-type": content_type}, body)).links)


def _is_markup(content_type: str) -> bool:
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
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def _normalized(elements: Sequence[Element], url: str, wants: Wants) -> Iterator[str]:
    """Yield each wanted link once, and at most one more than the cap."""
    base = _base(elements, url)
    seen: set[str] = set()
    # Most links of a page are repeats, or differ only in fragments: cheaper to remove before normalizing.
    for link in dict.fromkeys(link.partition("#")[0] for link in _wanted(elements, wants)):
        normalized = normalize_link(link, base, wants.tracking)
        if normalized is not None and normalized not in seen:
            seen.add(normalized)
            yield normalized
        if len(seen) > wants.max_links:
            return


def _base(elements: Iterable[Element], url: str) -> str:
    """Return the base URL of links: the first <base> with an href, if that is a valid URL."""
    for tag, attributes in elements:
        if tag == "base" and "href" in attributes:
            return normalize(attributes["href"] or "", url, ()) or url
    return url


def _wanted(elements: Iterable[Element], wants: Wants) -> Iterator[str]:
    """Yield the links of the kinds that are followed, as written in the page."""
    for tag, attributes in elements:
        link = _address(tag, attributes, wants.follow)
        if link is not None and not (wants.nofollow and "nofollow" in _relations(attributes)):
            yield link


def _address(tag: str, attributes: Attributes, follow: tuple[str, ...]) -> str | None:
    if tag in ("a", "area", "iframe", "frame"):
        return _value(attributes, _ADDRESS[tag]) if tag in follow else None
    if tag == "link":
        rel = _relations(attributes)
        is_wanted = "stylesheet" not in rel and not rel.isdisjoint(follow) and rel & _RELATIONS
        return _value(attributes, ("href",)) if is_wanted else None
    return _refresh(attributes) if tag == "meta" and "refresh" in follow else None


# An SVG <a> may still use the old attribute.
_ADDRESS = {"a": ("href", "xlink:href"), "area": ("href",), "iframe": ("src",), "frame": ("src",)}
_RELATIONS = {"next", "prev", "alternate", "canonical"}


def _value(attributes: Attributes, names: tuple[str, ...]) -> str | None:
    """Return the first attribute that exists; without a value it is an empty link, to the page itself."""
    for name in names:
        if name in attributes:
            return attributes[name] or ""
    return None


def _refresh(meta: Attributes) -> str | None:
    if (meta.get("http-equiv") or "").lower() != "refresh":
        return None
    match = _REFRESH.match(meta.get("content") or "")
    return (match["quoted"] or match["plain"]) if match else None


def _robots_tags(page: Fetched, elements: Iterable[Element], token: str) -> Iterator[str]:
    """Yield the robots tags of headers and <meta> elements that are for all robots or for this name."""
    yield page.headers.get("x-robots-tag", "")
    for tag, meta in elements:
        if tag == "meta" and (meta.get("name") or "").strip().lower() in ("robots", token.lower()):
            yield meta.get("content") or ""


def _relations(attributes: Attributes) -> set[str]:
    rel = attributes.get("rel") or ""
    return set((" ".join(rel) if isinstance(rel, list) else rel).lower().split())


def _title(text: str) -> str:
    """Collapse white space, drop control characters, and truncate."""
    return " ".join(_CONTROL.sub(" ", text[: 20 * MAX_TITLE]).split())[:MAX_TITLE]


# The parsers

_TAGS = ("a", "area", "iframe", "frame", "link", "meta", "base")
_QUERY = "a[href],a[xlink\\:href],area[href],iframe[src],frame[src],link[href],meta[content],base[href],title"
_MAX_TITLES = 20  # that are examined


def _turbohtml(text: str) -> Tree:
    page = turbohtml.parse(text)
    found = page.select(f"{_QUERY},template")
    templates = [node for node in found if node.tag == "template" and node.namespace is turbohtml.Namespace.HTML]
    if templates:  # their content is not part of the page
        for node in templates:
            node.decompose()
        found = page.select(_QUERY)
    elements = [(node.tag, node.attrs) for node in found if node.tag != "title"]
    titles = (node for node in found if node.tag == "title")
    return Tree(elements, next((node.text for node in islice(titles, _MAX_TITLES) if not node.closest("svg")), ""))


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


def _html5lib(text: str) -> Tree:
    page = soup(text)
    elements = [(tag.name, _plain(tag)) for tag in page.find_all(_TAGS)]
    title = next((tag for tag in page.find_all("title", limit=_MAX_TITLES) if not tag.find_parent("svg")), None)
    return Tree(elements, title.get_text() if title else "")


def _plain(tag: Tag) -> dict[str, str | None]:
    return {str(name): str(value) for name, value in tag.attrs.items()}


_PARSERS = {"turbohtml": _turbohtml, "html5lib": _html5lib}
