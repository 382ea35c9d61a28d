"""robots.txt, held against cases that nobody here wrote; what differs is listed with its reason."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.records import Page
from crawler.robots import LONGEST, Rules, allows, token
from crawler.worker import Worker

DATA = Path(__file__).parent / "data" / "robots"

# (test, robots, url): where Protego decides otherwise, and why that is borne
PATHS_ARE_COMPARED_DECODED = "Protego compares decoded paths, so %62 is b, and %E3%83%84 is ツ"
AGENTS_WITH_SPACES = "Protego does not cut `foo bar` at the space: the group is not ours"
UNKNOWN_LINES = "Protego lets an unknown line close the list of a group's agents"
KNOWN = {
    ("ID_UserAgentValueCaseInsensitive", "http://foo.bar/a/b"): AGENTS_WITH_SPACES,
    ("ID_LineSyntax_Groups_OtherRules", "http://foo.bar/"): UNKNOWN_LINES,
    ("ID_Encoding", "http://foo.bar/foo/bar/ツ"): PATHS_ARE_COMPARED_DECODED + "; our own URLs are always escaped",
    ("ID_Encoding", "http://foo.bar/foo/bar/baz"): PATHS_ARE_COMPARED_DECODED,
    ("2.2.2 table", "https://example.com/foo/bar?baz=https%3A%2F%2Ffoo.bar"): "a reserved character and its escape "
    "are two things in a URL, and the RFC's own table contradicts its text",
}


def differing(name: str) -> tuple[int, list[dict[str, Any]]]:
    """How many cases there are, and those that we decide otherwise."""
    cases = [case for case in json.loads((DATA / name).read_text()) if not case.get("google_only")]
    wrong = [
        case
        for case in cases
        if allows(case["robots"].encode("latin-1"), case["agent"], case["url"]) != case["allowed"]
    ]
    return len(cases), wrong


@pytest.mark.parametrize(
    "name, total, least",
    [("rfc9309.json", 54, 53), ("google.json", 72, 62)],
)
def test_the_cases_of_others_are_decided_as_they_say(name: str, total: int, least: int) -> None:
    count, wrong = differing(name)
    print(f"{name}: {count - len(wrong)} of {count}")
    assert count == total
    assert count - len(wrong) >= least


@pytest.mark.parametrize("name", ["rfc9309.json", "google.json"])
def test_every_difference_is_a_known_one(name: str) -> None:
    _, wrong = differing(name)
    assert [(case["test"], case["url"]) for case in wrong if (case["test"], case["url"]) not in KNOWN] == []


@pytest.mark.parametrize(
    "agent, expected",
    [("folder-crawler/0.1.0", "folder-crawler"), ("Foo/1 (+http://x)", "Foo"), ("my crawler/2", "my"), ("x", "x")],
)
def test_robots_txt_knows_us_by_the_first_word_of_our_name(agent: str, expected: str) -> None:
    assert token(agent) == expected
    rules = f"User-agent: {expected}\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n".encode()
    assert [allows(rules, agent, f"https://a.example/{path}") for path in "abc"] == [False, True, True]


def test_an_empty_file_allows_everything_and_asks_for_no_delay() -> None:
    rules = Rules(b"", "x")
    assert rules.allow("https://a.example/anything")
    assert rules.delay == 0.0


@pytest.mark.parametrize(
    "line, delay", [("5", 5.0), ("0.5", 0.5), ("soon", 0.0), ("-3", 0.0), ("", 0.0), ("inf", 0.0), ("nan", 0.0)]
)
def test_the_crawl_delay_of_our_group_is_read(line: str, delay: float) -> None:
    rules = Rules(f"User-agent: x\nCrawl-delay: {line}\n\nUser-agent: *\nCrawl-delay: 9\n".encode(), "x/1")
    assert rules.delay == delay


def test_what_was_fetched_is_read_to_its_end_and_500_kibibytes_of_a_longer_file_are_fetched_at_least() -> None:
    long = b"User-agent: *\nDisallow: /a\n" + b"#" * LONGEST + b"\nDisallow: /b\n"
    assert [allows(long, "x", f"https://a.example/{path}") for path in "abc"] == [False, False, True]
    asked = []

    class Fetcher:
        def get(self, url: str, cut: int, **_: object) -> Page:
            asked.append(cut)
            return Page(url, 200, {}, long[:cut])

    worker = SimpleNamespace(
        fetcher=Fetcher(), house=SimpleNamespace(be_sure=lambda: None), seeds=SimpleNamespace(names=lambda _: False)
    )
    page = Worker._get_robots(worker, "https://a.example/robots.txt")  # type: ignore[arg-type]
    assert asked == [LONGEST] and LONGEST >= 500 * 1024
    assert [allows(page.body, "x", f"https://a.example/{path}") for path in "abc"] == [False, True, True]  # type: ignore[union-attr]


@settings(deadline=None)
@given(st.binary(max_size=300) | st.text("User-agent:*\n Disallow/$%#a\r\0é", max_size=300).map(str.encode))
def test_any_bytes_are_rules_of_some_kind(body: bytes) -> None:
    rules = Rules(body, "folder-crawler/1")
    assert rules.allow("https://a.example/a?b=%C3%A9") in (True, False)
    assert isinstance(rules.delay, float)
