"""A server on loopback that plays a behaviour for each path: the table PLAYS, path to function(sock)."""

from __future__ import annotations

import gzip
import os
import socket
import ssl
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

# A play gets the connection after the request's head has been read. True: the next request may follow.
Play = Callable[[socket.socket], bool | None]

PLAYS: dict[str, Play] = {}
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
BODY = b"<title>hello</title>" + b"x" * 3000
NOISE = os.urandom(20_000)
# A play that goes on for ever ends after this many seconds, so that it ends some day.
PATIENCE = 600.0


def play(path: str) -> Callable[[Play], Play]:
    """Add a function to the table."""

    def enter(function: Play) -> Play:
        PLAYS[path] = function
        return function

    return enter


def says(path: str, answer: bytes, keep: bool = False) -> None:
    """Add a fixed response to the table."""

    def speak(sock: socket.socket) -> bool:
        sock.sendall(answer)
        return keep

    PLAYS[path] = speak


def whole(body: bytes, *headers: bytes, status: bytes = b"200 OK", kind: bytes = b"text/html") -> bytes:
    """Return a response with a correct Content-Length."""
    lines = [b"HTTP/1.1 " + status, b"Content-Type: " + kind, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(*chunks: bytes) -> bytes:
    """Return a chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def for_ever(sock: socket.socket, piece: bytes, pause: float = 0.0) -> None:
    """Send the same data repeatedly, until the client disconnects or the time limit is over."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        sock.sendall(piece)
        time.sleep(pause)


def drip(sock: socket.socket, data: bytes) -> None:
    """Send one byte after another."""
    for byte in data:
        sock.sendall(bytes([byte]))
        time.sleep(0.1)


def bomb(wbits: int, size: int) -> bytes:
    """Return `size` zeros, compressed, without the checksum, which no client should reach."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    # After a full flush nothing refers back, so the same bytes can be repeated.
    block = squeezer.compress(bytes(1 << 20)) + squeezer.flush(zlib.Z_FULL_FLUSH)
    start = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" if wbits == 31 else b"\x78\x9c"
    return start + block * (size >> 20) + b"\x03\0" + bytes(8)


def raw_deflate(data: bytes) -> bytes:
    """Return a deflate stream without zlib's header."""
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


# Ordinary answers
says("/", whole(BODY), keep=True)
says("/redirect", whole(b"moved", b"Location: /elsewhere", status=b"301 Moved"), keep=True)
says("/redirect-nowhere", whole(b"", status=b"302 Found"), keep=True)
says("/missing", whole(b"no such page", status=b"404 Not Found"), keep=True)
says("/untyped", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", keep=True)
says("/chunked", HTML + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"one ", b"two"), keep=True)
says("/until-close", HTML + b"\r\n" + BODY)
says("/gzip", whole(gzip.compress(BODY), b"Content-Encoding: gzip"), keep=True)
says("/gzip-twice", whole(gzip.compress(gzip.compress(BODY)), b"Content-Encoding: gzip, gzip"), keep=True)
says("/gzip-members", whole(gzip.compress(BODY) + gzip.compress(b"!"), b"Content-Encoding: gzip"), keep=True)
says("/gzip-junk", whole(gzip.compress(BODY) + b"junk", b"Content-Encoding: gzip"), keep=True)
says("/deflate", whole(zlib.compress(BODY), b"Content-Encoding: deflate"), keep=True)
says("/deflate-raw", whole(raw_deflate(BODY), b"Content-Encoding: deflate"), keep=True)
says("/early-hints", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + whole(BODY), keep=True)
says("/cookie", whole(BODY, b"Set-Cookie: a=1", b"Set-Cookie: b=2", b"X-Odd: caf\xe9\x07"), keep=True)
says("/robots-tags", whole(BODY, b"X-Robots-Tag: googlebot: noindex, none", b"x-robots-tag: nofollow"), keep=True)
says("/vary", whole(BODY, b"Vary: a", b"Vary: b"), keep=True)
COOKIE = "Set-Cookie: c=\u010d; Path=/".encode()
says("/cookie-utf8", whole(BODY, COOKIE), keep=True)
says("/cookie-redirect", whole(b"", b"Location: /", COOKIE, status=b"302 Found"), keep=True)
says("/cookie-missing", whole(b"", COOKIE, status=b"404 Not Found"), keep=True)
says("/slow-down", whole(b"", b"Retry-After: 120", status=b"429 Slow"), keep=True)
says(
    "/later",
    whole(
        b"",
        b"Date: Wed, 21 Oct 2015 07:28:00 GMT",
        b"Retry-After: Wed, 21 Oct 2015 07:29:30 GMT",
        status=b"503 Later",
    ),
    keep=True,
)
says("/next-year", whole(b"", b"Retry-After: 99999999999999999999", status=b"503 Later"), keep=True)
says("/some-day", whole(b"", b"Retry-After: soon", status=b"503 Later"), keep=True)

# Bodies that are not wanted
says("/big", HTML + b"Content-Length: 99999999\r\n\r\n")
says("/image", b"HTTP/1.1 200 OK\r\nContent-Type: Image/PNG; x=y\r\nContent-Length: 99999999\r\n\r\n")


@play("/image-for-ever")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n")
    for_ever(sock, b"x", 0.1)


@play("/redirect-for-ever")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 301 Moved\r\nLocation: /x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for_ever(sock, b"1\r\nx\r\n", 0.1)


# Endless and slow
@play("/endless-body")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"\r\n")
    for_ever(sock, bytes(65536))


@play("/slow-body")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Content-Length: 1000\r\n\r\n")
    for_ever(sock, b"x", 0.2)


@play("/silent")
def _(sock: socket.socket) -> None:
    time.sleep(PATIENCE / 2)


@play("/slow-headers")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    for_ever(sock, b"X: y\r\n", 0.2)


@play("/endless-line")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for_ever(sock, b"a" * 65536)


@play("/endless-headers")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 OK\r\n")
    for_ever(sock, b"X: y\r\n" * 1000)


@play("/continue-for-ever")
def _(sock: socket.socket) -> None:
    for_ever(sock, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


@play("/continue-slowly")
def _(sock: socket.socket) -> None:
    for_ever(sock, b"HTTP/1.1 100 Continue\r\n\r\n", 0.1)


@play("/hints-for-ever")
def _(sock: socket.socket) -> None:
    for_ever(sock, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 100)


@play("/hints-slowly")
def _(sock: socket.socket) -> None:
    for_ever(sock, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 0.1)


@play("/slow-status")
def _(sock: socket.socket) -> None:
    drip(sock, b"HTTP/1.1 200 " + b"O" * 10_000)


@play("/slow-line")
def _(sock: socket.socket) -> None:
    drip(sock, b"HTTP/1.1 200 OK\r\nX: " + b"y" * 10_000)


@play("/endless-status")
def _(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 200 ")
    for_ever(sock, b"O" * 65536)


@play("/endless-trailers")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")
    for_ever(sock, b"X: y\r\n" * 1000)


@play("/slow-trailers")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n")
    for_ever(sock, b"X: y\r\n", 0.1)


@play("/endless-chunks")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Transfer-Encoding: chunked\r\n\r\n")
    for_ever(sock, b"1\r\nx\r\n" * 10_000)


@play("/endless-extension")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Transfer-Encoding: chunked\r\n\r\n5;")
    for_ever(sock, b"x=y;" * 10_000)


@play("/extension-flood")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Transfer-Encoding: chunked\r\n\r\n")
    for_ever(sock, b"1;" + b"x" * 1000 + b"\r\nx\r\n")


says("/long-line", HTML + b"X: " + b"a" * 70_000 + b"\r\nContent-Length: 2\r\n\r\nhi")
says("/many-headers", HTML + b"".join(b"X-%d: y\r\n" % n for n in range(10_000)) + b"\r\nhi")

# Broken framing
says("/length-negative", HTML + b"Content-Length: -5\r\n\r\n" + BODY)
says("/length-words", HTML + b"Content-Length: many\r\n\r\n" + BODY)
says("/length-twice", HTML + b"Content-Length: 5\r\nContent-Length: 3020\r\n\r\n" + BODY)
says("/length-list", HTML + b"Content-Length: 5, 3020\r\n\r\n" + BODY)
says("/length-huge", HTML + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n" + BODY)
says(
    "/length-and-chunked",
    HTML + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(b"one ", b"two"),
)
says("/chunk-huge", HTML + b"Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\nhello")
says("/chunk-too-huge", HTML + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 40 + b"\r\nhello")
says("/chunk-no-end", HTML + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX5\r\nhello\r\n0\r\n\r\n")
says("/transfer-odd", HTML + b"Transfer-Encoding: gzip\r\n\r\n" + BODY)
says("/http2-garbage", b"\0\0\x12\x04\0\0\0\0\0" + bytes(18))
says("/switching", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nhello")
says("/no-content", b"HTTP/1.1 204 No Content\r\n\r\n", keep=True)
says("/no-content-but", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")
says("/reset-content", b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", keep=True)
says("/not-modified", b"HTTP/1.1 304 Not Modified\r\n\r\n", keep=True)
says("/status-999", whole(b"", status=b"999 Odd"), keep=True)
says("/status-000", whole(b"", status=b"000 Odd"))
says("/status-99", whole(b"", status=b"99 Odd"))
says("/status-1000", whole(b"", status=b"1000 Odd"))
says("/nul-header", whole(BODY, b"X: a\0b", b"Set-Cookie: a=\0b"))
says("/nul-name", whole(BODY, b"X\0Y: a"))
says("/folded", whole(BODY, b"X: a\r\n b\r\n\tc"), keep=True)
says("/no-colon", whole(BODY, b"this is no header"), keep=True)

# Redirects
says("/loop", whole(b"", b"Location: /loop", status=b"301 Moved"), keep=True)
says("/ping", whole(b"", b"Location: /pong", status=b"302 Found"), keep=True)
says("/pong", whole(b"", b"Location: /ping", status=b"307 Found"), keep=True)
for number in range(30):
    says(f"/chain/{number}", whole(b"", b"Location: /chain/%d" % (number + 1), status=b"308 Moved"), keep=True)
says("/chain/30", whole(BODY), keep=True)
for name, place in {
    "file": b"file:///etc/passwd",
    "script": b"javascript:alert(1)",
    "data": b"data:text/html,hello",
    "nothing": b"",
    "no-host": b"http:///",
    "bad-port": b"http://127.0.0.1:22/",
    "long": b"/" + b"x" * 60_000,
    "endless": b"/" + b"x" * 5_000_000,
}.items():
    says(f"/to-{name}", whole(b"", b"Location: " + place, status=b"302 Found"), keep=name != "endless")
says("/to-two", whole(b"", b"Location: /first", b"Location: /second", status=b"302 Found"), keep=True)
says("/to-utf8", whole(b"", "Location: /č".encode(), status=b"302 Found"), keep=True)
says("/to-private", whole(b"", b"Location: http://10.0.0.1/", status=b"302 Found"), keep=True)
says("/too-short", HTML + b"Content-Length: 5000\r\n\r\n" + BODY)
says("/too-long", HTML + b"Content-Length: 5\r\n\r\n" + BODY)
says("/chunk-negative", HTML + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + b"x" * 100_000)
says("/chunk-garbage", HTML + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n")
says("/chunk-missing", HTML + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
says("/chunk-cut", HTML + b"Transfer-Encoding: chunked\r\n\r\nffff\r\nhello")
says("/garbage", b"\x00\xff\xfe" * 100 + b"\r\n\r\n")
says("/http-0.9", b"<html>hello</html>")
says("/status-garbage", b"HTTP/1.1 abc OK\r\n\r\n")
says("/head-cut", b"HTTP/1.1 200 OK\r\nContent-Ty")


@play("/close")
def _(sock: socket.socket) -> None:
    return


@play("/reset")
def _(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@play("/half-closed")
def _(sock: socket.socket) -> None:
    sock.sendall(HTML + b"Content-Length: 5000\r\n\r\nhello")
    sock.shutdown(socket.SHUT_WR)
    time.sleep(PATIENCE / 2)


@play("/stale")
def _(sock: socket.socket) -> None:
    # Promises keep-alive, and disconnects when the next request has been sent.
    sock.sendall(whole(b"once"))
    sock.recv(65536)


# Compression
says("/gzip-bomb", whole(bomb(31, 1 << 30), b"Content-Encoding: gzip"))
says("/deflate-bomb", whole(bomb(15, 1 << 28), b"Content-Encoding: deflate"))
says("/gzip-bomb-twice", whole(gzip.compress(bomb(31, 1 << 28)), b"Content-Encoding: gzip, gzip"))
says(
    "/bomb-thrice", whole(gzip.compress(gzip.compress(gzip.compress(bytes(1 << 26)))), b"Content-Encoding: gzip, gzip")
)
says("/brotli-bomb", whole(b"\xcf" + bytes(1600), b"Content-Encoding: br"), keep=True)
says("/zstd", whole(b"\x28\xb5\x2f\xfd" + bytes(16), b"Content-Encoding: zstd"), keep=True)
says("/zstd-and-gzip", whole(gzip.compress(BODY), b"Content-Encoding: zstd, gzip"), keep=True)
says("/deflate-not", whole(b"\x78\x9c" + b"\xff" * 100, b"Content-Encoding: deflate"), keep=True)
says("/brotli", whole(b"\x0b\x01\x80hello\x03", b"Content-Encoding: br"), keep=True)
says("/gzip-cut", whole(gzip.compress(NOISE)[:5000], b"Content-Encoding: gzip"), keep=True)
says("/gzip-no-trailer", HTML + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(NOISE)[:-8])
says("/deflate-cut", whole(zlib.compress(NOISE)[:5000], b"Content-Encoding: deflate"), keep=True)
says("/gzip-not", whole(BODY, b"Content-Encoding: gzip"), keep=True)
says("/gzip-bad-sum", whole(gzip.compress(NOISE)[:-8] + b"12345678", b"Content-Encoding: gzip"), keep=True)
says("/gzip-thousandfold", whole(gzip.compress(b"") * 1000, b"Content-Encoding: gzip"), keep=True)
says("/many-codings", whole(BODY, b"Content-Encoding: gzip, gzip, gzip"), keep=True)
says("/odd-coding", whole(BODY, b"Content-Encoding: rot13"), keep=True)


# How a request for each of them must end: the reason, or one of two where it depends on who asks and how fast.
ENDINGS: dict[str, set[str]] = {
    "/endless-body": {"too-big", "timeout"},
    "/slow-body": {"timeout"},
    "/slow-headers": {"timeout"},
    "/silent": {"timeout"},
    "/endless-line": {"too-big"},
    "/endless-headers": {"too-big"},
    "/long-line": {"too-big"},
    "/many-headers": {"too-big"},
    "/continue-for-ever": {"too-big", "timeout"},
    "/continue-slowly": {"timeout"},
    "/too-short": {"cut-short"},
    "/half-closed": {"cut-short"},
    "/chunk-negative": {"bad-answer"},
    "/chunk-garbage": {"bad-answer"},
    "/chunk-missing": {"cut-short"},
    "/chunk-cut": {"cut-short"},
    "/garbage": {"bad-answer"},
    "/http-0.9": {"bad-answer"},
    "/status-garbage": {"bad-answer"},
    "/close": {"connect"},
    "/reset": {"connect"},
    "/gzip-cut": {"cut-short"},
    "/gzip-no-trailer": {"cut-short"},
    "/deflate-cut": {"cut-short"},
    "/gzip-not": {"bad-coding"},
    "/gzip-bad-sum": {"bad-coding"},
    "/gzip-thousandfold": {"bad-coding"},
    "/many-codings": {"bad-coding"},
    "/odd-coding": {"bad-coding"},
    "/brotli": {"bad-coding"},
    "/gzip-bomb": {"too-big"},
    "/deflate-bomb": {"too-big"},
    "/gzip-bomb-twice": {"too-big"},
    "/brotli-bomb": {"bad-coding"},
    "/zstd": {"bad-coding"},
    "/zstd-and-gzip": {"bad-coding"},
    "/deflate-not": {"bad-coding"},
    "/transfer-odd": {"bad-coding"},
    "/hints-for-ever": {"too-big", "timeout"},
    "/hints-slowly": {"timeout"},
    "/slow-status": {"timeout"},
    "/slow-line": {"timeout"},
    "/endless-status": {"too-big"},
    "/endless-trailers": {"too-big", "timeout", "bad-answer"},  # the last by http.client of 3.14, which counts them
    "/slow-trailers": {"timeout"},
    "/endless-chunks": {"too-big", "timeout"},
    "/endless-extension": {"bad-answer", "timeout"},
    "/extension-flood": {"timeout"},
    "/length-negative": {"bad-answer"},
    "/length-words": {"bad-answer"},
    "/length-twice": {"bad-answer"},
    "/length-list": {"bad-answer"},
    "/length-huge": {"too-big"},
    "/chunk-huge": {"cut-short"},
    "/chunk-too-huge": {"bad-answer"},
    "/chunk-no-end": {"bad-answer"},
    "/http2-garbage": {"bad-answer"},
    "/switching": {"http-101"},
    "/not-modified": {"http-304"},
    "/status-999": {"http-999"},
    "/status-000": {"bad-answer"},
    "/status-99": {"bad-answer"},
    "/status-1000": {"bad-answer"},
    "/nul-header": {"bad-answer"},
    "/nul-name": {"bad-answer"},
    "/no-colon": {"bad-answer"},
    "/head-cut": {"cut-short"},
    "/to-nothing": {"bad-redirect"},
    "/to-endless": {"too-big"},
    "/to-two": {"bad-answer"},
}


class Server:
    """Accepts connections on loopback, and records how many there were and what was requested."""

    def __init__(self, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.listener = socket.create_server((address, 0), family=family)
        self.port: int = self.listener.getsockname()[1]
        self.tls = tls
        self.connections = 0
        self.heads: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, path: str = "/", scheme: str = "http") -> str:
        """Return the URL of a path here."""
        return f"{scheme}://127.0.0.1:{self.port}{path}"

    def close(self) -> None:
        """Accept no more."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def answer(self, sock: socket.socket, head: str) -> bool | None:
        """Play the behaviour of the path."""
        return PLAYS[head.split(" ")[1].partition("?")[0]](sock)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock = self.listener.accept()[0]
                self.connections += 1
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            if self.tls:
                sock = self.tls.wrap_socket(sock, server_side=True)
            sock.settimeout(PATIENCE)
            with sock:
                while head := read_head(sock):
                    self.heads.append(head)
                    if not self.answer(sock, head):
                        break


class Proxy(Server):
    """A small real proxy: absolute URLs and CONNECT, both forwarded to one server."""

    def __init__(self, behind: Server) -> None:
        self.behind = behind
        super().__init__()

    def answer(self, sock: socket.socket, head: str) -> bool | None:
        with socket.create_connection(("127.0.0.1", self.behind.port)) as far:
            if head.startswith("CONNECT "):
                sock.sendall(b"HTTP/1.1 200 Connection established\r\nX-Proxy: yes\r\n\r\n")
            else:
                method, url, rest = head.split(" ", 2)
                far.sendall(f"{method} /{url.split('/', 3)[3]} {rest}\r\n\r\n".encode("latin-1"))
            back = threading.Thread(target=_pour, args=(far, sock), daemon=True)
            back.start()
            _pour(sock, far)
            back.join(PATIENCE)
        return False


def read_head(sock: socket.socket) -> str:
    """Return a request's head without its end; empty when the client has disconnected."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return ""
        data += piece
    return data.partition(b"\r\n\r\n")[0].decode("latin-1")


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def serving(tls: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> Iterator[Server]:
    """Yield a server, and close it afterwards."""
    server = Server(tls, address)
    try:
        yield server
    finally:
        server.close()
