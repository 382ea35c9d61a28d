"""A plainly written URL is sent as it is; the short way there finds what the long one does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.fetch import fetcher

PIECES = [
    "a.example",
    "http://",
    "https://",
    "/",
    "//",
    "?",
    "??",
    "#",
    ":80",
    ":0",
    "@",
    "\\",
    " ",
    "%41",
    "[::1]",
    "A",
]


@given(
    st.sampled_from(["http://a.example", "https://b-1.example/", ""]), st.lists(st.sampled_from(PIECES)).map("".join)
)
def test_the_short_way_finds_what_the_long_one_does(start: str, rest: str) -> None:
    url, plain = start + rest, fetcher._PLAIN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetcher, "_PLAIN", lambda _: None)
        expected = fetcher._read(url)
    assert fetcher._PLAIN is plain and fetcher._read(url) == expected


def test_a_plain_url_takes_the_short_way() -> None:
    assert fetcher._PLAIN("http://a.example/path?query=1")
    assert fetcher._read("http://a.example/path?query=1") == (
        "http",
        "a.example",
        80,
        "http://a.example/path?query=1",
    )
