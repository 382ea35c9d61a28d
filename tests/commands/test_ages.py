"""How old the pages of a store are, from a sample of their records."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from crawler.commands.ages import DAY, HOUR, NAMES, Sampler, chart, range_of
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json, utc
from crawler.store.writer import StoreWriter
from crawler.terminal import BARS, PLAIN_BARS


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    made = StoreWriter(tmp_path, Files(tmp_path, "tests"))
    made.make(Settings(shards=1))
    return made


def add(store: StoreWriter, host: str, count: int, age: float, **more: object) -> None:
    """Pages of a host that were last visited so long ago."""
    then = utc(time.time() - age)
    for number in range(count):
        url = f"http://{host}/{age:.0f}/{number}"
        record = {"url": url, "fetched": utc(0), "checked": then, "sha224": "x", "links": [], **more}
        store.put_record(url, to_json(record))


def ages(store: StoreWriter, busiest: dict[str, int] | None = None, seconds: float = 60.0) -> dict[str, float]:
    found = Sampler(store, Random(3)).ages(busiest or {}, seconds)
    assert found is not None
    return found


def test_each_page_of_a_small_store_counts_once(store: StoreWriter) -> None:
    add(store, "a.example", 6, 60)
    add(store, "b.example", 3, 3 * DAY)
    add(store, "c.example", 1, 400 * DAY)
    assert ages(store) == {"sample": 10, "1 h": 0.6, "1 d": 0, "7 d": 0.3, "30 d": 0, "older": 0.1}


def test_a_large_host_counts_for_as_much_as_it_has_and_few_of_its_pages_are_read(store: StoreWriter) -> None:
    add(store, "small.example", 10, HOUR / 2)
    add(store, "large.example", 90, 2 * DAY)
    assert ages(store) == {"sample": 20, "1 h": 0.1, "1 d": 0, "7 d": 0.9, "30 d": 0, "older": 0}
    found = ages(store, {"large.example": 990})
    assert found["7 d"] == 0.99, "what the workers count is more than a listing that is not read to its end"


def test_of_many_hosts_some_are_looked_at(store: StoreWriter) -> None:
    for number in range(60):
        add(store, f"{number}.example", 2, 2 * HOUR if number % 2 else 10 * DAY)
    found = ages(store)
    assert found["sample"] == 40 and found["1 d"] + found["30 d"] == 1 and 0.2 < found["1 d"] < 0.8


def test_it_ends_in_time_and_looks_at_both_busy_hosts_and_others(store: StoreWriter) -> None:
    add(store, "busy.example", 10, 60)
    for number in range(20):
        add(store, f"{number}.example", 1, 2 * DAY)
    found = ages(store, {"busy.example": 10}, seconds=0)
    assert found["sample"] == 10
    found = ages(store, {"busy.example": 10})
    assert found["sample"] == 30 and found["1 h"] == pytest.approx(1 / 3, abs=0.001)


def test_redirects_and_what_is_no_record_do_not_count(store: StoreWriter) -> None:
    add(store, "a.example", 3, 60, sha224=None)
    (Path(store.root) / "links/b.example").write_text("no folder")
    assert Sampler(store, Random(3)).ages({"gone.example": 5}) is None


def test_a_chart_is_one_line_that_any_terminal_can_show() -> None:
    found = {"sample": 1, **dict.fromkeys(NAMES, 0.0), "1 h": 0.75, "7 d": 0.24, "older": 0.01}
    told = "1 h █ 75%, 1 d   0%, 7 d ▃ 24%, 30 d   0%, older ▁ 1% (a sample of 1 page)"
    assert chart(found, BARS) == told
    assert chart(found, PLAIN_BARS).isascii()


def test_ranges_have_no_gaps() -> None:
    assert [range_of(age) for age in (-5, 0, HOUR, HOUR + 1, DAY + 1, 8 * DAY, 31 * DAY)] == [
        *("1 h",) * 3,
        "1 d",
        "7 d",
        "30 d",
        "older",
    ]
