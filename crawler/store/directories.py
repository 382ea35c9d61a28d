"""Open handles of the store's folders.

Each folder is opened from the root, one part of the path at a time, so that no symbolic link inside the store is
followed, for writing or reading: whoever can write into the store could lead us to files of ours elsewhere. Handles
may stay open for the next file in the same folder.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from crawler.errors import Misshapen, StoreError

# O_PATH (Linux) gives a handle without opening the folder, which would be a request to the server.
HANDLE_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
LIST_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC  # a FIFO left in the store would block forever


class DirectoryHandles:
    """Opens the folders of one client's store, and keeps up to `max_kept` handles open."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.max_kept = 0
        self._kept: dict[str, list[int]] = {}
        self._count = 0
        self._lock = threading.Lock()

    @contextmanager
    def open_or_make(self, folder: str) -> Iterator[int]:
        """Open a folder, made if it is missing; the handle may be kept afterwards."""
        handle = self._open_in_kept_parent(folder)
        if handle is None:
            handle = self._open_from_root(folder)
        try:
            yield handle
        except BaseException:
            os.close(handle)
            raise
        self.keep_or_close(folder, handle)

    def _open_in_kept_parent(self, folder: str) -> int | None:
        """Open or make a folder in a parent that was kept open, the fast way to a new host's folder; or None."""
        outer, _, name = inside(folder).rpartition("/")
        parent = self.take_kept(outer)
        if parent is None:
            return None
        try:
            try:
                handle = os.open(name, HANDLE_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=parent)
                handle = os.open(name, HANDLE_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except OSError:  # the parent may be gone, or a link: opening from the root tells
            os.close(parent)
            return None
        self.keep(outer, parent)
        return handle

    def _open_from_root(self, folder: str) -> int:
        try:
            handle = self.open(folder)
        except FileNotFoundError:
            self._make_missing(folder)
            handle = self.open(folder)
        if self.max_kept and "/" in folder:
            outer = folder_of(folder)
            self.keep(outer, self.open(outer))
        return handle

    @contextmanager
    def opened(self, folder: str) -> Iterator[int]:
        """Open a folder that must exist."""
        handle = self.open(folder)
        try:
            yield handle
        finally:
            os.close(handle)

    @contextmanager
    def listed(self, folder: str) -> Iterator[int]:
        """Open a folder that must exist, to list it."""
        with self.opened(folder) as handle:
            listing = os.open(".", LIST_FLAGS, dir_fd=handle)
        try:
            yield listing
        finally:
            os.close(listing)

    def open_file(self, name: str) -> int:
        """Open a file for reading, without blocking."""
        with self.opened(folder_of(name)) as handle:
            return os.open(leaf_of(name), READ_FLAGS, dir_fd=handle)

    def take_kept(self, folder: str) -> int | None:
        """Return a kept handle, which is now the caller's alone to close, or None."""
        with self._lock:
            handles = self._kept.get(folder)
            self._count -= bool(handles)
            return handles.pop() if handles else None

    def keep_or_close(self, folder: str, handle: int) -> None:
        """Keep a handle for the next file, which saves a request to the server for each part of the path.

        Only those of hosts and shards are kept: writing a heartbeat, for example, must fail when the mount is gone.
        """
        if not self.max_kept or "/" not in folder:
            os.close(handle)
            return
        self.keep(folder, handle)

    def keep(self, folder: str, handle: int) -> None:
        """Keep a handle open for the next use of its folder."""
        if self._count >= self.max_kept:
            self.close_kept()
        with self._lock:
            self._kept.setdefault(folder, []).append(handle)
            self._count += 1

    def close_kept(self) -> None:
        """Close the kept handles: the folders may have been moved, or somebody wants to unmount."""
        with self._lock:
            handles = [handle for kept in self._kept.values() for handle in kept]
            self._kept.clear()
            self._count = 0
        for handle in handles:
            with suppress(OSError):  # nothing was written to it that could be lost
                os.close(handle)

    def open(self, folder: str) -> int:
        """Return a new handle of a folder; only the root itself may be a symbolic link."""
        parts = inside(folder).split("/")
        handle = os.open(self.root, HANDLE_FLAGS)
        for part in filter(None, parts):
            outer = handle
            try:
                handle = os.open(part, HANDLE_FLAGS | os.O_NOFOLLOW, dir_fd=outer)
            except NotADirectoryError:
                self._check_links(folder)
                raise
            finally:
                os.close(outer)
        return handle

    def _check_links(self, folder: str) -> None:
        """Raise an error that names the part of a path that is a symbolic link, if one is."""
        path = self.root
        for part in folder.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path):
                raise Misshapen(
                    f"the store cannot be used: {path} is a symbolic link, and nothing is read or written through it; "
                    "replace it with a folder"
                )

    def _make_missing(self, folder: str) -> None:
        """Make a missing folder, but only in a store.

        When a mount goes away, its mount point is an empty local folder: a crawl must not continue there.
        """
        top = folder.partition("/")[0]
        try:
            if folder != top:  # otherwise the store itself may be missing
                with suppress(FileExistsError):
                    self.make(folder)
                return
        except FileNotFoundError:
            pass
        if not self.can_open("README"):
            raise FileNotFoundError(errno.ENOENT, "the store is not there any more", self.root)
        parts = folder.split("/")
        for depth in range(1, len(parts) + 1):
            with suppress(FileExistsError):
                self.make("/".join(parts[:depth]))

    def make(self, folder: str) -> None:
        """Make a folder inside an existing one."""
        with self.opened(folder_of(folder)) as handle:
            os.mkdir(leaf_of(folder), dir_fd=handle)

    def can_open(self, name: str) -> bool:
        """Tell whether a file can be opened."""
        try:
            os.close(self.open_file(name))
        except OSError:
            return False
        return True

    def path(self, name: str) -> str:
        """Return the path of a name in the store."""
        return f"{self.root}/{inside(name)}"


def inside(name: str) -> str:
    """Return the name, or raise an error if it leads out of the store; callers check too, this is the last guard."""
    if "\0" in name or (".." in name and ".." in name.split("/")):
        raise StoreError(f"{name!r} leads out of the store; nothing was read or written there")
    return name


def split(name: str) -> tuple[str, str]:
    """Return the folder of a name, and the name without it."""
    folder, _, leaf = inside(name).rpartition("/")
    return folder, leaf


def folder_of(name: str) -> str:
    """Return the folder of a name."""
    return inside(name).rpartition("/")[0]


def leaf_of(name: str) -> str:
    """Return a name without its folder."""
    return inside(name).rpartition("/")[2]
