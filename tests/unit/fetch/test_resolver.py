"""Looking names up: asked once, remembered for a while, and no name waits for another."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from lab.nameserver import NameServer, Trouble

from crawler.fetch import resolver as module
from crawler.fetch.resolver import NoAddress, Resolver

CABLE = "ip link add here type veth peer name there && ip link set here up && ip link set there up"
NAMES: dict[str, Sequence[str] | Trouble] = {
    "example.test": ["192.0.2.1", "192.0.2.2"],
    "both.test": ["192.0.2.3", "2001:db8::3"],
    "six.test": ["2001:db8::6"],
    "bare.test": [],
    "silent.test": Trouble.SILENT,
    "broken.test": Trouble.SERVFAIL,
    "refused.test": Trouble.REFUSED,
}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def both_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has IPv6, whatever it has."""
    monkeypatch.setattr(module, "has_ipv6", lambda: True)


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer(NAMES) as running:
        yield running


def in_a_network_namespace(script: str) -> str | None:
    """What a shell script prints in a network namespace of its own; None if it cannot have one."""
    if not (shutil.which("unshare") and shutil.which("ip")):
        return None
    ran = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    return ran.stdout if ran.returncode == 0 else None


def ask(server: NameServer, *hosts: str, timeout: float = 5.0) -> list[tuple[str, ...] | NoAddress]:
    """Look names up at the same time, with a resolver of their own."""

    async def main() -> list[tuple[str, ...] | NoAddress]:
        resolver = Resolver(timeout, servers=[server.address])
        try:
            return await asyncio.gather(*map(resolver.addresses, hosts))
        finally:
            resolver.close()

    return asyncio.run(main())


def detail(found: tuple[str, ...] | NoAddress) -> str:
    assert isinstance(found, NoAddress), found
    return found.detail


def test_a_name_has_its_addresses_of_both_families(server: NameServer) -> None:
    example, both, six = ask(server, "example.test", "both.test", "SIX.test")
    assert example == ("192.0.2.1", "192.0.2.2")
    assert isinstance(both, tuple) and sorted(both) == ["192.0.2.3", "2001:db8::3"]
    assert six == ("2001:db8::6",)


def test_a_machine_without_ipv6_sends_half_of_the_queries(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_ipv6", lambda: False)
    both, six = ask(server, "both.test", "six.test")
    assert both == ("192.0.2.3",)
    assert detail(six) == "the name has no IPv4 address, and this machine no IPv6"
    assert (server.asked("both.test"), server.asked("six.test")) == (1, 1)
    assert set(ask(server, "localhost")[0]) == {"127.0.0.1", "::1"}, "it may listen on the latter alone"


@pytest.mark.skipif(in_a_network_namespace("true") is None, reason="only root may make a network namespace")
@pytest.mark.parametrize(
    ("interfaces", "has_ipv6"),
    [
        ("true", False),
        ("ip link set lo up", False),
        (CABLE, False),
        (f"{CABLE} && ip address add fd00::1/64 dev here", True),
    ],
    ids=["no interface", "itself", "the same link", "others"],
)
def test_a_machine_has_ipv6_if_it_has_an_address_that_others_can_reach(interfaces: str, has_ipv6: bool) -> None:
    look = f"{shlex.quote(sys.executable)} -c 'from crawler.fetch.resolver import has_ipv6; print(has_ipv6())'"
    assert in_a_network_namespace(f"{interfaces} && {look}") == f"{has_ipv6}\n"


def test_each_failure_says_what_happened(server: NameServer) -> None:
    hosts = "unknown.test", "bare.test", "broken.test", "refused.test", "hidden.onion"
    unknown, bare, broken, refused, onion = ask(server, *hosts)
    assert detail(unknown) == detail(onion) == "no such host name"
    assert detail(bare) == "the name has no address"
    assert "failure" in detail(broken) and "refused" in detail(refused)
    assert not any(found.timed_out for found in (unknown, bare, broken, refused) if isinstance(found, NoAddress))


def test_a_name_that_is_never_answered_ends_in_time_and_delays_no_other(server: NameServer) -> None:
    async def main() -> None:
        resolver = Resolver(0.4, servers=[server.address])
        start = time.monotonic()
        silent = asyncio.create_task(resolver.addresses("silent.test"))
        assert await resolver.addresses("example.test") == ("192.0.2.1", "192.0.2.2")
        assert time.monotonic() - start < 0.3
        found = await silent
        assert 0.35 < time.monotonic() - start < 1
        assert found == NoAddress("no response from the name server within 0.4 s", timed_out=True)
        resolver.close()

    asyncio.run(main())


def test_a_lost_packet_is_sent_again(server: NameServer) -> None:
    server.losses = 2
    assert ask(server, "example.test", timeout=1.2) == [("192.0.2.1", "192.0.2.2")]
    assert server.asked("example.test") == 2


def test_the_resolver_retries_after_the_tries_of_c_ares(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRIES", 1)
    server.losses = 6
    assert ask(server, "example.test", timeout=2.0) == [("192.0.2.1", "192.0.2.2")]
    assert server.asked("example.test") == 4


def test_a_long_answer_comes_over_tcp() -> None:
    many = tuple(f"192.0.2.{n}" for n in range(200))
    with NameServer({"many.test": many}, only_tcp=True) as server:
        (found,) = ask(server, "many.test")
    assert isinstance(found, tuple) and set(found) == set(many)


def test_callers_at_the_same_time_share_one_query() -> None:
    async def main() -> None:
        resolver = Resolver(5, servers=[server.address])
        first, *others = [asyncio.create_task(resolver.addresses("example.test")) for _ in range(50)]
        await asyncio.sleep(0.05)
        first.cancel()  # who started the query no longer wants it
        assert set(await asyncio.gather(*others)) == {("192.0.2.1", "192.0.2.2")}
        assert first.cancelled()
        resolver.close()

    with NameServer(NAMES, delay=0.1) as server:
        asyncio.run(main())
        assert server.asked("example.test") == 1


@pytest.mark.parametrize(
    ("host", "ttl", "seconds"),
    [
        ("example.test", 0, 60),
        ("example.test", 600, 600),
        ("example.test", 86400, 3600),
        ("unknown.test", 600, 300),
        ("bare.test", 600, 300),
        ("broken.test", 600, 30),
        ("silent.test", 600, 30),
    ],
)
def test_an_answer_is_remembered_for_a_while(host: str, ttl: int, seconds: float) -> None:
    async def main() -> None:
        clock = Clock()
        resolver = Resolver(0.2, clock, servers=[server.address])
        first = await resolver.addresses(host)
        asked = server.asked(host)
        clock.now += seconds - 1
        assert await resolver.addresses(host) == first
        assert server.asked(host) == asked
        clock.now += 2
        assert await resolver.addresses(host) == first
        assert server.asked(host) > asked
        resolver.close()

    with NameServer(NAMES, ttl=ttl) as server:
        asyncio.run(main())


def test_only_so_many_names_are_remembered(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KNOWN", 3)

    async def main() -> None:
        resolver = Resolver(5, servers=[server.address])
        for number in range(10):
            await resolver.addresses(f"{number}.test")
        assert list(resolver._known) == ["7.test", "8.test", "9.test"]
        resolver.close()

    asyncio.run(main())


def test_thousands_of_names_at_once_stay_within_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 100)
    monkeypatch.setattr(module, "CHANNEL_NAMES", 300)
    hosts = [f"h{number}.test" for number in range(2000)]
    threads = threading.active_count() + 1  # the server's
    with NameServer(lambda _: ["192.0.2.9"], delay=0.01) as server:
        assert set(ask(server, *hosts)) == {("192.0.2.9",)}
        assert threading.active_count() <= threads + 1  # pycares has one in all
    assert 50 <= server.most_at_once <= 100


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("127.1", "127.0.0.1"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[::ffff:192.0.2.7]", "::ffff:192.0.2.7"),
    ],
)
def test_an_address_is_its_own_answer(server: NameServer, host: str, address: str) -> None:
    assert ask(server, host) == [(address,)]
    assert not server.queries


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "app.localhost"])
def test_localhost_is_this_machine_without_a_query(server: NameServer, host: str) -> None:
    (found,) = ask(server, host)
    assert isinstance(found, tuple) and set(found) == {"127.0.0.1", "::1"}
    assert not server.queries


def test_the_hosts_file_is_read(server: NameServer) -> None:
    lines = [line.partition("#")[0].split() for line in Path("/etc/hosts").read_text().splitlines()]
    named = [(fields[0], fields[1].lower()) for fields in lines if len(fields) > 1 and "localhost" not in fields[1]]
    named = [(address, name) for address, name in named if not address.startswith(("fe", "ff"))]
    if not named:
        pytest.skip("/etc/hosts names only localhost")
    for address, name in named:
        (found,) = ask(server, name)
        assert isinstance(found, tuple) and address in found
    assert not server.queries


TOO_LONG = f"{'x' * 64}.test", "x." * 127 + "x"
NO_NAMES = "", ".", "a..test", ".test", "a b.test", "a.test\n", "a\0b.test", "a/b.test", "bücher.test", *TOO_LONG
NO_ADDRESSES = "[example.test]", "[::1", "::1::", "::1%lo", "a\0:b", "1:2", "example.test:80"


@pytest.mark.parametrize("host", [*NO_NAMES, *NO_ADDRESSES])
def test_what_is_no_host_name_is_told_without_a_query(server: NameServer, host: str) -> None:
    assert detail(ask(server, host)[0]) == "not a valid host name"
    assert not server.queries


@pytest.mark.parametrize("host", ["xn--bcher-kva.test", "_dmarc.test", f"{'x' * 63}.test", "-a.test", "256.1.1.1"])
def test_unusual_names_are_looked_up(server: NameServer, host: str) -> None:
    assert detail(ask(server, host)[0]) == "no such host name"
    assert server.asked(host) == 1


def test_a_dot_at_the_end_changes_nothing(server: NameServer) -> None:
    assert ask(server, "example.test.") == ask(server, "example.test")


def run_with_resolv_conf(folder: Path, first: str, script: str) -> None:
    """Run a script in a mount namespace where /etc/resolv.conf is a file of ours; of the machine's, nothing is used."""
    path = folder / "resolv.conf"
    path.write_text(first)
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"']
    if subprocess.run([*namespace, str(path), "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace")
    body = textwrap.indent(textwrap.dedent(script), "    ")
    code = PREAMBLE + f"async def main():\n{body}\n    resolver.close()\nasyncio.run(main())\n"
    done = subprocess.run(
        [*namespace, str(path), sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


PREAMBLE = """
import asyncio
from pathlib import Path
from crawler.fetch.resolver import NoAddress, Resolver
resolv_conf, now = Path("/etc/resolv.conf"), 1000.0
resolver = Resolver(2, lambda: now)
"""


def test_search_domains_come_after_the_name_itself(tmp_path: Path) -> None:
    names = {"web.corp.test": ["192.0.2.1"], "web.default.corp.test": ["192.0.2.2"], "www.example.test": ["192.0.2.3"]}
    script = """
        assert await resolver.addresses("web") == ("192.0.2.1",)
        assert await resolver.addresses("web.default") == ("192.0.2.2",)
        assert await resolver.addresses("www.example.test") == ("192.0.2.3",)
        assert await resolver.addresses("web.default.") == NoAddress("no such host name")
    """
    with NameServer(names) as server:
        run_with_resolv_conf(tmp_path, f"nameserver {server.address}\nsearch corp.test\noptions ndots:5\n", script)
    asked = [name for name, kind in server.queries if kind == "A"]
    assert asked == ["web.corp.test", "web.default", "web.default.corp.test", "www.example.test", "web.default"]


def test_a_network_that_comes_up_later_is_found(tmp_path: Path, server: NameServer) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = unused.getsockname()[1]
    script = f"""
        global now
        found = await resolver.addresses("example.test")
        assert found == NoAddress("no name server can be reached; see /etc/resolv.conf"), found
        resolv_conf.write_text("nameserver {server.address}")
        now += 31
        assert await resolver.addresses("example.test") == ("192.0.2.1", "192.0.2.2")
    """
    run_with_resolv_conf(tmp_path, f"nameserver 127.0.0.1:{nobody}", script)


def test_a_changed_resolv_conf_is_read_within_minutes(tmp_path: Path, server: NameServer) -> None:
    script = f"""
        global now
        assert await resolver.addresses("example.test") == NoAddress("no such host name")
        resolv_conf.write_text("nameserver {server.address}")
        now += 301
        assert await resolver.addresses("example.test") == ("192.0.2.1", "192.0.2.2")
    """
    with NameServer({}) as former:
        run_with_resolv_conf(tmp_path, f"nameserver {former.address}", script)


def sockets() -> list[str]:
    folder = Path("/proc/self/fd")
    links = [os.readlink(folder / number) for number in os.listdir(folder) if (folder / number).is_symlink()]
    return sorted(link for link in links if link.startswith("socket:"))


def test_close_ends_all_lookups_and_leaves_no_socket(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_IN_FLIGHT", 20)
    monkeypatch.setattr(module, "CHANNEL_NAMES", 7)  # so that there are retired channels too
    monkeypatch.setitem(NAMES, "late.test", Trouble.SILENT)

    async def main() -> None:
        before = sockets()
        resolver = Resolver(60, servers=[server.address])
        hosts = ["silent.test", "late.test", *(f"{number}.test" for number in range(40))]
        monkeypatch.setattr(server, "losses", 10_000)
        lookups = [asyncio.create_task(resolver.addresses(host)) for host in hosts]
        await asyncio.sleep(0.05)
        assert len(sockets()) > len(before)
        resolver.close()
        assert set(sockets()) <= set(before), "others of this process may have closed meanwhile"
        assert {detail(found) for found in await asyncio.gather(*lookups)} == {"the resolver was closed"}
        assert detail(await resolver.addresses("example.test")) == "the resolver was closed"
        assert set(sockets()) <= set(before), "others of this process may have closed meanwhile"
        resolver.close()

    asyncio.run(main())


def test_retired_channels_are_closed_when_nobody_waits_for_them(
    server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHANNEL_NAMES", 2)

    async def main() -> None:
        before = sockets()
        resolver = Resolver(0.3, servers=[server.address])
        lookups = [asyncio.create_task(resolver.addresses(host)) for host in ("silent.test", "0.test", "1.test")]
        await asyncio.gather(*lookups[1:])
        assert len(resolver._retired) == 1
        await lookups[0]
        await asyncio.sleep(0.01)
        assert not resolver._retired and sockets() == before
        resolver.close()

    asyncio.run(main())


SCRIPTS = {
    "closed": "resolver.close()",
    "forgotten": "pass",
    "closed after the loop": "later = resolver.close",
}


@pytest.mark.parametrize("ending", SCRIPTS)
def test_the_end_of_the_loop_is_silent(server: NameServer, ending: str) -> None:
    script = f"""
import asyncio, gc
from crawler.fetch.resolver import Resolver
later = lambda: None
async def main():
    global later
    resolver = Resolver(5, servers=["{server.address}"])
    await resolver.addresses("example.test")
    waiting = asyncio.create_task(resolver.addresses("silent.test"))
    await asyncio.sleep(0.05)
    {SCRIPTS[ending]}
asyncio.run(main())
later()
gc.collect()
"""
    run = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_resolver_that_looks_nothing_up_costs_nothing() -> None:
    script = """
import sys, threading
from crawler.fetch.resolver import Resolver
resolver = Resolver(5)
resolver.close()
assert "pycares" not in sys.modules and threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
