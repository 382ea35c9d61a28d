"""Who owns which shard: fair shares, quick burials, nobody buried by another's clock, and an end that is one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.errors import StoreAway
from crawler.fleet.heartbeats import ALL, END, Heartbeat, Seen, Watch, read_counters
from crawler.fleet.local_lock import LocalLock
from crawler.fleet.shards import Shards, inboxes, too_many_workers
from crawler.settings.settings import Settings
from crawler.store.clock import Clock
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter

SETTINGS = Settings(shards=8, heartbeat=2.0, dead_after=30.0)


class Worker:
    """A worker without pages: it beats, and takes and gives shards as it is told."""

    def __init__(self, world: World, me: str, starting: int = 1) -> None:
        self.world = world
        clock = Clock(monotonic=lambda: world.now)
        self.shards = Shards(Files(world.root, me, durable=False), SETTINGS, starting, clock)
        self.mine: set[int] = set()
        self.was_there = True

    def beat(self, idle: int | None = None, polled: int | None = None) -> bool:
        """Beat; unless it is told otherwise, all inboxes were read since the last time."""
        polled = self.shards.heartbeat.beat if polled is None else polled
        mark = "" if idle is None else f"{idle}{ALL}{polled}"
        self.was_there = self.shards.beat({"id": self.shards.me, "pages": 1}, mark)
        return self.was_there

    def balance(self) -> None:
        gained, unwanted = self.shards.balance(self.mine)
        self.mine |= set(gained)
        for shard in unwanted:
            self.mine.discard(shard)
            self.shards.release(shard)

    def round(self, idle: int | None = None) -> None:
        self.beat(idle)
        self.balance()


class World:
    """A store of eight shards and a clock that only the test moves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1000.0
        StoreWriter(root, Files(root, "maker", durable=False)).make(SETTINGS)

    def worker(self, me: str, starting: int = 1) -> Worker:
        return Worker(self, me, starting)

    def rounds(self, *workers: Worker, count: int = 1, idle: int | None = None) -> None:
        for _ in range(count):
            self.now += SETTINGS.heartbeat
            for worker in workers:
                worker.round(idle)

    def names(self, folder: str = "shards") -> list[str]:
        return sorted(path.name for path in (self.root / folder).iterdir())

    def owners(self) -> dict[int, str]:
        return {int(name[:3]): name[4:] for name in self.names()}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield World(tmp_path)


# ---- fair shares


def test_one_worker_has_all_and_many_have_equal_shares(world: World) -> None:
    ann, bob, cid = (world.worker(name) for name in ("ann", "bob", "cid"))
    world.rounds(ann)
    assert len(ann.mine) == 8
    world.rounds(ann, bob, count=3)
    assert (len(ann.mine), len(bob.mine)) == (4, 4)
    world.rounds(ann, bob, cid, count=4)
    assert [len(worker.mine) for worker in (ann, bob, cid)] == [3, 3, 2]
    assert world.owners() == {shard: worker.shards.me for worker in (ann, bob, cid) for shard in worker.mine}


def test_workers_that_start_together_do_not_take_everything_first(world: World) -> None:
    ann, bob = world.worker("ann", starting=2), world.worker("bob", starting=2)
    world.rounds(ann)
    assert len(ann.mine) == 4
    world.now += 5
    world.rounds(ann)
    assert len(ann.mine) == 8, "the other one did not come"
    world.rounds(ann, bob, count=3)
    assert (len(ann.mine), len(bob.mine)) == (4, 4)


def test_workers_of_a_machine_do_not_try_each_others_shards(world: World) -> None:
    files, clock = Files(world.root, "ann", durable=False), Clock(monotonic=lambda: world.now)
    crew = [Shards(files, SETTINGS, 2, clock, row=row, machine="machine") for row in range(2)]
    tried = [set(worker._order[:4]) for worker in crew]
    assert tried[0] | tried[1] == set(range(8))


def test_one_that_leaves_in_good_order_is_replaced_at_the_next_look(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for shard in bob.mine:
        bob.shards.release(shard)
    bob.shards.sign_off({"pages": 7})
    world.rounds(ann, count=1)
    assert len(ann.mine) == 8
    assert {found["pages"] for found in read_counters(ann.shards.files)} == {1, 7}


def test_more_workers_than_shards_is_no_trouble(world: World) -> None:
    crowd = [world.worker(f"w{number:02d}") for number in range(10)]
    world.rounds(*crowd, count=12)
    assert sorted(len(worker.mine) for worker in crowd) == [0, 0] + [1] * 8


# ---- death


def test_a_silent_worker_is_buried_after_patience_of_the_observers_own_clock(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    world.rounds(ann, count=14)  # 28 seconds
    assert len(ann.mine) == 4
    world.rounds(ann, count=3)
    assert len(ann.mine) == 8
    assert any(name.startswith("bob@") and name.endswith(f".{END}") for name in world.names("workers"))


def test_a_worker_with_a_clock_of_its_own_is_alive_as_long_as_its_pulse_goes(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for path in (world.root / "workers").iterdir():
        os.utime(path, (1, 1))
    world.rounds(ann, bob, count=30)
    assert (len(ann.mine), len(bob.mine)) == (4, 4)


def test_a_mount_that_hangs_for_everybody_buries_nobody(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    world.now += 600  # nobody could look or beat
    assert not ann.shards.is_sure()
    ann.round()
    assert (len(ann.mine), ann.shards.is_sure()) == (4, True)
    world.rounds(ann, bob, count=2)
    assert (len(ann.mine), len(bob.mine), bob.was_there) == (4, 4, True)


def test_a_worker_that_cannot_beat_stops_asking_long_before_it_is_buried(world: World) -> None:
    ann = world.worker("ann")
    world.rounds(ann)
    world.now += 14.9
    assert ann.shards.is_sure()
    world.now += 0.2
    assert not ann.shards.is_sure()


def test_a_beat_that_hangs_after_others_could_see_it_is_as_old_as_they_think(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = world.worker("ann")
    world.rounds(ann)
    drop = Files.drop

    def hang(self: Files, name: str) -> bool:
        world.now += SETTINGS.dead_after
        return drop(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "drop", hang)
        assert ann.beat()
    assert not ann.shards.is_sure(), "somebody may be about to bury us"
    assert ann.beat() and ann.shards.is_sure()


def test_a_zombie_notices_at_its_next_pulse_that_it_was_buried(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    world.rounds(ann, count=20)
    assert len(ann.mine) == 8
    assert bob.beat() is False
    _, unwanted = bob.shards.balance(bob.mine)
    assert set(unwanted) == bob.mine


def test_a_worker_that_beats_while_it_is_being_buried_keeps_its_shards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    claim, mine, before = Files.claim, set(bob.mine), bob.shards.heartbeat.beat

    def beat_first(self: Files, name: str, new: str) -> bool:
        if name.startswith("workers/bob@") and bob.shards.heartbeat.beat == before:
            assert bob.beat()
        return claim(self, name, new)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "claim", beat_first)
        while bob.shards.heartbeat.beat == before:
            world.rounds(ann)
    assert {shard for shard, owner in world.owners().items() if owner == "bob"} == mine
    world.rounds(ann, bob, count=2)
    assert bob.was_there and {heartbeat.id for heartbeat in ann.shards.watch.alive()} == {"ann", "bob"}


def test_a_zombie_that_was_buried_does_not_hold_up_the_end(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    world.rounds(ann, count=20)
    assert bob.beat() is False  # and bob ends here, as House.keep has it
    world.rounds(ann)
    assert [heartbeat.id for heartbeat in ann.shards.watch.alive()] == ["ann"]


def test_a_pulse_that_could_not_be_written_is_not_a_burial(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = world.worker("ann")
    world.rounds(ann, count=2)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "put", lambda *_, **__: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            ann.beat()
    assert ann.beat() is True
    assert len(world.names("workers")) == 1


def test_a_worker_whose_files_somebody_removed_keeps_its_shards_only_while_it_beats(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for path in (world.root / "workers").glob("bob@*"):
        path.unlink()
    world.rounds(ann, count=14)
    assert len(ann.mine) == 4
    world.rounds(ann, count=3)
    assert len(ann.mine) == 8


def test_a_zombie_notices_that_it_was_buried_when_somebody_has_removed_its_files(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for path in (world.root / "workers").glob("bob@*"):
        path.unlink()
    world.rounds(ann, count=20)
    assert len(ann.mine) == 8
    assert bob.beat() is False
    world.rounds(ann)
    assert [heartbeat.id for heartbeat in ann.shards.watch.alive()] == ["ann"]


def test_a_zombie_notices_that_it_was_buried_when_somebody_has_removed_its_mark_too(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    world.rounds(ann, count=20)
    assert len(ann.mine) == 8
    for path in (world.root / "workers").glob("bob@*.end"):
        path.unlink()
    assert bob.beat() is False


def test_a_worker_that_was_silent_goes_on_if_its_shards_are_still_its_own(world: World) -> None:
    bob = world.worker("bob")
    world.rounds(bob, count=3)
    for path in (world.root / "workers").glob("bob@*"):  # a call of its own that hung with the mount
        path.unlink()
    world.now += 2 * SETTINGS.dead_after
    assert bob.beat() is True


def test_a_shard_whose_owner_has_no_name_of_a_worker_is_taken(world: World) -> None:
    (world.root / "shards/003@free").rename(world.root / "shards/003@a copy@home")
    ann = world.worker("ann")
    world.rounds(ann, count=3)
    assert len(ann.mine) == 8


def test_a_lost_shard_has_no_inbox_but_its_own() -> None:
    assert inboxes({0: {"lost"}, 1: {"ann"}, 2: {"lost"}, 3: {"free"}, 4: {"ann"}}) == {1: 1, 4: 1}


def test_a_worker_that_beats_while_it_is_being_buried_without_its_files_has_no_heir_before_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for path in (world.root / "workers").glob("bob@*"):
        path.unlink()
    create = Files.create
    heard: list[bool] = []

    def beat_first(self: Files, name: str) -> bool:
        if name.startswith("workers/bob@"):
            heard.append(bob.beat())
        return create(self, name)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "create", beat_first)
        while not heard:
            world.rounds(ann)
    assert heard == [True] and len(ann.mine) == 4
    assert bob.beat() is False
    world.rounds(ann)
    assert len(ann.mine) == 8


KILLED = """
import sys, time
from pathlib import Path
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.fleet.shards import Shards, too_many_workers
shards = Shards(Files(sys.argv[1], "killed"), Settings(shards=8, heartbeat=2.0, dead_after=30.0))
shards.beat({"id": "killed", "pages": 3}, "")
print(list(shards.balance(set())[0]), flush=True)
sys.stdin.readline()
shards.beat({"id": "killed", "pages": 4}, "")
shards.local_lock.note({"id": "killed", "machine": "boss", "pages": 5})
print("noted", flush=True)
time.sleep(600)
"""


@pytest.fixture
def killed(world: World) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own that has all shards; it beats and notes once more when it is told so."""
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(world.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(world.root)},
    ) as process:
        assert process.stdout is not None
        assert len(json.loads(process.stdout.readline())) == 8
        yield process
        process.kill()


def go_on_and_die(process: subprocess.Popen[str]) -> None:
    assert process.stdin and process.stdout
    print(file=process.stdin, flush=True)
    assert process.stdout.readline() == "noted\n"
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_a_worker_killed_on_this_machine_is_buried_at_once_with_its_last_counters(
    world: World, killed: subprocess.Popen[str]
) -> None:
    ann = world.worker("ann")
    world.rounds(ann)
    assert ann.mine == set(), "it is alive"
    go_on_and_die(killed)
    ann.beat()
    ann.balance()
    assert len(ann.mine) == 8, "the dead have no share"
    world.rounds(ann)
    assert len(ann.mine) == 8
    assert sorted(found["pages"] for found in read_counters(ann.shards.files)) == [1, 5]
    assert not list(world.root.glob("crawler-*/killed.*")), "nothing is left of it"


def test_a_worker_whose_supervisor_has_not_dealt_with_its_death_keeps_its_shards(
    world: World, killed: subprocess.Popen[str]
) -> None:
    ann, supervisor = world.worker("ann"), LocalLock("boss")
    go_on_and_die(killed)
    world.rounds(ann)
    assert ann.mine == set(), "its pages would be read by us before it is known which one killed it"
    LocalLock.allow_heirs("killed")
    ann.balance()
    assert len(ann.mine) == 8
    assert not list(world.root.glob("crawler-*/killed.*")), "nothing is left of it"
    supervisor.release()


def test_a_worker_whose_supervisor_died_too_has_heirs_at_once(world: World, killed: subprocess.Popen[str]) -> None:
    ann, supervisor = world.worker("ann"), LocalLock("boss")
    go_on_and_die(killed)
    ann.beat()
    supervisor.unlock()
    ann.balance()
    assert len(ann.mine) == 8


def test_a_worker_killed_after_a_pulse_that_we_have_not_seen_yet_is_buried_all_the_same(
    world: World, killed: subprocess.Popen[str]
) -> None:
    ann = world.worker("ann")
    world.rounds(ann)
    go_on_and_die(killed)
    ann.balance()
    assert len(ann.mine) == 8
    world.rounds(ann)
    assert sorted(found["pages"] for found in read_counters(ann.shards.files)) == [1, 5]
    assert [heartbeat.id for heartbeat in ann.shards.watch.alive()] == ["ann"]


def test_the_lock_of_a_living_worker_does_not_call_it_dead(world: World) -> None:
    lock = LocalLock("12ab")
    assert LocalLock.died_here("12ab") == (False, None)
    lock.note({"pages": 1})
    assert LocalLock.died_here("12ab") == (False, None)
    lock.release()
    assert LocalLock.died_here("12ab") == (False, None)
    assert LocalLock.died_here("never") == (False, None)


def test_a_lock_that_cannot_be_written_is_no_reason_to_stop(world: World) -> None:
    lock = LocalLock("12ab")
    (folder,) = world.root.glob(f"crawler-{os.getuid()}-*")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    lock.note({"pages": 1})
    assert LocalLock.died_here("12ab") == (False, None)


def test_time_in_which_we_did_not_look_counts_for_two_pulses_at_most() -> None:
    watch = Watch(dead_after=10, heartbeat=2)
    watch.look([Heartbeat("bob", 1)], 0)
    watch.look([Heartbeat("bob", 1)], 1000)
    assert [heartbeat.id for heartbeat in watch.alive()] == ["bob"]
    for now in (1002, 1004, 1006, 1008):
        watch.look([Heartbeat("bob", 1)], now)
    assert watch.dead("bob") and not watch.alive()
    watch.look([Heartbeat("bob", 2)], 1010)
    assert [heartbeat.id for heartbeat in watch.alive()] == ["bob"]


def test_a_worker_may_be_seen_for_the_first_time_while_another_thread_counts_them() -> None:
    watch = Watch(dead_after=30.0, heartbeat=2.0)

    class Seeing(Seen):
        def __getattribute__(self, name: str) -> object:
            watch.expect("new", 0.0)  # as the pulse's thread does, at the worst moment
            return super().__getattribute__(name)

    watch.seen["old"] = Seeing(Heartbeat("old", 1))
    assert [heartbeat.id for heartbeat in watch.alive()] == ["old"]
    assert "new" in watch.seen


def test_the_name_of_a_pulse_says_all_of_it() -> None:
    for heartbeat in (Heartbeat("12ab", 7), Heartbeat("12ab", 7, "41"), Heartbeat("12ab", 1_000_007, END)):
        assert Heartbeat.of(heartbeat.name.removeprefix("workers/")) == heartbeat
    assert [Heartbeat("x", 1, mark).idle for mark in ("", "0", "12", f"12{ALL}6", END)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert [Heartbeat.of(name) for name in ("", "@", "x", "x@", "x@y", "@1")] == [None] * 6


# ---- names that are wrong


def test_a_shard_whose_name_is_missing_is_put_back_and_taken(world: World) -> None:
    ann = world.worker("ann")
    world.rounds(ann)
    (world.root / "shards" / "003@ann").unlink()
    world.rounds(ann, count=10)
    assert world.owners() == dict.fromkeys(range(8), "ann")
    assert len(ann.mine) == 8


def test_a_shard_whose_name_is_missing_stays_with_its_owner(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    owners = world.owners()
    for path in (world.root / "shards").iterdir():
        path.unlink()
    world.rounds(ann, count=12)  # the other one is suspended
    assert not {shard for shard, owner in world.owners().items() if owner != owners[shard]}
    world.rounds(bob)
    assert bob.was_there
    world.rounds(ann, bob, count=3)
    assert world.owners() == owners


def test_a_shard_whose_name_is_missing_is_taken_once_its_owner_knows_that_it_is_dead(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    for path in (world.root / "shards").glob("*@bob"):
        path.unlink()
    while len(ann.mine) == 4:
        world.rounds(ann)
    assert bob.beat() is False
    world.rounds(ann, count=10)
    assert world.owners() == dict.fromkeys(range(8), "ann")


@pytest.mark.parametrize("second", ["free", "bob"])
def test_two_names_of_one_shard_become_one(world: World, second: str) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    shard = min(ann.mine)
    (world.root / "shards" / f"{shard:03d}@{second}").touch()
    world.rounds(ann, bob, count=4)
    assert sorted(name[:3] for name in world.names()) == [f"{number:03d}" for number in range(8)]
    assert ann.mine | bob.mine == set(range(8)) and not ann.mine & bob.mine
    assert world.owners() == {shard: worker.shards.me for worker in (ann, bob) for shard in worker.mine}


@pytest.mark.parametrize("names", [("dead1", "dead2"), ("ann", "zed")])
def test_two_names_of_one_shard_become_one_when_their_owners_are_dead(world: World, names: tuple[str, str]) -> None:
    ann = world.worker("ann")
    (world.root / "shards" / "003@free").unlink()
    for name in names:
        (world.root / "shards" / f"003@{name}").touch()
    world.rounds(ann, count=40)
    assert world.owners() == dict.fromkeys(range(8), "ann")
    assert len(world.names()) == 8
    assert len(ann.mine) == 8


@pytest.mark.parametrize("reply", ["lost", "after the claims"])
def test_a_shard_that_is_ours_without_our_knowing_is_taken_up(
    world: World, monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    ann = world.worker("ann")
    ann.beat()
    claim = Files.claim

    def claim_without_a_word(self: Files, name: str, new: str) -> bool:
        claim(self, name, new)
        if reply == "lost":
            return False
        raise StoreAway("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Files, "claim", claim_without_a_word)
        try:
            ann.balance()
        except StoreAway:
            assert reply == "after the claims"
    assert ann.mine == set() and "ann" in world.owners().values()
    world.rounds(ann, count=2)
    assert len(ann.mine) == 8


def test_a_shard_is_ours_only_as_long_as_its_name_says_so(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=3)
    assert ann.shards.own_still(set(range(8))) == ann.mine
    assert len(ann.mine) == 4
    lost = min(ann.mine)
    (world.root / "shards" / f"{lost:03d}@ann").rename(world.root / "shards" / f"{lost:03d}@bob")
    assert ann.shards.own_still({lost}) == set()
    assert ann.shards.balance(ann.mine)[1] == [lost]


# ---- the end


def rounds_until_the_end(world: World, workers: list[Worker], most: int = 12, idle: int | None = 4) -> int | None:
    """After how many rounds the first worker says that all is done."""
    for number in range(1, most):
        world.rounds(*workers, idle=idle)
        if workers[0].shards.all_is_done():
            return number
    return None


def test_the_end_comes_when_all_have_been_idle_for_two_pulses(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    assert not ann.shards.all_is_done()
    ended = rounds_until_the_end(world, [ann, bob])
    assert ended is not None and 3 <= ended <= 5


def test_the_end_does_not_come_while_one_has_not_looked_into_all_its_inboxes(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    for _ in range(8):
        world.now += 2
        bob.shards.beat({}, "4")
        ann.round(4)
        assert ann.shards.all_idle() and not ann.shards.all_is_done()


def test_inboxes_may_take_many_heartbeats_to_read_but_not_have_been_read_before(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    began = bob.shards.heartbeat.beat  # of a poll that goes on at the first look
    for _ in range(9):
        world.now += 2
        bob.beat(4, polled=began)
        ann.round(4)
        assert not ann.shards.all_is_done()
    began = bob.shards.heartbeat.beat
    for _ in range(9):
        world.now += 2
        bob.beat(4, polled=0)
        ann.round(4)
        assert not ann.shards.all_is_done()
    bob.beat(4, polled=began)
    ann.round(4)
    assert ann.shards.all_is_done()


def test_the_end_does_not_come_while_one_is_busy(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    for _ in range(10):
        world.now += 2
        bob.round(None)
        ann.round(4)
        assert not ann.shards.all_is_done()


def test_the_end_does_not_come_when_one_had_news_between_two_looks(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    for news in range(10):
        world.now += 2
        bob.round(news)  # idle each time, but it was not idle all the while
        ann.round(4)
        assert not ann.shards.all_is_done()


def test_the_end_does_not_come_when_one_has_stood_still_since_the_first_look(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    world.rounds(bob, idle=4)
    for _ in range(10):
        world.rounds(ann, idle=4)
        assert not ann.shards.all_is_done()


@pytest.mark.parametrize("owner", ["free", "ghost", None])
def test_the_end_does_not_come_while_a_shard_has_no_living_owner(world: World, owner: str | None) -> None:
    ann = world.worker("ann")
    world.rounds(ann, count=3)
    (world.root / "shards" / "005@ann").unlink()
    if owner:
        (world.root / "shards" / f"005@{owner}").touch()
    for _ in range(6):
        world.now += 2
        ann.beat(4)
        assert not ann.shards.all_is_done()


def test_the_end_comes_after_the_dead_are_buried(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, bob, count=4)
    ended = rounds_until_the_end(world, [ann], most=40)  # bob was killed on another machine, in the middle of work
    assert ended is not None
    assert ended * SETTINGS.heartbeat >= SETTINGS.dead_after
    assert len(ann.mine) == 8


def test_last_words_that_could_not_be_read_are_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ann = world.worker("ann")
    (world.root / "workers" / "bob@000009.end").write_text(json.dumps({"proof": {"ann": "4", "bob": "7"}}))
    ann.beat(4)
    with monkeypatch.context() as patch:
        patch.setattr(Files, "get", lambda *_: (_ for _ in ()).throw(StoreAway("gone")))
        with pytest.raises(StoreAway):
            ann.shards.others_proved_the_end()
    assert ann.shards.others_proved_the_end()


def test_a_worker_that_joins_when_all_are_idle_is_waited_for(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    world.rounds(ann, count=4)
    world.rounds(ann, idle=4)
    assert not ann.shards.all_is_done()
    world.rounds(bob)
    for _ in range(4):
        world.rounds(ann, idle=4)
        assert not ann.shards.all_is_done()


def test_strange_names_in_the_folders_are_passed_over(world: World) -> None:
    for name in (
        "shards/notes",
        "shards/999@free",
        "shards/x@y",
        "shards/²@y",
        "workers/notes",
        "workers/x@y",
        "workers/x@²",
    ):
        (world.root / name).touch()
    ann = world.worker("ann")
    world.rounds(ann)
    assert len(ann.mine) == 8
    assert rounds_until_the_end(world, [ann]) is not None


def test_counters_that_cannot_be_read_are_passed_over(world: World) -> None:
    ann = world.worker("ann")
    ann.beat()
    (world.root / "workers" / "bob@000001").write_bytes(b"half a line")
    (world.root / "workers" / "cid@000001").write_bytes(b"[]")
    assert [found["id"] for found in read_counters(ann.shards.files)] == ["ann"]


def test_idle_workers_without_a_shard_are_not_waited_for(world: World) -> None:
    crew = [world.worker(f"w{number:02d}") for number in range(9)]
    for _ in range(3):
        for number, worker in enumerate(crew):
            worker.round(idle=3 if number == 8 else None)
    assert [len(worker.mine) for worker in crew] == [1] * 8 + [0]
    assert not crew[0].shards.any_idle(), "one that has no shard gets nothing, however soon it is flushed"
    crew[1].beat(idle=3)
    crew[0].round()
    assert crew[0].shards.any_idle()


def test_more_workers_than_shards_are_named() -> None:
    said = too_many_workers(200, 64)
    assert said.startswith("200 workers run, but this store has 64 shards, so 136 of them have nothing to do")


def test_counters_are_found_although_a_heartbeat_is_replaced_after_a_listing_that_is_cached(world: World) -> None:
    ann, bob = world.worker("ann"), world.worker("bob")
    ann.beat()
    bob.beat()

    class Cached(Files):
        """A mount that shows an old listing until its own client changes the folder, as sshfs does."""

        shown: list[str] = ()  # type: ignore[assignment]
        beats = 2

        def names(self, folder: str) -> list[str]:
            self.shown = self.shown or super().names(folder)
            if self.beats:
                self.beats -= 1
                ann.beat()
            return self.shown

        def freshen(self, folder: str) -> bool:
            self.shown = []
            return super().freshen(folder)

    assert sorted(found["id"] for found in read_counters(Cached(world.root))) == ["ann", "bob"]
