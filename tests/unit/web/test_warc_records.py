"""WARC records and the keys of their index."""

from __future__ import annotations

import gzip

import pytest

from crawler.store import segments
from crawler.web import warc
from crawler.web.surt import surt


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("http://example.org/", "org,example)/"),
        ("https://www.example.org/Path/", "org,example)/path"),
        ("http://www2.example.co.uk:8080/a//b/../c", "uk,co,example:8080)/a/c"),
        ("https://example.org:443/?b=2&a=1&A=0", "org,example)/?a=0&a=1&b=2"),
        ("http://example.org/caf%C3%A9/%2520x?q=%26&", "org,example)/caf%c3%a9/%20x?&&q="),
        ("http://127.0.0.1:8080/x", "1,0,0,127:8080)/x"),
        ("http://[::1]/", "::1)/"),
        ("http://example.org/x?", "org,example)/x"),
        ("http://example.org/?sid=" + "a" * 32 + "&x=1", "org,example)/?x=1"),
        ("http://example.org/(" + "a" * 24 + ")/x.aspx?y", "org,example)/x.aspx?y"),
        ("http://example.org/%", "org,example)/%25"),
    ],
)
def test_a_key_is_the_one_that_pywb_asks_with(url: str, key: str) -> None:
    assert surt(url) == key  # as `surt.surt(url)` of the package surt 0.3.1 gives it


def made(count: int) -> list[bytes]:
    """Records of some lengths."""
    fields = {"WARC-Target-URI": "http://a.example/", "WARC-Date": "2026-11-18T00:00:00Z"}
    head = b"HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; x\r\n\r\n"
    return [warc.record("response", fields, warc.HTTP_RESPONSE, head, b"x" * 20_000 * n) for n in range(count)]


@pytest.mark.parametrize("part", [1 << 20, 1000, 1])
def test_members_are_found_again_whatever_the_parts_they_are_read_in(part: int) -> None:
    members = made(3)
    data = b"".join(members)
    parts = [data[at : at + part] for at in range(0, len(data), part)]
    found = list(segments.records(parts))
    assert [(offset, length) for offset, length, _ in found] == [
        (sum(map(len, members[:n])), len(members[n])) for n in range(3)
    ]
    kind, fields, block = warc.read_head(found[1][2]) or ("", {}, b"")
    entry = warc.entry_of(kind, fields, block)
    assert entry and (entry.url, entry.mime, entry.status) == ("http://a.example/", "text/html", "200")


@pytest.mark.parametrize("end", [b"", b"\0" * 5000, b"\x1f\x8b\x08\0", gzip.compress(b"x" * 99, mtime=0)[:-3], b"junk"])
def test_what_follows_a_cut_is_not_indexed(end: bytes) -> None:
    data = b"".join(made(2))
    assert len(list(segments.records([data + end]))) == 2
    assert len(list(segments.records([data[:-9] + end]))) <= 1
