"""The file server: a tree of folders and files, what of it a sync has reached, and what a power cut leaves of it."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

FOLDER, FILE = stat.S_IFDIR | 0o777, stat.S_IFREG | 0o666


class Node:
    """A folder or a file."""

    __slots__ = (
        "changed",
        "data",
        "entries",
        "inode",
        "is_synced",
        "mode",
        "name",
        "parent",
        "replaced",
        "requested",
        "written",
    )

    def __init__(self, mode: int, inode: int, now: float) -> None:
        self.mode, self.inode = mode, inode
        self.data = b""
        self.entries: dict[str, Node] = {}
        self.parent: Node | None = None
        self.name = ""  # in its parent, when it was last given one
        self.is_synced = mode == FOLDER
        self.written = self.changed = self.requested = now  # requested: when a machine was about to give it its name
        self.replaced: tuple[float, object] = (-1e9, None)  # when its name belonged to another file, and who did it


class Change:
    """A name that was changed: what it was and what it is now."""

    __slots__ = ("folder", "name", "new", "old")

    def __init__(self, folder: Node, name: str, old: Node | None, new: Node | None) -> None:
        self.folder, self.name, self.old, self.new = folder, name, old, new

    def undo(self) -> None:
        """Let the name be what it was, if nothing has changed it since."""
        if self.folder.entries.get(self.name) is not self.new:
            return
        if self.old is None:
            self.folder.entries.pop(self.name, None)
        else:
            self.folder.entries[self.name] = self.old
            self.old.parent, self.old.name = self.folder, self.name


class Disk:
    """The tree, and the changes of names that no sync has reached: those of one operation come or go together."""

    def __init__(self, now: Callable[[], float], loses: bool = True) -> None:
        """`loses` if a power cut may lose what was not synced."""
        self._now, self._inodes, self._loses = now, count(10), loses
        self.root = self.node(FOLDER)
        self.failed_syncs = 0
        self.full = 0  # errno of what needs space, while there is none
        self.effects = Counter[str]()  # of failures, by what they took
        self._journal: list[list[Change]] = []  # since the last sync of their folder
        self._lost: list[list[Change]] = []  # that a sync which failed has dropped
        self._paths: dict[Node, str | None] = {}  # of folders, until one comes or goes
        self.watch: Callable[[str, str, Node], object] = lambda what, path, node: None

    def node(self, mode: int) -> Node:
        return Node(mode, next(self._inodes), self._now())

    # ---- names

    def set(self, *changes: tuple[Node, str, Node | None]) -> None:
        """Change names, all of them at once."""
        made = [Change(folder, name, folder.entries.get(name), new) for folder, name, new in changes]
        now = self._now()
        for folder, name, new in changes:
            folder.written = folder.changed = now
            if new is None:
                del folder.entries[name]
            else:
                folder.entries[name] = new
                new.parent, new.name, new.changed = folder, name, now
        for change in made:
            if (change.new or change.old).mode == FOLDER:  # type: ignore[union-attr]
                self._paths.clear()
        if self._loses:
            self._journal.append(made)
        for change in made:
            self.tell(change)

    def tell(self, change: Change) -> None:
        """Tell the one who watches of files that came and went."""
        where = self.path(change.folder)
        if where is None:
            return
        path = f"{where}/{change.name}" if where else change.name
        if change.old is not None:
            self.watch("gone", path, change.old)
        if change.new is not None:
            self.watch("here", path, change.new)

    def path(self, folder: Node) -> str | None:
        """Return the path of a folder; None if it was removed."""
        try:
            return self._paths[folder]
        except KeyError:
            path = self._paths[folder] = self._path(folder)
            return path

    def _path(self, node: Node) -> str | None:
        parts: list[str] = []
        while node is not self.root:
            parent = node.parent
            if parent is None or parent.entries.get(node.name) is not node:
                return None
            parts.append(node.name)
            node = parent
        return "/".join(reversed(parts))

    def find(self, path: str) -> Node | None:
        """Return what has this path."""
        node: Node | None = self.root
        for part in filter(None, path.split("/")):
            node = node.entries.get(part) if node else None
        return node

    def files(self, path: str) -> Iterator[tuple[str, Node]]:
        """Yield the names and files in a folder, without temporary ones."""
        folder = self.find(path)
        for name, node in sorted(folder.entries.items()) if folder else ():
            if not name.startswith("."):
                yield name, node

    def remove(self, path: str) -> None:
        """Remove a whole folder, as an operator does who should not."""
        folder = self.find(path)
        if folder is None or folder.parent is None:
            return
        for name in list(folder.entries):
            self.set((folder, name, None))
        self.set((folder.parent, path.rpartition("/")[2], None))

    def remove_all(self, path: str) -> None:
        """The same with all folders in it."""
        folder = self.find(path)
        for name, node in [*folder.entries.items()] if folder else ():
            if node.mode == FOLDER:
                self.remove_all(f"{path}/{name}")
        self.remove(path)

    # ---- syncs and power cuts

    def sync_all(self) -> None:
        """All that was written is on the disk."""
        for changes in self._journal:
            for change in changes:
                if change.new is not None:
                    change.new.is_synced = True
        self._keep_folders({id(it) for changes in self._journal for change in changes for it in _above(change.folder)})
        self._journal.clear()

    def sync_folder(self, folder: Node) -> None:
        """The names in a folder, and those that lead to it, are on the disk."""
        above = {id(it) for it in _above(folder)}
        self._journal = [it for it in self._journal if not all(id(change.folder) in above for change in it)]
        self._keep_folders(above)

    def _keep_folders(self, folders: set[int]) -> None:
        """Folders that a failed sync had dropped are on the disk together with what was synced in them since.

        A program could not make them anew, because it sees them; and no file system keeps a file without its folder.
        """
        self._lost = [it for it in self._lost if not all(id(change.new) in folders for change in it)]

    def fail_sync(self) -> None:
        """What was written is lost, although it can be read, and the next sync succeeds."""
        self.effects["sync lost names"] += bool(self._journal)
        self._lost += self._journal
        self._journal = []
        self.failed_syncs += 1

    def cut_power(self, random: Random, in_order: bool) -> None:
        """Lose what no sync has reached, or a part of it; with `in_order` what came last goes first."""
        keep = random.randrange(len(self._journal) + 1)
        for number, changes in reversed([*enumerate(self._journal)]):
            if number >= keep if in_order else random.random() < 0.5:
                self.effects["power cut lost names"] += 1
                for change in reversed(changes):
                    change.undo()
        for changes in reversed(self._lost):
            if random.random() < 0.8:
                self.effects["power cut lost names of a failed sync"] += 1
                for change in reversed(changes):
                    change.undo()
        self._journal, self._lost = [], []
        self._paths.clear()
        self._tear(self.root, random)

    def _tear(self, folder: Node, random: Random) -> None:
        for node in folder.entries.values():
            if node.mode == FOLDER:
                self._tear(node, random)
            elif not node.is_synced:
                self.effects["power cut tore a file"] += 1
                node.data = random.choice([b"", bytes(len(node.data)), node.data])
                node.is_synced = True

    def need_space(self, shown: int = 0) -> None:
        """Raise an error while there is no space; some mounts show another one."""
        if self.full:
            self.effects["no space"] += 1
            raise error(shown or self.full)


def _above(folder: Node) -> Iterator[Node]:
    """Yield a folder and those above it."""
    above: Node | None = folder
    while above is not None:
        yield above
        above = above.parent


def error(number: int) -> OSError:
    """Return the error with this number."""
    return OSError(number, os.strerror(number))


ENOENT, EIO, ESTALE, EEXIST = errno.ENOENT, errno.EIO, errno.ESTALE, errno.EEXIST
