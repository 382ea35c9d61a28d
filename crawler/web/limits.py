"""How much of a page a parser can read in bounded time and memory: decided before parsing, from a count of its tags.

The time of html5lib grows with the tags times the open elements. turbohtml is linear in both, but like any parser it
must copy open styles into every paragraph.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple


class _Limits(NamedTuple):
    """What a parser can read."""

    tags: int  # so many cannot hurt, however nested
    length: int  # characters; a longer page is always counted
    depths: float  # sum over all tags of the elements that are open
    copies: int  # of styles, each a node in memory: a worker reads one page at a time
    share: int  # copies for each character, if that is more
    pieces: int  # tags and attributes, each a node in memory
    read: int = 1 << 40  # characters that are read at all: html5lib's time grows with their square


_LIMITS = {
    "turbohtml": _Limits(1_000_000, 2_000_000, math.inf, 1_600_000, 4, 1_000_000),
    "html5lib": _Limits(500, 65_536, 1_000_000, 50_000, 0, 50_000, 500_000),
}
_MAX_ROOTS = 1_000
_MAX_ATTRIBUTES = 300

# A parser reopens these in every paragraph until they are closed: 40 KB can become a tree of a gigabyte.
_STYLES = ("b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
# Each is filled with a copy of its <select>'s chosen option, and so with all styles that were copied there: 7 KB can
# become a tree of 700 MB. It has no links of its own, so it gets a name that means nothing to a parser.
_FILLED = re.compile("<(?i:selectedcontent)")
_FILLED_TAGS = re.compile("(</?)(?i:selectedcontent)")
# Tags that may be styles with attributes, <html>, <body> or <selectedcontent>, by their first two letters, up to the
# next bracket: the only look at every tag of a page, so it is as short as it can be. What each is, `_COPIED` decides.
_SUSPECTS = re.compile(r"<[bcefhinstuBCEFHINSTU][\s/eimotEIMOT][^<>]*+>?")
# All that is copied: styles with attributes (whole if plainly written: only then equal text is certain to be equal for
# the parser), and <html> or <body>, whose attributes go to the first of them.
_COPIED = re.compile(
    rf"""<(?i:(?:{"|".join(_STYLES)})(?:(?P<plain>(?:\s+[\w-]+="[^"<>]*")+>)|[\s/])|(?:html|body)[\s/])"""
)
# Elements without an end tag, or with an optional one: a page may leave any number of them open.
_FLAT = frozenset(re.findall(r"\w+", """
    a p li dd dt tr td th tbody thead tfoot option optgroup rp rt area base basefont bgsound br col embed
    frame hr img image input keygen link meta param source track wbr"""))  # fmt: skip
_ATTRIBUTE = r"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?+)?+"""
_TAG = re.compile(
    rf"<(?i:!--.*?(?:-->|\Z)|(script|style)\b.*?(?:</\1|\Z)|(?P<end>/?)(?P<name>[a-z][^\s/>]*+)"
    rf"(?P<many>(?:{_ATTRIBUTE}){{{_MAX_ATTRIBUTES}}})?+(?:{_ATTRIBUTE})*+)",
    re.S,
)
# Content of a table outside its cells is moved in front of it, past all that was moved before.
_TABLE = frozenset({"table", "thead", "tbody", "tfoot", "tr", "colgroup", "col"})
_CELL = frozenset({"td", "th", "caption"})
_MISPLACED = 5  # pieces that such a tag counts for in addition


def bounded(text: str, parser: str) -> tuple[str, bool]:
    """Return as much of a text as a parser can read in bounded time, and whether that is less than all."""
    limits = _LIMITS[parser]
    part = text[: limits.read]
    tags, copies = part.count("<"), _copies(part, limits)
    suspects = None
    if tags * tags > 4 * copies:  # at worst half of the tags are styles, and half are paragraphs that repeat each
        suspects = Counter(_SUSPECTS.findall(part))
    # At worst a third of the tags are styles, a third paragraphs that repeat each, and a third copies of them all.
    if tags**3 > 27 * limits.copies and _has_filled(part, suspects):
        part = _FILLED_TAGS.sub(r"\1not-filled", part)
    # A quick look is enough for nearly every page: the count costs more than the parser.
    is_small = tags <= limits.tags and len(part) <= limits.length
    is_harmless = is_small and (suspects is None or tags * _kept(suspects) <= copies)
    cut = part if is_harmless else _counted(part, limits)
    return cut, len(cut) < len(part) or len(text) > limits.read


def _has_filled(text: str, suspects: Counter[str] | None) -> bool:
    if suspects is None:
        return _FILLED.search(text) is not None
    return any(map(_FILLED.match, suspects))


def _kept(suspects: Counter[str]) -> int:
    """Return how many styles may be open at once: of equal ones a parser keeps three."""
    kept = 0
    for tag, number in suspects.items():
        if copied := _COPIED.match(tag):
            kept += min(number, 3) if copied["plain"] else number
    return kept


def _copies(text: str, limits: _Limits) -> int:
    return max(limits.copies, limits.share * len(text))


def _counted(text: str, limits: _Limits) -> str:
    """Return as much of a text as an exact count allows."""
    count = _Count(limits._replace(copies=_copies(text, limits)))
    at = 0
    for tag in _TAG.finditer(text):
        if not count.allows(tag):
            return text[:at]
        at = tag.end()
    return text


class _Count:
    """What a parser would have to do so far; an estimate, which a page written against it can mislead."""

    def __init__(self, limits: _Limits) -> None:
        self.limits = limits
        self.opened: Counter[str] = Counter()
        self.styles: dict[str, list[str]] = {name: [] for name in _STYLES}
        self.alike: Counter[str] = Counter()
        self.misplaced = False
        self.depth = self.depths = self.kept = self.copies = self.roots = self.pieces = 0

    def allows(self, tag: re.Match[str]) -> bool:
        """Count one more tag, and tell whether the parser can read on."""
        end, name, many = tag.group("end", "name", "many")
        if name:  # not a comment, a script or a style
            self._add(name.lower(), bool(end), tag[0])
        return (
            not many
            and self.depths <= self.limits.depths
            and self.copies <= self.limits.copies
            and self.pieces <= self.limits.pieces
            and self.roots <= _MAX_ROOTS
        )

    def _add(self, name: str, end: bool, whole: str) -> None:
        if name not in _FLAT:
            if not end:
                self._open(name, whole)
            elif self.opened[name]:
                self._close(name)
        self.misplaced = not end if name in _TABLE else self.misplaced and name not in _CELL
        self.depths += self.depth
        self.copies += self.kept
        self.pieces += len(whole.replace("/", " ").split()) + _MISPLACED * self.misplaced

    def _open(self, name: str, whole: str) -> None:
        self.opened[name] += 1
        self.depth += 1
        self.roots += name in ("html", "body")
        if name in self.styles:
            self.styles[name].append(whole)
            self.alike[whole] += 1
            self.kept += self.alike[whole] <= 3  # of equal ones, a parser keeps three

    def _close(self, name: str) -> None:
        self.opened[name] -= 1
        self.depth -= 1
        if self.styles.get(name):
            whole = self.styles[name].pop()
            self.kept -= self.alike[whole] <= 3
            self.alike[whole] -= 1
