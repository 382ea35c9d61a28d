"""An exchange: a request and its response as they went over the wire, for WARC files.

Chunks are joined, as libcurl and urllib3 give them, and `Transfer-Encoding` is then called `X-Orig-Transfer-Encoding`
(as Browsertrix does): a reader that believed the old name would look for chunks. The body stays compressed. What came
by HTTP/2 is written as HTTP/1.1, the only form that WARC readers know.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlsplit

from crawler.fetch.request import HARMLESS, Request, Response

WITHHELD = b"(withheld)"
_SHOWN = HARMLESS | {"user-agent", "accept-encoding"}  # all other request headers may hold secrets
_TRUNCATED = {"timeout": "time", "too-big": "length", "cut-short": "disconnect", "connect": "disconnect"}
UNSPECIFIED = "unspecified"


class Exchange(NamedTuple):
    """What was sent and what came back."""

    url: str
    request: bytes
    head: bytes  # of the response, with its empty line
    body: bytes  # before decoding
    address: str = ""  # of the server; unknown behind a proxy
    protocol: str = ""  # in the words of WARC-Protocol
    truncated: str = ""  # why the body is not whole, in the words of WARC-Truncated
    held: object = None  # while it lives, the body has its places: see `budget`

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        return len(self.request) + len(self.head) + len(self.body)


def exchange_of(request: Request, response: Response, has_proxy: bool, held: object) -> Exchange:
    """Return the exchange of a request and a response with its head."""
    protocol, head = _readable(response.head)
    return Exchange(
        url=request.target,
        request=_request_bytes(request),
        head=head,
        body=response.body,
        address="" if has_proxy else response.address,
        protocol=protocol,
        truncated=response.truncated,
        held=held,
    )


def _request_bytes(request: Request) -> bytes:
    """Return a request as it was sent, but without the values of headers that may hold secrets."""
    parts = urlsplit(request.target)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    lines = [f"GET {path} HTTP/1.1".encode("latin-1"), f"Host: {parts.netloc}".encode("latin-1")]
    for line in request.headers:
        name, _, value = line.encode("latin-1").partition(b":")
        shown = value.strip() if name.decode().lower() in _SHOWN else WITHHELD
        lines.append(name + b": " + shown)
    return b"\r\n".join([*lines, b"", b""])


def _readable(lines: tuple[bytes, ...]) -> tuple[str, bytes]:
    """Return the protocol of a response and its head, in a form that readers of WARC files know."""
    words = lines[0].split(None, 2)
    protocol, first = "http/1.1", lines[0].rstrip(b"\r\n")
    if not words[0].startswith(b"HTTP/1"):
        protocol, first = "h2", b"HTTP/1.1 %b %b" % (words[1], phrase(int(words[1])).encode())
    elif words[0] == b"HTTP/1.0":
        protocol = "http/1.0"
    rest = [line.rstrip(b"\r\n") for line in lines[1:]]
    return protocol, b"\r\n".join([first, *map(_without_chunks, rest), b"", b""])


def _without_chunks(line: bytes) -> bytes:
    return b"X-Orig-" + line if line[:18].lower() == b"transfer-encoding:" else line


def phrase(status: int) -> str:
    """Return the words that go with a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def truncated_by(reason: str) -> str:
    """Return why a body is not whole, in the words of WARC-Truncated, for a failure's reason."""
    return _TRUNCATED.get(reason, UNSPECIFIED)
