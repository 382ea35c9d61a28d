"""The names that others rely on exist and work: one simple case each."""

from __future__ import annotations

from crawler.web import charset, markup, robots, urls


def test_normalize_takes_a_url_or_a_link_and_its_base() -> None:
    assert urls.normalize("HTTP://Example.org:80/a/../b#c") == "http://example.org/b"
    assert urls.normalize("../b", "http://example.org/a/") == "http://example.org/b"
    assert urls.normalize("mailto:a@example.org") is None


def test_domain_is_the_registrable_domain() -> None:
    assert urls.domain("www.example.co.uk") == "example.co.uk"
    assert urls.domain("192.0.2.1") is None


def test_decode_returns_text_and_charset() -> None:
    assert charset.decode("é".encode(), "text/html; charset=utf-8") == ("é", "utf-8")


def test_links_are_normalized() -> None:
    assert markup.links(b"<a href=b>x</a>", "text/html", "http://example.org/a") == ["http://example.org/b"]


def test_allows_reads_a_robots_txt() -> None:
    rules = b"User-agent: *\nDisallow: /closed\n"
    assert robots.allows(rules, "folder-crawler/1.0", "http://example.org/open")
    assert not robots.allows(rules, "folder-crawler/1.0", "http://example.org/closed")
