"""One request with all its limits and guards: a Page or a Failure, whatever the server does."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from time import time
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from crawler.fetch.cookies import Cookies
from crawler.fetch.request import (
    Answer,
    Ask,
    FetchOptions,
    Judge,
    Route,
    check_connect_to,
    check_header,
    check_proxy,
    length_of,
    read_date,
    read_route,
)
from crawler.web import reasons, urls
from crawler.web.addresses import BAD_PORTS, DEFAULT_PORTS, names_private
from crawler.web.page import REDIRECTS, Failure, Fetched

__all__ = ["Fetcher", "check_connect_to", "check_header", "check_proxy", "get"]

DAY = 86_400.0
MAX_CODINGS = 2
# Each member costs a copy of what follows it, so very many would take time with the square of their number.
MAX_MEMBERS = 32
_GZIP, _ZLIB = 31, 15
# No brotli: libcurl's decoder does not say when a body was cut off, and who has brotli has gzip too.
_CODINGS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}
_ACCEPT = ("Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Accept-Encoding: gzip, deflate")
_UNSENDABLE = re.compile(r"[^!-~]")


class _Asker(Protocol):
    """What the two fetchers have in common."""

    def get(self, ask: Ask, judge: Judge) -> Answer | Failure: ...
    def let_go(self) -> None: ...
    def close(self) -> None: ...


class _CutShort(Exception):
    """A compressed body that stops before its end."""


class Fetcher:
    """Asks on the same terms again and again, from any number of threads, over connections it keeps."""

    def __init__(self, terms: FetchOptions) -> None:
        self.terms = terms
        self._routes = tuple(read_route(rule) for rule in terms.connect_to)
        self._headers = (f"User-Agent: {terms.user_agent}", *_ACCEPT)
        self._asker = _asker(terms)
        self._cookies = Cookies() if terms.cookies else None

    def get(
        self,
        url: str,
        *,
        headers: tuple[str, ...] = (),
        private: bool = False,
        content_types: tuple[str, ...] | None = None,
        cut: int | None = None,
    ) -> Fetched | Failure:
        """Ask once and follow nothing; `content_types` () takes any type, `cut` keeps that much of a longer body."""
        for line in headers:
            check_header(line)
        ask = self._ask(
            url, headers, private, self.terms.content_types if content_types is None else content_types, cut
        )
        if isinstance(ask, Failure):
            return ask
        answer = self._asker.get(ask, judge)
        if isinstance(answer, Failure):
            return answer
        if self._cookies and "set-cookie" in answer.headers:
            self._cookies.keep(urlsplit(ask.target), answer.headers["set-cookie"])
        return answer.verdict or _page(ask, answer)

    def let_go(self) -> None:
        """Close the connections that are kept open between requests; new ones are kept again."""
        self._asker.let_go()

    def close(self) -> None:
        """Close the connections that are kept open, for good."""
        self._asker.close()

    def _ask(
        self, url: str, headers: tuple[str, ...], private: bool, content_types: tuple[str, ...], cut: int | None
    ) -> Ask | Failure:
        parts = _split(url)
        if parts is None:
            return Failure(url, "bad-url")
        host, port = parts.hostname or "", parts.port or DEFAULT_PORTS[parts.scheme]
        route = _route(self._routes, host, port)
        if route is None and port in BAD_PORTS:
            return Failure(url, "bad-port", str(port))
        is_guarded = not (route or private or self.terms.allow_private)
        # Where a proxy connects to is not ours to see, but what it would be told is.
        if is_guarded and self.terms.proxy and names_private(host):
            return Failure(url, "private-address", host)
        target = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path or '/'}"
        return Ask(
            url=url,
            target=f"{target}?{parts.query}" if parts.query else target,
            scheme=parts.scheme,
            host=host,
            port=port,
            headers=(*self._headers, *headers, *self._cookies_for(parts, headers)),
            content_types=content_types,
            limit=self.terms.max_size if cut is None else cut,
            cut=cut is not None,
            guarded=is_guarded and not self.terms.proxy,
            route=route,
        )

    def _cookies_for(self, parts: SplitResult, headers: tuple[str, ...]) -> tuple[str, ...]:
        """The host's own cookies, unless the caller has brought some for it."""
        if not self._cookies or any(line.lower().startswith("cookie:") for line in headers):
            return ()
        return self._cookies.header(parts)


def get(url: str, **terms: Any) -> Fetched | Failure:
    """Ask once, outside any crawl; the fields of Terms by name."""
    fetcher = Fetcher(FetchOptions(**terms))
    try:
        return fetcher.get(urls.normalize(url) or url)
    finally:
        fetcher.close()


def judge(ask: Ask, status: int, headers: Mapping[str, str]) -> Fetched | Failure | None:
    """Return what the headers alone settle, or None if the body is wanted."""
    if not 100 <= status <= 999:
        return ask.fail("bad-answer", f"status {status}")
    if status in REDIRECTS:
        return Fetched(ask.url, status, headers) if headers.get("location") else ask.fail("bad-redirect", "no Location")
    if not 200 <= status < 300:
        return ask.fail(reasons.for_status(status), "", _retry_after(headers))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and ask.content_types and kind not in ask.content_types:
        return ask.fail("wrong-type", kind)
    codings = _codings(headers)
    if len(codings) > MAX_CODINGS or not all(coding in _CODINGS for coding in codings):
        return ask.fail("bad-coding", headers.get("content-encoding", ""))
    if headers.get("transfer-encoding", "chunked").lower() not in ("chunked", "identity"):
        return ask.fail("bad-coding", headers["transfer-encoding"])
    length = length_of(headers)
    if length is None and "content-length" in headers and "transfer-encoding" not in headers:
        return ask.fail("bad-answer", f"Content-Length {headers['content-length']}")
    if length is not None and length > ask.limit and not ask.cut:
        return ask.fail("too-big", f"Content-Length {length}")
    return None


def _asker(terms: FetchOptions) -> _Asker:
    # Imported here, so that a worker does not load the one that it will not use.
    if terms.fetcher == "curl":
        from crawler.fetch.with_curl import CurlFetcher

        return CurlFetcher(terms)
    from crawler.fetch.with_requests import RequestsFetcher

    return RequestsFetcher(terms)


def _split(url: str) -> SplitResult | None:
    """Return the parts of an http(s) URL; None if it cannot stand in a request as it is."""
    if _UNSENDABLE.search(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in DEFAULT_PORTS and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def _route(routes: tuple[Route, ...], host: str, port: int) -> tuple[str, int] | None:
    """Return where the first connect_to rule that matches leads."""
    for rule in routes:
        if rule.host in (None, host) and rule.port in (None, port):
            return rule.address or host, rule.at or port
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After asks for; its date counts from the answer's own Date."""
    value = headers.get("retry-after", "")
    if value.isascii() and value.isdigit():
        return min(float(value[:12]), DAY)
    until = read_date(value)
    if until is None:
        return None
    now = read_date(headers.get("date", ""))
    return min(max(until - (time() if now is None else now), 0.0), DAY)


def _codings(headers: Mapping[str, str]) -> list[str]:
    value = headers.get("content-encoding")
    if not value:
        return []
    names = (name.strip().lower() for name in value.split(","))
    return [name for name in names if name not in ("", "identity")]


def _page(ask: Ask, answer: Answer) -> Fetched | Failure:
    body, whole = answer.body, answer.whole
    try:
        for coding in reversed(_codings(answer.headers)):
            body = _inflate(body, _CODINGS[coding], ask.limit, whole)
            # What we cut off ourselves is not held against the next layer.
            whole = whole and len(body) <= ask.limit
    except (_CutShort, zlib.error) as error:
        return ask.fail("cut-short" if isinstance(error, _CutShort) else "bad-coding", str(error))
    if len(body) > ask.limit and not ask.cut:
        return ask.fail("too-big", f"more than {ask.limit} bytes after decoding")
    return Fetched(ask.url, answer.status, answer.headers, body[: ask.limit])


def _inflate(data: bytes, window: int, limit: int, whole: bool) -> bytes:
    """Return the decoded bytes, and never more than one beyond the limit."""
    if window == _ZLIB and not _has_zlib_header(data):
        window = -_ZLIB
    out = b""
    for _ in range(MAX_MEMBERS):
        member = zlib.decompressobj(window)
        out += member.decompress(data, limit + 1 - len(out))
        if len(out) > limit or not data:
            return out
        if not member.eof:
            if whole:
                raise _CutShort("the compressed body has no end")
            return out
        data = member.unused_data
        if window != _GZIP or not data.startswith(b"\x1f\x8b"):
            return out
    raise zlib.error(f"more than {MAX_MEMBERS} gzip members")


def _has_zlib_header(data: bytes) -> bool:
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
