"""URL ranges and templates: what curl's manual promises, and what must stay as it is."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.web import ranges


@pytest.mark.parametrize(
    ("pattern", "urls"),
    [
        ("http://x/", ["http://x/"]),
        ("http://x/?page=[0-3]", [f"http://x/?page={n}" for n in range(4)]),
        ("http://x/?page=[0-90:30]", [f"http://x/?page={n}" for n in (0, 30, 60, 90)]),
        ("http://x/?page=[0-20:30]", ["http://x/?page=0"]),
        ("http://x/[098-101]", [f"http://x/{n}" for n in ("098", "099", "100", "101")]),
        ("http://x/[0-10:5]", ["http://x/0", "http://x/5", "http://x/10"]),
        ("http://x/[a-c]", ["http://x/a", "http://x/b", "http://x/c"]),
        ("http://x/[A-G:3]", ["http://x/A", "http://x/D", "http://x/G"]),
        ("http://{a,b}.x/", ["http://a.x/", "http://b.x/"]),
        ("http://x/{,b}", ["http://x/", "http://x/b"]),
        ("http://x/{a,b}/[1-2]", ["http://x/a/1", "http://x/a/2", "http://x/b/1", "http://x/b/2"]),
        ("http://[::1]:8000/[1-2]", ["http://[::1]:8000/1", "http://[::1]:8000/2"]),
        ("http://u@[fe80::1-2]/", None),
        ("http://x/?a[]=1&b[0]=2", ["http://x/?a[]=1&b[0]=2"]),
        ("http://x/{id}", ["http://x/{id}"]),
        (r"http://x/\[1-2\]\{a,b\}", ["http://x/[1-2]{a,b}"]),
        (r"http://x/\[1-2\{a,b", ["http://x/[1-2{a,b"]),
        ("http://x/?a[&b{&c]&d}-,", ["http://x/?a[&b{&c]&d}-,"]),
        ('http://x/{"a":1,"b":{"c":2}}', ['http://x/{"a":1,"b":{"c":2}}']),
        ("http://[2001:db8::1/[1-2]", ["http://[2001:db8::1/1", "http://[2001:db8::1/2"]),
    ],
)
def test_a_pattern_stands_for_these_urls(pattern: str, urls: list[str] | None) -> None:
    if urls is None:
        with pytest.raises(ValueError, match="not a range"):
            ranges.expand(pattern)
    else:
        assert list(ranges.expand(pattern)) == urls


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("http://x/[9-1]", "smaller end first"),
        ("http://x/[1-9:0]", "step of at least 1"),
        ("http://x/[a-Z]", "one case"),
        ("http://x/[1-z]", "both ends must be numbers"),
        ("http://x/[1-9:]", "not a range"),
        ("http://x/[--]", "--globoff"),
        ("http://x/{y,z", r"\{y,z has no closing \}; with --globoff"),
        ("http://x/[a-", r"\[a- has no closing \]; with --globoff"),
        ("http://x[1-", r"\[1- has no closing \]"),
        ("http://x/[1-3/", "no closing"),
        ("http://x/[1-3{a,b}", "no closing"),
        ("http://x/{a,b/[1-2]", "no closing"),
        ("http://x/[1-999]/[1-999]/[1-999]", "997,002,999 URLs"),
    ],
)
def test_a_range_without_sense_is_named(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ranges.expand(pattern)


@pytest.mark.fleet  # for time
def test_millions_of_urls_are_made_one_at_a_time() -> None:
    urls = ranges.expand("http://x/[0-9999999]")
    assert list(islice(urls, 2)) == ["http://x/0", "http://x/1"]


@given(st.text())
def test_any_text_is_expanded_or_named(text: str) -> None:
    try:
        found = list(islice(ranges.expand(text), 100))
    except ValueError as error:
        assert str(error)
    else:
        assert found
        if not set(text) & set("[]{}\\"):
            assert found == [text]


def test_a_template_is_filled_with_percent_encoded_values() -> None:
    template = "http://x/{place}/quote?t={ticker}&again={ticker}"
    assert ranges.fields(template) == ["place", "ticker"]
    filled = ranges.fill(template, {"place": "a/b", "ticker": "BRK B&é"})
    assert filled == "http://x/a%2Fb/quote?t=BRK%20B%26%C3%A9&again=BRK%20B%26%C3%A9"
