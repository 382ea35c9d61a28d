"""Serve a demo web: one address for all its hosts, and a log of all requests."""

from __future__ import annotations

import gzip
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from crawler.commands.demo.web import ROBOTS, Web, WebReply
from crawler.commands.http_server import HttpConnection, HttpRequest, HttpServer, Reply, listen

CLIENT_LEFT = 499  # logged when a client closes its connection before its reply is due
TCP_INFO = getattr(socket, "TCP_INFO", None)  # Linux
SINCE = struct.Struct("=52xII")  # in it: the milliseconds since the client's last bytes, and its last packet
SLACK = 0.1  # seconds: the kernel's clock for these is less exact than ours, and no gap may look shorter than it was
BAD_REQUEST = Reply(400, (("Content-Type", "text/plain"),), b"bad request", close=True)


class LoggedRequest(NamedTuple):
    """One line of the log; times are of the monotonic clock.

    It starts when it has arrived, and ends when it is answered or its client has left: by the kernel, because a server
    that has no CPU reads and answers requests together that came long after each other.
    """

    start: float
    end: float
    host: str
    path: str
    status: int


Log = Callable[[LoggedRequest], object]


class WebConnection(HttpConnection):
    """A client of the demo web."""

    server: WebServer

    def respond(self, request: HttpRequest) -> Reply | None:
        """Return what the web has at this URL, after its delay."""
        start = time.monotonic() - max(self._since()[0] - SLACK, 0.0)
        fields = dict(request.fields)
        host, path = _host_and_path(request.target, fields.get("host", ""))
        if request.method not in ("GET", "HEAD") or not host.isprintable() or not host or not path:
            return self.bad_request(oversized=False)
        with self.server.lock:
            found = self.server.web.reply(host, path)
        if found.delay and self.client_left(within=found.delay):
            self.server.log(LoggedRequest(start, self._end(start), host, path, CLIENT_LEFT))
            return None
        reply = _compress(found) if found.compress and "gzip" in fields.get("accept-encoding", "") else found
        # Logged before it is sent: a client that has its reply finds it in the log.
        self.server.log(LoggedRequest(start, self._end(start), host, path, reply.status))
        return reply

    def _end(self, start: float) -> float:
        """Return when the client left, or else that it is now."""
        now, since = time.monotonic(), self._since()[1] if self.client_left(within=0) else 0.0
        return max(now - since - SLACK, start) if since > SLACK else now

    def _since(self) -> tuple[float, float]:
        """Return the seconds since the client's last bytes, and since its last packet; 0 if that is not known."""
        if TCP_INFO is None:
            return 0.0, 0.0
        bytes_, packet = SINCE.unpack(self.request.getsockopt(socket.IPPROTO_TCP, TCP_INFO, SINCE.size))
        return bytes_ / 1000, packet / 1000

    def bad_request(self, oversized: bool) -> Reply:
        """Log it, and say so."""
        now = time.monotonic()
        self.server.log(LoggedRequest(now, now, "", "", BAD_REQUEST.status))
        return BAD_REQUEST


def _host_and_path(target: str, host: str) -> tuple[str, str]:
    """Return the host and the path of a request, which may be one to a proxy; an empty path is an error."""
    if target.startswith("http://"):
        host, slash, path = target[len("http://") :].partition("/")
        target = slash + path
    return host.lower().removesuffix(":80"), target if target.startswith("/") else ""


def _compress(reply: WebReply) -> Reply:
    body = gzip.compress(reply.body, compresslevel=1, mtime=0)
    return replace(reply, headers=(*reply.headers, ("Content-Encoding", "gzip")), body=body)


class WebServer(HttpServer):
    """A demo web that is served by threads of this process."""

    def __init__(self, web: Web, listener: socket.socket, log: Log) -> None:
        super().__init__(listener, WebConnection)
        self.web, self.log = web, log
        self.lock = threading.Lock()  # webs are not thread-safe
        self.start()


def _append_to(path: Path) -> Log:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    return lambda request: os.write(file, "{:.6f}\t{:.6f}\t{}\t{}\t{}\n".format(*request).encode())


class ServedWeb:
    """A demo web that is served, by threads of this process or by a process that ends with this one."""

    def __init__(self, web: Web, address: tuple[str, int], path: Path | None, process: bool) -> None:
        listener = listen(*address)
        self.port: int = listener.getsockname()[1]
        self._path = path
        self._logged: list[LoggedRequest] = []
        self._child: subprocess.Popen[bytes] | None = None
        if not process:
            self._server = WebServer(web, listener, _append_to(path) if path else self._logged.append)
        elif path is None:
            raise ValueError("a server in a process of its own needs a log file")
        else:
            self._start_process(web, listener, path)

    def _start_process(self, web: Web, listener: socket.socket, path: Path) -> None:
        path.touch()
        number = listener.fileno()
        code = "from crawler.commands.demo.server import child; child()"
        command = [sys.executable, "-c", code, str(number), str(path)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        # Ctrl-C reaches the whole process group, but the crawler still waits for the replies to its open requests.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[number], env=environment)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        listener.close()
        assert self._child.stdin
        pickle.dump(web, self._child.stdin)
        self._child.stdin.flush()

    @property
    def log(self) -> list[LoggedRequest]:
        """All requests so far, in the order of their replies."""
        return read_log(self._path) if self._path else [*self._logged]

    def close(self) -> None:
        """Stop serving; the log stays readable."""
        if not self._child:
            return self._server.close()
        assert self._child.stdin
        # Written, not only closed: a process forked meanwhile may hold the pipe open.
        with suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(b".")
        self._child.wait(60)
        return None

    def __enter__(self) -> ServedWeb:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


def serve(
    web: Web,
    address: tuple[str, int] = ("127.0.0.1", 0),
    log: Path | str | None = None,
    process: bool = False,
) -> ServedWeb:
    """Serve a web at an address; with `log`, requests are appended to that file."""
    return ServedWeb(web, address, Path(log) if log else None, process)


def child() -> None:
    """Serve the web that is pickled on standard input, in a process of its own, until that is closed."""
    try:
        web = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # the parent has ended
        return
    server = WebServer(web, socket.socket(fileno=int(sys.argv[1])), _append_to(Path(sys.argv[2])))
    sys.stdin.buffer.read(1)
    server.close()


def read_log(path: Path | str) -> list[LoggedRequest]:
    """Return the requests in a log file, without a line that is still being written."""
    lines = Path(path).read_text(encoding="utf-8").split("\n")[:-1]
    fields = (line.split("\t") for line in lines)
    return [LoggedRequest(float(start), float(end), host, way, int(status)) for start, end, host, way, status in fields]


def requested_twice(log: Iterable[LoggedRequest]) -> dict[str, int]:
    """Return the URLs that were requested again after a final reply, with how often; not robots.txt, not 5xx."""
    final = (r for r in log if r.status < 500 and r.status not in (400, 429) and not r.path.endswith(ROBOTS))
    counts = Counter(f"http://{r.host}{r.path}" for r in final)
    return {url: count for url, count in counts.items() if count > 1}
