"""Jobs that people have, done as manual/recipes.md says, on small sites that look like theirs."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab import databases, script, sites
from lab.conditional import serving
from lab.marks import later
from lab.session import SessionSite
from lab.sites import COMPLAINTS, GALLERY, QUOTES
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, Answers, crawler, end, html, wait_for, world
from test_extract_outputs import extract, query

from crawler import Store, errors
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


TICKERS = [f"T{number:03}" for number in range(500)]


@pytest.mark.fleet  # for time
def test_the_tables_of_500_shares_of_a_csv_column_in_three_ways(tmp_path: Path) -> None:
    answers = {f"{QUOTES}/quote?t={name}": html(sites._quote(place, name)) for place, name in enumerate(TICKERS)}
    table = tmp_path / "tickers.csv"
    table.write_text("name,ticker\n" + "".join(f"Company {name},{name}\n" for name in TICKERS))
    given = ["--from", str(table), "--template", f"http://{QUOTES}/quote?t={{ticker}}", "-w", "0"]
    with world(Answers(answers), tmp_path) as w:
        ways = json.loads(crawler("compare", *given, *w.flags, "--ways", "1x1,4x1,4x16", "--json"))
        assert [(it["way"], it["pages"], it["failed"]) for it in ways] == [
            (way, 500, 0) for way in ("1x1", "4x1", "4x16")
        ]
        w.run(*given, "-d", "0", "-j", "4", "-t", "16")
        assert "500 pages read, 1,000 rows" in extract(w.root, sites.QUOTES_RULES, tmp_path / "quotes.csv")
    with (tmp_path / "quotes.csv").open(newline="") as file:
        assert sorted(row["ticker"] for row in csv.DictReader(file)) == sorted(2 * TICKERS)


@pytest.mark.fleet  # for time
def test_a_script_with_a_function_for_each_page_makes_a_data_frame(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(import json.*?)```", MANUAL, re.DOTALL)
    (shown,) = re.findall(r"print\(frame\[\[.*?```\n\n```\n(.*?)```", MANUAL, re.DOTALL)
    with world(Answers(sites.pages()), tmp_path) as w:
        more = f"delay=0.01, quiet=True, workers=2, heartbeat=0.5, connect_to='::127.0.0.1:{w.port}', max_pages=500"
        (tmp_path / "articles.py").write_text(script.replace("max_pages=500", more))
        command = [sys.executable, "articles.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


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


@pytest.mark.fleet  # for time
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


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("given", ["a session", "cookies", "a login"])
def test_a_session_site_is_stopped_and_resumed_on_four_workers(tmp_path: Path, given: str) -> None:
    server, root = SessionSite(brake=50), tmp_path / "crawl"
    server.sessions.add("mine")
    own = {
        "a session": [],
        "cookies": ["--cookies", f"{tmp_path}/cookies"],
        "a login": ["--netrc", f"{tmp_path}/netrc"],
    }
    (tmp_path / "cookies").write_text("members.example\tFALSE\t/\tFALSE\t0\tsid\tmine\n")
    (tmp_path / "netrc").write_text("machine members.example login me password sid=mine\n")
    for name in ("cookies", "netrc"):
        (tmp_path / name).chmod(0o600)
    command = [*COMMAND, "run", str(root), "http://members.example/", "--workers", "4", "--delay", "0", *own[given]]
    command += ["--connect-to", f"::127.0.0.1:{server.port}", "-q"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: server.count(200) > 50)
    run.send_signal(signal.SIGINT)
    end(run, errors.STOPPED)
    server.brake = None
    end(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    server.close()
    pages = {page.url for page in Store(root).pages()}
    assert {url.replace("members.example", f"127.0.0.1:{server.port}") for url in pages} == server.pages
    assert "105 pages" in MANUAL and len(pages) == 105 and not list(Store(root).failures())
    assert server.count(403) == 0
    stored = sorted((root / "cookies").glob("*/*"))
    assert [path.parent.name for path in stored] == (["members.example"] if given == "a session" else [])


def test_a_warc_of_a_site_is_read_by_other_tools(tmp_path: Path) -> None:
    with world(Answers(sites.handbook()), tmp_path) as w:
        w.crawl("--scope", "host", "-s", "warc=true")
        (path,) = (w.root / "warcs").glob("*.warc.gz")
        assert path.with_suffix("").with_suffix(".cdxj").exists()
        flags = ["index", "-f", "warc-type,http:status,warc-target-uri", str(path)]
        command = [sys.executable, "-m", "warcio.cli"]
        told = subprocess.run([*command, *flags], capture_output=True, text=True, check=True).stdout
        shown = [line for line in told.splitlines() if "request" not in line]
        assert all(
            line.replace('"revisit"', '"response"') in MANUAL.replace('"revisit"', '"response"') for line in shown
        )
        assert len(shown) == 6 and sum('"revisit"' in line for line in shown) == 1
        subprocess.run([*command, "check", str(path)], check=True)


def files(root: Path) -> dict[str, bytes]:
    """What the records name in files/, by URL."""
    return {page.url: page.file.read_bytes() for page in Store(root).pages() if page.file}


def test_the_pictures_of_an_album_are_kept_byte_for_byte(tmp_path: Path) -> None:
    with world(Answers(sites.album()), tmp_path) as w:
        w.crawl("--depth", "2", "--scope", "host", "-s", "content_types=[html, images]")
        images = {f"http://{sites.ALBUM}{path}": body for path, body in sites.PICTURES.items()}
        assert files(w.root) == images
        assert f"http://{sites.ALBUM}/deeper" not in w.urls()
        extract(w.root, sites.ALBUM_RULES, tmp_path / "images.csv")
        assert set((tmp_path / "images.csv").read_text().splitlines()) == {"image", *images}


def test_all_papers_and_feeds_of_a_site_are_kept(tmp_path: Path) -> None:
    with world(Answers(sites.papers()), tmp_path) as w:
        w.crawl("--scope", "host", "-s", "content_types=[html, pdf, feeds]")
        site = f"http://{sites.PAPERS}"
        assert files(w.root) == {f"{site}/a.pdf": sites.PAPER, f"{site}/b.pdf": sites.PAPER[:20_000]}
        assert w.urls() == {f"{site}/", f"{site}/news.rss", f"{site}/a.pdf", f"{site}/b.pdf"}
        assert not {"/film.mp4", "/logo.png"} & set(w.asked(sites.PAPERS)), "no polite turn for what nobody wants"
        listed = [json.loads(line) for line in crawler("ls", str(w.root), "--json").splitlines()]
        assert {it["url"] for it in listed if it["type"] == "application/pdf"} == {f"{site}/a.pdf", f"{site}/b.pdf"}


@pytest.mark.parametrize("name", [name for name in vars(sites) if name.endswith("_RULES")])
def test_the_manual_shows_these_rules(name: str) -> None:
    assert getattr(sites, name) in MANUAL


def test_the_manual_shows_what_try_shows(store: Path, tmp_path: Path) -> None:
    (tmp_path / "quotes.yaml").write_text(sites.QUOTES_RULES)
    said = crawler("extract", str(store), str(tmp_path / "quotes.yaml"), "--try", f"http://{QUOTES}/quote?t=TSLA")
    assert said in MANUAL


@pytest.mark.fleet  # for time
def test_a_news_site_is_kept_up_with_as_the_manual_says(tmp_path: Path) -> None:
    """The command of the recipe, with a list that gets a new article; then the feed."""
    (line,) = (it for it in MANUAL.splitlines() if it.startswith("crawler run crawl https://news.example/latest/"))
    words = shlex.split(line)[4:]
    flags = ["-w", "0.01", "-j", "1", "-s", "shards=4", "-s", "heartbeat=0.5", "-q"]
    words[words.index("--recrawl") + 1] = words[words.index("--recrawl") + 1].replace("10m", "2s")
    with serving({"/latest/": "<a href=/1>One</a>", "/1": "<title>One</title>"}) as web:
        there = ["http://news.example/latest/", "--connect-to", f"::127.0.0.1:{web.port}"]
        root = str(tmp_path / "crawl")
        machine = subprocess.Popen([*COMMAND, "run", root, *there, *words, *flags])
        try:
            wait_for(lambda: web.of("/1"))
            web.pages |= {"/latest/": "<a href=/1>One</a><a href=/2>Two</a>", "/2": "<title>Two</title>"}
            wait_for(lambda: web.of("/2") and len(web.of("/latest/")) > 3)
            crawler("stop", root)
        finally:
            machine.kill()
            machine.wait()
    assert web.of("/1") == [200], "an article once a week"
    feed = crawler("changes", root, "--since", "7d", "--feed", "atom")
    assert "new: Two<" in feed and "changed: http://news.example/latest/" in feed
