"""Whatever a server sends where the head of a response should be: a page or a named failure, and no traceback."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.fetching import BlockingFetcher
from lab.hostile import Server

from crawler.fetch.heads import final_head, pairs
from crawler.fetch.request import FetchOptions, Request, check_headers, fold
from crawler.web.page import Failure, Fetched
from crawler.web.reasons import look_up

PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
HEADS = {
    "an empty line before the status line": (b"\r\n" + PAGE, "bad-answer"),
    "a line feed before it": (b"\n" + PAGE, "bad-answer"),
    "garbage before it": (b"garbage\r\n" + PAGE, "bad-answer"),
    "only empty lines": (b"\r\n" * 9, "bad-answer"),
    "one empty line": (b"\r\n", "bad-answer"),
    "NUL bytes": (b"\0\0\0\r\n\r\n", "bad-answer"),
    "nothing": (b"", "connect"),
    "no status": (b"HTTP/1.1\r\n\r\nhi", "bad-answer"),
    "an empty status": (b"HTTP/1.1 \r\n\r\nhi", "bad-answer"),
    "letters for a status": (b"HTTP/1.1 abc OK\r\n\r\nhi", "bad-answer"),
    "superscripts for a status": (b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\nhi", "bad-answer"),
    "a status below 100": (b"HTTP/1.1 099 X\r\n\r\nhi", "bad-answer"),
    "a header without a colon": (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\nhi", "bad-answer"),
    "a first header that is folded": (b"HTTP/1.1 200 OK\r\n folded\r\n\r\nhi", "bad-answer"),
    "an empty line after an interim response": (b"HTTP/1.1 100 C\r\n\r\n\r\n" + PAGE, "bad-answer"),
    "only interim responses": (b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 900, "connect"),
    "many interim responses": (b"HTTP/1.1 100 Continue\r\n\r\n" * 50 + PAGE, ""),
}
PIECES = [b"HTTP/1.1", b" ", b"200", b"302", b"\r\n", b"\n", b"\r", b":", b"Content-Length: 3", b"x", b"\0", b"\xff"]
PIECES += [
    b"-1",
    b"100 C",
    b"Transfer-Encoding: chunked",
    b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
    b"\t",
    b"Location: ",
    PAGE,
]


class Raw(Server):
    """Answers each request with these bytes, and closes the connection."""

    data = b""

    def answer(self, sock: socket.socket, head: str) -> None:
        sock.sendall(self.data)


@pytest.fixture(scope="module")
def server() -> Iterator[Raw]:
    one = Raw()
    yield one
    one.close()


@pytest.fixture(scope="module", params=("curl", "requests"))
def fetcher(request: pytest.FixtureRequest) -> Iterator[BlockingFetcher]:
    one = BlockingFetcher(FetchOptions(fetcher=request.param, allow_private=True))
    yield one
    one.close()


@pytest.mark.parametrize("head", HEADS)
def test_a_broken_head_is_a_named_failure(
    fetcher: BlockingFetcher, server: Raw, head: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.data, reason = HEADS[head]
    with caplog.at_level(logging.WARNING):
        got = fetcher.get(server.url())
    assert (got.reason if isinstance(got, Failure) else "") == reason
    assert not caplog.records


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_a_page_or_a_named_failure(fetcher: BlockingFetcher, server: Raw, seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        server.data = b"".join(random.choices(PIECES, k=random.randrange(12)))
        got = fetcher.get(server.url())
        assert isinstance(got, Fetched) or look_up(got.reason), server.data


@given(st.lists(st.sampled_from([*PIECES, b"\r\n", b"\n"]) | st.binary(max_size=20).map(lambda line: line + b"\r\n")))
def test_any_lines_of_a_head_are_read_without_an_error(lines: list[bytes]) -> None:
    status, headers = final_head(lines)
    url = "http://a.example/"
    request = Request(url, url, "http", "a.example", 80, (), ("text/html",), 1000, False, False, None, (9.0, 9.0))
    if status:
        outcome = check_headers(request, status, fold(pairs(headers)))
        assert outcome is None or isinstance(outcome, Fetched) or look_up(outcome.reason)
