"""robots.txt and robots tags: from bytes to rules. Pure; who asks for them, and when, is the worker's business."""

from __future__ import annotations

import codecs
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from protego import Protego

from crawler.web.page import Failure

# Bytes that are read of a robots.txt: RFC 9309 asks for 500 KiB at least, and a file of the tests of others has 517.
MAX_ROBOTS_BYTES = 520 * 1024
MAX_SITEMAPS = 1_000
PARSER = 60  # bytes that Protego makes of one of its text at the most
LARGE = 64 * 1024  # bytes beyond which rules are kept packed, and only those of a few hosts parsed
PARSED = 2


class Rules:
    """What one host's robots.txt says to us."""

    def __init__(self, body: bytes, agent: str) -> None:
        said = _listen(_octets(body), token(agent))
        group = said.groups.get(token(agent)) or said.groups.get("*") or _Group()
        text = "User-agent: *\n" + "\n".join(group.rules)
        self.delay = group.delay  # the crawl-delay it asks for, in seconds
        self.sitemaps = tuple(said.sitemaps)  # as written
        self._small = Protego.parse(text) if len(text) <= LARGE else None
        self._large = b"" if self._small else zlib.compress(text.encode("ascii"))
        self.weight = PARSER * len(text) if self._small else len(self._large)  # bytes that these rules take at the most

    def allow(self, url: str) -> bool:
        """Whether we may ask this URL."""
        path = _AUTHORITY.sub("", url.partition("#")[0])
        rules = self._small or _parsed(self._large)
        return path == "/robots.txt" or bool(rules.can_fetch(_address(path), "*"))

    def why_not(self, url: str) -> Failure:
        """Why a URL is refused."""
        return Failure(url, "robots")


def allows(robots: bytes, agent: str, url: str) -> bool:
    """Whether a robots.txt allows a user agent to ask a URL."""
    return Rules(robots, agent).allow(url)


def token(agent: str) -> str:
    """The product token of a user agent: what robots.txt and robots tags know us by."""
    return agent.split("/", 1)[0].split(" ", 1)[0] or "*"


@lru_cache(maxsize=PARSED)
def _parsed(packed: bytes) -> Protego:
    return Protego.parse(zlib.decompress(packed).decode("ascii"))


# From octets to what is said to us

# A record and its value. The usual typos are forgiven, and a missing colon where only one word follows.
_RECORD = re.compile(
    rb"^[ \t\v\f]*+(?i:(?P<agent>user[- ]?agent)|(?P<allow>allow)|(?P<disallow>diss?all?[oa]w|diasllow)"
    rb"|(?P<sitemap>site-?maps?)|(?P<delay>crawl[- ]?delay))"
    rb"(?:[ \t\v\f]*+:|[ \t\v\f]++(?=[^\s#]++[ \t\v\f]*+(?:#|$)))(?P<value>[^\n#]*+)",
    re.M,
)


@dataclass(slots=True)
class _Group:
    """What is said to one agent: its rules as Protego is to read them, and its crawl-delay."""

    rules: dict[str, None] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(slots=True)
class _Said:
    """What a robots.txt says to us by name and to everybody, and where the sitemaps are."""

    groups: dict[str, _Group] = field(default_factory=dict)  # by our token, or "*"
    sitemaps: dict[str, None] = field(default_factory=dict)


def _octets(body: bytes) -> bytes:
    """The lines that count, as UTF-8 with "\\n" behind each.

    A line that the limit cuts is no rule: half of `Disallow: /private` could be `Disallow: /`, half of an Allow could
    open what is closed, and nobody wrote either.
    """
    if len(body) >= MAX_ROBOTS_BYTES:
        body = body[: max(body.rfind(b"\n", 0, MAX_ROBOTS_BYTES), body.rfind(b"\r", 0, MAX_ROBOTS_BYTES)) + 1]
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        body = body.decode("utf-16", "replace").encode()
    body = body.lstrip(codecs.BOM_UTF8).replace(codecs.BOM_UTF8, b"")  # half a mark at the start, or one in between
    return body.replace(b"\0", b"").replace(b"\r", b"\n")


def _listen(octets: bytes, token: str) -> _Said:
    """Read what is said to us.

    Only a rule ends the list of agents whom rules are for, because the RFC knows no other records. A Crawl-delay is for
    the agents just above it, as most crawlers read it: nobody gets the delay of others, and nobody loses a rule by it.
    """
    said, ruled, delayed = _Said(), _Agents(), _Agents()
    for record in _RECORD.finditer(octets):
        value = record["value"].strip()
        if record["agent"]:
            names = _named(value, token)
            said.groups.update({name: _Group() for name in names - said.groups.keys()})
            ruled.list(names)
            delayed.list(names)
        elif record["sitemap"]:
            _note_sitemap(said, value)
        elif record["delay"]:
            for name in delayed.end():
                said.groups[name].delay = _seconds(value, said.groups[name].delay)
        else:
            delayed.end()
            for name in ruled.end():
                said.groups[name].rules.update(_rules(value, is_allowed=record["allow"] is not None))
    return said


class _Agents:
    """Whom records are for: all agents that are listed in a row."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.is_listing = False

    def list(self, names: set[str]) -> None:
        """Take in an agent line; behind other records it begins a new list."""
        self.names = self.names | names if self.is_listing else names
        self.is_listing = True

    def end(self) -> set[str]:
        """End the list, and return whom it names."""
        self.is_listing = False
        return self.names


def _named(value: bytes, token: str) -> set[str]:
    """Whom an agent line means, of us and everybody: a name ends where no product token can go on."""
    return {name for name in (token, "*") if re.match(re.escape(name.encode()) + rb"(?![a-z_-])", value, re.I)}


def _note_sitemap(said: _Said, value: bytes) -> None:
    if value and len(said.sitemaps) < MAX_SITEMAPS:
        said.sitemaps[value.decode("utf-8", "replace")] = None


def _seconds(value: bytes, otherwise: float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return otherwise
    return seconds if math.isfinite(seconds) and seconds >= 0 else otherwise


# From paths to what Protego compares. It would take octets that are no UTF-8 for one another, and count an escaped `?`
# as three when it looks for the longest match. So it is given each octet in letters that it leaves alone, and all of
# the same length: `/a*` is /=2f-61-*** (the `=` marks the start).

_AUTHORITY = re.compile(r"\A(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")
_ESCAPABLE = re.compile(rb"%([0-9A-Fa-f]{2})|[^!-~]")
_INDEX = re.compile(rb"/index\.html?\Z")


def _rules(value: bytes, is_allowed: bool) -> dict[str, None]:
    """A rule as lines for Protego; one without a path is none. Who allows index.html means its folder, too."""
    if not value.startswith((b"/", b"*")):
        return {}
    if not is_allowed:
        return {f"Disallow: {_pattern(value)}": None}
    folder = _INDEX.sub(b"/$", value)
    return {f"Allow: {_pattern(value)}": None, f"Allow: {_pattern(folder)}": None}


def _pattern(value: bytes) -> str:
    path = _canonical(value.removesuffix(b"$").replace(b"$", b"%24"))
    letters = "***".join(map(_letters, path.split(b"*")))
    # The end weighs as much as an octet; these stars can stand for nothing, because only the start has a `=`.
    return f"/**={letters}$" if value.endswith(b"$") else f"/={letters}"


def _address(path: str) -> str:
    octets = path.encode("utf-8", "surrogatepass").replace(b"*", b"%2A").replace(b"$", b"%24")
    return "/=" + _letters(_canonical(octets if octets.startswith(b"/") else b"/" + octets))


def _letters(octets: bytes) -> str:
    return octets.hex("-") + "-" if octets else ""


def _canonical(octets: bytes) -> bytes:
    """Escape what must be escaped and nothing else; a slash in a query is no separator, so its escape is the same."""
    path, mark, query = octets.partition(b"?")
    return _escaped(path, b"%*$/?") + mark + _escaped(query, b"%*$")


def _escaped(octets: bytes, kept: bytes) -> bytes:
    def normalize(match: re.Match[bytes]) -> bytes:
        octet = bytes.fromhex(match[1].decode()) if match[1] else match[0]
        return octet if b"!" <= octet <= b"~" and octet not in kept else b"%%%02X" % octet[0]

    return _ESCAPABLE.sub(normalize, octets)


# Robots tags of pages

_FORBIDS = {"noindex": {"noindex"}, "nofollow": {"nofollow"}, "none": {"noindex", "nofollow"}}
# These have a colon of their own, and a value that may be `none`; a date's words mean nothing to us.
_VALUED = re.compile(r"(?<![\w-])max-[a-z-]++\s*+:\s*+[^\s,;]*+|\bunavailable_after\s*+:")
_WORD = re.compile(r"([\w*./-]++)(\s*+:)?")


def tags(values: Iterable[str], agent_token: str) -> frozenset[str]:
    """Of noindex and nofollow, what X-Robots-Tag headers (or the content of a meta robots) say to us.

    `name:` begins what is for that agent alone, up to the next name or the end of the header's line.
    """
    found: set[str] = set()
    for line in (line for value in values for line in value.lower().split("\n")):
        is_ours = True
        for word, colon in _WORD.findall(_VALUED.sub(" ", line)):
            if colon and not word[0].isdigit():
                is_ours = word.partition("/")[0] in (agent_token.lower(), "*", "robots")
            elif is_ours:
                found |= _FORBIDS.get(word, set())
    return frozenset(found)
