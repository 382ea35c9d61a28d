"""What is kept of an exchange: as it came, whatever the outcome, and no longer in memory than somebody holds it."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lab.fetching import BlockingFetcher
from lab.hostile import BODY, PLAYS, Server, whole
from lab.world import LONG, wait_for

from crawler.fetch.exchange import Exchange, exchange_of
from crawler.fetch.request import FetchOptions, Request, Response
from crawler.web.page import Failure, Fetched

BIG = b"<p>" + b"x" * (5 << 20)
PLAYED = ["/", "/redirect", "/redirect-nowhere", "/missing", "/untyped", "/chunked", "/until-close", "/gzip"]
PLAYED += ["/gzip-twice", "/gzip-members", "/deflate", "/deflate-raw", "/early-hints", "/cookie", "/vary", "/slow-down"]
BROKEN = ["/big", "/image", "/long-line", "/many-headers", "/length-negative", "/length-twice", "/chunk-huge"]
BROKEN += ["/chunk-no-end", "/transfer-odd", "/switching", "/no-content", "/no-content-but", "/not-modified"]
BROKEN += ["/status-999", "/status-000", "/nul-header", "/folded", "/no-colon", "/too-short", "/chunk-negative"]
BROKEN += ["/chunk-garbage", "/chunk-cut", "/garbage", "/http-0.9", "/head-cut", "/close", "/reset", "/gzip-bomb"]
BROKEN += ["/gzip-bomb-twice", "/zstd", "/brotli", "/gzip-cut", "/gzip-not", "/gzip-thousandfold", "/many-codings"]


class Large(Server):
    """Answers everything with a large page."""

    def answer(self, sock: socket.socket, head: str) -> bool:
        sock.sendall(whole(BIG))
        return True


@pytest.fixture(params=["curl", "requests"])
def fetcher(request: pytest.FixtureRequest) -> Iterator[BlockingFetcher]:
    made = BlockingFetcher(FetchOptions(fetcher=request.param, timeout=LONG, first_byte_timeout=LONG))
    yield made
    made.close()


@pytest.mark.parametrize("path", PLAYED)
def test_keeping_an_exchange_changes_no_outcome(fetcher: BlockingFetcher, path: str) -> None:
    assert path in PLAYS
    server, kept = Server(), list[Exchange]()
    plain = fetcher.get(server.url(path), private=True)
    with_keep = fetcher.get(server.url(path), private=True, keep=kept.append)
    server.close()
    assert with_keep == plain
    (exchange,) = kept
    assert exchange.head.startswith(b"HTTP/1.1 ") and exchange.head.endswith(b"\r\n\r\n")
    assert (exchange.url, exchange.truncated) == (server.url(path), "")
    # What the requests library closes at once has no address any more.
    assert exchange.address == "127.0.0.1" or path == "/until-close"
    if isinstance(plain, Fetched) and "gzip" not in path and "deflate" not in path and not plain.location:
        assert exchange.body == plain.body
    if path == "/gzip":
        assert gzip.decompress(exchange.body) == BODY
    if path == "/missing":
        assert exchange.body == b"no such page"


@pytest.mark.parametrize("path", BROKEN)
def test_keeping_what_a_hostile_server_sends_changes_no_outcome(fetcher: BlockingFetcher, path: str) -> None:
    assert path in PLAYS
    server, kept = Server(), list[Exchange]()
    plain = fetcher.get(server.url(path), private=True)
    with_keep = fetcher.get(server.url(path), private=True, keep=kept.append)
    server.close()
    if isinstance(plain, Failure) and isinstance(with_keep, Failure):
        assert with_keep.reason == plain.reason
    else:
        assert with_keep == plain
    assert len(kept) <= 1
    assert all(it.head.startswith(b"HTTP/1.") and it.head.endswith(b"\r\n\r\n") for it in kept)


def test_nothing_is_kept_of_an_address_out_of_reach(fetcher: BlockingFetcher) -> None:
    server, kept = Server(), list[Exchange]()
    assert isinstance(fetcher.get(server.url(), private=True), Fetched)
    for path in ("/", "/missing", "/redirect"):
        fetcher.get(server.url(path), keep=kept.append)
    server.close()
    assert kept == []


def test_a_body_that_is_too_large_is_kept_up_to_the_limit_and_says_so() -> None:
    for name in ("curl", "requests"):
        fetcher = BlockingFetcher(FetchOptions(fetcher=name, timeout=LONG, max_size=10_000))
        server, kept = Large(), list[Exchange]()
        failed = fetcher.get(server.url(), private=True, keep=kept.append)
        cut = fetcher.get(server.url(), private=True, keep=kept.append, cut=10_000)
        fetcher.close()
        server.close()
        assert isinstance(failed, Failure) and failed.reason == "too-big"
        assert isinstance(cut, Fetched) and cut.body == BIG[:10_000]
        assert [it.truncated for it in kept] == ["length", "length"]
        assert all(BIG.startswith(it.body) for it in kept)


def test_large_bodies_have_their_places_until_their_exchanges_are_gone(fetcher: BlockingFetcher) -> None:
    server, kept, done = Large(), list[Exchange](), list[int]()

    def get() -> None:
        assert isinstance(fetcher.get(server.url(), private=True, keep=kept.append), Fetched)
        done.append(1)

    threads = [threading.Thread(target=get) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(done) == 4)
    assert len(kept) == 4, "no more bodies of this size at a time"
    kept.clear()
    for thread in threads:
        thread.join(LONG)
    server.close()
    assert len(done) == 6


def test_http_2_is_written_as_readers_know_it_and_secrets_are_withheld() -> None:
    lines = (b"HTTP/2 200 \r\n", b"content-type: text/html\r\n", b"Transfer-Encoding: chunked\r\n")
    headers = ("User-Agent: me", "Accept-Language: de", "Authorization: Basic S3CR3T", "Cookie: a=S3CR3T")
    place: dict[str, Any] = {"scheme": "https", "host": "a.example", "port": 443, "reach": 0, "route": None}
    request = Request(
        url="https://a.example/p?q=1",
        target="https://a.example/p?q=1",
        headers=headers,
        content_types=(),
        limit=9,
        cut=False,
        timeouts=(1.0, 1.0),
        **place,
    )
    made = exchange_of(request, Response(200, {}, head=lines, address="192.0.2.1"), True, None)
    assert made.head == (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nX-Orig-Transfer-Encoding: chunked\r\n\r\n")
    assert (made.protocol, made.address) == ("h2", "")
    assert made.request == (
        b"GET /p?q=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: me\r\nAccept-Language: de\r\n"
        b"Authorization: (withheld)\r\nCookie: (withheld)\r\n\r\n"
    )
