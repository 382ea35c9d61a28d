"""A machine's view of the file server: what a mount caches, loses, delays and gets wrong.

The profiles are those of the mounts that were measured (manual/design.md and deploy/README.md); times are a fifth of
the real ones, and so are the program's `heartbeat` and `dead_after` in the simulation.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from simulation.disk import Disk, Node, error
from simulation.world import Machine, World

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Profile:
    """What one kind of mount does."""

    name: str
    kind: str  # as /proc/self/mountinfo calls it
    latency: float  # seconds of one operation, on average
    listing: float = 0.0  # seconds for which a listing is cached, unless this machine changes the folder
    missing: float = 0.0  # seconds for which a name that was missing is believed to be missing
    replaced: int = errno.ESTALE  # what a reader may meet while another machine replaces a file
    away: int = errno.EIO  # while the server is gone; 0 if calls hang instead
    full: int = 0  # what a full disk or a used-up quota is reported as; 0 if as what it is
    is_shared: bool = True  # several machines
    loses: bool = True  # whether a power cut of the server loses what was not synced


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("local", "ext4", 0.0003, is_shared=False),
        Profile("sshfs", "fuse.sshfs", 0.002, listing=4.0, replaced=errno.ENOENT, full=errno.EPERM, loses=False),
        Profile("nfs3", "nfs", 0.001, listing=0.2, missing=4.0, away=0, loses=False),
        Profile("gluster", "fuse.glusterfs", 0.003, missing=0.2, away=errno.ENOTCONN),
        Profile("moosefs", "fuse.mfs", 0.002, listing=0.2, missing=0.2, away=0, loses=False),
    )
}


@dataclass(slots=True)
class Failing:
    """The next operations of one kind fail, all of them: a program that tries again at once does not get by."""

    what: str = ""
    where: str = ""  # how the path of the folder begins
    left: int = 0
    error: int = errno.EIO
    is_done: bool = False  # whether the operation is done, and only its reply is lost


class Mount:
    """The view of one machine."""

    def __init__(self, world: World, machine: Machine, disk: Disk, profile: Profile) -> None:
        self.world, self.machine, self.disk, self.profile = world, machine, disk, profile
        self.fault = 0.0  # how often an operation fails, before or after it is done
        self.away_until = self.hangs_until = 0.0
        self.failing = Failing()  # operations
        self.ambush: Callable[[str], bool] | None = None  # what happens before the next operation that it waits for
        self.folder = ""  # in which something is to be renamed or removed, or that is to be synced
        self.generation = 0  # of the server, as far as handles are concerned
        self._listings: dict[int, tuple[float, list[str]]] = {}
        self._missing: dict[int, dict[str, float]] = {}  # inode of a folder -> name -> since when

    def call(self, what: str, act: Callable[[], Result], retransmitted: int = 0) -> Result:
        """Make one operation: it takes time, and may fail before it is done or after.

        `retransmitted` is the error of a second attempt, when the reply to the first was lost.
        """
        world, profile = self.world, self.profile
        world.pause(profile.latency * (0.5 + world.random.random()))
        if self.ambush and self.ambush(what):
            self.ambush = None
            world.effects["ambush"] += 1
            world.pause(0.0)
        while world.now < self.hangs_until:
            world.effects["hang"] += 1
            world.pause(self.hangs_until - world.now + 0.001)
        if world.now < self.away_until:
            world.effects["away"] += 1
            if profile.away:
                raise error(profile.away)
            world.pause(self.away_until - world.now + 0.001)
        if self.failing.left and what == self.failing.what and self.folder.startswith(self.failing.where):
            return self._fail(act)
        if not self.fault:
            return act()
        dice = world.random.random()
        if dice < self.fault / 2:
            world.note(f"fault before {what}")
            world.effects["fault before"] += 1
            raise error(errno.EIO)
        result = act()
        if dice < self.fault:
            world.note(f"fault after {what}")
            world.effects["fault after"] += 1
            raise error(retransmitted if retransmitted and dice < 0.75 * self.fault else errno.EIO)
        return result

    def _fail(self, act: Callable[[], Result]) -> Result:
        """Fail one of several operations in a row, before it is done or after."""
        failing = self.failing
        failing.left -= 1
        self.world.note(f"{failing.what} in {self.folder} fails with {errno.errorcode[failing.error]}")
        self.world.effects["failed in a row"] += 1
        if failing.is_done:
            act()
        raise error(failing.error)

    # ---- what this machine sees

    def names(self, folder: Node) -> list[str]:
        """List a folder, perhaps as it was a while ago."""
        known = self._listings.get(folder.inode)
        if known and self.world.now - known[0] < self.profile.listing:
            return list(known[1])
        names = sorted(folder.entries)
        if self.profile.listing:
            self._listings[folder.inode] = self.world.now, names
        shuffle(self.world.random, names)
        return list(names)

    def look_up(self, folder: Node, name: str) -> Node:
        """Return what has a name, unless this machine believes that nothing has."""
        if self._missing and (missing := self._missing.get(folder.inode)):
            since = missing.get(name)
            if since is not None and self.world.now - since < self.profile.missing:
                raise error(errno.ENOENT)
        node = folder.entries.get(name)
        if node is None:
            if self.profile.missing:
                self._missing.setdefault(folder.inode, {})[name] = self.world.now
            raise error(errno.ENOENT)
        return node

    def check_replaced(self, node: Node) -> None:
        """Fail to open a file that another machine has just put in the place of another one."""
        when, who = node.replaced
        if who is not self and self.world.now - when < 0.3 and self.world.random.random() < 0.3:
            raise error(self.profile.replaced)

    def forget(self) -> None:
        """The machine has started anew: it has cached nothing."""
        self._listings.clear()
        self._missing.clear()

    def changed(self, folder: Node) -> None:
        """This machine has changed a folder: it drops what it has cached of it."""
        self._listings.pop(folder.inode, None)
        self._missing.pop(folder.inode, None)


def shuffle(random: Random, items: list[str]) -> None:
    """`random.shuffle` in half the time: it draws the same numbers."""
    get = random.getrandbits
    for last in range(len(items) - 1, 0, -1):
        bits = (last + 1).bit_length()
        other = get(bits)
        while other > last:
            other = get(bits)
        items[last], items[other] = items[other], items[last]
