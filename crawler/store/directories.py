"""Folders of the store as open descriptors, reached from its root step by step: no symbolic link inside the store is
followed for writing, and one that was opened may be kept for the next file in it.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from crawler.errors import StoreError

# A folder as a place to start from: on Linux without opening it, which would be a request to the server.
PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class Places:
    """The folders of one client's store; `hold` of them may be kept open."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.hold = 0
        self._held: dict[str, list[int]] = {}
        self._holding = 0
        self._lock = threading.Lock()

    @contextmanager
    def home(self, folder: str) -> Iterator[int]:
        """A folder, which is made if it is missing; afterwards it may be kept."""
        place = self._open_inside(folder)
        if place is None:
            place = self._open_or_make(folder)
        try:
            yield place
        except BaseException:
            os.close(place)
            raise
        self.leave(folder, place)

    def _open_inside(self, folder: str) -> int | None:
        """A folder of a folder that was kept open, made if it is missing: the short way to a new host's."""
        outer, _, name = inside(folder).rpartition("/")
        around = self.take_held(outer)
        if around is None:
            return None
        try:
            try:
                place = os.open(name, PLACE | os.O_NOFOLLOW, dir_fd=around)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=around)
                place = os.open(name, PLACE | os.O_NOFOLLOW, dir_fd=around)
        except OSError:  # it may be gone, or a link: the long way tells
            os.close(around)
            return None
        self._keep(outer, around)
        return place

    def _open_or_make(self, folder: str) -> int:
        try:
            place = self.open(folder)
        except FileNotFoundError:
            self._make_home(folder)
            place = self.open(folder)
        if self.hold and "/" in folder:
            outer = folder_of(folder)
            self._keep(outer, self.open(outer))
        return place

    @contextmanager
    def at(self, folder: str) -> Iterator[int]:
        """A folder that must be there."""
        place = self.open(folder)
        try:
            yield place
        finally:
            os.close(place)

    def take_held(self, folder: str) -> int | None:
        """A descriptor that was kept open, out of the others' reach: nobody else can close it."""
        with self._lock:
            places = self._held.get(folder)
            self._holding -= bool(places)
            return places.pop() if places else None

    def leave(self, folder: str, place: int) -> None:
        """Close a folder, or keep it for the next file: on the way there each step may be a request to the server.

        Only those of hosts and shards: what is written beside them, a pulse say, must fail when the mount is gone.
        """
        if not self.hold or "/" not in folder:
            os.close(place)
            return
        self._keep(folder, place)

    def _keep(self, folder: str, place: int) -> None:
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

    def open(self, folder: str) -> int:
        """A folder by a descriptor, reached from the root (which may be a link: the user's choice) step by step."""
        parts = inside(folder).split("/")
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
                    self.make(home)
                return
        except FileNotFoundError:
            pass
        if not self.is_there("README"):
            raise FileNotFoundError(errno.ENOENT, "the store is not there any more", self.root)
        for folder in filter(None, dict.fromkeys((top, home))):
            with suppress(FileExistsError):
                self.make(folder)

    def make(self, folder: str) -> None:
        """Make one folder inside an existing one."""
        with self.at(folder_of(folder)) as place:
            os.mkdir(leaf_of(folder), dir_fd=place)

    def is_there(self, name: str) -> bool:
        """Whether a file can be opened."""
        try:
            os.close(open_at_once(self.path(name)))
        except OSError:
            return False
        return True

    def path(self, name: str) -> str:
        """The path of a name in the store."""
        return f"{self.root}/{inside(name)}"


def inside(name: str) -> str:
    """A name that stays in the store. Callers let no other through: this is the last gate."""
    if "\0" in name or ".." in name.split("/"):
        raise StoreError(f"{name!r} does not stay in the store; nothing was read or written there")
    return name


def folder_of(name: str) -> str:
    """The folder of a name."""
    return inside(name).rpartition("/")[0]


def leaf_of(name: str) -> str:
    """A name without its folder."""
    return inside(name).rpartition("/")[2]


def open_at_once(path: str) -> int:
    """Open for reading without waiting: a FIFO that somebody left in the store would keep us for ever."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
