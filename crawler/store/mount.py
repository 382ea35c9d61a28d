"""What we ask of a mount, and nothing else: put, create, claim, get, names, drop.

A file is complete on arrival: it is written under a temporary name that nobody else uses and then renamed.
Not promised: that a listing is fresh (`freshen` first), that `exists` is right (we never ask it), or that two
writers of one name take turns (the last one wins; who may write what is settled by the callers' names).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crawler.errors import DiskFull, Misshapen, NoDescriptors, StoreAway, StoreError
from crawler.store import sync
from crawler.store.directories import Places, folder_of, leaf_of, open_at_once

FULL = {errno.ENOSPC, errno.EDQUOT}
TOO_MANY = {errno.EMFILE, errno.ENFILE}
HOPELESS = {errno.EROFS, errno.EACCES, errno.ENAMETOOLONG, errno.EINVAL}
MISSHAPEN = {errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
NO_NODES = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
UNCOUNTED = 1 << 62
FOLDER, LINK, FILE = "folder", "link", "file"
PIECES, PIECE = 16, 16 << 10  # files, and bytes in each, that show whether there is room for a few pages

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Draft:
    """A file that is written, but only under a temporary name."""

    name: str
    temporary: str
    data: bytes

    def rename(self, place: int) -> None:
        """Give it its name, in the folder that is open as `place`."""
        os.rename(self.temporary, leaf_of(self.name), src_dir_fd=place, dst_dir_fd=place)

    def remove(self, place: int) -> None:
        """Remove it from the folder that is open as `place`."""
        _remove(place, self.temporary)


class Files:
    """One client's view of the store's folder. `me` marks its temporary names."""

    def __init__(self, root: str | Path, me: str = "reader", durable: bool = True) -> None:
        self.root = str(root)
        self.me = me
        self.durable = durable
        self.places = Places(self.root)

    def share_mode(self) -> None:
        """Make what this process writes as open to others as the store's own folder is.

        The umask does it without an operation per file; a setgid folder hands on its group by itself.
        """
        with self._trouble(""):
            os.umask(~os.stat(self.root).st_mode & 0o777)

    def put(self, name: str, data: bytes, later: bool = False) -> None:
        """Write a file so that it appears whole, under `name`, or not at all.

        `later`: its bytes may reach the disk as late as with the next `settle`, where one does for many files.
        """

        def write(place: int) -> None:
            draft = Draft(name, self._new_name(), data)
            self._write_new(place, draft.temporary, data, later)
            try:
                draft.rename(place)
            except OSError:
                draft.remove(place)
                raise

        with self._trouble(name), self._unless_arrived(name, data):
            self._do_in(folder_of(name), write)

    def draft(self, name: str, data: bytes) -> Draft:
        """Write a file under a temporary name, to be settled with others before it is published."""
        draft = Draft(name, self._new_name(), data)
        with self._trouble(name):
            self._do_in(folder_of(name), lambda place: self._write_new(place, draft.temporary, data, later=True))
        return draft

    def publish(self, draft: Draft) -> None:
        """Give a draft its name."""
        with self._trouble(draft.name), self._unless_arrived(draft.name, draft.data):
            self._do_in(folder_of(draft.name), draft.rename)

    def discard(self, draft: Draft) -> None:
        """Remove a draft, if it still is one."""
        with suppress(OSError), self.places.at(folder_of(draft.name)) as place:
            draft.remove(place)

    def _do_in(self, folder: str, act: Callable[[int], None]) -> None:
        """Act in a folder that was kept open; if there is none, or it may be gone, in one that is looked for anew."""
        place = self.places.take_held(folder)
        if place is not None:
            try:
                act(place)
            except OSError:
                os.close(place)
            else:
                self.places.leave(folder, place)
                return
        with self.places.home(folder) as place:
            act(place)

    @contextmanager
    def _unless_arrived(self, name: str, data: bytes) -> Iterator[None]:
        """A rename may seem to fail that was done: its answer was lost, and asked again it found nothing."""
        try:
            yield
        except OSError:
            if not self._has_arrived(name, data):
                raise

    def _has_arrived(self, name: str, data: bytes) -> bool:
        with suppress(OSError):
            return self._read(name) == data
        return False

    def create(self, name: str) -> bool:
        """Make an empty file that was not there; True for exactly one caller."""
        try:
            with self.places.home(folder_of(name)) as place:
                os.close(os.open(leaf_of(name), NEW, 0o666, dir_fd=place))
        except FileExistsError:
            return False
        except OSError as error:
            # sshfs answers EPERM where others say EEXIST: look by name before believing a failure.
            if self.places.is_there(name):
                return False
            raise self.translate(error, name) from error
        return True

    def claim(self, name: str, new: str) -> bool:
        """Rename an existing name to one of our own; True for exactly one caller."""
        try:
            with self.places.at(folder_of(name)) as old_place, self.places.at(folder_of(new)) as new_place:
                os.rename(leaf_of(name), leaf_of(new), src_dir_fd=old_place, dst_dir_fd=new_place)
        except OSError:
            # A lost reply can hide a success, and any failure means "not mine" unless the name is there.
            return self.places.is_there(new)
        return True

    def get(self, name: str) -> bytes | None:
        """The bytes of a file, or None when there is none."""
        for left in (2, 1, 0):
            try:
                return self._read(name)
            except FileNotFoundError:
                return None
            except OSError as error:
                # ESTALE: the file was replaced under us; after a listing, opening it again finds the new one.
                if error.errno != errno.ESTALE or not left:
                    raise self.translate(error, name) from error
                self.names(folder_of(name))
        return None

    def _read(self, name: str) -> bytes:
        descriptor = open_at_once(self.places.path(name))
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise IsADirectoryError(errno.EISDIR, "it is not a file; remove it")
            parts = []
            while part := os.read(descriptor, seen.st_size + 1):  # the size may be an old one
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def names(self, folder: str) -> list[str]:
        """The names in a folder, without temporary ones (ours, `.nfsXXXX`, `.fuse_hidden`); [] if it is no folder."""
        return [name for name in self.all_names(folder) if not name.startswith(".")]

    def all_names(self, folder: str) -> list[str]:
        """The same with temporary ones."""
        try:
            return os.listdir(self.places.path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self.translate(error, folder) from error

    def shapes(self, folder: str) -> dict[str, str]:
        """The same names, each with what it is: FOLDER, LINK or, for all that is neither, FILE."""
        absent = suppress(FileNotFoundError, NotADirectoryError)
        with self._trouble(folder), absent, os.scandir(self.places.path(folder)) as found:
            return {entry.name: _shape(entry) for entry in found}
        return {}

    def sizes(self, folder: str) -> Iterator[tuple[str, int]]:
        """The names in a folder, as `names` has them, and the bytes of each; without what goes while we look."""
        absent = suppress(FileNotFoundError, NotADirectoryError)
        with self._trouble(folder), absent, os.scandir(self.places.path(folder)) as found:
            for entry in found:
                if not entry.name.startswith("."):
                    with suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size

    def freshen(self, folder: str) -> bool:
        """Make the next listing of a folder a new one: clients drop their cache when they change it.

        False if the folder is not there. A name that was never open is removed for good: sshfs without its cache
        leaves a hidden file behind for one that was.
        """
        name = self._new_name()
        with self._trouble(folder):
            try:
                with self.places.at(folder) as place:
                    self._make_name(place, name)
                    os.unlink(name, dir_fd=place)
            except FileNotFoundError:
                if not self.places.is_there("README"):
                    raise
                return False
            return True

    @staticmethod
    def _make_name(place: int, name: str) -> None:
        try:
            os.mknod(name, 0o600, dir_fd=place)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in NO_NODES:
                raise
            os.close(os.open(name, NEW, 0o600, dir_fd=place))

    def clock(self, folder: str) -> float:
        """The time by which names in a folder are stamped (by the server, on most mounts); the next listing is new."""
        name = self._new_name()
        with self._trouble(folder), self.places.at(folder) as place:
            self._make_name(place, name)
        try:
            return self.written(f"{folder}/{name}") or time.time()
        finally:
            self.drop(f"{folder}/{name}")

    def written(self, name: str) -> float | None:
        """When a file was written, by the clock that `clock` tells; None when there is none."""
        seen = self._seen(name)
        return seen and seen.st_mtime

    def changed(self, name: str) -> float:
        """When a file got its bytes or came to its name, or a folder its last name, by the same clock; 0 if it is gone.

        sshfs does not tell when a file came to its name: there it is when it got its bytes, before the rename.
        """
        seen = self._seen(name)
        return max(seen.st_mtime, seen.st_ctime) if seen else 0.0

    def size(self, name: str) -> int | None:
        """The bytes of a file, as the mount counts them; None when there is none."""
        seen = self._seen(name)
        return seen and seen.st_size

    def _seen(self, name: str) -> os.stat_result | None:
        with self._trouble(name):
            try:
                return os.stat(self.places.path(name))
            except FileNotFoundError:
                return None

    def is_folder(self, name: str) -> bool:
        """Whether a name is a folder itself, and no link to one."""
        with self._trouble(name):
            try:
                return stat.S_ISDIR(os.lstat(self.places.path(name)).st_mode)
            except FileNotFoundError:
                return False

    def move(self, name: str, new: str) -> bool:
        """Give a file or a folder another place, whose folders are made; False if it was not there."""
        home = ""
        for part in folder_of(new).split("/"):
            home = f"{home}/{part}" if home else part
            self.make(home)
        with self._trouble(name):
            try:
                with self.places.at(folder_of(name)) as old_place, self.places.at(folder_of(new)) as new_place:
                    os.rename(leaf_of(name), leaf_of(new), src_dir_fd=old_place, dst_dir_fd=new_place)
            except FileNotFoundError:
                return False
            return True

    def drop(self, name: str) -> bool:
        """Remove a file; False if it was not there."""
        with self._trouble(name):
            try:
                with self.places.at(folder_of(name)) as place:
                    os.unlink(leaf_of(name), dir_fd=place)
            except FileNotFoundError:
                return False
            return True

    def make(self, folder: str) -> bool:
        """Make one folder inside an existing one; False if it was there."""
        with self._trouble(folder):
            try:
                self.places.make(folder)
            except FileExistsError:
                return False
            return True

    def settle(self, folders: Collection[str], run: Run = map) -> None:
        """Bring to the disk the names in these folders, and what was put there for `later`.

        Where the disk is this machine's own, one call does it for all; it also waits for what others write there. `run`
        calls a function for each item, as `map` does, or many at a time.
        """
        if not self.durable or not folders:
            return
        if self._settles_at_once:
            with self._trouble(""):
                sync.sync_all(self.root)
        else:
            for _ in run(self._settle, folders):
                pass

    @cached_property
    def _settles_at_once(self) -> bool:
        with self._trouble(""):
            return sync.do_for_all(self.root)

    def _settle(self, folder: str) -> None:
        with self._trouble(folder):
            try:
                sync.sync_names(self.places.path(folder))
            except FileNotFoundError:
                if not self.places.is_there("README"):
                    raise  # otherwise somebody removed the folder: there is nothing in it to sync

    def free(self) -> tuple[int, int]:
        """Free bytes and free inodes; file systems that count none of them say as many as they like."""
        with self._trouble(""):
            seen = os.statvfs(self.root)
            free = seen.f_bavail * seen.f_frsize if seen.f_blocks else UNCOUNTED
            # CephFS says -1: as many as you like.
            return free, seen.f_favail if seen.f_files and seen.f_favail >= 0 else UNCOUNTED

    def has_room(self) -> bool:
        """Whether a few pages more would fit: found out by writing as much, for nothing else tells of a quota."""
        names = [self._new_name() for _ in range(PIECES)]
        with self._trouble(""), self.places.at("") as place:
            try:
                for name in names:
                    self._write_new(place, name, bytes(PIECE))
            except OSError as error:
                if not self._is_full(error):
                    raise
                return False
            finally:
                for name in names:
                    _remove(place, name)
        return True

    def _write_new(self, place: int, name: str, data: bytes, later: bool = False) -> None:
        descriptor = os.open(name, NEW, 0o666, dir_fd=place)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self.durable and not (later and self._settles_at_once):
                os.fsync(descriptor)
        except OSError:
            _remove(place, name)
            raise
        finally:
            os.close(descriptor)

    def _new_name(self) -> str:
        return f".{self.me}-{secrets.token_hex(4)}"

    @contextmanager
    def _trouble(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.translate(error, name) from error

    def translate(self, error: OSError, name: str) -> StoreError:
        """What the operator is told of a failure."""
        what = f"{self.places.path(name)}: {error.strerror or error}"
        if self._is_full(error):
            return DiskFull(f"no room in the store ({what}); free some bytes or inodes, or raise the quota")
        if error.errno in TOO_MANY:
            return NoDescriptors(f"too many open files ({what}); raise `ulimit -n`, or run with fewer --concurrency")
        if error.errno in HOPELESS | MISSHAPEN:
            kind = Misshapen if error.errno in MISSHAPEN else StoreError
            return kind(f"the store cannot be used ({what}); check the mount and the permissions of the folder")
        return StoreAway(f"the store does not answer ({what}); is the mount still there?")

    def _is_full(self, error: OSError) -> bool:
        """sshfs says EPERM for every failure on the server, a full disk among them."""
        if error.errno == errno.EPERM:
            with suppress(StoreError):
                return min(self.free()) == 0
        return error.errno in FULL


def _shape(entry: os.DirEntry[str]) -> str:
    """What a name is, from the listing itself where the mount tells."""
    if entry.is_symlink():
        return LINK
    return FOLDER if entry.is_dir(follow_symlinks=False) else FILE


def _remove(place: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=place)
