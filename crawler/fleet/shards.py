"""Who owns which shard: claim, release, bury; the pulse that shows who is alive; fair shares; the end of the crawl.

The lease guards manners, never data: two owners of one shard cost some requests made twice and spoil nothing. No clock
of another machine is read: a worker is dead when its pulse has stood still for `patience` seconds of our own watching.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from typing import Any

from crawler.errors import DiskFull
from crawler.fleet.heartbeats import ALL, END, Heartbeat, Watch
from crawler.fleet.local_lock import Trace
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.store import shard_name

FREE = "free"


class Shards:
    """A worker's standing among the others: its pulse, its shards, and what it believes of the rest."""

    def __init__(self, files: Files, settings: Settings, crowd: int = 1) -> None:
        self.files = files
        self.me = files.me
        self.count = settings.shards
        self.dead_after = settings.dead_after
        self.crowd = crowd  # workers that start together with us: without it the first would take everything
        self.watch = Watch(settings.dead_after, settings.heartbeat)
        self.heartbeat = Heartbeat(self.me, 0)
        self.born = self.beaten = time.monotonic()
        self.trace = Trace(self.me)
        self.inboxes: dict[int, int] = {}  # shard -> first shard of its owner, as last seen
        self.words: set[str] = set()  # names in workers/ that are no pulses: what operators and machines say
        self._proof: dict[str, str] = {}  # the idle workers and their marks by which the crawl is over
        self._heard: set[str] = set()  # the workers whose last words we have read
        self._missing: dict[int, int] = {}
        self._before_end: dict[str, Heartbeat] | None = None

    # ---- the pulse

    def beat(self, counters: dict[str, Any], idle: str) -> bool:
        """Show a sign of life (and that we are idle, by a mark), and look at the others'; False if we were buried."""
        began = time.monotonic()  # the others may see it from now on, and count from then
        old, new = self.heartbeat, Heartbeat(self.me, self.heartbeat.beat + 1, idle)
        self.trace.note(counters)
        if not self._renew(old, new, counters) and self._is_marked_dead():
            self.files.claim(new.name, Heartbeat(self.me, new.beat, END).name)
            return False
        self.heartbeat = new
        self.beaten = began
        # We have just changed this folder, so this listing is a new one on every mount.
        names = self.files.names("workers")
        self.words = {name for name in names if "@" not in name}
        self.watch.look(filter(None, map(Heartbeat.of, names)), time.monotonic())
        return True

    def _renew(self, old: Heartbeat, new: Heartbeat, counters: dict[str, Any]) -> bool:
        """Show the new pulse, then take the old one away; False if that was gone.

        On a full disk the old file, with old counters, gets the new name: a sign of life needs no room.
        """
        try:
            self.files.put(new.name, to_json(counters))
        except DiskFull:
            if not old.beat or not self.files.claim(old.name, new.name):
                raise
            return True
        return not old.beat or self.files.drop(old.name)

    def _is_marked_dead(self) -> bool:
        """Whether our old pulse is marked, and not just dropped by a call of ours whose answer was lost."""
        return any(heartbeat.id == self.me and heartbeat.mark == END for heartbeat in self._heartbeats())

    def _heartbeats(self) -> list[Heartbeat]:
        return [heartbeat for heartbeat in map(Heartbeat.of, self.files.names("workers")) if heartbeat]

    def crowd_at_work(self) -> int:
        """How many workers are alive, we among them."""
        return len({heartbeat.id for heartbeat in self.watch.alive()} | {self.me})

    def is_sure(self) -> bool:
        """Whether we may ask hosts: after half the patience without a pulse, others may be about to bury us."""
        return time.monotonic() - self.beaten < self.dead_after / 2

    def say_goodbye(self, counters: dict[str, Any]) -> None:
        """Leave the counters behind under a name that nobody waits for."""
        self.trace.note({**counters, "ended": True})
        last = {**counters, "proof": self._proof} if self._proof else counters
        self._renew(self.heartbeat, Heartbeat(self.me, self.heartbeat.beat + 1, END), last)
        self.trace.wipe()

    # ---- shards

    def balance(self, mine: set[int]) -> tuple[dict[int, bool], list[int]]:
        """(shards that are now ours, shards to give back), so that all live workers have a fair share.

        Of each gained shard it is said whether it was inherited: whoever had it did not give it back.
        """
        self.files.freshen("shards")
        owners = read_owners(self.files, self.count)
        self._mark_the_dead(owners)
        self._mend(owners)
        lost = [shard for shard in mine if owners.get(shard, {self.me}).isdisjoint({self.me})]
        share = self._share()
        over = sorted(mine - set(lost))[share:]
        # Claimed before, but the mount went away before we could read it: from whom, we do not know any more.
        gained = {shard: True for shard, names in owners.items() if self.me in names and shard not in mine}
        gained |= self._gain(owners, share - len(mine) - len(gained))
        self.inboxes = inboxes(owners)
        return gained, [*lost, *over]

    def _share(self) -> int:
        """As many shards as each live worker should have, the first ones in order of their ids one more."""
        alive = sorted({heartbeat.id for heartbeat in self.watch.alive()} | {self.me})
        if len(alive) >= self.crowd or time.monotonic() - self.born > 5:
            self.crowd = 1  # they are here, or they are not coming
        each, more = divmod(self.count, max(len(alive), self.crowd))
        return each + (alive.index(self.me) < more)

    def _gain(self, owners: dict[int, set[str]], wanted: int) -> dict[int, bool]:
        gained: dict[int, bool] = {}
        for shard in random.sample(sorted(owners), len(owners)):  # so that workers who start together seldom meet
            if len(gained) >= wanted:
                break
            names = owners[shard]
            owner = next((name for name in names if name == FREE or self._is_dead(name)), None)
            if owner and len(names) == 1 and self.claim(shard, owner):
                gained[shard] = owner != FREE
                owners[shard] = {self.me}
        return gained

    def claim(self, shard: int, owner: str = FREE) -> bool:
        """Make a free or a dead worker's shard ours; True for exactly one worker."""
        number = shard_name(shard)
        return self.files.claim(f"shards/{number}@{owner}", f"shards/{number}@{self.me}")

    def release(self, shard: int) -> None:
        """Give a shard back; that somebody else has it already does no harm."""
        number = shard_name(shard)
        self.files.claim(f"shards/{number}@{self.me}", f"shards/{number}@{FREE}")

    def _mark_the_dead(self, owners: dict[int, set[str]]) -> None:
        """Find out who is dead before shares are counted: the dead have none."""
        for id in set().union(*owners.values(), (heartbeat.id for heartbeat in self.watch.alive())):
            self._is_dead(id)

    def _is_dead(self, id: str) -> bool:
        if id in (self.me, FREE):
            return False
        self.watch.expect(id, time.monotonic())
        if self.watch.is_marked_dead(id):
            return True
        if self.watch.is_dead(id):
            return self._mark_dead(id, last=self.watch.seen[id].heartbeat.beat)
        died_here, note = Trace.of_the_dead(id)
        if died_here and self._mark_dead(id, note):
            Trace.forget(id)
            return True
        return False

    def _mark_dead(self, id: str, note: bytes | None = None, last: float = float("inf")) -> bool:
        """Mark a dead worker's pulse, so that nobody has to wait for it again and it knows if it comes back.

        False if it has beaten since its `last` sign of life: whoever is first at its old pulse, it or we, decides.
        """
        heartbeats = [heartbeat for heartbeat in self._heartbeats() if heartbeat.id == id]
        if not any(heartbeat.mark == END for heartbeat in heartbeats):
            marked = (
                [end for end in map(self._mark, heartbeats) if end] if all(p.beat <= last for p in heartbeats) else []
            )
            if heartbeats and not marked:
                return False
            for end in marked:
                if note:
                    self.files.put(end, note)
        self.watch.mark_dead(id)
        return True

    def _mark(self, heartbeat: Heartbeat) -> str | None:
        """The new name of a pulse that is at its end; None if it is gone."""
        end = Heartbeat(heartbeat.id, heartbeat.beat, END).name
        return end if self.files.claim(heartbeat.name, end) else None

    def _mend(self, owners: dict[int, set[str]]) -> None:
        """Put back a shard whose name is gone (somebody tidied up by hand), and drop a second name of one of ours."""
        for shard in range(self.count):
            names = owners.get(shard, set())
            self._missing[shard] = 0 if names else self._missing.get(shard, 0) + 1
            if self._missing[shard] > 5:
                self.files.create(f"shards/{shard_name(shard)}@{FREE}")
            if len(names) > 1:
                self._choose(shard, names)

    def _choose(self, shard: int, names: set[str]) -> None:
        """Leave a shard with one name: a live worker's before a dead one's or none, then the first in order."""
        living = {name for name in names if name != FREE and not self._is_dead(name)}
        keep = min(living or names)
        for name in names - {keep}:
            if name == self.me or name not in living:
                self.files.drop(f"shards/{shard_name(shard)}@{name}")
                names.discard(name)

    def own_still(self, shards: set[int]) -> set[int]:
        """Of these shards those whose names still say that they are ours, by a new listing."""
        self.files.freshen("shards")
        owners = read_owners(self.files, self.count)
        return {shard for shard in shards if self.me in owners.get(shard, ())}

    # ---- the end

    def any_idle(self) -> bool:
        """Whether a live worker had nothing to do when last seen: it waits for what others find."""
        return any(heartbeat.idle for heartbeat in self.watch.alive())

    def all_idle(self) -> bool:
        """Whether all live workers, by what we have seen, have nothing to do."""
        return all(heartbeat.idle for heartbeat in self.watch.alive())

    def all_is_done(self) -> bool:
        """Whether the crawl is over: ask after each beat.

        Two looks are compared. If every live worker was idle at both, for the same (k-th) time, and has beaten twice in
        between, then all were idle all the while, nobody handed anything over, and each has read all its inboxes and
        found nothing. Every shard must belong to one of them, so that every inbox was read.
        """
        now = {heartbeat.id: heartbeat for heartbeat in self.watch.alive()}
        if not self.all_idle() or not self._all_owned(set(now)):
            self._before_end = None
            return False
        before = self._before_end
        if before is None or before.keys() != now.keys() or any(before[id].mark != now[id].mark for id in now):
            self._before_end = now
            return False
        if not all(now[id].beat >= before[id].beat + 2 and now[id].mark.endswith(ALL) for id in now):
            return False
        self._proof = {id: heartbeat.mark for id, heartbeat in now.items()}
        return True

    def others_know_the_end(self) -> bool:
        """Whether one who has left has shown that the crawl is over, we being idle just as it saw us.

        Else each would have to look twice again after another has left, and take its shards, one after the other.
        """
        for seen in list(self.watch.seen.values()):
            id = seen.heartbeat.id
            if seen.heartbeat.mark == END and id not in self._heard:
                last = self.files.get(seen.heartbeat.name) or b""
                self._heard.add(id)
                with suppress(ValueError, TypeError, AttributeError):
                    proof = json.loads(last).get("proof", {})
                    if proof.get(self.me) in (self.heartbeat.mark, self.heartbeat.mark + ALL):
                        self._proof = proof
                        return True
        return False

    def _all_owned(self, ids: set[str]) -> bool:
        owners = read_owners(self.files, self.count)
        return len(owners) == self.count and all(names <= ids for names in owners.values())


def read_owners(files: Files, count: int) -> dict[int, set[str]]:
    """Whose each shard is, by the names in `shards/`; more than one only after somebody has meddled with them."""
    owners: dict[int, set[str]] = {}
    for name in files.names("shards"):
        number, at, owner = name.partition("@")
        if at and number.isdecimal() and int(number) < count:
            owners.setdefault(int(number), set()).add(owner)
    return owners


def inboxes(owners: dict[int, set[str]]) -> dict[int, int]:
    """For each shard that has an owner, the first shard of that owner: in its folder the owner looks most often."""
    firsts: dict[str, int] = {}
    for shard in sorted(owners):
        for name in owners[shard]:
            firsts.setdefault(name, shard)
    return {shard: firsts[min(names)] for shard, names in owners.items() if FREE not in names}
