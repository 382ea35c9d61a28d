"""The store: files that ls, grep and jq can read, and one whole store however many machines make it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.crawl import start as begin_module
from crawler.crawl.start import begin
from crawler.errors import StoreAway, StoreError, UsageError
from crawler.frontier import rehydrate
from crawler.settings.settings import Settings
from crawler.store import writer
from crawler.store.mount import Files
from crawler.store.origin import SEEN
from crawler.store.records import build_record, to_json
from crawler.store.store import FOLDERS, Robots, open_store
from crawler.store.writer import Parts, StoreWriter, new_settings
from crawler.web import markup, urls
from crawler.web.page import Failure, Fetched, Reading

URL = "https://a.example/page"


def test_few_seeds_of_a_store_where_nobody_works_are_one_batch_and_those_of_regions_wait_apart(tmp_path: Path) -> None:
    seeds = [f"https://{number}.example/" for number in range(30)]
    begin(tmp_path / "one", {"shards": 16}, seeds, "me", quiet)
    assert len(list((tmp_path / "one").glob("frontier/*/given-*.30"))) == 1
    begin(tmp_path / "regions", {"shards": 16, "regions": {".example": "eu"}}, seeds, "me", quiet)
    assert len(list((tmp_path / "regions").glob("frontier/*/given-*"))) > 1


def quiet(_: str) -> None:
    """For what `begin` would show."""


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    store = StoreWriter(tmp_path, Files(tmp_path, "me", durable=False))
    store.make(Settings(shards=2))
    return store


def seeds_of(store: StoreWriter) -> list[str]:
    """The URLs in all files of seeds."""
    return sorted(url for _, seeds in store.seeds() for url in seeds)


def waiting(root: Path) -> list[str]:
    """The URLs in all batches."""
    lines = (line for batch in sorted(root.glob("frontier/*/[!.]*")) for line in batch.read_text().splitlines())
    return sorted({line.split("\t")[3] for line in lines})


# ---- pages


def test_a_folder_that_is_listed_but_cannot_be_seen_yet_tells_nothing(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_record(URL, b"{}")
    past = dict(store.past())["a.example"]
    with monkeypatch.context() as patch:  # as a client that asked for the folder when it was missing
        patch.setattr(Files, "freshen", lambda *_: False)
        assert store.done_by_others("a.example", past) is None
    assert list(store.done_by_others("a.example", past) or ()) == [urls.key(URL)]
    assert list(store.done_by_others("b.example", 0) or ()) == []


def test_keys_of_a_host_and_hosts_of_a_store_come_in_parts(store: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART", 4)
    for number in range(10):
        store.put_record(f"{URL}/{number}", b"{}")
        store.put_failure(f"https://host-{number}.example/", Failure(URL, "http-404"), 1)
    keys = store.done_by_others("a.example", 1)
    assert keys is not None
    parts = [keys.next() for _ in range(4)]
    assert [len(part) for part in parts] == [4, 4, 2, 0]
    assert {key for part in parts for key in part} == {urls.key(f"{URL}/{number}") for number in range(10)}
    wanted = store.past(lambda host: host == "host-7.example")
    assert wanted.next() == [("host-7.example", 2)] and wanted.next() == []


def test_parts_begin_again_after_an_error(store: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PART", 2)
    calls: list[int] = []

    def read() -> Iterator[int]:
        calls.append(0)
        yield from range(3)
        if len(calls) == 1:
            raise StoreAway("gone")

    parts = Parts(read)
    assert parts.next() == [0, 1]
    with pytest.raises(StoreAway):
        parts.next()
    assert [parts.next() for _ in range(3)] == [[0, 1], [2], []]


def test_a_record_is_one_line_of_ascii_json(store: StoreWriter) -> None:
    page = Fetched(URL, 200, {"content-type": "Text/HTML; charset=x", "etag": '"ü\ud800\n"'}, b"body")
    reading = Reading("text", "utf-8", "Über\n\ud800 \0 ☃", (URL + "?a=1", "https://b.example/"))
    store.put_record(URL, to_json(build_record(page, reading, 3, reading.links, 0.0)))
    [path] = (store.root / "links" / "a.example").iterdir()
    data = path.read_bytes()
    assert data.isascii() and data.count(b"\n") == 1 and data.endswith(b"\n")
    record = json.loads(data)
    assert record == store.record(URL)
    assert (record["url"], record["status"], record["depth"], record["type"]) == (URL, 200, 3, "text/html")
    assert record["links"] == [URL + "?a=1", "https://b.example/"]
    assert record["fetched"] == "1970-01-01T00:00:00Z"


def test_a_record_says_what_the_page_says_to_robots_and_a_redirect_says_nothing() -> None:
    reading = Reading("", "utf-8", "", (), robots=("noindex", "nofollow"))
    record = build_record(Fetched(URL, 200), reading, 0, (), 0.0)
    assert list(record)[-3:] == ["capped", "robots", "links"]
    assert record["robots"] == ["noindex", "nofollow"]
    assert build_record(Fetched(URL, 301), None, 0, (), 0.0)["robots"] == []


def test_a_refusal_says_why_in_one_line(store: StoreWriter) -> None:
    store.put_failure(URL, Failure(URL, "http-404", "Not\nFound \udcff"), 2)
    [path] = (store.root / "errs" / "a.example").iterdir()
    assert path.read_bytes().isascii() and path.read_bytes().count(b"\n") == 1
    found = store.failure(URL)
    assert found is not None
    assert (found["url"], found["reason"], found["attempts"]) == (URL, "http-404", 2)


@settings(deadline=None)
@given(st.text(st.characters()))
def test_html_is_text_to_grep_whatever_the_page_was(text: str) -> None:
    class Kept(Files):
        data = b""

        def put(self, name: str, data: bytes, **_: object) -> None:
            Kept.data = data

    StoreWriter("/nowhere", Kept("/nowhere")).put_html(URL, text)
    assert b"\0" not in Kept.data
    clean = Kept.data.decode("utf-8", "strict")
    assert len(clean) == len(text)
    if not any(char == "\0" or "\ud800" <= char <= "\udfff" for char in text):
        assert clean == text


def test_what_is_done_of_a_host_is_known_from_two_listings(store: StoreWriter) -> None:
    assert store.done("a.example") == set()
    store.put_record(URL, b"{}\n")
    store.put_failure(URL + "2", Failure(URL, "dns"), 1)
    (store.root / "links" / "a.example" / ".me-1234").touch()
    assert store.done("a.example") == {urls.key(URL), urls.key(URL + "2")}


def test_an_unreadable_record_is_passed_over(store: StoreWriter) -> None:
    store.put_record(URL, to_json({"url": URL}))
    for name, data in {"0": b"", "1": b"{", "2": b"[]", "3": b"\xff\xfe", "4": b"null"}.items():
        store.files.put(f"links/a.example/{name}", data)
    assert [record["url"] for record in store.records()] == [URL]


# ---- robots and seeds


@settings(deadline=None)
@given(st.binary(), st.integers(100, 599), st.integers(0, 1 << 32))
def test_robots_txt_comes_back_as_it_was_read(body: bytes, status: int, when: int) -> None:
    class Memory(Files):
        data: bytes = b""

        def put(self, name: str, data: bytes, **_: object) -> None:
            Memory.data = data

        def get(self, name: str) -> bytes:
            return Memory.data

    store = StoreWriter("/nowhere", Memory("/nowhere"))
    store.put_robots("a.example", Robots(float(when), status, body))
    kept = body.replace(b"\0", "\ufffd".encode())  # a NUL is what a broken disk leaves
    assert store.robots("a.example") == Robots(float(when), status, kept)


def test_a_host_without_or_with_a_strange_robots_file_has_none(store: StoreWriter) -> None:
    assert store.robots("a.example") is None
    store.files.put("robots/a.example", b"User-agent: *\n")
    assert store.robots("a.example") is None


def test_seeds_are_remembered_and_known_files_are_left_out(store: StoreWriter) -> None:
    store.add_seeds([URL, "https://b.example/"], "one")
    store.add_seeds([], "none")
    store.add_seeds(["https://c.example/"], "two")
    assert list(store.seeds()) == [
        ("none", []),
        ("one", [URL, "https://b.example/"]),
        ("two", ["https://c.example/"]),
    ]
    assert list(store.seeds({"one", "none"})) == [("two", ["https://c.example/"])]


def test_a_line_of_seeds_that_is_no_url_is_passed_over(store: StoreWriter) -> None:
    lines = [b"example.org", b"", b"https:", b"https://../etc/", b"ftp://a.example/", b"https://\xff.example/"]
    store.files.put("seeds/by-hand", b"\n".join([*lines, URL.encode()]))
    assert list(store.seeds()) == [("by-hand", [URL])]


# ---- making a store

MAKE = """
import sys
from pathlib import Path
from crawler.crawl.start import begin
begin(Path(sys.argv[1]), {"shards": 16}, [sys.argv[2]], sys.argv[3], lambda _: None)
"""


def test_many_processes_that_make_a_store_at_once_make_one_whole_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    seeds = [f"https://{name}.example/" for name in "abcd"]
    started = [subprocess.Popen([sys.executable, "-c", MAKE, str(root), seed, seed[8]]) for seed in seeds]
    assert [process.wait(300) for process in started] == [0, 0, 0, 0]
    store = open_store(root)
    assert store.settings() == Settings(shards=16)
    assert sorted(store.files.names("shards")) == [f"{number:03d}@free" for number in range(16)]
    names = {path.name for path in root.iterdir() if not path.name.startswith(SEEN)}
    assert names == {*FOLDERS, "README", "crawl.yaml"}
    assert seeds_of(store) == waiting(root) == seeds


def test_a_store_whose_making_was_cut_off_is_made_whole_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    real = Files.make
    left = 9

    def cut_off(self: Files, folder: str) -> bool:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return real(self, folder)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "make", cut_off)
        with pytest.raises(KeyboardInterrupt):
            begin(root, {"shards": 4}, [URL], "me", quiet)
    assert not StoreWriter(root).exists()
    begin(root, {"shards": 4}, [URL], "me", quiet)
    assert len(open_store(root).files.names("shards")) == 4
    assert waiting(root) == [URL]


def copy_of_pages(root: Path) -> None:
    """A folder that holds only the pages of a crawl: the seed's record, with a link that was not asked yet."""
    (root / "links" / "a.example").mkdir(parents=True)
    page = Fetched(URL, 200, {"content-type": "text/html"}, b"x")
    link = "https://a.example/next"
    record = build_record(page, Reading("x", "utf-8", "", (link,)), 0, (link,), 0.0)
    StoreWriter(root, Files(root, "me", durable=False)).put_record(URL, to_json(record))


def test_a_store_made_around_copied_pages_goes_on_with_their_links(tmp_path: Path) -> None:
    root = tmp_path / "store"
    copy_of_pages(root)
    begin(root, {"shards": 2}, [], "me", quiet)
    assert waiting(root) == ["https://a.example/next"]
    assert not (root / rehydrate.MARK).exists()


def test_a_kill_right_after_a_store_was_made_around_copied_pages_loses_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    copy_of_pages(root)
    real = StoreWriter.make

    def make_and_die(self: StoreWriter, *args: Any) -> None:
        real(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "make", make_and_die)
        with pytest.raises(KeyboardInterrupt):
            begin(root, {"shards": 2}, [], "me", quiet)
    assert StoreWriter(root).exists(), "it counts as made"
    begin(root, {}, [], "me", quiet)
    assert waiting(root) == ["https://a.example/next"]


def test_a_kill_while_seeds_are_added_loses_none_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(begin_module.Outbox, "send", die)
        with pytest.raises(KeyboardInterrupt):
            begin(root, {"shards": 2}, [URL], "me", quiet)
    assert (seeds_of(open_store(root)), waiting(root)) == ([URL], [])
    begin(root, {}, [], "me", quiet)
    assert seeds_of(open_store(root)) == waiting(root) == [URL]
    assert not list(root.glob("seeds/*.new")), "nobody hands them over a second time"


def test_no_delay_spreads_a_host_over_all_workers_unless_said_otherwise() -> None:
    assert new_settings({"delay": 0.0}).spread == "url"
    assert new_settings({"delay": 0.0, "spread": "host"}).spread == "host"
    assert new_settings({"delay": 0.1}).spread == "domain"


# ---- what is no store of ours


def edit_readme(store: StoreWriter, old: str, new: str) -> None:
    path = store.root / "README"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("name", ["format", "spelling"])
def test_a_store_of_another_version_is_refused_with_both_numbers(store: StoreWriter, name: str) -> None:
    edit_readme(store, f"{name}: 1", f"{name}: 2")
    with pytest.raises(StoreError, match=rf"has {name} 2, this program writes {name} 1; use the version"):
        open_store(store.root)
    with pytest.raises(StoreError, match=rf"has {name} 2"):
        begin(store.root, {}, [URL], "me", quiet)


def test_a_folder_with_somebody_elses_readme_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("My photos\n")
    with pytest.raises(StoreError, match="has format unknown"):
        begin(tmp_path, {}, [URL], "me", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["README"]


def test_a_folder_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(
        StoreError, match=r"is not a store and not empty \(photo.jpg ...\); give an empty or a new folder"
    ):
        begin(tmp_path, {}, [URL], "me", quiet)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_what_is_not_a_folder_or_not_there_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"file is a file, not a folder"):
        begin(tmp_path / "file", {}, [URL], "me", quiet)
    with pytest.raises(StoreError, match=r"mnt does not exist; is the mount there\?"):
        begin(tmp_path / "mnt" / "store", {}, [URL], "me", quiet)
    with pytest.raises(StoreError, match=r"mnt does not exist"):
        open_store(tmp_path / "mnt")
    with pytest.raises(StoreError, match=r"is not a store"):
        open_store(tmp_path)
    with pytest.raises(UsageError, match=r"is not a store yet; give at least one URL"):
        begin(tmp_path / "store", {}, [], "me", quiet)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_tracking_parameters_of_this_store_are_dropped_from_its_seeds(tmp_path: Path) -> None:
    root = tmp_path / "store"
    settings = begin(root, {"shards": 2, "tracking": ("ref",)}, [URL + "?ref=1&utm_source=x"], "me", quiet)
    assert settings == replace(Settings(), shards=2, tracking=("ref",))
    assert waiting(root) == [URL + "?utm_source=x"]


PIECES = [
    b"a",
    "\u00e9\u20ac\U0001f600".encode(),
    b"\0",
    b"\xe9",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "\ufffd".encode(),
    b"<meta charset=latin1>",
]
TYPES = [
    "text/html",
    "text/html; charset=utf-8",
    "text/html; charset=utf-16",
    "text/html; charset=gbk",
    "text/plain",
    "",
]


@given(st.lists(st.sampled_from(PIECES)).map(b"".join) | st.binary(), st.sampled_from(TYPES))
def test_a_page_that_is_stored_as_it_came_is_what_its_text_would_be(body: bytes, kind: str) -> None:
    page = Fetched(URL, 200, {"content-type": kind}, body)
    reading = markup.read(page)
    assert writer.encode_page(page, reading) == (body if page.is_file else writer.encode(reading.text))


def test_a_file_is_stored_byte_for_byte_and_plain_utf_8_is_not_copied() -> None:
    picture = Fetched(URL, 200, {"content-type": "image/png"}, b"\x89PNG\0")
    assert writer.encode_page(picture, markup.read(picture)) is picture.body
    page = Fetched(URL, 200, {"content-type": "text/html; charset=utf-8"}, "\u00e9".encode())
    assert writer.encode_page(page, markup.read(page)) is page.body
