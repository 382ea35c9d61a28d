"""One request with all its limits and guards: Fetched or a Failure, whatever the server does."""

from __future__ import annotations

import asyncio
import re
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Protocol
from urllib.parse import urlsplit

from crawler.fetch.budget import STEPS
from crawler.fetch.cookies import Cookies
from crawler.fetch.download import CutShort, Download, Inflater, failure_of, memory_limit
from crawler.fetch.exchange import Exchange, exchange_of
from crawler.fetch.request import (
    CODINGS,
    FetchOptions,
    Request,
    Response,
    Route,
    check_header,
    codings_of,
    read_route,
)
from crawler.fetch.resolver import NoAddress, Resolver
from crawler.web import kinds
from crawler.web.addresses import BAD_PORTS, DEFAULT_PORTS, METADATA, PRIVATE, PUBLIC, reach_of, reach_of_host
from crawler.web.page import Failure, Fetched, Place, type_of

_ACCEPT = ("Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", "Accept-Encoding: gzip, deflate")
FIRST_CONTACT_SECONDS = 5.0  # half of a timeout is enough for a host of which nothing is known, but not less than this
MAX_ADDRESSES = 4  # of a host that are tried
MAX_USED = 4096  # hosts whose connections may be kept, and their addresses: more than there are connections
_UNSENDABLE = re.compile(r"[^!-~]")
# A name on a default port, and a path that `urlsplit` would only take apart and put together again.
_PLAIN = re.compile(r"(https?)://([a-z0-9][a-z0-9.-]*)(?=/)[!-\"$-\[\]-~]*").fullmatch


class _Client(Protocol):
    """What both HTTP clients can do."""

    async def get(self, request: Request) -> Response | Failure: ...
    def close_idle(self) -> None: ...
    def close(self) -> None: ...


class _Held:
    """What holds the places of a body: its page and its exchange each have a reference."""

    __slots__ = ("__weakref__",)


def _let_go(_held: _Held) -> None:
    """Hold it no longer: the caller has the last reference."""


def _on_loop(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    """Give places back on the loop: an exchange may end in a thread that writes it."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(release)


class Fetcher:
    """Sends requests with the same options on one event loop, over connections that it keeps open."""

    def __init__(self, options: FetchOptions, cookies: Cookies | None = None) -> None:
        self.options = options
        self._resolver = Resolver(options.connect_timeout)
        self._inflating = asyncio.Semaphore(STEPS[-1][1])
        self._routes = tuple(read_route(rule) for rule in options.connect_to)
        self._headers = (f"User-Agent: {options.user_agent}", *_ACCEPT)
        self._client = _client(options)
        self._cookies = (cookies or Cookies()) if options.cookies else None
        self._timeouts = options.connect_timeout, options.first_byte_timeout
        self._used: OrderedDict[tuple[str, int], str] = OrderedDict()  # the last address of a host and port
        self._first_timeouts = _shorter(options.connect_timeout), _shorter(options.first_byte_timeout)

    async def get(
        self,
        url: str,
        *,
        headers: tuple[str, ...] = (),
        private: bool = False,
        content_types: tuple[str, ...] | None = None,
        cut: int | None = None,
        first_contact: bool = False,
        admit: Callable[[tuple[str, ...]], object] = lambda addresses: None,
        keep: Callable[[Exchange], object] | None = None,
        place: Callable[[], Place] | None = None,
    ) -> Fetched | Failure:
        """Send one request and follow no redirect; `content_types` () accepts any, `cut` truncates a longer body.

        With `place`, which makes a new file, a large body is saved there as it comes; an error of that is raised. On
        `first_contact` with a host the time to connect and to the first byte is shorter. Before it is sent, `admit` is
        called with the addresses that it may go to, none behind a proxy; what it raises ends the request. `keep` is
        given the exchange as it came, whatever the outcome; then error pages are read whole.
        """
        for line in headers:
            check_header(line)
        types = self.options.content_types if content_types is None else content_types
        request = self._request(url, headers, private, types, cut, first_contact, place)
        if isinstance(request, Request) and not self.options.proxy:
            request = await self._resolved(request)
        if isinstance(request, Failure):
            return request
        admit(self._destinations(request))
        response = await self._client.get(replace(request, archived=True) if keep else request)
        if isinstance(response, Failure):
            return response
        if keep and response.head:
            response = self._kept(request, response, keep)
        self._note_used(request, response.address)
        if self._cookies and "set-cookie" in response.headers:
            self._cookies.keep(urlsplit(request.target), response.headers["set-cookie"])
        if response.outcome:
            return response.outcome
        page = await self._page(request, response)
        return page if isinstance(page, Failure) else await _if_wanted(request, page)

    def _kept(self, request: Request, response: Response, keep: Callable[[Exchange], object]) -> Response:
        """Let a response be kept; its body has its places until both the page and the exchange are gone."""
        held = _Held()
        if response.release:
            weakref.finalize(held, _on_loop, asyncio.get_running_loop(), response.release)
            response = replace(response, release=partial(_let_go, held))
        keep(exchange_of(request, response, self.options.proxy is not None, held))
        return response

    async def _page(self, request: Request, response: Response) -> Fetched | Failure:
        """Decode a body; few that become large are there at a time, and until they are read and gone."""
        if response.saved:
            return Fetched(request.url, response.status, response.headers, saved=response.saved)
        releases = [response.release] if response.release else []
        page = _page(request, response, min(request.limit, STEPS[0][0]))
        if page is None:
            await self._inflating.acquire()
            releases.append(self._inflating.release)
            page = _page(request, response, memory_limit(request, response.headers))
        if page is None and request.place is not None:
            page = await asyncio.to_thread(_save, request, response)
        for release in releases:
            if isinstance(page, Fetched):
                weakref.finalize(page, release)
            else:
                release()
        return page or request.fail("too-big", f"more than {request.limit} bytes after decoding")

    async def _resolved(self, request: Request) -> Request | Failure:
        """Return a request with the addresses of its host, or of the name in its route."""
        name, _ = request.route or (request.host, 0)
        if name.rpartition(".")[2].isdigit() or ":" in name:
            return request  # an address, in the only notation that is left in normalized URLs
        found = await self._resolver.addresses(name)
        if isinstance(found, NoAddress):
            return request.fail("dns", found.detail)
        allowed = tuple(address for address in found if reach_of(address) <= request.reach)[:MAX_ADDRESSES]
        if not allowed:
            return request.fail("private-address", found[0])
        request.addresses = allowed
        return request

    def _destinations(self, request: Request) -> tuple[str, ...]:
        """Return the addresses that a request may go to: what the name has now, and that of a kept connection."""
        if self.options.proxy:
            return ()
        used = self._used.get((request.host, request.port))
        now = request.addresses or ((request.route or (request.host, 0))[0].strip("[]"),)
        return now if used is None or used in now else (*now, used)

    def _note_used(self, request: Request, address: str) -> None:
        if address:
            place = request.host, request.port
            self._used[place] = address
            self._used.move_to_end(place)
            if len(self._used) > MAX_USED:
                self._used.popitem(last=False)

    def close_idle(self) -> None:
        """Close the connections that are kept open between requests; later requests open new ones."""
        self._client.close_idle()

    def close(self) -> None:
        """Close all connections; no requests after this."""
        self._client.close()
        self._resolver.close()

    def _request(
        self,
        url: str,
        headers: tuple[str, ...],
        private: bool,
        content_types: tuple[str, ...],
        cut: int | None,
        first_contact: bool,
        place: Callable[[], Place] | None,
    ) -> Request | Failure:
        found = _read(url)
        if found is None:
            return Failure(url, "bad-url")
        scheme, host, port, target = found
        rule = _rule_for(self._routes, host, port)
        route = (rule.address or host, rule.at or port) if rule else None
        if route is None and port in BAD_PORTS:
            return Failure(url, "bad-port", str(port))
        reach = self._reach(private, rule is not None and rule.address is not None)
        # The address that a proxy connects to is unknown here; the host name is not.
        if self.options.proxy and reach_of_host(host) > reach:
            return Failure(url, "private-address", host)
        return Request(
            url=url,
            target=target,
            scheme=scheme,
            host=host,
            port=port,
            headers=(*self._headers, *headers, *self._cookies_for(target, headers)),
            content_types=content_types,
            limit=self.options.max_size if cut is None else cut,
            cut=cut is not None,
            reach=METADATA if self.options.proxy else reach,
            route=route,
            timeouts=self._first_timeouts if first_contact else self._timeouts,
            place=place,
        )

    def _reach(self, private: bool, is_routed: bool) -> int:
        """Return which addresses a request may connect to; where `connect_to` leads is the operator's own choice."""
        if self.options.allow_metadata or is_routed:
            return METADATA
        return PRIVATE if private or self.options.allow_private else PUBLIC

    def _cookies_for(self, target: str, headers: tuple[str, ...]) -> tuple[str, ...]:
        """Return the Cookie line for a URL, unless the caller gives its own."""
        if not self._cookies or not self._cookies.has_any:
            return ()
        is_given = any(line.lower().startswith("cookie:") for line in headers)
        return () if is_given else self._cookies.header(urlsplit(target))


def _shorter(timeout: float) -> float:
    """Return the timeout for a first contact."""
    return min(timeout, max(timeout / 2, FIRST_CONTACT_SECONDS))


def _client(options: FetchOptions) -> _Client:
    # Imported here, so that a worker does not load the client that it will not use.
    if options.fetcher == "curl":
        from crawler.fetch.with_curl import CurlClient

        return CurlClient(options)
    from crawler.fetch.with_requests import RequestsClient

    return RequestsClient(options)


def _read(url: str) -> tuple[str, str, int, str] | None:
    """Return the scheme, host and port of an http(s) URL, and how it is sent; None if it cannot be sent as it is."""
    if (plain := _PLAIN(url)) and url[-1] != "?":  # nearly every one
        return plain[1], plain[2], DEFAULT_PORTS[plain[1]], url
    if _UNSENDABLE.search(url) or "\\" in url:
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme not in DEFAULT_PORTS or not parts.hostname or parts.port == 0:
            return None
        port = parts.port or DEFAULT_PORTS[parts.scheme]
    except ValueError:
        return None
    target = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path or '/'}"
    return parts.scheme, parts.hostname, port, f"{target}?{parts.query}" if parts.query else target


def _rule_for(routes: tuple[Route, ...], host: str, port: int) -> Route | None:
    """Return the first connect_to rule that matches."""
    return next((rule for rule in routes if rule.host in (None, host) and rule.port in (None, port)), None)


def _page(request: Request, response: Response, limit: int) -> Fetched | Failure | None:
    """Return the page of a response; None if its body is larger than the limit after decoding."""
    body, whole = response.body, response.whole
    codings = codings_of(response.headers)
    try:
        for coding in reversed(codings):
            body = _inflate(body, CODINGS[coding], limit, whole)
            # A body truncated by us is not an error in the next layer.
            whole = whole and len(body) <= limit
    except (CutShort, zlib.error) as error:
        return failure_of(request, error)
    if codings and len(body) > limit and not (request.cut and limit == request.limit):
        return None
    if len(body) > request.limit and not request.cut:
        return None
    return Fetched(request.url, response.status, response.headers, body[: request.limit])


def _inflate(data: bytes, window: int, limit: int, whole: bool) -> bytes:
    """Return the decoded bytes, a little more than the limit at most."""
    inflater, out = Inflater(window), BytesIO()
    for piece in inflater.feed(data):
        out.write(piece)
        if out.tell() > limit:
            return out.getvalue()
    if whole:
        inflater.check_end()
    return out.getvalue()


def _save(request: Request, response: Response) -> Fetched | Failure:
    """Save a body that is in memory, but larger than that allows after decoding; blocks."""
    download = Download(request, response.headers)
    try:
        download.feed(response.body)
        return Fetched(request.url, response.status, response.headers, saved=download.finish())
    except Exception as error:  # noqa: BLE001 - those that are no failure are raised
        download.discard()
        return failure_of(request, error)


async def _if_wanted(request: Request, page: Fetched) -> Fetched | Failure:
    """Return a page, unless it came without a type and its first bytes show one that is not wanted."""
    if type_of(page.headers) or not page.kind or kinds.admits(request.content_types, page.kind):
        return page
    if page.saved:
        await asyncio.to_thread(page.saved.place.discard)
    return request.fail("wrong-type", page.kind)
