"""The web server of `serve`: one who asks slowly, often or for another's sake costs little and gets nothing.

Requests are read and answered on one thread; what touches the store is done by a few others, because a mount may hang.
The same question asked by many at a time is one look at the store.
"""

from __future__ import annotations

import asyncio
import ipaddress
import queue
import re
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from crawler.errors import StoreAway

HEAD = 16 << 10  # bytes of a request's head
ASKING = 15.0  # seconds that a client may take to ask; also how long a connection may rest
TAKING = 30.0  # and to take the answer
STORE = 10.0  # seconds that the store may take before a client is told
OPEN = 256  # connections at a time; a browser opens up to six
READERS = 4  # threads that read the store
REMEMBERED = 32  # answers that are kept for the next who ask, and questions that may be open

LINE = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.[01]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]\s]+)(?::[0-9]+)?")
STRICT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-DNS-Prefetch-Control": "off",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as it matters here."""

    path: str
    query: dict[str, str]
    body: bool = True
    close: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent back, and what a browser may do with it."""

    status: int
    body: bytes
    type: str = "text/plain; charset=utf-8"
    policy: str = STRICT


Give = Callable[[Asked], Awaitable[Answer]]


def sentence(status: int, text: str) -> Answer:
    """An answer for people."""
    return Answer(status, f"{text}\n".encode("utf-8", "replace"))


def parse(head: bytes, names: frozenset[str]) -> Asked | Answer:
    """A request's head as what is asked, or the answer to one that is not to be heard."""
    first, *lines = head.rstrip(b"\r\n").split(b"\r\n")
    match = LINE.fullmatch(first)
    fields = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    hosts = [value.decode("latin-1").lower() for name, value in fields if name == b"host"]
    if not match or len(hosts) != 1:
        return sentence(400, "this is no request that can be understood")
    if not is_ours(hosts[0], names):
        return sentence(403, f"this is not {hosts[0]!r}; if it should be, give that name to `crawler serve --name`")
    if match[1] not in (b"GET", b"HEAD"):
        return sentence(405, "there is nothing to change here: only GET and HEAD are answered")
    if any(name in (b"content-length", b"transfer-encoding") for name, _ in fields):
        return sentence(400, "a question has no body")
    path, _, query = match[2].decode("ascii").partition("?")
    close = b"close" in dict(fields).get(b"connection", b"").lower() or first.endswith(b"1.0")
    try:
        return Asked(path, dict(parse_qsl(query, max_num_fields=10)), match[1] == b"GET", close)
    except ValueError:
        return sentence(400, "there are too many parts in this question")


def is_ours(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header names this server: else a stranger's page could have its own name lead here, and read.

    Against that an address is as good as a name of ours: no stranger can have one lead elsewhere.
    """
    found = HOST.fullmatch(host)
    if not found:
        return False
    name = found[1].removesuffix(".")
    with suppress(ValueError):
        ipaddress.ip_address(name.strip("[]"))
        return True
    return name in names or name.endswith(".localhost")


def normalize(answer: Answer, asked: Asked | None) -> bytes:
    """An answer's bytes, for the request at hand."""
    fields = {
        **HEADERS,
        "Content-Type": answer.type,
        "Content-Length": str(len(answer.body)),
        "Content-Security-Policy": answer.policy,
        **({"Allow": "GET, HEAD"} if answer.status == HTTPStatus.METHOD_NOT_ALLOWED else {}),
        "Connection": "close" if asked is None or asked.close else "keep-alive",
    }
    head = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{head}\r\n".encode("latin-1") + (answer.body if asked is None or asked.body else b"")


class Server:
    """Who listens: every connection is a loop of a request and its answer."""

    def __init__(self, give: Give, names: frozenset[str]) -> None:
        self._give, self._names = give, names
        self._open = 0

    async def listen(self, address: str, port: int) -> asyncio.Server:
        """Begin to answer."""
        return await asyncio.start_server(self._talk, address, port, limit=HEAD)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(0)  # an answer is sent when the kernel has all of it
        self._open += 1
        try:
            while self._open <= OPEN and await self._exchange(reader, writer):
                pass
            writer.close()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            writer.transport.abort()  # the client is slow, gone, or sends what is no request; or the program ends
        finally:
            self._open -= 1

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether there may be another."""
        async with asyncio.timeout(ASKING):
            head = await reader.readuntil(b"\r\n\r\n")
        asked = parse(head, self._names)
        if isinstance(asked, Answer):
            writer.write(normalize(asked, None))
        else:
            writer.write(normalize(await self._give(asked), asked))
        async with asyncio.timeout(TAKING):
            await writer.drain()
        return isinstance(asked, Asked) and not asked.close


class Readers:
    """A few threads that read the store. They end with the program, even while a mount hangs."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        for _ in range(READERS):
            threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while True:
            call, future = self._calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
                future.set_exception(error)

    async def run(self, call: Callable[[], Any]) -> Any:
        """What a call returns or raises, when one of the threads has made it."""
        future: Future[Any] = Future()
        self._calls.put((call, future))
        return await asyncio.wrap_future(future)


@dataclass(slots=True)
class Look:
    """A question to the store: still open, or answered at a time of the monotonic clock."""

    task: asyncio.Task[Any]
    ended: float = float("inf")

    def end(self, _: object) -> None:
        """It is answered."""
        self.ended = time.monotonic()


class Shared:
    """Answers that many may want: each is looked for once at a time, and kept for a moment."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._looks: dict[object, Look] = {}

    async def get(self, what: object, call: Callable[[], Any], fresh: float) -> Any:
        """What the call returns or raises, or did in the last `fresh` seconds."""
        look = self._looks.get(what)
        if look is None or time.monotonic() - look.ended > fresh:
            look = self._begin(what, call)
        try:
            return await asyncio.wait_for(asyncio.shield(look.task), STORE)
        except TimeoutError:
            raise StoreAway(f"the store has not answered for {STORE:.0f} s; is the mount still there?") from None

    def _begin(self, what: object, call: Callable[[], Any]) -> Look:
        self._looks.pop(what, None)
        old = [name for name, look in self._looks.items() if look.task.done()]
        for name in old[: max(len(self._looks) - REMEMBERED + 1, 0)]:
            del self._looks[name]
        if len(self._looks) >= REMEMBERED:
            raise StoreAway("too many questions wait for the store; ask again in a moment")
        look = self._looks[what] = Look(asyncio.create_task(self._readers.run(call)))
        look.task.add_done_callback(look.end)
        return look
