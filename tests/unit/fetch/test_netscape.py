"""Files of cookies as curl and browsers write them: what is read, and what is said of lines that are wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.fetch.netscape import read

GOOD = "# Netscape HTTP Cookie File\n\n"


def line(*fields: str) -> str:
    return "\t".join(fields) + "\n"


def test_what_curl_and_browsers_write_is_read() -> None:
    text = (
        "\ufeff# Netscape HTTP Cookie File\r\n# https://curl.se/docs/http-cookies.html\r\n\r\n"
        + line(".example.org", "TRUE", "/", "FALSE", "4102444800", "id", "1=2").replace("\n", "\r\n")
        + line("#HttpOnly_www.example.org", "FALSE", "/dir", "TRUE", "0", "sid", "abc")
        + line("127.0.0.1", "TRUE", "/", "false", "4102444800.5", "a", "")
        + "\t".join(("localhost", "FALSE", "/", "FALSE", "-1", "empty"))
        + "\n"
        + line(".example.org", "TRUE", "/", "FALSE", "1", "gone", "x")
    )
    read_in = [(it.domain, it.below, it.cookie.pair, it.cookie.path, it.cookie.secure) for it in read(text, "f")]
    assert read_in == [
        ("example.org", True, "id=1=2", "/", False),
        ("www.example.org", False, "sid=abc", "/dir", True),
        ("127.0.0.1", False, "a=", "/", False),
        ("localhost", False, "empty=", "/", False),
    ]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (line("example.org FALSE / FALSE 0 s S3CR3T"), "7 fields with tabs"),
        ('[{"domain": "example.org", "value": "S3CR3T"}]\n', "7 fields with tabs"),
        (line("example.org", "yes", "/", "FALSE", "0", "s", "S3CR3T"), "second field"),
        (line("example.org", "TRUE", "/", "1", "0", "s", "S3CR3T"), "fourth field"),
        (line("example.org", "TRUE", "S3CR3T", "TRUE", "0", "s", "S3CR3T"), "path"),
        (line("example.org", "TRUE", "/", "TRUE", "S3CR3T", "s", "x"), "expiry"),
        (line("example.org", "TRUE", "/", "TRUE", "nan", "s", "S3CR3T"), "expiry"),
        (line("example.org", "TRUE", "/", "TRUE", "0", "", "S3CR3T"), "name or value"),
        (line("example.org", "TRUE", "/", "TRUE", "0", "s", "S3CR3T; x=1"), "name or value"),
        (line("example.org", "TRUE", "/", "TRUE", "0", "s", "S3CR3T\u010d"), "name or value"),
        (line("example.org", "TRUE", "/", "TRUE", "0", "s", "S3CR3T" * 1000), "name or value"),
        (line("", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "first field"),
        (line("http://example.org", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "first field"),
        (line("example.org:8080", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "first field"),
        (line("a b", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "first field"),
        (line(".co.uk", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "public suffix"),
        (line(".com", "TRUE", "/", "TRUE", "0", "s", "S3CR3T"), "top-level"),
    ],
)
def test_a_wrong_line_is_named_by_its_number_and_not_quoted(bad: str, why: str) -> None:
    good = line("example.org", "TRUE", "/", "TRUE", "0", "s", "S3CR3T")
    with pytest.raises(UsageError, match=f"the cookies file f, line 4: .*{why}") as error:
        read(GOOD + good + bad, "f")
    assert "S3CR3T" not in str(error.value) and "\n" not in str(error.value)


def test_several_wrong_lines_are_named_in_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"line 3: .* \(also lines 4, 5, 6, 7 \.\.\.\)"):
        read(GOOD + "x\n" * 9, "f")
    with pytest.raises(UsageError, match=r"line 3: .* \(also line 4\);"):
        read(GOOD + "x\n" * 2, "f")


def test_a_file_that_would_do_nothing_is_an_error() -> None:
    with pytest.raises(UsageError, match="has no cookies"):
        read(GOOD, "f")
    with pytest.raises(UsageError, match="expired"):
        read(line("example.org", "TRUE", "/", "TRUE", "1", "s", "x"), "f")


@given(st.text(st.characters(max_codepoint=300), max_size=60), st.lists(st.text(max_size=8), max_size=9))
def test_any_text_is_cookies_or_one_sentence(text: str, fields: list[str]) -> None:
    for one in (text, "\t".join(fields)):
        try:
            found = read(one, "f")
        except UsageError as error:
            assert len(str(error).splitlines()) == 1
        else:
            assert all(ord(character) > 31 for it in found for character in it.cookie.pair)
