"""Normalization is held against the web platform's cases; what differs from them differs by a named rule."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab.marks import Tally
from publicsuffixlist import PublicSuffixList

from crawler.frontier.task import shard_of_host
from crawler.web import urls

DATA = Path(__file__).parents[2] / "data" / "urls"


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of a WPT file, without the comments between them."""
    return [case for case in json.loads((DATA / name).read_text()) if isinstance(case, dict)]


def refusal(hostname: str, port: str = "") -> str | None:
    """Our rule, if any, against a host that the URL standard accepts."""
    name = hostname.removesuffix(".")
    labels = [] if name.startswith("[") else name.split(".")
    rules = {
        "port 0": port == "0",
        "an empty label": "" in labels,
        "a name that starts with a hyphen": name.startswith("-"),
        "a label of more than 63 bytes": any(len(label) > 63 for label in labels),
        "a name of more than 253 bytes": len(name) > 253,
        "a byte that no host name has": any(re.search("[^a-z0-9_-]", label) for label in labels),
    }
    return next((rule for rule, applies in rules.items() if applies), None)


def ours(case: dict[str, Any]) -> tuple[str | None, str]:
    """What we make of a WPT case, and the rule that says so."""
    if case.get("failure"):
        return None, "the standard's own failure"
    if case["protocol"] not in ("http:", "https:"):
        return None, "neither http nor https"
    rule = refusal(case["hostname"], case["port"])
    if rule:
        return None, rule
    port = ":" + case["port"] if case["port"] else ""
    netloc = case["hostname"].removesuffix(".") + port
    path = case["href"].partition("#")[0].split("/", 3)[3]
    return f"{case['protocol']}//{netloc}/{path}", "as the standard has it"


@pytest.mark.parametrize(
    "page",
    ["http://h/", "http://h/a", "http://h/a/b/c?d/e", "http://h/a/b/?/../x", "http://h/a//b", "http://h/%2e%2e/b;/c"],
)
def test_the_links_of_a_page_are_normalized_the_same_though_most_are_cached(page: str) -> None:
    odd = [
        "",
        "?",
        "?q",
        "#",
        "#f",
        " ?q",
        "\n#",
        "\t",
        "/",
        "//",
        "//h2",
        "..",
        "../",
        ".",
        "./?x",
        "a?b",
        "http:",
        "\\x",
    ]
    assert_normalized_as_one_by_one(odd + [case["input"] for case in cases("urltestdata.json")], page)


def assert_normalized_as_one_by_one(links: list[str], page: str) -> None:
    for tracking in (frozenset[str](), frozenset(urls.TRACKING)):
        together = urls.normalize_links(links, page, tracking)
        for link, normalized in zip(links, together, strict=True):
            assert normalized == urls.normalize(link, page, tracking), link


def test_every_wpt_case_on_an_http_page_is_normalized_by_the_standard_or_refused_by_a_named_rule(tally: Tally) -> None:
    on_http = [c for c in cases("urltestdata.json") if c["base"] is None or c["base"].startswith("http")]
    for case in on_http:
        assert urls.normalize(case["input"], case["base"]) == ours(case)[0], case
    count = Counter(ours(case)[1] for case in on_http)
    tally("URLs of the WPT on http pages", count.total(), len(on_http))
    assert len(on_http) == 757
    assert count == {
        "as the standard has it": 241,
        "the standard's own failure": 257,
        "neither http nor https": 253,
        "port 0": 2,
        "an empty label": 3,
        "a byte that no host name has": 1,
    }


def test_every_host_of_toascii_is_normalized_by_the_standard_or_refused_by_a_named_rule(tally: Tally) -> None:
    count: Counter[str] = Counter()
    for case in cases("toascii.json"):
        rule = refusal(case["output"]) if case["output"] else "the standard's own failure"
        assert urls.normalize(f"https://{case['input']}/x") == (None if rule else f"https://{case['output']}/x")
        count[rule or "as the standard has it"] += 1
    tally("host names of toascii", count.total(), len(cases("toascii.json")))
    assert count == {
        "as the standard has it": 54,
        "the standard's own failure": 19,
        "a name that starts with a hyphen": 4,
        "a label of more than 63 bytes": 4,
        "a name of more than 253 bytes": 3,
        "an empty label": 2,
        "a byte that no host name has": 1,
    }


NORMALIZED = [
    ("HTTP://Example.ORG:80/a/../b/./c?q=1#part", "http://example.org/b/c?q=1"),
    ("https://example.org:443", "https://example.org/"),
    ("http://example.org:443/", "http://example.org:443/"),
    ("http://user:secret@example.org/@x", "http://example.org/@x"),
    ("  http://exa\tmple.org/a b\n", "http://example.org/a%20b"),
    ("http:\\\\example.org\\a", "http://example.org/a"),
    ("http://bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
    ("http://0x7f.1/", "http://127.0.0.1/"),
    ("http://[0:0::1]:8080/", "http://[::1]:8080/"),
    ("http://example.org/\ud800", "http://example.org/%EF%BF%BD"),
    ("http://_dmarc.a-b.example/%zz%41", "http://_dmarc.a-b.example/%zz%41"),
    # One site, with or without the root's dot.
    ("http://example.org./", "http://example.org/"),
    ("http://example.org.:8080/", "http://example.org:8080/"),
    # A query keeps its bytes and order, except for tracking.
    ("http://example.org/?", "http://example.org/?"),
    ("http://example.org/?b=2&&a=%7e&", "http://example.org/?b=2&&a=%7e&"),
    ("http://example.org/?b&utm_source=x&a&gclid=1", "http://example.org/?b&a"),
    ("http://example.org/?utm_source=x&", "http://example.org/"),
    ("http://example.org/?fbclid", "http://example.org/"),
    ("http://example.org/?UTM_SOURCE=x&my_gclid=1", "http://example.org/?UTM_SOURCE=x&my_gclid=1"),
    ("http://example.org/utm_source=x?a=utm_source=x", "http://example.org/utm_source=x?a=utm_source=x"),
]


@pytest.mark.parametrize(("url", "normalized"), NORMALIZED)
def test_a_normalized_url_stays_as_it_is_for_ever(url: str, normalized: str) -> None:
    assert urls.NORMALIZATION == 1
    assert urls.normalize(url) == normalized
    assert urls.normalize(normalized) == normalized


NEVER_ASKED = [
    *("", "/a", "example.org/a", "http://", "http:///", "mailto:a@example.org", "javascript:void(0)"),
    *("ftp://example.org/", "data:text/html,x", "blob:https://example.org/x", "file:///etc/passwd"),
    *("http://../", "http://./", "http://$home/", "http://*/", "http://;x/", "http://-rf/", "http://a%25b/"),
    *("http://a..b/", "http://.a/", "http://a../", "http://~/", "http://a\0b/", "http://\ud800/"),
    *("http://a:0/", "http://a:65536/", "http://1.2.3.256/", "http://[::1%25eth0]/", "http://[::1/"),
    *("http://" + "a" * 64 + "/", "http://" + "a." * 127 + "a/", "http://" + "a." * 900 + "a/"),
    *("http://a/" + "a" * 2000, "http:" * 1_000_000),
]


@pytest.mark.parametrize("url", NEVER_ASKED, ids=lambda url: repr(url[:24]))
def test_what_is_never_requested_has_no_normalized_url(url: str) -> None:
    assert urls.normalize(url) is None


def test_the_longest_names_that_fit_a_folder_are_normalized() -> None:
    host = "a." * 126 + "a"  # 253 bytes
    assert urls.normalize(f"http://{host}./") == f"http://{host}/"
    assert urls.normalize(f"http://{host}:1/") == f"http://{host}:1/"
    assert urls.normalize(f"http://{host}:10/") is None
    longest = "http://a/".ljust(urls.MAX_URL, "x")
    assert urls.normalize(longest + "#" + "y" * 9000) == longest


def test_a_link_is_read_on_its_page() -> None:
    page = "https://example.org/docs/index.html?q"
    assert urls.normalize("../a", page) == "https://example.org/a"
    assert urls.normalize("?r", page) == "https://example.org/docs/index.html?r"
    assert urls.normalize("#part", page) == page
    assert urls.normalize("//other.example", page) == "https://other.example/"
    assert urls.normalize("a", "not a page") is None


def test_which_parameters_are_tracking_can_be_said() -> None:
    assert urls.normalize("http://a/?sid=1&gclid=2", tracking=["sid"]) == "http://a/?gclid=2"
    assert urls.normalize("http://a/?sid=1&gclid=2", tracking=()) == "http://a/?sid=1&gclid=2"
    assert urls.normalize("http://a/?utm_new=1&f[]=2&fx=3", tracking=["utm_*", "f[*"]) == "http://a/?fx=3"
    assert urls.normalize("http://a/b?utm_new&c=2", tracking=["*"]) == urls.normalize("http://a/b?", tracking=["*"])
    assert list(urls.normalize_links(["?x=1", "c?x=1&y"], "http://a/b", frozenset({"x*"}))) == [
        "http://a/b",
        "http://a/c?y",
    ]


ANY_TEXT = st.text(st.characters(exclude_categories=()))
HOST_LIKE = st.text(st.sampled_from("abzAZ019-_.:@%[]*$;~/\\ \t\0éßاא\u200d。\ud800"), max_size=40)
URL_LIKE = st.builds("http{}://{}/{}".format, st.sampled_from(["", "s"]), HOST_LIKE | ANY_TEXT, ANY_TEXT)
QUERIES = st.lists(st.sampled_from(["", "a", "a=b", "utm_id=1", "gclid", "?", "é", "#"])).map("&".join)


@settings(deadline=None)
@given(ANY_TEXT | URL_LIKE | QUERIES.map("http://example.org/?{}".format), st.none() | URL_LIKE)
def test_a_normalized_url_is_stable_and_clean_with_a_safe_host(url: str, base: str | None) -> None:
    normalized = urls.normalize(url, base)
    if normalized is None:
        return
    assert urls.normalize(normalized) == normalized == urls.normalize(normalized, "http://other.example/")
    assert re.fullmatch("https?://[!-~]+", normalized)
    assert "#" not in normalized
    name = urls.host(normalized)
    assert re.fullmatch(r"[a-z0-9_[][]a-z0-9_.:-]{0,254}", name)
    assert ".." not in name


# Of these pieces links are made that are nearly plain: each is one that a shortcut might take for another.
PIECES = r"""
    http:// https:// HTTP:// http: https:/ // / /// . .. ./ ../ ../../ %2e %2E %2e%2E .% %2f % a b.html C a:b x:/ 1:2 :
    ? ?a=b &utm_id=1 ?gclid ?? # #f _ - ~ ! $ & ( ) * + , ; = @ \ | ^ ` { } [ ] < > " ' é"""
HOSTS = """
    h h.example H.example h.example. a..b xn--bcher-kva.example xn--a -a a- a_b u@h u:p@h %61 *.h . .. a%2eb localhost
    1.2.3 1.2.3.4 0x7f.1 a.0x b.09 127.1 [::1] h:80 h:443 h:8080 h:0 h:08 h:99999"""
LONG_HOSTS = ["a" * 63, "a" * 64, "a." * 126 + "a", "a." * 127 + "a"]
SOME_PIECES = st.lists(st.sampled_from([*PIECES.split(), " ", "\n", "\0", "\u00ad", "\ud800"]), max_size=8).map("".join)
ORIGINS = st.builds(
    "{}{}/".format,
    st.sampled_from(["http://", "https://", "//", "http:", "ftp://"]),
    st.sampled_from([*HOSTS.split(), *LONG_HOSTS, ""]),
)
PLAIN_PIECES = ["a", "b.c", "/d", "/", "/%2e", "/%2E.", "../", "..", "/.", "%41", "?e=f", "?", "&utm_id=1", ":"]
PLAIN = st.lists(st.sampled_from(PLAIN_PIECES), min_size=1, max_size=6).map("".join)
NEAR_PLAIN = (
    SOME_PIECES
    | PLAIN
    | st.builds("{}{}".format, ORIGINS, SOME_PIECES)
    | (st.integers(490, 510) | st.integers(1_900, 2_100)).map("x".__mul__)
)
NEAR_BASES = NEAR_PLAIN | (PLAIN | SOME_PIECES).map("http://h.example/{}".format)


@settings(deadline=None, max_examples=500)
@given(st.lists(NEAR_PLAIN | ANY_TEXT, max_size=20), NEAR_BASES | URL_LIKE)
def test_plainly_written_links_are_only_joined_and_come_out_as_the_standard_has_them(
    links: list[str], base: str
) -> None:
    assert_normalized_as_one_by_one(links, base)
    for page in (urls.normalize(base), f"http://h.example/{'d/' * 990}"):
        if page:
            assert_normalized_as_one_by_one(links, page)


def test_a_link_that_does_not_depend_on_its_page_is_parsed_once_for_all_pages_and_one_of_another_scheme_never() -> None:
    links = ["http://bare.example", "HTTPS://loud.example/", "mailto:a@b.example", "javascript:void(0)", "tel:1"]
    urls._normalize_once.cache_clear()
    for number in range(100):
        assert list(urls.normalize_links(links, f"http://{number}.example/{number}")) == [
            "http://bare.example/",
            "https://loud.example/",
            None,
            None,
            None,
        ]
    assert urls._normalize_once.cache_info().misses == 1 + 100, "what is loud is rare"


def test_host_key_and_shard_of_a_url_stay_as_they_are_for_ever() -> None:
    url = "https://example.org:8080/a/b?c=/d"
    assert urls.host(url) == "example.org:8080"
    assert urls.key(url) == "f698ee4fb673caa07843781f"
    assert urls.key("http://example.org/") == "2d318f381ff89408dcc9f943"
    assert [shard_of_host(urls.host(url), n, "host") for n in (1, 64, 1000)] == [0, 43, 43]
    assert [shard_of_host(url, n, "url") for n in (1, 64, 1000)] == [0, 31, 327]


def test_a_host_is_in_one_shard_unless_its_urls_are_spread() -> None:
    pages = [f"http://example.org/{n}" for n in range(6400)]
    assert len({shard_of_host(urls.host(page), 64, "host") for page in pages}) == 1
    sites = [f"http://{n}.example.org/" for n in range(6400)]
    for sizes in (
        Counter(shard_of_host(page, 64, "url") for page in pages),
        Counter(shard_of_host(urls.host(site), 64, "host") for site in sites),
    ):
        assert len(sizes) == 64
        assert 50 < min(sizes.values()) <= max(sizes.values()) < 150


def test_the_public_suffix_lists_own_cases_give_their_domains(tally: Tally) -> None:
    lines = (DATA / "test_psl.txt").read_text().splitlines()
    found = [re.fullmatch(r"checkPublicSuffix\('(.+)', (?:null|'(.+)')\);", line) for line in lines]
    pairs = [match.groups() for match in found if match]
    assert len(pairs) == 77
    wrong = [name for name, expected in pairs if urls.domain(name) != expected]
    tally("public suffixes", len(pairs) - len(wrong), len(pairs))
    assert wrong == []


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk:8080", "example.co.uk"),
        ("www.example.org.", "example.org"),
        ("me.github.io", "me.github.io"),
        ("www.食狮.公司.cn", "食狮.公司.cn"),
        ("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        *[(name, None) for name in ("", "localhost", "co.uk", "github.io", "a..b", ".example.org")],
        *[(name, None) for name in ("192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "[::1]", "::1")],
    ],
)
def test_a_host_has_a_domain_unless_it_is_an_address_or_a_suffix(host: str, domain: str | None) -> None:
    assert urls.domain(host) == domain


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a/../../x", "/", "a?b", "a#b", "a b", "A.example", "a\n"])
def test_a_name_that_leads_elsewhere_is_no_host(name: str) -> None:
    assert not urls.is_host(name)


def test_all_names_of_a_domain_are_in_one_shard_whatever_the_public_suffix_list_says() -> None:
    groups = {
        "example.org": "example.org",
        "a.b.example.org:8080": "example.org",
        "a.example.co.uk": "example.co.uk",
        "example.co.uk": "example.co.uk",
        "co.uk": "co.uk",
        "x.y.com.br": "y.com.br",
        "t.co": "t.co",
        "a.t.co": "t.co",
        "one.github.io": "github.io",  # coarser than the list: one worker, which knows the address of them all
        "192.0.2.1:81": "192.0.2.1",
        "[2001:db8::1]:81": "[2001:db8::1]",
        "localhost": "localhost",
    }
    assert {host: urls.shard_group(host) for host in groups} == groups
    assert shard_of_host("a.zone.example", 4096) == shard_of_host(
        urls.host("http://b.zone.example:81/"), 4096, "domain"
    )
    assert shard_of_host("a.zone.example", 4096, "host") != shard_of_host(
        urls.host("http://b.zone.example/"), 4096, "host"
    )


def test_whose_host_it_is() -> None:
    assert urls.zone("a.b.example.co.uk:81") == "example.co.uk"
    assert urls.zone("one.github.io") == "one.github.io"
    assert urls.zone("192.0.2.1:81") == "192.0.2.1"
    assert urls.zone("co.uk") == "co.uk"


def test_the_public_suffix_list_has_all_rules_of_the_library_as_they_are_and_encoded() -> None:
    assert {rule for rule in urls._suffixes()._publicsuffix if rule} == PublicSuffixList()._publicsuffix
