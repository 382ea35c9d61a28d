"""Sync to the disk: folder by folder, or a whole file system in one call."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from crawler.store.mountinfo import read_mounts

# syncfs(2), and the file systems on which it is enough: on a network mount it does not reach the server's disk.
SYNC = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
SYNCED_AS_ONE = {"ext3", "ext4", "xfs", "f2fs"}
LOCAL = SYNCED_AS_ONE | {"ext2", "btrfs", "zfs", "bcachefs", "overlay", "tmpfs"}


def one_call_syncs_all(root: str) -> bool:
    """Whether one call syncs all that was written below a folder."""
    return SYNC is not None and _kind(root) in SYNCED_AS_ONE


def is_local(root: str) -> bool:
    """Whether a folder is on a disk of this machine."""
    return _kind(root) in LOCAL


def _kind(root: str) -> str:
    device = os.stat(root).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return next((mount.kind for mount in read_mounts() if mount.device == number), "")


def sync_all(root: str) -> None:
    """Sync the whole file system of a folder."""
    with _opened(root) as handle:
        if SYNC is not None and SYNC(handle):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))


def sync_names(folder: str) -> None:
    """Sync the names in a folder; mounts that cannot do this are passed over."""
    with _opened(folder) as handle:
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                raise


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)
