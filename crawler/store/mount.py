"""All that we do on a mount: put, append, create, claim, drop, sync, and what `reading` has.

A file appears complete: it is written under a temporary name that nobody else uses and then renamed. Not promised:
that a listing is fresh (call `freshen` first), or that two writers of one name take turns (the last one wins; callers
choose names so that this does not happen).
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

from crawler.errors import StoreAway, StoreError
from crawler.store import sync
from crawler.store.directories import folder_of, leaf_of, split
from crawler.store.reading import ReadFiles

NO_NODES = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL}
OLD_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
MAX_LEFTOVERS = 1000  # temporary files that are remembered to be removed; `check --repair` removes the others
PROBES, PROBE_BYTES = 16, 16 << 10  # files, and bytes in each, that show whether a few more pages fit

Run = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]  # calls for each item, as an executor's map does
Args = ParamSpec("Args")
Result = TypeVar("Result")


def no_check() -> None:
    """Nothing has to hold before a file gets its name."""


class Io(Protocol):
    """How an event loop makes a call that may block, because it touches a mount: in a thread, or in a simulation."""

    async def __call__(self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result: ...


@dataclass(slots=True)  # not frozen, as two are made for each page
class Draft:
    """A file that is written, but still under a temporary name."""

    folder: str
    leaf: str
    temporary: str
    data: bytes

    @property
    def name(self) -> str:
        """Where it will be in the store."""
        return f"{self.folder}/{self.leaf}"

    def rename(self, handle: int) -> None:
        """Give it its name, in the folder of this handle."""
        os.rename(self.temporary, self.leaf, src_dir_fd=handle, dst_dir_fd=handle)

    def remove(self, handle: int) -> bool:
        """Remove it from the folder of this handle; False if it is not there."""
        return _remove(handle, self.temporary)


class Files(ReadFiles):
    """One client's view of the store's folder; its temporary names contain `me`."""

    def __init__(self, root: str | Path, me: str = "reader", durable: bool = True) -> None:
        super().__init__(root)
        self.me = me
        self.durable = durable
        # A process may have several clients under one name, and threads that write at the same time.
        self._token, self._numbers = secrets.token_hex(4), count()
        self.failed_syncs = 0  # after each, what was written since the last good sync is written anew
        self._disk = sync.Disk(self.root)
        # Folders and names of temporary files that may still be there, because the mount went away.
        self._leftovers: deque[tuple[str, str]] = deque(maxlen=MAX_LEFTOVERS)

    def share_mode(self) -> None:
        """Give files that this process writes the permissions of the store's own folder.

        The umask does it without an operation per file; a setgid folder passes on its group by itself.
        """
        with self._translated(""):
            os.umask(~os.stat(self.root).st_mode & 0o777)

    def put(
        self, name: str, data: bytes, later: bool = False, mode: int = 0o666, check: Callable[[], None] = no_check
    ) -> None:
        """Write a file so that it appears whole or not at all; the umask narrows its `mode`.

        With `later` its bytes may wait for the next `sync` to reach the disk, where that syncs many files at once.
        `check` is called just before it gets its name, because all before that may have hung for long.
        """
        folder, leaf = split(name)
        may_have_arrived = False  # whether a rename failed and its file is gone: then only the reply may be lost

        def write(handle: int) -> None:
            nonlocal may_have_arrived
            may_have_arrived = False
            draft = Draft(folder, leaf, self._new_name(), data)
            # What replaces a file is on the disk before it does: a record may rest on the old one.
            is_later = later and not self._must_replace(handle, leaf)
            try:
                self._write_new(handle, draft.temporary, data, is_later, mode)
                check()
                try:
                    draft.rename(handle)
                except OSError:
                    may_have_arrived = not draft.remove(handle)
                    raise
            except OSError:
                self._note_leftover(draft)
                raise
            except StoreError:
                draft.remove(handle)
                raise

        try:
            self._do_in(folder, write)
        except OSError as error:
            # An old file with the same bytes does not count: the disk may have lost it, which is why it is put.
            if not may_have_arrived or not self._has_arrived(name, data):
                raise self.translate(error, name) from error

    def draft(self, name: str, data: bytes) -> Draft:
        """Write a file under a temporary name, to be synced with others before it is published."""
        draft = Draft(*split(name), self._new_name(), data)
        try:
            self._do_in(draft.folder, lambda handle: self._write_new(handle, draft.temporary, data, later=True))
        except OSError as error:
            self._note_leftover(draft)
            raise self.translate(error, name) from error
        return draft

    def publish(self, draft: Draft, check: Callable[[], None] = no_check) -> None:
        """Give a draft its name; `check` is called just before."""

        def rename(handle: int) -> None:
            check()
            draft.rename(handle)

        try:
            self._do_in(draft.folder, rename)
        except OSError as error:  # the reply to a rename may be lost, and its retry finds no source
            if not self._has_arrived(draft.name, draft.data):
                raise self.translate(error, draft.name) from error

    def discard(self, draft: Draft) -> None:
        """Remove a draft, if it still is one."""
        try:
            with self.directories.opened(draft.folder) as handle, suppress(FileNotFoundError):
                os.unlink(draft.temporary, dir_fd=handle)
        except OSError:
            self._note_leftover(draft)

    def _note_leftover(self, draft: Draft) -> None:
        """Note a temporary file that may be left behind: the next sync that finds the store there removes it."""
        self._leftovers.append((draft.folder, draft.temporary))

    def _remove_leftovers(self) -> None:
        while self._leftovers and self.directories.can_open("README"):
            folder, name = self._leftovers.popleft()
            try:
                with self.directories.opened(folder) as handle:
                    os.unlink(name, dir_fd=handle)
            except FileNotFoundError:
                pass
            except OSError:
                self._leftovers.appendleft((folder, name))
                return

    def append(self, name: str, data: bytes, at: int) -> None:
        """Write to the end, which is `at`, of a file that this client alone writes; a new one if that is 0.

        The bytes may wait for the next `sync`, as with `put` and `later`. After an error, also of that sync, nobody
        knows what follows `at`: begin another file.
        """
        with self._translated(name), self.directories.open_or_make(folder_of(name)) as handle:
            is_synced_later = self._is_synced_later(True)
            descriptor = os.open(leaf_of(name), OLD_FILE if at else NEW_FILE, 0o666, dir_fd=handle)
            try:
                rest = memoryview(data)
                while rest:
                    count = os.pwrite(descriptor, rest, at)
                    rest, at = rest[count:], at + count
                if self.durable and not is_synced_later:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _do_in(self, folder: str, act: Callable[[int], None]) -> None:
        """Act in a folder that was kept open; if there is none, or that fails, in one that is opened anew."""
        handle = self.directories.take_kept(folder)
        if handle is not None:
            try:
                act(handle)
            except OSError:
                os.close(handle)
            except StoreError:
                os.close(handle)
                raise
            else:
                self.directories.keep(folder, handle)
                return
        with self.directories.open_or_make(folder) as handle:
            act(handle)

    def _must_replace(self, handle: int, name: str) -> bool:
        """Tell whether a file whose bytes could wait for the next sync has this name."""
        return self.durable and self._syncs_at_once and _exists(handle, name)

    def _has_arrived(self, name: str, data: bytes) -> bool:
        with suppress(OSError):
            return self._read(name) == data
        return False

    def create(self, name: str) -> bool:
        """Create an empty file that did not exist; True for exactly one caller."""
        try:
            with self.directories.open_or_make(folder_of(name)) as handle:
                os.close(os.open(leaf_of(name), NEW_FILE, 0o666, dir_fd=handle))
        except FileExistsError:
            return False
        except OSError as error:
            # sshfs says EPERM where others say EEXIST: look for the name before believing the error.
            if self.directories.can_open(name):
                return False
            raise self.translate(error, name) from error
        return True

    def claim(self, name: str, new: str) -> bool:
        """Rename an existing name to one of our own; True for exactly one caller."""
        try:
            self._rename(name, new)
        except OSError:
            # A lost reply can hide a success; any other failure means "not mine".
            return self.directories.can_open(new)
        return True

    def _rename(self, name: str, new: str) -> None:
        with self.directories.opened(folder_of(name)) as old:
            if folder_of(new) == folder_of(name):  # as when a shard is claimed: one handle will do
                os.rename(leaf_of(name), leaf_of(new), src_dir_fd=old, dst_dir_fd=old)
                return
            with self.directories.opened(folder_of(new)) as to:
                os.rename(leaf_of(name), leaf_of(new), src_dir_fd=old, dst_dir_fd=to)

    def freshen(self, folder: str) -> bool:
        """Make the next listing of a folder a fresh one: clients drop their cache of a folder when they change it.

        False if the folder does not exist. The name made for this is never opened: when an open file is removed,
        sshfs without its cache leaves a hidden file behind. On a disk of this machine every listing is fresh.
        """
        name = self._new_name()
        with self._translated(folder):
            try:
                with self.directories.opened(folder) as handle:
                    if not self._disk.is_local():
                        self._make_name(handle, name)
                        os.unlink(name, dir_fd=handle)
            except FileNotFoundError:
                if not self.directories.can_open("README"):
                    raise
                return False
            return True

    @staticmethod
    def _make_name(handle: int, name: str) -> None:
        try:
            os.mknod(name, 0o600, dir_fd=handle)
        except (OSError, NotImplementedError) as error:
            if isinstance(error, OSError) and error.errno not in NO_NODES:
                raise
            os.close(os.open(name, NEW_FILE, 0o600, dir_fd=handle))

    def clock(self, folder: str) -> float:
        """Return the time by the clock that stamps files there, on most mounts the server's; freshens the listing."""
        name = self._new_name()
        with self._translated(folder), self.directories.opened(folder) as handle:
            self._make_name(handle, name)
        try:
            return self.written(f"{folder}/{name}") or time.time()
        finally:
            self.drop(f"{folder}/{name}")

    def move(self, name: str, new: str) -> bool:
        """Move a file or a folder, making the folders above its new name; False if it did not exist."""
        above = ""
        for part in folder_of(new).split("/"):
            above = f"{above}/{part}" if above else part
            self.make(above)
        with self._translated(name):
            try:
                self._rename(name, new)
            except FileNotFoundError:
                return False
            return True

    def drop(self, name: str) -> bool:
        """Remove a file; False if it did not exist."""
        with self._translated(name):
            try:
                with self.directories.opened(folder_of(name)) as handle:
                    os.unlink(leaf_of(name), dir_fd=handle)
            except FileNotFoundError:
                return False
            return True

    def make(self, folder: str) -> bool:
        """Make a folder inside an existing one; False if it existed."""
        with self._translated(folder):
            try:
                self.directories.make(folder)
            except FileExistsError:
                return False
            return True

    def sync(self, folders: Collection[str], run: Run = map) -> None:
        """Sync the names in these folders to the disk, and the files that were put there with `later`.

        After an error none of what was written since the last good call may be relied on, even if it can be read and
        the next call succeeds: write it anew (`failed_syncs` has changed). On a local disk one call syncs everything;
        it also waits for what other programs write there. `run` calls a function for each item, as `map` does, perhaps
        several at a time. Not for two threads at a time: only one of them would get the error.
        """
        self._remove_leftovers()
        if not self.durable or not (folders or self._disk.is_unsynced):
            return
        try:
            if self._syncs_at_once:
                with self._translated("", self._translate_sync):
                    self._disk.sync()
            else:
                for _ in run(self._sync_folder, sorted(folders)):
                    pass
        except StoreError:
            self.failed_syncs += 1
            self.directories.close_kept()  # the mount may be another one by now
            raise

    def close(self) -> None:
        """Hold nothing of the mount open any more, until the next write."""
        self.directories.close_kept()
        self._disk.close()

    def _translate_sync(self, error: OSError, name: str) -> StoreError:
        if error.errno != errno.EIO:
            return self.translate(error, name)
        return StoreAway(
            f"the store's disk lost what was written ({self.directories.path(name)}: {error.strerror}); it is written "
            "again; if this repeats, look into the kernel's log (`dmesg`)"
        )

    @property
    def _syncs_at_once(self) -> bool:
        try:
            return self._disk.syncs_at_once()
        except OSError as error:
            raise self.translate(error, "") from error

    def has_latency(self) -> bool:
        """Whether each file takes long to write, so that writing several at a time is worth its threads."""
        with self._translated(""):
            return not sync.is_local(self.root) or (self.durable and not self._syncs_at_once)

    def _sync_folder(self, folder: str) -> None:
        with self._translated(folder, self._translate_sync):
            try:
                sync.sync_names(self.directories.path(folder))
            except FileNotFoundError:
                if not self.directories.can_open("README"):
                    raise  # otherwise somebody removed the folder, and there is nothing to sync

    def has_room(self) -> bool:
        """Tell whether a few more pages fit, by writing as much: nothing else shows that a quota is used up."""
        names = [self._new_name() for _ in range(PROBES)]
        with self._translated(""), self.directories.opened("") as handle:
            try:
                for name in names:
                    self._write_new(handle, name, bytes(PROBE_BYTES))
            except OSError as error:
                if not self._is_full(error):
                    raise
                return False
            finally:
                for name in names:
                    _remove(handle, name)
        return True

    def _write_new(self, handle: int, name: str, data: bytes, later: bool = False, mode: int = 0o666) -> None:
        is_synced_later = self._is_synced_later(later)
        descriptor = os.open(name, NEW_FILE, mode, dir_fd=handle)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self.durable and not is_synced_later:
                os.fsync(descriptor)
        except OSError:
            _remove(handle, name)
            raise
        finally:
            os.close(descriptor)

    def _is_synced_later(self, later: bool) -> bool:
        """Tell whether what is written now waits for the next sync, and note that it does."""
        is_synced_later = self.durable and later and self._syncs_at_once
        self._disk.is_unsynced = self._disk.is_unsynced or is_synced_later
        return is_synced_later

    def _new_name(self) -> str:
        return f".{self.me}-{self._token}-{next(self._numbers):x}"

    def temporary_name(self) -> str:
        """Return a name for a file that is being written, which nobody else uses."""
        return self._new_name()


def _exists(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _remove(handle: int, name: str) -> bool:
    """Remove a name; False if it is not there. Other errors are ignored."""
    try:
        os.unlink(name, dir_fd=handle)
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True
