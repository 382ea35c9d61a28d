"""Data from stored pages: a site of complaints is crawled once, and its tables come out as rows."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from lab import stores
from lab.complaints import HOST, RULES, pages
from lab.world import COMMAND, LONG, Answers, Links, crawler, end, is_dead, wait_for, wait_for_line, workers_of, world
from test_bad_input import complaint
from test_rules import NoHand
from test_terminal import EVIL, evil_in, on_a_terminal

from crawler.commands import main
from crawler.commands.extract import extract as extract_module
from crawler.commands.extract import harvest, pool, rules
from crawler.commands.extract import tree as trees
from crawler.commands.extract.extract import Options, admitted, extract
from crawler.commands.extract.pool import Hand
from crawler.errors import UsageError
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.web import urls

LIST = f"http://{HOST}/list?page="
MISSING, USAGE, STOPPED = 1, 2, 3
SLOW = "x" * 40  # what the regex below needs ages for
CATASTROPHE = "columns: {word: {selector: h2, regex: '(x+)+y'}}\n"
TITLES = "columns: {title: title}\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a crawl of the complaints, and of another host."""
    answers = pages() | {
        f"{HOST}/": pages()[f"{HOST}/"] + "<a href='http://other.example/'>x</a><a href='/old'>x</a>",
        "other.example/": f"<title>{EVIL}</title><h2>{SLOW}</h2><i title='one\nrow 9'></i>",
    }
    with world(Answers({**answers}), tmp_path_factory.mktemp("site")) as w:
        w.crawl()
        return w.root


@pytest.fixture
def ruled(tmp_path: Path) -> Path:
    """A file with the manual's rules."""
    return written(tmp_path, RULES)


def written(folder: Path, text: str) -> Path:
    """A file of rules."""
    (folder / "rules.yaml").write_text(text, "utf-8")
    return folder / "rules.yaml"


def rows(root: Path, text: str) -> list[dict[str, Any]]:
    """What these rules give, without the processes and the file."""
    store, given, hand = Store(root), rules.read(text, "x"), cast(Hand, NoHand())
    parts = pool.parts(admitted(store, given))
    found = [row for part in parts for row in harvest.read_part(root, given, False, part, hand).rows]
    return [dict(zip(given.names, row, strict=True)) for row in found]


# ---- the table


def test_a_table_of_complaints_becomes_a_csv_file(site: Path, ruled: Path, tmp_path: Path) -> None:
    said = crawler("extract", str(site), str(ruled), str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text("utf-8") == (
        "url,id,type,title,link,place,person,time,tags\n"
        f"{LIST}1,4711,Noise,Dogs & barking at night,http://{HOST}/complaint/4711,Mill Lane 3 Old Town,A. Smith,"
        '2026-11-17T09:30:00,"[""night"", ""dogs""]"\n'
        f'{LIST}1,4712,Road,"Hole in the road, 中央通り",http://{HOST}/complaint/4712,Station North side,,'
        "2026-11-16T18:05:00,\n"
        f'{LIST}2,4713,Light,"Lamp ""7"", broken",http://{HOST}/complaint/4713,Harbour,B. Jones,,"[""dark""]"\n'
    )
    first, second = said.splitlines()
    assert first == (
        "2 pages read, 3 rows; skipped: 3 empty, 1 without id; "
        f"not converted: 1 of time (first 'yesterday' at {LIST}2); written to {tmp_path}/out.csv"
    )
    assert second.startswith("for the next incremental extract: --since 20")


def test_csv_jsonl_and_sqlite_hold_the_same_rows_with_their_types(site: Path, ruled: Path, tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("old")
    for name in ("out.csv", "out.jsonl", "out.sqlite"):
        crawler("extract", str(site), str(ruled), str(tmp_path / name), "--force", "-j", "1")
    told = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert told[0] == {
        "url": f"{LIST}1",
        "id": 4711,
        "type": "Noise",
        "title": "Dogs & barking at night",
        "link": f"http://{HOST}/complaint/4711",
        "place": "Mill Lane 3 Old Town",
        "person": "A. Smith",
        "time": "2026-11-17T09:30:00",
        "tags": ["night", "dogs"],
    }
    assert (told[2]["time"], told[1]["person"], told[1]["tags"]) == (None, None, None)
    with closing(sqlite3.connect(tmp_path / "out.sqlite")) as database:
        names = [about[1] for about in database.execute("PRAGMA table_info(rows)")]
        found = [dict(zip(names, row, strict=True)) for row in database.execute("SELECT * FROM rows")]
        assert database.execute("SELECT typeof(id), typeof(person) FROM rows").fetchall()[1] == ("integer", "null")
    assert [row | {"tags": row["tags"] and json.loads(row["tags"])} for row in found] == told
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [(row["id"], row["title"]) for row in csv.DictReader(file)] == [(str(r["id"]), r["title"]) for r in told]


def test_without_a_selector_of_rows_there_is_one_row_for_each_page(site: Path) -> None:
    text = """
        match: /complaint/
        columns:
          number: {from: url, regex: '(\\d+)$', type: int}
          state: dd
          language: ::attr(lang)
          never: template b
    """
    found = {row["number"]: row for row in rows(site, text)}
    assert {number: row["state"] for number, row in found.items()} == {4711: "open", 4712: "closed", 4713: "in doubt"}
    assert {(row["language"], row["never"]) for row in found.values()} == {("en", None)}


def test_a_page_on_which_nothing_is_found_gives_no_row(site: Path) -> None:
    text = "columns: {number: {from: url, regex: '\\d+'}, state: dd}"
    assert len(rows(site, text)) == 3


def test_hosts_are_chosen_by_name_or_pattern(site: Path) -> None:
    def hosts(wanted: str) -> set[str]:
        found = rows(site, f"hosts: {wanted}\n{TITLES}")
        return {row["url"].split("/")[2] for row in found}

    assert hosts("[OTHER.example]") == {"other.example"}
    assert hosts("['other。example:80']") == {"other.example"}, "in any spelling"
    assert hosts("['*.example']") == {"other.example", HOST}
    assert hosts("nowhere.example") == set()


TYPES = """
match: page=
rows: tbody tr
columns:
  cost: {selector: 'td:nth-child(7)', type: float, replace: {',': ''}}
  day: {selector: 'td:nth-child(6)', type: date, format: '%d.%m.%Y', regex: '[\\d.]+'}
  done: {selector: .done, type: bool}
  open: {selector: '::attr(class)', type: bool, regex: open}
  both: {selector: '::attr(data-id)', replace: {'^(..)(..)$': '\\2-\\1'}}
  person: {selector: 'td:nth-child(5)', default: nobody}
  heading: {from: page, selector: h1}
  own: {selector: ':scope > td > a::attr(href)', type: url}
"""


def test_texts_become_numbers_days_and_truth_values(site: Path) -> None:
    dogs, hole, lamp = rows(site, TYPES)
    assert (dogs["cost"], dogs["day"], dogs["done"], dogs["open"]) == (1250.5, "2026-11-17", False, True)
    assert (hole["cost"], hole["day"], hole["done"], hole["open"]) == (300.0, "2026-11-16", True, False)
    assert (lamp["cost"], lamp["day"], dogs["both"], hole["person"]) == (None, None, "11-47", "nobody")
    assert (dogs["heading"], hole["own"]) == ("Complaints of the city", f"http://{HOST}/complaint/4712")


def test_html5lib_gives_the_same_rows_as_the_default_parser(site: Path) -> None:
    for text in (RULES, TYPES, TITLES):
        assert rows(site, text) == rows(site, f"parser: html5lib\n{text}")


# ---- what a user may do wrong


def test_what_a_user_names_wrongly_is_one_sentence(
    site: Path, ruled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"columns: {a: '\xe4'}")
    (tmp_path / "there.csv").write_text("precious")
    here, store, given = str(tmp_path), str(site), str(ruled)
    for args, words in (
        ([store, f"{here}/none.yaml", "x.csv"], "none.yaml cannot be read (No such file or directory)"),
        ([store, f"{here}/latin.yaml", "x.csv"], "latin.yaml is not UTF-8 text"),
        ([store, here, f"{here}/x.csv"], "cannot be read (Is a directory)"),
        ([store, given, f"{here}/x.xlsx"], "one of .jsonl .jsonl.gz .jsonl.zst .csv .parquet .sqlite"),
        ([store, given, f"{here}/there.csv"], "already exists"),
        ([store, given, f"{here}/none/x.csv"], f"{here}/none/x.csv.part cannot be written (No such file or directory)"),
        ([store, given], "give either OUT"),
        ([store, given, f"{here}/x.csv", "--try", f"{LIST}1"], "give either OUT"),
        ([store, given, f"{here}/x.csv", "-j", "0"], "'0' must be a whole number from 1"),
        ([store, given, "--try", f"http://{HOST}/gone"], f"http://{HOST}/gone has no page in {store}: it was never"),
        ([store, given, "--try", f"http://{HOST}/old"], f"http://{HOST}/old has no page in {store}: "),
        ([store, given, "--try", "nonsense"], "nonsense"),
    ):
        assert main.run(["extract", *args]) == (MISSING if "has no page" in words else USAGE)
        said = capsys.readouterr().err
        assert said.startswith("crawler: ")
        assert said.count("\n") == 1
        assert words in said
    assert (tmp_path / "there.csv").read_text() == "precious"
    assert "is not a store" in complaint("extract", here, given, f"{here}/x.csv", code=5)
    assert not list(tmp_path.glob("*x.csv*"))


# ---- one page


def test_rules_are_tried_on_one_page(site: Path, ruled: Path) -> None:
    said = crawler("extract", str(site), str(ruled), "--try", f"{LIST}2&utm_source=x#part").splitlines()
    assert said[0].split() == ["row", "id", "type", "title", "link", "place", "person", "time", "tags"]
    assert said[2].split() == f'2 4713 Light Lamp "7", broken http://{HOST}/com… Harbour B. Jones - [dark]'.split()
    assert said[4:] == [
        "row 1 is skipped: empty",
        "row 2, time: 'yesterday' is not a datetime like %d.%m.%Y %H:%M",
        "row 3 is skipped: without id",
        "row 3, id: the regex finds nothing in 'older ones'",
        "row 3, title, link, place, person, time, tags: the selector finds nothing",
        f"1 page read, 1 row; skipped: 1 empty, 1 without id; not converted: 1 of time (first 'yesterday' at {LIST}2)",
    ]


def test_a_page_that_the_rules_leave_out_is_tried_all_the_same(site: Path, tmp_path: Path) -> None:
    given = written(tmp_path, f"match: /list\n{TITLES}")
    said = crawler("extract", str(site), str(given), "--try", f"http://{HOST}/").splitlines()
    assert said[1].split() == ["1", "Home"]
    assert said[-1] == "without --try this page is skipped: its URL does not match `match`"


def test_nothing_from_a_page_reaches_the_terminal_raw(site: Path, tmp_path: Path) -> None:
    text = "hosts: other.example\ncolumns: {title: title, n: {selector: title, type: int}, i: 'i::attr(title)'}"
    given, out = str(written(tmp_path, text)), tmp_path / "out.jsonl"
    for args in (["--try", "http://other.example/"], [str(out)]):
        said = on_a_terminal("extract", str(site), given, *args)
        assert "owned" in said
        assert "not converted: " in said
        assert "\nrow 9" not in said
        assert evil_in(said) == set()
    assert "\x1b" in json.loads(out.read_text("utf-8").splitlines()[-1])["title"]


# ---- many pages, and bad ones


def test_rows_are_in_the_same_order_whatever_the_number_of_workers(
    crawled_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PART_PAGES", 3)
    store, given = Store(crawled_once), rules.read("columns: {links: {selector: 'a::attr(href)', type: list}}", "x")
    for workers in (1, 3):
        extract(store, given, str(tmp_path / f"{workers}.jsonl"), Options(workers))
    one, three = ((tmp_path / f"{workers}.jsonl").read_bytes() for workers in (1, 3))
    assert one == three
    wanted = [page.url for page in store.pages()]
    assert [json.loads(line)["url"] for line in one.splitlines()] == wanted
    assert len(wanted) > 50


def test_what_cannot_be_read_is_counted_and_stops_nothing(site: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(site, tmp_path / "store"))
    store = StoreWriter(root)
    deep, gone = (f"http://{HOST}/complaint/{number}" for number in (4711, 4712))
    store.put_html(deep, "<title>deep</title>" + "<div>" * 20_000)
    (root / "htmls" / HOST / urls.key(gone)).unlink()
    records = ("{half a rec", "[" * 9999, '{"sha224": 1, "url": "x"}', '{"sha224": 1, "url": 7}')
    for number, strange in enumerate(records):
        (root / "links" / HOST / f"{number:024}").write_text(strange)
    for parser in ("turbohtml", "html5lib"):
        text = f"{{hosts: {HOST}, parser: {parser}, rows: title, columns: {{text: '::text'}}}}"
        out = tmp_path / f"{parser}.jsonl"
        said = crawler("extract", str(root), str(written(tmp_path, text)), str(out), "-j", "1")
        assert f"not read: 1 without html (first {gone})" in said
        assert ("truncated: " in said) == (parser == "html5lib")
        found = {json.loads(line)["text"] for line in out.read_text("utf-8").splitlines()}
        assert {"Home", "List, page 1", "List, page 2", "deep", "Complaint 4713"} == found


def test_a_page_that_takes_too_much_work_is_truncated(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MAX_WORK", 1_000_000)
    root = Path(shutil.copytree(site, tmp_path / "store"))
    url = f"http://{HOST}/"
    StoreWriter(root).put_html(url, "<div>" * 500 + "x" * 50_000)
    given = rules.read(f"match: ^{url}$\nrows: div\ncolumns: {{text: '::text'}}", "x")
    found = harvest.read_part(root, given, False, (f"{HOST}/{urls.key(url)}",), cast(Hand, NoHand()))
    assert (found.tally.pages, found.tally.truncated) == (1, 1)
    assert 10 < len(found.rows) < 20


def test_an_empty_store_gives_an_empty_table(tmp_path: Path, ruled: Path) -> None:
    (tmp_path / "store").mkdir()
    StoreWriter(tmp_path / "store", Files(tmp_path / "store", durable=False)).make(Settings(shards=4))
    said = crawler("extract", str(tmp_path / "store"), str(ruled), str(tmp_path / "out.csv"))
    assert said.startswith(f"0 pages read, 0 rows; written to {tmp_path}/out.csv\n")
    assert (tmp_path / "out.csv").read_text() == "url,id,type,title,link,place,person,time,tags\n"


@pytest.mark.fleet
def test_a_running_crawl_is_not_disturbed(tmp_path: Path) -> None:
    tree = {"/": [f"/{number}" for number in range(60)], **{f"/{number}": [] for number in range(60)}}
    given = written(tmp_path, TITLES)
    with world(Links(tree), tmp_path) as w:
        running = w.start(*w.web.seeds(), "-w", "0.1")
        w.until(10)
        said = crawler("extract", str(w.root), str(given), str(tmp_path / "out.jsonl"))
        assert running.poll() is None
        end(running)
        assert w.differences() == []
    assert 0 < len((tmp_path / "out.jsonl").read_text().splitlines()) < 61
    assert "not read" not in said


@pytest.mark.fleet
def test_a_regex_that_hangs_is_named_and_ctrl_c_ends_all_at_once(site: Path, tmp_path: Path) -> None:
    command = ["extract", str(site), str(written(tmp_path, CATASTROPHE)), str(tmp_path / "out.csv")]
    running = subprocess.Popen([*COMMAND, *command], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    running.stdout = running.stderr
    said = wait_for_line(running, "takes long")
    assert said.startswith("http://other.example/ takes long (column word)")
    processes = workers_of(running)
    assert processes
    running.send_signal(signal.SIGINT)
    assert running.wait(LONG) == STOPPED
    wait_for(lambda: all(map(is_dead, processes)))
    assert [path.name for path in tmp_path.iterdir()] == ["rules.yaml"]
    assert "stopped; nothing was written" in (running.stderr.read() if running.stderr else "").splitlines()[-1]


def test_a_page_that_holds_its_reader_is_given_up_and_the_others_come(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "WARN_AFTER", 0.3)
    monkeypatch.setattr(pool, "GIVE_UP_AFTER", 1.0)
    given = rules.read("columns: {title: title, word: {selector: h2, regex: '(x+)+y'}}", "x")
    tally = extract(Store(site), given, str(tmp_path / "out.jsonl"), Options(2))
    assert tally.unread == {"slower than 1 s": 1}
    assert tally.examples["unread", "slower than 1 s"] == "http://other.example/"
    assert (tally.pages, tally.rows) == (6, 6)


def test_a_column_that_is_too_slow_on_several_pages_is_refused_by_name(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GIVE_UP_AFTER", 0.5)
    monkeypatch.setattr(extract_module, "MAX_SLOW_PAGES", 1)
    given = rules.read("columns: {title: title, word: {selector: h2, regex: '(x+)+y'}}", "x")
    with pytest.raises(UsageError, match=r"column word is too slow: .* the last was http://other"):
        extract(Store(site), given, str(tmp_path / "out.jsonl"), Options(2))
    assert not list(tmp_path.glob("out*"))


def test_the_manual_shows_these_rules() -> None:
    assert RULES in (Path(__file__).parents[2] / "crawler/manual/extract.md").read_text("utf-8")


@pytest.mark.bench
def test_a_hundred_thousand_pages(tmp_path: Path) -> None:
    stores.large(tmp_path / "store")
    given = written(tmp_path, "columns: {title: title, number: {from: url, regex: '\\d+$', type: int}, first: p}")
    for workers in ("1", "2"):
        took = stores.measure(
            "extract", str(tmp_path / "store"), str(given), str(tmp_path / "out.csv"), "--force", "-j", workers
        )
        assert took.code == 0
        assert "100,000 pages read, 100,000 rows" in took.out
        print(f"extract, {workers} workers: {took.seconds:.1f} s, {took.megabytes} MB")
