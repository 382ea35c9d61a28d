"""Patterns mean what they mean to `re`, take linear time, and what cannot be had that way is refused by name."""

from __future__ import annotations

import pickle
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.web import patterns
from crawler.web.patterns import Pattern

WIKI = r"^(/wiki/)((?!:).)*$"
TYPICAL = (
    *(r"\.pdf$", r"(?i)\.(jpe?g|png|gif|zip)(\?|$)", r"/wiki/", r"/\d{4}/\d{2}/", r"\bprint\b", r"[?&]page=\d+"),
    *(r"^https://a\.example/(en|de)/", r"^https?://[^/]+/[^?#]*$", r"^(?!.*[?&]replytocom=)", r"(?<!/en)/index\.html$"),
    *(
        r"(?x) / ( tag | author ) /  # lists",
        r"a{,2}b",
        r"[[:alpha:]]",
        r"\Ahttp",
        r"\.html\Z",
        r"^$|x",
        r"(?:)",
        r"(?!)",
    ),
    *(r"/([\w-]+/?)+\.pdf$", WIKI, r"(?i:WIKI)/(?-i:A)", r"(?s).*", r"(?m)^b$", r"\Ba", r"(?<=://)[^/]*(?=/wiki)"),
)
URLS = (
    *("https://a.example/", "https://a.example/wiki/A", "/wiki/A", "/wiki/Help:A", "http://b.example/x.PDF?y=1"),
    *("https://a.example/en/index.html", "https://a.example/x/2024/05/print-this", "https://a.example/?replytocom=7"),
    *(
        "https://a.example/wiki/a",
        "",
        "aab",
        "b",
        "\n",
        "x\n",
        "a\nb\nc",
        "müller",
        "ſtraße",
        "https://a.example/tag/1",
    ),
)
TEXTS = st.text("ab:/\n.-_1 éA", max_size=12) | st.sampled_from(URLS)


def found_by_re(pattern: str, text: str) -> bool:
    return re.compile(pattern).search(text) is not None


def by_automaton(pattern: Pattern, text: str) -> bool:
    pattern._is_quick = False
    return pattern.search(text)


@pytest.mark.parametrize("pattern", TYPICAL)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_typical_pattern_finds_what_re_finds(pattern: str) -> None:
    made = Pattern(pattern)
    for text in URLS:
        assert made.search(text) == by_automaton(Pattern(pattern), text) == found_by_re(pattern, text), text


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger patterns from smaller ones."""
    group = st.sampled_from(["(%s)", "(?:%s)", "(?i:%s)", "(?s:%s)", "(?m:%s)", "(?=%s)", "(?!%s)"])
    count = st.sampled_from(["*", "+", "?", "*?", "{2}", "{,2}", "{1,3}?"])
    return st.one_of(
        st.builds(lambda a, b: a + b, inner, inner),
        st.builds(lambda a, b: f"{a}|{b}", inner, inner),
        st.builds(lambda form, a: form % a, group, inner),
        st.builds(lambda a, times: f"(?:{a}){times}", inner, count),
        st.sampled_from(["(?<=a)", "(?<!ab)", "(?<=a|b)", "(?<![^b])"]),
    )


ATOMS = [
    "a",
    "b",
    "A",
    ":",
    ".",
    "/",
    r"\.",
    r"\w",
    r"\W",
    r"\d",
    r"\s",
    "[ab]",
    "[^a:]",
    "[a-z]",
    "^",
    "$",
    r"\b",
    r"\B",
]
PATTERNS = st.recursive(st.sampled_from([*ATOMS, r"\A", r"\Z", "é", "(?!)", ""]), grown, max_leaves=6)


@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=5))
def test_any_pattern_finds_what_re_finds(pattern: str, texts: list[str]) -> None:
    made = Pattern(pattern)
    for text in texts:
        expected = found_by_re(pattern, text)
        assert made.search(text) == expected
        assert by_automaton(made, text) == expected


# Each takes `re` longer than anybody waits; with `a` or `/` again and again, and then something else.
@pytest.mark.parametrize(
    "pattern",
    [
        r"/([\w-]+/?)+\.pdf$",
        r"(a+)+$",
        r"(a|a)*$",
        r"(.*a){12}$",
        r"^(?=(a+)+$)",
        r"(?<!b)(a*)*(?!c)$",
        "a?" * 30 + "a" * 30 + "$",
        r"(a{0,20}){0,20}$",
        r"a*a*a*a*a*a*a*a*$",
    ],
)
def test_a_pattern_that_backtracks_takes_linear_time(pattern: str) -> None:
    made = Pattern(pattern)
    began = time.process_time()
    for text in ("http://a.example/" + "a" * 1900 + "!", "http://a.example/" + "a/" * 950 + "!"):
        made.search(text)
    assert time.process_time() - began < 20, "seconds where re needs years"


@pytest.mark.parametrize("pattern", ["(){4000000000}x", "(?:(?:(?:){9999}){9999}){9999}x", "((){9999}a?){2}x"])
def test_nothing_many_times_is_read_at_once(pattern: str) -> None:
    assert Pattern(pattern).search("x") and not Pattern(pattern).search("y")


def test_steps_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MAX_KEPT", 5)
    made = Pattern(r"(?!x)(a|b)*a(a|b){6}$")
    for number in range(200):
        text = bin(number)[2:].replace("0", "a").replace("1", "b") + "é" * (number % 3)
        assert by_automaton(made, text) == found_by_re(made.pattern, text)
    assert len(made._automaton._steps) <= 5


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (r"/(\w+)/\1/", "back reference such as \\1; write out"),
        (r"(?P<x>a)(?P=x)", "back reference"),
        (r"(a)?(?(1)b|c)", "condition"),
        (r"(?>a+)b", "atomic group"),
        (r"a++b", "possessive quantifier"),
        (r"(a{1,100}){1,100}", "too large (more than 1000 states); shorten counts"),
        (r"(?=x)" * 1001, "too large"),
        (r"(", "must be a regular expression (missing )"),
        (r"[", "must be a regular expression"),
        (r"(?<=a+)b", "must be a regular expression (look-behind requires fixed-width pattern)"),
        ("(" * 5000 + ")" * 5000, "must be a regular expression"),
    ],
)
def test_what_is_refused_is_refused_by_name(pattern: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        Pattern(pattern)


def test_a_pattern_survives_the_way_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Pattern(WIKI))).search("/wiki/A")


@pytest.mark.parametrize("pattern", [r"\.pdf$", r"(?i)\.(jpe?g|png|gif|zip)(\?|$)", r"^https://a\.example/.*\.pdf$"])
def test_typical_patterns_are_left_to_re(pattern: str) -> None:
    assert Pattern(pattern)._is_quick


@pytest.mark.parametrize("pattern", [r"/([\w-]+/?)+\.pdf$", WIKI, r".*.*x", "a?" * 20, r"(?m)^a*b", r"(a|b|c|d){9}"])
def test_what_may_backtrack_is_not(pattern: str) -> None:
    assert not Pattern(pattern)._is_quick
