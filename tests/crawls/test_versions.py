"""Older versions of pages and files: kept, listed, compared, checked, exported and merged."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from lab.world import Answers, crawler, html, links, world
from warcio.archiveiterator import ArchiveIterator

from crawler.commands.demo.web import WebReply
from crawler.commands.plan import learn
from crawler.errors import FOUND, LIMIT, MISSING
from crawler.store import history
from crawler.store.store import Store

PDFS = [b"%PDF-1.7\n" + bytes([number]) * 300_000 for number in range(3)]
PAPER, PAGE, ODD = (f"http://a.example/{name}" for name in ("paper", "page", "odd"))
FLAGS = ["-s", "content_types=[html, documents, images]", "--recrawl", "7d", "-s", "history=all"]


def pdf(body: bytes) -> WebReply:
    return WebReply(200, (("Content-Type", "application/pdf"),), body)


def answers(number: int) -> dict[str, str | WebReply]:
    """The web at its first, second and third visit: a file, a page, and what is by turns one and the other."""
    png = WebReply(200, (("Content-Type", "image/png"),), b"\x89PNG\r\n\x1a\n")
    return {
        "a.example/": html(links("/paper", "/page", "/odd")),
        "a.example/paper": pdf(PDFS[number]),
        "a.example/page": html(f"version {number}"),
        "a.example/odd": [pdf(PDFS[0]), html("now a page"), png][number],
    }


def visited(folder: Path) -> Path:
    """A store whose pages were visited three times."""
    for number in range(3):
        with world(Answers(answers(number)), folder) as w:
            if number:
                time.sleep(1.1)  # a version is named by the second in which it was fetched
                crawler("refresh", str(w.root))
            w.run(*([] if number else [*w.web.seeds(), *FLAGS]), code=LIMIT)
    return folder / "store"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return visited(tmp_path_factory.mktemp("versions"))


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def contents(root: Path, url: str) -> list[bytes]:
    """The content of each older version."""
    place = root / history.folder(url)
    return [path.read_bytes() for path in sorted(place.iterdir()) if path.suffix != ".json"]


def test_versions_of_files_are_kept_byte_for_byte(made: Path) -> None:
    assert contents(made, PAPER) == PDFS[:2]
    assert contents(made, PAGE) == [b"version 0", b"version 1"]
    assert contents(made, ODD) == [PDFS[0], b"now a page"], "also where a file became a page, and a page a file"
    assert sorted(path.suffix for path in (made / history.folder(ODD)).iterdir()) == [".html", ".json", ".json", ".pdf"]
    assert sorted(path.suffix for path in (made / "files/a.example").iterdir()) == [".pdf", ".png"]
    assert len(list((made / "htmls/a.example").iterdir())) == 2, "neither file nor html is left behind"
    assert crawler("check", str(made)).startswith("no problems")


def test_history_and_diff_know_files(made: Path) -> None:
    assert len(crawler("history", str(made), PAPER).splitlines()) == 3
    said = crawler("diff", str(made), PAPER)
    assert "-sha224: " in said and "+sha224: " in said and " type: application/pdf" in said
    assert "-version 1" in crawler("diff", str(made), PAGE)


def test_two_versions_that_cannot_be_compared_are_told_with_the_reason(made: Path) -> None:
    oldest, second, newest = (line.partition("\t")[0] for line in crawler("history", str(made), PAGE).splitlines())
    assert "-version 0" in crawler("diff", str(made), PAGE, "--from", oldest, "--to", second)
    before = f"there is no version of {PAGE} from before"
    for flag in ("--from", "--to"):
        said = crawler("diff", str(made), PAGE, flag, "2020-01-01", code=MISSING)
        assert said == f"crawler: {before} 2020-01-01T00:00:00Z; the oldest is of {oldest}\n"
    said = crawler("diff", str(made), PAGE, "--to", oldest, code=MISSING)
    assert said == f"crawler: {before} {oldest}: that is its oldest\n"
    assert f"of {newest}; `crawler history`" in crawler("diff", str(made), PAGE, "--from", newest, code=MISSING)
    assert "has no two versions to compare; older" in crawler("diff", str(made), "http://a.example/", code=MISSING)


def test_check_finds_versions_that_are_gone_cut_changed_or_of_another_page_and_repairs(root: Path) -> None:
    paper = sorted(path for path in (root / history.folder(PAPER)).iterdir() if path.suffix == ".pdf")
    page = sorted(path for path in (root / history.folder(PAGE)).iterdir() if path.suffix == ".html")
    paper[0].unlink()
    paper[1].write_bytes(PDFS[1][:100])
    page[0].write_bytes(b"another")
    record = page[1].with_suffix(".json")
    record.write_text(record.read_text().replace(PAGE, PAPER))
    said = crawler("check", str(root), code=FOUND)
    for words in ("is missing", "has 100 of its 300009 bytes", "is not what was stored", "it is of another page"):
        assert said.count(words) == 1, words
    assert "4 problems found (version 4)" in said
    assert "(version 3)" in crawler("check", "--quick", str(root), code=FOUND)
    crawler("check", str(root), "--repair")
    assert crawler("check", str(root)).startswith("no problems")
    assert not contents(root, PAPER) and not contents(root, PAGE)
    assert len(list((root / "lost").rglob("*.json"))) == 4 and len(list((root / "lost").rglob("*.pdf"))) == 1


def test_a_visit_that_was_killed_after_the_file_is_harmless(root: Path) -> None:
    (file,) = (root / "files/a.example").glob("*.pdf")
    file.write_bytes(b"a newer one, without its record yet")
    assert "half-file" in crawler("check", str(root), code=FOUND)
    crawler("refresh", str(root), "--match", "/paper$")
    assert "pages whose visit was interrupted, and will be made again (1)" in crawler("check", str(root))


def rows(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_an_export_with_versions_has_a_row_for_each(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.jsonl"
    assert "10 pages written" in crawler("export", str(made), str(out), "--versions", "--html")
    found = [row for row in rows(out) if row["url"] == PAGE]
    assert [row["html"] for row in found] == ["version 0", "version 1", "version 2"], "the oldest first"
    assert [row["text_length"] for row in found] == [9, 9, 9]
    files = [str(row["file"]) for row in rows(out) if row["url"] == PAPER]
    assert [(made / name).read_bytes() for name in files] == PDFS
    assert len({(row["key"], row["fetched"]) for row in rows(out)}) == 10
    newest = str(found[-1]["fetched"])
    crawler("export", str(made), str(out), "--versions", "--until", newest, "--match", "/page", "--force")
    assert [row["fetched"] for row in rows(out)] == [row["fetched"] for row in found[:-1]]
    crawler("export", str(made), str(out), "--force")
    assert len(rows(out)) == 4, "without the flag the newest only"


def test_a_warc_file_with_versions_has_a_response_for_each(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "pages.warc.gz"
    crawler("export", str(made), str(out), "--versions")
    with out.open("rb") as file:
        found = [
            (it.rec_headers.get_header("WARC-Target-URI"), it.content_stream().read())
            for it in ArchiveIterator(file)
            if it.rec_type == "response"
        ]
    assert [body for url, body in found if url == PAPER] == PDFS
    assert [body for url, body in found if url == PAGE] == [b"version 0", b"version 1", b"version 2"]


def test_an_export_with_versions_is_resumed_in_the_middle_of_a_page(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crawler.commands import main
    from crawler.commands.export import export

    whole, out = tmp_path / "whole.jsonl", tmp_path / "pages.jsonl"
    crawler("export", str(made), str(whole), "--versions")
    monkeypatch.setattr("crawler.commands.export.rows.BATCH_ROWS", 1)
    for most in range(1, 10):
        add, added = export.ExportFile.add, iter(range(most))

        def killed(self: export.ExportFile, rows: list[export.Row], add=add, added=added) -> None:  # type: ignore[no-untyped-def]
            if next(added, None) is None:
                raise KeyboardInterrupt
            add(self, rows)

        with monkeypatch.context() as patch:
            patch.setattr(export.ExportFile, "add", killed)
            main.run(["export", str(made), str(out), "--versions"])
        assert main.run(["export", str(made), str(out), "--versions"]) == 0
        assert out.read_bytes() == whole.read_bytes(), f"stopped after {most} rows"
        out.unlink()


@pytest.mark.parametrize("kind", ["file", "address"])
def test_a_database_has_versions_in_a_table_of_their_own_and_gets_those_that_it_lacks(
    root: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "pages.sqlite"
    out = str(path) if kind == "file" else f"sqlite:///{path}"
    crawler("export", str(root), out)
    assert "10 pages written" in crawler("export", str(root), out, "--versions")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM versions WHERE fetched = (SELECT max(fetched) FROM versions WHERE url = ?)", (PAGE,))
    assert "0 pages" not in crawler("export", str(root), out, "--versions")
    assert "0 pages written" in crawler("export", str(root), out, "--versions")
    assert "7 pages written" in crawler("export", str(root), out, "--versions", "--html"), (
        "those without html, no files"
    )
    assert "0 pages written" in crawler("export", str(root), out, "--versions", "--html")
    assert "10 pages written" in crawler("export", str(root), out, "--versions", "--html", "--force")
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT html FROM versions WHERE url = ? ORDER BY fetched", (PAGE,)).fetchall()
        assert [html for (html,) in found] == ["version 0", "version 1", "version 2"]
        assert db.execute("SELECT count(*), count(DISTINCT version) FROM versions").fetchone() == (10, 10)
        assert db.execute("SELECT count(*) FROM pages").fetchone() == (4,)


def test_two_stores_with_versions_become_one(made: Path, root: Path, tmp_path: Path) -> None:
    """Both have the pages; each has kept another version of one."""
    for place in (root / "history/a.example").iterdir():
        for path in sorted(place.iterdir())[:2]:
            path.unlink()
    other = tmp_path / "other"
    shutil.copytree(made, other)
    for path in sorted((other / history.folder(PAPER)).iterdir())[2:]:
        path.unlink()
    subprocess.run(["rsync", "-a", "--ignore-existing", f"{other}/", f"{root}/"], check=True, timeout=60)
    crawler("rehydrate", str(root))
    assert crawler("check", str(root)).startswith("no problems")
    assert contents(root, PAPER) == PDFS[:2] and contents(root, PAGE) == [b"version 0", b"version 1"]
    changed = [json.loads(line)["kind"] for line in crawler("changes", str(root), "--json").splitlines()]
    assert changed.count("changed") == 6 and changed.count("new") == 4


def test_a_plan_learns_how_many_versions_are_kept(made: Path) -> None:
    assert learn(Store(made), 1000)["versions"] == 6 / 4
    told = crawler("plan", "--pages", "1000", "--from", str(made))
    assert "1.5 older versions of each page" in told
    assert "older versions" not in crawler("plan", "--pages", "1000", "--from", str(made), "--versions", "0")
