"""Normalized URLs, and what follows from them: host, key, shard, registrable domain."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from hashlib import sha224

from ada_url import join_url, normalize_url
from publicsuffixlist import PSLFILE, PublicSuffixList

from crawler.web.traps import TRAPS as TRAPS
from crawler.web.traps import trap as trap
from crawler.web.traps import without_ids

# The version of the normalization rules. A key is a hash of a normalized URL: changing a rule changes keys.
NORMALIZATION = 1

MAX_URL = 2000
# Longer than MAX_URL, because fragments and tracking parameters are dropped; bounded, because pages can hold anything.
MAX_INPUT = 16_000
MAX_HOST = 253
MAX_NETLOC = 255
MAX_CACHED = 500  # characters of a link and its base together; longer ones are normalized each time

# Query parameters that tell where a reader came from, never which page they see.
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
# The URL standard allows the hosts `..`, `*`, `$home` and `;x`; ours become folder names. The groups are a name, an
# IPv6 address and a port. The dot after the name is the DNS root: the site is the same without it.
_LABEL = "[a-z0-9_-]{1,63}"
# Labels below which countries let people register names, as in example.co.uk. Part of how stores are divided into
# shards (`spread: domain`): this list never changes.
_SECOND_LEVEL = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gouv", "gov", "gv", "ind", "info", "lg", "ltd", "me", "mil", "ne", "net"}
    | {"nhs", "nic", "nom", "or", "org", "plc", "sch", "web"}
)
_NETLOC = re.compile(rf"(?:((?!-){_LABEL}(?:\.{_LABEL})*)\.?|(\[[0-9a-f:]+\]))(:[1-9][0-9]{{0,4}})?")
_SCHEME = re.compile(r"\s*[a-z][a-z0-9+.-]*:(?!\d{1,5}(?:[/?#]|\Z))", re.IGNORECASE)


def normalize(url: str, base: str | None = None, tracking: Collection[str] = _TRACKING) -> str | None:
    """Return the normalized URL (of a link on a page at `base`), or None if it cannot be requested."""
    href = _standard(url, base)
    scheme, _, rest = href.partition("://")
    if scheme not in ("http", "https"):
        return None
    # The standard escapes "#" and "@" wherever they are not separators.
    netloc, _, path = rest.partition("#")[0].partition("/")
    place = _folder(netloc.rpartition("@")[2][: MAX_NETLOC + 2])
    if place is None:
        return None
    if "?" in path:
        path = _untracked(path, tracking)
    normalized = f"{scheme}://{place}/{path}"
    return normalized if len(normalized) <= MAX_URL else None


def normalize_links(links: Iterable[str], base: str, tracking: frozenset[str] = _TRACKING) -> Iterator[str | None]:
    """Yield what `normalize` returns for each link of a page at `base`; most are plainly written, and only joined."""
    if not _is_normalized(base):
        yield from (normalize(link, base, tracking) for link in links)
        return
    folder = base[: base.partition("?")[0].rfind("/") + 1]
    root = folder.index("/", len("https://"))
    for link in links:
        plain = _PLAIN(link) if len(link) <= MAX_CACHED else None
        kind = plain and plain.lastgroup
        if kind == "relative":
            joined = folder + link
        elif kind == "rooted":
            joined = folder[:root] + link
        elif kind == "page":
            joined = base
        elif plain and kind == "above":
            joined = _above(folder, root, plain.end(kind) // len("../")) + link[plain.end(kind) :]
        elif plain and kind == "site" and _is_site(plain[kind]):
            joined = link
        else:
            yield _normalize_link(link, base, folder, tracking)
            continue
        if "?" in joined:
            joined = _untracked(joined, tracking)
        yield joined if len(joined) <= MAX_URL else None


def _is_normalized(url: str) -> bool:
    """Tell whether `normalize` returns a URL as it is, with its tracking parameters; most are plainly written."""
    plain = _PLAIN(url) if len(url) <= MAX_CACHED else None
    if plain and plain.lastgroup == "site" and _is_site(plain["site"]):
        return True
    return normalize(url, tracking=()) == url


# Links that the standard leaves as they are, up to joining: no characters to escape, no segments of dots, no scheme but
# http or https, and no host that is not known to be normalized. The last group that matches says how to join.
_SEGMENT = r"(?!\.|%2[eE])[\w.~!$&()*+,;=:@%-]*+"
_PLAIN = re.compile(
    r"(?:(?P<site>https?://[a-z0-9.-]++(?::[0-9]++)?+/)|(?P<rooted>/(?!/))|(?P<above>(?:\.\./)++)"
    r"|(?P<page>\Z)|(?P<relative>(?=[\w.~!$&()*+,;=@%-]++(?:[/?]|\Z))))"
    rf"{_SEGMENT}(?:/{_SEGMENT})*+(?:\?[\w.~!$&()*+,;=:@%/?-]*+)?+",
    re.ASCII,
).fullmatch


def _above(folder: str, root: int, levels: int) -> str:
    """Return the folder so many levels above, at most that of the whole site, which ends at `root`."""
    for _ in range(levels):
        folder = folder[: folder.rfind("/", root, -1) + 1] or folder[: root + 1]
    return folder


@lru_cache(maxsize=16_384)
def _is_site(url: str) -> bool:
    """Tell whether a scheme and host are normalized, and what follows them can be, too."""
    return normalize(url) == url


def _normalize_link(link: str, base: str, folder: str, tracking: frozenset[str]) -> str | None:
    """Return the same as `normalize`, with a cache: pages of one folder share most of their links."""
    if ":" in link and _OTHER_SCHEME(link):
        return None
    # All that such a link can depend on.
    if link.startswith(("http://", "https://")):
        base = ""
    elif " " < link[:1] not in ("?", "#") and ":" not in link:
        base = folder
    if len(link) + len(base) > MAX_CACHED:
        return normalize(link, base or None, tracking)
    return _normalize_once(link, base, tracking)


_OTHER_SCHEME = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*+:", re.ASCII | re.IGNORECASE).match  # as in mailto:


@lru_cache(maxsize=8_192)
def _normalize_once(link: str, base: str, tracking: frozenset[str]) -> str | None:
    return normalize(link, base or None, tracking)


def why_not(url: str) -> str:
    """Return a sentence on why a URL cannot be normalized; it quotes nothing of the URL but its scheme."""
    if len(url) > MAX_INPUT:
        return f"it is longer than {MAX_INPUT:,} characters"
    if lacks_scheme(url):
        return "it has no scheme, such as https://"
    scheme, _, rest = _standard(url, None).partition(":")
    if not scheme:
        return "its host or port is not valid"
    if scheme not in ("http", "https"):
        return f"its scheme is {scheme}; only http and https are supported"
    if _folder(rest[2:].partition("/")[0].rpartition("@")[2][: MAX_NETLOC + 2]) is None:
        return "its host is not a valid name or address"
    return f"it is longer than {MAX_URL:,} characters"


def lacks_scheme(url: str) -> bool:
    """Tell whether a URL has no scheme; `example.org:8000` is a host with its port."""
    return _SCHEME.match(url) is None


_MAY_HAVE_SESSION = re.compile(r"[?;]|/\(").search  # most URLs have no place for one


def without_session(url: str) -> str:
    """Return a normalized URL without session ids, normalized again."""
    if not _MAY_HAVE_SESSION(url):
        return url
    bare = without_ids(url)
    return url if bare == url else normalize(bare, tracking=()) or url


_SAFE = re.compile(
    rf"https?://(?=[^/]{{1,{MAX_NETLOC}}}/)(?:(?!-){_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:]+\])(?::[1-9][0-9]{{0,4}})?/[!-~]*"
)


def is_safe(url: str) -> bool:
    """Tell whether a URL from a file is usable as it is, its host as a folder name; much cheaper than normalizing."""
    return len(url) <= MAX_URL and _SAFE.fullmatch(url) is not None


def is_host(name: str) -> bool:
    """Tell whether a folder's name is that of a host."""
    return "/" not in name and is_safe(f"http://{name}/")


def host(url: str) -> str:
    """Return the netloc of a normalized URL: the name of its folder."""
    return url.split("/", 3)[2]


def origin(url: str) -> str:
    """Return the scheme and netloc of a normalized URL."""
    return "/".join(url.split("/", 3)[:3])


def key(url: str) -> str:
    """Return the file name of a normalized URL's page and record."""
    return sha224(url.encode()).hexdigest()[:24]


def key_bytes(url: str) -> bytes:
    """Return the same as bytes, half as long."""
    return sha224(url.encode()).digest()[:12]


def shard_group(host: str) -> str:
    """Return what all names of a host's registrable domain share; those of some other domains may share it, too.

    Every machine must come to the same result for ever, so this does not depend on the public suffix list, which
    changes from version to version.
    """
    name = _PORT.sub("", host)
    if name[:1] == "[" or name.rpartition(".")[2].isdigit():
        return name
    labels = name.rsplit(".", 3)[-3:]
    is_below_country = len(labels) == 3 and len(labels[2]) == 2 and labels[1] in _SECOND_LEVEL
    return ".".join(labels if is_below_country else labels[-2:])


@lru_cache(maxsize=65_536)
def domain(host: str) -> str | None:
    """Return the registrable domain of a host, which may have a port; None for addresses and suffixes."""
    name = _PORT.sub("", host or "").removesuffix(".")
    if ":" in name or name.rpartition(".")[2].isdigit():
        return None
    return _suffixes().privatesuffix(name)


def zone(host: str) -> str:
    """Return whose host it is: its registrable domain; for addresses and suffixes the name itself, without a port."""
    return domain(host) or _PORT.sub("", host)


def _standard(url: str, base: str | None) -> str:
    """Return a URL as browsers parse it; an empty string if it is invalid."""
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
    """Return a netloc without its root dot, or None if it is not safe as a folder name."""
    # `normalize` cuts the netloc two bytes above the limit, so that this cache stays small.
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
    is_tracking = _name_check(frozenset(tracking))
    kept = [piece for piece in pieces if not is_tracking(piece.partition("=")[0])]
    if len(kept) == len(pieces):
        return path  # with its "?" even if the query is empty: to the standard that is another URL
    rest = "&".join(kept)
    return f"{bare}?{rest}" if rest else bare


@lru_cache(maxsize=16)
def _name_check(tracking: frozenset[str]) -> Callable[[str], bool]:
    """Return what tells whether a parameter's name is one of these, or matches one of them that has a `*`."""
    patterns = [name.replace("[", "[[]").replace("?", "[?]") for name in tracking if "*" in name]
    if not patterns:
        return tracking.__contains__
    matches = re.compile("|".join(map(fnmatch.translate, patterns))).match
    return lambda name: name in tracking or matches(name) is not None


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    # Lazy, and encoded here: the library encodes each of its rules, which takes four times as long.
    with open(PSLFILE, encoding="utf-8") as file:
        rules = [line.split(" ")[0].strip().lower() for line in file if not line.startswith("//")]
    encoded = (".".join(map(_in_ascii, rule.split("."))) for rule in rules if not rule.isascii())
    return PublicSuffixList([*rules, *encoded], accept_encoded_idn=False)


def _in_ascii(label: str) -> str:
    """Return a label of the public suffix list, in which all are normalized, as it is in host names."""
    return label if label.isascii() else "xn--" + label.encode("punycode").decode("ascii")
