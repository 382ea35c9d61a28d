"""Looks up host names on the worker's event loop: each name once, thousands at a time, without a thread per query."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pycares

MAX_IN_FLIGHT = 1000  # names with queries in flight; the others wait for their turn
MAX_KNOWN = 20_000  # names in the cache; the oldest goes first

# How long a result is cached, in seconds. An address is kept for its time to live within these bounds: a crawl
# that waits between two pages of a host does not send a query for each page, and a host that moves is found again.
MIN_TTL, MAX_TTL = 60.0, 3600.0
NO_SUCH_NAME_FOR = 300.0
TROUBLE_FOR = 30.0

# c-ares reads resolv.conf once per channel, has a cache of its own without a bound, and ends queries that nobody waits
# for only after all its tries. So channels are replaced: after so many names (each holds two of 65,536 query numbers),
# so many seconds, or so many seconds without a response (the network may have come up or changed).
CHANNEL_NAMES = 5000
CHANNEL_SECONDS = 300.0
CHANNEL_SILENT_SECONDS = 30.0

# c-ares waits five times the server's average latency, at least 0.25 s, then twice that and so on: four tries are
# 2 to 4 s with a fast server. The resolver retries while there is time.
_TRIES = 4
# The addresses of this machine, a line each; the fourth field says how far each reaches.
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
_THIS_MACHINE, _THIS_LINK = "10", "20"
_TICK = 0.1  # seconds between two checks for queries to send again
_HOST_NAME = re.compile(r"(?=.{1,253}\.?\Z)(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?\Z")
_NUMERIC = re.compile(r"[0-9a-fx.]*[0-9][0-9a-fx.]*\Z")


@dataclass(frozen=True, slots=True)
class NoAddress:
    """Why a host has no address to connect to, in words for the operator."""

    detail: str
    timed_out: bool = False


Addresses = tuple[str, ...]  # in the order to try them
_INVALID = NoAddress("not a valid host name")
_CLOSED = NoAddress("the resolver was closed")


class _Reply(NamedTuple):
    found: Addresses | NoAddress
    seconds: float  # to cache it
    retry: bool = False  # while there is time


class _Known(NamedTuple):
    found: Addresses | NoAddress
    until: float


class Resolver:
    """Host names to addresses for one worker: each name is looked up once, and failures are remembered for a while.

    It knows /etc/hosts and DNS, not the other sources of nsswitch.conf (mDNS, LDAP). It belongs to the event loop of
    its first lookup and costs nothing before. A result is used for up to `MAX_TTL` after it came.
    """

    def __init__(
        self, timeout: float, clock: Callable[[], float] = time.monotonic, servers: Sequence[str] = ()
    ) -> None:
        """`timeout` is per name, from its first query on; `servers` ("127.0.0.1:53") replace those of resolv.conf."""
        self._timeout = timeout
        self._clock = clock
        self._servers = tuple(servers)
        self._known: dict[str, _Known] = {}
        self._lookups: dict[str, asyncio.Task[Addresses | NoAddress]] = {}
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._channel: _Channel | None = None
        self._retired: set[_Channel] = set()
        self._closed = False

    async def addresses(self, host: str) -> Addresses | NoAddress:
        """Return the addresses of a host, IPv4 and IPv6, best first; never raises for a bad name."""
        name = host.lower()
        if known := self._known.get(name):
            if self._clock() < known.until:
                return known.found
            del self._known[name]
        if address := _numeric(name):
            return (address,)
        if not _HOST_NAME.match(name):
            return _INVALID
        lookup = self._lookups.get(name)
        if lookup is None:
            lookup = self._lookups[name] = asyncio.create_task(self._look_up(name))
        # A caller that is cancelled does not take the result away from the others.
        return await asyncio.shield(lookup)

    def close(self) -> None:
        """End all lookups, whose callers are told so, and close the sockets."""
        self._closed = True
        for channel in (self._channel, *self._retired):
            if channel:
                channel.close()
        self._channel = None
        self._retired.clear()

    async def _look_up(self, name: str) -> Addresses | NoAddress:
        try:
            async with self._slots:
                reply = await self._query(name)
            self._remember(name, reply)
            return reply.found
        finally:
            del self._lookups[name]

    async def _query(self, name: str) -> _Reply:
        """Query until there is a response or the time is over."""
        until = asyncio.get_running_loop().time() + self._timeout
        # c-ares knows localhost without a query, but only if it is written without a dot at the end.
        wanted = name.removesuffix(".") if name.endswith("localhost.") else name
        while not self._closed:
            reply = await self._usable_channel().query(wanted, until)
            if not reply.retry:
                return reply
        return _Reply(_CLOSED, 0.0)

    def _remember(self, name: str, reply: _Reply) -> None:
        self._known.pop(name, None)
        if reply.seconds:
            self._known[name] = _Known(reply.found, self._clock() + reply.seconds)
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def _usable_channel(self) -> _Channel:
        """Return the channel for the next query, a new one if the present one is worn out."""
        channel = self._channel
        if channel is None or channel.is_worn():
            if channel:
                self._retired.add(channel)
                channel.retire(self._retired.discard)
            channel = self._channel = _Channel(self._timeout, self._clock, self._servers)
        return channel


class _Channel:
    """One c-ares channel, driven by the event loop; serves a number of names and is replaced then."""

    def __init__(self, timeout: float, clock: Callable[[], float], servers: Sequence[str]) -> None:
        # Imported here, so that a command that looks nothing up does not load it.
        import pycares

        self._cares = pycares
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._clock = clock
        self._made = self._heard = clock()
        self._names = 0
        self._waiting: set[asyncio.Future[_Reply]] = set()
        self._pending = 0  # also those for which nobody waits any more: c-ares cannot cancel a single query
        self._timer: asyncio.TimerHandle | None = None
        self._when_closed: Callable[[_Channel], None] | None = None
        self._closed = False
        # Not to be given: `resolvconf_path` and `lookups`, whose memory pycares 5.2 frees before c-ares reads it.
        self._channel = pycares.Channel(
            sock_state_cb=self._watch,
            servers=servers or None,
            timeout=min(2.0, timeout / 4),  # of the first try, until the server's latency is known
            tries=_TRIES,
            socket_receive_buffer_size=1
            << 20,  # all responses come to one socket while the loop may be busy with a page
            ndots=1,  # the host of a URL is tried as it is before the search domains, in a cluster too (ndots:5)
        )
        self._family = socket.AF_UNSPEC if has_ipv6() else socket.AF_INET

    def is_worn(self) -> bool:
        """Tell whether the next name should be looked up on a new channel."""
        now = self._clock()
        return (
            self._names >= CHANNEL_NAMES
            or now - self._made >= CHANNEL_SECONDS
            or now - self._heard >= CHANNEL_SILENT_SECONDS
        )

    def query(self, name: str, until: float) -> asyncio.Future[_Reply]:
        """Send the queries for a name; the reply comes by a time of the loop, a time-out at the latest."""
        future: asyncio.Future[_Reply] = self._loop.create_future()
        self._waiting.add(future)
        self._names += 1
        self._pending += 1
        overdue = self._loop.call_at(until, self._give_up, future)

        def done(result: pycares.AddrInfoResult | None, error: int | None) -> None:
            self._pending -= 1
            overdue.cancel()
            self._finish(future, self._reply(result, error))

        is_here = name == "localhost" or name.endswith(".localhost")  # known without a query, perhaps only by ::1
        family = socket.AF_UNSPEC if is_here else self._family
        self._channel.getaddrinfo(name, None, family=family, type=socket.SOCK_STREAM, callback=done)
        if self._pending and self._timer is None:
            self._timer = self._loop.call_later(_TICK, self._tick)
        return future

    def retire(self, when_closed: Callable[[_Channel], None]) -> None:
        """Close the channel when nobody waits for it any more."""
        self._when_closed = when_closed
        if not self._waiting:
            self._end()

    def close(self) -> None:
        """End all queries and close the sockets, here and now: pycares alone would do it in a thread of its own."""
        if self._closed:
            return
        self._closed = True
        self._channel.cancel()
        self._channel.close()
        if self._timer:
            self._timer.cancel()

    def _end(self) -> None:
        self.close()
        if self._when_closed:
            self._when_closed(self)

    def _finish(self, future: asyncio.Future[_Reply], reply: _Reply) -> None:
        if future not in self._waiting:
            return
        self._waiting.discard(future)
        if not future.done():
            future.set_result(reply)
        if self._when_closed and not self._waiting:
            self._loop.call_soon(self._end)  # not from here: c-ares may be calling

    def _give_up(self, future: asyncio.Future[_Reply]) -> None:
        detail = f"no response from the name server within {self._timeout:g} s"
        self._finish(future, _Reply(NoAddress(detail, timed_out=True), TROUBLE_FOR))

    def _reply(self, result: pycares.AddrInfoResult | None, error: int | None) -> _Reply:
        errno = self._cares.errno
        if error == errno.ARES_ETIMEOUT:
            return _Reply(NoAddress("no response from the name server", timed_out=True), TROUBLE_FOR, retry=True)
        if error == errno.ARES_ECANCELLED:
            return _Reply(_CLOSED, 0.0)
        if error == errno.ARES_ECONNREFUSED:
            return _Reply(NoAddress("no name server can be reached; see /etc/resolv.conf"), TROUBLE_FOR)
        self._heard = self._clock()
        if result and result.nodes:
            addresses = tuple(dict.fromkeys(_text(node.addr[0]) for node in result.nodes))
            return _Reply(addresses, min(max(MIN_TTL, min(node.ttl for node in result.nodes)), MAX_TTL))
        if error == errno.ARES_ENOTFOUND:
            return _Reply(NoAddress("no such host name"), NO_SUCH_NAME_FOR)
        if error is None or error == errno.ARES_ENODATA:
            has_both = self._family == socket.AF_UNSPEC
            lack = "the name has no address" if has_both else "the name has no IPv4 address, and this machine no IPv6"
            return _Reply(NoAddress(lack), NO_SUCH_NAME_FOR)
        return _Reply(NoAddress(_text(errno.strerror(error))), TROUBLE_FOR)

    def _watch(self, fd: int, readable: bool, writable: bool) -> None:
        """Tell the loop what c-ares waits for at a socket; neither means that it is about to be closed."""
        if self._loop.is_closed():
            return
        nothing = self._cares.ARES_SOCKET_BAD
        if readable:
            self._loop.add_reader(fd, self._channel.process_fd, fd, nothing)
        else:
            self._loop.remove_reader(fd)
        if writable:
            self._loop.add_writer(fd, self._channel.process_fd, nothing, fd)
        else:
            self._loop.remove_writer(fd)

    def _tick(self) -> None:
        nothing = self._cares.ARES_SOCKET_BAD
        self._channel.process_fd(nothing, nothing)
        self._timer = self._loop.call_later(_TICK, self._tick) if self._pending else None


def has_ipv6() -> bool:
    """Tell whether this machine can reach others over IPv6; where it cannot, half of all queries are spared."""
    try:
        lines = _IPV6_ADDRESSES.read_text().splitlines()
    except OSError:  # IPv6 is switched off
        return False
    return any(line.split()[3] not in (_THIS_MACHINE, _THIS_LINK) for line in lines)


def _numeric(host: str) -> str | None:
    """Return the address that a host is, as text; None if it is a name."""
    try:
        if ":" in host:
            address = host[1:-1] if host[0] == "[" and host[-1] == "]" else host
            socket.inet_pton(socket.AF_INET6, address)
            return address
        return socket.inet_ntoa(socket.inet_aton(host)) if _NUMERIC.match(host) else None
    except (OSError, ValueError):
        return None


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)
