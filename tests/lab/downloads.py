"""A server of large files on loopback: of any size, compressed, cut off, or one that waits in the middle."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = bytes(range(256)) * 256  # 64 KiB


def pieces(size: int) -> Iterator[bytes]:
    """The bytes of a file of this size."""
    for start in range(0, size, len(PIECE)):
        yield PIECE[: size - start]


class Handler(BaseHTTPRequestHandler):
    """`/pdf/SIZE`, `/gzip/SIZE`, `/cut/SIZE`, `/wait/SIZE`, `/text/SIZE`; any other path is a page with `links`."""

    protocol_version = "HTTP/1.1"
    server: Downloads

    def do_GET(self) -> None:
        _, how, *rest = self.path.partition("?")[0].split("/")
        with suppress(ConnectionError):
            if how in ("pdf", "gzip", "cut", "wait", "text", "untyped") and rest:
                self._send(how, int(rest[0]))
            else:
                self._page()

    def _page(self) -> None:
        body = "".join(f"<a href='{link}'>x</a>" for link in self.server.links).encode()
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, how: str, size: int) -> None:
        self.server.asked.append(self.path)
        self.send_response(200)
        if how != "untyped":
            self.send_header("Content-Type", "text/plain" if how == "text" else "application/pdf")
        if how == "gzip":
            self.send_header("Content-Encoding", "gzip")
        else:
            self.send_header("Content-Length", str(size))
        self.send_header("Connection", "close")
        self.end_headers()
        packer = zlib.compressobj(wbits=31)
        for number, piece in enumerate(pieces(size)):
            if number * 2 * len(PIECE) >= size:
                if how == "cut":
                    return
                if how == "wait":
                    self.server.half.set()
                    self.server.go_on.wait(60)
            self.wfile.write(packer.compress(piece) if how == "gzip" else piece)
        if how == "gzip":
            self.wfile.write(packer.flush())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Downloads(ThreadingHTTPServer):
    """The server; `half` is set when half of a file that waits is sent, and `go_on` lets it go on."""

    daemon_threads = True

    def __init__(self, links: tuple[str, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.links, self.asked = links, list[str]()
        self.half, self.go_on = threading.Event(), threading.Event()
        self.port = self.server_address[1]

    def url(self, path: str) -> str:
        """The URL of a path."""
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def downloads(*links: str) -> Iterator[Downloads]:
    """A server whose pages link to these."""
    server = Downloads(links)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
