"""The URLs that a user gives: ranges, files and tables, as `crawler run` and `crawler add` take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.world import Links, crawler, world

USAGE = 2


def test_ranges_and_a_table_are_requested_page_by_page(tmp_path: Path) -> None:
    """A list in steps of 30, two sections, and a quote for each ticker of a column; all else stays unrequested."""
    wanted = [f"/list?page={number}" for number in range(0, 91, 30)] + ["/de/", "/fr/"]
    wanted += ["/quote?t=AAPL", "/quote?t=BRK%20B"]
    table = tmp_path / "tickers.csv"
    table.write_text("name;ticker\nApple;AAPL\nnobody;\nBerkshire;BRK B\n", encoding="utf-8-sig")
    with world(Links({path: [] for path in wanted}), tmp_path) as w:
        w.run("http://a.example/list?page=[0-90:30]", "http://a.example/{de,fr}/", "--scope", "page")
        w.run("--from", str(table), "--template", "http://a.example/quote?t={ticker}")
        assert {request.path for request in w.log if request.path != "/robots.txt"} == set(wanted)


def test_globoff_takes_brackets_as_they_are(tmp_path: Path) -> None:
    with world(Links({"/?a[1-2]=x": []}), tmp_path) as w:
        w.run("--globoff", "http://a.example/?a[1-2]=x")
        assert [request.path for request in w.log if request.path != "/robots.txt"] == ["/?a[1-2]=x"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["http://x/[9-1]"], "[9-1] is an empty range"),
        (["http://x/[1-9:a]"], "with --globoff brackets and braces are taken as they are"),
        (["--from", "-"], "--from FILE and --template URL go together"),
        (["--template", "http://x/{a}"], "--from FILE and --template URL go together"),
        (["--from", "-", "--template", "http://x/"], "has no {column}; name one of city, ticker"),
        (["--from", "-", "--template", "http://x/{tikcer}"], "no column 'tikcer'; did you mean 'ticker'?"),
        (["--from", "-", "--template", "{city}"], "-, line 2: 'Rome' is not a valid URL"),
        (["--from", "nowhere.csv", "--template", "http://x/{a}"], "name a CSV table"),
    ],
)
def test_what_makes_no_sense_is_named_and_nothing_is_made(tmp_path: Path, flags: list[str], said: str) -> None:
    found = crawler("run", str(tmp_path / "s"), *flags, code=USAGE, stdin="city,ticker\nRome,R\n")
    assert said in found
    assert len(found.strip().splitlines()) == 1
    assert not (tmp_path / "s").exists()
