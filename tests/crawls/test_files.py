"""What is no text is kept byte for byte, whatever is killed, copied or merged."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from lab.downloads import downloads, pieces
from lab.world import COMMAND, Answers, World, crawler, html, links, wait_for, world

from crawler import Store
from crawler.commands.demo.web import WebReply
from crawler.store.store import file_of

PDF = b"%PDF-1.7\n" + os.urandom(700_000)
PNG = b"\x89PNG\r\n\x1a\n" + os.urandom(3000)
FEED = b"<rss><channel><title>News</title><item><link>http://a.example/item</link></item></channel></rss>"
JSON = '{"next": "http://a.example/json-next", "name": "größer"}'.encode()
KEEP = ["-s", "content_types=[html, documents, images, feeds, json]", "-s", "follow=[a, feed, next, json]"]


def typed(kind: str, body: bytes, *headers: tuple[str, str]) -> WebReply:
    return WebReply(200, (("Content-Type", kind), *headers), body)


WEB: dict[str, str | WebReply] = {
    "a.example/": html(
        links("/paper.pdf", "/feed", "/api", "/old.zip", "/film.mp4", "/untyped", "/plain")
        + "<img src=/small.png srcset='/large.png 2x'>",
        ("Link", '</second>; rel="next"'),
    ),
    "a.example/paper.pdf": typed("application/pdf", PDF, ("Link", "</behind>; rel=next")),
    "a.example/behind": html("behind"),
    "a.example/small.png": typed("image/png", PNG),
    "a.example/large.png": typed("IMAGE/PNG; x=y", PNG * 2),
    "a.example/feed": typed("application/rss+xml", FEED),
    "a.example/item": html("item"),
    "a.example/api": typed("application/json", JSON),
    "a.example/json-next": typed("application/json", b"{}"),
    "a.example/second": html("second"),
    "a.example/old.zip": typed("application/zip", PNG),
    "a.example/film.mp4": typed("video/mp4", PNG),
    "a.example/untyped": WebReply(200, (), PNG),
    "a.example/plain": html("plain"),
}
FILES = {"paper.pdf": PDF, "small.png": PNG, "large.png": PNG * 2, "untyped": PNG}


def files(root: Path) -> dict[str, bytes]:
    """The content of each file by the path of its URL, as the records name them."""
    named = {str(it["url"]): file_of(it) for it in Store(root).records()}
    return {url.rpartition("/")[2]: (root / name).read_bytes() for url, name in named.items() if name}


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_files_are_kept_byte_for_byte_and_links_are_found_in_all_that_is_kept(tmp_path: Path, fetcher: str) -> None:
    with world(Answers(WEB), tmp_path) as w:
        w.crawl(*KEEP, "-s", f"fetcher={fetcher}")
        assert files(w.root) == FILES
        skipped = {"http://a.example/old.zip", "http://a.example/film.mp4"}
        assert w.urls() == {f"http://{page}" for page in WEB} - skipped
        assert not {it.path for it in w.log} & {"/old.zip", "/film.mp4"}, "they cannot be of a wanted type"
        assert w.status()["traps"] == {"extension": 2}
        first = next(it for it in w.records() if it["url"] == "http://a.example/")
        assert skipped < set(first["links"])
        assert "a file .zip is of no type" in crawler("explain", str(w.root), "http://a.example/old.zip")
        paper = next(it for it in w.records() if it["url"].endswith("paper.pdf"))
        assert paper["file"].endswith(".pdf") and paper["bytes"] == len(PDF) and "html_sha224" not in paper
        stored = next(page for page in Store(w.root).pages() if page.url.endswith("/api"))
        assert stored.html == JSON.decode() and stored.file is None, "JSON is text"
        assert crawler("check", str(w.root)).startswith("no problems")


def test_a_seed_is_requested_whatever_its_extension_and_the_rule_can_be_switched_off(tmp_path: Path) -> None:
    with world(Answers({"a.example/x.jpg": links("/y.jpg"), "a.example/y.jpg": "page"}), tmp_path) as w:
        w.crawl()
        assert w.urls() == {"http://a.example/x.jpg"}
        w.root = tmp_path / "second"
        w.crawl("-s", "traps=[long]")
        assert w.urls() == {"http://a.example/x.jpg", "http://a.example/y.jpg"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with files."""
    with world(Answers(WEB), tmp_path_factory.mktemp("files")) as w:
        w.crawl(*KEEP)
        return w.root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def path_of(root: Path, name: str) -> Path:
    return root / next(str(file_of(it)) for it in Store(root).records() if str(it["url"]).endswith(name))


def test_cat_ls_hosts_and_export_know_files(root: Path, tmp_path: Path) -> None:
    url = "http://a.example/paper.pdf"
    done = subprocess.run([*COMMAND, "cat", str(root), url], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, PDF)
    found = [json.loads(line) for line in crawler("ls", str(root), "--json").splitlines()]
    assert {root / it["path"] for it in found if "path" in it} == {*(root / "files").glob("*/*")}
    assert len(crawler("ls", str(root)).splitlines()) == 12
    pages, _, _, size, _ = crawler("hosts", str(root)).split()
    assert int(pages) == 12 and int(size) > len(PDF) + 4 * len(PNG)
    crawler("export", str(root), str(tmp_path / "out.jsonl"), "--html")
    rows = {it["url"]: it for it in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert (root / rows[url]["file"]).read_bytes() == PDF and rows[url]["html"] is None
    crawler("export", str(root), str(tmp_path / "out.sqlite"), "--html")
    assert "0 pages written" in crawler("export", str(root), str(tmp_path / "out.sqlite"), "--html")


def test_check_finds_files_that_are_gone_cut_changed_or_of_nobody_and_repairs(root: Path) -> None:
    path_of(root, "paper.pdf").unlink()
    path_of(root, "small.png").write_bytes(PNG[:-1])
    path_of(root, "large.png").write_bytes(PNG + PNG[::-1])
    (root / "files/a.example" / f"{'0' * 24}.zip").write_bytes(b"zip")
    (root / "files/a.example/no-key").write_bytes(b"x")
    found = crawler("check", str(root), code=1)
    wanted = {"no-file", "half-file", "changed-file", "orphan-file", "unexpected"}
    assert {line.split()[0] for line in found.splitlines()[:-1]} >= wanted, found
    crawler("check", str(root), "--repair")
    assert crawler("check", str(root)).startswith("no problems")
    assert sorted(path.name[-3:] for path in (root / "lost").rglob("*.???")) == ["png", "png", "zip"]
    assert len(files(root)) == 1, "the others are requested again"


def test_a_copy_that_lacks_files_gets_them_again_and_one_without_any_was_made_so(root: Path, tmp_path: Path) -> None:
    with world(Answers(WEB), tmp_path) as w:
        path_of(root, "paper.pdf").unlink()
        assert "1 record without html or file moved to lost" in w.run()
        assert files(root) == FILES
        asked = len(w.log)
        shutil.copytree(root, tmp_path / "again", ignore=shutil.ignore_patterns("files"))
        w.root = tmp_path / "again"
        w.run()
        assert len(w.log) == asked and len(w.urls()) == 12


def test_two_stores_with_files_become_one(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(root, other)
    for name in ("paper.pdf", "small.png"):
        path = path_of(root, name)
        path.unlink()
        (root / "links/a.example" / path.name.partition(".")[0]).unlink()
    subprocess.run(["rsync", "-a", "--ignore-existing", f"{other}/", f"{root}/"], check=True, timeout=60)
    crawler("rehydrate", str(root))
    assert crawler("check", str(root)).startswith("no problems")
    assert files(root) == FILES


def test_a_kill_in_the_middle_of_a_file_leaves_a_temporary_file_and_costs_nothing(tmp_path: Path) -> None:
    size = 3_000_000
    with downloads(f"/wait/{size}") as server:
        w = World(Answers({}), server.port, tmp_path)
        w.flags = ["--allow-private"]
        running = w.start(server.url("/"), "-s", "content_types=[html, pdf]", "--scope", "host")
        assert server.half.wait(60), "it never came to the file"
        wait_for(lambda: any(path.stat().st_size > 1_000_000 for path in (w.root / "files").rglob(".*")))
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        assert {it["url"] for it in w.records()} <= {server.url("/")}, "no record without its file"
        assert list((w.root / "files").rglob("*.pdf")) == []
        server.go_on.set()
        w.run()
        assert files(w.root) == {str(size): b"".join(pieces(size))}
        assert [path.name[0] for path in (w.root / "files").glob("*/*") if path.suffix != ".pdf"] == ["."]
        assert "temporary" in crawler("check", str(w.root), code=1)
        crawler("check", str(w.root), "--repair")
        assert crawler("check", str(w.root)).startswith("no problems")
        assert [path.suffix for path in (w.root / "files").glob("*/*")] == [".pdf"]


@pytest.mark.parametrize("delay", [0.0, 0.3, 0.6])
def test_a_kill_at_any_moment_loses_no_file(tmp_path: Path, delay: float) -> None:
    size, names = 400_000, [f"/pdf/{400_000 + number}" for number in range(30)]
    with downloads(*names) as server:
        w = World(Answers({}), server.port, tmp_path)
        w.flags = ["--allow-private"]
        running = w.start(server.url("/"), "-s", "content_types=[html, pdf]", "--scope", "host")
        wait_for(lambda: any((w.root / "files").glob("*/*.pdf")))
        time.sleep(delay)
        running.send_signal(signal.SIGKILL)
        running.wait(60)
        for name, content in files(w.root).items():
            assert content == b"".join(pieces(int(name))), "a record without its whole file"
        w.run()
        found = files(w.root)
        assert {int(name): len(content) for name, content in found.items()} == {size + n: size + n for n in range(30)}
        crawler("check", str(w.root), "--repair")
        assert crawler("check", str(w.root)).startswith("no problems")
