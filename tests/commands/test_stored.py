"""What is counted in the folders of a store."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crawler.commands.stored import count_stored
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.store import Store
from crawler.store.writer import StoreWriter
from crawler.web.page import Failure, Fetched, Reading


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    """A store with two pages, a redirect and a failure on three hosts."""
    store = StoreWriter(tmp_path, Files(tmp_path, "me", durable=False))
    store.make(Settings(shards=2))
    for url in ("https://a.example/", "https://b.example/"):
        store.put_html(url, "text")
        store.put_record(url, to_json(build_record(Fetched(url, 200), Reading("text", "utf-8", "", ()), 0, (), 0.0)))
    moved = "https://a.example/old"
    store.put_record(moved, to_json(build_record(Fetched(moved, 301), None, 0, ("https://a.example/",), 0.0)))
    store.put_failure("https://c.example/", Failure("https://c.example/", "http-404"), 1)
    return store


@pytest.mark.parametrize("is_slow", [False, True])
def test_pages_redirects_and_failures_are_counted(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch, is_slow: bool
) -> None:
    monkeypatch.setattr(Files, "has_latency", lambda self: is_slow)
    assert count_stored(store, 1, Counter()) == (2, 8, 1, Counter({"http-404": 1}))


def test_no_size_is_looked_up_where_the_counters_know_all_pages(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "page_sizes", None)
    assert count_stored(store, 2, Counter({"http-404": 1})) == (2, None, 1, Counter({"http-404": 1}))


def test_a_store_that_takes_too_long_is_not_counted(store: StoreWriter) -> None:
    seconds = iter(range(0, 100, 2))
    assert count_stored(store, 2, Counter(), lambda: next(seconds)) is None
