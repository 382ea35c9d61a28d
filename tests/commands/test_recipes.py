"""Jobs that people have, done as manual/recipes.md says, on small sites that look like theirs."""

from __future__ import annotations

import csv
import importlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import databases, script, sites
from lab.marks import later
from lab.sites import COMPLAINTS, GALLERY, QUOTES
from lab.webs import TreeWeb
from lab.world import Answers, crawler, end, world
from test_extract_outputs import extract, query

from crawler.commands.demo.server import requested_twice

MANUAL = (Path(__file__).parents[2] / "crawler/manual/recipes.md").read_text("utf-8")
TYPES = ["-s", "content_types=[text/html, application/json]"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a crawl of all sites, from plain seeds."""
    answers = sites.pages()
    with world(Answers(answers), tmp_path_factory.mktemp("sites")) as w:
        w.run(*(f"http://{page}" for page in answers), *TYPES, "-t", "16", "-w", "0", "-d", "0")
        assert w.urls() == {f"http://{page}" for page in answers}
        return w.root


def test_a_list_in_gbk_becomes_a_csv_file_with_semicolons(store: Path, tmp_path: Path) -> None:
    said = extract(store, sites.COMPLAINTS_RULES, tmp_path / "complaints.csv", "--delimiter", ";")
    assert said.startswith("106 pages read, 3,155 rows; written to ")
    data = (tmp_path / "complaints.csv").read_bytes()
    assert b"\r" not in data
    header, *rows = csv.reader(data.decode("utf-8").splitlines(), delimiter=";", strict=True)
    assert header == ["number", "subject", "link", "company", "demand", "status", "date"]
    assert sorted(int(row[0]) for row in rows) == list(range(1, 3156))
    first = ["1", "轮胎;异响 第1号", f"http://{COMPLAINTS}/c/1.shtml", "深圳汽车", "退款 赔偿", "已完成", "2026-11-02"]
    assert first in rows
    assert {row[5] for row in rows} == {"已回复", "已完成", ""}


def test_a_json_api_becomes_a_data_frame(store: Path, tmp_path: Path) -> None:
    assert "4 pages read, 70 rows" in extract(store, sites.API_RULES, tmp_path / "videos.jsonl")
    pandas = importlib.import_module("pandas")
    frame = pandas.read_json(tmp_path / "videos.jsonl", lines=True)
    assert list(frame.columns) == ["url", "id", "title", "owner", "views", "tags", "total"]
    assert (len(frame), frame["views"].sum(), set(frame["total"])) == (70, 100 * 70 * 71 // 2, {70})
    assert sorted(frame["id"]) == list(range(1, 71))
    assert frame[frame["id"] == 8][["title", "owner", "tags"]].to_numpy().tolist() == [["Video 8", "用户1", ["a", "b"]]]
    extract(store, sites.API_RULES, tmp_path / "videos.parquet")
    assert pandas.read_parquet(tmp_path / "videos.parquet")["id"].sum() == 35 * 71


def test_a_table_of_each_page_becomes_one_csv_file(store: Path, tmp_path: Path) -> None:
    assert "4 pages read, 8 rows" in extract(store, sites.QUOTES_RULES, tmp_path / "quotes.csv")
    with (tmp_path / "quotes.csv").open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (row["ticker"], row["Date"]))
    assert list(rows[0])[:4] == ["ticker", "Date", "Close", "Volume"]
    expected = {"ticker": "AAPL", "Date": "2026-11-16", "Close": "116.50", "Volume": "16,000", "Dividend": ""}
    assert dict(rows[0]) == expected
    assert [row["ticker"] for row in rows[::2]] == list(sites.TICKERS)
    assert [row["Dividend"] for row in rows] == [""] * 6 + ["0.10"] * 2


@pytest.fixture(params=["sqlite", *later("mariadb", "postgresql")])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/wiki.db"
    else:
        with getattr(databases, request.param)() as found:
            yield found


def test_headings_and_paths_go_into_a_table_that_exists_once_each(store: Path, address: str) -> None:
    query(address, "CREATE TABLE pages (title VARCHAR(200), path VARCHAR(200))")
    wanted = [(name.replace("_", " "), f"/wiki/{name}") for name in sorted(sites.ARTICLES)]
    for _ in range(2):
        said = extract(store, sites.WIKI_RULES, address, "--table", "pages", "--key", "path")
        assert "4 pages read, 4 rows" in said
        assert query(address, "SELECT title, path FROM pages") == wanted


def test_articles_are_crawled_by_links_in_their_text_that_match_as_they_are_written(
    tmp_path: Path, address: str
) -> None:
    query(address, "CREATE TABLE pages (title VARCHAR(200), path VARCHAR(200))")
    with world(Answers(dict(sites.wiki())), tmp_path) as w:
        for _ in range(2):
            end(w.start_plainly(f"http://{sites.WIKI}/wiki/Ada_Lovelace", *sites.WIKI_FLAGS))
            extract(w.root, sites.WIKI_RULES, address, "--table", "pages", "--key", "path")
        assert w.urls() == {f"http://{page}" for page in sites.wiki()}
        assert set(w.asked()) - {f"{sites.WIKI}/robots.txt"} == set(sites.wiki())
    wanted = [(name.replace("_", " "), f"/wiki/{name}") for name in sorted(sites.ARTICLES)]
    assert query(address, "SELECT title, path FROM pages") == wanted


def test_a_folder_of_the_script_is_gone_on_with_by_three_machines(tmp_path: Path) -> None:
    web = TreeWeb(fanout=3, depth=4)
    with world(web, tmp_path) as w:
        script.half(w.root, web, 20)
        said = "".join(end(machine) for machine in [w.start_plainly("-s", "dead_after=8s") for _ in range(3)])
        assert said.count("taken over: 20 pages and 0 failures") == 1
        assert len(w.urls()) == 121
        assert len({name for name in w.asked() if not name.endswith("robots.txt")}) == 101
        assert requested_twice(w.log) == {}


def test_the_manual_shows_these_flags() -> None:
    assert shlex.join(sites.WIKI_FLAGS) in MANUAL


def test_the_addresses_of_pictures_are_found_by_xpath(store: Path, tmp_path: Path) -> None:
    assert "2 pages read, 3 rows" in extract(store, sites.GALLERY_RULES, tmp_path / "images.csv")
    header, *images = (tmp_path / "images.csv").read_text().splitlines()
    assert header == "image"
    assert set(images) == {f"http://{GALLERY}/i/1.jpg", f"http://{GALLERY}/i/2.jpg", "http://cdn.example/3.jpg"}


@pytest.mark.parametrize("name", [name for name in vars(sites) if name.endswith("_RULES")])
def test_the_manual_shows_these_rules(name: str) -> None:
    assert getattr(sites, name) in MANUAL


def test_the_manual_shows_what_try_shows(store: Path, tmp_path: Path) -> None:
    (tmp_path / "quotes.yaml").write_text(sites.QUOTES_RULES)
    said = crawler("extract", str(store), str(tmp_path / "quotes.yaml"), "--try", f"http://{QUOTES}/quote?t=TSLA")
    assert said in MANUAL
