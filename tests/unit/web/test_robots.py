"""robots.txt and robots tags, held against cases that nobody here wrote; what differs is listed with its reason."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.marks import Tally, later

from crawler.crawl.worker.reader import read_options
from crawler.settings.settings import Settings
from crawler.web.robots import MAX_ROBOTS_BYTES, Rules, allows, tags, token

DATA = Path(__file__).parents[2] / "data" / "robots"

# (test, url): where we decide otherwise, and why
RAW_URLS = "Google wants URLs escaped by its caller; the RFC has both sides escaped before they are compared"
UNESCAPED = "by the RFC's text and table %62 is b; Google compares them as they are written"
KNOWN = {
    ("ID_Encoding", "http://foo.bar/foo/bar/ツ"): RAW_URLS,
    ("ID_Encoding", "http://foo.bar/foo/bar/baz"): UNESCAPED,
    # Beyond the RFC:
    ("GoogleOnly_AcceptUserAgentUpToFirstSpace", "http://foo.bar/x/y"): "Google's caller may not name itself Foo Bar; "
    "ours is known by its first word, Foo",
}


def differing(name: str, google_only: bool = False) -> tuple[int, list[dict[str, Any]]]:
    """How many cases there are, and those that we decide otherwise."""
    cases = [case for case in json.loads((DATA / name).read_text()) if case.get("google_only", False) == google_only]
    wrong = [
        case
        for case in cases
        if allows(case["robots"].encode("latin-1"), case["agent"], case["url"]) != case["allowed"]
    ]
    return len(cases), wrong


@pytest.mark.parametrize(
    "name, google_only, total, least",
    [("rfc9309.json", False, 54, 54), ("google.json", False, 72, 69), ("google.json", True, 70, 69)],
)
def test_the_cases_of_others_are_decided_as_they_say(
    name: str, google_only: bool, total: int, least: int, tally: Tally
) -> None:
    count, wrong = differing(name, google_only)
    tally(f"robots.txt, {name}{' beyond the RFC' * google_only}", count - len(wrong), count)
    assert count == total
    assert count - len(wrong) >= least
    assert [case for case in wrong if (case["test"], case["url"]) not in KNOWN] == []


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


def verdicts(robots: str | bytes, *paths: str, agent: str = "x/1") -> list[bool]:
    body = robots if isinstance(robots, bytes) else robots.encode()
    return [allows(body, agent, "https://a.example" + path) for path in paths]


@pytest.mark.parametrize(
    "line, is_ours",
    [
        ("Foo-Bot", True),
        ("foo-bot/2.1", True),
        ("FOO-BOT (the one)", True),
        ("foo-bot*", True),
        ("foo", False),
        ("foo-bot-news", False),
        ("foo_bot", False),
        ("a foo-bot", False),
    ],
)
def test_an_agent_line_names_us_up_to_where_no_name_can_go_on(line: str, is_ours: bool) -> None:
    rules = f"User-agent: *\nDisallow: /b\n\nUser-agent: {line}\nDisallow: /a\n"
    assert verdicts(rules, "/a", "/b", agent="Foo-Bot/2") == [not is_ours, is_ours]


@pytest.mark.parametrize("between", ["Sitemap: /s", "Host: x", "Crawl-delay: 5", "Nonsense", "# c", "", "No index: /"])
def test_only_a_rule_ends_a_list_of_agents(between: str) -> None:
    rules = f"User-agent: x\n{between}\nUser-agent: y\nDisallow: /a\nUser-agent: z\nDisallow: /b\n"
    assert [verdicts(rules, "/a", "/b", agent=agent) for agent in "xyz"] == [
        [False, True],
        [False, True],
        [True, False],
    ]


def test_an_empty_rule_ends_a_list_of_agents_too() -> None:
    assert verdicts("User-agent: x\nDisallow:\nUser-agent: y\nDisallow: /\n", "/") == [True]


def test_a_group_of_ours_without_rules_allows_everything() -> None:
    assert verdicts("User-agent: *\nDisallow: /\nUser-agent: x\n", "/a") == [True]


def test_all_groups_of_ours_are_one_and_count_instead_of_those_for_everybody() -> None:
    rules = "User-agent: X\nDisallow: /a\n\nUser-agent: *\nDisallow: /c\n\nUser-agent: y\nUser-agent: x\nDisallow: /b"
    assert verdicts(rules, "/a", "/b", "/c") == [False, False, True]


@pytest.mark.parametrize(
    "robots, delays",
    [
        ("User-agent: a\nCrawl-delay: 5\nUser-agent: b\nDisallow: /\n", [5, 0]),
        ("User-agent: a\nCrawl-delay: 5\n\nUser-agent: b\nCrawl-delay: 9\nDisallow: /\n", [5, 9]),
        ("User-agent: a\nUser-agent: b\nCrawl-delay: 5\nDisallow: /\n", [5, 5]),
        ("User-agent: a\nUser-agent: b\nDisallow: /\nCrawl-delay: 5\n", [5, 5]),
        ("User-agent: a\nDisallow: /\nUser-agent: b\nDisallow: /\nCrawl-delay: 5\n", [0, 5]),
        ("User-agent: *\nCrawl-delay: 5\nDisallow: /\nUser-agent: b\nDisallow: /\n", [5, 0]),
        ("User-agent: *\nCrawl-delay: 5\nDisallow: /\n", [5, 5]),
        ("Crawl-delay: 5\nUser-agent: *\nDisallow: /\n", [0, 0]),
    ],
)
def test_a_crawl_delay_is_for_the_agents_just_above_it_and_takes_no_rule_from_them(
    robots: str, delays: list[float]
) -> None:
    assert [Rules(robots.encode(), agent).delay for agent in "ab"] == delays
    assert [verdicts(robots, "/", agent=agent) for agent in "ab"] == [[False], [False]]


def test_sitemaps_are_found_anywhere_and_stay_as_written() -> None:
    robots = (
        b"\xef\xbb\xbfSitemap: https://a.example/1.xml\nUser-agent: x\nsite-map:/2.xml # c\nDisallow: /\n"
        b"SITEMAP : https://b.example/3?a=b&c\nSitemap https://a.example/4\nSitemap:\nSitemap: /2.xml\nSitemap: a b"
    )
    found = ("https://a.example/1.xml", "/2.xml", "https://b.example/3?a=b&c", "https://a.example/4", "a b")
    assert Rules(robots, "x").sitemaps == Rules(robots, "y").sitemaps == found


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\r", " \t\n", "\n\n\n"])
@pytest.mark.parametrize("start", ["", "\ufeff", "\ufeff\ufeff", "\n\ufeff", " \ufeff ", "\0"])
def test_line_ends_marks_and_white_space_are_borne(start: str, end: str) -> None:
    rules = f"{start}User-agent\t: x {end}\tDisallow :/a{end}allow:\t/a/b \t# c{end}DISALLOW /c"
    assert verdicts(rules, "/a", "/a/b", "/c", "/d") == [False, True, False, True]


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x1d", "\x85", "\u2028", "\u2029"])
def test_nothing_else_is_a_line_end(odd: str) -> None:
    assert (
        verdicts(f"User-agent: x\nDisallow: /a{odd}Disallow: /b\n# {odd}Disallow: /c\n", "/a", "/b", "/c") == [True] * 3
    )


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_read(codec: str) -> None:
    assert verdicts("User-agent: x\r\nDisallow: /a\r\n".encode(codec), "/a", "/b") == [False, True]


def test_octets_that_are_no_text_count_as_what_they_are() -> None:
    rules = b"\xff\xfa\nUser-agent: x\nDisal\0low: /caf\xe9\n\x80\x81: /\nDisallow: /\xff%fe\n"
    assert verdicts(rules, "/caf%E9", "/caf%e9s", "/caf%E8", "/caf%C3%A9", "/%FF%FE") == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    "rule, path, is_forbidden",
    [
        ("/a%2Fb", "/a/b", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a%3Fb", "/a?b", False),
        ("/a?b=/c", "/a?b=%2Fc", True),
        ("/a?b=%2fc", "/a?b=/c", True),
        ("/%7Ejoe", "/~joe", True),
        ("/~joe", "/%7ejoe", True),
        ("/a%2541", "/a%41", False),
        ("/a%2541", "/aA", False),
        ("/a b", "/a%20b", True),
        ("/a:b", "/a%3Ab", True),
        ("/ツ", "/%E3%83%84", True),
        ("/100%", "/100%", True),
        ("/*%2A", "/ab", False),
        ("/*%2A", "/a*b", True),
        ("/a$b", "/a$bc", True),
        ("/a$b", "/a%24b", True),
        ("/a%24", "/a$b", True),
        ("/a$", "/a$", False),
        ("/a$", "/a?", False),
        ("/a*$", "/abc", True),
        ("/*/b$", "/a/b/b", True),
        ("/*.gif$", "/a.gif.gif", True),
        ("/*.gif$", "/a.gif?x", False),
        ("/a**b", "/ab", True),
        ("*b", "/ab", True),
        ("*", "/", True),
        ("$", "/", False),
        ("a", "/a", False),
        ("?", "/?", False),
        ("https://a.example/a", "/a", False),
        ("/*?", "/a?", True),
        ("/a?", "/a", False),
        ("/=2f-", "/", False),
        ("/a", "/b", False),
        ("/A", "/a", False),
        ("/a", "", False),
        ("/", "", True),
        ("/", "?q", True),
        ("/?q", "?q", True),
        ("/a", "/a#b", True),
        ("/a", "/b#/a", False),
        ("/a", "/b?x=//a.example/a", False),
    ],
)  # fmt: skip
def test_a_rule_forbids_what_it_matches(rule: str, path: str, is_forbidden: bool) -> None:
    assert verdicts(f"User-agent: *\nDisallow: {rule}\n", path) == [not is_forbidden]


@pytest.mark.parametrize(
    "allow, disallow, path, is_allowed",
    [
        ("/abc", "/*?", "/abc?x", True),  # Protego by itself counts ? as three
        ("/ab", "/*?", "/ab?x", True),
        ("/a", "/*?", "/ab?x", False),
        ("/*.php$", "/abcdef", "/abcdef.php", True),
        ("/*.ph$", "/abcdef", "/abcdef.ph", False),
        ("/*c", "/ab", "/abc", True),
        ("/*&c", "/ab?d", "/ab?d&c", False),
        ("/ab%3f", "/ab*", "/ab%3Fc", True),
        ("/folder", "/folder", "/folder", True),
    ],
)
def test_the_longest_match_counts_and_of_two_as_long_the_one_that_allows(
    allow: str, disallow: str, path: str, is_allowed: bool
) -> None:
    for lines in ((f"Allow: {allow}", f"Disallow: {disallow}"), (f"Disallow: {disallow}", f"Allow: {allow}")):
        assert verdicts("User-agent: *\n" + "\n".join(lines), path) == [is_allowed]


def test_robots_txt_itself_is_always_allowed() -> None:
    assert verdicts("User-agent: *\nDisallow: /\n", "/robots.txt", "/robots.txt/a", "/a/robots.txt") == [
        True,
        False,
        False,
    ]


def test_no_more_than_the_limit_is_read_and_half_a_line_is_no_rule() -> None:
    assert MAX_ROBOTS_BYTES >= 512 * 1024
    long = b"User-agent: *\nDisallow: /a\n" + b"#" * MAX_ROBOTS_BYTES + b"\nDisallow: /b\n"
    assert verdicts(long, "/a", "/b", "/c") == [False, True, True]
    start = b"User-agent: *\nDisallow: /a\n"
    for cut in (b"Disallow: /private", b"Disallow: /", b"Allow: /a"):
        filler = b"#" * (MAX_ROBOTS_BYTES - len(start) - len(cut) - 1)
        body = (start + filler + b"\r" + cut + b"/more\n")[:MAX_ROBOTS_BYTES]
        assert verdicts(body, "/a", "/private", "/") == [False, True, True]


# Armour

HOSTILE = {
    "stars": b"Disallow: /*a*a*a*a*a*a*a*a*b\n",
    "a rule of nothing but stars": b"Disallow: /" + b"*a" * 250_000 + b"*b\n",
    "rules of one letter": b"".join(b"Disallow:/%c\n" % letter for letter in b"bcdefg") * 7_000,
    "short rules with stars": b"".join(b"allow:*%x\n" % number for number in range(40_000)),
    "stars in many rules": b"".join(b"Disallow: /*a*a*a*a*%xb\n" % number for number in range(20_000)),
    "half a million lines": b"a\n" * 250_000 + b"\n" * 20_000,
    "nothing but agents": b"User-agent: *\n" * 38_000,
    "a long rule": b"Disallow: /" + b"a" * 500_000 + b"\n",
    "escapes": b"Disallow: /" + b"%61" * 160_000 + b"b\n",
    "sitemaps": b"".join(b"Sitemap: /%x\n" % number for number in range(35_000)),
    "white space": b"Disallow" + b" " * 500_000 + b"x y\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_read_and_obeyed_in_reasonable_time(name: str) -> None:
    body = b"User-agent: *\nDisallow: /z\n" + HOSTILE[name]
    assert len(body) < MAX_ROBOTS_BYTES
    began = time.process_time()
    rules = Rules(body, "x/1")
    assert [rules.allow(f"https://a.example/{letter * 1_900}") for letter in "az"] == [True, False]
    assert time.process_time() - began < 60  # exponential would be for ever; a noisy machine is not


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("name", HOSTILE)
def test_the_rules_of_a_host_take_little_memory(name: str) -> None:
    body = b"User-agent: *\n" + HOSTILE[name]
    Rules(body, "x/1")
    tracemalloc.start()
    try:
        rules = Rules(body, "x/1")
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()
    assert rules.delay == 0.0


def test_rules_for_others_take_no_memory() -> None:
    others = b"".join(b"User-agent: bot%d\nDisallow: /%d\n" % (number, number) for number in range(10_000))
    tracemalloc.start()
    try:
        rules = Rules(others + b"User-agent: x\nDisallow: /a\n", "x/1")
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    assert not rules.allow("https://a.example/a")


PIECES = st.lists(st.sampled_from(["/", "a", "b", "*", "?", "%61", "%2F", "ツ", "="]), max_size=7).map("".join)


@settings(deadline=None)
@given(PIECES, PIECES, st.sampled_from(["", "$"]))
def test_a_rule_matches_as_a_regular_expression_of_its_octets_would(rule: str, path: str, end: str) -> None:
    def octets(text: str) -> str:
        before, mark, query = text.replace("%61", "a").partition("?")
        return before + mark + query.replace("%2F", "/")

    pattern = ".*".join(map(re.escape, octets("/" + rule).split("*")))
    expected = re.match(pattern + (r"\Z" if end else ""), octets("/" + path.replace("*", "x")))
    assert verdicts(f"User-agent: *\nDisallow: /{rule}{end}\n", "/" + path.replace("*", "x")) == [expected is None]


@settings(deadline=None)
@given(st.binary(max_size=300) | st.text("User-agent:*\n Disallow/$%#a\r\0é", max_size=300).map(str.encode))
def test_any_bytes_are_rules_of_some_kind(body: bytes) -> None:
    rules = Rules(body, "folder-crawler/1")
    assert rules.allow("https://a.example/a?b=%C3%A9") in (True, False)
    assert isinstance(rules.delay, float)
    assert all(isinstance(link, str) for link in rules.sitemaps)


@given(st.text(max_size=50))
def test_any_url_is_judged(url: str) -> None:
    assert allows(b"User-agent: *\nDisallow: /a", "x", url) in (True, False)


# Robots tags


@pytest.mark.parametrize(
    "values, expected",
    [
        ([], ""),
        ([""], ""),
        (["noindex"], "noindex"),
        (["NoFollow"], "nofollow"),
        (["none"], "noindex nofollow"),
        (["noindex, nofollow"], "noindex nofollow"),
        (["noindex ; NOFOLLOW"], "noindex nofollow"),
        (["noindex nofollow"], "noindex nofollow"),
        ([" ,, noindex ,"], "noindex"),
        (["noarchive, nosnippet, nonsense"], ""),
        (["all", "index, follow"], ""),
        (["noindex", "nofollow"], "noindex nofollow"),
        (["noindex\nnofollow"], "noindex nofollow"),
        (["googlebot: noindex"], ""),
        (["googlebot: noindex, nofollow"], ""),
        (["googlebot: noindex", "nofollow"], "nofollow"),
        (["googlebot: noindex\nnofollow"], "nofollow"),
        (["noindex, googlebot: nofollow"], "noindex"),
        (["googlebot: noindex, folder-crawler: nofollow"], "nofollow"),
        (["Folder-Crawler: nofollow"], "nofollow"),
        (["folder-crawler :nofollow"], "nofollow"),
        (["folder-crawler/1.0: nofollow"], "nofollow"),
        (["folder: nofollow", "folder-crawler-news: noindex"], ""),
        (["*: noindex"], "noindex"),
        (["unavailable_after: 25 Jun 2026 15:00:00 PST"], ""),
        (["unavailable_after: 25 Jun 2026 15:00:00 PST, nofollow"], "nofollow"),
        (["unavailable_after: Thursday, 25-Jun-26 15:00:00 UTC, noindex"], "noindex"),
        (["noindex, unavailable_after: 2026-06-25T15:00:00+01:00, nofollow"], "noindex nofollow"),
        (["googlebot: unavailable_after: 25 Jun 2026 15:00:00 PST, nofollow"], ""),
        (["max-snippet:-1, max-image-preview:none, max-video-preview: none"], ""),
        (["max-image-preview: none, nofollow"], "nofollow"),
        (["max-image-preview:large nofollow"], "nofollow"),
        (["nofollowing, xnoindex, no-index, no index"], ""),
        (["noindex:"], ""),
    ],
)  # fmt: skip
def test_robots_tags_say_what_they_say_to_us(values: list[str], expected: str) -> None:
    assert tags(values, "Folder-Crawler") == frozenset(expected.split())


@pytest.mark.parametrize("unit", ["max-a ", "none/", *later("max-", "a: ", "unavailable_after", "- ", " ")])
def test_long_tags_are_read_in_reasonable_time(unit: str) -> None:
    began = time.process_time()
    assert tags([unit * (5_000_000 // len(unit)) + "\nnofollow"], "x") == {"nofollow"}
    assert time.process_time() - began < 60  # quadratic would be hours; a noisy machine is not


def test_robots_tags_know_us_by_the_same_name_as_robots_txt() -> None:
    assert read_options(replace(Settings(), user_agent="Folder-Bot/3 (+http://x)")).token == "Folder-Bot"


@given(st.lists(st.text(max_size=60) | st.text("noindexflw,:; \n-*0", max_size=60)))
def test_any_tags_are_read(values: list[str]) -> None:
    assert tags(values, "x") <= {"noindex", "nofollow"}
