"""The HTTP client on libcurl's multi interface: any number of requests on one event loop, in one thread."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from time import monotonic
from typing import Any

import pycurl

from crawler.errors import NoDescriptors
from crawler.fetch.budget import Budget, Places
from crawler.fetch.certificates import DETAIL, CommonNames
from crawler.fetch.curl_errors import reason_for
from crawler.fetch.download import Download, Pump, Savers, failure_of, memory_limit
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
_EVENTS = {pycurl.POLL_IN: select.EPOLLIN, pycurl.POLL_OUT: select.EPOLLOUT}
_EVENTS[pycurl.POLL_INOUT] = select.EPOLLIN | select.EPOLLOUT
_HANG_UP = select.EPOLLHUP | select.EPOLLERR
_TOO_MANY = (errno.EMFILE, errno.ENFILE)
_STOP = 0  # returned by a callback: fewer bytes than given, which makes libcurl end the transfer


class CurlClient:
    """Sends requests with libcurl on the running event loop.

    Sockets belong to the multi handle, which keeps connections open for reuse; the handles of single requests are
    generic. libcurl tells which sockets to watch and when to call it next.
    """

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._budget = Budget()
        self._idle: list[_Transfer] = []
        self._in_flight: dict[pycurl.Curl, _Transfer] = {}
        self._sockets: dict[int, int] = {}  # those in the epoll, and the events that are wanted there
        self._unwatched: set[int] = set()  # those of them that libcurl keeps open without a request
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._stuck = StuckWatch()
        self._common_names = CommonNames()
        self._savers = Savers()
        # One epoll for all sockets, which the loop watches as one more: it is told once of all that are ready.
        self._epoll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._multi = self._new_multi()

    async def get(self, request: Request) -> Response | Failure:
        """Send one request; libcurl itself replaces a kept connection that the server has closed."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._epoll.fileno(), self._on_ready)
            self._stuck.start()
        transfer = (
            self._idle.pop()
            if self._idle
            else _Transfer(
                self._options, self._budget, self._stuck, self.forget_socket, self._common_names, self._savers
            )
        )
        transfer.start(request, self._loop.create_future())
        self._multi.add_handle(transfer.curl)
        self._in_flight[transfer.curl] = transfer
        try:
            code, message = await transfer.ended
            self._remove(transfer.curl)  # if it ended while it was resumed
        except BaseException:  # we were cancelled
            self._remove(transfer.curl)
            transfer.places.release()
            if transfer.pump:
                transfer.pump.discard()
                self._savers.release()
            raise
        pump, transfer.pump = transfer.pump, None
        try:
            result = transfer.result(code, message)
            self._idle.append(transfer)
            return await self._saved(pump, request, result) if pump else result
        except BaseException:
            self._discard(pump)
            raise
        finally:
            if pump:
                self._savers.release()

    async def _saved(self, pump: Pump, request: Request, result: Response | Failure) -> Response | Failure:
        """Return the result with the file that its body is in."""
        if pump.error is None and (isinstance(result, Failure) or result.outcome):
            if isinstance(result, Failure) and result.reason == "timeout":
                pump.download.check_store()
            self._discard(pump)
            return result
        try:
            saved = await pump.finish()
        except Exception as error:  # noqa: BLE001 - those that are no failure are raised
            self._discard(pump)
            return failure_of(request, error)
        assert isinstance(result, Response)
        return replace(result, saved=saved)

    @staticmethod
    def _discard(pump: Pump | None) -> None:
        if pump:
            pump.discard()

    def close_idle(self) -> None:
        """Close the connections that no request uses; pending requests go on."""
        if not self._in_flight:
            self._multi.close()
            self._multi = self._new_multi()

    def close(self) -> None:
        """Close all connections, also of requests in flight."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._epoll.fileno())
        if self._timer:
            self._timer.cancel()
        for curl in list(self._in_flight):
            self._remove(curl)
        self._multi.close()
        for transfer in self._idle:
            transfer.curl.close()
        self._idle.clear()
        self._epoll.close()
        self._stuck.close()
        self._savers.close()

    def _new_multi(self) -> pycurl.CurlMulti:
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAXCONNECTS, self._options.concurrency + self._options.kept)
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        return multi

    def _on_socket(self, what: int, number: int, _multi: object, _data: object) -> None:
        """Watch a socket, or no longer, as libcurl says.

        One that is no longer watched stays in the epoll, because most connections soon have another request; the
        kernel removes those that are closed, and `forget_socket` tells when their number is used again.
        """
        if what == pycurl.POLL_REMOVE:
            self._unwatched.add(number)
            return
        self._unwatched.discard(number)
        wanted, has = _EVENTS[what], self._sockets.get(number)
        if has == wanted:
            return
        self._sockets[number] = wanted
        try:
            if has is None:
                self._epoll.register(number, wanted)
            else:
                self._epoll.modify(number, wanted)
        except FileNotFoundError:
            self._epoll.register(number, wanted)
        except FileExistsError:
            self._epoll.modify(number, wanted)

    def forget_socket(self, number: int) -> None:
        """Note that a number belongs to a new socket, which is not in the epoll yet."""
        self._sockets.pop(number, None)
        self._unwatched.discard(number)

    def _on_timer(self, milliseconds: int) -> None:
        """Call libcurl again after this time, not at once: it must not be called from its own callback."""
        if self._timer:
            self._timer.cancel()
        if milliseconds < 0 or self._loop is None:
            self._timer = None
        elif milliseconds == 0:
            self._timer = self._loop.call_soon(self._on_timeout)
        else:
            self._timer = self._loop.call_later(milliseconds / 1000, self._on_timeout)

    def _on_timeout(self) -> None:
        self._timer = None
        self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_ready(self) -> None:
        for number, events in self._epoll.poll(0):
            if number in self._unwatched:  # the server has closed a kept connection, or sends what nobody wants
                self.forget_socket(number)
                with suppress(OSError):  # libcurl has closed it since
                    self._epoll.unregister(number)
                continue
            mask = pycurl.CSELECT_IN if events & (select.EPOLLIN | _HANG_UP) else 0
            mask |= pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0
            mask |= pycurl.CSELECT_ERR if events & select.EPOLLERR else 0
            self._stuck.enter(number)
            self._multi.socket_action(number, mask)
            self._stuck.leave()
        self._collect()

    def _collect(self) -> None:
        """Hand the requests that have ended back to who waits for them."""
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for curl in good:
                self._end(curl, 0, "")
            for curl, code, message in bad:
                self._end(curl, code, message)

    def _end(self, curl: pycurl.Curl, code: int, message: str) -> None:
        ended = self._in_flight[curl].ended
        self._remove(curl)
        if not ended.done():
            ended.set_result((code, message))

    def _remove(self, curl: pycurl.Curl) -> None:
        if self._in_flight.pop(curl, None):
            self._multi.remove_handle(curl)


class _Transfer:
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
            return Response(self._status, self._headers, None, body, code == 0, self.places.release, self._address())
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
            self.places.release,
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
