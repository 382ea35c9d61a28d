"""Readers that meet a file in the moment of its replacement look again."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.frontiers import make_root

from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.store.writer import StoreWriter

URL = "http://a.example/"
RECORD = b'{"url": "http://a.example/", "sha224": "x", "links": []}\n'


class Replacing(Files):
    """A client that finds no file, or a part of it, at its first looks: as on sshfs, NFS and GlusterFS."""

    def __init__(self, root: Path, part: int | None, looks: int = 2) -> None:
        super().__init__(root)
        self.part, self.looks = part, looks

    def _read(self, name: str) -> bytes:
        if name.startswith(("links/", "htmls/")) and self.looks:
            self.looks -= 1
            if self.part is None:
                raise FileNotFoundError(2, "No such file or directory", name)
            return super()._read(name)[: self.part]
        return super()._read(name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_root(tmp_path)
    writer = StoreWriter(tmp_path, Files(tmp_path, "writer", durable=False))
    writer.put_html(URL, "<p>x")
    writer.put_record(URL, RECORD)
    return tmp_path


@pytest.mark.parametrize("part", [None, 0, 20])
def test_a_record_that_is_replaced_just_now_is_not_passed_over(root: Path, part: int | None) -> None:
    assert [record["url"] for record in Store(root, Replacing(root, part)).records()] == [URL]


def test_an_html_that_is_replaced_just_now_is_found(root: Path) -> None:
    (page,) = Store(root).pages()
    replacing = Replacing(root, None, looks=1)
    assert Store(root, replacing).text(page.url) == "<p>x"
