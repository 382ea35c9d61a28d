"""Fetch options, a request and its response, and what their headers mean; shared by both HTTP clients."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import time
from typing import NamedTuple
from urllib.parse import urlsplit

from crawler.web import kinds
from crawler.web.page import REDIRECTS, Failure, Fetched, Place, Saved, type_of

MAX_HEADER_LINE = 64 * 1024
MAX_HEADERS = 300 * 1024
MAX_CODINGS = 2
# Each gzip member costs a copy of what follows it, so the time would grow with the square of their number.
MAX_MEMBERS = 32
MAX_RETRY_AFTER = 86_400.0
# An unwanted body is read up to these limits: cheaper for both sides than a new connection.
DRAIN_BYTES = 16 * 1024
DRAIN_SECONDS = 1.0
# Connections kept open between requests; beyond that the longest idle one is closed. Each takes 0.2 MB; a new one takes
# a round trip or three, and as much work as half a page.
KEPT = 256
GZIP, ZLIB = 31, 15
# No brotli: libcurl's decoder does not report a truncated body, and servers with brotli have gzip too.
CODINGS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": ZLIB}

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*[!-~\x80-\xff])", re.ASCII)
# Not those above 127: they are bytes of UTF-8 in a header that was read as Latin-1.
_CONTROLS = dict.fromkeys([*range(32), 127])
# Headers of the connection or the host: a caller's own would change where or how the request is sent.
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "expect", "upgrade", "te"})
# Only the first of these counts; joining several would mean nothing.
_SINGLE = frozenset({"location", "content-type", "content-length", "retry-after", "date"})
# Joined by new lines: a comma can be part of their values.
_LINES = frozenset({"set-cookie", "x-robots-tag"})
# Headers without secrets, sent to every host.
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
    """The settings of requests: user agent, timeouts, and what is accepted."""

    fetcher: str = "curl"
    concurrency: int = 16  # requests in flight at most
    kept: int = KEPT  # connections kept open beside those
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
    allow_metadata: bool = False

    def __post_init__(self) -> None:
        if self.fetcher not in ("curl", "requests"):
            raise ValueError(f"fetcher is {self.fetcher!r}, but must be curl or requests")
        if min(self.timeout, self.connect_timeout, self.first_byte_timeout, self.max_size) <= 0:
            raise ValueError("timeouts and max_size must be greater than 0")
        check_header(f"User-Agent: {self.user_agent}")
        if self.proxy is not None:
            check_proxy(self.proxy, self.fetcher)
        if self.proxy is not None and self.connect_to:
            raise ValueError("proxy and connect_to cannot be used together: the proxy decides where to connect")
        for rule in self.connect_to:
            check_connect_to(rule)


@dataclass(slots=True)  # not frozen: one is made for each page, and that takes three times as long
class Request:
    """One request, complete before anything is sent."""

    url: str
    target: str
    scheme: str
    host: str
    port: int
    headers: tuple[str, ...]
    content_types: tuple[str, ...]
    limit: int
    cut: bool
    reach: int  # the most private addresses that it may connect to: see `web.addresses`
    route: tuple[str, int] | None  # where to connect to instead of the host's own addresses
    timeouts: tuple[float, float]  # seconds to connect, and until the first byte
    place: Callable[[], Place] | None = None  # makes the file for a large body; None: all bodies stay in memory
    addresses: tuple[str, ...] = ()  # of that name, in the order to try them; empty for an address or behind a proxy
    archived: bool = False  # its response is wanted as it came, whatever its outcome: see `exchange`

    @property
    def is_conditional(self) -> bool:
        """Whether the server may answer that nothing has changed."""
        return any(line.lower().startswith(("if-none-match:", "if-modified-since:")) for line in self.headers)

    def fail(self, reason: str, detail: str = "", retry_after: float | None = None) -> Failure:
        """Return the failure of this request."""
        return Failure(self.url, reason, detail, retry_after)


@dataclass(slots=True)  # not frozen, likewise
class Response:
    """A response: the outcome if the headers decided it, else the body before decoding."""

    status: int
    headers: Mapping[str, str]
    outcome: Fetched | Failure | None = None
    body: bytes = b""
    whole: bool = True
    release: Callable[[], None] | None = None  # to be called when the body is gone, if it has places: see `budget`
    address: str = ""  # that it came from
    head: tuple[bytes, ...] = ()  # status line and header lines as they came, of a request that is archived
    truncated: str = ""  # why the body is not whole, likewise
    saved: Saved | None = None  # in place of the body, decoded


def check_connect_to(rule: str) -> None:
    """Raise ValueError unless the rule is HOST:PORT:ADDR:PORT as curl's --connect-to has it."""
    read_route(rule)


def read_route(rule: str) -> Route:
    """Return the four parts of a connect_to rule; ValueError if it is not one."""
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
    if not match:  # the line may hold a secret, so the error does not quote it
        raise ValueError("a header must be one line of the form 'Name: value'")
    if match[1].lower() in _OURS:
        raise ValueError(f"header {match[1]!r} belongs to the connection and cannot be set")


def is_secret(line: str) -> bool:
    """Tell whether a header may hold a secret."""
    return line.partition(":")[0].strip().lower() not in HARMLESS


def check_proxy(proxy: str, fetcher: str = "curl") -> None:
    """Raise ValueError unless the proxy is a URL with a port and a scheme that this fetcher supports."""
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
    """Return a header's date as seconds since 1970, or None if it is not a date."""
    from email.utils import parsedate_to_datetime  # here: few responses need it, and it loads slowly

    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def length_of(headers: Mapping[str, str]) -> int | None:
    """Return the Content-Length, or None if it is missing, invalid or overridden by Transfer-Encoding."""
    value = headers.get("content-length", "")
    if "transfer-encoding" in headers or not (value.isascii() and value.isdigit()):
        return None
    return int(value) if len(value) <= 18 else 10**18


def check_headers(request: Request, status: int, headers: Mapping[str, str]) -> Fetched | Failure | None:
    """Return the outcome if status and headers alone decide it, or None if the body is wanted."""
    if not 100 <= status <= 999:
        return request.fail("bad-answer", f"status {status}")
    if status in REDIRECTS:
        has_target = bool(headers.get("location"))
        return Fetched(request.url, status, headers) if has_target else request.fail("bad-redirect", "no Location")
    if status == 304 and request.is_conditional:
        return Fetched(request.url, status, headers)
    if not 200 <= status < 300:
        return request.fail(f"http-{status}", "", _retry_after(headers))
    kind = type_of(headers)
    if kind and not kinds.admits(request.content_types, kind):
        return request.fail("wrong-type", kind)
    codings = codings_of(headers)
    if len(codings) > MAX_CODINGS or not CODINGS.keys() >= set(codings):
        return request.fail("bad-coding", headers.get("content-encoding", ""))
    if headers.get("transfer-encoding", "chunked").lower() not in ("chunked", "identity"):
        return request.fail("bad-coding", headers["transfer-encoding"])
    length = length_of(headers)
    if length is None and "content-length" in headers and "transfer-encoding" not in headers:
        return request.fail("bad-answer", f"Content-Length {headers['content-length']}")
    if length is not None and length > request.limit and not request.cut:
        return request.fail("too-big", f"Content-Length {length}")
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a Retry-After header; a date is relative to the response's own Date."""
    value = headers.get("retry-after")
    if not value:  # a date is read by a module that loads slowly
        return None
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), MAX_RETRY_AFTER)
    until = read_date(value)
    if until is None:
        return None
    now = read_date(headers.get("date", ""))
    return min(max(until - (time() if now is None else now), 0.0), MAX_RETRY_AFTER)


def codings_of(headers: Mapping[str, str]) -> list[str]:
    """Return the names in Content-Encoding, in lower case, without `identity`.

    A file that is gzip itself is taken as it is, like browsers do: many servers name its own compression twice.
    """
    said = headers.get("content-encoding")
    if not said or type_of(headers) in ("application/gzip", "application/x-gzip"):
        return []
    names = (name.strip().lower() for name in said.split(","))
    return [name for name in names if name not in ("", "identity")]


def worth_draining(status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether reading an unwanted body to its end is cheaper than a new connection."""
    length = length_of(headers)
    if length is not None:
        return length <= DRAIN_BYTES
    # Error pages and redirects are short even without a length; an unwanted type is often a video.
    return "chunked" in headers.get("transfer-encoding", "") and (status in REDIRECTS or status >= 400)


def wants_body(request: Request, status: int, headers: Mapping[str, str]) -> bool:
    """Tell whether to read a body although the headers have decided the outcome: to its end, if it is archived."""
    return worth_draining(status, headers) or (request.archived and not 200 <= status < 300)


def certificates() -> str:
    """Return the file of trusted certificates: SSL_CERT_FILE, else certifi's."""
    import certifi  # here: commands that only read settings load this module too

    return os.environ.get("SSL_CERT_FILE") or certifi.where()
