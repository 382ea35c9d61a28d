"""The store's lock, `.lock`: one machine at a time makes, rehydrates or repairs a store.

filelock's soft lock is the name, and tells at once when its holder died on this machine. A holder on another machine
shows heartbeats, the names `.lock@<id>@<n>`; whoever sees no new one for `dead_after` seconds of its own clock renames
the lock away, which one machine can do, and takes it. Not promised: that a holder that hung for so long does nothing
more. The lock saves work that would be done twice; what is done under it is safe if two do it, and asks `check` before
a step that is not.
"""

from __future__ import annotations

import errno
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.errors import Busy, DiskFull, StoppedWaiting, StoreError
from crawler.store.mount import Files

if TYPE_CHECKING:
    from filelock import SoftFileLock

LOCK = ".lock"
POLL_INTERVAL = 0.5  # seconds between looks at a lock that another machine holds
MAX_REJECTIONS = 20  # of the mount, before they are taken for an error

Show = Callable[[str], object]


class StoreLock:
    """A lock with a heartbeat that one machine holds, and the way to wait for it or inherit it."""

    def __init__(self, files: Files, heartbeat: float, dead_after: float, name: str = LOCK) -> None:
        """`name` is that of the lock, in the store's folder."""
        from filelock import SoftFileLock  # here: it loads slowly, and most runs need no lock

        self._rejections = 0
        self._files, self._heartbeat, self._dead_after = files, heartbeat, dead_after
        self._soft: SoftFileLock = SoftFileLock(Path(files.root) / name)
        self._lock, self._begin = name, f"{name}@"
        self._me = secrets.token_hex(4)
        self._beats = 0
        self._lost = False
        self._released = threading.Event()

    @contextmanager
    def held(self, what: str, show: Show, is_stopped: Callable[[], bool]) -> Iterator[StoreLock]:
        """Hold the lock; wait for whoever has it, and say so once, until `is_stopped` or its holder is dead."""
        self._acquire(what, show, is_stopped)
        thread = threading.Thread(target=self._run, daemon=True, name="lock")
        thread.start()
        try:
            yield self
        finally:
            self._released.set()
            thread.join(self._dead_after)
            self._soft.release()
            if not self._lost:
                with suppress(StoreError):  # nobody looks at heartbeats where there is no lock
                    self._files.drop(self._name(self._beats))

    def check(self) -> None:
        """Raise an error if another machine has taken the lock, because this one hung."""
        if self._lost:
            raise Busy(f"{self._files.root}: this machine hung, and another one does its work; run again")

    # ---- to get it

    def _acquire(self, what: str, show: Show, is_stopped: Callable[[], bool]) -> None:
        seen, still, looked, told = "", 0.0, time.monotonic(), False
        while not self._try():
            if is_stopped():
                raise StoppedWaiting(f"stopped while another machine was {what}; the same command resumes")
            now, sign = time.monotonic(), self._sign()
            # Time in which we could not look counts for little: the holder may have hung with us.
            still = still + min(now - looked, 2 * POLL_INTERVAL) if sign == seen else 0.0
            seen, looked = sign, now
            if sign and still >= self._dead_after:
                self._inherit(show)
                seen, still = "", 0.0
                continue
            if not told and sign:
                show(f"waiting: another machine is {what}")
                told = True
            time.sleep(min(POLL_INTERVAL, self._heartbeat))
        self._drop_beats()  # of a holder that died on this machine
        self._beat()

    def _try(self) -> bool:
        """Take the lock if nobody has it; sshfs says EPERM to all but one of those who create a name together."""
        from filelock import Timeout

        try:
            self._soft.acquire(timeout=0)
        except Timeout:
            return False
        except OSError as error:
            self._rejections += 1
            if error.errno == errno.EPERM and self._rejections < MAX_REJECTIONS:
                return False  # whoever created it may have released it by now
            raise self._files.translate(error, self._lock) from error
        return True

    def _sign(self) -> str:
        """Return what changes while the holder is alive, from a fresh listing; empty if there is no lock."""
        self._files.freshen("")
        found = self._files.all_names("")
        names = sorted(name for name in found if name == self._lock or name.startswith(self._begin))
        return "\n".join([*names, (self._files.get(self._lock) or b"").hex()]) if self._lock in names else ""

    def _inherit(self, show: Show) -> None:
        """Remove the lock of a dead machine; of those who try, one wins, and all begin again."""
        aside = f"{self._lock}-dead-{self._me}"
        if self._files.claim(self._lock, aside):
            show(f"the machine that had locked the store shows no heartbeat for {self._dead_after:.0f} s: taking over")
            self._drop_beats()
            self._files.drop(aside)

    def _drop_beats(self) -> None:
        """Remove the heartbeats of those who had the lock before."""
        for name in self._files.all_names(""):
            if name.startswith(self._begin):
                self._files.drop(name)

    # ---- to keep it

    def _run(self) -> None:
        while not self._released.wait(self._heartbeat):
            with suppress(StoreError):  # the mount is away: the next one, or an heir
                self._lost = self._lost or not self._beat()

    def _beat(self) -> bool:
        """Show a heartbeat, the new name first; False if an heir has the lock."""
        old, new = self._beats, self._beats + 1
        try:
            self._files.create(self._name(new))
        except DiskFull:  # a rename needs no space
            if not old or not self._files.claim(self._name(old), self._name(new)):
                raise
            old = 0
        self._beats = new
        if old and not self._files.drop(self._name(old)) and not self._soft.is_lock_held_by_us:
            self._files.drop(self._name(new))
            return False
        return True

    def _name(self, beat: int) -> str:
        return f"{self._begin}{self._me}@{beat:06d}"
