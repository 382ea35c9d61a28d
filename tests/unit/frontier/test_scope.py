"""A scope admits the links near its seeds, by the user's patterns and the rules against traps."""

from __future__ import annotations

import pickle

import pytest

from crawler.frontier.scope import Scope
from crawler.settings.settings import Settings

SEEDS = ["https://www.example.org/docs/index.html?v=/1/", "http://192.0.2.1/", "http://github.io/"]
SCOPES = {
    #                                                        page prefix host domain
    "https://www.example.org/docs/index.html?v=/1/":         "yes  yes    yes  yes",
    "http://www.example.org/docs/":                          "no   yes    yes  yes",
    "https://www.example.org/docs/deep/er.html?u=/":         "no   yes    yes  yes",
    "https://www.example.org/docs":                          "no   no     yes  yes",
    "https://www.example.org/docs2/":                        "no   no     yes  yes",
    "https://www.example.org/?/docs/":                       "no   no     yes  yes",
    "https://www.example.org:8080/docs/":                    "no   no     no   yes",
    "https://example.org/docs/":                             "no   no     no   yes",
    "https://example.com/www.example.org/docs/":             "no   no     no   no",
    "https://www.example.org.evil.example/docs/":            "no   no     no   no",
    "https://192.0.2.1/a":                                   "no   yes    yes  yes",
    "https://192.0.2.2/":                                    "no   no     no   no",
    "https://github.io/a":                                   "no   yes    yes  yes",
    "https://someone.github.io/":                            "no   no     no   no",
}  # fmt: skip


@pytest.mark.parametrize("url", SCOPES)
def test_a_scope_admits_what_is_as_near_to_a_seed_as_its_kind_says(url: str) -> None:
    admitted = {kind: Scope(kind, SEEDS).admits(url) for kind in ("page", "prefix", "host", "domain")}
    assert " ".join("yes" if yes else "no" for yes in admitted.values()) == " ".join(SCOPES[url].split())
    assert Scope("any").admits(url)
    assert not Scope("domain").admits(url)


def test_a_link_must_match_an_include_if_there_is_one_and_no_exclude() -> None:
    scope = Scope("any", include=[r"/en/", "(?i)/DE/"], exclude=[r"\.pdf$"])
    links = {"en/a": True, "de/a": True, "fr/a": False, "en/a.pdf": False, "en/a.pdf?html": True}
    assert {link: scope.admits(f"http://example.org/{link}") for link in links} == links


def test_a_scope_takes_seeds_later_and_travels_to_other_processes() -> None:
    scope = Scope("prefix")
    scope.add("http://example.org/docs/")
    assert pickle.loads(pickle.dumps(scope)).admits("https://example.org/docs/a")


def test_a_kind_that_is_none_is_refused() -> None:
    with pytest.raises(KeyError):
        Scope("everything")


def test_a_scope_names_what_keeps_a_url_out() -> None:
    seeds = ["http://a.example/"]
    scope = Scope("host", seeds, include=["/en/"], exclude=[r"\.pdf$"], traps=Settings().traps)
    links = {
        "http://b.example/en/": "scope",
        "http://a.example/de/": "include",
        "http://a.example/en/a.pdf": "exclude",
        "http://a.example/en/a/en/b/en/c": "repeat",
        "http://a.example/en/2999-01-01": "calendar",
        "http://a.example/en/?sid=0123456789abcdef0123456789abcdef": None,
        "http://a.example/en/a": None,
    }
    assert {url: scope.refuses(url) for url in links} == links
    assert [url for url in links if scope.admits(url)] == [url for url, rule in links.items() if rule is None]
    assert Scope("host", seeds).refuses("http://a.example/x/x/x") is None, "no rules, no traps"
    assert scope.places == ["a.example"]
