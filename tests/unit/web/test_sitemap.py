"""Sitemaps of every kind, as they are and as they should not be; and what they may cost."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webencodings.labels import LABELS

from crawler.web.sitemap import MAX_ENTRIES, MAX_SITEMAP_BYTES, Sitemap, Unreadable, read

URL = "https://a.example/dir/sitemap.xml"
XML = "application/xml"
OPEN = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'


def entry(loc: str, more: str = "") -> str:
    return f"<url><loc>{loc}</loc>{more}</url>"


def urlset(*entries: str) -> str:
    return OPEN + "\n".join(entries) + "</urlset>"


def reading(body: str | bytes, content_type: str = XML) -> Sitemap:
    return read(body if isinstance(body, bytes) else body.encode(), content_type, URL)


def paths(body: str | bytes, content_type: str = XML) -> list[str]:
    return [link.removeprefix("https://a.example") for link in reading(body, content_type).links]


# What is in them


def test_a_urlset_gives_its_pages_with_their_priorities() -> None:
    body = urlset(entry("https://a.example/1"), entry("https://b.example/2", "<priority>0.8</priority>"))
    assert reading(body) == Sitemap("urlset", ("https://b.example/2", "https://a.example/1"), (8, 5), False)


def test_an_index_gives_other_sitemaps_the_newest_first() -> None:
    body = (
        "<sitemapindex><sitemap><loc>/1.xml</loc><lastmod>2020-01-01</lastmod></sitemap>"
        "<sitemap><loc>/2.xml.gz</loc><lastmod>2021-01-01</lastmod></sitemap></sitemapindex>"
    )
    assert reading(body).kind == "index"
    assert paths(body) == ["/2.xml.gz", "/1.xml"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n \n"])
def test_a_text_gives_one_page_a_line(end: str) -> None:
    body = "\ufeff" + end.join(["https://a.example/1", " HTTPS://a.example/ü\t", "not a url", "/3", "ftp://a/", ""])
    assert reading(body, "text/plain") == Sitemap(
        "text", ("https://a.example/1", "https://a.example/%C3%BC"), (5, 5), False
    )


def test_feeds_are_sitemaps_too() -> None:
    rss = "<rss><channel><link>/no</link><item><link>/1</link><guid>/no</guid></item><item><link>/2</link></item>"
    assert paths(rss + "</channel></rss>") == ["/1", "/2"]
    atom = (
        "<feed xmlns='http://www.w3.org/2005/Atom'><link href='/no'/><entry><link rel='edit' href='/no'/>"
        "<link href='/1'/><updated>2020-01-01T00:00:00Z</updated></entry>"
        "<entry><link rel='alternate' href='/2'/><updated>2021-01-01T00:00:00Z</updated></entry></feed>"
    )
    assert paths(atom) == ["/2", "/1"]
    assert reading(atom).kind == "urlset"


def test_links_come_normalized_without_repeats() -> None:
    body = urlset(
        entry("HTTPS://A.example:443/1#x"),
        entry("\n  https://a.example/1?utm_source=x  \n"),
        entry("/2?a=1&amp;b=%C3%BC&#38;c=é"),
        entry("<![CDATA[https://a.example/3?a=1&b=2]]>"),
        entry("mailto:x@y"),
        entry(""),
        "<url><loc>/4</loc><loc>/no</loc></url>",
        "<url/>",
    )
    assert paths(body) == ["/1", "/2?a=1&b=%C3%BC&c=%C3%A9", "/3?a=1&b=2", "/4"]
    tracked = read(body.encode(), XML, URL, tracking=("a",))
    assert tracked.links[1] == "https://a.example/1?utm_source=x"


@pytest.mark.parametrize(
    "before, after",
    [
        ("<priority>0.6</priority>", ""),
        ("<priority> 1.0 </priority>", "<priority>0.9</priority>"),
        ("<priority>1</priority>", "<priority>2</priority>"),
        ("", "<priority>0.4</priority>"),
        ("<lastmod>2021</lastmod>", "<lastmod>2020-12-31</lastmod>"),
        ("<lastmod>2021-03</lastmod>", "<lastmod>2021-02-28T23:59:59.99Z</lastmod>"),
        ("<lastmod>2021-03-01T10:00Z</lastmod>", "<lastmod>2021-03-01T10:00+02:00</lastmod>"),
        ("<lastmod>2021-03-01T10:00:00-05:00</lastmod>", "<lastmod>2021-03-01T12:00:00.123456789Z</lastmod>"),
        ("<lastmod>1970-01-01</lastmod>", "<lastmod>yesterday</lastmod>"),
        ("<lastmod>0001-01-01T00:00:00+14:00</lastmod>", "<lastmod>2021-13-45</lastmod>"),
        ("<priority>0.7</priority><lastmod>1999</lastmod>", "<priority>0.6</priority><lastmod>2024</lastmod>"),
        ("<lastmod>2020</lastmod>", "<lastmod></lastmod>"),
    ],
)  # fmt: skip
def test_priority_comes_first_then_the_newest(before: str, after: str) -> None:
    for body in (urlset(entry("/1", before), entry("/2", after)), urlset(entry("/2", after), entry("/1", before))):
        assert paths(body) == ["/1", "/2"]


@pytest.mark.parametrize("garbage", ["", "high", "-0.1", "1.1", "10", "nan", "inf", "0,8", "0x1", "5"])
def test_a_priority_that_is_none_is_the_protocols_default(garbage: str) -> None:
    body = urlset(*(entry(f"/{n}", f"<priority>{garbage}</priority>") for n in range(3)))
    assert reading(body).priorities == (5, 5, 5)
    assert paths(body) == ["/0", "/1", "/2"]


@pytest.mark.parametrize("value, tenths", [("0", 0), ("0.0", 0), ("0.1", 1), ("0.30", 3), ("0.96", 10), ("1.00", 10)])
def test_a_priority_is_in_tenths(value: str, tenths: int) -> None:
    assert reading(urlset(entry("/1", f"<priority>{value}</priority>"))).priorities == (tenths,)


def test_of_a_page_that_is_named_twice_the_more_important_counts() -> None:
    body = urlset(entry("/1"), entry("/2", "<priority>0.6</priority>"), entry("/1", "<priority>0.9</priority>"))
    assert (paths(body), reading(body).priorities) == (["/1", "/2"], (9, 6))


@pytest.mark.parametrize(
    "body",
    [
        "<urlset><url><loc>/1</loc></url></urlset>",
        "<urlset xmlns='urn:other'><url><loc>/1</loc></url></urlset>",
        "<sm:urlset xmlns:sm='x'><sm:url><sm:loc>/1</sm:loc><loc>/no</loc></sm:url></sm:urlset>",
        "<!DOCTYPE urlset><urlset><url><loc>/1</loc></url></urlset>",
        "<!-- c --><?xml-stylesheet href='/no'?><urlset><url><loc>/1</loc></url></urlset>",
        "\n\n \ufeff<?xml version='1.0'?><urlset><url><loc>/1</loc></url></urlset>\n ",
        "<urlset><url><image:image><image:loc>/no</image:loc></image:image><loc>/1</loc></url></urlset>",
        "<urlset><url><image:loc>/no</image:loc><video:video><loc>/no</loc></video:video><loc>/1</loc></url></urlset>",
        "<urlset><url><loc>/1</loc><xhtml:link rel='alternate' href='/no'/></url></urlset>",
        "<urlset><loc>/no</loc><url><loc>/1</loc></url></urlset>",
        "<!DOCTYPE urlset SYSTEM 'file:///etc/passwd'><urlset><url><loc>/1</loc></url></urlset>",
    ],
)  # fmt: skip
def test_namespaces_extensions_and_prologues_do_not_matter(body: str) -> None:
    assert paths(body) == ["/1"]
    assert not reading(body).capped


# Charsets

DECLARED = "<?xml version='1.0' encoding='{}'?><urlset><url><loc>/é</loc></url></urlset>"


@pytest.mark.parametrize(
    "body, content_type",
    [
        (DECLARED.format("UTF-8").encode(), XML),
        (DECLARED.format("iso-8859-1").encode("latin-1"), XML),
        (DECLARED.format("utf-8").encode("latin-1"), "text/xml; charset=iso-8859-1"),
        (DECLARED.format("utf-16").encode(), XML),
        (DECLARED.format("utf-8").encode(), "text/xml; charset=utf-16"),
        (DECLARED.format("nonsense").encode(), XML),
        (DECLARED.format("rot13").encode(), "text/xml; charset=idna"),
        (DECLARED.format("koi8-r").encode("utf-8-sig"), XML),
        (DECLARED.format("utf-16").encode("utf-16"), XML),
        (DECLARED.format("utf-8").encode("utf-16"), "text/xml; charset=utf-8"),
        (DECLARED.format("utf-16").encode("utf-16-be"), XML),
        ("<urlset><url><loc>/é</loc></url></urlset>".encode("utf-16-le"), XML),
        (gzip.compress(DECLARED.format("utf-16").encode("utf-16"), mtime=0), XML),
    ],
)
def test_the_first_bytes_know_the_charset_better_than_a_wrong_declaration(body: bytes, content_type: str) -> None:
    assert paths(body, content_type) == ["/%C3%A9"]


@pytest.mark.parametrize("charset", sorted(set(LABELS.values())))
def test_no_charset_is_too_strange(charset: str) -> None:
    body = f"<?xml version='1.0' encoding='{charset}'?><urlset><url><loc>/1</loc></url></urlset>"
    assert paths(body) == ["/1"]
    assert paths(body, f"text/xml; charset={charset}") == ["/1"]


# What is broken


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" \n",
        b"\0\1\2",
        b"<",
        b"hello",
        b'{"urls": ["https://a.example/"]}',
        b"<!DOCTYPE html><html><body><a href=/1>x</a></body></html>",
        b"<html xmlns='http://www.w3.org/1999/xhtml'><urlset><url><loc>/1</loc></url></urlset></html>",
        b"<a>https://a.example/</a>",
        b"<?xml version='1.0'?>",
        b"%PDF-1.4",
        gzip.compress(b"", mtime=0),
        gzip.compress(b"<html>", mtime=0),
        b"\x1f\x8b",
        b"\x1f\x8bnot gzip",
    ],
)
def test_what_is_no_sitemap_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        reading(body)


LAUGHS = "".join(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 12))


@pytest.mark.parametrize(
    "declared",
    [
        "<!ENTITY l0 'ha'>" + LAUGHS,
        "<!ENTITY l11 SYSTEM 'file:///etc/passwd'>",
        "<!ENTITY % p SYSTEM 'http://b.example/x.dtd'> %p;",
        "<!ENTITY l11 'ha'>",
    ],
)
def test_entities_of_its_own_make_a_sitemap_unreadable(declared: str) -> None:
    with pytest.raises(Unreadable, match="entities"):
        reading(f"<!DOCTYPE urlset [{declared}]><urlset><url><loc>/&l11;</loc></url></urlset>")


@pytest.mark.parametrize(
    "tail",
    [
        "<url><loc>/a?b=1&c=2</loc></url></urlset>",
        "<url><loc>/&eacute;</loc></url></urlset>",
        "<url><loc>/no",
        "</wrong>",
        "</urlset><more/>",
        "\0",
        "",
        "<url><loc>/no</loc>",
    ],
)
def test_what_stands_before_something_broken_counts(tail: str) -> None:
    body = OPEN + entry("/1") + entry("/2") + tail
    assert paths(body) == ["/1", "/2"]
    assert reading(body).capped


# Compression


def test_gzip_is_known_by_its_first_bytes_in_any_number_of_members() -> None:
    body = urlset(entry("/1"), entry("/2")).encode()
    whole = reading(body)
    assert reading(gzip.compress(body), "text/html") == whole
    assert reading(b"".join(gzip.compress(body[n : n + 7]) for n in range(0, len(body), 7))) == whole
    assert reading(gzip.compress(body) + b"\0" * 100) == whole
    assert reading(gzip.compress(b"") + gzip.compress(body)) == whole
    assert reading(gzip.compress(b"https://a.example/1")).kind == "text"


def test_a_gzip_that_is_cut_off_gives_what_came_before() -> None:
    entries = [entry(f"/{number}") for number in range(30_000)]
    body = gzip.compress(urlset(*entries).encode())
    cut = reading(body[: len(body) // 2])
    assert cut.capped and 10_000 < len(cut.links) < 20_000
    assert cut.links == reading(body).links[: len(cut.links)]
    spoilt = reading(body[: len(body) // 2] + b"\xff" * 1000 + body[len(body) // 2 :])
    assert spoilt.capped and len(spoilt.links) > 10_000
    lines = gzip.compress("\n".join(f"https://a.example/{n}" for n in range(10_000, 90_000)).encode())
    text = reading(lines[: len(lines) // 4])
    assert text.capped and {len(link) for link in text.links} == {len("https://a.example/10000")}


@settings(deadline=None)
@given(st.integers(0, 300_000), st.integers(0, 9))
def test_gzip_gives_back_all_that_was_put_in(size: int, level: int) -> None:
    body = (OPEN + " " * size + entry("/1") + "</urlset>").encode()
    assert reading(gzip.compress(body, level)) == reading(body)
    assert not reading(body).capped


# Limits


def test_no_more_entries_are_taken_than_the_protocol_allows() -> None:
    full = reading(urlset(*(entry(f"/{number}") for number in range(MAX_ENTRIES))))
    assert (len(full.links), full.capped) == (MAX_ENTRIES, False)
    over = reading(urlset(*(entry(f"/{number}") for number in range(MAX_ENTRIES + 1))))
    assert (over.links, over.capped) == (full.links, True)
    text = reading("\n".join(f"https://a.example/{number}" for number in range(MAX_ENTRIES + 1)))
    assert (text.links, text.capped) == (full.links, True)


def test_no_more_bytes_are_decoded_than_the_protocol_allows() -> None:
    start, end = (OPEN + entry("/1")).encode(), (entry("/2") + "</urlset>").encode()
    space = b" " * (MAX_SITEMAP_BYTES - len(start) - len(end))
    whole = reading(gzip.compress(start + space + end))
    assert (len(whole.links), whole.capped) == (2, False)
    over = reading(gzip.compress(start + space + b" " + end))
    assert (len(over.links), over.capped) == (2, True)
    assert paths(gzip.compress(start + space + b" " * len(end) + end)) == ["/1"]


HOSTILE = {
    "nested elements": lambda: b"<a>" * 5_000_000,
    "elements": lambda: b"<a/>" * 5_000_000,
    "entries": lambda: b"<url/>" * 5_000_000,
    "names": lambda: b"".join(b"<n%d/>" % number for number in range(500_000)),
    "attributes": lambda: b"<a " + b" ".join(b"a%d=''" % number for number in range(500_000)),
    "a long attribute": lambda: b"<a b='" + b"x" * 20_000_000,
    "a long comment": lambda: b"<!--" + b"- " * 10_000_000,
    "a long address": lambda: b"<url><loc>" + b"x" * 20_000_000,
    "an address of entities": lambda: b"<url><loc>" + b"&amp;" * 5_000_000,
    "an address of lines": lambda: b"<url><loc>" + b"\n" * 20_000_000,
    "lines": lambda: b"\n" * 20_000_000,
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_sitemap_gives_what_it_had_in_reasonable_time(name: str) -> None:
    body = gzip.compress((OPEN + entry("/1")).encode() + HOSTILE[name](), 1)
    began = time.process_time()
    assert reading(body) == Sitemap("urlset", ("https://a.example/1",), (5,), True)
    assert time.process_time() - began < 60  # quadratic would be hours; a noisy machine is not


# In processes of their own, because a peak is a peak of the whole process.
MAKE = """
import sys, zlib
packer = zlib.compressobj(1, wbits=31)
for piece in {}:
    sys.stdout.buffer.write(packer.compress(piece))
sys.stdout.buffer.write(packer.flush())
"""
# (ru_maxrss would not do: a child begins with its parent's.)
MEASURE = """
import re, sys
from crawler.web.sitemap import read
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
body = sys.stdin.buffer.read()
before = peak()
found = read(body, "", "https://a.example/")
print(len(found.links), peak() - before)
"""
START = (OPEN + entry("/1")).encode()
COSTLY = {
    # what is in the file: (its pieces, links, megabytes at most)
    "a gigabyte of spaces": (f"[{START!r}] + [b' ' * 2**20] * 1024", 1, 10),
    "a gigabyte of elements": (f"[{START!r}] + [b'<a/>' * 2**18] * 1024", 1, 10),
    "a gigabyte of nested elements": (f"[{START!r}] + [b'<aa>' * 2**18] * 1024", 1, 10),
    "a gigabyte of one comment": (f"[{START!r}, b'<!--'] + [b'x' * 2**20] * 1024", 1, 10),
    "millions of names": (f"[{START!r}] + [b'<n%d/>' % n for n in range(2_000_000)]", 1, 20),
    "50 MB of entries": (
        f"[{OPEN.encode()!r}] + [b'<url><loc>/%d</loc>%950s</url>' % (n, b'') for n in range(50000)]", 50_000, 30
    ),
}  # fmt: skip


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("name", COSTLY)
def test_a_large_document_takes_little_memory(name: str) -> None:
    pieces, links, most = COSTLY[name]
    made = subprocess.run([sys.executable, "-c", MAKE.format(pieces)], capture_output=True, check=True)
    done = subprocess.run([sys.executable, "-c", MEASURE], input=made.stdout, capture_output=True, check=True)
    count, kibibytes = map(int, done.stdout.split())
    print(f"{name}: {len(made.stdout):,} bytes, {count:,} links, {kibibytes / 1024:.0f} MB")
    assert count == links
    assert kibibytes < most * 1024


WORDS = (
    b"<urlset> </urlset> <url> </url> <loc> </loc> <sitemapindex> <lastmod> 2020 <priority> 0.5 &amp; &x; ]]> <![CDATA["
)
WORDS += b" <!DOCTYPE <!ENTITY <?xml \x1f\x8b\x08 \xff\xfe \xef\xbb\xbf http://b.example/ \n \0 <rss> <feed> <a:b"


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(WORDS.split(b" ")) | st.binary(max_size=4)).map(b"".join),
    st.booleans(),
    st.sampled_from(["", XML, "text/plain; charset=utf-16", "text/html"]),
)
def test_any_bytes_are_a_sitemap_or_unreadable(body: bytes, is_packed: bool, content_type: str) -> None:
    try:
        found = read(gzip.compress(body) if is_packed else body, content_type, URL)
    except Unreadable:
        return
    assert found.kind in ("urlset", "index", "text")
    assert len(found.links) == len(set(found.links)) == len(found.priorities)
    assert all(link.startswith(("http://", "https://")) for link in found.links)
    assert list(found.priorities) == sorted(found.priorities, reverse=True)
