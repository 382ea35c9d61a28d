"""A worker's lock on its machine's own disk: after a crash, the same machine knows at once who is dead."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from crawler.store.records import to_json

DEALT_WITH = ".dealt"  # beside the lock of a dead worker: its supervisor knows which page to blame


@cache
def boot() -> str:
    """Return an id of this boot: several machines may share a temporary folder."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "boot"


class LocalLock:
    """A lock that ends with its worker, and the worker's last counters, in the machine's temporary folder.

    A supervisor has one, too, by the machine's id.

    After a crash the same machine need not wait for `dead_after`, and the counts are complete. It says nothing about
    workers on other machines; those are watched by their heartbeats.
    """

    def __init__(self, id: str) -> None:
        self._path = self._of(id)
        self._noting = threading.Lock()  # heartbeats and flushes note counters, each in its own thread
        self._lock: int | None = None
        with suppress(OSError):  # without a lock, others wait for `dead_after`
            self._lock = _lock(self._path, os.O_CREAT)

    def note(self, counters: dict[str, Any]) -> None:
        """Save counters that the next heartbeat would show."""
        fresh = self._path.with_suffix(".new")
        with self._noting, suppress(OSError):  # the disk is full or was cleaned up: the next heartbeat will do
            fresh.write_bytes(to_json(counters))
            fresh.rename(self._path.with_suffix(".json"))
            os.utime(self._path)  # temporary folders are cleaned up by age

    def release(self) -> None:
        """Release and remove the lock: the worker has ended cleanly."""
        self.unlock()
        self.remove(self._path.stem)

    def unlock(self) -> None:
        """Release the lock, and leave its files, as the kernel does for a worker that dies."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def died_here(cls, id: str) -> tuple[bool, bytes | None]:
        """Return whether a worker ran on this machine and is gone, and its last counters.

        Not while its supervisor finds out which page to blame: the heir would be the next to read it.
        """
        path = cls._of(id)
        try:
            note = path.with_suffix(".json").read_bytes() if path.with_suffix(".json").exists() else None
            if not path.exists():  # it ended, if its counters say so; or somebody has cleaned up
                return note is not None and b'"ended": true' in note, note
            if cls._is_locked(path) or cls._is_investigated(path, note):
                return False, None
            return True, note
        except OSError:
            return False, None

    @classmethod
    def allow_heirs(cls, id: str) -> None:
        """Say that the death of a worker was dealt with; its supervisor calls it."""
        with suppress(OSError):
            if id and cls._of(id).exists():
                cls._of(id).with_suffix(DEALT_WITH).touch()

    @classmethod
    def _is_investigated(cls, path: Path, note: bytes | None) -> bool:
        """Tell whether a dead worker's supervisor is alive and has not dealt with the death yet."""
        machine = ""
        with suppress(ValueError, TypeError, AttributeError):
            machine = str(json.loads(note or b"{}").get("machine", ""))
        supervisor = cls._of(machine) if machine.isalnum() else None
        if supervisor is None or not supervisor.exists() or not cls._is_locked(supervisor):
            return False
        return not path.with_suffix(DEALT_WITH).exists()

    @staticmethod
    def _is_locked(path: Path) -> bool:
        found = _lock(path)
        if found is not None:
            os.close(found)
        return found is None

    @classmethod
    def remove(cls, id: str) -> None:
        """Remove the files of a worker that is gone."""
        for suffix in (".lock", ".json", ".new", DEALT_WITH):
            cls._of(id).with_suffix(suffix).unlink(missing_ok=True)

    @staticmethod
    def _of(id: str) -> Path:
        folder = Path(tempfile.gettempdir()) / f"crawler-{os.getuid()}-{boot()}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{id}.lock"


def _lock(path: Path, how: int = 0) -> int | None:
    """Open a file and lock it until it is closed; None if another process has locked it.

    By the kernel's own call: filelock would take a twentieth of the CPU of a crawl of one page to load.
    """
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | how, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        os.close(file)
        raise
    return file
