"""Connections for requests that know the deadline of their request, connect where its guard allows, and are strict."""

from __future__ import annotations

import errno
import http.client
import re
import socket
import ssl
from threading import local
from time import monotonic
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context

from crawler.errors import NoDescriptors
from crawler.fetch.deadlines import Flight
from crawler.fetch.request import MAX_HEADERS, FetchOptions, Request, certificates
from crawler.web.addresses import METADATA, reach_of


class Stop(Exception):
    """Ends a request from our side: the reason, then the detail."""


class Watch(local):
    """This thread's current request: its deadlines, and what has been received so far."""

    request: Request
    flight: Flight
    end: float
    connect_by: float
    first_by: float
    until: float
    fresh: bool
    counting: bool
    got: int
    ended: bool
    answered: bool

    def start(self, request: Request, options: FetchOptions) -> None:
        """Begin with a request."""
        now = monotonic()
        self.request, self.flight = request, Flight()
        self.end = now + options.timeout
        self.connect_by = min(self.end, now + request.timeouts[0])
        self.first_by = self.until = min(self.end, now + request.timeouts[1])
        self.reset()

    def reset(self) -> None:
        """Begin with the same request on another connection."""
        self.counting, self.got = True, 0
        self.fresh = self.ended = self.answered = False

    def left(self) -> float:
        """Return the seconds that may pass until something comes; Stop if there are none."""
        seconds = self.until - monotonic()
        if seconds <= 0:
            raise Stop("timeout", "the request took longer than its timeout")
        return seconds

    def count(self, size: int) -> None:
        """Count bytes of the headers; 0 bytes mean the end of the connection."""
        if not self.counting:
            return
        self.got += size
        self.ended = not size
        self.until = self.end
        if self.got > MAX_HEADERS:
            raise Stop("too-big", f"more than {MAX_HEADERS} bytes of headers")


current = Watch()


class _Timed:
    """A socket whose reads wait no longer than the request has left."""

    def recv_into(self, *args: Any) -> int:
        self.settimeout(current.left())  # type: ignore[attr-defined]
        current.flight.hold(self.fileno())  # type: ignore[attr-defined]
        size: int = super().recv_into(*args)  # type: ignore[misc]
        current.count(size)
        return size


class _Socket(_Timed, socket.socket):
    pass


class _TLSSocket(_Timed, ssl.SSLSocket):
    pass


class _StrictResponse(http.client.HTTPResponse):
    """Python's response parser, made strict."""

    def begin(self) -> None:
        try:
            super().begin()
        except http.client.HTTPException as error:
            if str(error).startswith("got more than"):
                raise Stop("too-big", str(error)) from error
            raise
        while 102 <= self.status < 200:  # it skips only 100, and takes early hints for the response
            self.headers = None  # type: ignore[assignment]
            super().begin()
        if current.ended:  # it would accept truncated headers
            raise Stop("cut-short", "the connection ended in the headers")
        if _is_broken(self.headers):
            raise http.client.HTTPException("a broken header")

    def _get_chunk_left(self) -> int | None:
        # It would discard whatever is in place of the end of a chunk.
        if self.chunk_left == 0:
            if self._safe_read(2) != b"\r\n":  # type: ignore[attr-defined]
                raise http.client.HTTPException("a chunk without an end")
            self.chunk_left = None
        left: int | None = super()._get_chunk_left()  # type: ignore[misc]
        return left

    def _read_next_chunk_size(self) -> int:
        # int() would accept "-1", which means "read everything", and "1_0".
        line = self.fp.readline(1024)
        match = re.fullmatch(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n", line)
        if not match:
            self._close_conn()  # type: ignore[attr-defined]
            raise http.client.IncompleteRead(b"") if not line else http.client.HTTPException("bad chunk size")
        return int(match[1], 16)


def _is_broken(headers: http.client.HTTPMessage) -> bool:
    """Tell whether some lines are not headers, or two contradict each other."""
    is_odd = any("\0" in name + value for name, value in headers.items())
    return bool(headers.defects) or is_odd or len(set(headers.get_all("location", ()))) > 1


class _Connects(HTTPConnection):
    """A connection along the request's route, and only to addresses that its guard allows."""

    response_class = _StrictResponse

    def connect(self) -> None:
        current.fresh, current.counting, current.until = True, False, current.connect_by
        super().connect()
        current.counting, current.until = True, current.first_by

    def _new_conn(self) -> socket.socket:
        request = current.request
        if request.addresses or request.route:
            port = request.route[1] if request.route else self.port
            addresses = request.addresses or (request.route or ("", 0))[:1]
            found = [where for address in addresses for where in _numeric(address, port)]
        else:  # the host is an address itself, or this is the way to the operator's proxy
            found = list(socket.getaddrinfo(self._dns_host.strip("[]"), self.port, type=socket.SOCK_STREAM))
        allowed = [where for where in found if request.reach == METADATA or reach_of(str(where[4][0])) <= request.reach]
        if not allowed:
            raise Stop("private-address", str(found[0][4][0]))
        return _connect(allowed)


class _Secure(_Connects, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Connects


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


class Adapter(HTTPAdapter):
    """The requests adapter with our connections and one TLS context for all of them."""

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: Any) -> None:
        self._tls = create_urllib3_context()
        self._tls.sslsocket_class = _TLSSocket
        self._tls.load_verify_locations(certificates())
        super().init_poolmanager(connections, maxsize, block, ssl_context=self._tls, **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _SecurePool}
        return manager

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        place, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return place, {"ssl_context": self._tls}

    def cert_verify(self, *_: Any) -> None:
        """Do nothing: the context verifies; here the certificates would be loaded again for each request."""


def _numeric(address: str, port: int) -> list[Any]:
    """Return an address as `socket` wants it; no name is looked up."""
    return list(socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))


def _connect(allowed: list[Any]) -> socket.socket:
    """Connect to the first address that responds; each gets an equal part of the time."""
    error: OSError = OSError("no address")
    for tried, (family, kind, protocol, _, address) in enumerate(allowed):
        try:
            sock = _Socket(family, kind, protocol)
        except OSError as failed:
            if failed.errno in (errno.EMFILE, errno.ENFILE):
                raise NoDescriptors(f"too many open files to send requests ({failed.strerror})") from failed
            error = failed
            continue
        try:
            sock.settimeout(current.left() / (len(allowed) - tried))
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(current.left())
            current.flight.hold(sock.fileno())
            return sock
        except OSError as failed:
            error = failed
            sock.close()
    raise Stop("timeout" if isinstance(error, TimeoutError) else "connect", str(error))
