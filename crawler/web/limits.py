"""How much of a page a parser can take in reasonable time and memory: found out before it is parsed, by a glance where
that is enough, else by a count of its tags.

What a page costs html5lib grows with its tags times the elements that are open. Turbohtml is linear in both, but like
any parser it must copy open styles into every paragraph, and the chosen option into every <selectedcontent>.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import NamedTuple


class _Limits(NamedTuple):
    """What a parser can take."""

    tags: int  # as many cannot hurt, however nested
    length: int  # characters of a page; a longer one is always counted
    depths: float  # summed over all tags
    copies: int  # of styles, each a node in memory: what many small pages at once may take
    share: int  # copies for each character, if that is more: large pages are parsed one at a time
    pieces: int  # tags and attributes, each a node in memory, and other things that a parser stops at
    work: float  # pieces times characters: html5lib adds each piece to a copy of what it has


_LIMITS = {
    "turbohtml": _Limits(1_000_000, 2_000_000, math.inf, 400_000, 4, 1_000_000, math.inf),
    "html5lib": _Limits(500, 500_000, 1_000_000, 50_000, 0, 50_000, 50_000_000_000),
}
_MAX_ROOTS = 1_000
_MAX_ATTRIBUTES = 300
_LONG_TAG = 500
_LONG = 65_536

# A parser opens these anew in every paragraph until they are closed: 40 KB can make a gigabyte of tree.
_STYLES = ("b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
# The flag stands behind the "<": in front of it, it would make a search read every character by itself. What begins
# with another letter is left out first: to compare without case takes long.
_STYLE = rf"<(?=[bcefhinstuBCEFHINSTU])(?i:{'|'.join(_STYLES)})"
# Attributes of a second <html> or <body> go to the first one: as costly as styles where there are many.
_STYLED = re.compile(rf"{_STYLE[:-1]}|html|body)[\s/]")
_PLAIN = re.compile(rf"""{_STYLE}(?:\s+[\w-]+="[^"<>]*")+>""")
# Each is filled with a copy of its <select>'s chosen option, whatever that holds: 200 KB can make 4 GB of tree.
_FILLED = re.compile("<(?i:selectedcontent)")
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


def bounded(text: str, parser: str) -> tuple[str, bool]:
    """Return as much of a text as a parser can take in reasonable time, and whether that is less than all."""
    limits = _LIMITS[parser]
    filled = [found.start() for found in _FILLED.finditer(text)]
    is_cut = len(filled) * text.count("<") > limits.copies
    text = text[: filled[0]] if is_cut else text
    limits = limits._replace(copies=max(limits.copies, limits.share * len(text)))
    if _is_harmless(text, limits):
        return text, is_cut
    tally = _Tally(limits)
    at = 0
    for tag in _TAG.finditer(text):
        if not (tally.affords_text(text, at, tag.start()) and tally.affords(tag)):
            return text[:at], True
        at = tag.end()
    return (text, is_cut) if tally.affords_text(text, at, len(text)) else (text[:at], True)


def _is_harmless(text: str, limits: _Limits) -> bool:
    """Whether a glance is enough, as it is for nearly every page: the count costs more than the parser."""
    tags = text.count("<")
    if tags > limits.tags or len(text) > limits.length or (limits.depths < math.inf and _has_long_part(text)):
        return False
    if tags * tags <= 4 * limits.copies:  # half of them styles, and half paragraphs that repeat each
        return True
    styled = len(_STYLED.findall(text))
    return tags * styled <= limits.copies or tags * _most_kept(text, styled) <= limits.copies


def _has_long_part(text: str) -> bool:
    """Whether there may be a tag of very many attributes: each of them is compared with all before it."""
    at = 0
    while len(text) - at > _LONG:
        after = text.rfind("<", at + 1, at + _LONG + 1)
        if after < 0:
            return True
        at = after
    return False


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
