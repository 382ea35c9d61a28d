"""`crawler changes`: what it tells of each page, from its record and its older versions."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

from lab.world import crawler

from crawler.crawl.start import begin
from crawler.store import history
from crawler.store.writer import StoreWriter

A = "http://a.example"
MONDAY, TUESDAY = "2026-11-02T12:00:00Z", "2026-11-03T12:00:00Z"


def page(url: str, title: str, **more: str) -> bytes:
    record = {"url": url, "status": 200, "title": title, "sha224": "1", "fetched": MONDAY, "first_fetched": MONDAY}
    return json.dumps({**record, "links": [], **more}).encode()


def test_a_page_is_new_and_changed_with_its_title_of_that_time(tmp_path: Path) -> None:
    root = tmp_path / "store"
    begin(root, {"shards": 2}, [f"{A}/"], "me", lambda _: None)
    store = StoreWriter(root)
    store.put_record(f"{A}/", page(f"{A}/", "Front"))
    store.put_record(f"{A}/1", page(f"{A}/1", "One, corrected", fetched=TUESDAY, changed=TUESDAY))
    older = root / history.folder(f"{A}/1")
    older.mkdir(parents=True)
    (older / f"{MONDAY}.json").write_bytes(page(f"{A}/1", "One"))
    (older / f"{MONDAY}.html").write_bytes(b"One")
    lines = [
        f"{MONDAY}\tnew\t{A}/\tFront",
        f"{MONDAY}\tnew\t{A}/1\tOne",
        f"{TUESDAY}\tchanged\t{A}/1\tOne, corrected",
    ]
    assert crawler("changes", str(root)).splitlines() == lines
    assert [json.loads(line)["title"] for line in crawler("changes", str(root), "--json").splitlines()] == [
        line.split("\t")[3] for line in lines
    ]
    feed = ElementTree.fromstring(crawler("changes", str(root), "--feed", "atom"))
    titles = [found.text for found in feed.iterfind("{*}entry/{*}title")]
    assert titles == ["changed: One, corrected", "new: Front", "new: One"]
