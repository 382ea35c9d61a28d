"""Files that are written a piece at a time: whole under their name, or not there."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from lab.faults import FaultyOs

from crawler.errors import DiskFull, StoreAway
from crawler.store.mount import Files
from crawler.store.stream import Stream

FOLDER = "files/a.example"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "README").write_text("a store")
    return Files(tmp_path, "me")


def names(files: Files) -> list[str]:
    return files.all_names(FOLDER)


def test_it_has_its_name_only_when_it_is_published(files: Files) -> None:
    stream = Stream(files, FOLDER)
    for piece in (b"one", b"two"):
        stream.write(piece)
    stream.finish()
    assert [name[0] for name in names(files)] == ["."]
    stream.publish("x.pdf")
    stream.publish("x.pdf")
    assert names(files) == ["x.pdf"] and files.get(f"{FOLDER}/x.pdf") == b"onetwo"


def test_what_is_discarded_leaves_nothing_whatever_its_name(files: Files) -> None:
    for is_published in (False, True):
        stream = Stream(files, FOLDER)
        stream.write(b"x")
        if is_published:
            stream.finish()
            stream.publish("x.pdf")
        stream.discard()
        stream.discard()
        assert names(files) == []


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, DiskFull), (errno.EFBIG, DiskFull), (errno.EIO, StoreAway)])
def test_an_error_of_the_disk_says_what_it_is(files: Files, code: int, error: type[Exception]) -> None:
    disk = FaultyOs()
    with disk.installed():
        stream = Stream(files, FOLDER)
        disk.first, disk.code = len(disk.calls) + 1, code
        with pytest.raises(error):
            stream.write(b"x")
        stream.discard()
    assert names(files) == []


def test_a_rename_whose_reply_is_lost_counts_and_a_file_that_is_gone_is_not_sound(files: Files) -> None:
    disk = FaultyOs(afterwards=True)
    with disk.installed():
        stream = Stream(files, FOLDER)
        stream.write(b"x")
        stream.finish()
        disk.first = len(disk.calls) + disk_calls_until_rename(files)
        stream.publish("x.pdf")
    assert names(files) == ["x.pdf"] and stream.is_sound
    gone = Stream(files, FOLDER)
    gone.finish()
    next(path for path in (Path(files.root) / FOLDER).glob(".*")).unlink()
    with pytest.raises(StoreAway):
        gone.publish("y.pdf")
    assert not gone.is_sound


def disk_calls_until_rename(files: Files) -> int:
    """How many calls a publication makes until it renames."""
    disk = FaultyOs()
    with disk.installed():
        stream = Stream(files, FOLDER)
        stream.finish()
        before = len(disk.calls)
        stream.publish("z.pdf")
        stream.discard()
    return disk.calls[before:].index("rename") + 1


def test_a_sync_that_fails_makes_it_unsound(files: Files) -> None:
    stream = Stream(files, FOLDER)
    stream.finish()
    assert stream.is_sound
    files.failed_syncs += 1
    assert not stream.is_sound
