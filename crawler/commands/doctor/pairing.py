"""The pairing folder inside the store, where the doctors of two machines find each other and run all tests.

    .doctor/<id>@<n>.<state>    a doctor's heartbeat; n grows, and the state says whether it waits for a partner
    .doctor/<id>/               its own folder; two pair by the names `join-<other>` and `with-<other>` in it

No clocks are compared: a doctor is alive while its n grows. The smallest id of those that wait leads; the others ask to
join it, and it picks one.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread

from crawler.errors import StoreAway, StoreError
from crawler.store.mount import Files

FOLDER = ".doctor"
TESTING, WAITING, ASKING, BUSY = "testing", "waiting", "asking", "busy"
HEARTBEAT = 0.5  # seconds
DEAD_AFTER = 30  # seconds without a new heartbeat
JOIN_TIMEOUT = 45  # seconds that we wait for the leader's choice
BUSY_TIMEOUT = 120  # seconds more that we wait for a doctor that is still testing alone
HEARTBEAT_NAME = re.compile(r"([0-9a-f]{8})@(\d+)\.(\w+)")
ID = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two doctors that found each other; their messages are in the leader's folder."""

    leader: str
    me: str
    other: str


@dataclass(slots=True)
class LastSeen:
    """Another doctor: the number of its last heartbeat, since when, and whether it ever grew."""

    number: int
    since: float
    grew: bool = False


class Pairing:
    """A doctor's use of the pairing folder: enter, meet, leave. `beat` is called after each heartbeat."""

    def __init__(self, root: str, beat: Callable[[], None]) -> None:
        self.root = root
        self.me = secrets.token_hex(4)
        self.files = Files(f"{root}/{FOLDER}", self.me)
        self.state = TESTING
        self.unresponsive: set[str] = set()  # alive, but did not let us join
        self._seen: dict[str, LastSeen] = {}
        self._beat = beat
        self._over = Event()
        self._heartbeat = Thread(target=self._send_heartbeats, daemon=True)

    def enter(self) -> None:
        """Make our folder and start the heartbeat."""
        outside = Files(self.root, self.me)
        outside.share_mode()
        for left in range(4, -1, -1):
            outside.make(FOLDER)
            if os.path.islink(self.files.root):
                raise StoreError(f"{self.files.root} is a symbolic link, which could lead anywhere; remove it")
            try:
                self.files.make(self.me)
                break
            except StoreAway:  # the last doctor to leave removes the folder, maybe just now
                if not left:
                    raise
        self._heartbeat.start()
        self.look()

    def leave(self) -> None:
        """Remove our files, those of killed doctors, and the pairing folder if nobody else is in it."""
        self._over.set()
        if self._heartbeat.ident:
            self._heartbeat.join(DEAD_AFTER)
        for id in [*self._dead(), self.me]:
            self._remove(id)
        with suppress(OSError):
            os.rmdir(self.files.root)

    def look(self) -> dict[str, str]:
        """Return the state of each other doctor that is alive."""
        now = time.monotonic()
        states: dict[str, str] = {}
        for name in self.files.names(""):
            beat = HEARTBEAT_NAME.fullmatch(name)
            id, number, state = (beat[1], int(beat[2]), beat[3]) if beat else (name, 0, "")
            if id == self.me or not ID.fullmatch(id):
                continue
            seen = self._seen.setdefault(id, LastSeen(number, now))
            if number > seen.number:
                seen.grew = seen.number > 0 or seen.grew
                seen.number, seen.since = number, now
            if number == seen.number and beat:
                states[id] = state
        return {id: state for id, state in states.items() if self.is_alive(id)}

    def is_alive(self, id: str) -> bool:
        """Return whether another doctor had a heartbeat when we last looked."""
        seen = self._seen.get(id)
        return bool(seen and seen.grew and time.monotonic() - seen.since < DEAD_AFTER)

    def meet(self, seconds: float) -> Pair | None:
        """Wait for another doctor and pair with it; None if there is none."""
        self.state = WAITING
        began = time.monotonic()
        while True:
            others = self.look()
            found = self._join(others) or self._lead(others)
            if found:
                self.state = BUSY
                return found
            waited = time.monotonic() - began
            is_busy = {TESTING, ASKING} & set(others.values()) and waited < seconds + BUSY_TIMEOUT
            if waited > seconds and not is_busy:
                return None
            time.sleep(0.2)

    def _join(self, others: dict[str, str]) -> Pair | None:
        """Ask to join the smallest id of those that wait, if it is smaller than ours."""
        waiting = sorted(id for id, state in others.items() if state == WAITING and id not in self.unresponsive)
        if not waiting or waiting[0] > self.me:
            return None
        leader = waiting[0]
        request = f"{leader}/join-{self.me}"
        self.state = ASKING
        with suppress(StoreError):  # its folder may be gone by now
            self.files.create(request)
            if self._is_chosen(leader):
                return Pair(leader, self.me, leader)
            self.files.drop(request)
        self.state = WAITING
        return None

    def _is_chosen(self, leader: str) -> bool:
        limit = time.monotonic() + JOIN_TIMEOUT
        while time.monotonic() < limit:
            state = self.look().get(leader, "")
            self.files.freshen(leader)
            chosen = [name for name in self.files.names(leader) if name.startswith("with-")]
            if chosen or state.startswith((ASKING, BUSY)) or not self.is_alive(leader):
                return chosen == [f"with-{self.me}"]
            time.sleep(0.1)
        self.unresponsive.add(leader)
        return False

    def _lead(self, others: dict[str, str]) -> Pair | None:
        """Pick one of those that asked to join us."""
        self.files.freshen(self.me)
        for name in sorted(self.files.names(self.me)):
            other = name.removeprefix("join-")
            if other != name and other in others:
                self.files.create(f"{self.me}/with-{other}")
                return Pair(self.me, self.me, other)
        return None

    def _dead(self) -> list[str]:
        with suppress(StoreError):
            self.look()
        return [id for id, seen in self._seen.items() if time.monotonic() - seen.since >= DEAD_AFTER]

    def _remove(self, id: str) -> None:
        """Remove all files of a doctor; what cannot be removed now, a later one will."""
        with suppress(OSError, StoreError):
            for folder in [id, *(f"{id}/{name}" for name in self.files.names(id))]:
                with suppress(StoreError):  # most of them are not folders
                    self.files.freshen(folder)
            shutil.rmtree(f"{self.files.root}/{id}", ignore_errors=True)
            for name in os.listdir(self.files.root):
                if name.lstrip(".").startswith((f"{id}@", f"{id}-")):
                    os.unlink(f"{self.files.root}/{name}")

    def _send_heartbeats(self) -> None:
        """Make the new name first and remove the old one then: each listing shows one."""
        number, old = 0, ""
        while not self._over.is_set():
            number += 1
            new = f"{self.me}@{number}.{self.state}"
            with suppress(StoreError):  # the tests meet the same error, and report it
                self.files.create(new)
                if old:
                    self.files.drop(old)
                old = new
                self._beat()
            self._over.wait(HEARTBEAT)
