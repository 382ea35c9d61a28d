"""Only addresses that the whole world can reach are public, however they are wrapped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.web.addresses import BAD_PORTS, is_in, is_public, machine_of, names_private, networks

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1"),
    *("169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.20.0.0"),
    *("223.255.255.255", "2001:200::1", "2606:4700:4700::1111", "2a00:1450:4001:830::200e", "2620:fe::fe"),
    "2606:4700:4700::1111%eth0",
]

PRIVATE = [
    # this network, loopback, private, link-local and metadata
    *("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "10.0.0.1", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "169.254.169.254", "168.63.129.16", "100.64.0.1", "100.100.100.200", "100.127.255.255"),
    # protocol assignments, documentation, benchmarking, relays
    *("192.0.0.8", "192.0.0.192", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1", "198.19.255.255"),
    *("192.88.99.1", "2001:db8::1", "3fff::1", "2001:2::1", "2001:10::1", "2001:20::1", "3ffe::1"),
    # multicast, reserved, broadcast
    *("224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "ff02::1", "ff0e::1"),
    # unspecified, loopback, link-local, site-local, unique local, discard, not given out
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254"),
    *("100::1", "5f00::1", "4000::1"),
    # local-use translation whose IPv4 address could be anywhere
    *("64:ff9b:1:7f00:0:100::", "64:ff9b:1:1::8.8.8.8"),
]

NO_ADDRESS = [
    *(
        "",
        "localhost",
        "example.org",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "0x7f.1",
        "2130706433",
        "8.8.8.8%eth0",
    ),
    *("[2606:4700::1]", "1.1.1.1:80", "1.1.1.1\n", " 1.1.1.1", "::g", "\ud800", ":%"),
]

WRAPPINGS = {
    "plain": "{a}.{b}.{c}.{d}",
    "compatible": "::{a}.{b}.{c}.{d}",
    "mapped": "::ffff:{a}.{b}.{c}.{d}",
    "translated": "::ffff:0:{a}.{b}.{c}.{d}",
    "NAT64": "64:ff9b::{a}.{b}.{c}.{d}",
    "local NAT64": "64:ff9b:1::{a}.{b}.{c}.{d}",
    "6to4": "2002:{a:02x}{b:02x}:{c:02x}{d:02x}::1",
    "Teredo client": "2001:0:808:808:0:0:{na:02x}{nb:02x}:{nc:02x}{nd:02x}",
    "Teredo server": "2001:0:{a:02x}{b:02x}:{c:02x}{d:02x}:0:0:f7f7:f7f7",
}


def wrap(wrapping: str, address: str) -> str:
    """An IPv4 address inside an IPv6 one."""
    parts = dict(zip("abcd", map(int, address.split(".")), strict=True))
    inverted = {"n" + name: 255 - part for name, part in parts.items()}
    return WRAPPINGS[wrapping].format(**parts, **inverted)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_the_world_can_reach_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_what_only_some_can_reach_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("text", NO_ADDRESS, ids=ascii)
def test_what_is_no_address_is_not_public(text: str) -> None:
    assert not is_public(text)


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_an_ipv4_address_is_judged_as_itself_however_it_is_wrapped(wrapping: str) -> None:
    for address in (text for text in PUBLIC + PRIVATE if ":" not in text):
        assert is_public(wrap(wrapping, address)) == (address in PUBLIC), wrap(wrapping, address)


@given(st.text(st.characters(exclude_categories=())) | st.text("0123456789abcdef:.%[]/"))
def test_no_text_is_too_odd_to_be_judged(text: str) -> None:
    assert is_public(text) in (True, False)
    assert names_private(text) in (True, False)


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:8080", "LOCALHOST.", "a.localhost", "a.b.localhost.:80"),
        *("127.0.0.1", "127.0.0.1:8080", "10.0.0.1.", "[::1]", "[::1]:8080", "[fe80::1]", "::1"),
        *("[::ffff:7f00:1]", "0x7f.1", "2130706433", "[nonsense]:"),
    ],
)
def test_a_host_that_spells_this_machine_or_a_private_address_is_told_without_a_resolver(host: str) -> None:
    assert names_private(host)


@pytest.mark.parametrize(
    "host",
    ["example.org", "example.org:8080", "8.8.8.8", "8.8.8.8:80", "[2606:4700::1]:80", "localhost.org", ""],
)
def test_any_other_host_is_left_to_the_resolver(host: str) -> None:
    assert not names_private(host)


def test_the_bad_ports_are_the_fetch_standards() -> None:
    assert len(BAD_PORTS) == 83
    assert {0, 22, 25, 6000, 6667, 10080} <= BAD_PORTS
    assert BAD_PORTS.isdisjoint({80, 443, 8000, 8080, 8443})


@pytest.mark.parametrize(
    "address, machine",
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("64:ff9b::c000:201", "192.0.2.1"),
        ("2002:c000:201::1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_what_counts_as_one_machine(address: str, machine: str) -> None:
    assert machine_of(address) == machine


def test_a_machine_is_in_a_network_also_where_only_a_part_of_its_64_bits_is() -> None:
    assert is_in("192.0.2.1", ("198.51.100.0/24", "192.0.2.0/25"))
    assert not is_in("192.0.2.200", ("198.51.100.0/24", "192.0.2.0/25"))
    assert is_in("::/64", ("127.0.0.0/8", "::1/128"))
    assert not is_in("2001:db8::/64", ("127.0.0.0/8", "::1/128"))
    with pytest.raises(ValueError):
        networks(("192.0.2.1/24",))
