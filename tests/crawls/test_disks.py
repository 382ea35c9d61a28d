"""A disk that loses what it was given and says so once: nothing published rests on it, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.machines.lying_disk import LyingDisk, lying_disk
from lab.marks import later
from lab.webs import TreeWeb
from lab.workers import Setup, small_store
from lab.world import World, crawler, end, world

from crawler.errors import StoreAway
from crawler.frontier.task import Task
from crawler.store.mount import Files
from crawler.web.page import Failure

HTML, BATCH, RECORD = b"<!doctype html>", b"\t0\t0\thttp://", b'{"url": "http'


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LyingDisk]:
    """An ext4 file system on a disk that can be told to fail."""
    with lying_disk(tmp_path) as found:
        yield found


def spoiled(w: World) -> list[str]:
    """The files below htmls/, links/, errs/, robots/ and frontier/ that hold NULs: the disk never got their bytes."""
    files = (path for path in w.root.glob("*/**/*") if path.is_file())
    return [str(path.relative_to(w.root)) for path in files if b"\0" in path.read_bytes()]


@pytest.mark.parametrize("workers", ["1", *later("2")])
@pytest.mark.parametrize("mark", [HTML, BATCH, RECORD])
@pytest.mark.parametrize("times", [1, *later(2, 5)])
def test_what_a_disk_lost_is_written_again_before_a_record_rests_on_it(
    tmp_path: Path, disk: LyingDisk, workers: str, mark: bytes, times: int
) -> None:
    with world(TreeWeb(hosts=6, fanout=4, depth=3), tmp_path) as w:
        w.root = disk.point / "store"
        process = w.start(*w.web.seeds(), "-j", workers)
        w.until(6)
        disk.fail(mark, times)
        printed = end(process)
        assert disk.left() == 0, "the disk failed"
        disk.forget()
        assert spoiled(w) == []
        assert w.differences() == []
        assert "Input/output error" in printed
        assert crawler("check", str(w.root)).startswith("no problems; ")


def test_each_worker_hears_of_a_loss_whoever_syncs_first(disk: LyingDisk) -> None:
    root = disk.point / "store"
    root.mkdir()
    (root / "README").touch()
    first, second = Files(root, "a"), Files(root, "b")
    for files in (first, second):
        files.put("htmls/before", b"good", later=True)
        files.sync({"htmls"})
    disk.fail(b"of the second")
    second.put("htmls/page", b"of the second", later=True)
    for files in (first, second):
        with pytest.raises(StoreAway, match="the store's disk lost what was written"):
            files.sync({"htmls"})
        files.sync({"htmls"})
    second.put("htmls/page", b"of the second", later=True)
    second.sync({"htmls"})
    first.close()
    second.close()
    disk.forget()
    assert (root / "htmls" / "page").read_bytes() == b"of the second"


def test_a_failure_record_is_on_the_disk_when_it_appears(disk: LyingDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Setup(small_store(disk.point, monkeypatch), durable=True)
    mine.store.files.durable = True
    mine.worker.flush.put_failure(Task("http://a.example/"), Failure("http://a.example/", "dns", "nobody"))
    disk.fail(b"nobody")
    with pytest.raises(StoreAway):
        mine.flush.flush()
    assert list(mine.store.failures()) == []
    mine.flush.flush()
    mine.end()
    mine.store.files.close()
    disk.forget()
    assert [failure["detail"] for failure in mine.store.failures()] == ["nobody"]
