"""Exchanges on their way into WARC files: repeated payloads, lost syncs, bounds."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab import stores
from lab.warcs import Found, by_warcio, segments

from crawler.crawl.worker import archive as module
from crawler.crawl.worker.archive import Archive
from crawler.errors import DiskFull
from crawler.fetch.exchange import Exchange
from crawler.settings.settings import Settings
from crawler.store import mount
from crawler.store.clock import SYSTEM
from crawler.store.mount import Files

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    root = stores.large(tmp_path / "store", pages=0).root
    return Archive(Files(root, "me"), Settings(warc=True), SYSTEM, Random(1))


def put(archive: Archive, path: str, body: bytes, **more: Any) -> None:
    archive.keep()(Exchange(f"http://a.example{path}", b"GET / HTTP/1.1\r\n\r\n", HEAD, body, **more))


def flush(archive: Archive) -> None:
    archive.write()
    archive.synced()


def kinds(archive: Archive) -> list[tuple[str, str]]:
    found: list[Found] = [it for path in segments(Path(archive._files.root)) for it in by_warcio(path)]
    return [(it.kind, it.url.removeprefix("http://a.example")) for it in found if it.kind in ("response", "revisit")]


def test_a_payload_that_repeats_is_a_revisit_unless_it_is_empty_or_not_whole(archive: Archive) -> None:
    for path in ("/1", "/2"):
        put(archive, path, b"same")
        put(archive, f"{path}/empty", b"")
        put(archive, f"{path}/cut", b"cut", truncated="length")
    flush(archive)
    put(archive, "/3", b"same")
    flush(archive)
    assert [path for kind, path in kinds(archive) if kind == "revisit"] == ["/2", "/3"]
    assert archive.bytes == archive.count == 0


def test_only_so_many_payloads_are_remembered(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DIGESTS", 2)
    for body in (b"1", b"2", b"3", b"1", b"3"):
        put(archive, f"/{body.decode()}", body)
        flush(archive)
    assert kinds(archive)[3:] == [("response", "/1"), ("revisit", "/3")]


def test_after_a_failed_sync_nothing_refers_to_what_is_lost(archive: Archive) -> None:
    put(archive, "/good", b"good")
    flush(archive)
    put(archive, "/lost", b"lost")
    archive.write()
    archive._files.failed_syncs += 1  # as `Files.sync` counts it
    put(archive, "/copy", b"lost")
    put(archive, "/copy-of-good", b"good")
    flush(archive)
    first, second = segments(Path(archive._files.root))
    assert [(it.kind, it.url[16:]) for it in by_warcio(second) if it.kind in ("response", "revisit")] == [
        ("response", "/lost"),
        ("revisit", "/copy"),
        ("revisit", "/copy-of-good"),
    ]
    archive.index_left()
    assert first.with_suffix("").with_suffix(".cdxj").exists()


def test_a_full_disk_leaves_no_empty_file_and_everything_is_written_later(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    put(archive, "/1", b"one")
    with monkeypatch.context() as patch, pytest.raises(DiskFull):
        patch.setattr(mount.os, "pwrite", full)
        archive.write()
    assert segments(Path(archive._files.root)) == []
    flush(archive)
    assert kinds(archive) == [("response", "/1")]
