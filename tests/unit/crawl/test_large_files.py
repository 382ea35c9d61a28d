"""A large file whose disk fails while it comes: the page is not to blame, and no site is asked without end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.frontiers import add, frontier_of, make_root
from lab.workers import SimulatedSetup, page

from crawler.errors import DiskFull, StoreAway
from crawler.frontier.task import Task
from crawler.store.store import Store
from crawler.web.page import Failure, Fetched

URL = "http://a.example/"


class Web:
    """A page and a file; the disk fails so many times while the file comes."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.asked = error, times, 0

    async def get(self, url: str, **_: Any) -> Fetched | Failure:
        if url == f"{URL}file":
            self.asked += 1
            if self.asked <= self.times:
                raise self.error
            return Fetched(url, 200, {"content-type": "application/pdf"}, b"%PDF")
        return page(url, "<a href=/file>x</a>") if url == URL else Failure(url, "http-404")


@pytest.mark.parametrize(
    ("error", "times", "asked", "reasons"),
    [
        (StoreAway("away"), 5, 6, []),
        (DiskFull("full"), 2, 3, []),
        (DiskFull("full"), 99, 4, ["no-room"]),
    ],
)
def test_a_disk_that_fails_is_not_the_fault_of_the_page(
    tmp_path: Path, error: Exception, times: int, asked: int, reasons: list[str]
) -> None:
    make_root(tmp_path)
    web = Web(error, times)
    setup = SimulatedSetup(tmp_path, web.get, content_types=("html", "pdf"), scope="any", retry_delay=1.0, delay=0.1)
    add(frontier_of(tmp_path, "other"), Task(URL))
    assert setup.run() == "over"
    setup.end()
    assert web.asked == asked
    assert [it["reason"] for it in Store(tmp_path).failures()] == reasons
    assert (f"{URL}file" in {it["url"] for it in Store(tmp_path).records()}) is not bool(reasons)
