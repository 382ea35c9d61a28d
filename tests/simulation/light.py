"""Light workers: they do the operations of `crawler.fleet.shards.Shards` on the simulated mount, and no more.

A real worker keeps what it has seen of each other one, so ten thousand of them would keep 10^8 such notes. A light one
asks what the names in `workers/` and `shards/` come to (`Names`), which is kept once for all, at the moment when its
own listing arrives. Of the dead alone it has notes of its own, by the rule of `Watch`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from crawler.fleet.heartbeats import END, Heartbeat, Seen
from crawler.fleet.shards import FREE
from crawler.settings.settings import Settings
from crawler.store.records import to_json
from crawler.store.store import shard_name
from simulation.disk import FILE, Disk, Node
from simulation.mount import PROFILES, Mount
from simulation.world import Process, World

NAMES_PER_OPERATION = 200  # of a listing that a server sends with one reply
LATENCY = 0.001  # seconds of an operation besides its turn


class Server:
    """A file server that does so many operations a second, one after the other."""

    def __init__(self, world: World, carries: float) -> None:
        self._world, self._carries, self._free_at = world, carries, 0.0
        self.operations = 0

    def serve(self, operations: int) -> None:
        """Wait for our turn, and until that many operations are done."""
        self._free_at = max(self._free_at, self._world.now) + operations / self._carries
        self._world.pause(self._free_at - self._world.now)
        self.operations += operations


class QueuedMount(Mount):
    """A machine's view of that server; nothing is cached and nothing fails."""

    def __init__(self, process: Process, disk: Disk, server: Server) -> None:
        super().__init__(process.world, process.machine, disk, PROFILES["nfs3"])
        self._server = server

    def call(self, what: str, act: Any, retransmitted: int = 0) -> Any:
        self.world.pause(LATENCY)
        self._server.serve(1)
        return act()

    def names(self, folder: Node) -> list[str]:
        self.list_more(len(folder.entries))
        return [*folder.entries]

    def list_more(self, names: int) -> None:
        """Wait for what does not fit into the first reply to a listing."""
        if names > NAMES_PER_OPERATION:
            self._server.serve((names - 1) // NAMES_PER_OPERATION)

    def look_up(self, folder: Node, name: str) -> Node:
        return Mount.look_up(self, folder, name) if name in folder.entries else self._no_such(name)

    @staticmethod
    def _no_such(name: str) -> Node:
        raise FileNotFoundError(name)


class Names:
    """What the names in `workers/` and `shards/` come to, by every change that is made to them."""

    def __init__(self, world: World, disk: Disk) -> None:
        self._world, self.disk = world, disk
        self.shown: dict[str, Heartbeat] = {}
        self.times: dict[str, list[float]] = {}  # worker -> when each of its heartbeats could be seen
        self.polled: dict[str, float] = {}  # worker -> since when all its inboxes were read, as it says
        self.busy: set[str] = set()  # that are alive and not idle
        self.ended: list[str] = []
        self.edition = 0  # of the workers that are alive and their states
        self.loose: set[int] = set()  # shards that are free or of a worker that is dead
        self.owned: dict[str, set[int]] = {FREE: set()}
        self.dead: list[str] = []
        self._proof = b""
        disk.watch = self._watch

    def _watch(self, what: str, path: str, node: Node) -> None:
        room, _, name = path.partition("/")
        if room == "shards" and "@" in name:
            self._shard(what, int(name.partition("@")[0]), name.partition("@")[2])
        elif room == "workers" and what == "here" and name[0] != "." and (heartbeat := Heartbeat.of(name)):
            self._heartbeat(heartbeat)

    def _shard(self, what: str, shard: int, owner: str) -> None:
        owned = self.owned.setdefault(owner, set())
        if what == "gone":
            owned.discard(shard)
            return
        owned.add(shard)
        (self.loose.add if owner == FREE or owner in self.dead else self.loose.discard)(shard)

    def _heartbeat(self, now: Heartbeat) -> None:
        id, before = now.id, self.shown.get(now.id)
        times = self.times.setdefault(id, [0.0])
        if now.beat == len(times):
            times.append(self._world.now)
        self.shown[id] = now
        self.polled[id] = times[now.polled] if now.polled >= 0 else 0.0
        (self.busy.discard if now.idle or now.mark == END else self.busy.add)(id)
        if before is None or before.state != now.state:
            self.edition += 1
        if now.mark == END:
            self.ended.append(id)
            self.polled.pop(id)

    def count(self) -> int:
        """How many heartbeats were shown."""
        return sum(len(times) - 1 for times in self.times.values())

    def kill(self, id: str) -> None:
        """A worker is dead, which nobody knows yet."""
        self.dead.append(id)
        self.loose |= self.owned[id]

    def proof(self) -> bytes:
        """The last counters of a worker that has proved the end, made once for all."""
        alive = {id: it.state for id, it in self.shown.items() if it.mark != END}
        self._proof = self._proof or to_json({"proof": alive})
        return self._proof


class LightShards:
    """In place of `Shards`."""

    def __init__(
        self, names: Names, process: Process, mount: QueuedMount, rank: int, workers: int, settings: Settings
    ) -> None:
        self.me, self.rank, self.count = process.name, rank, settings.shards
        self.dead_after, self.longest_gap = settings.dead_after, 2 * settings.heartbeat
        self.heartbeat = Heartbeat(self.me, 0)
        self._names, self._mount, self._workers = names, mount, workers
        self._random: Random = process.random
        self._folder = names.disk.find("workers")
        self._shards = names.disk.find("shards")
        self._dead: dict[str, Seen] = {}  # of the workers that are dead, whether we know it or not
        self._sure: set[str] = set()
        self._quiet = False
        self._ended = self._heard = 0
        self._look_at = 0.0
        self._edition = -1
        self._first: tuple[float, int] | None = None  # when we had a first look at all of them idle, and the edition
        self._proved = False

    def _call(self, what: str) -> None:
        self._mount.call(what, _nothing)

    def _list(self, folder: Node | None) -> None:
        self._call("listdir")
        self._mount.list_more(len(folder.entries) if folder else 0)

    def _set(self, folder: Node | None, old: str, new: str, data: bytes = b"{}") -> None:
        """Give a file a new name; an empty `old` makes one."""
        assert folder is not None
        node = folder.entries[old] if old else self._names.disk.node(FILE)
        node.data = node.data if old else data
        self._names.disk.set(*([(folder, old, None)] if old else []), (folder, new, node))

    # ---- the heartbeat

    def beat(self, counters: dict[str, Any], idle: str) -> bool:
        """As `Shards.beat`."""
        self._renew(idle)
        self._list(self._folder)
        self._look(self._mount.world.now)
        return True

    def _renew(self, mark: str, data: bytes = b"{}") -> None:
        old, new = self.heartbeat, Heartbeat(self.me, self.heartbeat.beat + 1, mark)
        for what in ("create", "fsync", "publish"):
            self._call(what)
        self._set(self._folder, "", new.name.partition("/")[2], data)
        if old.beat:
            self._call("unlink")
            assert self._folder is not None
            self._names.disk.set((self._folder, old.name.partition("/")[2], None))
        self.heartbeat = new

    def _look(self, now: float) -> None:
        names = self._names
        for id in names.dead:
            shown, seen = names.shown[id], self._dead.get(id)
            if seen is None or seen.heartbeat != shown:
                self._dead[id] = Seen(shown, 0.0, now)
                self._sure.discard(id)
            else:
                seen.still += min(now - seen.looked, self.longest_gap)
                seen.looked = now
        self._quiet = all(map(self._is_dead, names.busy)) if len(names.busy) <= len(names.dead) else False
        self._look_at, self._edition, self._ended = now, names.edition, len(names.ended)

    def _is_dead(self, id: str) -> bool:
        seen = self._dead.get(id)
        return seen is not None and (seen.heartbeat.mark == END or seen.still >= self.dead_after)

    # ---- shards

    def balance(self, mine: set[int]) -> tuple[dict[int, bool], list[int]]:
        """As `Shards.balance`, for a fleet that nobody joins."""
        self._call("mknod")
        self._call("unlink")
        self._list(self._shards)
        gone = [id for id in self._dead if self._is_dead(id)]
        for id in gone:
            if id not in self._sure and self._names.owned[id]:
                self._mark(id)
        alive = self._workers - len(gone)
        each, more = divmod(self.count, alive)
        wanted = each + (self.rank - sum(id < self.me for id in gone) < more) - len(mine)
        found = {shard for shard in self._names.loose if self._owner(shard, gone)} if wanted > 0 else set()
        gained: dict[int, bool] = {}
        for shard in self._random.sample(sorted(found), len(found)):
            if len(gained) < wanted and self._claim(shard, self._owner(shard, gone)):
                gained[shard] = True
        return gained, []

    def _owner(self, shard: int, gone: list[str]) -> str:
        return next((id for id in (FREE, *gone) if shard in self._names.owned[id]), "")

    def _mark(self, id: str) -> None:
        """As `Shards._mark_dead`: it lists once more."""
        self._list(self._folder)
        shown = self._names.shown[id]
        if shown.mark != END:
            self._call("claim")
            if self._names.shown[id] == shown:
                self._set(
                    self._folder,
                    f"{id}@{shown.beat:06d}" + (f".{shown.mark}" if shown.mark else ""),
                    f"{id}@{shown.beat:06d}.{END}",
                )
        self._sure.add(id)

    def _claim(self, shard: int, owner: str) -> bool:
        self._call("claim")
        assert self._shards is not None
        if not owner or f"{shard_name(shard)}@{owner}" not in self._shards.entries:
            self._call("open")  # whether the name is there, although it could not be given
            return False
        self._set(self._shards, f"{shard_name(shard)}@{owner}", f"{shard_name(shard)}@{self.me}")
        return True

    def own_still(self, shards: set[int]) -> set[int]:
        """As `Shards.own_still`."""
        self._call("mknod")
        self._call("unlink")
        self._list(self._shards)
        return shards

    def release(self, shard: int) -> None:
        """As `Shards.release`."""
        self._call("claim")
        self._set(self._shards, f"{shard_name(shard)}@{self.me}", f"{shard_name(shard)}@{FREE}")

    # ---- the end

    def all_idle(self) -> bool:
        """As `Shards.all_idle`."""
        return self._quiet

    def all_is_done(self) -> bool:
        """As `Shards.all_is_done`."""
        if not self._quiet:
            self._first = None
            return False
        look, edition = self._look_at, self._edition
        self._list(self._shards)
        if self._names.loose:
            self._first = None
            return False
        if self._first is None or self._first[1] != edition:
            self._first = look, edition
            return False
        if min(self._names.polled.values(), default=look) <= self._first[0]:
            return False
        self._list(self._shards)
        self._proved = True
        return True

    def others_proved_the_end(self) -> bool:
        """As `Shards.others_proved_the_end`."""
        assert self._folder is not None
        for id in self._names.ended[self._heard : self._ended]:
            self._call("open")
            self._heard += 1
            last = self._folder.entries[self._names.shown[id].name.partition("/")[2]].data
            if self.heartbeat.idle and b'"proof"' in last:
                self._proved = True
                return True
        return False

    def sign_off(self, counters: dict[str, Any]) -> None:
        """As `Shards.sign_off`."""
        self._renew(END, self._names.proof() if self._proved else b"{}")


def _nothing() -> None:
    pass
