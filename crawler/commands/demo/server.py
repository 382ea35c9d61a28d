"""The embedded web's HTTP/1.1 server, one address for all hosts, and the log of what it was asked."""

from __future__ import annotations

import asyncio
import gzip
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from crawler.commands.demo.web import ROBOTS, Answer, Web

HEAD_LIMIT = 65536
LINE = re.compile(rb"(GET|HEAD) (?:http://([^/ ]+))?(/[!-~]*) HTTP/1\.([01])")
LEFT = 499  # in the log: the client went away before its answer was due
REASONS = {status.value: status.phrase for status in HTTPStatus}
BAD = Answer(400, (("Content-Type", "text/plain"),), b"bad request")


class Request(NamedTuple):
    """One line of the log; times are of the monotonic clock."""

    start: float
    end: float
    host: str
    path: str
    status: int


class Asked(NamedTuple):
    """A request's head, as far as it matters here."""

    host: str
    path: str
    body: bool
    close: bool
    squeeze: bool


Note = Callable[[Request], object]


def parse(head: bytes) -> Asked | None:
    """A request's head, or None when it is not one that we answer."""
    first, *lines = head.split(b"\r\n")
    match = LINE.fullmatch(first)
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    if not match or not (match[2] or fields.get(b"host")):
        return None
    host = (match[2] or fields[b"host"]).decode("latin-1").lower().removesuffix(":80")
    if not host.isprintable():
        return None
    wish = fields.get(b"connection", b"" if match[4] == b"1" else b"close").lower()
    squeeze = b"gzip" in fields.get(b"accept-encoding", b"")
    return Asked(host, match[3].decode("ascii"), match[1] == b"GET", b"close" in wish, squeeze)


def normalize(asked: Asked, answer: Answer) -> bytes:
    """An answer's bytes, for the request at hand."""
    body, headers = answer.body, dict(answer.headers)
    if answer.squeeze and asked.squeeze:
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    if asked.close:
        headers["Connection"] = "close"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Odd')}\r\n{lines}\r\n"
    return head.encode("latin-1") + (body if asked.body else b"")


class Conversation(asyncio.Protocol):
    """One connection: requests are answered in their order, one at a time."""

    def __init__(self, web: Web, note: Note, talks: set[asyncio.Transport]) -> None:
        self.web, self.note, self.talks = web, note, talks
        self.buffer = bytearray()
        self.slow: asyncio.TimerHandle | None = None
        self.left: Callable[[], object] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.talks.add(transport)

    def data_received(self, data: bytes) -> None:
        """Answer what has come in whole."""
        self.buffer += data
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the answer that nobody waits for, but not that it was asked for."""
        self.talks.discard(self.transport)
        if self.slow and self.left:
            self.slow.cancel()
            self.left()

    def _go_on(self) -> None:
        while not self.slow and not self.transport.is_closing():
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0 and len(self.buffer) <= HEAD_LIMIT:
                return
            head = bytes(self.buffer[: max(end, 0)])
            del self.buffer[: end + 4]
            self._answer(parse(head))

    def _answer(self, asked: Asked | None) -> None:
        start = time.monotonic()
        answer = self.web.answer(asked.host, asked.path) if asked else BAD
        asked = asked or Asked("", "", True, True, False)
        if not answer.delay:
            return self._send(start, asked, answer)
        self.left = lambda: self.note(Request(start, time.monotonic(), asked.host, asked.path, LEFT))
        self.slow = asyncio.get_running_loop().call_later(answer.delay, self._send_late, start, asked, answer)
        return None

    def _send_late(self, start: float, asked: Asked, answer: Answer) -> None:
        self.slow = None
        self._send(start, asked, answer)
        self._go_on()

    def _send(self, start: float, asked: Asked, answer: Answer) -> None:
        data = normalize(asked, answer)
        # Noted before it is sent: who has the answer finds it in the log, and no gap looks too short.
        self.note(Request(start, time.monotonic(), asked.host, asked.path, answer.status))
        self.transport.write(data)
        if asked.close:
            self.transport.close()


async def _serve(web: Web, listener: socket.socket, note: Note, lifeline: int) -> None:
    """Serve until something comes by the lifeline, a pipe: a byte from `close`, or the end of its owner."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    loop.add_reader(lifeline, over.set)
    talks: set[asyncio.Transport] = set()
    server = await loop.create_server(lambda: Conversation(web, note, talks), sock=listener)
    await over.wait()
    loop.remove_reader(lifeline)
    server.close()
    for transport in [*talks]:
        transport.abort()
    await asyncio.sleep(0)  # lets the conversations note what they leave unanswered


def _noter(path: Path) -> Note:
    file = path.open("a", buffering=1, encoding="utf-8")
    return lambda request: file.write("{:.6f}\t{:.6f}\t{}\t{}\t{}\n".format(*request))


class Server:
    """A web being served, by a thread of this process or by a process that ends with this one."""

    def __init__(self, web: Web, address: tuple[str, int], path: Path | None, process: bool) -> None:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        listener = socket.create_server(address, family=family, backlog=1024)
        self.port: int = listener.getsockname()[1]
        self._path = path
        self._noted: list[Request] = []
        self._child: subprocess.Popen[bytes] | None = None
        if not process:
            self._start_thread(web, listener)
        elif path is None:
            raise ValueError("a server in a process of its own needs a log file")
        else:
            self._start_process(web, listener, path)

    def _start_thread(self, web: Web, listener: socket.socket) -> None:
        note = _noter(self._path) if self._path else self._noted.append
        self._near, self._far = os.pipe()
        task = _serve(web, listener, note, self._near)
        self._thread = threading.Thread(target=asyncio.run, args=(task,), name="web", daemon=True)
        self._thread.start()

    def _start_process(self, web: Web, listener: socket.socket, path: Path) -> None:
        path.touch()
        number = listener.fileno()
        code = "from crawler.commands.demo.server import child; child()"
        command = [sys.executable, "-c", code, str(number), str(path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # Born deaf to Ctrl-C, which reaches the whole group: the crawler still wants the answers it is waiting for.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number], env=environment)
        signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        listener.close()
        assert self._child.stdin
        pickle.dump(web, self._child.stdin)
        self._child.stdin.flush()

    @property
    def log(self) -> list[Request]:
        """All requests so far, in the order in which they were answered."""
        return read_log(self._path) if self._path else [*self._noted]

    def wait(self) -> None:
        """Serve until interrupted."""
        self._child.wait() if self._child else self._thread.join()

    def close(self) -> None:
        """Stop serving; the log stays readable."""
        if self._child:
            assert self._child.stdin
            with suppress(BrokenPipeError), self._child.stdin as far:
                far.write(b".")
            self._child.wait(60)
        elif self._thread.is_alive():
            # Said, not only closed: a process forked meanwhile may hold the pipe open.
            os.write(self._far, b".")
            self._thread.join(60)
            os.close(self._near)
            os.close(self._far)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


def serve(
    web: Web,
    address: tuple[str, int] = ("127.0.0.1", 0),
    log: Path | str | None = None,
    process: bool = False,
) -> Server:
    """Serve a web at an address; with `log`, requests are appended to that file as they are answered."""
    return Server(web, address, Path(log) if log else None, process)


def child() -> None:
    """Serve, in a process of its own, the web that comes by standard input, until that is closed."""
    try:
        web = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # whoever started us has ended
        return
    listener = socket.socket(fileno=int(sys.argv[1]))
    asyncio.run(_serve(web, listener, _noter(Path(sys.argv[2])), sys.stdin.fileno()))


def read_log(path: Path | str) -> list[Request]:
    """The requests in a log file; a line that is still being written is left for later."""
    lines = Path(path).read_text(encoding="utf-8").split("\n")[:-1]
    fields = (line.split("\t") for line in lines)
    return [Request(float(start), float(end), host, way, int(status)) for start, end, host, way, status in fields]


def asked_twice(log: Iterable[Request]) -> dict[str, int]:
    """URLs asked for again although their answer was final, with how often; not robots.txt, not 5xx."""
    final = (r for r in log if r.status < 500 and r.status not in (400, 429) and not r.path.endswith(ROBOTS))
    counts = Counter(f"http://{r.host}{r.path}" for r in final)
    return {url: count for url, count in counts.items() if count > 1}


def gaps(log: Iterable[Request]) -> dict[str, float]:
    """Each host's shortest time from the end of one answer to the next request; below 0 when they overlap."""
    shortest: dict[str, float] = {}
    ends: dict[str, float] = {}
    for request in sorted(log):
        if request.host in ends:
            gap = request.start - ends[request.host]
            shortest[request.host] = min(gap, shortest.get(request.host, gap))
        ends[request.host] = max(request.end, ends.get(request.host, request.end))
    return shortest
