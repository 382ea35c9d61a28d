"""What `serve` replies: files of the web page, facts about the store, metrics."""

from __future__ import annotations

import ipaddress
import json
import platform
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from crawler.commands.http_server import HttpRequest, Reply, listen, listen_on_socket
from crawler.commands.serve import metrics
from crawler.commands.serve.http import Check, Looks, ServeServer, reply, sentence
from crawler.commands.serve.orders import NoOrders, OrderFailed, Orders
from crawler.commands.serve.tokens import PARAMETER, Token, new_token
from crawler.commands.serve.views import Facts, Query, Views, clean
from crawler.crawl.logs import log
from crawler.errors import CrawlerError, NotThere, StoreError, UsageError
from crawler.store.store import Store
from crawler.terminal import say

NOW_MAX_AGE = 1.5  # seconds for which one look at the state of the crawl is shared
VIEW_MAX_AGE = 3.0  # and one at a table or a page
LOOK_EVERY = 10.0  # seconds between looks that nobody requested: the charts are to have no gaps
COUNT_RETRY = 5.0  # seconds until hosts are counted again after the store did not answer
ENDING = {signal.SIGINT, signal.SIGTERM}
JSON = "application/json"
HTML = "text/html; charset=utf-8"
CONTENT_TYPES = {
    ".html": HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "/index.html"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
# A stored page may show its text with its inline styles, and do nothing else.
DRAWN_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)


def serve(
    store: Store, address: str, port: int, names: Iterable[str], token: str | None, read_only: bool = False
) -> None:
    """Serve a store at an address, under these names, until SIGINT or SIGTERM; a token that is not given is made."""
    try:
        listener = listen(address, port)
    except OSError as error:
        raise UsageError(
            f"port {port} of {address} is not available ({error.strerror}); choose another --port or --bind"
        ) from error
    port = listener.getsockname()[1]
    known = Token(token or new_token(), port)
    secret = "" if token else f"?{PARAMETER}={known.value}"  # one that the operator chose is not printed
    app = App(Views(store), Orders(store.root, read_only), known)
    lines = _greeting(store, address, port, secret, read_only)
    _run(app, listener, frozenset({"localhost", *names}), known.check, lines)


def serve_on_socket(store: Store, path: str, read_only: bool = False) -> None:
    """Serve a store at a socket of the file system; its permissions take the place of the token."""
    try:
        listener = listen_on_socket(path)
    except OSError as error:
        raise UsageError(f"--socket {path}: {error.strerror or error}; choose another path") from error
    lines = [f"serving {store.root} at the socket {path} (metrics at /metrics); Ctrl-C stops it"]
    app = App(Views(store), Orders(store.root, read_only), Token(new_token()))
    try:
        _run(app, listener, frozenset({"localhost"}), lambda *_: None, lines)
    finally:
        Path(path).unlink(missing_ok=True)


def _run(app: App, listener: socket.socket, names: frozenset[str], check: Check, lines: list[str]) -> None:
    # Blocked before any thread starts, so that none of them but this one receives the signals.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    server = ServeServer(listener, app.respond, names, check, app.order)
    server.start()
    app.start()
    for line in lines:
        say(line, sys.stderr if line.startswith("warning") else None)
    signal.sigwait(ENDING)
    server.close()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class App:
    """The replies to all paths."""

    def __init__(self, views: Views, orders: Orders, token: Token) -> None:
        self._views, self._orders, self._token = views, orders, token
        self._looks = Looks()
        self._files = _files()
        self._tables: dict[str, Callable[[Query], Facts]] = {
            "/api/hosts": views.hosts,
            "/api/host": views.host,
            "/api/failures": views.failures,
            "/api/page": views.page,
            "/api/settings": views.settings,
        }

    def start(self) -> None:
        """Look at the crawl and count its hosts regularly, in threads that end with the program."""
        for chore in (self._look_regularly, self._count_hosts):
            threading.Thread(target=chore, daemon=True).start()

    def respond(self, path: str, query: Query) -> Reply:
        """Return the reply to a request; errors are replies too."""
        return _answered(lambda: self._respond(path, query))

    def order(self, request: HttpRequest, form: Query) -> Reply:
        """Return the reply to an order, which is carried out if it may be."""
        carry_out = lambda: reply(200, to_json(self._orders.give(form)), JSON)  # noqa: E731
        return self._token.check_order(request, form) or _answered(carry_out)

    def _respond(self, path: str, query: Query) -> Reply:
        if path in self._files:
            return self._files[path]
        if path in self._tables:
            return reply(200, self._get(path, query, partial(_encoded, self._tables[path])), JSON)
        if path == "/api/now":
            return reply(200, self._look()[1], JSON)
        if path == "/drawn":
            return reply(200, self._get(path, query, self._views.drawn), HTML, DRAWN_POLICY)
        if path == "/file":
            return self._views.content(query).reply()
        if path == "/api/token":
            return reply(200, to_json({PARAMETER: self._token.form}), JSON)
        if path == "/metrics":
            return reply(200, self._metrics(), metrics.TYPE)
        if path == "/healthz":
            self._look()
            return sentence(200, "ok")
        return sentence(404, "not found; the page is at /")

    def _look(self) -> tuple[Facts, bytes]:
        """Return the state of the crawl, as facts and as JSON."""
        found: tuple[Facts, bytes] = self._looks.get("now", self._look_now, NOW_MAX_AGE)
        return found

    def _look_now(self) -> tuple[Facts, bytes]:
        found = self._views.now()
        return found, to_json({**self._views.in_short(found), "orders": self._orders.facts()})

    def _get(self, path: str, query: Query, view: Callable[[Query], bytes]) -> bytes:
        found: bytes = self._looks.get((path, *sorted(query.items())), partial(view, query), VIEW_MAX_AGE)
        return found

    def _metrics(self) -> bytes:
        found = None
        with suppress(StoreError):
            found, _ = self._look()
        return metrics.text(found).encode()

    def _look_regularly(self) -> None:
        while True:
            self.respond("/api/now", {})
            time.sleep(LOOK_EVERY)

    def _count_hosts(self) -> None:
        while True:
            pause = COUNT_RETRY
            with suppress(StoreError, sqlite3.Error):  # of the table on this machine's own disk
                pause = self._views.census.step()
            time.sleep(pause)


def _answered(call: Callable[[], Reply]) -> Reply:
    """Return the reply, or the error as one."""
    try:
        return call()
    except UsageError as error:
        return _error(400, str(error))
    except NotThere as error:
        return _error(404, str(error))
    except NoOrders as error:
        return _error(403, str(error))
    except OrderFailed as error:
        return _error(409, str(error))
    except CrawlerError as error:
        return _error(503, str(error))
    except Exception:  # noqa: BLE001 - a bug must not end the server
        log.exception("crawler: a bug in the program; please report it with these lines")
        return _error(500, "a bug in the program; the terminal of `crawler serve` has more")


def to_json(value: Any) -> bytes:
    """Return a value as JSON, with texts from the web made printable."""
    return json.dumps(clean(value), separators=(",", ":")).encode("ascii")


def _encoded(view: Callable[[Query], Facts], query: Query) -> bytes:
    return to_json(view(query))


def _error(status: int, text: str) -> Reply:
    return reply(status, to_json({"error": text}), JSON)


def _files() -> dict[str, Reply]:
    """Return the files of the web page by their path; they are part of this package."""
    static = resources.files("crawler.commands.serve") / "static"
    found = [file for file in static.iterdir() if Path(file.name).suffix in CONTENT_TYPES]
    replies = {
        f"/{file.name}": reply(200, file.read_bytes(), CONTENT_TYPES[Path(file.name).suffix], PAGE_POLICY)
        for file in found
    }
    return {"/": replies.pop(INDEX), **replies}


def _greeting(store: Store, address: str, port: int, secret: str, read_only: bool) -> list[str]:
    found = ipaddress.ip_address(address.partition("%")[0])
    name = platform.node() if found.is_unspecified else f"[{address}]" if found.version == 6 else address
    lines = [f"serving {store.root} at http://{name}:{port}/{secret} (metrics at /metrics); Ctrl-C stops it"]
    if not found.is_loopback:
        may = "read all pages of this store" + ("" if read_only else ", and pause or stop the crawl")
        lines.append(
            f"warning: anyone who can reach {name}:{port} and has the token can {may}; the connection is not encrypted"
        )
    return lines
