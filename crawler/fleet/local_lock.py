"""A worker's trace on its machine's own disk: after a crash, the same machine knows at once who is dead."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from crawler.store.records import to_json


@cache
def boot() -> str:
    """What tells this machine from others that share its temporary folder, where the kernel says it."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return "boot"


class Trace:
    """What a worker leaves on its machine's own disk: a lock that ends with it, and its last counters.

    So after a crash the same machine need not wait to know who is dead, and nothing is missing from the counts. It says
    nothing of workers on other machines; those are watched.
    """

    def __init__(self, id: str) -> None:
        self._path = self._of(id)
        self._lock = FileLock(self._path, timeout=0, thread_local=False)
        with suppress(OSError):  # without a trace, the others wait for their patience to end
            self._lock.acquire()

    def note(self, counters: dict[str, Any]) -> None:
        """Note counters that the next pulse would have shown."""
        fresh = self._path.with_suffix(".new")
        with suppress(OSError):  # a full or a cleaned disk of this machine's own: the next pulse will do
            fresh.write_bytes(to_json(counters))
            fresh.rename(self._path.with_suffix(".json"))
            os.utime(self._path)  # programs that clean up go by age

    def wipe(self) -> None:
        """The worker has ended in good order."""
        self._lock.release()
        self.forget(self._path.stem)

    @classmethod
    def of_the_dead(cls, id: str) -> tuple[bool, bytes | None]:
        """(whether a worker ran on this machine and is gone, its last counters)."""
        path = cls._of(id)
        try:
            note = path.with_suffix(".json").read_bytes() if path.with_suffix(".json").exists() else None
            if not path.exists():  # it ended by itself, if it says so; or somebody has cleaned up
                return note is not None and b'"ended": true' in note, note
            with FileLock(path, timeout=0):
                return True, note
        except (Timeout, OSError):
            return False, None

    @classmethod
    def forget(cls, id: str) -> None:
        """Remove a trace that has told all it can."""
        for suffix in (".lock", ".json", ".new"):
            cls._of(id).with_suffix(suffix).unlink(missing_ok=True)

    @staticmethod
    def _of(id: str) -> Path:
        folder = Path(tempfile.gettempdir()) / f"crawler-{os.getuid()}-{boot()}"
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{id}.lock"
