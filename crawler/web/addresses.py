"""Which addresses and ports a crawler may connect to: only those that everybody can reach."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network

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
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\Z")  # what the URL standard parses as an IPv4 address


def is_public(address: str) -> bool:
    """Tell whether everybody can reach this textual address; False if it is not an address."""
    try:
        if ":" not in address:
            return _is_public_4(IPv4Address(address))
        given = IPv6Address(address.partition("%")[0])  # a zone names the interface, not the destination
    except AddressValueError:
        return False
    if any(given in network for network in _IPV4_LAST):
        return _is_public_4(IPv4Address(int(given) & 0xFFFF_FFFF))
    if embedded := given.teredo or given.sixtofour:  # Teredo: the server, and the client behind it
        return all(map(_is_public_4, embedded if isinstance(embedded, tuple) else (embedded,)))
    return given in _GLOBAL_6 and not any(given in network for network in _PRIVATE_6)


def _is_public_4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or any(address in network for network in _PRIVATE_4))


def names_private(host: str) -> bool:
    """Tell whether a netloc is this machine's name or a non-public address; does not use DNS."""
    name = host[1:].partition("]")[0] if host[:1] == "[" else host if host.count(":") > 1 else host.partition(":")[0]
    name = name.removesuffix(".").lower()
    if host[:1] == "[" or ":" in name or _ENDS_IN_NUMBER.search(name):
        return not is_public(name)
    return name == "localhost" or name.endswith(".localhost")
