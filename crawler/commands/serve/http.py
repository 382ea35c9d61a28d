"""The HTTP side of `serve`: who may read, what browsers may do with a reply, and one look at the store for many."""

from __future__ import annotations

import ipaddress
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from crawler.commands.http_server import HttpConnection, HttpRequest, HttpServer, Reply
from crawler.errors import StoreAway

STORE_TIMEOUT = 10.0  # seconds that the store may take before a client is told
STORE_READERS = 4  # threads that read the store at a time
MAX_LOOKS = 32  # looks that are open or whose results are kept
MAX_PARAMETERS = 10
MAX_BODY = 4096  # bytes of an order
ORDERS = "/api/order"  # the one path that takes POST, and nothing else
FORM = "application/x-www-form-urlencoded"

HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]\s]+)(?::[0-9]+)?")
STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
SECURITY_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-DNS-Prefetch-Control", "off"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

Respond = Callable[[str, dict[str, str]], Reply]
Check = Callable[[HttpRequest, str, dict[str, str]], Reply | None]
Order = Callable[[HttpRequest, dict[str, str]], Reply]


def reply(status: int, body: bytes, content_type: str, policy: str = STRICT) -> Reply:
    """Return a reply whose headers keep browsers from doing more than the policy allows."""
    headers = (("Content-Type", content_type), ("Content-Security-Policy", policy))
    return Reply(status, SECURITY_HEADERS + headers, body)


def sentence(status: int, text: str) -> Reply:
    """Return a reply for people."""
    return reply(status, f"{text}\n".encode("utf-8", "replace"), "text/plain; charset=utf-8")


def parse(request: HttpRequest, names: frozenset[str]) -> tuple[str, dict[str, str]] | Reply:
    """Return the path and the parameters of a request, or why it is rejected."""
    hosts = [value.lower() for value in values(request, "host")]
    if len(hosts) != 1 or not request.target.startswith("/"):
        return sentence(400, "malformed request")
    if not is_ours(hosts[0], names):
        return sentence(403, f"this is not {hosts[0]!r}; if it should be, give that name to `crawler serve --name`")
    path, _, query = request.target.partition("?")
    allowed = ("POST",) if path == ORDERS else ("GET", "HEAD")
    if request.method not in allowed:
        wrong = f"only {' and '.join(allowed)} is allowed here; GET changes nothing, and POST is for {ORDERS} alone"
        return with_headers(sentence(405, wrong), ("Allow", ", ".join(allowed)))
    if request.method != "POST" and (values(request, "content-length") or values(request, "transfer-encoding")):
        return sentence(400, "a GET request must not have a body")
    return _parameters(path, query)


def _parameters(path: str, query: str) -> tuple[str, dict[str, str]] | Reply:
    try:
        return path, dict(parse_qsl(query, max_num_fields=MAX_PARAMETERS))
    except ValueError:
        return sentence(400, f"more than {MAX_PARAMETERS} parameters")


def values(request: HttpRequest, name: str) -> list[str]:
    """Return the values of all fields of a request that have this name."""
    return [value for field, value in request.fields if field == name]


def with_headers(reply: Reply, *more: tuple[str, str]) -> Reply:
    """Return a reply with more headers."""
    return replace(reply, headers=(*reply.headers, *more))


def is_foreign(request: HttpRequest) -> bool:
    """Return whether a browser sent this request for another site's page, or for one of another port.

    Browsers say so in Origin and Sec-Fetch-Site, which no page can forge; other programs send neither.
    """
    if any(site != "same-origin" for site in values(request, "sec-fetch-site")):
        return True
    own = values(request, "host")[0].lower()
    return any(not _is_origin(origin, own) for origin in values(request, "origin"))


def _is_origin(origin: str, own: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(origin.lower())
        return parts.scheme in ("http", "https") and parts.netloc == own
    return False


def body_size(request: HttpRequest) -> int | Reply:
    """Return how many bytes of a form follow, or why they are not read."""
    kinds = [kind.partition(";")[0].strip().lower() for kind in values(request, "content-type")]
    sizes = values(request, "content-length")
    if kinds != [FORM] or len(sizes) != 1 or not re.fullmatch("[0-9]{1,9}", sizes[0]):
        return sentence(400, f"an order is a form: {FORM} with a Content-Length")
    if int(sizes[0]) > MAX_BODY:
        return sentence(413, f"an order has at most {MAX_BODY} bytes")
    return int(sizes[0])


def is_ours(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names this server: the guard against DNS rebinding.

    Any IP address will do: nobody can make one lead elsewhere.
    """
    found = HOST.fullmatch(host)
    if not found:
        return False
    name = found[1].removesuffix(".")
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return True
    return name in names or name.endswith(".localhost")


class ServeConnection(HttpConnection):
    """A client of `serve`; a slow one is cut off."""

    server: ServeServer
    max_head = 16 << 10
    head_timeout = 15.0
    send_timeout = 30.0

    def respond(self, request: HttpRequest) -> Reply:
        """Return the reply to a valid request; after any other the connection is closed."""
        parsed = parse(request, self.server.names)
        if isinstance(parsed, Reply):
            return replace(parsed, close=True)
        if request.method == "POST":
            return self._order(request, parsed[0])
        return self.server.check(request, *parsed) or self.server.respond(*parsed)

    def _order(self, request: HttpRequest, path: str) -> Reply:
        """Return the reply to an order; the token that reading needs may not be in its address."""
        size = body_size(request)
        if isinstance(size, Reply):
            return replace(size, close=True)
        form = _parameters(path, self.read_body(size).decode("latin-1"))
        if isinstance(form, Reply):
            return form
        return self.server.check(request, path, {}) or self.server.order(request, form[1])

    def bad_request(self, oversized: bool) -> Reply | None:
        """Return a sentence for what is malformed, and nothing for what is endless."""
        return None if oversized else sentence(400, "malformed request")


class ServeServer(HttpServer):
    """The server of `serve`, which goes by these names."""

    max_connections = 256  # a browser opens up to six

    def __init__(
        self,
        listener: socket.socket,
        respond: Respond,
        names: frozenset[str],
        check: Check = lambda *_: None,
        order: Order = lambda *_: sentence(403, "no orders are taken here"),
    ) -> None:
        """`check` returns the reply to a request that may not be answered, `order` that to a form that was sent."""
        super().__init__(listener, ServeConnection)
        self.respond, self.names, self.check, self.order = respond, names, check, order


class Look(Future[Any]):
    """A look at the store: still open, or ended at a time of the monotonic clock."""

    ended = float("inf")

    def make(self, call: Callable[[], Any], readers: threading.BoundedSemaphore) -> None:
        """Keep what the call returns or raises."""
        result, failure = None, None
        try:
            with readers:
                result = call()
        except Exception as error:  # noqa: BLE001 - raised again for those who wait for the result
            failure = error
        self.ended = time.monotonic()
        self.set_exception(failure) if failure else self.set_result(result)


class Looks:
    """Looks at the store that many clients share: each is made once at a time, and its result kept for a moment.

    They are made by threads of their own, which end with the program: a mount may hang.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = threading.BoundedSemaphore(STORE_READERS)
        self._looks: dict[object, Look] = {}

    def get(self, key: object, call: Callable[[], Any], max_age: float) -> Any:
        """Return or raise what the call does, or did in the last `max_age` seconds."""
        with self._lock:
            look = self._looks.get(key)
            if look is None or time.monotonic() - look.ended > max_age:
                look = self._begin(key, call)
        try:
            return look.result(STORE_TIMEOUT)
        except TimeoutError:
            raise StoreAway(
                f"the store has not responded for {STORE_TIMEOUT:.0f} s; is the mount still there?"
            ) from None

    def _begin(self, key: object, call: Callable[[], Any]) -> Look:
        self._looks.pop(key, None)
        ended = [name for name, look in self._looks.items() if look.done()]
        for name in ended[: max(len(self._looks) - MAX_LOOKS + 1, 0)]:
            del self._looks[name]
        if len(self._looks) >= MAX_LOOKS:
            raise StoreAway("too many requests wait for the store; try again in a moment")
        look = self._looks[key] = Look()
        threading.Thread(target=look.make, args=(call, self._readers), daemon=True).start()
        return look
