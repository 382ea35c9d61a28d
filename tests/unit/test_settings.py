"""crawl.yaml: all settings are visible, none is ignored, and a wrong one stops with one sentence."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawler.crawl.start import begin
from crawler.errors import CrawlerError, UsageError
from crawler.settings import settings as config
from crawler.settings import values
from crawler.settings.settings import FIXED, Settings, parse, render
from crawler.store.kept import parse_stored
from crawler.store.store import open_store

# One value for each setting that is not its default.
OTHERS: dict[str, Any] = {
    "scope": "domain",
    "depth": 7,
    "include": (r"^https?://[^/]+/a b", "#x: y", "ümlaut"),
    "exclude": (r"\.(png|jpe?g)$", "- [x]"),
    "order": "dfs",
    "max_pages": 10,
    "max_per_host": 3,
    "max_per_domain": 30,
    "max_bytes_per_host": 1 << 20,
    "max_bytes_per_domain": None,
    "max_hosts_per_domain": 7,
    "time_limit": 7200.0,
    "content_types": ("text/plain",),
    "follow": ("a", "alternate"),
    "nofollow": True,
    "links_in": "#content, main > p",
    "follow_match": ("^(/wiki/)((?!:).)*$", "# x"),
    "priorities": {"/news/": 9, "^https://a.example/: [x]": 0, ".": 3},
    "sitemaps": False,
    "traps": ("long", "session"),
    "tracking": ("sid", "ref"),
    "strip_query": True,
    "delay": 0.25,
    "delays": {"b.example:8080": 0.0, "*.example.org": 5.0, "*": 2.0},
    "max_delay": 5.0,
    "max_share": 0.25,
    "max_per_address": 0.5,
    "shared_addresses": ("192.0.2.0/24", "2001:db8::/32"),
    "robots": False,
    "user_agent": "my crawler/1.0 (+https://example.org/: 'me' # \"us\")",
    "retries": 0,
    "retry_delay": 1.5,
    "recrawl": {"/latest/": 3600.0, "*": "adaptive 7d"},
    "fresh_share": 0.25,
    "history": "all",
    "history_age": 86400.0,
    "fetcher": "requests",
    "timeout": 7.0,
    "connect_timeout": 3.0,
    "first_byte_timeout": 4.0,
    "max_size": 1000,
    "headers": ("Accept-Language: de", "From: a: b"),
    "cookies": False,
    "parser": "html5lib",
    "warc": True,
    "warc_size": 1 << 20,
    "durable": False,
    "min_free": 0,
    "min_inodes": 5,
    "shards": 4096,
    "spread": "url",
    "regions": {"*.jp": "tokyo", "*": "rest"},
    "region_takeover": None,
    "heartbeat": 0.5,
    "dead_after": 10.0,
}


def quiet(_: str) -> None:
    """For what `begin` would show."""


def test_every_setting_has_another_value_here_and_a_line_of_help() -> None:
    names = {item.name for item in fields(Settings)}
    assert names == OTHERS.keys()
    assert all(OTHERS[name] != getattr(Settings(), name) for name in names)
    assert all(config.HELP[name] and "\n" not in config.HELP[name] for name in names)


@pytest.mark.parametrize("settings", [Settings(), Settings(**OTHERS)], ids=["defaults", "others"])
def test_all_settings_are_written_and_read_back(settings: Settings) -> None:
    written = config.render(settings)
    assert Settings(**config.parse(written, "crawl.yaml")) == settings
    assert re.findall(r"^(\w+):", written, re.MULTILINE) == [item.name for item in fields(Settings)]


@pytest.mark.parametrize("name", OTHERS)
def test_each_setting_is_written_and_read_back_alone(name: str) -> None:
    settings = replace(Settings(), **{name: OTHERS[name]})
    read = Settings(**config.parse(config.render(settings), "crawl.yaml"))
    assert read == settings
    assert list(read.delays) == list(settings.delays), "the first pattern that fits counts"


PRINTABLE = st.characters(exclude_categories=["C", "Z"], include_characters=" ")
LINES = st.text(PRINTABLE, min_size=1).map(str.strip).filter(bool)


@settings(deadline=None)
@given(LINES.filter(str.isascii), st.lists(LINES.map(re.escape), max_size=3))
@example("null", ["~"])
@example("2020-01-01", ["1e3", "on"])
@example("x", [" a "])
def test_any_line_of_text_survives_in_a_setting(agent: str, patterns: list[str]) -> None:
    settings = Settings(**config.check({"user_agent": agent, "exclude": patterns}, "test"))
    assert Settings(**config.parse(config.render(settings), "crawl.yaml")) == settings


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\u2029", "\ud800", "\ufeff", "\x7f"])
def test_a_character_that_does_not_survive_yaml_is_no_text(character: str) -> None:
    with pytest.raises(UsageError):
        config.check({"user_agent": f"one{character}two"}, "test")


@pytest.mark.parametrize("name", ["delay", "retry_delay", "heartbeat"])
def test_the_smallest_duration_that_is_accepted_is_read_back(name: str) -> None:
    settings = Settings(**config.check({name: "0.00001"}, "--set"))
    assert Settings(**config.parse(config.render(settings), "crawl.yaml")) == settings


@pytest.mark.parametrize(
    "wrong, right",
    [("dealy", "delay"), ("max_perhost", "max_per_host"), ("user-agent", "user_agent"), ("trackng", "tracking")],
)
def test_a_misspelt_setting_stops_and_the_nearest_is_named(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=rf"^unknown setting '{wrong}' in crawl.yaml; did you mean '{right}'\?$"):
        config.parse(f"{wrong}: 1\n", "crawl.yaml")


def test_a_setting_that_is_like_no_other_is_told_where_they_are_listed() -> None:
    with pytest.raises(UsageError, match=r"unknown setting 'zzz' in [^;]+; `crawler help settings` lists them"):
        config.check({"zzz": 1}, "--set")


@pytest.mark.parametrize(
    "name, value",
    [
        ("depth", -1),
        ("depth", True),
        ("depth", "3.5"),
        ("max_pages", 0),
        ("shards", 0),
        ("shards", 4097),
        ("retries", 101),
        ("scope", "world"),
        ("order", None),
        ("delay", "-1s"),
        ("delay", "soon"),
        ("delay", "inf"),
        ("delay", "nan"),
        ("delay", True),
        ("delay", None),
        ("timeout", "1 week"),
        ("max_size", "10X"),
        ("max_size", "-5"),
        ("robots", 1),
        ("robots", "perhaps"),
        ("user_agent", ""),
        ("user_agent", "two\nlines"),
        ("user_agent", 5),
        ("include", "("),
        ("include", ["a", "*"]),
        ("include", None),
        ("follow", "image"),
        ("headers", "no colon"),
        ("headers", "X: a\r\nY: b"),
        ("headers", "X-Key: secret"),
    ],
)
def test_a_wrong_value_is_one_sentence_with_the_name_and_the_value_if_that_is_no_secret(name: str, value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        config.check({name: value}, "crawl.yaml")
    sentence = str(caught.value)
    shown = "" if name in config.MAY_HOLD_SECRETS else f" is {value!r}"
    start = f"crawl.yaml: {name}{shown}: "
    assert sentence.startswith(start)
    assert len(sentence) > len(start) + 10
    assert "\n" not in sentence


@pytest.mark.parametrize(
    "given, seconds",
    [(90, 90), ("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("1d", 86400), (0, 0), (0.5, 0.5), (" 3s ", 3)],
)
def test_durations(given: Any, seconds: float) -> None:
    assert values.duration(given) == seconds


@pytest.mark.parametrize("seconds", [0.0, 0.02, 90.0, 129600.0, 1234567.0, 1e6 + 0.5, 31536000.0])
def test_a_duration_is_shown_so_that_it_is_read_back(seconds: float) -> None:
    assert values.duration(values.show_duration(seconds)) == seconds


@pytest.mark.parametrize(
    "given, count",
    [(4096, 4096), ("512K", 524288), ("10M", 10485760), ("1G", 1 << 30), ("1.5k", 1536), ("10MB", 10 << 20)],
)
def test_sizes(given: Any, count: int) -> None:
    assert values.size(given) == count


@pytest.mark.parametrize("text", ["[1, 2]", "just words", "a: b: c", "\t- x", "{", "%", "? [", "delay: !!python/x y"])
def test_a_broken_file_is_one_sentence_with_its_name(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        config.parse(text, "/mnt/crawl.yaml")
    assert "/mnt/crawl.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_file_is_all_defaults() -> None:
    assert Settings(**config.parse("# nothing\n", "crawl.yaml")) == Settings()


def test_the_first_pattern_that_matches_a_host_says_its_delay() -> None:
    given = {"delay": 2, "delays": {"slow.example.org": "1m", "*.Example.org": 5, "*:8080": 0, "[::1]": 3}}
    settings = Settings(**config.check(given, "crawl.yaml"))
    hosts = {
        "slow.example.org": 60.0,
        "www.example.org": 5.0,
        "a.b.example.org": 5.0,
        "www.example.org:8080": 0.0,
        "example.org": 2.0,
        "[::1]": 3.0,
    }
    assert {host: config.delay_for(settings, host) for host in hosts} == hosts
    assert config.delay_for(Settings(), "example.org") == Settings().delay


def test_set_reads_its_value_as_yaml() -> None:
    assert config.pair("delay=2s") == ("delay", "2s")
    assert config.pair("depth=null") == ("depth", None)
    assert config.pair("include=[a, b]") == ("include", ["a", "b"])
    assert config.pair("include=[a-z") == ("include", "[a-z")
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        config.pair("delay")


# ---- the settings of a store


def test_a_flag_that_contradicts_the_store_is_told_both_values(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin(root, {"delay": 2.0, "shards": 2}, ["https://example.org/"], "me", quiet)
    assert begin(root, {"delay": 2.0}, [], "me", quiet).delay == 2.0
    with pytest.raises(UsageError, match=rf"^delay is 2s in {root}/crawl.yaml, but 5s was given; "):
        begin(root, {"delay": 5.0}, [], "me", quiet)
    with pytest.raises(UsageError, match=r"^include is \[\] in .*, but \[a, b\] was given; "):
        begin(root, {"include": ("a", "b")}, [], "me", quiet)
    with pytest.raises(UsageError, match=r"^depth is null in .*, but 3 was given; "):
        begin(root, {"depth": 3}, [], "me", quiet)


@pytest.mark.parametrize("name, value", [("shards", "8"), ("spread", "url"), ("tracking", "[ref]")])
def test_what_decides_file_names_cannot_be_edited_later(tmp_path: Path, name: str, value: str) -> None:
    assert name in FIXED
    root = tmp_path / "store"
    begin(root, {"shards": 2}, ["https://example.org/"], "me", quiet)
    path = root / "crawl.yaml"
    path.write_text(re.sub(rf"^{name}: .*$", f"{name}: {value}", path.read_text(), flags=re.MULTILINE))
    with pytest.raises(UsageError, match=f"{name} cannot change once the store is made"):
        open_store(root).settings()


def test_any_other_setting_may_be_edited_between_runs(tmp_path: Path) -> None:
    root = tmp_path / "store"
    made = begin(root, {"shards": 2}, ["https://example.org/"], "me", quiet)
    edited = replace(Settings(**OTHERS), **{name: getattr(made, name) for name in FIXED})
    (root / "crawl.yaml").write_text(config.render(edited))
    assert open_store(root).settings() == edited


def test_a_patience_of_less_than_four_pulses_names_both(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"dead_after is 3 s, but must be at least four times heartbeat \(8 s\)"):
        begin(tmp_path / "store", {"dead_after": 3.0}, ["https://example.org/"], "me", quiet)
    assert not (tmp_path / "store").exists()


def test_a_missing_crawl_yaml_says_how_to_go_on(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin(root, {"shards": 2}, ["https://example.org/"], "me", quiet)
    (root / "crawl.yaml").unlink()
    with pytest.raises(CrawlerError, match=r"crawl.yaml is missing; restore it; errs/.crawl.yaml has the settings"):
        open_store(root).settings()


def test_every_crawl_yaml_that_is_cut_off_is_refused() -> None:
    text = render(Settings()).encode()
    assert parse_stored(text, "crawl.yaml") == parse(text.decode(), "crawl.yaml")
    for size in [*range(0, len(text), 211), *range(len(text) - 12, len(text))]:
        with pytest.raises(UsageError, match=r"crawl\.yaml"):
            parse_stored(text[:size], "crawl.yaml")


def test_a_crawl_yaml_of_an_older_version_gets_the_defaults_of_newer_settings() -> None:
    lines = render(Settings()).splitlines(keepends=True)
    old = "".join(line for line in lines if not line.startswith(("# All ", "max_share:", "min_inodes:")))
    assert "max_share" not in parse_stored(old.encode(), "crawl.yaml")
    cut = old[: old.index("dead_after:")]
    with pytest.raises(UsageError, match="no line for dead_after and may be cut off; restore it"):
        parse_stored(cut.encode(), "crawl.yaml")


def test_a_person_may_write_a_few_settings_for_a_new_store(tmp_path: Path) -> None:
    (tmp_path / "crawl.yaml").write_text("shards: 2\ndelay: 3s\n")
    assert begin(tmp_path, {}, ["https://example.org/"], "me", quiet).delay == 3
    assert open_store(tmp_path).settings().shards == 2
