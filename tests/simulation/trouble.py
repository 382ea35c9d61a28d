"""What happens to a fleet: each trouble is a function of the fleet and a few numbers, drawn before the run begins."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from simulation.fleet import Fleet
from simulation.machine import Run
from simulation.mount import Failing, Mount
from simulation.operators import (
    add_seed,
    pause,
    refresh,
    remove_folder,
    remove_frontier,
    remove_names,
    repair,
    retry_failures,
    stop,
)
from simulation.world import Machine


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens when; `dice` and `seconds` say to whom and for how long."""

    when: float
    kind: str
    dice: float
    seconds: float

    def happen(self, fleet: Fleet) -> None:
        """Let it happen."""
        fleet.world.note(f"TROUBLE {self.kind} {self.dice:.3f} {self.seconds:.2f}")
        fleet.world.effects[f"TROUBLE {self.kind}"] += 1
        KINDS[self.kind](fleet, self)

    def pick(self, items: list) -> object:
        """Choose by the dice; None if there is nothing."""
        return items[int(self.dice * len(items))] if items else None


def _run(fleet: Fleet, trouble: Trouble) -> Run | None:
    return trouble.pick(fleet.running)  # type: ignore[return-value]


def _mount(fleet: Fleet, trouble: Trouble) -> Mount:
    """One that a run uses, if there is one."""
    used = [fleet.mounts[name] for name in dict.fromkeys(run.machine.name for run in fleet.running)]
    return trouble.pick(used or [*fleet.mounts.values()])  # type: ignore[return-value]


def _machine(fleet: Fleet, trouble: Trouble) -> Machine:
    return trouble.pick([*fleet.machines.values()])  # type: ignore[return-value]


def kill_worker(fleet: Fleet, trouble: Trouble) -> None:
    """`kill -9` of a worker; its supervisor starts another."""
    run = _run(fleet, trouble)
    living = [child for child in run.children.values() if not child.is_dead] if run else []
    if living:
        fleet.checks.disturbed += 1
        living[int(trouble.seconds * 1000) % len(living)].is_dead = True
        fleet.world.effects["kill_worker"] += 1


def kill_machine(fleet: Fleet, trouble: Trouble) -> None:
    """A machine is gone, and comes back after a while."""
    run = _run(fleet, trouble)
    if run:
        fleet.checks.disturbed += 1
        run.kill()
        fleet.world.effects["kill_machine"] += 1
        fleet.later(trouble.seconds, lambda: fleet.start(run.machine, run.workers))


def freeze(fleet: Fleet, trouble: Trouble) -> None:
    """A machine is suspended: nothing of it goes on, and it does not know."""
    fleet.checks.disturbed += 1
    machine = _machine(fleet, trouble)
    machine.frozen_until = max(machine.frozen_until, fleet.world.now + 2 * trouble.seconds)


def freeze_before(fleet: Fleet, trouble: Trouble) -> None:
    """A machine is suspended just before an operation, and finishes that when others may have taken over."""
    _freeze_before(fleet, trouble, OPERATIONS[int(trouble.seconds * 1000) % len(OPERATIONS)])


def freeze_before_drop(fleet: Fleet, trouble: Trouble) -> None:
    """The same, just before it removes a batch."""
    _freeze_before(fleet, trouble, "drop")


def freeze_before_records(fleet: Fleet, trouble: Trouble) -> None:
    """The same, just before it syncs pages whose records come next."""
    _freeze_before(fleet, trouble, "fsync", "htmls/")


def _freeze_before(fleet: Fleet, trouble: Trouble, what: str, where: str = "") -> None:
    mount = _mount(fleet, trouble)

    def ambush(operation: str) -> bool:
        if operation != what or not mount.folder.startswith(where):
            return False
        fleet.checks.disturbed += 1
        fleet.world.note(f"freeze before {operation}")
        fleet.world.effects["ambush: freeze"] += 1
        mount.machine.frozen_until = fleet.world.now + 5.5 + trouble.seconds
        return True

    mount.ambush = ambush


def kill_before(fleet: Fleet, trouble: Trouble) -> None:
    """A process is killed just before it removes, renames or lists something."""
    mount, what = _mount(fleet, trouble), OPERATIONS[int(trouble.seconds * 1000) % len(OPERATIONS)]

    def ambush(operation: str) -> bool:
        process = fleet.world.current
        if operation != what or process is None or process.name[0] != "w":
            return False
        fleet.checks.disturbed += 1
        fleet.world.note(f"kill before {operation}")
        fleet.world.effects["ambush: kill"] += 1
        process.is_dead = True
        return True

    mount.ambush = ambush


def cut_off(fleet: Fleet, trouble: Trouble) -> None:
    """A machine has no mount for a while."""
    fleet.checks.disturbed += 1
    _mount(fleet, trouble).away_until = fleet.world.now + 1.5 * trouble.seconds


def hang(fleet: Fleet, trouble: Trouble) -> None:
    """The file server does not respond, to anybody or to one machine."""
    fleet.checks.disturbed += 1
    for mount in fleet.mounts.values() if trouble.dice < 0.5 else [_mount(fleet, trouble)]:
        mount.hangs_until = fleet.world.now + 1.5 * trouble.seconds


def server_restarts(fleet: Fleet, trouble: Trouble) -> None:
    """All handles are stale."""
    fleet.checks.disturbed += 1
    for mount in fleet.mounts.values():
        mount.generation += 1
        mount.away_until = fleet.world.now + trouble.seconds / 4


def faults(fleet: Fleet, trouble: Trouble) -> None:
    """Operations fail now and then, before they are done or after."""
    fleet.checks.disturbed += 2
    mount = _mount(fleet, trouble)
    mount.fault = trouble.dice * 0.1
    fleet.later(2 * trouble.seconds, lambda: setattr(mount, "fault", 0.0))


def fails_in_a_row(fleet: Fleet, trouble: Trouble) -> None:
    """The next operations of one kind fail, before they are done or after: to try again at once does not help."""
    fleet.checks.disturbed += 1
    number = int(trouble.seconds * 1e6)
    mount, (what, where) = _mount(fleet, trouble), FALLIBLE[number % len(FALLIBLE)]
    shown = errno.ESTALE if number // 100 % 3 == 0 else errno.EIO
    mount.failing = Failing(what, where, 1 + number // 1000 % 6, shown, bool(number // 10000 % 2))
    fleet.later(2 * trouble.seconds, lambda: setattr(mount, "failing", Failing()))


def sync_fails(fleet: Fleet, trouble: Trouble) -> None:
    """The disk cannot keep what was written since the last sync, and says so once to everybody who has it open."""
    fleet.checks.disturbed += 1
    if not fleet.profile.is_shared:
        fleet.disk.fail_sync()


def disk_full(fleet: Fleet, trouble: Trouble) -> None:
    """No space left, or a quota is used up."""
    fleet.disk.full = errno.ENOSPC if trouble.dice < 0.5 else errno.EDQUOT
    fleet.checks.disturbed += 1
    fleet.later(trouble.seconds, lambda: setattr(fleet.disk, "full", 0))


def power_cut(fleet: Fleet, trouble: Trouble) -> None:
    """The machine with the disk has no power for a moment: what was not synced is gone, and so is what ran there."""
    fleet.checks.disturbed += 1
    if fleet.profile.is_shared:
        return server_restarts(fleet, trouble)
    for run in fleet.running:
        run.kill()
        fleet.later(trouble.seconds / 4, lambda run=run: fleet.start(run.machine, run.workers))
    fleet.disk.cut_power(fleet.world.random, trouble.dice < 0.5)
    for mount in fleet.mounts.values():
        mount.generation += 1
    return fleet.checks.after_power_cut()


def power_cut_before(fleet: Fleet, trouble: Trouble) -> None:
    """The same, just before a sync or a rename, when most is not on the disk yet."""
    mount, what = _mount(fleet, trouble), "syncfs" if trouble.dice < 0.7 else "publish"

    def ambush(operation: str) -> bool:
        if operation != what:
            return False
        fleet.world.effects["ambush: power cut"] += 1
        fleet.later(0.0, lambda: power_cut(fleet, trouble))
        return True

    mount.ambush = ambush


def power_cut_after_drop(fleet: Fleet, trouble: Trouble) -> None:
    """The same, while batches are removed: what they were removed for must be on the disk."""

    def ambush(operation: str) -> bool:
        if operation != "drop":
            return False
        fleet.world.effects["ambush: power cut after drop"] += 1
        fleet.later(trouble.seconds / 400, lambda: power_cut(fleet, replace(trouble, dice=0.5 + trouble.dice / 2)))
        return True

    _mount(fleet, trouble).ambush = ambush


def clock_jumps(fleet: Fleet, trouble: Trouble) -> None:
    """The wall clock of a machine is set."""
    _machine(fleet, trouble).skew += (trouble.dice - 0.5) * 7200


def join(fleet: Fleet, trouble: Trouble) -> None:
    """Another machine takes part."""
    fleet.start(fleet.add_machine(), 1 + (trouble.dice < 0.5))


def blackout(fleet: Fleet, trouble: Trouble) -> None:
    """No machine has power for a moment, the file server neither: what was not synced is gone."""
    fleet.checks.disturbed += 1
    for run in fleet.running:
        run.kill()
        fleet.later(trouble.seconds, lambda run=run: fleet.start(run.machine, run.workers))
    fleet.disk.cut_power(fleet.world.random, trouble.dice < 0.5)
    for mount in fleet.mounts.values():
        mount.generation += 1
        mount.forget()
    fleet.checks.after_power_cut()


OPERATIONS = ("drop", "drop", "publish", "claim", "listdir", "fsync", "unlink")  # "drop" is of a batch
FALLIBLE = (  # kinds of operations, and where
    *(("publish", folder) for folder in ("links/", "links/", "htmls/", "frontier/", "workers")),
    *(("claim", folder) for folder in ("shards", "workers")),
    *(("drop", ""), ("unlink", ""), ("tidy", ""), ("create", ""), ("mknod", ""), ("mkdir", "")),
    *(("open", ""), ("listdir", ""), ("stat", ""), ("fsync", ""), ("syncfs", "")),
)
KINDS: dict[str, Callable[[Fleet, Trouble], None]] = {
    call.__name__: call
    for call in (
        *(kill_worker, kill_machine, kill_before, freeze, freeze_before, freeze_before_drop, clock_jumps),
        *(cut_off, hang, server_restarts, faults, disk_full, sync_fails, power_cut, power_cut_before),
        *(join, stop, pause, add_seed, retry_failures, refresh, remove_folder),
        *(freeze_before_records, power_cut_after_drop),
        *(fails_in_a_row, blackout, repair, remove_frontier, remove_names),
    )
}
MORE = (  # drawn apart
    *("fails_in_a_row", "fails_in_a_row", "fails_in_a_row", "blackout", "repair", "remove_frontier", "remove_names"),
    *("freeze_before_records", "power_cut_after_drop"),
)
WEIGHTS = {
    "kill_worker": 2,
    "kill_machine": 3,
    "freeze": 3,
    "freeze_before": 4,
    "kill_before": 4,
    "faults": 3,
    "power_cut": 3,
    "refresh": 3,
    "remove_folder": 0.5,
    **dict.fromkeys(MORE, 0),  # with these among the others, old numbers would stand for something else
}

# What shows that a kind of trouble has done what it is for; it may have come when there was nothing to disturb.
EFFECTS = {
    **{kind: kind for kind in ("kill_worker", "kill_machine")},
    **{"kill_before": "ambush: kill", "freeze": "worker marked dead"},
    **dict.fromkeys(("freeze_before", "freeze_before_drop", "freeze_before_records"), "worker marked dead"),
    **{"cut_off": "away", "hang": "hang", "server_restarts": "stale handle", "faults": "fault after"},
    **{"disk_full": "no space", "sync_fails": "sync lost names", "power_cut": "power cut lost names"},
    **dict.fromkeys(("power_cut_before", "power_cut_after_drop"), "power cut lost names"),
    **{"stop": "worker stopped", "refresh": "refresh of pages", "remove_folder": "rehydrated"},
    **dict.fromkeys(("pause", "add_seed", "retry_failures"), "operator done"),
    **{"fails_in_a_row": "failed in a row", "blackout": "power cut lost names", "repair": "repaired"},
    **{"remove_frontier": "rehydrated", "remove_names": "removed names"},
}
LOSSES = ("sync_fails", "power_cut", "power_cut_before", "power_cut_after_drop")  # of a local disk alone


def draw(random: Random, seconds: float, most: int, only: tuple[str, ...] = ()) -> list[Trouble]:
    """Draw what will happen within so many seconds; `only` what is named, if anything is."""
    kinds = [*(only or KINDS)]
    weights = [WEIGHTS.get(kind, 1) or bool(only) for kind in kinds]
    troubles = [_draw(random, seconds, kinds, weights) for _ in range(random.randrange(bool(only), most + 1))]
    return sorted(troubles, key=lambda trouble: trouble.when)


def draw_more(random: Random, seconds: float) -> list[Trouble]:
    """Draw some of what the simulation has learnt later: with it among the others, old numbers would change."""
    return [_draw(random, seconds, [*MORE]) for _ in range(random.choice([0, 0, 1, 1, 2]))]


def _draw(random: Random, seconds: float, kinds: list[str], weights: list[float] | None = None) -> Trouble:
    when = random.uniform(0.5, seconds)
    return Trouble(when, random.choices(kinds, weights)[0], random.random(), random.uniform(1, 8))
