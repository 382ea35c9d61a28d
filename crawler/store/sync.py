"""Sync to the disk: folder by folder, or a whole file system in one call."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crawler.store.mountinfo import read_mounts

# syncfs(2), and the file systems on which it is enough: on a network mount it does not reach the server's disk.
SYNC = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
SYNCED_AS_ONE = {"ext3", "ext4", "xfs", "f2fs"}
STALE = {errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EBADF, errno.ESHUTDOWN}  # of a descriptor
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
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


class Disk:
    """The file system of a folder: whether one call syncs all of it, and that call.

    The kernel reports a write that failed once to each descriptor that was open then. So one descriptor is held from
    before the first write, in each process: with a new one for each call, who calls second would not hear of the loss.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._handle: int | None = None
        self._closing: Callable[[], object] = lambda: None
        self._at_once: bool | None = None  # not known yet
        self._local: bool | None = None  # likewise
        self._opening = threading.Lock()
        self.is_unsynced = False  # whether files were written that wait for the next sync

    def syncs_at_once(self) -> bool:
        """Whether one call syncs all that is written there from now on."""
        known = self._at_once
        if known is not None:
            return known
        with self._opening:
            if self._at_once is None:
                at_once = one_call_syncs_all(self._root)
                if at_once:
                    self._handle = os.open(self._root, FOLDER_FLAGS)
                    self._closing = weakref.finalize(self, _close, self._handle)
                self._at_once = at_once
            return self._at_once

    def is_local(self) -> bool:
        """Whether it is on a disk of this machine, where no listing is out of date."""
        if self._local is None:
            self._local = is_local(self._root)
        return self._local

    def sync(self) -> None:
        """Sync everything; after an OSError all that was written since the last good call must be written anew."""
        handle = self._handle
        if handle is None:
            return
        self.is_unsynced = False  # before: another thread may write meanwhile
        try:
            if SYNC is not None and SYNC(handle):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code))
            self._check_mount(handle)
        except OSError as error:
            self.is_unsynced = True
            if error.errno in STALE:
                self.close()  # it will never work again; all is written anew, after the next one is opened
            raise

    def _check_mount(self, handle: int) -> None:
        """Raise an error if another file system is mounted there by now: the next write finds out which."""
        if os.fstat(handle).st_dev != os.stat(self._root).st_dev:
            self.close()
            raise OSError(errno.ESTALE, "another file system is mounted there by now")

    def close(self) -> None:
        """Hold no descriptor any more, until the next write."""
        self._handle = self._at_once = self._local = None
        self._closing()


def _close(handle: int) -> None:
    with suppress(OSError):
        os.close(handle)


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
    handle = os.open(folder, FOLDER_FLAGS)
    try:
        yield handle
    finally:
        os.close(handle)
