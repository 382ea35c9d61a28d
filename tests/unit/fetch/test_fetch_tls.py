"""TLS that fails, in each usual way, is a named failure within its limit; each test runs with both fetchers."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from lab import fetching
from lab.certificates import Authority
from lab.fetching import BlockingFetcher as Fetcher
from lab.hostile import BODY, for_ever, says, serving, whole

from crawler.errors import UsageError
from crawler.fetch.request import FetchOptions
from crawler.fetch.trust import check_certificates
from crawler.web.page import Failure, Fetched

SITE = "site.example"
SOON = 200.0
says("/goodbye", whole(BODY, b"Connection: close"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(params=["curl", "requests"])
def ask(
    request: pytest.FixtureRequest, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Fetched | Failure]:
    """Ask site.example on a port of loopback, trusting our authority alone."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.trusted))

    def get(port: int, seconds: float = 250.0) -> Fetched | Failure:
        limits = {"timeout": seconds, "connect_timeout": seconds, "first_byte_timeout": seconds}
        route = (f"::127.0.0.1:{port}",)
        return fetching.get(f"https://{SITE}/", fetcher=request.param, connect_to=route, **limits)

    return get


def context(certificate: Path) -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    return tls


def test_a_good_certificate_is_taken(ask: Callable[..., Fetched | Failure], authority: Authority) -> None:
    with serving(context(authority.issue(SITE, "good"))) as server:
        answer = ask(server.port)
        assert isinstance(answer, Fetched), answer
        assert answer.body == BODY


BAD = {
    "expired": lambda ours, other: ours.issue(SITE, "old", ("20200101000000Z", "20210101000000Z")),
    "not yet valid": lambda ours, other: ours.issue(SITE, "new", ("20900101000000Z", "20910101000000Z")),
    "of another name": lambda ours, other: ours.issue("other.example", "name"),
    "of a wildcard that does not reach": lambda ours, other: ours.issue("*.site.example", "wild"),
    "with its name as common name only": lambda ours, other: ours.issue(SITE, "common", names=""),
    "with a common name beside an address": lambda ours, other: ours.issue(SITE, "ip", names="IP:127.0.0.1"),
    "with a common name beside an e-mail address": lambda ours, other: ours.issue(
        SITE, "mail", names="email:a@b.example"
    ),
    "of itself": lambda ours, other: ours.sign_itself(SITE, "self"),
    "of an unknown authority": lambda ours, other: other.issue(SITE, "unknown"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_certificate_is_refused(
    ask: Callable[..., Fetched | Failure], authority: Authority, tmp_path: Path, kind: str
) -> None:
    other = Authority(tmp_path / "other") if "unknown" in kind else authority
    with serving(context(BAD[kind](authority, other))) as server:
        answer = ask(server.port)
        assert isinstance(answer, Failure) and answer.reason == "tls", answer
        assert server.heads == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_common_name_alone_is_rejected_each_time_also_when_the_tls_session_is_resumed(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, version: ssl.TLSVersion
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.trusted))
    good, bad = context(authority.issue(SITE, "alternative")), context(authority.issue(SITE, "common", names=""))
    for tls in (good, bad):
        tls.minimum_version = tls.maximum_version = version
    with serving(good) as honest, serving(bad) as strange:
        routes = (f":443:127.0.0.1:{honest.port}", f":8443:127.0.0.1:{strange.port}")
        fetcher = Fetcher(FetchOptions(connect_to=routes, timeout=SOON, first_byte_timeout=SOON))
        for _ in range(4):
            assert isinstance(fetcher.get(f"https://{SITE}/goodbye"), Fetched)
            answer = fetcher.get(f"https://{SITE}:8443/goodbye")
            assert isinstance(answer, Failure) and answer.reason == "tls", answer
            assert "common name (CN) only" in answer.detail
        assert honest.connections >= 4 and strange.heads == []
        fetcher.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_protocol_and_a_strange_cipher_are_refused(
    ask: Callable[..., Fetched | Failure], authority: Authority
) -> None:
    certificate = authority.issue(SITE, "again")
    old, strange = context(certificate), context(certificate)
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    strange.maximum_version = ssl.TLSVersion.TLSv1_2
    strange.set_ciphers("aNULL:@SECLEVEL=0")
    for tls in (old, strange):
        with serving(tls) as server:
            answer = ask(server.port)
            assert isinstance(answer, Failure) and answer.reason == "tls", answer


def plain(sock: socket.socket) -> None:
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno!")
    sock.recv(65536)


def garbage(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(bytes(range(256)) * 10)
    sock.recv(65536)


def cut(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76")


def leave(sock: socket.socket) -> None:
    sock.recv(65536)


def leave_at_once(sock: socket.socket) -> None:
    pass


def take_leave(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"\x15\x03\x03\x00\x02\x01\x00")  # close_notify


def reset(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def alert(sock: socket.socket) -> None:
    sock.recv(65536)
    sock.sendall(b"\x15\x03\x03\x00\x02\x02\x28")
    sock.recv(65536)


def silent(sock: socket.socket) -> None:
    while sock.recv(65536):
        pass


def drip(sock: socket.socket) -> None:
    sock.sendall(b"\x16\x03\x03\x40\x00")
    for_ever(sock, b"\x00", 0.1)


def flood(sock: socket.socket) -> None:
    for_ever(sock, b"\x16\x03\x03\x00\x04\x00\x00\x00\x00" * 1000)  # HelloRequest, again and again


HANDSHAKES = {
    plain: {"tls"},
    garbage: {"tls"},
    alert: {"tls"},
    cut: {"connect", "tls"},
    leave: {"connect"},
    leave_at_once: {"connect"},
    take_leave: {"connect"},
    reset: {"connect"},
    silent: {"timeout"},
    drip: {"timeout"},
    flood: {"timeout", "tls"},
}


@pytest.mark.parametrize("play", HANDSHAKES, ids=lambda play: play.__name__)
def test_a_handshake_that_goes_wrong_ends_in_time(
    ask: Callable[..., Fetched | Failure], listening: Callable[..., int], play: Callable[[socket.socket], None]
) -> None:
    began = time.monotonic()
    answer = ask(listening(play), 1.0 if "timeout" in HANDSHAKES[play] else 250.0)
    assert isinstance(answer, Failure) and answer.reason in HANDSHAKES[play], answer
    assert time.monotonic() - began < SOON


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_deadlines_still_hold_when_idle_connections_are_closed(listening: Callable[..., int], fetcher: str) -> None:
    ports = {"a.example": listening(garbage), "b.example": listening(flood)}
    routes = tuple(f"{host}::127.0.0.1:{port}" for host, port in ports.items())
    client = Fetcher(FetchOptions(fetcher=fetcher, timeout=1.0, connect_to=routes))
    began = time.monotonic()
    assert isinstance(client.get("https://a.example/"), Failure)
    client.close_idle()
    time.sleep(1.0)  # longer than between two looks
    assert isinstance(client.get("https://b.example/"), Failure)
    assert time.monotonic() - began < SOON
    client.close()


def test_http2_that_is_none_is_a_bad_answer(ask: Callable[..., Fetched | Failure], authority: Authority) -> None:
    tls = context(authority.issue(SITE, "h2"))
    tls.set_alpn_protocols(["h2"])
    with serving(tls) as server:
        server.answer = lambda sock, head: sock.sendall(b"this is no frame at all" * 1000)  # type: ignore[method-assign]
        answer = ask(server.port, 20.0)
        assert isinstance(answer, Failure) and answer.reason in ("bad-answer", "cut-short", "connect"), answer


@pytest.fixture
def listening() -> Iterator[Callable[..., int]]:
    """Listen on a port and play one connection after another."""
    listeners: list[socket.socket] = []

    def listen(play: Callable[[socket.socket], None]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    sock = listener.accept()[0]
                    with suppress(OSError), sock:
                        play(sock)

        threading.Thread(target=serve, daemon=True).start()
        return int(listener.getsockname()[1])

    yield listen
    for listener in listeners:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


# Self-signed, with an Ed25519 key: so short that one byte has its length.
SMALL = """
-----BEGIN CERTIFICATE-----
MIHSMIGFAhQnoJQ7k5fCThRILGeAWWTH+tX1UDAFBgMrZXAwDDEKMAgGA1UEAwwB
YTAeFw0yNjExMTkwNjEyMjVaFw0yNjExMjAwNjEyMjVaMAwxCjAIBgNVBAMMAWEw
KjAFBgMrZXADIQDf0BOwHZlcXSonFkqldF8VTZsC0pHeGqkI+9hFt9bIVTAFBgMr
ZXADQQA7HTlVZ8RK2v9/RmaO6Sk3B/y1EVrGNPRUXVerkDF44LQ+8UDtTPGQYh1R
uYXghVZoPY2HiBfq7vWqyAbrG9IG
-----END CERTIFICATE-----
"""


@pytest.mark.parametrize("text", [SMALL, f"of our company\n{SMALL.replace(chr(10), chr(13) + chr(10))}"])
def test_any_certificate_will_do_also_a_small_one_behind_a_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(text)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    check_certificates()
    trusted.write_text(text[:-80])  # a part of it was not copied
    with pytest.raises(UsageError, match="cannot be used"):
        check_certificates()
