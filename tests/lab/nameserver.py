"""A real name server on loopback: answers from a table or a function, late or never, and logs what it was asked."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from threading import Event, Thread
from types import TracebackType
from typing import Any

TYPES = {1: "A", 28: "AAAA"}


class Trouble(Enum):
    """What a name can have instead of addresses; a number is the response code of the answer."""

    SERVFAIL = 2
    NXDOMAIN = 3
    REFUSED = 5
    SILENT = "no answer, ever"


Answer = Sequence[str] | Trouble
Answers = Mapping[str, Answer] | Callable[[str], Answer]


class NameServer:
    """Answers over UDP and TCP while its `with` block runs; a name that is not in the table does not exist."""

    def __init__(
        self, answers: Answers, delay: float = 0.0, ttl: int = 300, only_tcp: bool = False, port: int = 0
    ) -> None:
        self.queries: list[tuple[str, str]] = []  # name and type, in the order of arrival
        self.most_at_once = 0  # names that waited for their answer at the same time
        self.losses = 0  # that many of the next queries are lost on their way
        self._answers = answers
        self._delay = delay
        self._ttl = ttl
        self._only_tcp = only_tcp
        self._waiting: Counter[str] = Counter()
        self._tcp = socket.create_server(("127.0.0.1", port))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._udp.bind(("127.0.0.1", self.port))
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="name server", daemon=True)
        self._ready = Event()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> NameServer:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def asked(self, name: str) -> int:
        """How many queries came for the IPv4 addresses of a name."""
        return self.queries.count((name, "A"))

    def _run(self) -> None:
        for sock in (self._udp, self._tcp):
            sock.setblocking(False)
        self._loop.add_reader(self._udp, self._read_datagrams)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve_stream, sock=self._tcp))
        self._ready.set()
        self._loop.run_forever()
        self._loop.remove_reader(self._udp)
        self._udp.close()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def _read_datagrams(self) -> None:
        with suppress(BlockingIOError):
            while True:
                query, sender = self._udp.recvfrom(4096)
                if reply := self._reply(query, self._only_tcp):
                    name = self.queries[-1][0]
                    self._waiting[name] += 1
                    self.most_at_once = max(self.most_at_once, len(self._waiting))
                    self._loop.call_later(self._delay, self._send, reply, sender, name)

    def _send(self, reply: bytes, sender: Any, name: str) -> None:
        self._waiting[name] -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        with suppress(OSError):
            self._udp.sendto(reply, sender)

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                length = int.from_bytes(await reader.readexactly(2), "big")
                if reply := self._reply(await reader.readexactly(length), False):
                    await asyncio.sleep(self._delay)
                    writer.write(len(reply).to_bytes(2, "big") + reply)
        writer.close()

    def _reply(self, query: bytes, truncated: bool) -> bytes | None:
        """The answer to a message with one question; None if there is to be none."""
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii").lower())
            at += 1 + length
        name, kind = ".".join(labels), TYPES[int.from_bytes(query[at + 1 : at + 3], "big")]
        self.queries.append((name, kind))
        if self.losses:
            self.losses -= 1
            return None
        answer = self._answers(name) if callable(self._answers) else self._answers.get(name, Trouble.NXDOMAIN)
        if answer is Trouble.SILENT:
            return None
        code = answer.value if isinstance(answer, Trouble) else 0
        records = [] if truncated or isinstance(answer, Trouble) else self._records(answer, kind)
        flags = 0x8180 | code | (0x0200 if truncated else 0)
        return b"".join((query[:2], struct.pack("!5H", flags, 1, len(records), 0, 0), query[12 : at + 5], *records))

    def _records(self, addresses: Sequence[str], kind: str) -> list[bytes]:
        family, number = (socket.AF_INET, 1) if kind == "A" else (socket.AF_INET6, 28)
        packed = [socket.inet_pton(family, one) for one in addresses if (":" in one) == (kind == "AAAA")]
        return [struct.pack("!3HIH", 0xC00C, number, 1, self._ttl, len(one)) + one for one in packed]
