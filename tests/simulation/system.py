"""`os` as the doors of crawler/store see it: the operations on the simulated mounts, and nothing else.

A machine's mount is at /simulated/<machine>. What is not here fails loudly: then the program has begun to use another
operation, and the simulation has to learn it.
"""

from __future__ import annotations

import errno
import os
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

from simulation.disk import FILE, FOLDER, Disk, Node, error
from simulation.mount import Mount
from simulation.world import Killed, World

ROOT = "/simulated/"
CREATE, DIRECTORY = os.O_CREAT, os.O_DIRECTORY
PLENTY = 1 << 40
NUMBERS = count(1 << 30)  # of handles, each used once: what an ended simulation has left may be closed in a later one
NAMES = {
    *("O_PATH", "O_RDONLY", "O_WRONLY", "O_CREAT", "O_EXCL", "O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"),
    *("strerror", "path", "stat_result", "fspath"),
}


class Handle:
    """An open file or folder."""

    __slots__ = ("failures", "generation", "mount", "node", "offset")

    def __init__(self, mount: Mount, node: Node) -> None:
        self.mount, self.node, self.offset, self.generation = mount, node, 0, mount.generation
        self.failures = mount.disk.failed_syncs  # that this handle was told of, or that were before it


class Entry:
    """What `scandir` yields."""

    def __init__(self, name: str, node: Node | None, stat: Callable[[], Any]) -> None:
        self.name, self._node, self._stat = name, node, stat

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, follow_symlinks: bool = True) -> bool:
        return self._node is not None and self._node.mode == FOLDER

    def is_file(self, follow_symlinks: bool = True) -> bool:
        return self._node is not None and self._node.mode != FOLDER

    def stat(self, follow_symlinks: bool = True) -> Any:
        return self._stat()


class System:
    """The functions of `os` that the doors use."""

    def __init__(self, world: World, disk: Disk, mounts: dict[str, Mount]) -> None:
        self._world, self._disk, self._mounts = world, disk, mounts
        self._handles: dict[int, Handle] = {}
        self._first = next(NUMBERS)
        self.counts: dict[str, int] = {}  # of operations, by kind
        for name in NAMES:
            setattr(self, name, getattr(os, name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulated mount has no os.{name} yet")

    # ---- handles

    def open(self, path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        current = self._world.current
        if current is not None and current.is_dead:
            raise Killed
        if dir_fd is None:
            mount = self._mount(path)
            return self._new(mount, self._walk(mount, path))
        at = self._handle(dir_fd)
        mount, folder = at.mount, at.node
        if path == ".":
            return self._new(mount, folder)
        if flags & DIRECTORY:  # as most are; nothing waits for them
            node = mount.look_up(folder, path)
            if node.mode != FOLDER:
                raise error(errno.ENOTDIR)
            return self._new(mount, node)
        if flags & CREATE:
            return self._call("create", mount, lambda: self._create(mount, folder, path), errno.EEXIST)
        return self._call("open", mount, lambda: self._open(mount, folder, path))

    def _create(self, mount: Mount, folder: Node, name: str) -> int:
        self._here(folder)
        if name in folder.entries:
            raise error(errno.EEXIST)
        self._disk.need_space(mount.profile.full)
        node = self._disk.node(FILE)
        self._set(mount, "create", (folder, name, node))
        return self._new(mount, node)

    def _open(self, mount: Mount, folder: Node, name: str) -> int:
        node = mount.look_up(folder, name)
        mount.check_replaced(node)
        return self._new(mount, node)

    def close(self, handle: int) -> None:
        if self._handles.pop(handle, None) is None and handle > self._first:
            raise error(errno.EBADF)

    def _new(self, mount: Mount, node: Node) -> int:
        number = next(NUMBERS)
        self._handles[number] = Handle(mount, node)
        return number

    def _handle(self, number: int) -> Handle:
        found = self._handles.get(number)
        if found is None:
            raise error(errno.EBADF)
        if found.generation != found.mount.generation:
            self._world.effects["stale handle"] += 1
            raise error(errno.ESTALE)
        return found

    def _mount(self, path: str) -> Mount:
        return self._mounts[path.split("/", 3)[2]]

    def _walk(self, mount: Mount, path: str) -> Node:
        if self._world.now < mount.away_until:
            self._call("walk", mount, lambda: None)
        node = self._disk.root
        if path.count("/") > 2:
            for part in path.split("/")[3:]:  # after /simulated/<machine>
                node = mount.look_up(node, part)
        return node

    # ---- files

    def read(self, handle: int, size: int) -> bytes:
        at = self._handle(handle)
        data = at.node.data[at.offset : at.offset + size]
        at.offset += len(data)
        return data

    def write(self, handle: int, data: Any) -> int:
        at = self._handle(handle)
        self._disk.need_space(at.mount.profile.full)
        at.node.data += bytes(data)
        at.node.written = at.node.changed = self._world.now
        return len(data)

    def fsync(self, handle: int) -> None:
        at = self._handle(handle)
        at.mount.folder = (self._disk.path(at.node) or "") if at.node.mode == FOLDER else ""
        self._call("fsync", at.mount, lambda: self._fsync(at))

    def _fsync(self, at: Handle) -> None:
        if at.node.mode == FOLDER:
            self._disk.sync_folder(at.node)
        else:
            at.node.is_synced = True

    def syncfs(self, handle: int) -> int:
        """In place of the C library's."""
        at = self._handle(handle)
        self._report_loss(at)
        try:
            self._call("syncfs", at.mount, self._disk.sync_all)
        except OSError:
            self._disk.fail_sync()
            at.failures = self._disk.failed_syncs
            raise
        self._report_loss(at)  # one that came meanwhile, too: the kernel looks when all is written
        return 0

    def _report_loss(self, at: Handle) -> None:
        """The kernel reports a loss once to each descriptor."""
        if at.failures != self._disk.failed_syncs:
            at.failures = self._disk.failed_syncs
            raise error(errno.EIO)

    # ---- names

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        source, target = self._handle(src_dir_fd), self._handle(dst_dir_fd)
        mount = source.mount
        what, now = "publish" if old.startswith(".") else "claim", self._world.now
        mount.folder = self._disk.path(target.node) or ""
        self._call(what, mount, lambda: self._rename(mount, source.node, old, target.node, new, now), errno.ENOENT)

    def _rename(self, mount: Mount, source: Node, old: str, target: Node, new: str, requested: float) -> None:
        self._here(source)
        self._here(target)
        node = source.entries.get(old)
        if node is None:
            raise error(errno.ENOENT)
        if new in target.entries and target.entries[new] is not node:
            node.replaced = self._world.now, mount
        node.requested = requested
        self._set(mount, "rename", (source, old, None), (target, new, node))
        self._world.note(f"rename {self._disk.path(target)}/{old} {new}")

    def unlink(self, name: str, *, dir_fd: int) -> None:
        at = self._handle(dir_fd)
        what = "tidy" if name.startswith(".") else "drop" if self._is_frontier(at.node) else "unlink"
        at.mount.folder = self._disk.path(at.node) or ""
        self._call(what, at.mount, lambda: self._unlink(at.mount, at.node, name), errno.ENOENT)

    def _is_frontier(self, folder: Node) -> bool:
        return folder.parent is not None and folder.parent is self._disk.root.entries.get("frontier")

    def _unlink(self, mount: Mount, folder: Node, name: str) -> None:
        if name not in folder.entries:
            raise error(errno.ENOENT)
        if not name.startswith("."):
            self._world.note(f"unlink {self._disk.path(folder)}/{name}")
        self._set(mount, "unlink", (folder, name, None))

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int) -> None:
        self._make("mkdir", name, dir_fd, FOLDER)

    def mknod(self, name: str, mode: int = 0o600, *, dir_fd: int) -> None:
        self._make("mknod", name, dir_fd, FILE)

    def _make(self, what: str, name: str, dir_fd: int, mode: int) -> None:
        at = self._handle(dir_fd)

        def make() -> None:
            self._here(at.node)
            if name in at.node.entries:
                raise error(errno.EEXIST)
            self._disk.need_space(at.mount.profile.full)
            self._set(at.mount, what, (at.node, name, self._disk.node(mode)))

        self._call(what, at.mount, make, errno.EEXIST)

    def _set(self, mount: Mount, what: str, *changes: tuple[Node, str, Node | None]) -> None:
        self._disk.set(*changes)
        for folder in {folder for folder, _, _ in changes} if len(changes) > 1 else (changes[0][0],):
            mount.changed(folder)

    def _here(self, folder: Node) -> None:
        """Fail if a folder was removed that somebody still has a handle of."""
        if folder is not self._disk.root and self._disk.path(folder) is None:
            raise error(errno.ENOENT)

    # ---- looking

    def listdir(self, handle: int) -> list[str]:
        at = self._handle(handle)
        return self._call("listdir", at.mount, lambda: at.mount.names(at.node))

    @contextmanager
    def scandir(self, where: int | str) -> Iterator[Iterator[Entry]]:
        mount = self._mount(where) if isinstance(where, str) else self._handle(where).mount
        folder = self._walk(mount, where) if isinstance(where, str) else self._handle(where).node
        names = self._call("listdir", mount, lambda: mount.names(folder))
        yield (Entry(name, folder.entries.get(name), lambda name=name: self._of(mount, folder, name)) for name in names)

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> Any:
        self._check()
        if dir_fd is None:
            mount = self._mount(path)
            return _stat(self._walk(mount, path))
        at = self._handle(dir_fd)
        return (
            _stat(at.node) if path == "." else self._call("stat", at.mount, lambda: self._of(at.mount, at.node, path))
        )

    def _of(self, mount: Mount, folder: Node, name: str) -> Any:
        return _stat(mount.look_up(folder, name))

    def fstat(self, handle: int) -> Any:
        return _stat(self._handle(handle).node)

    def statvfs(self, path: str) -> Any:
        mount = self._mount(path)
        self._call("statvfs", mount, lambda: None)
        free = 0 if self._disk.full == errno.ENOSPC else PLENTY
        return SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=PLENTY, f_files=PLENTY, f_favail=PLENTY)

    def umask(self, mask: int) -> int:
        return 0

    def _call(self, what: str, mount: Mount, act: Callable[[], Any], retransmitted: int = 0) -> Any:
        current = self._world.current
        if current is not None and current.is_dead:
            raise Killed
        self.counts[what] = self.counts.get(what, 0) + 1
        return mount.call(what, act, retransmitted)

    def _check(self) -> None:
        if self._world.current is not None and self._world.current.is_dead:
            raise Killed


def _stat(node: Node) -> Any:
    return SimpleNamespace(
        st_mode=node.mode,
        st_size=len(node.data),
        st_mtime=node.written,
        st_ctime=node.changed,
        st_ino=node.inode,
        st_dev=1,
    )


assert modes.S_ISREG(FILE) and modes.S_ISDIR(FOLDER)
