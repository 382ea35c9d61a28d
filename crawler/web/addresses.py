"""Which addresses and ports a crawler may connect to: only those that the whole world can reach."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

# The Fetch standard's bad ports: a request there would speak HTTP to something else.
BAD_PORTS = frozenset(
    {0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95}
    | {101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179}
    | {389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636}
    | {989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566}
    | {6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)

_PRIVATE_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carrier-grade NAT, and a cloud's metadata
            "127.0.0.0/8",  # loopback
            "168.63.129.16/32",  # a cloud's host agent, on an address that looks public
            "169.254.0.0/16",  # link-local, and most clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays, withdrawn
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)

# Everything outside is loopback, local, multicast or not given out.
_GLOBAL_6 = IPv6Network("2000::/3")
_PRIVATE_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, benchmarking, ORCHID
            "2001:db8::/32",  # documentation
            "3ffe::/16",  # the 6bone, returned
            "3fff::/20",  # documentation
        ),
    )
)

# The last 32 bits are an IPv4 address. The rest of 64:ff9b:1::/48 may hold one at places that differ from
# network to network, and which one is meant cannot be seen: not public.
_IPV4_LAST = tuple(
    map(
        IPv6Network,
        (
            "::/96",  # compatible
            "::ffff:0:0/96",  # mapped
            "::ffff:0:0:0/96",  # translated
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/96",  # NAT64, local use
        ),
    )
)
_SIX_TO_FOUR = IPv6Network("2002::/16")
_TEREDO = IPv6Network("2001::/32")
_LOW_32 = 0xFFFF_FFFF

# What the URL standard takes for an attempt at an IPv4 address.
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\Z")


def is_public(address: str) -> bool:
    """Return whether the whole world can reach this textual address; False if it is none."""
    try:
        if ":" in address:
            # A zone says through which interface, not where to.
            return _is_public_6(IPv6Address(address.partition("%")[0]))
        return _is_public_4(IPv4Address(address))
    except AddressValueError:
        return False


def names_private(host: str) -> bool:
    """Return whether a netloc itself spells this machine or a non-public address; asks no resolver."""
    name = _without_port(host).removesuffix(".").lower()
    if host.startswith("[") or ":" in name or _ENDS_IN_NUMBER.search(name):
        return not is_public(name)
    return name == "localhost" or name.endswith(".localhost")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    # More than one colon without brackets: an IPv6 address.
    return host.partition(":")[0] if host.count(":") == 1 else host


def _is_public_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _PRIVATE_4)


def _is_public_6(address: IPv6Address) -> bool:
    inside = _inside(address)
    if inside:
        return all(map(_is_public_4, inside))
    return address in _GLOBAL_6 and not any(address in network for network in _PRIVATE_6)


def _inside(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses that packets for this IPv6 address would end up at, or pass through."""
    bits = int(address)
    if any(address in network for network in _IPV4_LAST):
        return (IPv4Address(bits & _LOW_32),)
    if address in _SIX_TO_FOUR:
        return (IPv4Address(bits >> 80 & _LOW_32),)
    if address in _TEREDO:
        # The server, and the client behind it, whose bits are inverted.
        return (IPv4Address(bits >> 64 & _LOW_32), IPv4Address(~bits & _LOW_32))
    return ()
