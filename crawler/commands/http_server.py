"""The HTTP server of `serve` and `demo`: a thread per connection, with limits on time, size and number.

It is socketserver's threading server with a handler of its own: that of http.server cannot limit the time that a head
takes as a whole, and serves less than half as many pages per second.
"""

from __future__ import annotations

import os
import re
import select
import socket
import socketserver
import stat
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.client import responses as PHRASES
from typing import Any, NamedTuple

from crawler.errors import StoreError

REQUEST_LINE = re.compile(r"([A-Z]+) ([!-~]+) HTTP/1\.([01])")
BACKLOG = 1024
CLOSE_TIMEOUT = 1.0  # seconds that connections have to end when the server closes


class HttpRequest(NamedTuple):
    """The head of a request; the names of its fields are in lower case."""

    method: str
    target: str
    fields: list[tuple[str, str]]
    close: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent back; Content-Length and Connection are added. A large body follows in parts."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    close: bool = False  # the connection, after this reply
    parts: Iterable[bytes] = ()
    size: int = 0  # of all parts

    def encode(self, with_body: bool, close: bool) -> bytes:
        """Return the bytes to send, as far as they are not in parts."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        end = "Connection: close\r\n\r\n" if close else "\r\n"
        phrase = PHRASES.get(self.status, "Unknown")
        head = f"HTTP/1.1 {self.status} {phrase}\r\n{lines}Content-Length: {len(self.body) + self.size}\r\n{end}"
        return head.encode("latin-1") + (self.body if with_body else b"")


def parse_head(head: bytes) -> HttpRequest | None:
    """Return the request with this head, or None when it is malformed."""
    first, *lines = head.decode("latin-1").split("\r\n")
    match = REQUEST_LINE.fullmatch(first)
    if not match:
        return None
    fields = [(name.strip().lower(), value.strip()) for name, _, value in [line.partition(":") for line in lines]]
    close = match[3] == "0" or any(name == "connection" and "close" in value.lower() for name, value in fields)
    return HttpRequest(match[1], match[2], fields, close)


class HttpConnection(socketserver.BaseRequestHandler):
    """One connection: requests are answered one at a time, in their order. Subclasses say how."""

    request: socket.socket
    max_head = 64 << 10  # bytes
    head_timeout: float | None = None  # seconds for a whole head, idle time included
    send_timeout: float | None = None  # seconds for a whole reply

    def respond(self, request: HttpRequest) -> Reply | None:
        """Return the reply to a request, or None to close the connection without one."""
        raise NotImplementedError

    def bad_request(self, oversized: bool) -> Reply | None:
        """Return the reply to a head that is malformed or oversized, or None to close the connection without one."""
        raise NotImplementedError

    def handle(self) -> None:
        """Answer requests until either side has enough."""
        if self.request.family != socket.AF_UNIX:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        while self._exchange():
            pass

    def client_left(self, within: float) -> bool:
        """Wait so many seconds, or until the client closes the connection; return whether it did."""
        poller = select.poll()
        poller.register(self.request, select.POLLRDHUP)
        return bool(poller.poll(within * 1000))

    def _exchange(self) -> bool:
        """Answer one request; return whether another may follow."""
        head = self._read_head()
        request = parse_head(head) if head is not None else None
        reply = self.respond(request) if request else self.bad_request(oversized=head is None)
        if reply is None:
            return False
        close = reply.close or request is None or request.close
        self.request.settimeout(self.send_timeout)
        with_body = request is None or request.method != "HEAD"
        self.request.sendall(reply.encode(with_body, close))
        for part in reply.parts if with_body else ():
            self.request.sendall(part)  # each has the time of a whole reply
        return not close

    def read_body(self, size: int) -> bytes:
        """Return the body of the request that is being answered; it has as long as a head."""
        deadline = self._deadline()
        while len(self._received) < size:
            self._receive(deadline)
        body, self._received = self._received[:size], self._received[size:]
        return body

    def _read_head(self) -> bytes | None:
        """Return the next head, without the blank line at its end, or None when it is oversized."""
        deadline = self._deadline()
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            if len(self._received) > self.max_head:
                return None
            self._receive(deadline)
        head, self._received = self._received[:end], self._received[end + 4 :]
        return head

    def _deadline(self) -> float | None:
        return time.monotonic() + self.head_timeout if self.head_timeout else None

    def _receive(self, deadline: float | None) -> None:
        self.request.settimeout(max(deadline - time.monotonic(), 0.001) if deadline else None)
        piece = self.request.recv(65536)
        if not piece:
            raise ConnectionError("the client closed the connection")
        self._received += piece


class HttpServer(socketserver.ThreadingTCPServer):
    """A listening socket and its connections; what they share is an attribute of a subclass."""

    daemon_threads = True
    max_connections = sys.maxsize  # more are closed at once

    def __init__(self, listener: socket.socket, connection: type[HttpConnection]) -> None:
        super().__init__(listener.getsockname()[:2], connection, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._open: set[Any] = set()

    def start(self) -> None:
        """Accept connections, in a thread of its own."""
        threading.Thread(target=self.serve_forever, args=(0.05,), name="http", daemon=True).start()

    def close(self) -> None:
        """Stop accepting, cut the open connections, and give their threads a moment to notice."""
        self.shutdown()
        self.server_close()
        for connection in [*self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + CLOSE_TIMEOUT
        while self._open and time.monotonic() < deadline:
            time.sleep(0.005)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, unless there are too many."""
        if len(self._open) >= self.max_connections:
            return self.shutdown_request(request)
        self._open.add(request)
        return super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        self._open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, except for a client that is slow or gone, or a store that went away in between."""
        if not isinstance(sys.exception(), OSError | StoreError):
            super().handle_error(request, client_address)


def listen_on_socket(path: str) -> socket.socket:
    """Return a socket that listens at a path, which only this user can connect to; a stale one is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)  # not chmod afterwards: somebody could connect in between
    try:
        _remove_stale(path)
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(mask)
    return listener


def _remove_stale(path: str) -> None:
    """Remove the socket of a server that is gone, and nothing else."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        try:
            other.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens at an address of this machine, IPv4 or IPv6."""
    family, *_, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    try:
        return socket.create_server((str(where[0]), port), family=family, backlog=BACKLOG)
    except OSError as error:  # Python adds the address to the message
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None
