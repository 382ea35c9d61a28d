"""Before a request is sent, whoever sends it is told the addresses that it may go to; with both fetchers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lab.fetching import BlockingFetcher
from lab.nameserver import NameServer
from lab.world import Answers, html

from crawler.commands.demo.server import read_log, serve
from crawler.commands.demo.web import WebReply
from crawler.fetch.request import FetchOptions
from crawler.fetch.resolver import Resolver
from crawler.web.page import Fetched


class Refused(Exception):
    """What a test says to a request."""


class Clock:
    """A time that a test sets."""

    now = 0.0


class Page(Answers):
    """A web of one page, at every URL."""

    def reply(self, host: str, path: str) -> WebReply:
        return html("<p>x")


@contextmanager
def fetching(
    fetcher: str, names: dict[str, list[str]], tmp_path: Path, **options: Any
) -> Iterator[tuple[BlockingFetcher, int, Clock]]:
    """A fetcher that knows these names, and a web at a port of 127.0.0.1; and the clock of the names."""
    with NameServer(names) as names_at, serve(Page({}), log=tmp_path / "web.log") as server:
        clock = Clock()
        one = BlockingFetcher(FetchOptions(fetcher=fetcher, allow_private=True, timeout=60.0, **options))
        one.fetcher._resolver = Resolver(10, lambda: clock.now, servers=[names_at.address])
        try:
            yield one, server.port, clock
        finally:
            one.close()


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_a_request_is_not_sent_where_it_may_not_go(fetcher: str, tmp_path: Path) -> None:
    def refuse(addresses: tuple[str, ...]) -> None:
        raise Refused(addresses)

    with fetching(fetcher, {"many.test": ["127.0.0.1"] + [f"127.0.1.{n}" for n in range(9)]}, tmp_path) as found:
        one, port, _ = found
        with pytest.raises(Refused) as refused:
            one.get(f"http://many.test:{port}/", admit=refuse)
        (addresses,) = refused.value.args
        assert len(addresses) == 4, "no more are tried"
        assert set(addresses) <= {"127.0.0.1"} | {f"127.0.1.{n}" for n in range(9)}
        with pytest.raises(Refused, match=r"127\.0\.0\.1"):
            one.get(f"http://127.0.0.1:{port}/", admit=refuse)
        with pytest.raises(Refused, match="::1"):
            one.get("http://[::1]:8000/", admit=refuse)
    assert not read_log(tmp_path / "web.log")


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_a_kept_connection_counts_for_its_address_after_the_name_has_moved(fetcher: str, tmp_path: Path) -> None:
    names = {"moves.test": ["127.0.0.1"]}
    seen: list[tuple[str, ...]] = []
    with fetching(fetcher, names, tmp_path) as (one, port, clock):
        url = f"http://moves.test:{port}/"
        assert isinstance(one.get(url, admit=seen.append), Fetched)
        names["moves.test"] = ["127.0.0.9"]
        clock.now += 10_000
        assert isinstance(one.get(url, admit=seen.append), Fetched), "on the connection that was kept"
        assert seen == [("127.0.0.1",), ("127.0.0.9", "127.0.0.1")]


def test_a_kept_connection_that_is_closed_instead_of_a_late_answer_is_replaced_without_another_lookup(
    tmp_path: Path,
) -> None:
    """libcurl would ask the name servers of this machine, which do not know the name."""
    with fetching("curl", {"slow.test": ["127.0.0.1"]}, tmp_path) as (one, *_), listening() as server:
        web = threading.Thread(target=close_instead_of_second_answer, args=(server,), daemon=True)
        web.start()
        url = f"http://slow.test:{server.getsockname()[1]}/"
        assert isinstance(one.get(url), Fetched)
        assert isinstance(one.get(url), Fetched)
        web.join(10)
        assert not web.is_alive(), "the second one came by a new connection"


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def close_instead_of_second_answer(server: socket.socket) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok"
    with server.accept()[0] as kept:
        kept.recv(65536)
        kept.sendall(answer)
        kept.recv(65536)
        time.sleep(3)
    with server.accept()[0] as new:
        new.recv(65536)
        new.sendall(answer)


def test_where_the_operator_leads_it_counts_and_behind_a_proxy_nothing_is_known(tmp_path: Path) -> None:
    seen: list[tuple[str, ...]] = []
    with fetching("curl", {}, tmp_path, connect_to=("::127.0.0.1:1",)) as (one, *_):
        one.get("http://a.example/", admit=seen.append)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with fetching("curl", {}, tmp_path, proxy=f"http://127.0.0.1:{port}") as (one, *_):
        one.get("http://a.example/", admit=seen.append)
    assert seen == [("127.0.0.1",), ()]
