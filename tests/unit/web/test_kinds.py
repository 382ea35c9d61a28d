"""Content types: what is kept, what is text, and which URLs cannot bring any of it."""

from __future__ import annotations

import pytest

from crawler.settings import values
from crawler.web import kinds


@pytest.mark.parametrize(
    ("given", "kind", "is_kept"),
    [
        ("text/html", "text/html", True),
        ("html", "application/xhtml+xml", True),
        ("html", "application/pdf", False),
        ("image/*", "image/png", True),
        ("image/*", "imagex/png", False),
        ("images", "image/svg+xml", True),
        ("*/*", "application/x-thing", True),
        ("all", "video/mp4", True),
        ("pdf", "application/pdf", True),
        ("json", "application/ld+json", True),
        ("json", "application/json", True),
        ("feeds", "application/atom+xml", True),
        ("feeds", "text/xml", True),
        ("documents", "application/pdf", True),
        ("documents", "application/vnd.openxmlformats-officedocument.wordprocessingml.document", True),
        ("documents", "application/vnd.oasis.opendocument.text", True),
        ("documents", "application/zip", False),
    ],
)
def test_types_patterns_and_words_say_what_is_kept(given: str, kind: str, is_kept: bool) -> None:
    assert kinds.admits((values.mime(given.upper()),), kind) is is_kept


@pytest.mark.parametrize("given", ["htm", "image", "a/b/c", "image/[a-z]", "*"])
def test_what_is_no_type_and_no_word_is_refused_in_a_sentence(given: str) -> None:
    with pytest.raises(
        ValueError, match="must be a content type such as text/html, image/\\* or \\*/\\*, or one of html"
    ):
        values.mime(given)


@pytest.mark.parametrize(
    ("kind", "is_text", "extension"),
    [
        ("text/html", True, "html"),
        ("", True, "bin"),
        ("text/csv", True, "csv"),
        ("application/json", True, "json"),
        ("application/rss+xml", True, "rss"),
        ("application/pdf", False, "pdf"),
        ("image/jpeg", False, "jpg"),
        ("image/svg+xml", False, "svg"),
        ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", False, "xlsx"),
        ("application/octet-stream", False, "bin"),
        ("application/../../x", False, "bin"),
        ("video/mp4", False, "mp4"),
    ],
)
def test_text_is_told_from_files_and_files_get_extensions_of_the_table(
    kind: str, is_text: bool, extension: str
) -> None:
    assert (kinds.is_text(kind), kinds.extension(kind)) == (is_text, extension)


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("", b"%PDF-1.7\n", "application/pdf"),
        ("", b"\x89PNG\r\n\x1a\nxx", "image/png"),
        ("", b"<!doctype html>", ""),
        ("", b"\x00\x01\x02", "application/octet-stream"),
        ("text/plain", b"\x00\x01\x02", "application/octet-stream"),
        ("text/plain", b"\xff\xfea\0", "text/plain"),  # UTF-16
        ("text/plain", "größer".encode(), "text/plain"),
        ("text/html", b"\x00\x01\x02", "text/html"),
    ],
)
def test_a_body_without_a_type_is_known_by_its_first_bytes(kind: str, body: bytes, shown: str) -> None:
    assert kinds.sniffed(kind, body) == shown


SKIPPED = [
    "/a.jpg",
    "/a.JPG?x=1",
    "/a.pdf",
    "/a.zip",
    "/a.mp4",
    "/a.css",
    "/a.js",
    "/b/c.tar.gz",
    "/a.pdf;v=2",
    "/a.%70df",
]
REQUESTED = [
    "/",
    "/a",
    "/a.php",
    "/a.aspx",
    "/a.html",
    "/a.xml",
    "/a.unknown",
    "/a.jpg/",
    "/v.php?f=a.jpg",
    "/x.php/a.jpg",
]
REQUESTED += ["/wiki/File:Cat.jpg", "/File%3ACat.jpg", "/tags/node.js", "/wiki/Vue.js", "/u/r/blob/main/a.png", "/a.1"]


@pytest.mark.parametrize("path", SKIPPED)
def test_a_url_that_cannot_be_html_is_known_by_its_extension(path: str) -> None:
    assert kinds.unwanted_extension(f"http://a.example{path}", kinds.HTML)


@pytest.mark.parametrize("path", REQUESTED)
def test_a_url_that_may_be_html_is_not_skipped(path: str) -> None:
    assert kinds.unwanted_extension(f"http://a.example{path}", kinds.HTML) is None
    assert kinds.unwanted_extension("http://pictures.jpg", kinds.HTML) is None
    assert kinds.unwanted_extension("http://pictures.jpg/", kinds.HTML) is None


def test_what_is_wanted_is_not_skipped() -> None:
    assert kinds.unwanted_extension("http://a.example/a.pdf", ("html", "pdf")) is None
    assert kinds.unwanted_extension("http://a.example/a.jpg", ("html", "pdf")) == "jpg"
    assert kinds.unwanted_extension("http://a.example/a.jpg", ("image/*",)) is None
    assert kinds.unwanted_extension("http://a.example/a.exe", ("all",)) is None
    assert kinds.unwanted_extension("http://a.example/a.exe", ()) is None
