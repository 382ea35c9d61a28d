"""The sort key of a URL in a CDXJ index: its host reversed, its path and query simplified (SURT).

The rules are those of the tools of web archives (the Internet Archive's `surt`, which pywb asks with), so that they
find what is indexed here.
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

_PRINTABLE = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_WWW = re.compile(r"www\d*\.")
_PORTS = {"http": 80, "https": 443}
_PATH_SESSIONS = [
    re.compile(r"(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)"),
    re.compile(r"(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)"),
]
_QUERY_SESSIONS = [
    re.compile(rf"(.*)(?:{session})(?:&(.*))?", re.IGNORECASE)
    for session in (
        "jsessionid=[0-9a-z]{32}",
        "phpsessid=[0-9a-z]{32}",
        "sid=[0-9a-z]{32}",
        "aspsessionid[a-z]{8}=[a-z]{24}",
        "cfid=[^&]+&cftoken=[^&]+",
    )
]


def surt(url: str) -> str:
    """Return the key of a normalized URL: `org,example)/path?query`."""
    parts = urlsplit(url)
    host = _WWW.sub("", parts.hostname or "", count=1) if _WWW.match(parts.hostname or "") else parts.hostname or ""
    port = f":{parts.port}" if parts.port and parts.port != _PORTS.get(parts.scheme) else ""
    query = _query(_escape(parts.query))
    return ",".join(reversed(host.split("."))) + port + ")" + _path(parts.path) + (f"?{query}" if query else "")


def _path(path: str) -> str:
    path = _escape(_joined(_unescape(path).split(b"/")[1:])).lower()
    for session in _PATH_SESSIONS:
        if found := session.fullmatch(path):
            path = found[1] + found[2]
    return path[:-1] if path.endswith("/") and len(path) > 1 else path


def _joined(parts: list[bytes]) -> bytes:
    """Return a path without `.`, `..` and empty parts; a slash at its end stays."""
    kept: list[bytes] = []
    for part in parts:
        if part == b".." and kept:
            kept.pop()
        elif part != b".":
            kept.append(part)
    last = kept.pop() if kept else b""
    return b"/" + b"".join(part + b"/" for part in kept if part) + last


def _query(query: str) -> str:
    for session in _QUERY_SESSIONS:
        if found := session.fullmatch(query):
            query = found[1] + (found[2] or "")
    if len(query) <= 1:
        return query.lower()
    pairs = sorted(tuple(argument.split("=", 1)) for argument in query.lower().split("&"))
    return "&".join("=".join(pair) for pair in pairs)


def _unescape(text: str | bytes) -> bytes:
    """Return text without percent-encoding, however often it was encoded."""
    while (found := unquote_to_bytes(text)) != (text if isinstance(text, bytes) else text.encode()):
        text = found
    return found


def _escape(text: str | bytes) -> str:
    return quote_from_bytes(_unescape(text), safe=_PRINTABLE)
