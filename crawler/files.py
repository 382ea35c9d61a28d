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
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crawler.errors import DiskFull, NoDescriptors, StoreAway, StoreError

FULL = {errno.ENOSPC, errno.EDQUOT}
TOO_MANY = {errno.EMFILE, errno.ENFILE}
HOPELESS = {errno.EROFS, errno.EACCES, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL}
NO_NODES = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A folder as a place to start from: on Linux without opening it, which would be a request to the server.
PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
UNCOUNTED = 1 << 62
PIECES, PIECE = 16, 16 << 10  # files, and bytes in each, that show whether there is room for a few pages


class Files:
    """One client's view of the store's folder. `me` marks its temporary names."""

    def __init__(self, root: str | Path, me: str = "reader", durable: bool = True) -> None:
        self.root = str(root)
        self.me = me
        self.durable = durable
        self.hold = 0  # folders that may be kept open for the next file in them
        self._held: dict[str, list[int]] = {}
        self._holding = 0
        self._lock = threading.Lock()

    def share_mode(self) -> None:
        """Make what this process writes as open to others as the store's own folder is.

        The umask does it without an operation per file; a setgid folder hands on its group by itself.
        """
        with self._trouble(""):
            os.umask(~os.stat(self.root).st_mode & 0o777)

    def put(self, name: str, data: bytes) -> None:
        """Write a file so that it appears whole, under `name`, or not at all."""
        with self._trouble(name):
            try:
                if not self._write_where_held(name, data):
                    with self._home(name) as (place, leaf):
                        self._write(place, leaf, data)
            except OSError:
                if not self._has_arrived(name, data):
                    raise

    def _write_where_held(self, name: str, data: bytes) -> bool:
        """Write into a folder that was kept open; False if none was, or it may be gone: then it is looked for anew."""
        place = self._take_held(_folder(name))
        if place is None:
            return False
        try:
            self._write(place, _leaf(name), data)
        except OSError:
            os.close(place)
            return False
        self._leave(_folder(name), place)
        return True

    def _write(self, place: int, leaf: str, data: bytes) -> None:
        temporary = self._new_name()
        try:
            self._write_new(place, temporary, data)
            os.rename(temporary, leaf, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place)
            raise

    def _has_arrived(self, name: str, data: bytes) -> bool:
        """Whether a rename that seemed to fail was done: its answer was lost, and asked again it found nothing."""
        with suppress(OSError):
            return self._read(name) == data
        return False

    def create(self, name: str) -> bool:
        """Make an empty file that was not there; True for exactly one caller."""
        try:
            with self._home(name) as (place, leaf):
                os.close(os.open(leaf, NEW, 0o666, dir_fd=place))
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
            with self._place(_folder(name)) as old_place, self._place(_folder(new)) as new_place:
                os.rename(_leaf(name), _leaf(new), src_dir_fd=old_place, dst_dir_fd=new_place)
        except OSError:
            # A lost reply can hide a success, and any failure means "not mine" unless the name is there.
            return self._is_there(new)
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
                    raise self._translate(error, name) from error
                self.names(_folder(name))
        return None

    def _read(self, name: str) -> bytes:
        descriptor = _open_at_once(self._path(name))
        try:
            seen = os.fstat(descriptor)
            if not stat.S_ISREG(seen.st_mode):
                raise OSError(errno.EINVAL, "it is not a file; remove it")
            parts = []
            while part := os.read(descriptor, seen.st_size + 1):  # the size may be an old one
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

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
        name = self._new_name()
        with self._trouble(folder):
            try:
                with self._place(folder) as place:
                    self._make_name(place, name)
                    os.unlink(name, dir_fd=place)
            except FileNotFoundError:
                if not self._is_there("README"):
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
        with self._trouble(folder), self._place(folder) as place:
            self._make_name(place, name)
        try:
            return self.written(f"{folder}/{name}") or time.time()
        finally:
            self.drop(f"{folder}/{name}")

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
                with self._place(_folder(name)) as place:
                    os.unlink(_leaf(name), dir_fd=place)
            except FileNotFoundError:
                return False
            return True

    def make(self, folder: str) -> bool:
        """Make one folder inside an existing one; False if it was there."""
        with self._trouble(folder):
            try:
                self._make_folder(folder)
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
        """Free bytes and free inodes; file systems that count none of them say as many as they like."""
        with self._trouble(""):
            seen = os.statvfs(self.root)
            free = seen.f_bavail * seen.f_frsize if seen.f_blocks else UNCOUNTED
            return free, seen.f_favail if seen.f_files else UNCOUNTED

    def has_room(self) -> bool:
        """Whether a few pages more would fit: found out by writing as much, for nothing else tells of a quota."""
        names = [self._new_name() for _ in range(PIECES)]
        with self._trouble(""), self._place("") as place:
            try:
                for name in names:
                    self._write_new(place, name, bytes(PIECE))
            except OSError as error:
                if not self._is_full(error):
                    raise
                return False
            finally:
                for name in names:
                    with suppress(OSError):
                        os.unlink(name, dir_fd=place)
        return True

    def _write_new(self, place: int, name: str, data: bytes) -> None:
        descriptor = os.open(name, NEW, 0o666, dir_fd=place)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self.durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _new_name(self) -> str:
        return f".{self.me}-{secrets.token_hex(4)}"

    # ---- places: no symbolic link inside the store is followed for writing

    @contextmanager
    def _home(self, name: str) -> Iterator[tuple[int, str]]:
        """The folder of a name, which is made if it is missing, and the name in it."""
        try:
            place = self._open_place(_folder(name))
        except FileNotFoundError:
            self._make_home(_folder(name))
            place = self._open_place(_folder(name))
        try:
            yield place, _leaf(name)
        except BaseException:
            os.close(place)
            raise
        self._leave(_folder(name), place)

    def _take_held(self, folder: str) -> int | None:
        """A descriptor that was kept open, out of the others' reach: nobody else can close it."""
        with self._lock:
            places = self._held.get(folder)
            self._holding -= bool(places)
            return places.pop() if places else None

    def _leave(self, folder: str, place: int) -> None:
        """Close a folder, or keep it for the next file: on the way there each step may be a request to the server.

        Only those of hosts and shards: what is written beside them, a pulse say, must fail when the mount is gone.
        """
        if not self.hold or "/" not in folder:
            os.close(place)
            return
        if self._holding >= self.hold:
            self.let_go()
        with self._lock:
            self._held.setdefault(folder, []).append(place)
            self._holding += 1

    def let_go(self) -> None:
        """Close the folders that were kept open: they may have been moved, or the mount is wanted back."""
        with self._lock:
            places = [place for held in self._held.values() for place in held]
            self._held.clear()
            self._holding = 0
        for place in places:
            os.close(place)

    @contextmanager
    def _place(self, folder: str) -> Iterator[int]:
        place = self._open_place(folder)
        try:
            yield place
        finally:
            os.close(place)

    def _open_place(self, folder: str) -> int:
        """A folder by a descriptor, reached from the root (which may be a link: the user's choice) step by step."""
        parts = _inside(folder).split("/")
        place = os.open(self.root, PLACE)
        for part in filter(None, parts):
            outer = place
            try:
                place = os.open(part, PLACE | os.O_NOFOLLOW, dir_fd=outer)
            except NotADirectoryError:
                self._check_links(folder)
                raise
            finally:
                os.close(outer)
        return place

    def _check_links(self, folder: str) -> None:
        """Say which part of a path is a symbolic link, if one is."""
        path = self.root
        for part in folder.split("/"):
            path = f"{path}/{part}"
            if os.path.islink(path):
                raise StoreError(
                    f"the store cannot be used ({path} is a symbolic link, and what is written there could end "
                    "anywhere); put a folder in its place"
                )

    def _make_home(self, home: str) -> None:
        """Make a missing folder, but only in a store.

        When a mount goes away its mount point is an empty local folder: a crawl must not go on there.
        """
        top = home.partition("/")[0]
        try:
            if home != top:  # else the folder that is missing may be the store
                with suppress(FileExistsError):
                    self._make_folder(home)
                return
        except FileNotFoundError:
            pass
        if not self._is_there("README"):
            raise FileNotFoundError(errno.ENOENT, "the store is not there any more", self.root)
        for folder in filter(None, dict.fromkeys((top, home))):
            with suppress(FileExistsError):
                self._make_folder(folder)

    def _make_folder(self, folder: str) -> None:
        with self._place(_folder(folder)) as place:
            os.mkdir(_leaf(folder), dir_fd=place)

    def _is_there(self, name: str) -> bool:
        try:
            os.close(_open_at_once(self._path(name)))
        except OSError:
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self.root}/{_inside(name)}"

    @contextmanager
    def _trouble(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._translate(error, name) from error

    def _translate(self, error: OSError, name: str) -> StoreError:
        what = f"{self._path(name)}: {error.strerror or error}"
        if self._is_full(error):
            return DiskFull(f"no room in the store ({what}); free some bytes or inodes, or raise the quota")
        if error.errno in TOO_MANY:
            return NoDescriptors(f"too many open files ({what}); raise `ulimit -n`, or run with fewer --threads")
        if error.errno in HOPELESS:
            return StoreError(f"the store cannot be used ({what}); check the mount and the permissions of the folder")
        return StoreAway(f"the store does not answer ({what}); is the mount still there?")

    def _is_full(self, error: OSError) -> bool:
        """sshfs says EPERM for every failure on the server, a full disk among them."""
        if error.errno == errno.EPERM:
            with suppress(StoreError):
                return min(self.free()) == 0
        return error.errno in FULL


def _inside(name: str) -> str:
    """A name that stays in the store. Callers let no other through: this is the last gate."""
    if "\0" in name or ".." in name.split("/"):
        raise StoreError(f"{name!r} does not stay in the store; nothing was read or written there")
    return name


def _folder(name: str) -> str:
    return _inside(name).rpartition("/")[0]


def _leaf(name: str) -> str:
    return _inside(name).rpartition("/")[2]


def _open_at_once(path: str) -> int:
    """Open for reading without waiting: a FIFO that somebody left in the store would keep us for ever."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
