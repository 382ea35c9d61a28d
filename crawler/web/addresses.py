"""Which addresses and ports a crawler may connect to: only those that everybody can reach."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

DEFAULT_PORTS = {"http": 80, "https": 443}
# The Fetch standard's bad ports: a request there would speak HTTP to something else.
BAD_PORTS = frozenset(
    {0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95}
    | {101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179}
    | {389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636}
    | {989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566}
    | {6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)

# What `is_global` misses: protocol assignments, 6to4 relays, and a cloud's host agent on a public-looking address.
_PRIVATE_4 = tuple(map(IPv4Network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")))
# IPv6 is public only inside 2000::/3, without protocol assignments, documentation and the former 6bone.
_GLOBAL_6 = IPv6Network("2000::/3")
_PRIVATE_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3ffe::/16", "3fff::/20")))
# The last 32 bits are an IPv4 address: compatible, mapped, translated, NAT64, local NAT64. The rest of 64:ff9b:1::/48
# may hold one at places that differ from network to network, so it is not public.
_IPV4_LAST = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96")))
_LOOPBACK_6 = IPv6Address("::1")
# Link-local addresses, and those outside them at which clouds give a machine its credentials: Alibaba's, Azure's,
# Oracle's, and over IPv6 those of AWS and Google.
_METADATA_4 = tuple(map(IPv4Network, ("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")))
_METADATA_6 = tuple(map(IPv6Network, ("fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128")))
# How far from everybody's reach an address is; a request has the most that it may connect to.
PUBLIC, PRIVATE, METADATA = 0, 1, 2
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\Z")  # what the URL standard parses as an IPv4 address


def is_public(address: str) -> bool:
    """Tell whether everybody can reach this textual address; False if it is not an address."""
    return reach_of(address) == PUBLIC


@lru_cache(maxsize=16_384)
def reach_of(address: str) -> int:
    """Return whether an address is PUBLIC, PRIVATE or one of METADATA; PRIVATE if it is not an address."""
    try:
        if ":" not in address:
            return _reach_of_4(IPv4Address(address))
        given = IPv6Address(address.partition("%")[0])  # a zone names the interface, not the destination
    except AddressValueError:
        return PRIVATE
    if any(given in network for network in _IPV4_LAST):
        return _reach_of_4(IPv4Address(int(given) & 0xFFFF_FFFF))
    if embedded := given.teredo or given.sixtofour:  # Teredo: the server, and the client behind it
        return max(map(_reach_of_4, embedded if isinstance(embedded, tuple) else (embedded,)))
    if any(given in network for network in _METADATA_6):
        return METADATA
    return PUBLIC if given in _GLOBAL_6 and not any(given in network for network in _PRIVATE_6) else PRIVATE


def _reach_of_4(address: IPv4Address) -> int:
    if any(address in network for network in _METADATA_4):
        return METADATA
    is_public = address.is_global and not (address.is_multicast or any(address in network for network in _PRIVATE_4))
    return PUBLIC if is_public else PRIVATE


@lru_cache(maxsize=16_384)
def machine_of(address: str) -> str:
    """Return what counts as one machine: an IPv4 address, also one inside IPv6, or the first 64 bits of an IPv6 one."""
    if ":" not in address:
        return address
    given = IPv6Address(address.partition("%")[0])
    if any(given in network for network in _IPV4_LAST) and given != _LOOPBACK_6:
        return str(IPv4Address(int(given) & 0xFFFF_FFFF))
    return str(given.sixtofour or IPv6Network((int(given) >> 64 << 64, 64)))


@lru_cache(maxsize=8)
def networks(given: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return networks that are written as 192.0.2.0/24 or 2001:db8::/32; ValueError if one is not."""
    return tuple(ip_network(one) for one in given)


@lru_cache(maxsize=16_384)
def is_in(machine: str, given: tuple[str, ...]) -> bool:
    """Tell whether a machine, as `machine_of` has it, is in one of these networks."""
    place = ip_network(machine)
    if isinstance(place, IPv4Network):
        return any(place.subnet_of(part) for part in networks(given) if isinstance(part, IPv4Network))
    return any(place.overlaps(part) for part in networks(given) if isinstance(part, IPv6Network))


def names_private(host: str) -> bool:
    """Tell whether a netloc is this machine's name or a non-public address; does not use DNS."""
    return reach_of_host(host) != PUBLIC


def reach_of_host(host: str) -> int:
    """Return the same of a netloc as `reach_of` of an address, PUBLIC for a name; does not use DNS."""
    name = host[1:].partition("]")[0] if host[:1] == "[" else host if host.count(":") > 1 else host.partition(":")[0]
    name = name.removesuffix(".").lower()
    if host[:1] == "[" or ":" in name or _ENDS_IN_NUMBER.search(name):
        return reach_of(name)
    return PRIVATE if name == "localhost" or name.endswith(".localhost") else PUBLIC
