"""Cookies: each host gets back its own cookies, from the memory of one worker; they are never stored."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from time import time
from urllib.parse import SplitResult

from crawler.fetch.request import read_date
from crawler.web.addresses import DEFAULT_PORTS

MAX_HOSTS = 1_000
MAX_COOKIES = 50  # of one host
MAX_COOKIE = 4096  # characters of one cookie
MAX_HOST_BYTES = 8192  # of all cookies of a host: most servers accept no longer header
MAX_ATTRIBUTE = 1024

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Name = tuple[str, str]  # name and path: a cookie replaces another with the same two
Place = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie of a host; `pair` is the name=value that is sent back."""

    name: str
    pair: str
    path: str
    secure: bool
    until: float

    @property
    def size(self) -> int:
        """What it counts towards MAX_HOST_BYTES."""
        return len(self.pair) + len(self.path)

    def matches(self, parts: SplitResult) -> bool:
        """Tell whether it is sent with a request for this URL."""
        path = parts.path or "/"
        begins = path.startswith(self.path) and (self.path.endswith("/") or path[len(self.path) :][:1] in ("", "/"))
        return begins and self.until > time() and (parts.scheme == "https" or not self.secure)


class Cookies:
    """The cookies of the hosts that one worker has requested recently; thread-safe.

    A host is a name and a port, and Domain does not widen that; http and https on their default ports are one host.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._hosts: OrderedDict[Place, dict[Name, Cookie]] = OrderedDict()

    def header(self, parts: SplitResult) -> tuple[str, ...]:
        """Return the Cookie line for a request, if any."""
        with self._lock:
            kept = self._hosts.get(_place(parts))
            if not kept:
                return ()
            self._hosts.move_to_end(_place(parts))
            # The standard's order: the longest path first, then the oldest.
            matching = sorted((one for one in kept.values() if one.matches(parts)), key=lambda one: -len(one.path))
        return ("Cookie: " + "; ".join(one.pair for one in matching),) if matching else ()

    def keep(self, parts: SplitResult, lines: str) -> None:
        """Store the cookies of a response's Set-Cookie lines."""
        read = (_read(parts, line) for line in lines.split("\n"))
        cookies = [one for one in read if one is not None]
        if not cookies:
            return
        with self._lock:
            kept = self._hosts.setdefault(_place(parts), {})
            self._hosts.move_to_end(_place(parts))
            for one in cookies:
                _put(kept, one, parts.scheme == "https")
            if len(self._hosts) > MAX_HOSTS:
                self._hosts.popitem(last=False)


def _place(parts: SplitResult) -> Place:
    return parts.hostname or "", None if parts.port == DEFAULT_PORTS[parts.scheme] else parts.port


def _put(kept: dict[Name, Cookie], cookie: Cookie, safely: bool) -> None:
    """Set, replace or (if expired) remove a cookie; one set over https is not replaced over http."""
    name = cookie.name, cookie.path
    before = kept.get(name)
    if before is not None and before.secure and not safely:
        return
    kept[name] = cookie
    if cookie.until <= time():
        del kept[name]
    while len(kept) > MAX_COOKIES or sum(one.size for one in kept.values()) > MAX_HOST_BYTES:
        del kept[next(iter(kept))]


def _read(parts: SplitResult, line: str) -> Cookie | None:
    """Return the cookie of one Set-Cookie line, or None if it may not be set."""
    pair, *rest = line.split(";")
    name, equals, value = (part.strip(" \t") for part in pair.partition("="))
    if not (equals and name) or len(name) + len(value) > MAX_COOKIE or _CONTROL.search(name + value):
        return None
    said = {one.lower(): text for one, text in map(_attribute, rest) if len(text) <= MAX_ATTRIBUTE}
    secure = "secure" in said
    if (secure or name.lower().startswith(("__secure-", "__host-"))) and not (secure and parts.scheme == "https"):
        return None
    if not _is_of(parts.hostname or "", said.get("domain", "")):
        return None
    return Cookie(name, f"{name}={value}", _path(parts, said.get("path", "")), secure, _until(said))


def _attribute(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.strip(" \t"), value.strip(" \t")


def _is_of(host: str, domain: str) -> bool:
    """Tell whether a host may name this Domain: its own, or one above it."""
    domain = domain.removeprefix(".").lower()
    return not domain or host == domain or host.endswith(f".{domain}")


def _path(parts: SplitResult, said: str) -> str:
    return said if said.startswith("/") else parts.path.rpartition("/")[0] or "/"


def _until(said: dict[str, str]) -> float:
    """Return when it expires; Max-Age counts before Expires, and without both it lives as long as the worker."""
    age = said.get("max-age", "")
    if re.fullmatch(r"-?[0-9]+", age):
        return 0.0 if age.startswith("-") or not age.strip("0") else time() + float(age[:12])
    expires = read_date(said.get("expires", ""))
    return float("inf") if expires is None else expires
