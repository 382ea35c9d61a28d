"""Files of logins: what is read of them, for whom, and what is said of those that are wrong."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.fetch.netrc import read
from crawler.fetch.trust import Trust


def pairs(text: str) -> dict[str, str]:
    headers = read(text, "f")
    assert all(line.startswith("Authorization: Basic ") for line in headers.values())
    return {host: base64.b64decode(line.split(" ")[2]).decode() for host, line in headers.items()}


def test_what_curl_reads_is_read() -> None:
    text = """\
# a comment
machine example.org login me password s3cr3t
machine Two.example
  login you
  account ignored
  password #1"x
machine three.example login "a b" password "q\\"\\\\t\\t"
macdef init
  machine not.example login x password y

machine example.org login second password second
default login anonymous password me@example.org
"""
    assert pairs(text) == {
        "example.org": "me:s3cr3t",
        "two.example": 'you:#1"x',
        "three.example": 'a b:q"\\t\t',
    }


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("machine a.example login me password", "line 2: nothing comes after `password`"),
        ("machine a.example login me", "line 2: the machine needs a login and a password"),
        ("machine", "line 2: nothing comes after `machine`"),
        ("login me password S3CR3T", "line 1: there must be `machine`"),
        ("machine a.example login me password S3CR3T S3CR3T", "line 2: there must be"),
        ('machine a.example login me password "S3CR3T', "line 2: a quotation mark has no end"),
        ("machine a.example login a:b password S3CR3T", "line 2: a login must not have a colon"),
        ("{machine: a.example, password: S3CR3T}", "line 2: there must be"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_line_that_quotes_nothing(bad: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"the netrc file f, {why}") as error:
        read(bad if bad.startswith("login") else f"\n{bad}", "f")
    assert "S3CR3T" not in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_names_no_machine_is_an_error() -> None:
    for text in ("", "# nothing\n", "default login me password x\n"):
        with pytest.raises(UsageError, match="names no machine"):
            read(text, "f")


@given(st.lists(st.sampled_from(["machine", "default", "login", "password", "macdef", "\n", '"', "#", "a.b", "\\"])))
def test_any_text_is_logins_or_one_sentence(words: list[str]) -> None:
    try:
        read(" ".join(words), "f")
    except UsageError as error:
        assert len(str(error).splitlines()) == 1


@pytest.mark.parametrize(
    ("url", "goes"),
    [
        ("https://a.example/x", True),
        ("https://a.example:8443/", True),
        ("http://a.example/", False),
        ("http://plain.example/", True),
        ("http://plain.example:81/", False),
        ("http://127.0.0.1:8000/", True),
        ("https://[::1]:8000/", True),
        ("https://www.a.example/", False),
        ("https://b.example/", False),
        ("http://10.0.0.7:81/", True),
        ("http://10.0.0.7:82/", False),
    ],
)
def test_a_login_goes_to_its_host_and_by_http_only_where_the_operator_said_so(url: str, goes: bool) -> None:
    hosts = ("a.example", "plain.example", "127.0.0.1", "::1", "10.0.0.7:81")
    trust = Trust(logins=dict.fromkeys(hosts, "Authorization: Basic x"), plain=frozenset({"plain.example"}))
    assert trust.headers_for(url) == (("Authorization: Basic x",) if goes else ())
    assert trust.lacks_plain(url) == (url == "http://a.example/" or url == "http://plain.example:81/")


def test_the_operators_own_authorization_header_comes_before_a_login() -> None:
    headers = {"https://a.example": ("authorization: Bearer 1",)}
    trust = Trust(headers=headers, logins={"a.example": "Authorization: Basic x"})
    assert trust.headers_for("https://a.example/") == ("authorization: Bearer 1",)
    assert "Basic" not in repr(trust) and "Bearer" not in repr(trust)
