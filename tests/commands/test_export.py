"""Exports: every page in every form, cut off and gone on with, and what has come since; read by others' tools."""

from __future__ import annotations

import csv
import fcntl
import gzip
import importlib
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lab import databases, stores
from lab.machines.fleet import fleet
from lab.machines.mounts import Mount
from lab.marks import later
from lab.webs import TreeWeb
from lab.world import LONG, Links, crawler, end, wait_for, world
from test_terminal import evil_in, on_a_terminal

from crawler import Store
from crawler.commands import main
from crawler.commands.export import output
from crawler.commands.export.rows import COLUMNS, MARGIN
from crawler.store.records import from_utc, to_json, utc
from crawler.store.writer import StoreWriter

MISSING, USAGE, STOPPED, FULL = 1, 2, 3, 6
FILES = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".parquet", ".warc.gz", ".sqlite"]
GO_ON = [".jsonl", ".jsonl.gz", ".csv", ".warc.gz", ".sqlite"]

Rows = list[dict[str, Any]]


# ---- how each form is read, by whoever reads it in the world


def read_jsonl(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def read_gzip(path: Path) -> Rows:
    whole = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    return [json.loads(line) for line in whole.splitlines()]


def read_zstd(path: Path) -> Rows:
    zstd = importlib.import_module("backports.zstd" if sys.version_info < (3, 14) else "compression.zstd")
    one_frame = zstd.ZstdDecompressor()
    whole = one_frame.decompress(path.read_bytes())
    assert one_frame.eof
    assert not one_frame.unused_data
    return [json.loads(line) for line in whole.splitlines()]


def read_csv(path: Path) -> Rows:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    return [
        {name: int(text) if COLUMNS.get(name) == "int" and text else text or None for name, text in row.items()}
        for row in rows
    ]


def read_parquet(path: Path) -> Rows:
    table = importlib.import_module("pyarrow.parquet").read_table(path)
    rows: Rows = table.to_pylist()
    return [{**row, "fetched": row["fetched"] and utc(row["fetched"].timestamp())} for row in rows]


def read_sqlite(path: Path) -> Rows:
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    rows = [dict(row) for row in db.execute("SELECT * FROM pages ORDER BY host, key")]
    db.close()
    return rows


def read_warc(path: Path) -> Rows:
    """By fastwarc, which did not write it: the rows are in the metadata, the pages in the responses."""
    warc = importlib.import_module("fastwarc.warc")
    rows: Rows = []
    html = b""
    for record in warc.ArchiveIterator(path.open("rb"), parse_http=True, verify_digests=True):
        block = record.reader.read()
        if record.record_type == warc.WarcRecordType.response:
            html, page, http = block, record, dict(record.http_headers)
            status = record.http_headers.status_code
        elif record.record_type == warc.WarcRecordType.metadata:
            rows.append({**json.loads(block), "html": html.decode()})
            assert record.headers["WARC-Refers-To"] == page.headers["WARC-Record-ID"]
            assert page.headers["WARC-Target-URI"] == record.headers["WARC-Target-URI"] == rows[-1]["url"]
            assert page.headers["WARC-Date"] == rows[-1]["fetched"]
            assert status == rows[-1]["status"]
            assert http["Content-Type"] == f"{rows[-1]['type']}; charset=utf-8"
            assert http["Content-Length"] == str(len(html))
    return rows


READ: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": read_jsonl,
    ".jsonl.gz": read_gzip,
    ".jsonl.zst": read_zstd,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".sqlite": read_sqlite,
    ".warc.gz": read_warc,
}


def expected(root: Path, html: bool = True) -> Rows:
    """What an export of all pages must hold, from the files themselves."""
    rows = []
    for path in sorted((root / "links").glob("*/[!.]*")):
        record = json.loads(path.read_bytes())
        if record["sha224"]:
            text = (root / "htmls" / path.parent.name / path.name).read_bytes()
            more = {"host": path.parent.name, "key": path.name, "text_length": len(text)}
            row = {"file": None, **record, **more, "link_count": len(record["links"])}
            rows.append(
                {name: row[name] for name in (*COLUMNS, "links", "headers")} | ({"html": text.decode()} if html else {})
            )
    return rows


def same(found: Rows, wanted: Rows, form: str, html: bool = True) -> bool:
    """Whether rows are those that are wanted, in the columns that a form has; in CSV nothing and no text are one."""
    names = [*COLUMNS, *(["links", "headers"] if "json" in form or "warc" in form else []), *(["html"] if html else [])]
    empty = [None, ""] if form == ".csv" else [None]

    def seen(rows: Rows) -> Rows:
        return [{name: None if row[name] in empty else row[name] for name in names} for row in rows]

    return seen(found) == seen(wanted)


def mark_of(said: str) -> str:
    return str(re.findall(r"^for the next incremental export: --since (\S+)$", said, re.MULTILINE)[0])


def export(root: Path, out: Path | str, *flags: str, code: int = 0) -> str:
    """`crawler export` without a process of its own; what it says."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        found = main.run(["export", str(root), str(out), *flags])
    assert found == code, said.getvalue()
    return said.getvalue()


# ---- every page in every form


def test_records_that_cannot_be_read_are_told(crawled_once: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(crawled_once, tmp_path / "store"))
    assert "could not be read" not in export(root, tmp_path / "all.csv")
    broken = next(path for path in sorted((root / "links").glob("*/[!.]*")) if json.loads(path.read_text())["sha224"])
    broken.write_text("garbage")
    said = export(root, tmp_path / "pages.csv")
    assert f"{len(expected(crawled_once)) - 1} pages written" in said
    assert "warning: left out 1 record that could not be read; `crawler check " in said


@pytest.mark.parametrize("form", FILES)
def test_an_export_holds_every_page_with_its_text(crawled_once: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"pages{form}"
    wanted = expected(crawled_once)
    said = crawler("export", str(crawled_once), str(out), "--html")
    assert f"{len(wanted)} pages written to {out}\n" in said
    assert len(wanted) > 50
    assert same(READ[form](out), wanted, form)
    assert [path.name for path in tmp_path.iterdir()] == [out.name], "nothing else is left"


@pytest.mark.parametrize("form", [".jsonl", ".csv", ".sqlite", ".parquet"])
def test_without_being_asked_for_html_none_is_written(crawled_once: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"pages{form}"
    export(crawled_once, out)
    rows = READ[form](out)
    assert same(rows, expected(crawled_once, html=False), form, html=False)
    assert not any(row.get("html") for row in rows)


def test_a_warc_file_is_right_by_the_tools_of_others(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.warc.gz"
    export(crawled_once, out)
    command = [sys.executable, "-m", "warcio.cli"]
    checked = subprocess.run([*command, "check", "-v", out], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert "digest pass" in checked.stdout
    fields = ["index", "-f", "warc-type,warc-target-uri,warc-date", str(out)]
    told = subprocess.run([*command, *fields], capture_output=True, text=True, check=True).stdout
    index = [json.loads(line) for line in told.splitlines()]
    pages = [(item["warc-target-uri"], item["warc-date"]) for item in index if item["warc-type"] == "response"]
    assert pages == [(row["url"], row["fetched"]) for row in expected(crawled_once)]
    assert {item["warc-type"] for item in index} == {"warcinfo", "response", "metadata"}
    assert b"decoded to UTF-8 text" in gzip.decompress(out.read_bytes())


@pytest.mark.parametrize("form", FILES)
def test_an_empty_store_gives_a_whole_file_without_rows(tmp_path: Path, form: str) -> None:
    made = stores.large(tmp_path / "store", pages=0)
    out = tmp_path / f"pages{form}"
    assert "0 pages written" in export(made.root, out)
    assert READ[form](out) == []


def test_records_that_somebody_made_by_hand_spoil_no_form(tmp_path: Path) -> None:
    store = stores.large(tmp_path / "store", pages=3, hosts=1)
    first, second, third = store.pages()
    evil = {"title": 'a\0b\r\nc","\ud800=1+1\x1b', "status": "200", "depth": 10**30, "links": "x", "type": "a\r\nb: c"}
    evil |= {"headers": {"x": "1\r\n\r\n<p>", "a\r\nb": "c", "d": 3}}
    store.put_record(first.url, to_json({**first.record, **evil, "fetched": ["no"]}))
    store.put_record(second.url, to_json({**second.record, "url": "http://\r\nWARC-Type: x"}))
    store.put_record(third.url, b"{half")
    shutil.copyfile(store.root / f"links/{first.host}/{first.key}", store.root / f"links/{first.host}/{'0' * 24}")
    title = 'a\ufffdb\r\nc","?=1+1\x1b'
    for form in FILES:
        out = tmp_path / f"pages{form}"
        export(store.root, out)
        (row,) = READ[form](out) if form != ".warc.gz" else [json.loads(warc_blocks(out)["metadata"])]
        assert (row["url"], row["title"], row["link_count"]) == (first.url, title, 0)
        assert row["status"] is row["depth"] is row["fetched"] is None
    assert warc_blocks(tmp_path / "pages.warc.gz").keys() == {"warcinfo", "response", "metadata"}
    head = warc_blocks(tmp_path / "pages.warc.gz")["response"].partition(b"\r\n\r\n")[0]
    assert head.splitlines()[3:] == [b"x: 1", b"x: ", b"x: <p>"]


def warc_blocks(path: Path) -> dict[str, bytes]:
    warc = importlib.import_module("fastwarc.warc")
    records = warc.ArchiveIterator(path.open("rb"), parse_http=False)
    return {record.headers["WARC-Type"]: record.reader.read() for record in records}


# ---- which pages


def test_pages_are_chosen_by_host_time_and_url(crawled_once: Path, tmp_path: Path) -> None:
    rows = expected(crawled_once, html=False)
    hosts = sorted({row["host"] for row in rows})[:2]
    middle = sorted(row["fetched"] for row in rows)[len(rows) // 2]

    def chosen(*flags: str) -> list[str]:
        export(crawled_once, tmp_path / "some.jsonl", "--force", *flags)
        return [row["url"] for row in read_jsonl(tmp_path / "some.jsonl")]

    def wanted(test: Callable[[dict[str, Any]], bool]) -> list[str]:
        return [row["url"] for row in rows if test(row)]

    assert chosen("--host", hosts[1], "--host", hosts[0].upper()) == wanted(lambda row: row["host"] in hosts)
    assert chosen("--from", middle) == wanted(lambda row: row["fetched"] >= middle)
    assert chosen("--until", middle) == wanted(lambda row: row["fetched"] < middle)
    assert chosen("--from", middle[:10], "--match", "/topic/|[0-9]/$") == wanted(
        lambda row: bool(re.search("/topic/|[0-9]/$", row["url"]))
    )
    assert 0 < len(chosen("--match", "/topic/")) < len(rows)


def test_since_is_when_a_record_came_to_its_place_whatever_its_own_time(crawled: Path, tmp_path: Path) -> None:
    first, second, *_ = (row for row in expected(crawled))
    time.sleep(1.1)
    now = utc(time.time())
    path = crawled / "links" / first["host"] / first["key"]
    os.utime(path, (1, 1))  # as rsync leaves what it copies
    again = crawled / "links" / second["host"] / second["key"]
    again.with_name(".new").write_bytes(again.read_bytes())
    again.with_name(".new").rename(again)
    export(crawled, tmp_path / "new.jsonl", "--since", now)
    assert {row["url"] for row in read_jsonl(tmp_path / "new.jsonl")} == {first["url"], second["url"]}


@pytest.mark.fleet
def test_a_mark_misses_no_page_of_a_crawl_that_goes_on(tmp_path: Path) -> None:
    tree = {f"/{'ab'[n % 2]}{n}": [f"/{'ab'[m % 2]}{m}" for m in (2 * n, 2 * n + 1)] for n in range(1, 60)}
    with world(Links({"/": ["/b1"], **tree}), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-w", "0.05")
        w.until(30)
        mark = mark_of(export(w.root, tmp_path / "before.jsonl"))  # at once: a new process may come when all is over
        end(process)
        before = {row["url"] for row in read_jsonl(tmp_path / "before.jsonl")}
        assert 0 < len(before) < len(w.urls())
        late = utc(from_utc(mark) + MARGIN)  # on a disk like this one no page is missed without the margin either
        for number, since in enumerate([mark, late]):
            out = tmp_path / f"after{number}.jsonl"
            export(w.root, out, "--since", since)
            after = {row["url"] for row in read_jsonl(out)}
            assert before | after == w.urls()
        assert after != w.urls(), "what was there long before is not exported again"


@pytest.mark.fleet
def test_a_mark_misses_no_page_from_wherever_it_is_taken_and_little_of_its_margin_is_needed(
    kind: str, mounting: Callable[[str, int], Mount], tmp_path: Path
) -> None:
    with fleet(TreeWeb(hosts=12, fanout=6, depth=3, delay=0.05), mounting(kind, 3), delay=0.05, dead_after=30) as f:
        f.join(0)
        f.join(1)
        f.until(100)
        here = f.mount.at(2) / "store"
        before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
        export(here, tmp_path / "first.jsonl")  # so that this client has old listings to go by
        mark = mark_of(export(here, before))
        f.end()
        seen = {row["url"] for row in read_jsonl(before)}
        missed = [page for page in Store(f.root).pages() if page.url not in seen]
        oldest = min(Store(here).changed(page.host, page.key) for page in missed)
        needed = from_utc(mark) + MARGIN - oldest
        print(f"{kind}: {len(missed)} pages came later, the oldest stamped {needed:.1f} s before the mark's margin")
        assert needed < MARGIN / 5

        def is_found() -> bool:
            export(here, after, "--since", mark, "--force")
            return {page.url for page in missed} <= {row["url"] for row in read_jsonl(after)}

        wait_for(is_found)  # a client of sshfs may list a folder as it was 20 seconds ago


# ---- cut off, and gone on with

CUT = """
import os, signal, sys
from crawler.commands import main
from crawler.commands.export import output, rows
rows.BATCH_ROWS = 7
how, left = getattr(signal, sys.argv.pop(1)), 4
def cut(write):
    def some(self, data):
        global left
        left -= 1
        if left == 0:
            write(self, data[: len(data) // 2])
            os.kill(os.getpid(), how)
        write(self, data)
    return some
output.OutputFile._write = cut(output.OutputFile._write)
output.SqliteFile.add = cut(output.SqliteFile.add)
main.main()
"""


def cut_off(how: str, *args: str) -> subprocess.CompletedProcess[str]:
    """An export that meets a signal when half of its third batch is written."""
    command = [sys.executable, "-c", CUT, how, "export", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)


@pytest.mark.parametrize("form", GO_ON)
def test_a_killed_export_leaves_no_half_file_and_the_same_command_goes_on(
    crawled_once: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"pages{form}"
    args = (str(crawled_once), str(out), "--html")
    assert cut_off("SIGKILL", *args).returncode == -9
    assert not out.exists()
    part = tmp_path / f"pages{form}.part"
    inode = part.stat().st_ino
    said = crawler("export", *args)
    assert form == ".sqlite" or "resuming after 14 pages\n" in said or "21 pages" in said
    assert out.stat().st_ino == inode
    assert same(READ[form](out), expected(crawled_once), form)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("form", [".jsonl.zst", ".parquet"])
def test_a_killed_export_of_a_form_that_cannot_be_gone_on_with_begins_anew(
    crawled_once: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"pages{form}"
    assert cut_off("SIGKILL", str(crawled_once), str(out)).returncode == -9
    assert not out.exists()
    export(crawled_once, out)
    assert same(READ[form](out), expected(crawled_once), form, html=False)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("form", "words"), [(".csv", "the same command resumes"), (".parquet", "starts again"), (".sqlite", "resumes")]
)
def test_ctrl_c_says_how_to_go_on(crawled_once: Path, tmp_path: Path, form: str, words: str) -> None:
    done = cut_off("SIGINT", str(crawled_once), str(tmp_path / f"pages{form}"))
    assert done.returncode == STOPPED
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / f"pages{form}").exists()
    assert (tmp_path / f"pages{form}.part").exists() == (form != ".parquet")


def test_the_mark_of_an_export_that_was_gone_on_with_is_that_of_its_beginning(crawled: Path, tmp_path: Path) -> None:
    cut_off("SIGKILL", str(crawled), str(tmp_path / "pages.jsonl"))
    began = utc((crawled / "workers").stat().st_ctime - MARGIN)
    time.sleep(1.1)
    (crawled / "workers" / "new").touch()
    assert mark_of(export(crawled, tmp_path / "other.jsonl")) > began
    assert mark_of(export(crawled, tmp_path / "pages.jsonl")) == began


def test_a_part_of_other_pages_is_not_mixed_with_these(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.jsonl"
    cut_off("SIGKILL", str(crawled_once), str(out), "--html")
    said = export(crawled_once, out, code=USAGE)
    assert "or with other flags" in said
    assert "--force" in said
    export(crawled_once, out, "--force")
    assert same(read_jsonl(out), expected(crawled_once), ".jsonl", html=False)


def test_a_part_of_another_store_is_not_mixed_with_this_one(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.jsonl"
    other = stores.large(tmp_path / "store", pages=3)
    cut_off("SIGKILL", str(crawled_once), str(out))
    assert "an export of another store" in export(other.root, out, code=USAGE)
    export(other.root, out, "--force")
    assert same(read_jsonl(out), expected(other.root), ".jsonl", html=False)


def test_what_a_power_cut_left_is_begun_anew(crawled_once: Path, tmp_path: Path) -> None:
    out, part = tmp_path / "pages.jsonl", tmp_path / "pages.jsonl.part"
    cut_off("SIGKILL", str(crawled_once), str(out))
    part.write_bytes(part.read_bytes()[:100])  # shorter than the journal knows
    export(crawled_once, out)
    cut_off("SIGKILL", str(crawled_once), str(out), "--force")
    (tmp_path / "pages.jsonl.part.json").write_bytes(b"")
    export(crawled_once, out, "--force")
    assert same(read_jsonl(out), expected(crawled_once), ".jsonl", html=False)


def test_a_file_that_is_there_is_replaced_only_when_asked_for(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.csv"
    out.write_text("precious")
    assert "--force" in export(crawled_once, out, code=USAGE)
    assert out.read_text() == "precious"
    cut_off("SIGKILL", str(crawled_once), str(out), "--force")
    assert out.read_text() == "precious", "it stays until the new one is whole"
    export(crawled_once, out, "--force")
    assert len(read_csv(out)) == len(expected(crawled_once))
    (tmp_path / "folder.csv").mkdir()
    assert "is a folder" in export(crawled_once, tmp_path / "folder.csv", "--force", code=USAGE)


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(crawled_once: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    export(crawled_once, tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert len(read_csv(tmp_path / "real.csv")) == len(expected(crawled_once))


def test_two_exports_do_not_write_one_file(crawled_once: Path, tmp_path: Path) -> None:
    part = tmp_path / "pages.jsonl.part"
    with part.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "another command is writing" in export(crawled_once, tmp_path / "pages.jsonl", code=USAGE)


def test_two_exports_do_not_write_one_new_database(
    crawled_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pages.sqlite"
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, timeout=0.1))
    with closing(output.SqliteFile(out, "pages", {"key": "key"}, grows=True)):
        assert "another command is writing" in export(crawled_once, out, code=USAGE)
        assert not out.exists()


@pytest.mark.parametrize("form", [".jsonl", ".sqlite", ".parquet"])
def test_a_full_disk_is_one_sentence_and_with_room_the_same_command_ends_well(
    crawled_once: Path, small_disk: Path, form: str
) -> None:
    out = small_disk / f"pages{form}"
    (small_disk / "ballast").write_bytes(bytes(60_000))
    said = export(crawled_once, out, "--html", code=FULL)
    assert f"no space left for {out}" in said
    assert len(said.splitlines()) == 1
    assert not out.exists()
    subprocess.run(["mount", "-o", "remount,size=64m", small_disk], check=True)
    export(crawled_once, out, "--html")
    assert same(READ[form](out), expected(crawled_once), form)


# ---- databases


def halved(root: Path) -> tuple[Path, Path]:
    """Half of the records, put away; where they were and are."""
    away = root.parent / "away"
    for number, path in enumerate(sorted((root / "links").glob("*/*"))):
        if number % 2:
            (away / path.parent.name).mkdir(parents=True, exist_ok=True)
            path.rename(away / path.parent.name / path.name)
    return away, root / "links"


def test_a_database_gets_what_it_lacks_and_nothing_twice(crawled: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.sqlite"
    away, home = halved(crawled)
    some = len(expected(crawled))
    export(crawled, out)
    shutil.copytree(away, home, dirs_exist_ok=True)
    wanted = expected(crawled)
    assert f"{len(wanted) - some} pages written" in export(crawled, out)
    assert "0 pages written" in export(crawled, out)
    assert same(read_sqlite(out), wanted, ".sqlite", html=False)
    assert f"{len(wanted)} pages written" in export(crawled, out, "--html"), "what has no text gets it"
    assert same(read_sqlite(out), wanted, ".sqlite")
    assert f"{len(wanted)} pages written" in export(crawled, out, "--html", "--force")
    assert same(read_sqlite(out), wanted, ".sqlite")


def test_with_a_mark_a_row_that_is_there_is_written_again(crawled: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.sqlite"
    mark = mark_of(export(crawled, out))
    first = expected(crawled)[0]
    path = crawled / "links" / first["host"] / first["key"]
    path.write_bytes(to_json({**json.loads(path.read_bytes()), "depth": 0, "title": "new"}))
    assert "0 pages" in export(crawled, out)
    export(crawled, out, "--since", mark)
    assert same(read_sqlite(out), expected(crawled), ".sqlite", html=False)
    assert read_sqlite(out)[0]["title"] == "new"


def test_columns_may_have_any_order_and_others_beside_them(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.sqlite"
    db = sqlite3.connect(out)
    names = ", ".join(f'"{name}"' for name in ("html", "note", *reversed(COLUMNS)))
    db.execute(f"CREATE TABLE pages ({names}, UNIQUE (key))")
    db.close()
    export(crawled_once, out, "--html")
    assert same(read_sqlite(out), expected(crawled_once), ".sqlite")


def test_an_sqlite_file_knows_its_hosts_and_any_sqlite_reads_it(crawled_once: Path, tmp_path: Path) -> None:
    export(crawled_once, tmp_path / "pages.sqlite")
    db = sqlite3.connect(tmp_path / "pages.sqlite")
    plan = str(db.execute("EXPLAIN QUERY PLAN SELECT key FROM pages WHERE host = 'x'").fetchall())
    assert "USING COVERING INDEX pages_by_host" in plan
    (told,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'pages'").fetchone()
    assert "STRICT" not in told, "clusters have an SQLite from before 3.37, which would not open it"
    db.close()


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: path.write_bytes(b"no database" * 99), "not a database"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE pages (url TEXT, mine TEXT)"), "has another table"),
        (lambda path: path.mkdir(), "unable to open"),
    ],
)
def test_a_database_of_somebody_else_is_left_alone(
    crawled_once: Path, tmp_path: Path, make: Callable[[Path], object], word: str
) -> None:
    out = tmp_path / "pages.sqlite"
    make(out)
    said = export(crawled_once, out, code=USAGE)
    assert word in said
    assert len(said.splitlines()) == 1


@pytest.fixture(params=["sqlite", *later("postgresql", "mariadb")])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The address of a database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/any.db"
    else:
        with getattr(databases, request.param)() as found:
            yield found


def read_database(address: str) -> Rows:
    sql = importlib.import_module("sqlalchemy")
    engine = sql.create_engine(address, poolclass=sql.NullPool)
    with engine.connect() as connection:
        rows = [dict(row._mapping) for row in connection.execute(sql.text("SELECT * FROM pages"))]
    utc_rows = [{**row, "fetched": utc_text(row["fetched"])} for row in rows]
    return sorted(utc_rows, key=lambda row: (row["host"], row["key"]))


def utc_text(time: Any) -> str:
    return str(time)[:19].replace(" ", "T") + "Z"


def test_a_database_is_exported_to_by_its_address(crawled: Path, address: str) -> None:
    store = StoreWriter(crawled)
    first = next(store.pages())
    store.put_record(first.url, to_json({**first.record, "title": "Übung 🦊 \0 " + "x" * 20_000}))
    store.put_html(first.url, "🦊" * 100_000)  # more than 64 KB
    wanted = expected(crawled)
    wanted[0]["title"] = ("Übung 🦊 \ufffd " + "x" * 20_000)[:16_000]
    said = export(crawled, address)
    assert f"{len(wanted)} pages written" in said
    assert "secret-word" not in said
    assert "0 pages written" in export(crawled, address)
    assert same(read_database(address), wanted, "sql", html=False)
    assert f"{len(wanted)} pages written" in export(crawled, address, "--html")
    assert same(read_database(address), wanted, "sql")


# ---- one sentence


@pytest.mark.parametrize(
    ("out", "flags", "words"),
    [
        ("pages.xml", [], ".jsonl .jsonl.gz"),
        ("pages.gz", [], ".parquet"),
        ("nowhere/pages.csv", [], "No such file"),
        ("nowhere/pages.sqlite", [], "unable to open"),
        ("pages.csv", ["--host", "http://x/page"], "not a host"),
        ("pages.csv", ["--host", ".."], "not a host"),
        ("pages.csv", ["--match", "("], "regular expression"),
        ("pages.csv", ["--from", "yesterday"], "2026-11-17T09:00:00Z"),
        ("pages.csv", ["--since", "0001-01-01T00:00:00+23:00"], "not a time"),
        ("sql://x", [], "the export cannot be written"),
        ("://", [], "the export cannot be written"),
        ("postgresql+psycopg://me:secret-word@127.0.0.1:1/x", [], "refused"),
        ("mysql+pymysql://me:secret-word@127.0.0.1:1/x", [], "Can't connect"),
        ("mysql+pymysql://me:secret-word@127.0.0.1:port/x", [], "the export cannot be written"),
        ("oracle+oracledb://me:secret-word@127.0.0.1/x", [], "needs the module oracledb"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_nothing_is_left(
    crawled_once: Path, tmp_path: Path, out: str, flags: list[str], words: str
) -> None:
    where = out if "://" in out else str(tmp_path / out)
    said = export(crawled_once, where, *flags, code=USAGE)
    assert words in said
    assert said.startswith("crawler: ")
    assert len(said.splitlines()) == 1
    assert "secret-word" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_host_is_found_in_any_spelling_and_one_that_is_not_there_is_said(crawled_once: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.csv"
    assert "nothing of gone.example" in export(crawled_once, out, "--host", "gone.example", code=MISSING)
    host = expected(crawled_once)[0]["host"]
    export(crawled_once, out, "--host", f"HTTP://{host.upper()}:80/")
    assert {row["host"] for row in read_csv(out)} == {host}


@pytest.mark.parametrize(
    ("module", "out", "extra", "words"),
    [
        ("backports", "pages.jsonl.zst", "zst", ".jsonl.zst files need the extra zst,"),
        ("backports.zstd", "pages.jsonl.zst", "zst", ".jsonl.zst files need the extra zst,"),
        ("pyarrow", "pages.parquet", "parquet", ".parquet files need the extra parquet,"),
        ("warcio", "pages.warc.gz", "warc", ".warc.gz files need the extra warc,"),
        ("sqlalchemy", "sqlite:///pages.db", "sql", "databases by address need the extra sql,"),
        ("pymysql", "mysql+pymysql://me@127.0.0.1/x", "sql", "needs the module pymysql,"),
    ],
)
def test_what_is_not_installed_is_named(
    crawled_once: Path, tmp_path: Path, module: str, out: str, extra: str, words: str
) -> None:
    without = f"import sys; sys.modules[{module!r}] = sys.modules['compression.zstd'] = None"
    code = f"{without}; from crawler.commands import main; main.main()"
    where = out if "://" in out else str(tmp_path / out)
    command = [sys.executable, "-c", code, "export", str(crawled_once), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == USAGE
    assert words in done.stderr
    assert f"pip install 'folder-crawler[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_a_bar_shows_how_far_it_is(crawled_once: Path, tmp_path: Path) -> None:
    count = len(list((crawled_once / "links").glob("*/*")))
    said = on_a_terminal("export", str(crawled_once), str(tmp_path / "pages.csv"))
    assert f"/{count} " in said
    assert evil_in(said) == set()


def test_an_export_only_reads_the_store(crawled: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in crawled.rglob("*")}
    export(crawled, tmp_path / "pages.jsonl")
    assert {path: path.stat().st_mtime_ns for path in crawled.rglob("*")} == before, "not even a folder was changed"


# ---- 100,000 pages


@pytest.fixture(scope="module")
def hundred_thousand(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stores.large(tmp_path_factory.mktemp("large") / "store", int(os.environ.get("PAGES", "100000"))).root


@pytest.mark.bench
@pytest.mark.parametrize("flags", [[], ["--html"]])
@pytest.mark.parametrize("form", FILES)
def test_a_hundred_thousand_pages(hundred_thousand: Path, tmp_path: Path, form: str, flags: list[str]) -> None:
    out = tmp_path / f"pages{form}"
    took = stores.measure("export", str(hundred_thousand), str(out), *flags)
    assert took.code == 0
    size = out.stat().st_size / 1e6
    print(f"\nexport {form} {' '.join(flags)}: {took.seconds:.1f} s, {took.megabytes} MB, a file of {size:.0f} MB")
    again = stores.measure("export", str(hundred_thousand), str(out), "--force", "--since", utc(time.time() + 60))
    print(f"nothing new since a mark: {again.seconds:.1f} s, {again.megabytes} MB")
    assert took.megabytes < 400
