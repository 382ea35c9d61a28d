"""The terms of a request, and the shapes that pass between the fetch face and the two that do the asking."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from crawler.web.page import REDIRECTS, Failure, Fetched

MAX_HEADER_LINE = 64 * 1024
MAX_HEADERS = 300 * 1024
# An unwanted body is read this far and this long: cheaper for both sides than a new connection.
DRAIN_BYTES = 16 * 1024
DRAIN_SECONDS = 1.0
# Connections kept open between requests; beyond that the longest idle one gives way. Each takes 0.2 MB; a new one takes
# a look for the host's address, by threads of the resolver, and is as much work as half a page.
KEPT = 256

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*[!-~\x80-\xff])", re.ASCII)
# Not those beyond 127: they are bytes of UTF-8 in a header that was read as Latin-1.
_CONTROLS = dict.fromkeys([*range(32), 127])
# They describe the connection or name the host, so a caller's own would change where or how the request ends.
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "expect", "upgrade", "te"})
# Of these only one can be meant; a list of them would mean nothing.
_SINGLE = frozenset({"location", "content-type", "content-length", "retry-after", "date"})
# Of these a comma does not tell where one ends.
_LINES = frozenset({"set-cookie", "x-robots-tag"})
# They say nothing secret, and so go to every host.
HARMLESS = frozenset({"accept", "accept-language", "dnt", "from"})
_END = r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]*):(\d*)"
_RULE = re.compile(f"{_END}:{_END}", re.ASCII)


class Route(NamedTuple):
    """A connect_to rule: requests for `host`:`port` (None: any) go to `address`:`at` (None: unchanged)."""

    host: str | None
    port: int | None
    address: str | None
    at: int | None


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """On what terms we ask: who we say we are, what we wait for, and what we take."""

    fetcher: str = "curl"
    kept: int = KEPT
    user_agent: str = "folder-crawler"
    timeout: float = 30.0
    connect_timeout: float = 10.0
    first_byte_timeout: float = 20.0
    max_size: int = 10 * 1024 * 1024
    content_types: tuple[str, ...] = ("text/html", "application/xhtml+xml")
    proxy: str | None = None
    connect_to: tuple[str, ...] = ()
    cookies: bool = True
    allow_private: bool = False

    def __post_init__(self) -> None:
        if self.fetcher not in ("curl", "requests"):
            raise ValueError(f"fetcher is {self.fetcher!r}, but it can only be curl or requests")
        if min(self.timeout, self.connect_timeout, self.first_byte_timeout, self.max_size) <= 0:
            raise ValueError("the limits of time and size must be greater than 0")
        check_header(f"User-Agent: {self.user_agent}")
        if self.proxy is not None:
            check_proxy(self.proxy, self.fetcher)
        if self.proxy is not None and self.connect_to:
            raise ValueError("proxy and connect_to exclude each other: the proxy decides where to connect")
        for rule in self.connect_to:
            check_connect_to(rule)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, settled in every detail before anything is sent."""

    url: str
    target: str
    scheme: str
    host: str
    port: int
    headers: tuple[str, ...]
    content_types: tuple[str, ...]
    limit: int
    cut: bool
    guarded: bool
    route: tuple[str, int] | None

    def fail(self, reason: str, detail: str = "", retry_after: float | None = None) -> Failure:
        """Return the failure of this request."""
        return Failure(self.url, reason, detail, retry_after)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: the verdict if the headers settled it, else the body before decoding."""

    status: int
    headers: Mapping[str, str]
    verdict: Fetched | Failure | None = None
    body: bytes = b""
    whole: bool = True


# Looks at status and headers; None means that the body is wanted.
Judge = Callable[[Ask, int, Mapping[str, str]], Fetched | Failure | None]


def check_connect_to(rule: str) -> None:
    """Raise ValueError unless the rule is HOST:PORT:ADDR:PORT as curl's --connect-to has it."""
    read_route(rule)


def read_route(rule: str) -> Route:
    """Return a connect_to rule in its four parts; ValueError if it is none."""
    match = _RULE.fullmatch(rule)
    if not match or any(int(port) > 65535 for port in match.group(2, 4) if port):
        raise ValueError(f"connect_to {rule!r} is not HOST:PORT:ADDR:PORT (each may be empty, IPv6 in brackets)")
    host, port, address, at = match.groups()
    return Route(
        host.strip("[]").lower() or None,
        int(port) if port else None,
        address.strip("[]") or None,
        int(at) if at else None,
    )


def check_header(line: str) -> None:
    """Raise ValueError unless the line is one `Name: value` that a caller may add to a request."""
    match = _HEADER.fullmatch(line)
    if not match:  # what it says may be a secret, so it is not repeated
        raise ValueError("a header must be one line of the form 'Name: value'")
    if match[1].lower() in _OURS:
        raise ValueError(f"header {match[1]!r} belongs to the connection and cannot be set")


def is_secret(line: str) -> bool:
    """Return whether a header may be meant for some eyes only."""
    return line.partition(":")[0].strip().lower() not in HARMLESS


def check_proxy(proxy: str, fetcher: str = "curl") -> None:
    """Raise ValueError unless the proxy is a URL with a port whose scheme this fetcher speaks."""
    schemes = ("http", "https", "socks4", "socks4a", "socks5", "socks5h") if fetcher == "curl" else ("http",)
    try:
        parts = urlsplit(proxy)
        good = parts.scheme in schemes and parts.hostname and parts.port and proxy.isprintable()
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"the proxy is not of the form {schemes[0]}://host:port ({', '.join(schemes)} with {fetcher})")


def fold(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name, repeated ones joined (_LINES by a new line), without control characters."""
    headers: dict[str, str] = {}
    for name, value in pairs:
        name = name.strip().lower()
        value = value.strip()
        if not value.isprintable():
            value = value.translate(_CONTROLS).strip()
        if name not in headers:
            headers[name] = value
        elif name not in _SINGLE:
            headers[name] += ("\n" if name in _LINES else ", ") + value
    return headers


def read_date(value: str) -> float | None:
    """Return a header's date as a time of the clock, or None if it is none."""
    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def length_of(headers: Mapping[str, str]) -> int | None:
    """Return the Content-Length, or None where there is none that counts."""
    value = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (value.isascii() and value.isdigit()):
        return None
    return int(value) if len(value) <= 18 else 10**18


def worth_draining(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether reading an unwanted body to its end is cheaper than a new connection."""
    length = length_of(headers)
    if length is not None:
        return length <= DRAIN_BYTES
    # Error pages and redirects are short even when they do not say so; an unwanted type is often a film.
    return "chunked" in headers.get("transfer-encoding", "") and (status in REDIRECTS or status >= 400)


def certificates() -> str:
    """Return the file of trusted certificates: SSL_CERT_FILE, else certifi's."""
    import certifi  # here: commands that only read settings load this module too

    return os.environ.get("SSL_CERT_FILE") or certifi.where()
