"""`crawler set`: settings change safely, and the command says when each change counts."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from lab.world import Links, crawler, end, wait_for, wait_for_line, world

from crawler import errors
from crawler.commands.set import edited
from crawler.settings.settings import FIXED, Settings, as_pair, check_one, pair, parse, render
from crawler.store.store import Store


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a crawl that is over."""
    with world(Links({"/": []}), tmp_path_factory.mktemp("crawled")) as w:
        w.crawl("-d", "3")
        return w.root


@pytest.fixture
def root(crawled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crawled, tmp_path / "store"))


def test_settings_are_changed_in_crawl_yaml_and_in_its_kept_copy(root: Path) -> None:
    said = crawler("set", str(root), "delay=2s", "exclude=[\\.pdf$, 'a: b']", "depth=3", "links_in=#content")
    assert said.splitlines() == [
        "delay 0.01 -> 2; it counts from the next run on",
        "exclude [] -> [\\.pdf$, a: b]; it counts from the next run on; "
        f"`crawler rehydrate {root}` hands over links that were left out before",
        "depth is 3 already",
        "links_in null -> #content; it counts from the next run on; "
        "pages that are stored keep the links that were read from them",
    ]
    settings = Store(root).settings()
    assert (settings.delay, settings.exclude, settings.links_in) == (2.0, ("\\.pdf$", "a: b"), "#content")
    assert (root / "crawl.yaml").read_text() == render(settings)
    assert (root / "errs/.crawl.yaml").read_text() == render(settings)


def test_durations_are_shown_as_people_write_them(root: Path) -> None:
    said = crawler("set", str(root), "retry_delay=1h", "history_age=14d", "time_limit=90m", "timeout=90s", "recrawl=7d")
    assert [line.partition(";")[0].partition(" -> ")[2] for line in said.splitlines()] == [
        "1h",
        "14d",
        "90m",
        "90",
        "7d",
    ]
    assert Store(root).settings().retry_delay == 3600.0
    said = crawler("set", str(root), "retry_delay=1h", "max_per_address=60", "max_share=100%")
    assert "retry_delay is 1h already" in said
    assert "-> 60;" in said, "not a duration"


def test_what_a_person_wrote_into_crawl_yaml_stays() -> None:
    before = Settings()
    old = render(before).replace("delay: 1.0\n", "# slow, because Ann asked\ndelay: 1.0\n")
    old = old.replace("exclude: []\n", "exclude:\n- a\n- b\n")
    before = Settings(**parse(old, "old"))
    after = Settings(**parse(old, "old") | {"delay": 5.0, "exclude": ("c",)})
    text = edited(old, before, after)
    assert "# slow, because Ann asked\ndelay: 5.0\n" in text
    assert "- a\n" not in text
    assert Settings(**parse(text, "new")) == after


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["dealy=2s"], "unknown setting 'dealy' in crawler set; did you mean 'delay'?"),
        (["delay=fast"], "delay is 'fast': must be a duration"),
        (["delay"], "crawler set delay: write KEY=VALUE"),
        (["include=["], "must be a regular expression"),
        (["delay=2s", "dead_after=1s"], "must be at least four times heartbeat"),
        (["shards=3"], "shards is 32 and cannot change once the store is made, because all machines"),
        (["tracking=[x]"], "cannot change once the store is made, because the names of all stored pages"),
        (["priorities={a: 11}"], "must be a whole number from 0 to 10"),
        (["priorities=[a]"], "must be a mapping such as {/news/: 9}"),
        (["delay="], "crawler set delay=: no value was given; write KEY=VALUE"),
        (["depth= "], "crawler set depth=: no value was given; write KEY=VALUE"),
        (["follow_match=(?P<x>a)(?P=x)"], "back reference"),
        (["delay=2s", "depth=3", " delay=3s"], "crawler set: delay is given 2 times; give it once"),
        (["time_limit=0"], "time_limit is 0: must be a duration of more than 0"),
        (["foo=1"], "unknown setting 'foo' in crawler set; `crawler help settings` lists them"),
        ([], "the following arguments are required: KEY=VALUE"),
        (["proxy=http://me:secret@x"], "proxy is not kept in the store"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence_and_nothing_is_changed(root: Path, pairs: list[str], words: str) -> None:
    before = (root / "crawl.yaml").read_bytes()
    said = crawler("set", str(root), *pairs, code=errors.USAGE)
    assert words in said
    assert "me:secret" not in said
    assert said.count("\n") == 1
    assert (root / "crawl.yaml").read_bytes() == before


def test_every_fixed_setting_has_a_reason(root: Path) -> None:
    for name in FIXED:
        value = {"shards": "7", "spread": "host", "tracking": "[x]", "strip_query": "true"}.get(name, "7")
        said = crawler("set", str(root), f"{name}={value}", code=errors.USAGE)
        assert "cannot change once the store is made, because" in said


def test_a_folder_that_is_no_store_has_no_settings(tmp_path: Path) -> None:
    assert "is not a store" in crawler("set", str(tmp_path), "delay=2s", code=errors.STORE)


def test_a_flag_that_contradicts_is_answered_with_the_command_that_changes_it(root: Path) -> None:
    several = [["--depth", "5"], ["--exclude", "[x]: {"], ["-s", "delays={'*.a': 2}"], ["-U", "a: b"]]
    for flags in several:
        said = crawler("run", str(root), *flags, code=errors.USAGE)
        command = said.strip().rpartition("change it: ")[2]
        crawler(*shlex.split(command)[1:])
    crawler("run", str(root), *(flag for flags in several for flag in flags), "-q")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("exclude", ["a, b", "#x", "'"]),
        ("links_in", "#a > b"),
        ("depth", None),
        ("delay", "1.5"),
        ("max_size", "20M"),
        ("user_agent", "a: b"),
        ("priorities", {"x: y": 3}),
        ("robots", False),
        ("order", "dfs"),
    ],
)
def test_a_setting_is_read_as_it_is_shown(name: str, value: Any) -> None:
    checked = check_one(name, value, "test")
    shown, read = pair(as_pair(name, checked))
    assert (shown, check_one(name, read, "test")) == (name, checked)


def test_machines_at_work_take_up_what_is_live_and_are_named_for_the_rest(tmp_path: Path) -> None:
    web = Links({"/": [f"/{number}" for number in range(300)]} | {f"/{number}": [] for number in range(300)})
    with world(web, tmp_path) as w:
        process = w.start(*web.seeds(), "-w", "1s", "-s", "heartbeat=0.2", "-s", "spread=host", "--no-robots")
        w.until(1)
        wait_for(lambda: [it["state"] for it in w.status()["machines"]] == ["alive"])
        said = crawler("set", str(w.root), "delay=0", "scope=host").splitlines()
        assert said[0] == "delay 1 -> 0; the 1 machine at work will use it within a minute"
        stop = f"`crawler stop {w.root}`, then run again"
        assert said[1].startswith(
            f"scope any -> host; the 1 machine at work will not use it before a restart: {stop}; "
        )
        assert "delay 1 -> 0" in wait_for_line(process, "crawl.yaml was edited")
        end(process, seconds=100)  # with a delay of a second it would take 300
        assert len(w.urls()) == 301
