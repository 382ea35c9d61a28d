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
from urllib.parse import parse_qsl

from crawler.commands.http_server import HttpConnection, HttpRequest, HttpServer, Reply
from crawler.errors import StoreAway

STORE_TIMEOUT = 10.0  # seconds that the store may take before a client is told
STORE_READERS = 4  # threads that read the store at a time
MAX_LOOKS = 32  # looks that are open or whose results are kept
MAX_PARAMETERS = 10

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


def reply(status: int, body: bytes, content_type: str, policy: str = STRICT) -> Reply:
    """Return a reply whose headers keep browsers from doing more than the policy allows."""
    headers = (("Content-Type", content_type), ("Content-Security-Policy", policy))
    return Reply(status, SECURITY_HEADERS + headers, body)


def sentence(status: int, text: str) -> Reply:
    """Return a reply for people."""
    return reply(status, f"{text}\n".encode("utf-8", "replace"), "text/plain; charset=utf-8")


def parse(request: HttpRequest, names: frozenset[str]) -> tuple[str, dict[str, str]] | Reply:
    """Return the path and the parameters of a request, or why it is rejected."""
    fields = dict(request.fields)
    hosts = [value.lower() for name, value in request.fields if name == "host"]
    if len(hosts) != 1 or not request.target.startswith("/"):
        return sentence(400, "malformed request")
    if not is_ours(hosts[0], names):
        return sentence(403, f"this is not {hosts[0]!r}; if it should be, give that name to `crawler serve --name`")
    if request.method not in ("GET", "HEAD"):
        rejected = sentence(405, "only GET and HEAD are allowed: nothing can be changed here")
        return replace(rejected, headers=(*rejected.headers, ("Allow", "GET, HEAD")))
    if "content-length" in fields or "transfer-encoding" in fields:
        return sentence(400, "a GET request must not have a body")
    path, _, query = request.target.partition("?")
    try:
        return path, dict(parse_qsl(query, max_num_fields=MAX_PARAMETERS))
    except ValueError:
        return sentence(400, f"more than {MAX_PARAMETERS} parameters")


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
        return self.server.check(request, *parsed) or self.server.respond(*parsed)

    def bad_request(self, oversized: bool) -> Reply | None:
        """Return a sentence for what is malformed, and nothing for what is endless."""
        return None if oversized else sentence(400, "malformed request")


class ServeServer(HttpServer):
    """The server of `serve`, which goes by these names."""

    max_connections = 256  # a browser opens up to six

    def __init__(
        self, listener: socket.socket, respond: Respond, names: frozenset[str], check: Check = lambda *_: None
    ) -> None:
        """`check` returns the reply to a request that may not be answered."""
        super().__init__(listener, ServeConnection)
        self.respond, self.names, self.check = respond, names, check


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
