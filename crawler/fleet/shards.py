"""Who owns which shard: claim, release and take over; our heartbeat; fair shares; the end of the crawl.

Ownership guards manners, never data: two owners of one shard cost some requests made twice and spoil nothing. No clock
of another machine is read: a worker is dead when we have watched for `dead_after` seconds without a new heartbeat.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from random import Random, SystemRandom
from typing import Any

from crawler.errors import DiskFull
from crawler.fleet.control import ABANDONED
from crawler.fleet.heartbeats import END, LATER, Heartbeat, Watch, heartbeats
from crawler.fleet.local_lock import LocalLock
from crawler.fleet.regions import ANYWHERE, Regions
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.inboxes import WHOLE, batch_names, folder, made_shards
from crawler.store.mount import Files, Run
from crawler.store.records import to_json
from crawler.store.store import shard_name
from crawler.terminal import many

FREE = "free"
LOST = "lost"  # the owner of a shard whose name was gone: nobody knows who owned it
RANDOM = SystemRandom()
JOIN_SECONDS = 5.0  # for workers that start together with us to show a heartbeat
MISSING_FOR = 2  # times `dead_after`: then a shard without a name is for others; a silent owner knows that it is dead


class Shards:
    """A worker among the others: its heartbeat, its shards, and who else is alive."""

    def __init__(
        self,
        files: Files,
        settings: Settings,
        starting: int = 1,
        clock: Clock = SYSTEM,
        random: Random = RANDOM,
        run: Run = map,
        row: int = 0,
        machine: str = "",
    ) -> None:
        """`run` calls a function for each item, several at a time where each call has latency.

        `row` is which of the workers of its machine this is; so many are `starting`.
        """
        self.files = files
        self.me = files.me
        self.count = settings.shards
        self._clock, self._random, self._run = clock, random, run
        self._order = _order(settings.shards, row, starting, Random(machine) if machine else random)
        self.dead_after = settings.dead_after
        self.starting = starting  # workers that start together: otherwise the first would take everything
        self.regions = Regions(settings)
        self.watch = Watch(settings.dead_after, settings.heartbeat)
        self.heartbeat = Heartbeat(self.me, 0)
        self.born = self.beaten = self._clock.monotonic()
        self._beaten_at = self._clock.time()  # the same by the wall clock
        self.local_lock = LocalLock(self.me)
        self.inboxes: dict[int, int] = {}  # shard -> first shard of its owner, as last seen
        self._owners: set[str] = set()  # the workers that have shards, as last seen
        self.orders: set[str] = set()  # names in workers/ that are not heartbeats: orders and announcements
        self._proof: dict[str, str] = {}  # the idle workers and their states that prove the end of the crawl
        self._heard: set[str] = set()  # workers that ended, and whose proof we have looked for
        self._held: set[int] = set()  # shards that were ours when we last looked
        self._missing: dict[int, float] = {}  # shard -> for how long we have seen no name of it
        self._mended = self.born
        self._before_end: dict[str, Heartbeat] | None = None

    # ---- the heartbeat

    def beat(self, counters: dict[str, Any], idle: str) -> bool:
        """Show a heartbeat, with a mark if we are idle, and look at the others'; False if we were marked dead."""
        began = self._clock.monotonic()  # the others may see the new heartbeat from now on, and count from then
        old, new = self.heartbeat, Heartbeat(self.me, self.heartbeat.beat + 1, idle)
        self.local_lock.note(counters)
        if not self._renew(old, new, counters):
            if self._is_marked_dead(new, self._heartbeats_of(self.me)):
                return False
            if self._has_been_away(ABANDONED / 2):  # half: clocks differ
                self.files.drop(new.name)  # `past` has our counters
                return False
            if self._has_been_away(self.dead_after) and self._held and not self.own_still(self._held):
                self.files.claim(new.name, Heartbeat(self.me, new.beat, END).name)  # somebody removed our mark
                return False
        self.heartbeat = new
        self.beaten, self._beaten_at = began, self._clock.time()
        # We have just changed this folder, so the listing is fresh on every mount.
        names = self.files.names("workers")
        found = heartbeats(names)
        self.orders = {name for name in names if "@" not in name}
        self.watch.look(found, self._clock.monotonic())
        return not self._is_marked_dead(new, found)

    def _renew(self, old: Heartbeat, new: Heartbeat, counters: dict[str, Any]) -> bool:
        """Write the new heartbeat, then remove the old one; False if that was gone.

        On a full disk the old file, with old counters, gets the new name: that needs no space.
        """
        try:
            self.files.put(new.name, to_json(counters))
        except DiskFull:
            if not old.beat or not self.files.claim(old.name, new.name):
                raise
            return True
        return not old.beat or self.files.drop(old.name)

    def _is_marked_dead(self, new: Heartbeat, found: list[Heartbeat]) -> bool:
        """Tell whether others have declared us dead, by the heartbeats found; if so, the `new` one says it, too."""
        if not any(heartbeat.id == self.me and heartbeat.mark == END for heartbeat in found):
            return False
        self.files.claim(new.name, Heartbeat(self.me, new.beat, END).name)
        return True

    def _has_been_away(self, seconds: float) -> bool:
        """Tell whether we showed no heartbeat for so long; to be asked if ours is gone.

        After `dead_after`, others may have marked it dead, and after ABANDONED merged it, too (see `past`). After a
        shorter time it was removed by a call of ours whose reply was lost. By both clocks: one stands still in a
        suspended machine.
        """
        return max(self._clock.monotonic() - self.beaten, self._clock.time() - self._beaten_at) >= seconds

    def _heartbeats_of(self, id: str) -> list[Heartbeat]:
        return [heartbeat for heartbeat in heartbeats(self.files.names("workers")) if heartbeat.id == id]

    def count_alive(self) -> int:
        """Return how many workers are alive, including us."""
        return len(self._alive())

    def count_ended(self) -> int:
        """Return how many workers have ended and left their files, as last seen."""
        return sum(seen.heartbeat.mark == END for seen in list(self.watch.seen.values()))

    def _alive(self) -> set[str]:
        return {heartbeat.id for heartbeat in self.watch.alive()} | {self.me}

    def is_sure(self) -> bool:
        """Tell whether we may send requests: not after half of `dead_after` without a heartbeat."""
        return self._clock.monotonic() - self.beaten < self.dead_after / 2

    def sign_off(self, counters: dict[str, Any]) -> None:
        """Show a last heartbeat that says we have ended."""
        self.local_lock.note({**counters, "ended": True})
        last = {**counters, "proof": self._proof} if self._proof else counters
        self._renew(self.heartbeat, Heartbeat(self.me, self.heartbeat.beat + 1, END), last)
        self.local_lock.release()

    # ---- shards

    def balance(self, mine: set[int]) -> tuple[dict[int, bool], list[int]]:
        """Return the shards that became ours and those to release, so that all live workers have a fair share.

        Of each that became ours it says whether it was inherited, that is, not released by its last owner.
        """
        self.files.freshen("shards")
        owners = read_owners(self.files, self.count)
        self._mark_the_dead(owners)
        self._mend(owners, mine)
        lost = [shard for shard in mine if owners.get(shard, {self.me}).isdisjoint({self.me})]
        # Claimed before, but the mount failed before we read it: its last owner is not known any more.
        gained = {shard: True for shard, names in owners.items() if self.me in names and shard not in mine}
        over: list[int] = []
        self.regions.look(self._alive(), self._clock.monotonic())
        for region in (ANYWHERE, *self.regions.names):
            part, share = self.regions.shards(region), self._share(region)
            over += sorted(mine & part - set(lost))[share:]
            wanted = share - len(part & (mine | gained.keys()))
            gained |= self._gain({shard: names for shard, names in owners.items() if shard in part}, wanted)
        self._note_owners(owners)
        self._held = mine.difference(lost).union(gained)
        return gained, [*lost, *over]

    def find_inboxes(self) -> None:
        """Look anew who owns what, to hand over to the owners."""
        self.files.freshen("shards")
        self._note_owners(read_owners(self.files, self.count))

    def _note_owners(self, owners: dict[int, set[str]]) -> None:
        self.inboxes = inboxes(owners)
        self._owners = set().union(*owners.values())

    def _share(self, region: str) -> int:
        """Return how many shards of a region we should have; the first workers by id have one more."""
        alive = self.regions.candidates(region, self._alive(), self._clock.monotonic())
        if self.me not in alive:
            return 0
        if len(alive) >= self.starting or self._clock.monotonic() - self.born > JOIN_SECONDS:
            self.starting = 1  # they have started, or will not
        each, more = divmod(len(self.regions.shards(region)), max(len(alive), self.starting))
        return each + (alive.index(self.me) < more)

    def _gain(self, owners: dict[int, set[str]], wanted: int) -> dict[int, bool]:
        """Claim so many shards that are free or whose owner is dead, and tell of each whether it was inherited."""
        gained: dict[int, bool] = {}
        rest = [shard for shard in self._order if shard in owners]
        if self._clock.monotonic() - self.born > JOIN_SECONDS:
            self._random.shuffle(rest)  # or all heirs would begin at one shard of a dead worker
        while rest and len(gained) < wanted:
            tried, rest = rest[: wanted - len(gained)], rest[wanted - len(gained) :]
            found = [(shard, owner) for shard in tried if (owner := self._leaving(owners[shard]))]
            for (shard, owner), is_ours in zip(found, self._run(lambda it: self.claim(*it), found), strict=True):
                if is_ours:
                    gained[shard] = owner != FREE
                    owners[shard] = {self.me}
        return gained

    def _leaving(self, names: set[str]) -> str | None:
        """Return the owner from whom a shard may be claimed: FREE, or a dead worker."""
        return next((name for name in names if len(names) == 1 and (name == FREE or self._is_dead(name))), None)

    def claim(self, shard: int, owner: str = FREE) -> bool:
        """Claim a free or a dead worker's shard; True for exactly one worker."""
        number = shard_name(shard)
        return self.files.claim(f"shards/{number}@{owner}", f"shards/{number}@{self.me}")

    def release_all(self, shards: Collection[int]) -> None:
        """Release shards, several at a time where each call has latency."""
        list(self._run(self.release, shards))

    def release(self, shard: int) -> None:
        """Release a shard; it does no harm if another worker has it already."""
        number = shard_name(shard)
        self.files.claim(f"shards/{number}@{self.me}", f"shards/{number}@{FREE}")

    def _mark_the_dead(self, owners: dict[int, set[str]]) -> None:
        """Mark dead workers before shares are counted, also one whose names in shards/ are gone."""
        for id in sorted(self.watch.not_ended().union(*owners.values())):
            self._is_dead(id)

    def _is_dead(self, id: str) -> bool:
        if id in (self.me, FREE):
            return False
        if id == LOST or "@" in id:  # no worker has such a name
            return True
        self.watch.expect(id, self._clock.monotonic())
        if self.watch.is_marked_dead(id):
            return True
        if heartbeat := self.watch.dead(id):
            return self._mark_dead(id, last=heartbeat.beat)
        died_here, note = LocalLock.died_here(id)
        if died_here and self._mark_dead(id, note):
            LocalLock.remove(id)
            return True
        return False

    def _mark_dead(self, id: str, note: bytes | None = None, last: float = float("inf")) -> bool:
        """Mark a dead worker's heartbeat, so that nobody waits for it again, and it knows if it resumes.

        False if it has beaten since its `last` heartbeat: whoever renames or removes that first, it or we, decides.
        """
        found = self._heartbeats_of(id) or self._leave_mark(id)
        if any(heartbeat.mark != END and heartbeat.beat > last for heartbeat in found):
            return False
        if not any(heartbeat.mark == END for heartbeat in found):
            marked = [end for end in map(self._mark, found) if end]
            if not marked:
                return False
            for end in marked:
                if note:
                    self.files.put(end, note)
        self.watch.mark_dead(id)
        return True

    def _leave_mark(self, id: str) -> list[Heartbeat]:
        """Mark a worker whose heartbeat somebody has removed, so that it knows, too; return what there is of it then.

        If it shows a new heartbeat just now, it finds the mark with the next one.
        """
        self.files.create(Heartbeat(id, 0, END).name)
        self.files.freshen("workers")
        return self._heartbeats_of(id)

    def _mark(self, heartbeat: Heartbeat) -> str | None:
        """Mark a heartbeat as ended and return its new name; None if it is gone."""
        end = Heartbeat(heartbeat.id, heartbeat.beat, END).name
        return end if self.files.claim(heartbeat.name, end) else None

    def _mend(self, owners: dict[int, set[str]], mine: set[int]) -> None:
        """Restore names of shards that are gone (removed by hand), and remove second ones.

        The owner puts its own back. Who is silent cannot: others wait until it is declared dead, and knows.
        """
        now = self._clock.monotonic()
        passed, self._mended = min(now - self._mended, self.watch.longest_gap), now
        for shard in range(self.count):
            names = owners.get(shard, set())
            self._missing[shard] = 0.0 if names else self._missing.get(shard, 0.0) + passed
            if shard in mine and self._missing[shard] > passed and self.is_sure():
                self.files.create(f"shards/{shard_name(shard)}@{self.me}")
            elif self._missing[shard] > MISSING_FOR * self.dead_after:
                self.files.create(f"shards/{shard_name(shard)}@{LOST}")
            if len(names) > 1:
                self._choose(shard, names)

    def _choose(self, shard: int, names: set[str]) -> None:
        """Leave a shard with one name: a live worker's before a dead one's or `free`, then the first in order."""
        living = {name for name in names if name != FREE and not self._is_dead(name)}
        keep = min(living or names)
        for name in sorted(names - {keep}):
            if name == self.me or name not in living:
                self.files.drop(f"shards/{shard_name(shard)}@{name}")
                names.discard(name)

    def own_still(self, shards: set[int]) -> set[int]:
        """Return those of these shards that are still ours, by a fresh listing."""
        self.files.freshen("shards")
        owners = read_owners(self.files, self.count)
        return {shard for shard in shards if self.me in owners.get(shard, ())}

    # ---- the end

    def any_idle(self) -> bool:
        """Tell whether a live worker with shards was idle when last seen: it waits for what others find."""
        return any(heartbeat.idle and heartbeat.id in self._owners for heartbeat in self.watch.alive())

    def all_idle(self) -> bool:
        """Tell whether all live workers were idle when last seen."""
        return all(heartbeat.idle for heartbeat in self.watch.alive())

    def all_is_done(self) -> bool:
        """Tell whether the crawl is over; to be called after each beat.

        Two looks are compared. If every live worker was idle at both in the same state, then all were idle all the
        time, and nobody handed anything over. If each has also read all its inboxes since a heartbeat that is newer
        than the first look, and found nothing, there is nothing. Every shard must belong to one of them, so that every
        inbox was read; but those of a region without workers may be empty, or wait for one.
        """
        now = {heartbeat.id: heartbeat for heartbeat in self.watch.alive()}
        absent = self.regions.absent(self._clock.monotonic())
        if not self.all_idle() or not absent.issuperset(self._unowned(set(now))):
            self._before_end = None
            return False
        before = self._before_end
        if before is None or before.keys() != now.keys() or any(before[id].state != now[id].state for id in now):
            self._before_end = now
            return False
        if not all(now[id].polled > before[id].beat for id in now):
            return False
        left = self._with_batches(self._unowned(set(now)))
        if not self.regions.waiting(self._clock.monotonic()).issuperset(left):
            return False  # until others take the place of the region's machines
        self._proof = {id: heartbeat.state for id, heartbeat in now.items()} | ({"": LATER} if left else {})
        return True

    def others_proved_the_end(self) -> bool:
        """Tell whether a worker that ended has proved that the crawl is over, and we are idle as it saw us.

        Otherwise the workers would end one after the other: each would take over shards and look twice again.
        """
        self._heard &= self.watch.seen.keys()
        for seen in list(self.watch.seen.values()):
            id = seen.heartbeat.id
            if seen.heartbeat.mark == END and id not in self._heard:
                last = self.files.get(seen.heartbeat.name) or b""
                self._heard.add(id)
                with suppress(ValueError, TypeError, AttributeError):
                    proof = json.loads(last).get("proof", {})
                    if self.heartbeat.idle and proof.get(self.me) == self.heartbeat.state:
                        self._proof = proof
                        return True
        return False

    def has_later(self) -> bool:
        """Tell whether some worker had URLs that are due later, when the end of the crawl was proved."""
        return any(state.endswith(LATER) for state in self._proof.values())

    def _unowned(self, ids: set[str]) -> set[int]:
        """Return the shards that belong to none of these workers."""
        owners = read_owners(self.files, self.count)
        return {shard for shard in range(self.count) if not owners.get(shard) or not owners[shard] <= ids}

    def _with_batches(self, shards: set[int]) -> list[int]:
        """Return those of these shards in whose folder something waits, by fresh listings."""
        if not shards:
            return []
        self.files.freshen("frontier")
        return [shard for shard in made_shards(self.files, self.count) if shard in shards and self._has_batches(shard)]

    def _has_batches(self, shard: int) -> bool:
        self.files.freshen(folder(shard))
        return bool(batch_names(self.files, shard) - {WHOLE})


def _order(count: int, row: int, workers: int, random: Random) -> list[int]:
    """Return the shards in the order in which a worker claims them.

    Workers of a machine, which start together, have one random order and begin in different places of it, so that none
    tries what another claims at the start; those of several machines seldom do.
    """
    order = random.sample(range(count), count)
    begin = row * count // max(workers, 1)
    return order[begin:] + order[:begin]


def read_owners(files: Files, count: int) -> dict[int, set[str]]:
    """Return the owners of each shard, by the names in `shards/`; several only if they were changed by hand."""
    owners: dict[int, set[str]] = {}
    for name in files.names("shards"):
        number, at, owner = name.partition("@")
        if at and number.isdecimal() and int(number) < count:
            owners.setdefault(int(number), set()).add(owner)
    return owners


def too_many_workers(workers: int, shards: int) -> str:
    """Return a sentence about workers that cannot have a shard."""
    return (
        f"{workers:,} workers run, but this store has {many(shards, 'shard')}, so {workers - shards:,} of them have "
        "nothing to do; run fewer, or make the next store with more --shards"
    )


def inboxes(owners: dict[int, set[str]]) -> dict[int, int]:
    """Return for each shard with an owner that owner's first shard: its folder is read most often."""
    firsts: dict[str, int] = {}
    for shard in sorted(owners):
        for name in owners[shard]:
            firsts.setdefault(name, shard)
    return {shard: firsts[min(names)] for shard, names in owners.items() if names.isdisjoint({FREE, LOST})}
