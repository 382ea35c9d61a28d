"""Records (links/) and failure records (errs/): one line of JSON each, with times that sort as text. Pure."""

from __future__ import annotations

import calendar
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from crawler.settings.settings import Settings
from crawler.web import kinds, urls
from crawler.web.page import Failure, Fetched, Reading
from crawler.web.text import masked

MAX_HEADERS, MAX_HEADER_BYTES = 64, 8 << 10  # of a response that are kept in its record
# Headers with which a server knows us, or asks who we are.
PRIVATE_HEADERS = frozenset(
    {
        "set-cookie",
        "set-cookie2",
        "www-authenticate",
        "proxy-authenticate",
        "authentication-info",
        "proxy-authentication-info",
        "authorization",
        "proxy-authorization",
        "cookie",
    }
)
MAX_DEPTH = 10**9  # links away from a seed: as many digits as a line of a batch can hold


def build_record(
    page: Fetched, reading: Reading | None, depth: int, links: Iterable[str], when: float, html: bytes | None = None
) -> dict[str, Any]:
    """Return the record of a page, with its `html` as it is stored; a redirect has no reading and no html."""
    came = _hash(page) if reading else None
    stored: dict[str, Any] = {}
    if reading and page.is_file:
        stored["file"] = f"{urls.key(page.url)}.{kinds.extension(page.kind)}"
    elif html is not None:  # most pages are stored as they came
        stored["html_sha224"] = came if html == page.body else html_hash(html)
    return {
        "url": page.url,
        "status": page.status,
        "fetched": utc(when),
        "depth": depth,
        "type": page.kind,
        "charset": (reading.charset or None) if reading else None,
        "title": reading.title if reading else None,
        "bytes": page.saved.size if page.saved else len(page.body),
        "sha224": came,
        **stored,
        **({"text_sha224": reading.visible} if reading and reading.visible else {}),
        "etag": page.headers.get("etag"),
        "last_modified": page.headers.get("last-modified"),
        "headers": kept_headers(page.headers),
        "capped": bool(reading and reading.capped),
        "robots": list(reading.robots) if reading else [],
        "links": list(links),
    }


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a response as its record keeps them: without cookies and passwords, and not too many."""
    kept: dict[str, str] = {}
    left = MAX_HEADER_BYTES
    for name, value in headers.items():
        value = masked(value) if "@" in value else value
        size = len(name) + len(value)
        if name not in PRIVATE_HEADERS and size <= left and len(kept) < MAX_HEADERS:
            kept[name] = value
            left -= size
    return kept


def _hash(page: Fetched) -> str:
    return page.saved.sha224 if page.saved else hashlib.sha224(page.body).hexdigest()


def html_hash(html: bytes) -> str:
    """Return the hash by which `crawler check` knows an html again."""
    return hashlib.sha224(html).hexdigest()


def failure_record(name: str, failure: Failure, attempts: int, depth: int | None, when: float) -> dict[str, Any]:
    """Return why a URL will not be requested again; `depth` is where it would be if it were."""
    return {
        "url": name,
        "reason": failure.reason,
        "detail": failure.detail,
        "attempts": attempts,
        "depth": depth,
        "when": utc(when),
    }


def links_of(record: Mapping[str, Any]) -> list[str]:
    """Return the links in a record; people edit records, so check `urls.is_safe` before requesting one."""
    links = record.get("links")
    return [link for link in links if isinstance(link, str)] if isinstance(links, list) else []


def depth_of(record: Mapping[str, Any], unknown: int = 0) -> int:
    """Return the depth in a record or failure record; `unknown` if it has none that makes sense."""
    depth = record.get("depth")
    return depth if isinstance(depth, int) and 0 <= depth < MAX_DEPTH else unknown


def assumed_depth(settings: Settings) -> int:
    """Return the depth to assume where none is known: the largest allowed, because depth 0 would widen the scope."""
    return 1 if settings.depth is None else settings.depth


def mark_of(failure: Mapping[str, Any]) -> str:
    """Return a short hash that tells a failure record from a later one of the same URL."""
    return urls.key(json.dumps(failure))[:8]


def to_json(value: dict[str, Any]) -> bytes:
    """Return one line of ASCII JSON, so that `cat links/*/*` is a JSON Lines file."""
    return json.dumps(value).encode("ascii") + b"\n"


def utc(when: float) -> str:
    """Return a time as ISO 8601 text, which sorts by time."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def from_utc(text: str) -> float:
    """Return the time that `utc` wrote; 0 if the text is not a time."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0
