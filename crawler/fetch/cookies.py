"""Cookies: each host gets back what it has set itself, and what the operator of this machine gave for it.

Here they are in the memory of one worker; `crawl.worker.jars` keeps those that hosts set in the store as well.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import Lock
from time import time
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from crawler.fetch.request import read_date
from crawler.web.addresses import DEFAULT_PORTS

MAX_HOSTS = 1_000
MAX_AWAY = 50_000  # hosts of which is known that the store may have their cookies
MAX_COOKIES = 50  # of one host
MAX_COOKIE = 4096  # characters of one cookie
MAX_HOST_BYTES = 8192  # of all cookies of a host: most servers accept no longer header
MAX_ATTRIBUTE = 1024
MAX_WAIT = 60.0  # seconds until a new value is stored, of a host that changes its values again and again

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Name = tuple[str, str]  # name and path: a cookie replaces another with the same two
Version = tuple[int, str]  # a count that grows with each change of a host's cookies, and who noted it


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie of a host; `pair` is the name=value that is sent back."""

    name: str
    pair: str = field(repr=False)
    path: str
    secure: bool
    until: float  # 0: the host has removed it
    version: Version = (0, "")

    @property
    def size(self) -> int:
        """What it counts towards MAX_HOST_BYTES."""
        return len(self.pair) + len(self.path)

    def matches(self, parts: SplitResult) -> bool:
        """Tell whether it is sent with a request for this URL."""
        path = parts.path or "/"
        begins = path.startswith(self.path) and (self.path.endswith("/") or path[len(self.path) :][:1] in ("", "/"))
        return begins and self.until > time() and (parts.scheme == "https" or not self.secure)


class OwnCookie(NamedTuple):
    """A cookie of the operator's own: for a host, and perhaps for all names below it, at any port."""

    domain: str
    below: bool
    cookie: Cookie


@dataclass(slots=True)
class Jar:
    """The cookies of one host, and those of them that the store has."""

    cookies: dict[Name, Cookie] = field(default_factory=dict)
    stored: dict[Name, Cookie] = field(default_factory=dict)
    writes: int = 0
    written: float = 0.0

    def due(self) -> float | None:
        """Return when it is to be stored, because it has changed in a way that matters; None if it has not.

        A new name and one that is gone are stored at once. So is a new value, but for a host that changes values with
        each response only now and then.
        """
        now = time()
        if {name for name, it in self.cookies.items() if it.until} != {n for n, it in self.stored.items() if it.until}:
            return 0.0
        if any(_differs(it, self.stored[name], now) for name, it in self.cookies.items() if name in self.stored):
            return self.written + min(2.0**self.writes - 1, MAX_WAIT)
        return None


class Cookies:
    """The cookies of the hosts that one worker has requested recently; thread-safe.

    A host is a name and a port, and Domain does not widen that; http and https on their default ports are one host.
    """

    def __init__(
        self,
        own: Iterable[OwnCookie] = (),
        me: str = "",
        is_stored: Callable[[str], bool] = lambda host: False,
    ) -> None:
        """`own` are the operator's, `me` is this worker; `is_stored` says of a host whether the store may have them."""
        self._lock = Lock()
        self._me, self._is_stored = me, is_stored
        self._own: dict[str, list[OwnCookie]] = {}
        for one in own:
            self._own.setdefault(one.domain, []).append(one)
        self._jars: OrderedDict[str, Jar] = OrderedDict()
        self._away: OrderedDict[str, None] = OrderedDict()
        self._due: dict[str, float] = {}  # when the jars that have changed are to be stored
        self._writing: dict[str, tuple[Cookie, ...]] = {}  # those that are being stored

    # ---- requests and responses

    @property
    def has_any(self) -> bool:
        """Whether there are cookies of any host here."""
        return bool(self._jars or self._own)

    def header(self, parts: SplitResult) -> tuple[str, ...]:
        """Return the Cookie line for a request, if any."""
        matching = self._matching(parts) if self.has_any else ()
        return ("Cookie: " + "; ".join(one.pair for one in matching),) if matching else ()

    def keep(self, parts: SplitResult, lines: str) -> None:
        """Keep the cookies of a response's Set-Cookie lines."""
        cookies = _read_lines(parts, lines)
        if not cookies:
            return
        host = host_of(parts)
        with self._lock:
            jar = self._jar(host)
            count = max((it.version[0] for it in jar.cookies.values()), default=0) + 1
            for one in cookies:
                _put(jar.cookies, replace(one, version=(count, self._me)), parts.scheme == "https")
            self._note(host, jar)
            self._make_room()

    def pairs(self, url: str) -> frozenset[str]:
        """Return the name=value of each cookie that a request for a URL is sent with."""
        return frozenset(one.pair for one in self._matching(urlsplit(url))) if self.has_any else frozenset()

    def has_new(self, url: str, sent: frozenset[str], own: str | None = None) -> bool:
        """Tell whether a request for a URL that had these pairs would now have others, which may change the response.

        `own` are the Set-Cookie lines of the response itself, which do not count; where they are not known (None), a
        new value of a cookie that was sent counts only if another worker brought it.
        """
        parts = urlsplit(url)
        now = [one for one in self._matching(parts) if one.pair not in sent]
        if own is not None:
            set_now = {one.pair for one in _read_lines(parts, own)}
            return any(one.pair not in set_now for one in now)
        names = {pair.partition("=")[0] for pair in sent}
        return any(one.name not in names or one.version[1] != self._me for one in now)

    def _matching(self, parts: SplitResult) -> list[Cookie]:
        """Return the cookies for a request in the standard's order: the longest path first, then the oldest.

        What a host has set replaces what the operator gave under the same name.
        """
        own = self._own_for(parts)
        with self._lock:
            jar = self._jars.get(host_of(parts))
            if jar is None and not own:
                return []
            if jar is not None:
                self._jars.move_to_end(host_of(parts))
            matching = [one for one in jar.cookies.values() if one.matches(parts)] if jar else []
        names = {one.name for one in matching}
        matching = [one for one in own if one.name not in names] + matching
        return sorted(matching, key=lambda one: -len(one.path))

    def _own_for(self, parts: SplitResult) -> list[Cookie]:
        name, found = parts.hostname or "", []
        for domain in (name, *_above(name)) if self._own else ():
            for one in self._own.get(domain, ()):
                if (one.below or domain == name) and one.cookie.matches(parts):
                    found.append(one.cookie)
        return found

    # ---- the store

    def expect(self, host: str) -> None:
        """Note that the store may have cookies of a host."""
        if self._is_stored(host):
            self._away[host] = None
            if len(self._away) > MAX_AWAY:
                self._away.popitem(last=False)

    def has(self, host: str) -> bool:
        """Tell whether there are cookies of a host here."""
        return host in self._jars

    def is_away(self, host: str) -> bool:
        """Tell whether the store may have cookies of a host that are not here."""
        return host in self._away

    def merge(self, host: str, cookies: Iterable[Cookie]) -> None:
        """Take over the cookies of a host that are in the store; of two, the one that was changed last counts."""
        with self._lock:
            self._away.pop(host, None)
            jar = self._jar(host)
            for one in cookies:
                name = one.name, one.path
                if name not in jar.stored or jar.stored[name].version < one.version:
                    jar.stored[name] = one
                if name not in jar.cookies or jar.cookies[name].version < one.version:
                    jar.cookies[name] = one
            _shorten(jar.cookies)
            if not jar.cookies:
                del self._jars[host]
            else:
                self._note(host, jar)
                self._make_room()

    def count_due(self) -> int:
        """Return how many hosts have cookies that must be stored now."""
        now = time()
        return sum(due <= now for due in self._due.values()) if self._due else 0

    def take(self, everything: bool = False) -> dict[str, tuple[Cookie, ...]]:
        """Return the hosts whose cookies must be stored now, or have changed at all; `stored` says how that went."""
        now = time()
        with self._lock:
            for host in [host for host, due in self._due.items() if everything or due <= now]:
                del self._due[host]
                jar = self._jars[host]
                jar.stored, jar.written, jar.writes = dict(jar.cookies), now, jar.writes + 1
                self._writing[host] = tuple(jar.cookies.values())
            return dict(self._writing)

    def stored(self, is_done: bool = True) -> None:
        """Note that what was taken has been stored; or that it has not, and must be stored again."""
        with self._lock:
            for host in () if is_done else self._writing:
                jar = self._jars[host]
                jar.stored = {}
                self._note(host, jar)
            self._writing = {}

    def _jar(self, host: str) -> Jar:
        jar = self._jars.setdefault(host, Jar())
        self._jars.move_to_end(host)
        return jar

    def _note(self, host: str, jar: Jar) -> None:
        due = jar.due() if self._is_stored(host) else None
        if due is None:
            self._due.pop(host, None)
        else:
            self._due[host] = due

    def _make_room(self) -> None:
        """Forget the hosts that were requested longest ago, except those whose cookies are not stored yet."""
        if len(self._jars) > MAX_HOSTS:
            clean = next((host for host in self._jars if host not in self._due and host not in self._writing), None)
            if clean is not None:
                del self._jars[clean]
                self.expect(clean)
            else:
                self._due = dict.fromkeys(self._due, 0.0)


def host_of(parts: SplitResult) -> str:
    """Return the host of a URL: its name, and its port unless that is the default one."""
    name = parts.hostname or ""
    name = f"[{name}]" if ":" in name else name
    return name if parts.port in (None, DEFAULT_PORTS[parts.scheme]) else f"{name}:{parts.port}"


def _above(name: str) -> list[str]:
    """Return the domains above a name; an address has none."""
    if ":" in name or name.rpartition(".")[2].isdigit():
        return []
    labels = name.split(".")
    return [".".join(labels[number:]) for number in range(1, len(labels))]


def _differs(new: Cookie, old: Cookie, now: float) -> bool:
    """Tell whether the store must learn of a change: a later end only if the old one has come half-way."""
    if (new.pair, new.secure) != (old.pair, old.secure) or new.until < old.until:
        return True
    return new.until != old.until and old.until - now < (new.until - now) / 2


def _put(kept: dict[Name, Cookie], cookie: Cookie, safely: bool) -> None:
    """Set, replace or (if expired) remove a cookie; one set over https is not replaced over http."""
    name = cookie.name, cookie.path
    before = kept.get(name)
    if before is not None and before.secure and not safely:
        return
    if cookie.until > time():
        kept[name] = cookie
    elif before is not None:  # noted, because other workers may still have it
        kept[name] = replace(cookie, pair="", until=0.0)
    _shorten(kept)


def _shorten(kept: dict[Name, Cookie]) -> None:
    """Keep the limits: what was removed goes first, then the oldest."""
    while len(kept) > MAX_COOKIES or sum(one.size for one in kept.values()) > MAX_HOST_BYTES:
        del kept[next((name for name, one in kept.items() if not one.until), next(iter(kept)))]


def _read_lines(parts: SplitResult, lines: str) -> list[Cookie]:
    """Return the cookies of Set-Cookie lines that may be set."""
    read = (_read(parts, line) for line in lines.split("\n"))
    return [one for one in read if one is not None]


def _read(parts: SplitResult, line: str) -> Cookie | None:
    """Return the cookie of one Set-Cookie line, or None if it may not be set."""
    pair, *rest = line.split(";")
    name, equals, value = (part.strip(" \t") for part in pair.partition("="))
    if not equals or not is_sendable(name, value):
        return None
    said = {one.lower(): text for one, text in map(_attribute, rest) if len(text) <= MAX_ATTRIBUTE}
    secure = "secure" in said
    if (secure or needs_https(name)) and not (secure and parts.scheme == "https"):
        return None
    if not _is_of(parts.hostname or "", said.get("domain", "")):
        return None
    return Cookie(name, f"{name}={value}", _path(parts, said.get("path", "")), secure, _until(said))


def is_sendable(name: str, value: str) -> bool:
    """Tell whether a cookie has a name, is not too long, and cannot be taken for two, or for another line."""
    text = name + value
    is_plain = text.isascii() or not any(ord(character) > 255 for character in text)
    has_no_end = ";" not in text and "=" not in name and not _CONTROL.search(text)
    return bool(name) and len(text) <= MAX_COOKIE and is_plain and has_no_end


def needs_https(name: str) -> bool:
    """Tell whether a cookie's name says that only https may set it."""
    return name.lower().startswith(("__secure-", "__host-"))


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
    """Return when it expires; Max-Age counts before Expires, and without both it never does."""
    age = said.get("max-age", "")
    if re.fullmatch(r"-?[0-9]+", age):
        return 0.0 if age.startswith("-") or not age.strip("0") else time() + float(age[:12])
    expires = read_date(said.get("expires", ""))
    return float("inf") if expires is None else expires
