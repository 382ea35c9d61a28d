"""The lobby: a folder inside the store where doctors of several machines find each other, and all that they touch.

    .doctor/<id>@<n>.<state>    a doctor's sign of life; n grows, and the state says whether it waits for a partner
    .doctor/<id>/               its own folder; the names `join-<other>` and `with-<other>` in it are how two pair

Nobody's clock is read: a doctor is alive when its n grows while we watch. Of those that wait the smallest id leads;
another asks to join it, and the leader picks one.
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
PULSE = 0.5  # seconds between signs of life
STILL = 30  # one without a new sign of life for so long was killed
ANSWER = 45  # seconds that one who asked to join waits for a yes
COMING = 120  # seconds more that one who has still something else to do is waited for
SIGN = re.compile(r"([0-9a-f]{8})@(\d+)\.(\w+)")
OWN = re.compile("[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Pair:
    """Two doctors that found each other; they talk in the leader's folder."""

    leader: str
    me: str
    other: str


@dataclass(slots=True)
class Life:
    """What we saw of another doctor: the number of its last sign, since when, and whether it ever grew."""

    number: int
    since: float
    grew: bool = False


class Lobby:
    """One doctor's place in the lobby: enter, meet, leave. `beat` is called after each sign of life."""

    def __init__(self, root: str, beat: Callable[[], None]) -> None:
        self.root = root
        self.me = secrets.token_hex(4)
        self.files = Files(f"{root}/{FOLDER}", self.me)
        self.state = TESTING
        self.deaf: set[str] = set()  # those that live but did not answer
        self._lives: dict[str, Life] = {}
        self._beat = beat
        self._over = Event()
        self._heartbeat = Thread(target=self._live, daemon=True)

    def enter(self) -> None:
        """Make our folder and begin to give signs of life."""
        outside = Files(self.root, self.me)
        outside.share_mode()
        for left in range(4, -1, -1):
            outside.make(FOLDER)
            if os.path.islink(self.files.root):
                raise StoreError(f"{self.files.root} is a link, which could lead anywhere; remove it")
            try:
                self.files.make(self.me)
                break
            except StoreAway:  # the last doctor to leave removes the lobby, perhaps just now
                if not left:
                    raise
        self._heartbeat.start()
        self.look()

    def leave(self) -> None:
        """Remove what we made, what killed doctors left, and the lobby if nobody else is in it."""
        self._over.set()
        if self._heartbeat.ident:
            self._heartbeat.join(STILL)
        for id in [*self._dead(), self.me]:
            self._remove(id)
        with suppress(OSError):
            os.rmdir(self.files.root)

    def look(self) -> dict[str, str]:
        """The state of each other doctor that is alive."""
        now = time.monotonic()
        states: dict[str, str] = {}
        for name in self.files.names(""):
            sign = SIGN.fullmatch(name)
            id, number, state = (sign[1], int(sign[2]), sign[3]) if sign else (name, 0, "")
            if id == self.me or not OWN.fullmatch(id):
                continue
            life = self._lives.setdefault(id, Life(number, now))
            if number > life.number:
                life.grew = life.number > 0 or life.grew
                life.number, life.since = number, now
            if number == life.number and sign:
                states[id] = state
        return {id: state for id, state in states.items() if self.lives(id)}

    def lives(self, id: str) -> bool:
        """Whether another doctor gave signs of life when we last looked."""
        life = self._lives.get(id)
        return bool(life and life.grew and time.monotonic() - life.since < STILL)

    def meet(self, seconds: float) -> Pair | None:
        """Wait for another doctor and pair with it; None if nobody came."""
        self.state = WAITING
        began = time.monotonic()
        while True:
            others = self.look()
            found = self._join(others) or self._lead(others)
            if found:
                self.state = BUSY
                return found
            waited = time.monotonic() - began
            comes = {TESTING, ASKING} & set(others.values()) and waited < seconds + COMING
            if waited > seconds and not comes:
                return None
            time.sleep(0.2)

    def _join(self, others: dict[str, str]) -> Pair | None:
        """Ask the smallest of those that wait, if it is smaller than we are."""
        waiting = sorted(id for id, state in others.items() if state == WAITING and id not in self.deaf)
        if not waiting or waiting[0] > self.me:
            return None
        leader = waiting[0]
        ask = f"{leader}/join-{self.me}"
        self.state = ASKING
        with suppress(StoreError):  # its folder may be gone by now
            self.files.create(ask)
            if self._said_yes(leader):
                return Pair(leader, self.me, leader)
            self.files.drop(ask)
        self.state = WAITING
        return None

    def _said_yes(self, leader: str) -> bool:
        limit = time.monotonic() + ANSWER
        while time.monotonic() < limit:
            state = self.look().get(leader, "")
            self.files.freshen(leader)
            chosen = [name for name in self.files.names(leader) if name.startswith("with-")]
            if chosen or state.startswith((ASKING, BUSY)) or not self.lives(leader):
                return chosen == [f"with-{self.me}"]
            time.sleep(0.1)
        self.deaf.add(leader)
        return False

    def _lead(self, others: dict[str, str]) -> Pair | None:
        """Pick one of those that asked us."""
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
        return [id for id, life in self._lives.items() if time.monotonic() - life.since >= STILL]

    def _remove(self, id: str) -> None:
        """All that a doctor left; what cannot be removed now, a later one will."""
        with suppress(OSError, StoreError):
            for folder in [id, *(f"{id}/{name}" for name in self.files.names(id))]:
                with suppress(StoreError):  # most of them are no folders
                    self.files.freshen(folder)
            shutil.rmtree(f"{self.files.root}/{id}", ignore_errors=True)
            for name in os.listdir(self.files.root):
                if name.lstrip(".").startswith((f"{id}@", f"{id}-")):
                    os.unlink(f"{self.files.root}/{name}")

    def _live(self) -> None:
        """A new sign first, then the old one goes: each listing shows one."""
        number, old = 0, ""
        while not self._over.is_set():
            number += 1
            sign = f"{self.me}@{number}.{self.state}"
            with suppress(StoreError):  # the tests meet the same trouble, and tell
                self.files.create(sign)
                if old:
                    self.files.drop(old)
                old = sign
                self._beat()
            self._over.wait(PULSE)
