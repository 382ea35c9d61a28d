"""The cookies that hosts have set, in the store: `cookies/<host>/<worker>-<n>`, which only its writer's user may read.

Each worker writes names of its own, a new one each time, and removes what its newest file contains: so two workers of
one host never write the same file, and a kill at any moment loses nothing. What is read is not trusted: a file that is
not exactly what we write is passed over, and its cookies go to the host of its folder alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable
from time import time
from typing import Any

from crawler.errors import Misshapen, StoreAway, StoreError
from crawler.fetch.cookies import MAX_COOKIES, MAX_HOST_BYTES, Cookie, is_sendable, needs_https
from crawler.store.mount import Files

FOLDER = "cookies"
MODE = 0o600
NAME = re.compile(r"[0-9A-Za-z]{1,32}-[0-9]{1,12}", re.ASCII)
MAX_BYTES = 128 << 10  # of a file: as JSON, MAX_HOST_BYTES and what is said of each cookie are less
MAX_FILES = 256  # of a host that are read
MAX_COUNT = 1 << 53


class BadJar(ValueError):
    """A file of cookies that is not what a worker writes; the message does not quote it."""


class NotOurs(BadJar):
    """A file of cookies that another user has written, for nobody else to read."""


def folder_of(host: str) -> str:
    """Return the folder of a host's cookies."""
    return f"{FOLDER}/{host}"


def names(files: Files, host: str, is_fresh: bool = False) -> list[str]:
    """Return the files of a host's cookies; the listing of a mount may be old unless it `is_fresh`."""
    if is_fresh and not files.freshen(folder_of(host)):
        files.freshen(FOLDER)  # a client may believe for a while that the folder is missing
    return sorted(filter(NAME.fullmatch, files.names(folder_of(host))))[:MAX_FILES]


def read(files: Files, host: str, name: str) -> list[Cookie]:
    """Return the cookies of one file, none if it is gone; BadJar if it cannot be used."""
    path = f"{folder_of(host)}/{name}"
    try:
        size = files.size(path)
        data = files.get(path) if size is None or size <= MAX_BYTES else b""
    except Misshapen as error:
        raise BadJar("not a file") from error
    except StoreAway:
        raise
    except StoreError as error:  # EACCES: it is for the user alone who wrote it
        raise NotOurs("it belongs to another user") from error
    return [] if data is None else parse(data)


def write(files: Files, host: str, name: str, cookies: Iterable[Cookie]) -> None:
    """Write a file of cookies that nobody else may read; it is on the disk after the next sync."""
    files.put(f"{folder_of(host)}/{name}", render(cookies), later=True, mode=MODE)


def drop(files: Files, host: str, old: Collection[str]) -> None:
    """Remove files that a newer one contains."""
    for name in old:
        files.drop(f"{folder_of(host)}/{name}")


def render(cookies: Iterable[Cookie]) -> bytes:
    """Return the bytes of a file: one cookie a line, as JSON."""
    return b"".join(json.dumps(_facts(one)).encode() + b"\n" for one in cookies)


def _facts(one: Cookie) -> dict[str, Any]:
    value = one.pair.partition("=")[2] if one.until else None
    until = None if one.until == math.inf else one.until
    count, by = one.version
    return {"name": one.name, "value": value, "path": one.path, "secure": one.secure, "until": until} | {
        "count": count,
        "by": by,
    }


def parse(data: bytes) -> list[Cookie]:
    """Return the cookies of a file's bytes, without those that have expired; BadJar unless all of it is good."""
    if len(data) > MAX_BYTES or not data.endswith(b"\n"):
        raise BadJar("too large, or cut off")
    cookies = [_cookie(line) for line in data.split(b"\n")[:-1]]
    if len(cookies) > MAX_COOKIES or sum(one.size for one in cookies) > MAX_HOST_BYTES:
        raise BadJar("more cookies than a host may have")
    return [one for one in cookies if not one.until or one.until > time()]


def _cookie(line: bytes) -> Cookie:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise BadJar("not JSON") from None
    if not isinstance(found, dict) or found.keys() != {"name", "value", "path", "secure", "until", "count", "by"}:
        raise BadJar("not a cookie")
    name, value, path, secure, until, count, by = (found[key] for key in _KEYS)
    is_removed = value is None and until == 0
    texts = (name, "" if is_removed else value, path, by)
    if not all(isinstance(text, str) for text in texts) or not isinstance(secure, bool):
        raise BadJar("a field has the wrong type")
    if not is_sendable(name, texts[1]) or not path.startswith("/") or not is_sendable("p", path.replace(";", "")):
        raise BadJar("a cookie that cannot be sent")
    if (needs_https(name) and not secure) or not _is_time(until) or not re.fullmatch(r"\w{0,32}", by, re.ASCII):
        raise BadJar("a cookie that could not have been set")
    if type(count) is not int or not 0 <= count < MAX_COUNT:
        raise BadJar("a cookie without a count")
    end = math.inf if until is None else float(until)
    return Cookie(name, "" if is_removed else f"{name}={value}", path, secure, end, (count, by))


_KEYS = ("name", "value", "path", "secure", "until", "count", "by")


def _is_time(until: object) -> bool:
    return until is None or (type(until) in (int, float) and 0 <= until < 1e15)  # type: ignore[operator]
