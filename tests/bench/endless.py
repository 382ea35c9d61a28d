"""An endless web for measuring growth: 1 KB pages on many hosts, each with ten links that no other page has.

What a page holds is a pure function of its number, so the server keeps nothing and costs a fraction of what a crawler
does with the page (26 microseconds, where a crawler takes milliseconds).
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_longlong
from dataclasses import dataclass
from multiprocessing.connection import Connection

HOSTS = 1000
NEW, KNOWN = 10, 5  # links of a page: to pages that it alone leads to, and to some that are known already
SIZE = 1024


def url(number: int) -> str:
    """The URL of a page."""
    return f"http://host-{number * 2654435761 % (1 << 32) % HOSTS:03d}.test/{number}"


def links(number: int) -> list[int]:
    """The pages that a page leads to: a tree, and some further links between its branches."""
    new = range(NEW * number + 1, NEW * number + NEW + 1)
    return [*new, *(number * (7919 + 2 * k) % (NEW * number + 1) for k in range(KNOWN))]


def page(number: int) -> bytes:
    """The html of a page."""
    anchors = "\n".join(f'<a href="{url(to)}">{to}</a>' for to in links(number))
    return f"<html><head><title>{number}</title></head>\n{anchors}\n".ljust(SIZE, ".").encode()


@dataclass(frozen=True, slots=True)
class Endless:
    """A running server: its port, how many pages it was asked, and which was the first since that was set to 0."""

    port: int
    asked: c_longlong
    first: c_longlong


class _Protocol(asyncio.Protocol):
    """HTTP/1.1 with keep-alive, for clients that ask one thing at a time and send no body."""

    def __init__(self, asked: c_longlong, first: c_longlong) -> None:
        self._asked, self._first = asked, first
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._head.endswith(b"\r\n\r\n"):
            self._answer(int(self._head.split(b" ", 2)[1][1:] or b"0"))
            self._head = b""

    def _answer(self, number: int) -> None:
        if not self._asked.value:
            self._first.value = number
        self._asked.value += 1
        body = page(number)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % len(body)
        self._transport.write(head + body)


@contextmanager
def serve() -> Iterator[Endless]:
    """The web on a port of loopback, in a process of its own; the numbers are in memory that both share."""
    context = multiprocessing.get_context("spawn")
    asked, first = context.RawValue(c_longlong), context.RawValue(c_longlong)
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, asked, first), daemon=True)
    process.start()
    try:
        yield Endless(ours.recv(), asked, first)
    finally:
        process.kill()
        process.join()


def _run(pipe: Connection, asked: c_longlong, first: c_longlong) -> None:
    asyncio.run(_listen(pipe, asked, first))


async def _listen(pipe: Connection, asked: c_longlong, first: c_longlong) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: _Protocol(asked, first), "127.0.0.1", backlog=1024)
    pipe.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
