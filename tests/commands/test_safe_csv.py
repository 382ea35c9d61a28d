"""`--safe-csv`: no text of a page becomes a formula in a spreadsheet; without it, text is exported as it is."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from lab.world import crawler

from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.writer import StoreWriter
from crawler.web.page import Fetched, Reading

FORMULAS = [
    "=HYPERLINK(A1)",
    "+1",
    "-1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "\uff0b1",
    "=",
]
HARMLESS = ["a=b", "'=1", " =1", "5", "", "(-1)", '"=1"']
RULES = "columns:\n  heading: h1\n  number: {selector: b, type: int}\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a page for each title, which is its heading, too."""
    root = tmp_path_factory.mktemp("titles")
    store = StoreWriter(root, Files(root, "tests"))
    store.make(Settings(shards=4))
    for number, title in enumerate([*FORMULAS, *HARMLESS]):
        url, html = f"https://a.example/{number}", f"<h1>{title}</h1><b>-{number}</b>"
        store.put_html(url, html)
        page = Fetched(url, 200, {"content-type": "text/html"}, html.encode())
        store.put_record(url, to_json(build_record(page, Reading(html, "utf-8", title, ()), 0, (), 0.0)))
    return root


def cells(path: Path, column: str) -> list[str]:
    """A column of a CSV file, in the order of the pages."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["url"].rpartition("/")[2]))
    return [row[column] for row in rows]


def test_titles_that_begin_as_a_formula_get_an_apostrophe_and_only_where_that_is_wanted(
    root: Path, tmp_path: Path
) -> None:
    crawler("export", str(root), str(tmp_path / "faithful.csv"))
    assert cells(tmp_path / "faithful.csv", "title") == [*FORMULAS, *HARMLESS]
    crawler("export", str(root), str(tmp_path / "safe.csv"), "--safe-csv")
    assert cells(tmp_path / "safe.csv", "title") == [*(f"'{title}" for title in FORMULAS), *HARMLESS]
    assert cells(tmp_path / "safe.csv", "url") == cells(tmp_path / "faithful.csv", "url")


def test_extracted_text_is_defused_too_and_numbers_stay_numbers(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    crawler("extract", str(root), str(tmp_path / "rules.yaml"), str(tmp_path / "safe.csv"), "--safe-csv")
    assert cells(tmp_path / "safe.csv", "heading")[:4] == [f"'{title}" for title in FORMULAS[:4]]
    assert cells(tmp_path / "safe.csv", "number")[3] == "-3"


def test_no_cell_is_divided_where_spreadsheets_have_another_separator(root: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text("columns: {both: {selector: h1, replace: {'^': 'x;', '$': \"\\t=2\"}}}")
    crawler("extract", str(root), str(tmp_path / "rules.yaml"), str(tmp_path / "safe.csv"), "--safe-csv")
    lines = (tmp_path / "safe.csv").read_text().splitlines()
    assert all('","x;' in line and line.endswith('"') for line in lines if "x;" in line)
    assert sum("x;" in line for line in lines) >= len(HARMLESS)


@pytest.mark.parametrize("out", ["out.jsonl", "out.sqlite", "out.parquet", "postgresql+psycopg://me@nowhere/db"])
def test_it_is_for_csv_files_alone(root: Path, tmp_path: Path, out: str) -> None:
    where = out if "://" in out else str(tmp_path / out)
    assert "--safe-csv is for .csv files" in crawler("export", str(root), where, "--safe-csv", code=2)
    if "://" not in out:
        (tmp_path / "rules.yaml").write_text(RULES)
        said = crawler("extract", str(root), str(tmp_path / "rules.yaml"), where, "--safe-csv", code=2)
        assert "--safe-csv is for .csv files" in said and not (tmp_path / out).exists()
