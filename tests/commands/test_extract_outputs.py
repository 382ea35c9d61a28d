"""Where extract writes to: CSV with any delimiter, standard output, whole tables, databases; and only what is new."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from lab import databases, stores
from lab.marks import later
from lab.world import COMMAND, LONG

from crawler.commands import main
from crawler.commands.extract import pool
from crawler.store.records import utc

USAGE = 2
AT = "http://a.example"
PAGES = {
    f"{AT}/wiki/One": "<h1>One; 1</h1><p>a\rb</p><b>x</b>",
    f"{AT}/wiki/Two": "<h1>Two</h1><p>c</p>",
    f"{AT}/other": "<h1>Other</h1>",
}
WIKI = """
match: /wiki/
columns:
  heading: h1
  path: {from: url, regex: '/wiki/.*'}
"""


def extract(root: Path, rules: str, out: Path | str, *flags: str, code: int = 0) -> str:
    """`crawler extract` without a process of its own; what it says."""
    given = root.parent / "rules.yaml"
    given.write_text(rules, "utf-8")
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        found = main.run(["extract", str(root), str(given), str(out), "-j", "1", *flags])
    assert found == code, said.getvalue()
    return said.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a few pages."""
    return stores.of(tmp_path / "store", PAGES).root


# ---- CSV


def test_csv_has_the_delimiter_that_is_wanted_and_lines_of_unix(store: Path, tmp_path: Path) -> None:
    rules = WIKI + "  text: {selector: '#none', default: \"a\\rb\"}\nurl: false\n"
    extract(store, rules, tmp_path / "out.csv", "--delimiter", ";")
    assert set((tmp_path / "out.csv").read_bytes().split(b"\n")) == {
        b"heading;path;text",
        b'"One; 1";/wiki/One;"a\rb"',
        b'Two;/wiki/Two;"a\rb"',
        b"",
    }
    extract(store, WIKI, tmp_path / "tab.csv", "--delimiter", r"\t")
    assert b"\nhttp://a.example/wiki/Two\tTwo\t/wiki/Two\n" in (tmp_path / "tab.csv").read_bytes()


def test_rows_are_written_to_standard_output_and_all_else_is_not(store: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(WIKI)
    command = [*COMMAND, "extract", str(store), str(tmp_path / "rules.yaml"), "-", "--delimiter", ";"]
    done = subprocess.run(command, capture_output=True, timeout=LONG, check=True)
    assert sorted(done.stdout.splitlines()) == [
        b'http://a.example/wiki/One;"One; 1";/wiki/One',
        b"http://a.example/wiki/Two;Two;/wiki/Two",
        b"url;heading;path",
    ]
    assert b"2 pages read, 2 rows\nfor the next incremental extract: --since 20" in done.stderr
    assert not (tmp_path / "-").exists()


def test_a_reader_that_ends_early_is_no_error(store: Path, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(WIKI)
    line = f"{' '.join(COMMAND)} extract {store} {tmp_path}/rules.yaml - | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=LONG, check=True)
    assert "Traceback" not in done.stderr
    assert done.stdout.strip() in ("0", "141")


# ---- the summary


def test_a_column_that_is_empty_in_every_row_is_said(store: Path, tmp_path: Path) -> None:
    text = WIKI + "  bold: b\n  gone: .gone\n  never: {selector: i, type: int}\n  filled: {selector: i, default: x}\n"
    said = extract(store, text, tmp_path / "out.csv")
    assert "2 pages read, 2 rows; empty in every row: gone, never; written to" in said


# ---- only what is new


def test_only_pages_that_were_stored_since_are_read(store: Path, tmp_path: Path) -> None:
    assert "2 pages read" in extract(store, WIKI, tmp_path / "all.csv", "--since", "2020-01-01")
    time.sleep(1.1)
    now = utc(time.time())
    stores.of(store, {f"{AT}/wiki/Three": "<h1>Three</h1>"})
    stores.of(store, {"http://b.example/wiki/Four": "<h1>Four</h1>"})
    assert "2 pages read, 2 rows" in extract(store, WIKI, tmp_path / "new.csv", "--since", now)
    lines = (tmp_path / "new.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines] == ["heading", "Three", "Four"]


def test_the_time_for_the_next_extract_misses_no_page(store: Path, tmp_path: Path) -> None:
    said = extract(store, WIKI, tmp_path / "one.csv")
    since = said.split("--since ")[1].strip()
    stores.of(store, {f"{AT}/wiki/Three": "<h1>Three</h1>"})
    extract(store, WIKI, tmp_path / "two.csv", "--since", since)
    assert ",Three," in (tmp_path / "two.csv").read_text()


# ---- whole tables

TABLES = {
    f"{AT}/quote?t=A": "<table id=data><tr><th>Day<th>Price<tr><td>1<td>10<tr><td>2<td>11</table>",
    f"{AT}/quote?t=B": "<table id=data><tr><th>Day<th>Volume<th>PRICE<tr><td>1<td>500<td>12</table>",
    f"{AT}/quote?t=C": "<p>no such share</p>",
}
OF_TABLES = "table: 'table#data'\ncolumns: {ticker: {from: url, regex: 't=(.*)'}}\nurl: false\n"


@pytest.mark.parametrize("form", ["csv", "jsonl", "sqlite"])
def test_tables_of_many_pages_become_one_with_all_their_columns(tmp_path: Path, form: str) -> None:
    root = stores.of(tmp_path / "store", TABLES).root
    out = tmp_path / f"out.{form}"
    assert "3 pages read, 3 rows; written to" in extract(root, OF_TABLES, out)
    pandas = importlib.import_module("pandas")
    if form == "csv":
        found = pandas.read_csv(out)
    elif form == "jsonl":
        found = pandas.read_json(out, lines=True)
    else:
        found = pandas.read_sql("SELECT * FROM rows", importlib.import_module("sqlite3").connect(out))
    price = next(name for name in found if name.lower() == "price")
    rows = found.sort_values(["ticker", "Day"])[["ticker", "Day", price]].astype(str).to_numpy().tolist()
    assert rows == [["A", "1", "10"], ["A", "2", "11"], ["B", "1", "12"]]
    assert {name.lower() for name in found} == {"ticker", "day", "price", "volume"}


def test_a_table_is_tried_on_one_page(tmp_path: Path) -> None:
    root = stores.of(tmp_path / "store", TABLES).root
    said = extract(root, OF_TABLES, f"--try={AT}/quote?t=A").splitlines()
    assert [line.split() for line in said[:3]] == [
        ["row", "ticker", "Day", "Price"],
        ["1", "A", "1", "10"],
        ["2", "A", "2", "11"],
    ]


def test_a_file_that_is_there_is_known_before_the_tables_are_read(tmp_path: Path) -> None:
    root = stores.of(tmp_path / "store", TABLES).root
    (tmp_path / "out.csv").write_text("precious")
    assert "already exists" in extract(root, OF_TABLES, tmp_path / "out.csv", code=USAGE)
    assert "no known extension" in extract(root, OF_TABLES, tmp_path / "out.xls", code=USAGE)
    assert (tmp_path / "out.csv").read_text() == "precious"


# ---- JSON pages


def test_json_pages_are_read_and_others_are_counted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    listed = json.dumps({"list": [{"id": 1}, {"id": 2}]})
    stores.of(root, {f"{AT}/api?pn=1": listed, f"{AT}/api?pn=2": "{half"}, "application/json")
    stores.of(root, {f"{AT}/api?pn=3": " " + listed, f"{AT}/": "<h1>Docs</h1>"}, "text/html")
    said = extract(root, "rows: '$.list[*]'\ncolumns: {id: {selector: $.id, type: int}}", tmp_path / "out.jsonl")
    assert "2 pages read, 4 rows" in said
    assert f"1 not JSON (first {AT}/)" in said
    assert f"1 with invalid JSON (first {AT}/api?pn=2)" in said
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(row["id"] for row in rows) == [1, 1, 2, 2]


# ---- pages written against a rule


def test_a_page_on_which_an_xpath_takes_for_ever_is_given_up_and_the_others_come(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GIVE_UP_AFTER", 1.0)
    stores.of(store, {f"{AT}/wiki/Deep": "<h1>Deep</h1>" + "<div>" * 5000})
    said = extract(store, WIKI + "  last: '//*[count(preceding::*) > 5]'\n", tmp_path / "out.csv")
    assert f"2 pages read, 2 rows; empty in every row: last; not read: 1 slower than 1 s (first {AT}/wiki/Deep)" in said


# ---- databases


@pytest.fixture(params=["sqlite", *later("postgresql", "mariadb")])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/any.db"
    else:
        with getattr(databases, request.param)() as found:
            yield found


def query(address: str, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements as somebody else would; the rows of the last one, sorted."""
    sql = importlib.import_module("sqlalchemy")
    engine = sql.create_engine(address, poolclass=sql.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            done = connection.execute(sql.text(statement))
        return sorted(map(tuple, done)) if done.returns_rows else []


def test_an_existing_table_gets_each_row_once_and_keeps_what_else_it_has(store: Path, address: str) -> None:
    serial = {"sq": "INTEGER PRIMARY KEY", "po": "SERIAL PRIMARY KEY", "my": "INT AUTO_INCREMENT PRIMARY KEY"}
    query(
        address,
        f"CREATE TABLE pages (id {serial[address[:2]]}, title VARCHAR(20), path VARCHAR(100), note VARCHAR(20))",
        "INSERT INTO pages (title, path, note) VALUES ('old', '/wiki/Two', 'mine'), ('left', '/wiki/Gone', 'mine')",
    )
    flags = ["--table", "pages", "--map", "heading=title", "--key", "path"]
    wanted = [("/wiki/Gone", "left", "mine"), ("/wiki/One", "One; 1", None), ("/wiki/Two", "Two", "mine")]
    for _ in range(2):
        said = extract(store, WIKI, address, *flags)
        assert "2 pages read, 2 rows; written to" in said
        assert "secret-word" not in said
        assert query(address, "SELECT path, title, note FROM pages") == wanted
    stores.of(store, {f"{AT}/wiki/One": "<h1>New</h1>", f"{AT}/wiki/Five": f"<h1>{'x' * 21}</h1>"})
    said = extract(store, WIKI, address, *flags)
    assert f"not written: 1 too long for title (first {AT}/wiki/Five)" in said
    assert query(address, "SELECT title FROM pages WHERE path = '/wiki/One'") == [("New",)]


def test_a_new_table_has_the_rows_of_each_page_once_with_their_types(store: Path, address: str) -> None:
    text = """
        match: /wiki/
        rows: p
        columns:
          text: '::text'
          wiki: {from: url, regex: wiki, type: bool}
          words: {selector: '::text', type: list}
    """
    table = "`rows`" if address[:2] == "my" else "rows"  # a word of MariaDB's own
    for _ in range(2):
        extract(store, text, address)
        rows = query(address, f"SELECT url, text, wiki, words FROM {table}")
        assert [(*row[:2], bool(row[2]), row[3]) for row in rows] == [
            (f"{AT}/wiki/One", "a b", True, '["a b"]'),
            (f"{AT}/wiki/Two", "c", True, '["c"]'),
        ]
    stores.of(store, {f"{AT}/wiki/Two": "<p>🦊</p><p>e</p><p>" + "ö" * 70_000})
    extract(store, text, address, "--table", "rows")
    assert [text[:3] for (text,) in query(address, f"SELECT text FROM {table}")] == ["a b", "e", "ööö", "🦊"]


def test_what_the_database_rejects_is_counted_and_the_rest_is_written(store: Path, address: str) -> None:
    query(address, "CREATE TABLE pages (heading VARCHAR(20) NOT NULL, path VARCHAR(50) CHECK (path <> '/wiki/One'))")
    said = extract(store, WIKI, address, "--table", "pages", "--key", "path")
    assert "2 pages read, 1 row; not written: 1 that the database rejects (first " in said
    assert query(address, "SELECT * FROM pages") == [("Two", "/wiki/Two")]


def test_times_and_numbers_fit_the_columns_of_a_table(tmp_path: Path, address: str) -> None:
    root = stores.of(tmp_path / "store", {f"{AT}/": "<i>2026-11-17</i><b>2026-11-17T09:30:00</b><u>7</u>"}).root
    moment = "TIMESTAMP" if address[:2] == "po" else "DATETIME"
    query(address, f"CREATE TABLE t (day DATE, at {moment}, number VARCHAR(9), of_n INT)")
    text = """columns:
      day: {selector: i, type: date}
      at: {selector: b, type: datetime}
      number: {selector: u, type: int}
      of_n: {selector: u, type: int}"""
    for _ in range(2):
        extract(root, text, address, "--table", "t", "--key", "number", "--key", "day")
    ((day, at, number, of_n),) = query(address, "SELECT day, at, number, of_n FROM t")
    assert (str(day), str(at)[:19], number, of_n) == ("2026-11-17", "2026-11-17 09:30:00", "7", 7)


def test_whole_tables_go_to_a_database_whatever_their_header_says(tmp_path: Path, address: str) -> None:
    strange = """Chg % (1d):x.y [z] "q" `b`🦊 '; --"""
    pages = {url: text.replace("Volume", strange) for url, text in TABLES.items()}
    root = stores.of(tmp_path / "store", pages).root
    for _ in range(2):
        extract(root, OF_TABLES, address, "--table", "prices", "--key", "ticker", "--key", "Day")
    rows = query(address, "SELECT * FROM prices")
    assert [row[:2] for row in rows] == [("A", "1"), ("A", "2"), ("B", "1")]
    assert "500" in rows[2]
    assert strange.replace("`", "?").replace("🦊", "?") in columns(address, "prices")


def columns(address: str, table: str) -> list[str]:
    """The names of a table's columns."""
    sql = importlib.import_module("sqlalchemy")
    engine = sql.create_engine(address, poolclass=sql.NullPool)
    return [column["name"] for column in sql.inspect(engine).get_columns(table)]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--table", "pages"], "has no column heading, it has id, title, path; rename it in the rules, or use --map"),
        (["--table", "pages", "--map", "heading=title"], "other columns than the rules, so it is somebody else's"),
        (["--table", "pages", "--map", "heading=title", "--key", "id"], "--key id is not a column that is written"),
        (["--table", "pages", "--map", "heading=title", "--map", "url=at"], "has no column at"),
        (["--map", "x=y"], "the rules have no column x; they have url, heading, path"),
        (["--map", "x"], "must be COLUMN=NAME"),
        (["--delimiter", ";"], "--delimiter works only with CSV"),
    ],
)
def test_what_does_not_fit_a_database_is_one_sentence(
    store: Path, tmp_path: Path, flags: list[str], words: str
) -> None:
    address = f"sqlite:///{tmp_path}/any.db"
    query(address, "CREATE TABLE pages (id INTEGER PRIMARY KEY, title TEXT NOT NULL, path TEXT)")
    said = extract(store, WIKI, address, *flags, code=USAGE)
    assert said.startswith("crawler: ")
    assert said.count("\n") == 1
    assert words in said


def test_a_table_that_takes_no_row_is_an_error(store: Path, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/any.db"
    query(address, "CREATE TABLE pages (heading TEXT, path TEXT, must TEXT NOT NULL)")
    said = extract(store, WIKI, address, "--table", "pages", "--key", "path", code=USAGE)
    assert "took none of the rows for pages (NOT NULL constraint failed: pages.must)" in said


@pytest.mark.parametrize(
    ("out", "flags", "words"),
    [
        ("x.csv", ["--key", "a"], "only with a database URL; a file of SQLite has sqlite:///PATH"),
        ("x.csv", ["--delimiter", ";;"], "must be one character"),
        ("x.csv", ["--delimiter", '"'], "must be one character"),
        ("x.jsonl", ["--delimiter", ";"], "only with CSV"),
        ("sqlite:///x.db", ["--force"], "--force replaces files"),
        ("x.csv", ["--since", "soon"], "--since 'soon' is not a time"),
        ("mysql+pymysql://me:secret-word@127.0.0.1:1/x", [], "rows cannot be written to"),
    ],
)
def test_flags_that_do_not_fit_are_one_sentence(
    store: Path, tmp_path: Path, out: str, flags: list[str], words: str
) -> None:
    said = extract(store, WIKI, out if "://" in out else tmp_path / out, *flags, code=USAGE)
    assert words in said
    assert said.count("\n") == 1
    assert "secret-word" not in said
