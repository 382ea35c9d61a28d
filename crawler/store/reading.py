"""All that we read of a mount: files, names, sizes, times, free space; and our errors for those of the system.

Not promised: that a listing is fresh (`Files.freshen` makes it so).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from crawler.errors import DiskFull, Misshapen, NoDescriptors, StoreAway, StoreError
from crawler.store.directories import DirectoryHandles, folder_of, leaf_of

DISK_FULL = {errno.ENOSPC, errno.EDQUOT}
TOO_MANY = {errno.EMFILE, errno.ENFILE}
HOPELESS = {errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.EINVAL}
MISSHAPEN = {errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
GONE = {errno.ENOTCONN, errno.EIO, errno.ESTALE, errno.ENODEV, errno.EHOSTDOWN, errno.ESHUTDOWN}  # of a mount
UNCOUNTED = 1 << 62
FOLDER, LINK, FILE, OTHER = "folder", "link", "file", "other"
PART_BYTES = 256 << 10  # of a file that is read some at a time


class ReadFiles:
    """One client's view of the store's folder, for who only reads."""

    def __init__(self, root: str | Path) -> None:
        self.root = str(root)
        self.directories = DirectoryHandles(self.root)

    def root_shape(self) -> str | None:
        """Return what the root is: FOLDER, FILE, or None if it does not exist; an error if the mount is gone."""
        with self._translated(""):
            return shape_of(self.root)

    def get(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist."""
        for left in (2, 1, 0):
            try:
                return self._read(name)
            except FileNotFoundError:
                return None
            except OSError as error:
                # ESTALE: the file was replaced while we opened it; after a listing we find the new one.
                if error.errno != errno.ESTALE or not left:
                    raise self.translate(error, name) from error
                self.names(folder_of(name))
        return None

    def pieces(self, name: str, size: int = 1 << 20) -> Iterator[bytes] | None:
        """Return the bytes of a file a piece at a time, or None if it does not exist: it may not fit into memory."""
        with self._translated(name):
            try:
                descriptor = self.directories.open_file(name)
            except FileNotFoundError:
                return None
        return self._pieces(name, descriptor, size)

    def _pieces(self, name: str, descriptor: int, size: int) -> Iterator[bytes]:
        with self._translated(name):
            try:
                while part := os.read(descriptor, size):
                    yield part
            finally:
                os.close(descriptor)

    def _read(self, name: str) -> bytes:
        descriptor = self.directories.open_file(name)
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file")
            parts = []
            while part := os.read(descriptor, seen.st_size + 1):  # the size may be out of date
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def parts(self, name: str) -> tuple[int, Iterator[bytes]] | None:
        """Return the size of a file and its bytes, some at a time; None if it does not exist."""
        with self._translated(name):
            try:
                descriptor = self.directories.open_file(name)
            except FileNotFoundError:
                return None
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                os.close(descriptor)
                raise IsADirectoryError(errno.EISDIR, "not a regular file")
        return seen.st_size, self._each_part(name, os.fdopen(descriptor, "rb"), seen.st_size)

    def _each_part(self, name: str, file: BinaryIO, size: int) -> Iterator[bytes]:
        """Yield exactly so many bytes of an open file, or raise an error if it has fewer."""
        with self._translated(name), file:
            while size and (part := file.read(min(size, PART_BYTES))):
                size -= len(part)
                yield part
        if size:
            raise StoreAway(f"{self.directories.path(name)} became shorter while it was read; try again")

    def names(self, folder: str) -> list[str]:
        """List a folder without temporary names (ours, `.nfsXXXX`, `.fuse_hidden`); [] if it is no folder."""
        return [name for name in self.all_names(folder) if not name.startswith(".")]

    def all_names(self, folder: str) -> list[str]:
        """List a folder with its temporary names."""
        try:
            with self.directories.listed(folder) as handle:
                return os.listdir(handle)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self.translate(error, folder) from error

    def each_name(self, folder: str) -> Iterator[str]:
        """Yield what `names` returns, one name at a time: for folders of which nobody knows how many are in them."""
        absent = suppress(FileNotFoundError, NotADirectoryError)
        with self._translated(folder), absent, os.scandir(self.directories.path(folder)) as found:
            for entry in found:
                if not entry.name.startswith("."):
                    yield entry.name

    def shapes(self, folder: str) -> dict[str, str]:
        """List a folder with its temporary names, each with its type; OTHER is a FIFO and the like."""
        with self._translated(folder):
            return {entry.name: _shape(entry) for entry in self._entries(folder)}

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """List a folder as `names` does, with the size of each file; files that disappear meanwhile are left out."""
        for entry in self._entries(folder):
            if not entry.name.startswith("."):
                with self._translated(folder), suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False).st_size

    def _entries(self, folder: str) -> Iterator[os.DirEntry[str]]:
        absent = suppress(FileNotFoundError, NotADirectoryError)
        with (
            self._translated(folder),
            absent,
            self.directories.listed(folder) as handle,
            os.scandir(handle) as found,
        ):
            yield from found

    def written(self, name: str) -> float | None:
        """Return when a file was written, by the same clock as `clock`; None if it does not exist."""
        seen = self._seen(name)
        return seen and seen.st_mtime

    def changed(self, name: str) -> float:
        """Return when a file was written or renamed, or a folder's entries changed, by the same clock; 0 if it is gone.

        sshfs does not report the time of a rename: there it is the time of the write before it.
        """
        seen = self._seen(name)
        return max(seen.st_mtime, seen.st_ctime) if seen else 0.0

    def size(self, name: str) -> int | None:
        """Return the size of a file; None if there is none, or a folder in its place."""
        seen = self._seen(name)
        return seen.st_size if seen and stat.S_ISREG(seen.st_mode) else None

    def identity(self, name: str) -> tuple[int, int] | None:
        """Return the inode number and the second of the last change of a file; None if it does not exist."""
        seen = self._seen(name)
        return (seen.st_ino, int(seen.st_ctime)) if seen else None

    def _seen(self, name: str) -> os.stat_result | None:
        name = name.rstrip("/")
        with self._translated(name):
            try:
                with self.directories.opened(folder_of(name)) as handle:
                    return os.stat(leaf_of(name) or ".", dir_fd=handle, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def is_folder(self, name: str) -> bool:
        """Tell whether a name is a folder, and not a link to one."""
        seen = self._seen(name)
        return seen is not None and stat.S_ISDIR(seen.st_mode)

    def free(self) -> tuple[int, int]:
        """Return free bytes and free inodes; UNCOUNTED for a file system that does not count them."""
        with self._translated(""):
            return self._count_free()

    def capacity(self) -> tuple[int, int]:
        """Return how many bytes and inodes the file system has in all; UNCOUNTED where it does not count them."""
        with self._translated(""):
            seen = os.statvfs(self.root)
        return seen.f_blocks * seen.f_frsize or UNCOUNTED, seen.f_files if _counts_inodes(seen) else UNCOUNTED

    def _count_free(self) -> tuple[int, int]:
        seen = os.statvfs(self.root)
        free = seen.f_bavail * seen.f_frsize if seen.f_blocks else UNCOUNTED
        return free, seen.f_favail if _counts_inodes(seen) else UNCOUNTED

    @contextmanager
    def _translated(self, name: str, how: Callable[[OSError, str], StoreError] | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise (how or self.translate)(error, name) from error

    def _how_to_clear(self, name: str) -> str:
        """Return what to do about something else in place of a file or folder; check cannot begin without two files."""
        if name == "crawl.yaml":
            return f"remove it; `cp {self.root}/errs/.crawl.yaml {self.root}/{name}` restores the settings"
        if name == "README":
            return f"remove it; `crawler run {self.root} URL` writes it again"
        return f"`crawler check {self.root} --repair` moves that away"

    def translate(self, error: OSError, name: str) -> StoreError:
        """Return our error for an OSError, with a message that tells the operator what to do."""
        what = f"{self.directories.path(name)}: {error.strerror or error}"
        if self._is_full(error):
            return DiskFull(f"the store's disk is full ({what}); free space or inodes, or raise the quota")
        if error.errno in TOO_MANY:
            return NoDescriptors(f"too many open files ({what}); raise `ulimit -n`, or run with fewer --concurrency")
        if error.errno == errno.ELOOP:
            what = f"{self.directories.path(name)} is a symbolic link, which is not followed"
        if error.errno in MISSHAPEN:
            return Misshapen(f"the store cannot be used ({what}); {self._how_to_clear(name)}")
        if error.errno in HOPELESS:
            return StoreError(f"the store cannot be used ({what}); check the mount and the permissions of the folder")
        return StoreAway(f"the store does not respond ({what}); is the mount still there?")

    def _is_full(self, error: OSError) -> bool:
        """Tell whether the disk is full: sshfs reports every failure on the server, this one too, as EPERM."""
        if error.errno == errno.EPERM:
            with suppress(OSError):
                return min(self._count_free()) == 0
        return error.errno in DISK_FULL


def shape_of(path: str | Path) -> str | None:
    """Return FOLDER or FILE, or None if there is nothing; raise OSError where that cannot be known.

    `Path.exists` says False for a mount that does not respond, or raises, depending on the version of Python.
    """
    try:
        return FOLDER if stat.S_ISDIR(os.stat(path).st_mode) else FILE
    except (FileNotFoundError, NotADirectoryError):
        return None


def _shape(entry: os.DirEntry[str]) -> str:
    """Return the type of an entry, from the listing itself where the mount provides it."""
    if entry.is_symlink():
        return LINK
    if entry.is_dir(follow_symlinks=False):
        return FOLDER
    return FILE if entry.is_file(follow_symlinks=False) else OTHER


def _counts_inodes(seen: os.statvfs_result) -> bool:
    """Tell whether a file system counts its inodes; CephFS says that -1 are free: no limit."""
    return seen.f_files > 0 and seen.f_favail >= 0
