"""How names and bytes reach a disk: folder by folder, or all of a file system in one call."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from crawler.store.mountinfo import read_mounts

# The kernel's call that brings all of one file system to its disk, and the kinds on which it does what it says: on a
# network mount it does not reach the server's disk.
SYNC = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
SYNCED_AS_ONE = {"ext3", "ext4", "xfs", "f2fs"}


def do_for_all(root: str) -> bool:
    """Whether one call syncs all that was written below a folder."""
    device = os.stat(root).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    kind = next((mount.kind for mount in read_mounts() if mount.device == number), "")
    return SYNC is not None and kind in SYNCED_AS_ONE


def sync_all(root: str) -> None:
    """Bring all of the file system that a folder is on to its disk."""
    with _opened(root) as place:
        if SYNC is not None and SYNC(place):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def sync_names(folder: str) -> None:
    """Bring the names in a folder to the disk; not every mount can."""
    with _opened(folder) as place:
        try:
            os.fsync(place)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                raise


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield place
    finally:
        os.close(place)
