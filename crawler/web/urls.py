"""One spelling per URL, what follows from it (host, key, shard, domain)."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from hashlib import sha224

from ada_url import join_url, normalize_url
from publicsuffixlist import PublicSuffixList

from crawler.web.traps import TRAPS as TRAPS
from crawler.web.traps import trap as trap
from crawler.web.traps import without_ids

# The version of the spelling rules. A key is a hash of a spelling: whoever changes a rule changes keys.
SPELLING = 1

MAX_URL = 2000
# Longer than MAX_URL, because fragments and tracking fall away; bounded, because pages can hold anything.
MAX_INPUT = 16_000
MAX_HOST = 253
MAX_NETLOC = 255
REMEMBERED_LENGTH = 500  # characters of a link and its base together; longer ones are spelled each time

# Query parameters that say where a reader came from, and never which page they see.
TRACKING: tuple[str, ...] = (
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_term",
    "utm_content",
    "utm_id",
    "gclid",
    "dclid",
    "gbraid",
    "wbraid",
    "fbclid",
    "msclkid",
    "twclid",
    "yclid",
    "igshid",
    "mc_cid",
    "mc_eid",
    "_hsenc",
    "_hsmi",
)
_TRACKING = frozenset(TRACKING)

_SURROGATE = re.compile("[\ud800-\udfff]")
_PORT = re.compile(r":[0-9]+\Z")
# The standard lets a host be `..`, `*`, `$home` or `;x`; ours becomes a folder. The groups are a name, an
# IPv6 address, a port. The dot after the name is the DNS root: with it and without it, a site is the same.
_LABEL = "[a-z0-9_-]{1,63}"
_NETLOC = re.compile(rf"(?:((?!-){_LABEL}(?:\.{_LABEL})*)\.?|(\[[0-9a-f:]+\]))(:[1-9][0-9]{{0,4}})?")


def normalize(url: str, base: str | None = None, tracking: Collection[str] = _TRACKING) -> str | None:
    """Return the one spelling of a URL (of a link, on a page at `base`), or None for what we never ask."""
    href = _standard(url, base)
    scheme, _, rest = href.partition("://")
    if scheme not in ("http", "https"):
        return None
    # The standard escapes "#" and "@" wherever they are not the separators that we look for.
    netloc, _, path = rest.partition("#")[0].partition("/")
    place = _folder(netloc.rpartition("@")[2][: MAX_NETLOC + 2])
    if place is None:
        return None
    if "?" in path:
        path = _untracked(path, tracking)
    normalized = f"{scheme}://{place}/{path}"
    return normalized if len(normalized) <= MAX_URL else None


def normalize_link(link: str, base: str, tracking: frozenset[str]) -> str | None:
    """Return the same as `spell`, for the links of pages: those of one folder have most of them in common."""
    if " " < link[:1] not in ("?", "#") and (":" not in link or link.startswith(("http://", "https://"))):
        base = base[: base.partition("?")[0].rfind("/") + 1]  # all that such a link can depend on
    if len(link) + len(base) > REMEMBERED_LENGTH:
        return normalize(link, base, tracking)
    return _normalize_once(link, base, tracking)


@lru_cache(maxsize=8_192)
def _normalize_once(link: str, base: str, tracking: frozenset[str]) -> str | None:
    return normalize(link, base, tracking)


def why_not(url: str) -> str:
    """Return, in words, why a URL has no spelling; nothing of the URL is in them but its scheme."""
    if len(url) > MAX_INPUT:
        return f"it is longer than {MAX_INPUT:,} characters"
    scheme, _, rest = _standard(url, None).partition(":")
    if not scheme:
        return "no browser would go there: it has no scheme, or a host or a port that is none"
    if scheme not in ("http", "https"):
        return f"its scheme is {scheme}, and only http and https are asked"
    if _folder(rest[2:].partition("/")[0].rpartition("@")[2][: MAX_NETLOC + 2]) is None:
        return "its host is neither a name nor an address that we ask"
    return f"it is longer than {MAX_URL:,} characters"


def without_session(url: str) -> str:
    """Return a spelled URL without session ids, spelled again."""
    bare = without_ids(url)
    return url if bare == url else normalize(bare, tracking=()) or url


_SAFE = re.compile(rf"https?://(?:(?!-){_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:]+\])(?::[1-9][0-9]{{0,4}})?/[!-~]*")


def is_safe(url: str) -> bool:
    """Tell whether a URL from a file may stand as it is, its host as a folder name: far cheaper than to spell it."""
    return len(url) <= MAX_URL and _SAFE.fullmatch(url) is not None and len(host(url)) <= MAX_NETLOC


# A spelled URL has no fragment. A waiting one may: it says for what else than its page a URL is asked.
_SITEMAP = re.compile("#sitemap(?:-([1-9]))?")
_ROBOTS_OF = "#robots-of-"
_AGAIN = "#again~"


def as_sitemap(url: str, level: int = 1) -> str:
    """Return a spelled URL as one that is asked for as a sitemap, which others have named `level` - 1 times removed."""
    return f"{url}#sitemap" if level == 1 else f"{url}#sitemap-{level}"


def sitemap_level(url: str) -> int:
    """Return at which level a URL is asked for as a sitemap; 0 if it is asked for as a page."""
    found = _SITEMAP.fullmatch(url, url.find("#")) if "#" in url else None
    return int(found[1] or 1) if found else 0


def as_errand(url: str, host: str, token: str) -> str:
    """Return a spelled URL as one that is asked for the robots.txt of another host; a new token is a new errand."""
    return f"{url}{_ROBOTS_OF}{host}~{token}"


def errand_of(url: str) -> str | None:
    """Return the host for whose robots.txt a URL is asked; None if it is asked for itself."""
    host = url.partition(_ROBOTS_OF)[2].partition("~")[0]
    return host if host and is_host(host) else None


def as_again(url: str, mark: str) -> str:
    """Return a URL as the errand to ask it again, although it was refused; the mark tells which refusal is meant."""
    return f"{url}{_AGAIN}{mark}"


def again_of(url: str) -> str | None:
    """Return the URL that an errand has asked again; None if it is no such errand."""
    return url.rpartition(_AGAIN)[0] or None if _AGAIN in url else None


def is_errand(url: str) -> bool:
    """Tell whether a waiting URL is there for something else than to be asked and settled itself."""
    return "#" in url and (errand_of(url) is not None or again_of(url) is not None)


def bare(url: str) -> str:
    """Return what is asked of a host: the URL without what it is asked for."""
    return url.partition("#")[0]


def normalize_again(url: str, tracking: Collection[str]) -> str | None:
    """Return the spelling of a waiting URL under other tracking parameters."""
    page, mark, role = url.partition("#")
    normalized = normalize(page, tracking=tracking)
    return normalized and normalized + mark + role


def is_host(name: str) -> bool:
    """Tell whether a folder's name is one that we gave to a host."""
    return "/" not in name and is_safe(f"http://{name}/")


def host(url: str) -> str:
    """Return the netloc of a spelled URL: the name of its folder."""
    return url.split("/", 3)[2]


def origin(url: str) -> str:
    """Return the scheme and netloc of a spelled URL."""
    return "/".join(url.split("/", 3)[:3])


def key(url: str) -> str:
    """Return the name of a spelled URL's files."""
    return sha224(url.encode()).hexdigest()[:24]


def shard(url: str, shards: int, spread: str = "host") -> int:
    """Return which of the shards a spelled URL belongs to: its host's, or (spread "url") one of its own."""
    return shard_of_key(key(url if spread == "url" else host(url)), shards)


def shard_of_key(key: str, shards: int) -> int:
    """Return which of the shards a key belongs to."""
    return int(key, 16) % shards


@lru_cache(maxsize=65_536)
def domain(host: str) -> str | None:
    """Return the registrable domain of a host, which may have a port; None for addresses and suffixes."""
    name = _PORT.sub("", host or "").removesuffix(".")
    if ":" in name or name.rpartition(".")[2].isdigit():
        return None
    return _suffixes().privatesuffix(name)


def _standard(url: str, base: str | None) -> str:
    """Return what a browser makes of a URL; an empty string when it would not go there."""
    if len(url) > MAX_INPUT or (base is not None and len(base) > MAX_INPUT):
        return ""
    # Browsers read half a surrogate pair as U+FFFD.
    if not url.isascii():
        url = _SURROGATE.sub("\ufffd", url)
    try:
        return normalize_url(url) if base is None else join_url(base, url)
    except ValueError:
        return ""


@lru_cache(maxsize=16_384)
def _folder(netloc: str) -> str | None:
    """Return a netloc that is safe as a folder's name, without its root dot, or None."""
    # Two bytes too many are too many even without the dot; spell cuts there, so that this cache stays small.
    match = _NETLOC.fullmatch(netloc)
    if match is None:
        return None
    name, address, port = match.groups(default="")
    place = (name or address) + port
    return place if len(name) <= MAX_HOST and len(place) <= MAX_NETLOC else None


def _untracked(path: str, tracking: Collection[str]) -> str:
    """Return a path and query without the tracking parameters; all other bytes stay as they are."""
    bare, _, query = path.partition("?")
    pieces = query.split("&")
    kept = [piece for piece in pieces if piece.partition("=")[0] not in tracking]
    if len(kept) == len(pieces):
        return path  # with its "?" even if bare: to the standard that is another URL
    rest = "&".join(kept)
    return f"{bare}?{rest}" if rest else bare


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # Lazy: reading the list takes longer than importing everything else here.
    return PublicSuffixList()
