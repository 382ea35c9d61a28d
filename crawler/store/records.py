"""What stands in links/ and errs/: JSON of one line, with times that people and jq sort. Pure."""

from __future__ import annotations

import calendar
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from crawler.settings import Settings
from crawler.web import urls
from crawler.web.page import Fetched, Reading

DEEPEST = 10**9  # links away from a seed: as many digits as a batch can hold


def build_record(
    page: Fetched, reading: Reading | None, depth: int, links: Iterable[str], when: float
) -> dict[str, Any]:
    """The record of a page; a redirect has no reading and so no html."""
    return {
        "url": page.url,
        "status": page.status,
        "fetched": utc(when),
        "depth": depth,
        "type": page.content_type.partition(";")[0].strip().lower(),
        "charset": reading.charset if reading else None,
        "title": reading.title if reading else None,
        "bytes": len(page.body),
        "sha224": hashlib.sha224(page.body).hexdigest() if reading else None,
        "etag": page.headers.get("etag"),
        "last_modified": page.headers.get("last-modified"),
        "capped": bool(reading and reading.capped),
        "robots": list(reading.robots) if reading else [],
        "links": list(links),
    }


def links_of(record: Mapping[str, Any]) -> list[str]:
    """The links that a record names: it may have been made by hand, so see `urls.is_safe` before any is asked."""
    links = record.get("links")
    return [link for link in links if isinstance(link, str)] if isinstance(links, list) else []


def depth_of(record: Mapping[str, Any], unknown: int = 0) -> int:
    """How far from a seed a record or a refusal says that its page is; `unknown` if it says nothing that can be."""
    depth = record.get("depth")
    return depth if isinstance(depth, int) and 0 <= depth < DEEPEST else unknown


def farthest(settings: Settings) -> int:
    """As far from a seed as what is asked may be, for what does not say; as a seed it would widen the scope."""
    return 1 if settings.depth is None else settings.depth


def mark_of(refusal: Mapping[str, Any]) -> str:
    """What tells a refusal from a later one of the same URL."""
    return urls.key(json.dumps(refusal))[:8]


def to_json(value: dict[str, Any]) -> bytes:
    """One line of ASCII JSON, so that `cat links/*/*` is a JSON Lines file."""
    return json.dumps(value).encode("ascii") + b"\n"


def utc(when: float) -> str:
    """A time as people and jq sort it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


def from_utc(text: str) -> float:
    """The time that `utc` wrote; 0 if it is not one."""
    try:
        return float(calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return 0.0
