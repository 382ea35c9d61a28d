"""The HTTP client on requests: its adapter and pools, on sockets that know the deadline of their request."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from threading import Semaphore
from time import monotonic

import requests
import urllib3
from urllib3.exceptions import IncompleteRead, ProxyError, SSLError

from crawler.fetch.budget import STEPS
from crawler.fetch.connections import Adapter, Stop, current
from crawler.fetch.deadlines import Deadlines
from crawler.fetch.download import MAX_FILES, CutShort, Download, TooBig, failure_of, memory_limit
from crawler.fetch.exchange import truncated_by
from crawler.fetch.request import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    FetchOptions,
    Request,
    Response,
    check_headers,
    fold,
    wants_body,
)
from crawler.web.addresses import METADATA, PRIVATE, PUBLIC
from crawler.web.page import Failure, Saved

_BLOCK = 64 * 1024
_FOREIGN = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)
# The first row that matches anything in an error's chain of causes gives the reason.
_REASONS: tuple[tuple[type[BaseException], str], ...] = (
    (TimeoutError, "timeout"),
    (requests.Timeout, "timeout"),
    (ProxyError, "connect"),
    # A server that hangs up during the handshake: which of these is raised depends on Python and its OpenSSL.
    (ssl.SSLEOFError, "connect"),
    (ssl.SSLZeroReturnError, "connect"),
    (ssl.SSLSyscallError, "connect"),
    (ConnectionError, "connect"),
    (SSLError, "tls"),
    (ssl.SSLError, "tls"),
    (IncompleteRead, "cut-short"),
    (http.client.IncompleteRead, "cut-short"),
    (http.client.LineTooLong, "too-big"),
    (http.client.HTTPException, "bad-answer"),
    (ValueError, "bad-answer"),
)


class RequestsClient:
    """Sends requests with the requests library, each in a thread of a pool."""

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._pool = ThreadPoolExecutor(options.concurrency, thread_name_prefix="request")
        self._large = [(size, Semaphore(places)) for size, places in STEPS]
        self._files = [(0, Semaphore(MAX_FILES))]
        self._deadlines = Deadlines(options.timeout)
        self._proxies = {"http": options.proxy, "https": options.proxy} if options.proxy else {}
        # By reach, so that a connection to a private address is never used by a request that may not make it.
        self._adapters = {reach: Adapter(options.kept, options.kept) for reach in (PUBLIC, PRIVATE, METADATA)}

    async def get(self, request: Request) -> Response | Failure:
        """Send one request."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._get, request)

    def _get(self, request: Request) -> Response | Failure:
        """Send one request; a kept connection that the server has closed is replaced by a new one."""
        current.start(request, self._options)
        with self._deadlines.watch(current.flight):
            for _ in range(self._options.kept + 1):
                result = self._send(request)
                # An old connection that broke before the first byte says nothing about the page.
                if not isinstance(result, Failure) or result.reason != "connect" or current.fresh or current.got:
                    break
                current.reset()
        return result

    def close_idle(self) -> None:
        """Close every idle connection; later requests open new ones."""
        for adapter in self._adapters.values():
            adapter.close()

    def close(self) -> None:
        """Close all connections; no requests after this."""
        self.close_idle()
        self._deadlines.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, request: Request) -> Response | Failure:
        try:
            response = self._adapters[request.reach].send(
                _prepare(request), stream=True, timeout=current.left(), proxies=self._proxies
            )
            try:
                return self._read(request, response.raw)
            finally:
                response.raw.close()
        except Stop as stop:
            return request.fail(*stop.args)
        except _FOREIGN as error:
            return _failure(request, error)

    def _read(self, request: Request, raw: urllib3.HTTPResponse) -> Response | Failure:
        current.counting, current.answered = False, True
        headers, address = fold(raw.headers.iteritems()), _peer(raw)
        outcome = check_headers(request, raw.status, headers)
        if outcome and not request.archived:
            if wants_body(request, raw.status, headers):
                _drain(raw)
            return Response(raw.status, headers, outcome, address=address)
        if request.archived:
            return self._read_archived(request, raw, Response(raw.status, headers, outcome, address=address))
        places = _Places(self._large)
        memory = memory_limit(request, headers)
        try:
            body, whole = _body(raw, memory, places)
            if not whole and memory < request.limit:
                places.release()
                return Response(raw.status, headers, address=address, saved=self._save(request, headers, raw, body))
        except (TooBig, CutShort, zlib.error) as error:
            return failure_of(request, error)
        except BaseException:
            places.release()
            raise
        if not whole and not request.cut:
            places.release()
            return request.fail("too-big", f"more than {request.limit} bytes")
        return Response(raw.status, headers, None, body, whole, places.release, address)

    def _read_archived(self, request: Request, raw: urllib3.HTTPResponse, response: Response) -> Response:
        """Return a response with all of its body that came, also if that ends too early or is not wanted."""
        places, body = _Places(self._large), BytesIO()
        outcome, reason = response.outcome, ""
        try:
            if outcome and not wants_body(request, raw.status, response.headers):
                reason = outcome.reason if isinstance(outcome, Failure) else "unwanted"
            elif not _read_into(body, raw, request.limit, places):
                reason = "too-big"
                if not request.cut and not outcome:
                    outcome = request.fail("too-big", f"more than {request.limit} bytes")
        except Stop as stop:
            failure = request.fail(*stop.args)
            outcome, reason = outcome or failure, failure.reason
        except _FOREIGN as error:
            failure = _failure(request, error)
            outcome, reason = outcome or failure, failure.reason
        except BaseException:
            places.release()
            raise
        return replace(
            response,
            outcome=outcome,
            body=body.getvalue(),
            whole=not reason,
            release=places.release,
            head=_head(raw),
            truncated=truncated_by(reason) if reason else "",
        )

    def _save(self, request: Request, headers: dict[str, str], raw: urllib3.HTTPResponse, body: bytes) -> Saved:
        """Save a body that is too large for memory, of which this is the beginning."""
        place, download = _Places(self._files), Download(request, headers)
        place.grow(1)
        size = 0
        try:
            while body:
                size += len(body)
                if size > request.limit:
                    raise TooBig(f"more than {request.limit} bytes")
                download.feed(body)
                body = raw.read(_BLOCK, decode_content=False)
            raw.release_conn()
            return download.finish()
        except BaseException:
            download.discard()
            download.check_store()
            raise
        finally:
            place.release()


class _Places:
    """The places for large bodies that one response has, as in `budget`, for threads."""

    def __init__(self, steps: list[tuple[int, Semaphore]]) -> None:
        self._steps, self._has = steps, 0

    def grow(self, size: int) -> None:
        """Wait for a place for a body of this size."""
        while self._has < len(self._steps) and size > self._steps[self._has][0]:
            if not self._steps[self._has][1].acquire(timeout=current.left()):
                raise Stop("timeout", "too many large bodies at a time")
            self._has += 1

    def release(self) -> None:
        """Give all places back."""
        for _, free in self._steps[: self._has]:
            free.release()
        self._has = 0


def _prepare(request: Request) -> requests.PreparedRequest:
    prepared = requests.PreparedRequest()
    prepared.method, prepared.body = "GET", None
    # Set, not prepared: prepare_url would change it.
    prepared.url = request.target
    prepared.headers = requests.structures.CaseInsensitiveDict(
        (name, value.strip()) for name, _, value in (line.partition(":") for line in request.headers)
    )
    return prepared


def _peer(raw: urllib3.HTTPResponse) -> str:
    """Return the address that a response comes from; an empty string if its connection is closed already."""
    sock = getattr(raw.connection, "sock", None)
    try:
        return str(sock.getpeername()[0]) if sock else ""
    except OSError:
        return ""


def _head(raw: urllib3.HTTPResponse) -> tuple[bytes, ...]:
    """Return the head of a response as the library has read it: no longer with its folded lines and outer spaces."""
    first = f"HTTP/{raw.version // 10}.{raw.version % 10} {raw.status} {raw.reason or ''}"
    lines = [f"{name}: {value}" for name, value in raw.headers.iteritems()]
    return tuple(line.replace("\r", "").replace("\n", " ").encode("latin-1", "replace") for line in (first, *lines))


def _body(raw: urllib3.HTTPResponse, limit: int, places: _Places) -> tuple[bytes, bool]:
    """Return the body before decoding, and whether that is all of it."""
    body = BytesIO()  # getvalue() makes no copy
    whole = _read_into(body, raw, limit, places)
    return body.getvalue(), whole


def _read_into(body: BytesIO, raw: urllib3.HTTPResponse, limit: int, places: _Places) -> bool:
    """Read a body before decoding; False if there is more than the limit."""
    while body.tell() <= limit:
        part = raw.read(min(_BLOCK, limit + 1 - body.tell()), decode_content=False)
        if not part:
            raw.release_conn()
            return True
        body.write(part)
        places.grow(body.tell())
    return False


def _drain(raw: urllib3.HTTPResponse) -> None:
    current.until = min(current.end, monotonic() + DRAIN_SECONDS)
    try:
        _body(raw, DRAIN_BYTES, _Places([]))
    except (Stop, *_FOREIGN):
        return  # the headers have decided the outcome, and the connection is closed anyway


def _failure(request: Request, error: BaseException) -> Failure:
    if current.flight.ended:
        return request.fail("timeout", "the request took longer than its timeout")
    causes = list(_causes(error))
    rows = ((reason, cause) for kind, reason in _REASONS for cause in causes if isinstance(cause, kind))
    reason, found = next(rows, ("connect", causes[-1]))
    if reason == "connect" and current.answered:
        reason = "cut-short"
    return request.fail(reason, f"{type(found).__name__}: {found}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it wraps: both libraries hide the real one in arguments."""
    yield error
    inside = [getattr(error, "reason", None), error.__cause__, *error.args]
    for cause in inside:
        if isinstance(cause, BaseException):
            yield from _causes(cause)
