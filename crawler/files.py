"""What we ask of a mount, and nothing else: put, create, claim, get, names, drop.

A file is complete on arrival: it is written under a temporary name that nobody else uses and then renamed.
Not promised: that a listing is fresh (`freshen` first), that `exists` is right (we never ask it), or that two
writers of one name take turns (the last one wins; who may write what is settled by the callers' names).
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crawler.errors import DiskFull, StoreAway, StoreError

FULL = {errno.ENOSPC, errno.EDQUOT}
HOPELESS = {errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
NO_NODES = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Files:
    """One client's view of the store's folder. `me` marks its temporary names."""

    def __init__(self, root: str | Path, me: str = "reader", durable: bool = True) -> None:
        self.root = str(root)
        self.me = me
        self.durable = durable

    def share_mode(self) -> None:
        """Make what this process writes as open to others as the store's own folder is.

        The umask does it without an operation per file; a setgid folder hands on its group by itself.
        """
        with self._trouble(""):
            os.umask(~os.stat(self.root).st_mode & 0o777)

    def put(self, name: str, data: bytes) -> None:
        """Write a file so that it appears whole, under `name`, or not at all."""
        temporary = f"{name.rpartition('/')[0]}/.{self.me}-{secrets.token_hex(4)}"
        with self._trouble(name):
            try:
                self._write(temporary, data)
                os.rename(self._path(temporary), self._path(name))
            except OSError:
                with suppress(OSError):
                    os.unlink(self._path(temporary))
                if not self._has_arrived(name, data):
                    raise

    def _has_arrived(self, name: str, data: bytes) -> bool:
        """Whether a rename that seemed to fail was done: its answer was lost, and asked again it found nothing."""
        with suppress(OSError), open(self._path(name), "rb") as file:
            return file.read() == data
        return False

    def create(self, name: str) -> bool:
        """Make an empty file that was not there; True for exactly one caller."""
        try:
            os.close(self._open_new(name))
        except FileExistsError:
            return False
        except OSError as error:
            # sshfs answers EPERM where others say EEXIST: look by name before believing a failure.
            if self._is_there(name):
                return False
            raise self._translate(error, name) from error
        return True

    def claim(self, name: str, new: str) -> bool:
        """Rename an existing name to one of our own; True for exactly one caller."""
        try:
            os.rename(self._path(name), self._path(new))
        except OSError:
            # A lost reply can hide a success, and any failure means "not mine" unless the name is there.
            return self._is_there(new)
        return True

    def get(self, name: str) -> bytes | None:
        """The bytes of a file, or None when there is none."""
        for left in (2, 1, 0):
            try:
                with open(self._path(name), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None
            except OSError as error:
                # ESTALE: the file was replaced under us; after a listing, opening it again finds the new one.
                if error.errno != errno.ESTALE or not left:
                    raise self._translate(error, name) from error
                self.names(name.rpartition("/")[0])
        return None

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without temporary ones (ours, `.nfsXXXX`, `.fuse_hidden`); [] if it is not there."""
        try:
            return [name for name in os.listdir(self._path(folder)) if not name.startswith(".")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._translate(error, folder) from error

    def freshen(self, folder: str) -> bool:
        """Make the next listing of a folder a new one: clients drop their cache when they change it.

        False if the folder is not there. A name that was never open is removed for good: sshfs without its cache
        leaves a hidden file behind for one that was.
        """
        path = self._path(f"{folder}/.{self.me}-{secrets.token_hex(4)}")
        with self._trouble(folder):
            try:
                self._make_name(path)
                os.unlink(path)
            except FileNotFoundError:
                if not self._is_there("README"):
                    raise
                return False
            return True

    @staticmethod
    def _make_name(path: str) -> None:
        try:
            os.mknod(path, 0o600)
        except OSError as error:
            if error.errno not in NO_NODES:
                raise
            os.close(os.open(path, NEW, 0o600))

    def clock(self, folder: str) -> float:
        """The time by which names in a folder are stamped (by the server, on most mounts); the next listing is new."""
        name = f"{folder}/.{self.me}-{secrets.token_hex(4)}"
        with self._trouble(folder):
            self._make_name(self._path(name))
        try:
            return self.written(name) or time.time()
        finally:
            self.drop(name)

    def written(self, name: str) -> float | None:
        """When a file was written, by the clock that `clock` tells; None when there is none."""
        with self._trouble(name):
            try:
                return os.stat(self._path(name)).st_mtime
            except FileNotFoundError:
                return None

    def drop(self, name: str) -> bool:
        """Remove a file; False if it was not there."""
        with self._trouble(name):
            try:
                os.unlink(self._path(name))
            except FileNotFoundError:
                return False
            return True

    def make(self, folder: str) -> bool:
        """Make one folder inside an existing one; False if it was there."""
        with self._trouble(folder):
            try:
                os.mkdir(self._path(folder))
            except FileExistsError:
                return False
            return True

    def settle(self, folder: str) -> None:
        """Bring the names in a folder to the disk (the contents of files were synced before their rename)."""
        if not self.durable:
            return
        with self._trouble(folder):
            try:
                descriptor = os.open(self._path(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                if self._is_there("README"):
                    return  # somebody removed the folder: there is nothing in it to sync
                raise
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EBADF):
                    raise
            finally:
                os.close(descriptor)

    def free(self) -> tuple[int, int]:
        """Free bytes and free inodes; file systems that count no inodes say as many as they like."""
        with self._trouble(""):
            seen = os.statvfs(self.root)
            return seen.f_bavail * seen.f_frsize, seen.f_favail if seen.f_files else 1 << 62

    def _write(self, temporary: str, data: bytes) -> None:
        descriptor = self._open_new(temporary)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self.durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open_new(self, name: str) -> int:
        try:
            return os.open(self._path(name), NEW, 0o666)
        except FileNotFoundError:
            self._make_home(name)
            return os.open(self._path(name), NEW, 0o666)

    def _make_home(self, name: str) -> None:
        """Make the missing folder of a name, but only in a store.

        When a mount goes away its mount point is an empty local folder: a crawl must not go on there.
        """
        home = name.rpartition("/")[0]
        top = home.partition("/")[0]
        try:
            if home != top:  # else the folder that is missing may be the store
                return self._make_folder(home)
        except FileNotFoundError:
            pass
        if not self._is_there("README"):
            raise FileNotFoundError(errno.ENOENT, "the store is not there any more", self.root)
        for folder in dict.fromkeys((top, home)):
            self._make_folder(folder)
        return None

    def _make_folder(self, folder: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(self._path(folder))

    def _is_there(self, name: str) -> bool:
        try:
            os.close(os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _trouble(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translate(error, name) from error

    def _translate(self, error: OSError, name: str) -> StoreError:
        what = f"{self._path(name)}: {error.strerror or error}"
        if error.errno in FULL or (error.errno == errno.EPERM and self._no_room()):
            return DiskFull(f"no room in the store ({what}); free some bytes or inodes and run the same command again")
        if error.errno in HOPELESS:
            return StoreError(f"the store cannot be used ({what}); check the mount and the permissions of the folder")
        return StoreAway(f"the store does not answer ({what}); is the mount still there?")

    def _no_room(self) -> bool:
        """sshfs says EPERM for every failure on the server, a full disk among them."""
        with suppress(StoreError):
            return min(self.free()) == 0
        return False
