"""Syncs of a whole disk by one descriptor."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from crawler.errors import StoreAway
from crawler.store import sync
from crawler.store.mount import Files


@pytest.mark.parametrize(("number", "is_opened_anew"), [(errno.ESTALE, True), (errno.ENODEV, True), (errno.EIO, False)])
def test_a_descriptor_that_is_stale_is_opened_anew_for_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_opened_anew: bool
) -> None:
    stale: set[int] = set()

    def syncfs(handle: int) -> int:
        if not stale:
            stale.add(handle)
        elif handle in stale and is_opened_anew:
            raise AssertionError("the stale one is used again")
        else:
            return 0
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sync, "one_call_syncs_all", lambda root: True)
    monkeypatch.setattr(sync, "SYNC", syncfs)
    (tmp_path / "README").touch()
    files = Files(tmp_path, "me")
    files.put("page", b"x", later=True)
    with pytest.raises(StoreAway):
        files.sync({""})
    assert files.failed_syncs == 1, "all is written anew"
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(3)]  # so that the same number is not given out again
    files.put("page", b"x", later=True)
    files.sync({""})
    for handle in others:
        os.close(handle)
    files.close()
