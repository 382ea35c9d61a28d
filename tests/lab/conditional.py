"""A real server whose pages a test changes, and which answers conditional requests."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Pages:
    """The pages by path: html, an error's status, or where they moved to; and what was asked."""

    def __init__(self, pages: dict[str, str | int]) -> None:
        self.pages = pages
        self.asked: list[tuple[str, int]] = []  # path and status, in order
        self.port = 0

    def of(self, path: str) -> list[int]:
        return [status for asked, status in self.asked if asked == path]


@contextmanager
def serving(pages: dict[str, str | int]) -> Iterator[Pages]:
    """Serve these pages."""
    web = Pages(pages)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = web.pages.get(self.path, 404)
            body = found.encode() if isinstance(found, str) else b""
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            status = found if isinstance(found, int) else 301 if found.startswith("->") else 200
            if status == 200 and self.headers.get("If-None-Match") == etag:
                status, body = 304, b""
            web.asked.append((self.path, status))
            self.send_response(status)
            if status == 301:
                self.send_header("Location", body.decode().removeprefix("->"))
                body = b""
            self.send_header("ETag", etag)
            self.send_header("Content-Type", "text/html")
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
