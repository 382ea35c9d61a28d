"""robots.txt and robots tags: from bytes to rules."""

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

# Bytes of a robots.txt that are read: RFC 9309 requires at least 500 KiB, and a published test file has 517.
MAX_ROBOTS_BYTES = 520 * 1024
MAX_SITEMAPS = 1_000
PARSED_BYTES = 60  # most memory that Protego takes for one byte of text
MAX_PARSED = 64 * 1024  # bytes; larger rules are kept compressed, and parsed when needed
PARSED_AT_ONCE = 2  # large rules that stay parsed


class Rules:
    """The rules of one host's robots.txt for our user agent."""

    def __init__(self, body: bytes, agent: str) -> None:
        said = _read(_octets(body), token(agent))
        group = said.groups.get(token(agent)) or said.groups.get("*") or _Group()
        text = "User-agent: *\n" + "\n".join(group.rules)
        self.delay = group.delay  # its Crawl-delay, in seconds
        self._allows_all = not group.rules
        self.sitemaps = tuple(said.sitemaps)  # as written
        self._small = Protego.parse(text) if len(text) <= MAX_PARSED else None
        self._large = b"" if self._small else zlib.compress(text.encode("ascii"))
        self.weight = PARSED_BYTES * len(text) if self._small else len(self._large)  # most memory they take

    def allow(self, url: str) -> bool:
        """Tell whether this URL may be requested."""
        if self._allows_all:
            return True
        path = _AUTHORITY.sub("", url.partition("#")[0])
        rules = self._small or _parsed(self._large)
        return path == "/robots.txt" or bool(rules.can_fetch(_address(path), "*"))

    def why_not(self, url: str) -> Failure:
        """Return the failure of a URL that is not allowed."""
        return Failure(url, "robots")


def allows(robots: bytes, agent: str, url: str) -> bool:
    """Tell whether a robots.txt allows a user agent to request a URL."""
    return Rules(robots, agent).allow(url)


def token(agent: str) -> str:
    """Return the product token of a user agent: its name in robots.txt and robots tags."""
    return agent.split("/", 1)[0].split(" ", 1)[0] or "*"


@lru_cache(maxsize=PARSED_AT_ONCE)
def _parsed(packed: bytes) -> Protego:
    return Protego.parse(zlib.decompress(packed).decode("ascii"))


# From octets to the rules for our user agent

# A record and its value. Common typos are accepted, and so is a missing colon before a single word.
_RECORD = re.compile(
    rb"^[ \t\v\f]*+(?i:(?P<agent>user[- ]?agent)|(?P<allow>allow)|(?P<disallow>diss?all?[oa]w|diasllow)"
    rb"|(?P<sitemap>site-?maps?)|(?P<delay>crawl[- ]?delay))"
    rb"(?:[ \t\v\f]*+:|[ \t\v\f]++(?=[^\s#]++[ \t\v\f]*+(?:#|$)))(?P<value>[^\n#]*+)",
    re.M,
)


@dataclass(slots=True)
class _Group:
    """The rules for one agent as lines for Protego, and its Crawl-delay."""

    rules: dict[str, None] = field(default_factory=dict)
    delay: float = 0.0


@dataclass(slots=True)
class _Parsed:
    """The groups of a robots.txt for our name and for everybody, and its sitemaps."""

    groups: dict[str, _Group] = field(default_factory=dict)  # by our token, or "*"
    sitemaps: dict[str, None] = field(default_factory=dict)


def _octets(body: bytes) -> bytes:
    """Return the complete lines within the limit, as UTF-8 with "\\n" line ends.

    A line cut off by the limit is ignored: half of `Disallow: /private` could be `Disallow: /`, and half of an Allow
    could allow too much.
    """
    if len(body) >= MAX_ROBOTS_BYTES:
        body = body[: max(body.rfind(b"\n", 0, MAX_ROBOTS_BYTES), body.rfind(b"\r", 0, MAX_ROBOTS_BYTES)) + 1]
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        body = body.decode("utf-16", "replace").encode()
    body = body.lstrip(codecs.BOM_UTF8).replace(codecs.BOM_UTF8, b"")  # part of a BOM at the start, or one in between
    return body.replace(b"\0", b"").replace(b"\r", b"\n")


def _read(octets: bytes, token: str) -> _Parsed:
    """Return the groups for our token and for everybody.

    Only a rule ends the list of agents that rules apply to, because the RFC has no other records. A Crawl-delay applies
    to the agents just above it, as in most crawlers: no agent gets the delay of another, and none loses a rule by it.
    """
    said, ruled, delayed = _Parsed(), _Agents(), _Agents()
    for record in _RECORD.finditer(octets):
        value = record["value"].strip()
        if record["agent"]:
            names = _named(value, token)
            said.groups.update({name: _Group() for name in names - said.groups.keys()})
            ruled.list(names)
            delayed.list(names)
        elif record["sitemap"]:
            _add_sitemap(said, value)
        elif record["delay"]:
            for name in delayed.end():
                said.groups[name].delay = _seconds(value, said.groups[name].delay)
        else:
            delayed.end()
            for name in ruled.end():
                said.groups[name].rules.update(_rules(value, is_allowed=record["allow"] is not None))
    return said


class _Agents:
    """The agents that records apply to: all that are listed in a row."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.is_listing = False

    def list(self, names: set[str]) -> None:
        """Add an agent line; after other records it starts a new list."""
        self.names = self.names | names if self.is_listing else names
        self.is_listing = True

    def end(self) -> set[str]:
        """End the list and return its names."""
        self.is_listing = False
        return self.names


def _named(value: bytes, token: str) -> set[str]:
    """Return which of our token and "*" an agent line names: a name ends where a product token must end."""
    return {name for name in (token, "*") if re.match(re.escape(name.encode()) + rb"(?![a-z_-])", value, re.I)}


def _add_sitemap(said: _Parsed, value: bytes) -> None:
    if value and len(said.sitemaps) < MAX_SITEMAPS:
        said.sitemaps[value.decode("utf-8", "replace")] = None


def _seconds(value: bytes, otherwise: float) -> float:
    try:
        seconds = float(value)
    except ValueError:
        return otherwise
    return seconds if math.isfinite(seconds) and seconds >= 0 else otherwise


# From paths to what Protego compares. It would confuse octets that are not UTF-8 with one another, and count an escaped
# `?` as three when it looks for the longest match. It gets each octet as two hex digits, which it leaves alone: `/a*`
# is /=2f-61-*** (the `=` marks the start).

_AUTHORITY = re.compile(r"\A(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*")
_ESCAPABLE = re.compile(rb"%([0-9A-Fa-f]{2})|[^!-~]")
_INDEX = re.compile(rb"/index\.html?\Z")


def _rules(value: bytes, is_allowed: bool) -> dict[str, None]:
    """Return a rule as lines for Protego; none without a path. Allowing index.html allows its folder, too."""
    if not value.startswith((b"/", b"*")):
        return {}
    if not is_allowed:
        return {f"Disallow: {_pattern(value)}": None}
    folder = _INDEX.sub(b"/$", value)
    return {f"Allow: {_pattern(value)}": None, f"Allow: {_pattern(folder)}": None}


def _pattern(value: bytes) -> str:
    path = _canonical(value.removesuffix(b"$").replace(b"$", b"%24"))
    letters = "***".join(map(_letters, path.split(b"*")))
    # The end counts as much as an octet; the stars match nothing, because only the start has a `=`.
    return f"/**={letters}$" if value.endswith(b"$") else f"/={letters}"


def _address(path: str) -> str:
    octets = path.encode("utf-8", "surrogatepass").replace(b"*", b"%2A").replace(b"$", b"%24")
    return "/=" + _letters(_canonical(octets if octets.startswith(b"/") else b"/" + octets))


def _letters(octets: bytes) -> str:
    return octets.hex("-") + "-" if octets else ""


def _canonical(octets: bytes) -> bytes:
    """Escape only what must be escaped; a slash in a query is not a separator, so `%2F` there is the same."""
    path, mark, query = octets.partition(b"?")
    return _escaped(path, b"%*$/?") + mark + _escaped(query, b"%*$")


def _escaped(octets: bytes, kept: bytes) -> bytes:
    def normalize(match: re.Match[bytes]) -> bytes:
        octet = bytes.fromhex(match[1].decode()) if match[1] else match[0]
        return octet if b"!" <= octet <= b"~" and octet not in kept else b"%%%02X" % octet[0]

    return _ESCAPABLE.sub(normalize, octets)


# Robots tags of pages

_FORBIDS = {"noindex": {"noindex"}, "nofollow": {"nofollow"}, "none": {"noindex", "nofollow"}}
# Directives with a colon and a value, which may be `none` or a date.
_VALUED = re.compile(r"(?<![\w-])max-[a-z-]++\s*+:\s*+[^\s,;]*+|\bunavailable_after\s*+:")
_WORD = re.compile(r"([\w*./-]++)(\s*+:)?")


def tags(values: Iterable[str], agent_token: str) -> frozenset[str]:
    """Return which of noindex and nofollow X-Robots-Tag headers or meta robots contents say to our agent.

    `name:` starts directives for that agent alone, up to the next name or the end of the header's line.
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
