"""A file of the store that is written a piece at a time, because it is too large for memory.

Until it is published it has a temporary name, which `crawler check --repair` removes if its writer was killed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crawler.errors import DiskFull
from crawler.store.directories import leaf_of
from crawler.store.mount import NEW_FILE, Files, no_check


class Stream:
    """A new file in a folder; its calls block, and only one thread at a time makes them."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self._name = files.temporary_name()
        self._size, self._is_gone = 0, False
        self._failed_syncs = files.failed_syncs
        self._descriptor: int | None = None
        with self._translated(), files.directories.open_or_make(folder) as handle:
            self._descriptor = os.open(self._name, NEW_FILE, 0o666, dir_fd=handle)

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self._name}"

    @property
    def is_sound(self) -> bool:
        """Whether it is there, and no sync of the store has failed since: the disk may have lost a part of it."""
        return not self._is_gone and self._files.failed_syncs == self._failed_syncs

    def write(self, data: bytes) -> None:
        """Write more."""
        assert self._descriptor is not None
        with self._translated():
            rest = memoryview(data)
            while rest:
                written = os.write(self._descriptor, rest)
                self._size += written
                rest = rest[written:]

    def finish(self) -> None:
        """Bring its bytes to the disk; nothing is written after this."""
        assert self._descriptor is not None
        descriptor, self._descriptor = self._descriptor, None
        with self._translated():
            try:
                if self._files.durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def publish(self, leaf: str, check: Callable[[], None] = no_check) -> None:
        """Give it its name, also again; the folder must be synced after this. `check` is called just before."""
        if leaf == self._name:
            return
        with self._translated(), self._files.directories.open_or_make(self._folder) as handle:
            check()
            try:
                os.rename(self._name, leaf_of(leaf), src_dir_fd=handle, dst_dir_fd=handle)
            except OSError as error:
                # The reply to a rename may be lost, and its retry finds no source.
                if self._files.size(f"{self._folder}/{leaf}") != self._size:
                    self._is_gone = isinstance(error, FileNotFoundError)
                    raise
        self._name = leaf

    def discard(self) -> None:
        """Remove it, under whatever name it has."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)
        self._files.drop(self._path)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno == errno.EFBIG:
                what = f"the store's disk takes no file of more than {self._size:,} bytes ({self._path})"
                raise DiskFull(what) from error
            raise self._files.translate(error, self._path) from error
