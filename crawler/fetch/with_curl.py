"""The HTTP client on libcurl: a handle stays with its host, so that its connection is reused."""

from __future__ import annotations

import errno
import math
import os
import socket
from collections import OrderedDict
from io import BytesIO
from threading import Lock
from time import monotonic
from typing import Any

import pycurl

from crawler.fetch.deadlines import Deadlines, Flight
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
    worth_draining,
)
from crawler.web.addresses import is_public
from crawler.web.page import Failure, Fetched

Key = tuple[str, str, int, bool]
_SUPPRESS_CONNECT_HEADERS = 265  # CURLOPT_SUPPRESS_CONNECT_HEADERS, which pycurl has no name for
_STOP = 0  # returned by a callback: fewer bytes than given, which makes libcurl end the transfer

_REASONS = {
    pycurl.E_UNSUPPORTED_PROTOCOL: "bad-answer",  # the scheme was checked before, so this is HTTP/0.9
    pycurl.E_URL_MALFORMAT: "bad-url",
    pycurl.E_COULDNT_RESOLVE_HOST: "dns",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "bad-answer",
    pycurl.E_HTTP2: "bad-answer",
    pycurl.E_PARTIAL_FILE: "cut-short",
    pycurl.E_OPERATION_TIMEDOUT: "timeout",
    pycurl.E_BAD_CONTENT_ENCODING: "bad-coding",
    pycurl.E_SSL_CONNECT_ERROR: "tls",
    pycurl.E_SSL_CERTPROBLEM: "tls",
    pycurl.E_SSL_CIPHER: "tls",
    pycurl.E_PEER_FAILED_VERIFICATION: "tls",
    pycurl.E_SSL_CACERT_BADFILE: "tls",
    pycurl.E_SSL_ISSUER_ERROR: "tls",
    pycurl.E_SSL_INVALIDCERTSTATUS: "tls",
    pycurl.E_FILESIZE_EXCEEDED: "too-big",
    100: "too-big",  # CURLE_TOO_LARGE, of the headers
}
# libcurl has one code for several errors here; only its message tells them apart. A server that hangs up during the
# handshake is recognized by error numbers in the message: the wording of OpenSSL differs from build to build.
_SENTENCES = (
    ("Too large response headers", "too-big"),
    ("chunk", "bad-answer"),
    ("SSL_ERROR_SYSCALL", "connect"),
    ("SSL_ERROR_ZERO_RETURN", "connect"),
    ("error:0A000126:", "connect"),  # SSL_R_UNEXPECTED_EOF_WHILE_READING
    ("error:00000000:", "connect"),  # no TLS error: the server closed the connection
    *((os.strerror(number), "connect") for number in (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)),
)


class CurlFetcher:
    """Sends requests with libcurl, from any number of threads."""

    def __init__(self, options: FetchOptions) -> None:
        self._options = options
        self._lock = Lock()
        self._idle: OrderedDict[Key, list[_Handle]] = OrderedDict()
        self._count = 0
        self._closed = False
        self._deadlines = Deadlines(options.timeout)

    def get(self, request: Request) -> Response | Failure:
        """Send one request; libcurl itself replaces a kept connection that the server has closed."""
        key = (request.scheme, request.host, request.port, request.guarded)
        handle = self._take(key) or _Handle(self._options)
        try:
            with self._deadlines.watch(handle.flight):
                return handle.get(key, request)
        finally:
            self._give(key, handle)

    def close(self) -> None:
        """Close every idle connection; those in use are closed when their request ends."""
        self._closed = True
        self.close_idle()
        self._deadlines.close()

    def close_idle(self) -> None:
        """Close every idle connection."""
        with self._lock:
            idle = [handle for handles in self._idle.values() for handle in handles]
            self._idle.clear()
            self._count = 0
        for handle in idle:
            handle.close()

    def _take(self, key: Key) -> _Handle | None:
        with self._lock:
            if key in self._idle:
                return self._pop(key)
            # A used handle has already loaded the trusted certificates, which takes longer than a handshake.
            return self._pop(next(iter(self._idle))) if self._idle and self._count >= self._options.kept else None

    def _give(self, key: Key, handle: _Handle) -> None:
        with self._lock:
            extra: _Handle | None = handle
            if not self._closed:
                self._idle.setdefault(key, []).append(handle)
                self._idle.move_to_end(key)
                self._count += 1
                extra = self._pop(next(iter(self._idle))) if self._count > self._options.kept else None
        if extra:
            extra.close()

    def _pop(self, key: Key) -> _Handle:
        handles = self._idle[key]
        handle = handles.pop()
        if not handles:
            del self._idle[key]
        self._count -= 1
        return handle


class _Handle:
    """One libcurl handle with its connection, and the state of its current request."""

    def __init__(self, options: FetchOptions) -> None:
        self.curl = pycurl.Curl()
        self.flight = Flight()
        self.key: Key | None = None
        self.sent: tuple[str, ...] | None = None
        self._set_up(options)

    def get(self, key: Key, request: Request) -> Response | Failure:
        self._start(request)
        moved = self.key != key
        self.curl.setopt(pycurl.URL, request.target)
        if request.headers != self.sent:
            self.curl.setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in request.headers])
            self.sent = request.headers
        if moved:
            self._move(key, request)
        code, sentence = self._perform()
        if moved:
            self.curl.setopt(pycurl.FRESH_CONNECT, 0)
        return self._result(code, sentence)

    def close(self) -> None:
        self.curl.close()

    def _set_up(self, options: FetchOptions) -> None:
        values: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
            # The body is decoded by us: libcurl accepts a truncated gzip body.
            pycurl.HTTP_CONTENT_DECODING: 0,
            pycurl.PATH_AS_IS: 1,
            pycurl.MAXCONNECTS: 1,
            pycurl.BUFFERSIZE: 128 << 10,  # most pages in one piece: each piece waits for the interpreter's lock
            pycurl.TIMEOUT_MS: math.ceil(options.timeout * 1000),
            pycurl.CONNECTTIMEOUT_MS: math.ceil(options.connect_timeout * 1000),
            # In whole seconds, and for silence at any time; a progress callback would be exact, but each call
            # waits for the interpreter's lock: 40 % more time per page with 16 threads.
            pycurl.LOW_SPEED_LIMIT: 1,
            pycurl.LOW_SPEED_TIME: math.ceil(options.first_byte_timeout),
            pycurl.PROXY: options.proxy or "",  # empty, not unset: libcurl would take one from the environment
            pycurl.NOPROXY: "",
            _SUPPRESS_CONNECT_HEADERS: 1,
            pycurl.SOCKOPTFUNCTION: self._on_socket,
            pycurl.HEADERFUNCTION: self._on_header,
            pycurl.WRITEFUNCTION: self._on_body,
            pycurl.CAINFO: certificates(),
        }
        for option, value in values.items():
            self.curl.setopt(option, value)

    def _move(self, key: Key, request: Request) -> None:
        """Set what is the same for all requests of a host; the old connection is not reused."""
        route: list[str] = []
        if request.route:
            address, port = request.route
            route = [f"::[{address}]:{port}" if ":" in address else f"::{address}:{port}"]
        self.curl.setopt(pycurl.CONNECT_TO, route)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open if request.guarded else None)
        self.curl.setopt(pycurl.FRESH_CONNECT, 1)
        self.key = key

    def _start(self, request: Request) -> None:
        self.request = request
        self.until = 0.0
        self.lines: list[bytes] = []
        self.status = 0
        self.headers: dict[str, str] = {}
        self.outcome: Fetched | Failure | None = None
        self.body = BytesIO()  # getvalue() makes no copy
        self.size = 0
        self.opened = False
        self.private = ""

    def _perform(self) -> tuple[int, str]:
        try:
            self.curl.perform()
        except pycurl.error as error:
            return int(error.args[0]), str(error.args[-1])
        return 0, ""

    def _result(self, code: int, sentence: str) -> Response | Failure:
        request = self.request
        if self.outcome:
            return Response(self.status, self.headers, self.outcome)
        if self.flight.ended:
            return request.fail("timeout", "the request took longer than its timeout")
        if self.size > request.limit and not request.cut:
            return request.fail("too-big", f"more than {request.limit} bytes")
        if (code == 0 or self.size > request.limit) and self.status:
            body, self.body = self.body.getvalue(), BytesIO()  # an idle handle must not keep a page in memory
            return Response(self.status, self.headers, None, body, code == 0)
        if code == 0:
            return request.fail("cut-short", "the connection ended in the headers")
        if self.private and not self.opened:
            return request.fail("private-address", self.private)
        return request.fail(self._reason(code, sentence), f"{sentence} (curl {code})")

    def _reason(self, code: int, sentence: str) -> str:
        if code in (pycurl.E_RECV_ERROR, pycurl.E_SSL_CONNECT_ERROR):
            for part, reason in _SENTENCES:
                if part in sentence:
                    return "cut-short" if reason == "connect" and self.status else reason
        return _REASONS.get(code) or ("cut-short" if self.status else "connect")

    def _on_socket(self, number: int, _purpose: int) -> int:
        self.flight.hold(number)
        return pycurl.SOCKOPT_OK

    def _on_header(self, line: bytes) -> int | None:
        if self.status:
            return None  # trailers
        if len(line) > MAX_HEADER_LINE:
            self.outcome = self.request.fail("too-big", f"a header line of {len(line)} bytes")
            return _STOP
        self.lines.append(line)
        return self._on_head() if line in (b"\r\n", b"\n") else None

    def _on_head(self) -> int | None:
        words = self.lines[0].split(None, 2)
        status = int(words[1])  # libcurl accepts only three digits
        if 100 <= status < 200 and status != 101:
            self.lines.clear()
            return None
        self.status = status
        self.headers = fold(_pairs(self.lines[1:-1]))
        self.outcome = check_headers(self.request, status, self.headers)
        if self.outcome is None:
            return None
        self.until = monotonic() + DRAIN_SECONDS
        return None if worth_draining(status, self.headers) else _STOP

    def _on_body(self, chunk: bytes) -> int | None:
        self.size += len(chunk)
        if self.outcome:
            return None if self.size <= DRAIN_BYTES and monotonic() < self.until else _STOP
        self.body.write(chunk)
        return None if self.size <= self.request.limit else _STOP

    def _open(self, _purpose: int, address: Any) -> Any:
        """Make the socket for an address that libcurl is about to connect to, or reject it."""
        if not is_public(address.addr[0]):
            self.private = address.addr[0]
            return pycurl.SOCKET_BAD
        self.opened = True
        try:
            return socket.socket(address.family, address.socktype, address.protocol)
        except OSError:  # such as too many open files: libcurl reports the failure
            return pycurl.SOCKET_BAD


def _pairs(lines: list[bytes]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for line in lines:
        name, _, value = line.decode("latin-1").partition(":")
        if name[:1] in " \t" and pairs:
            pairs[-1] = (pairs[-1][0], pairs[-1][1] + " " + line.decode("latin-1").strip())
        else:
            pairs.append((name, value))
    return pairs
