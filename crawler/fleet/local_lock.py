"""A worker's lock on its machine's own disk: after a crash, the same machine knows at once who is dead."""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from crawler.store.records import to_json


@cache
def boot() -> str:
    """Return an id of this boot: several machines may share a temporary folder."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "boot"


class LocalLock:
    """A lock that ends with its worker, and the worker's last counters, in the machine's temporary folder.

    After a crash the same machine need not wait for `dead_after`, and the counts are complete. It says nothing about
    workers on other machines; those are watched by their heartbeats.
    """

    def __init__(self, id: str) -> None:
        from filelock import FileLock  # here: it loads slowly, and only workers have locks

        self._path = self._of(id)
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        self._noting = threading.Lock()  # heartbeats and flushes note counters, each in its own thread
        with suppress(OSError):  # without a lock, others wait for `dead_after`
            self._lock.acquire()

    def note(self, counters: dict[str, Any]) -> None:
        """Save counters that the next heartbeat would show."""
        fresh = self._path.with_suffix(".new")
        with self._noting, suppress(OSError):  # the disk is full or was cleaned up: the next heartbeat will do
            fresh.write_bytes(to_json(counters))
            fresh.rename(self._path.with_suffix(".json"))
            os.utime(self._path)  # temporary folders are cleaned up by age

    def release(self) -> None:
        """Release and remove the lock: the worker has ended cleanly."""
        self._lock.release()
        self.remove(self._path.stem)

    @classmethod
    def died_here(cls, id: str) -> tuple[bool, bytes | None]:
        """Return whether a worker ran on this machine and is gone, and its last counters."""
        from filelock import FileLock, Timeout

        path = cls._of(id)
        try:
            note = path.with_suffix(".json").read_bytes() if path.with_suffix(".json").exists() else None
            if not path.exists():  # it ended, if its counters say so; or somebody has cleaned up
                return note is not None and b'"ended": true' in note, note
            with FileLock(path, timeout=0):
                return True, note
        except (Timeout, OSError):
            return False, None

    @classmethod
    def remove(cls, id: str) -> None:
        """Remove the files of a worker that is gone."""
        for suffix in (".lock", ".json", ".new"):
            cls._of(id).with_suffix(suffix).unlink(missing_ok=True)

    @staticmethod
    def _of(id: str) -> Path:
        folder = Path(tempfile.gettempdir()) / f"crawler-{os.getuid()}-{boot()}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{id}.lock"
