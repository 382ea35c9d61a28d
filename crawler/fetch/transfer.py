"""One request on a handle of libcurl: what is sent, what comes back, and when enough has come."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import socket
from collections.abc import Callable
from io import BytesIO
from time import monotonic
from typing import Any

import pycurl

from crawler.errors import NoDescriptors
from crawler.fetch.budget import Budget, Places
from crawler.fetch.certificates import DETAIL, CommonNames
from crawler.fetch.curl_errors import reason_for
from crawler.fetch.download import Download, Pump, Savers, memory_limit
from crawler.fetch.exchange import truncated_by
from crawler.fetch.heads import final_head, pairs, raw_head
from crawler.fetch.request import (
    DRAIN_BYTES,
    DRAIN_SECONDS,
    MAX_HEADER_LINE,
    FetchOptions,
    Request,
    Response,
    certificates,
    check_headers,
    fold,
    wants_body,
)
from crawler.fetch.stuck import StuckWatch
from crawler.web.addresses import METADATA, reach_of
from crawler.web.page import Failure, Fetched

_SUPPRESS_CONNECT_HEADERS = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl has no name for
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
# That libcurl keeps addresses. Not longer: each request brings its own, and libcurl walks over all with each. Not less:
# if a kept connection is closed instead of answering, libcurl connects once more, and has no others for that.
_CACHE_SECONDS = 10
_STOP = 0  # returned by a callback: fewer bytes than given, which makes libcurl end the transfer


class Transfer:
    """A handle of libcurl and the request that it carries now."""

    ended: asyncio.Future[tuple[int, str]]

    def __init__(
        self,
        options: FetchOptions,
        budget: Budget,
        stuck: StuckWatch,
        is_new: Callable[[int], None],
        common_names: CommonNames,
        savers: Savers,
    ) -> None:
        """`is_new` is told the number of each new socket."""
        self.curl = pycurl.Curl()
        self._savers = savers
        self.pump: Pump | None = None  # that saves the body
        self._budget, self._stuck, self._is_new, self._common_names = budget, stuck, is_new, common_names
        self._sent: tuple[str, ...] = ()
        self._route: tuple[str, int] | None = None
        self._timeouts = (0.0, 0.0)
        self._is_resolved = False
        self._set_up(options)

    def _set_up(self, options: FetchOptions) -> None:
        values: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
            # The body is decoded by us: libcurl accepts a truncated gzip body.
            pycurl.HTTP_CONTENT_DECODING: 0,
            pycurl.PATH_AS_IS: 1,
            pycurl.BUFFERSIZE: 128 << 10,  # most pages in one piece
            pycurl.TIMEOUT_MS: math.ceil(options.timeout * 1000),
            pycurl.LOW_SPEED_LIMIT: 1,
            pycurl.DNS_CACHE_TIMEOUT: _CACHE_SECONDS,
            pycurl.PROXY: options.proxy or "",  # empty, not unset: libcurl would take one from the environment
            pycurl.NOPROXY: "",
            _SUPPRESS_CONNECT_HEADERS: 1,
            pycurl.OPENSOCKETFUNCTION: self._open,
            pycurl.SOCKOPTFUNCTION: self._on_socket,
            pycurl.WRITEFUNCTION: self._on_body,
            pycurl.CAINFO: certificates(),
            pycurl.OPT_CERTINFO: 1,
            pycurl.PREREQFUNCTION: self._on_connected,
        }
        for option, value in values.items():
            self.curl.setopt(option, value)

    def start(self, request: Request, ended: asyncio.Future[tuple[int, str]]) -> None:
        """Make the handle carry a request."""
        self.request, self.ended = request, ended
        self._lines: list[bytes] = []
        self._status = 0
        self._headers: dict[str, str] = {}
        self._outcome: Fetched | Failure | None = None
        self._body = BytesIO()  # getvalue() makes no copy
        self._size, self._memory = 0, 1 << 62  # bytes, and how many of them may be in memory
        self.places = Places(self._budget)
        self._drain_until = 0.0
        self._private = ""
        self._socket = -1  # that was opened for it
        self._fault: Exception | None = None
        self._is_stopped = False  # by us: the body is not wanted
        curl = self.curl
        curl.setopt(pycurl.URL, request.target)
        curl.setopt(pycurl.HEADERFUNCTION, self._lines.append)  # a method in C; libcurl limits what it may be given
        if request.headers != self._sent:
            curl.setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in request.headers])
            self._sent = request.headers
        if request.timeouts != self._timeouts:
            connect, first_byte = self._timeouts = request.timeouts
            curl.setopt(pycurl.CONNECTTIMEOUT_MS, math.ceil(connect * 1000))
            # In whole seconds, and for silence at any time.
            curl.setopt(pycurl.LOW_SPEED_TIME, math.ceil(first_byte))
        self._set_place(request)

    def _set_place(self, request: Request) -> None:
        """Say where to connect to: along the route, or to the addresses that the resolver found."""
        if request.route != self._route:
            self._route = request.route
            self.curl.setopt(pycurl.CONNECT_TO, [_rule(*request.route)] if request.route else [])
        if request.addresses:
            host, port = request.route or (request.host, request.port)
            found = ",".join(f"[{address}]" if ":" in address else address for address in request.addresses)
            # With "+" the entry ages like any other in libcurl's cache.
            self.curl.setopt(pycurl.RESOLVE, [f"+{host}:{port}:{found}"])
            self._is_resolved = True
        elif self._is_resolved:
            self.curl.setopt(pycurl.RESOLVE, [])
            self._is_resolved = False

    def result(self, code: int, message: str) -> Response | Failure:
        """Return what came of the request, by libcurl's code and message; a body keeps its places."""
        body = self._body.getvalue()
        self._body = BytesIO()  # an idle handle must not keep a page in memory
        result = self._result(code, message, body)
        if self.request.archived:
            result = self._archived(result, code, message, body)
        if isinstance(result, Failure) or (result.outcome and not result.head):
            self.places.release()
        return result

    def _result(self, code: int, message: str, body: bytes) -> Response | Failure:
        if self._fault:
            self.places.release()
            raise self._fault
        if not self._status and self._lines and not self._outcome:
            self._read_head()
        request = self.request
        if self._outcome:
            return Response(self._status, self._headers, self._outcome, address=self._address())
        if self._size > request.limit and not request.cut:
            return request.fail("too-big", f"more than {request.limit} bytes")
        if self._socket in self._stuck.ended:
            return request.fail("timeout", "the server kept us busy")
        if request.reach < METADATA and self._socket < 0 and not self._private and self._is_private_connection():
            return request.fail("private-address", self.curl.getinfo(pycurl.PRIMARY_IP))
        if (code == 0 or self._size > request.limit) and self._status:
            return Response(self._status, self._headers, None, body, code == 0, self.places.for_body, self._address())
        if code == 0:
            return request.fail("cut-short", "the connection ended in the headers")
        if self._private and self._socket < 0:
            return request.fail("private-address", self._private)
        return request.fail(reason_for(code, message, bool(self._status)), f"{message} (curl {code})")

    def _archived(self, result: Response | Failure, code: int, message: str, body: bytes) -> Response | Failure:
        """Return a result with all that came; but nothing that came from an address out of reach."""
        if not self._status or (self.request.reach < METADATA and self._is_private_connection()):
            return result
        outcome = result if isinstance(result, Failure) else result.outcome
        if self._size > self.request.limit:
            truncated = truncated_by("too-big")
        elif self._is_stopped and isinstance(outcome, Failure):
            truncated = truncated_by(outcome.reason)
        else:
            truncated = truncated_by(reason_for(code, message, True)) if code else ""
        return Response(
            self._status,
            self._headers,
            outcome,
            body,
            code == 0,
            self.places.for_body,
            self._address(),
            tuple(raw_head(self._lines)),
            truncated,
        )

    def _is_private_connection(self) -> bool:
        """Tell whether a kept connection, which another request opened, leads to an address out of reach."""
        address = self._address()
        return bool(address) and reach_of(address) > self.request.reach

    def _address(self) -> str:
        return str(self.curl.getinfo(pycurl.PRIMARY_IP))

    def _read_head(self) -> None:
        """Read status and headers, from the first response that is not an interim one; trailers do not count."""
        status, lines = final_head(self._lines)
        longest = max(map(len, self._lines))
        if longest > MAX_HEADER_LINE:
            self._outcome = self.request.fail("too-big", f"a header line of {longest} bytes")
        elif status:
            self._status, self._headers = status, fold(pairs(lines))
            self._outcome = check_headers(self.request, status, self._headers)
            self._drain_until = monotonic() + DRAIN_SECONDS
            if self.request.place is not None:
                self._memory = memory_limit(self.request, self._headers)

    def _on_connected(self, *_addresses: object) -> int:
        """Check the certificate of a new connection, before anything is sent."""
        request, is_new = self.request, self._socket >= 0
        if request.scheme == "https" and is_new and self._common_names.rejects(self.curl, request.host, request.port):
            self._outcome = request.fail("tls", DETAIL)
            return int(pycurl.PREREQFUNC_ABORT)
        return int(pycurl.PREREQFUNC_OK)

    def _on_body(self, chunk: bytes) -> int | None:
        try:
            return self._take(chunk)
        except Exception as error:  # noqa: BLE001 - libcurl would print it; whoever waits for the request raises it
            self._fault = error
            return _STOP

    def _take(self, chunk: bytes) -> int | None:
        """Take a piece of the body; None for more, _STOP for no more, or pause until there is memory for it."""
        if not self._status and self._outcome is None:
            self._read_head()
            if self._outcome and not wants_body(self.request, self._status, self._headers):
                self._is_stopped = True
                return _STOP
        size = self._size + len(chunk)
        if self._outcome and not self.request.archived:
            self._size = size
            return None if size <= DRAIN_BYTES and monotonic() < self._drain_until else _STOP
        if size > self._memory:
            return self._save(chunk, size)
        if not self.places.grow(size, self._go_on):
            return int(pycurl.WRITEFUNC_PAUSE)  # libcurl gives us the same piece again
        self._size = size
        self._body.write(chunk)
        return None if size <= self.request.limit else _STOP

    def _save(self, chunk: bytes, size: int) -> int | None:
        """Take a piece of a body that is too large for memory: it goes to a file, at the speed of the store."""
        if self.pump is None:
            if not self._savers.take(self._go_on):
                return int(pycurl.WRITEFUNC_PAUSE)
            self.pump = Pump(Download(self.request, self._headers), self._savers, self._go_on)
            self.pump.push(self._body.getvalue())
            self._body = BytesIO()
            self.places.release()
        if self.pump.error is None and not self.pump.push(chunk):
            return int(pycurl.WRITEFUNC_PAUSE)
        self._size = size
        return None if self.pump.error is None and size <= self.request.limit else _STOP

    def _go_on(self) -> None:
        """Let libcurl go on with a body that waited for memory."""
        if not self.ended.done():
            asyncio.get_running_loop().call_soon(self._resume, self.ended)

    def _resume(self, ended: asyncio.Future[tuple[int, str]]) -> None:
        if ended.done():  # the handle may carry another request by now
            return
        try:
            self.curl.pause(pycurl.PAUSE_CONT)
        except pycurl.error as error:  # libcurl gave us the piece at once, and we wanted no more
            if not ended.done():
                code, message = error.args  # type: ignore[misc]
                ended.set_result((code, message))

    def _open(self, _purpose: int, address: Any) -> Any:
        """Make the socket for an address that libcurl is about to connect to, or reject it."""
        if self.request.reach < METADATA and reach_of(address.addr[0]) > self.request.reach:
            self._private = address.addr[0]
            return pycurl.SOCKET_BAD
        try:
            return _Socket(socket.socket(address.family, address.socktype, address.protocol).detach())
        except OSError as error:
            if error.errno in _TOO_MANY:
                self._fault = NoDescriptors(f"too many open files to send requests ({error.strerror})")
            return pycurl.SOCKET_BAD

    def _on_socket(self, number: int, _purpose: int) -> int:
        """Note the number of the socket: libcurl has a duplicate of the one that we made."""
        self._socket = number
        self._stuck.ended.discard(number)
        self._is_new(number)
        return int(pycurl.SOCKOPT_OK)


class _Socket:
    """A socket that libcurl duplicates; Python's own would warn that nobody has closed it, which takes time."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def __del__(self) -> None:
        os.close(self._number)


def _rule(address: str, port: int) -> str:
    """Return a rule of libcurl that leads any host to this address."""
    return f"::[{address}]:{port}" if ":" in address else f"::{address}:{port}"
