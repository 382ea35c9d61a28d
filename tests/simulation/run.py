"""Run the simulation for many numbers; a failure is shrunk, and printed with the command that replays it.

PYTHONPATH=tests python -m simulation.run --seeds 1000 [--from 0] [--jobs 2] [--profile sshfs] [--seed 17 --verbose]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from random import Random

from crawler.crawl.worker import ending
from simulation import trouble
from simulation.disk import Disk
from simulation.fleet import Fleet
from simulation.mount import PROFILES
from simulation.patches import patched
from simulation.system import System
from simulation.world import World

HOUR = 3600.0
LONGEST = 12 * HOUR  # simulated seconds: a host whose pages fail one after the other rests for up to an hour each time
TROUBLES, SECONDS = 6, 12.0
MANY_HOSTS = 16  # more than the little memory of workers holds
SHOW_EVERY = 100  # seeds


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a number stands for."""

    seed: int
    profile: str
    machines: int
    workers: int
    pages: int
    hosts: int
    troubles: tuple[trouble.Trouble, ...]
    only: tuple[str, ...] = ()
    recrawls: bool = False
    is_plain: bool = False
    rules: str = ""  # from what the rules of hosts are drawn
    limit: int | None = None  # of pages, until an operator removes it

    @classmethod
    def of(cls, seed: int, profile: str | None = None, only: tuple[str, ...] = (), is_plain: bool = False) -> Scenario:
        """Draw a scenario; with `only` these kinds of trouble.

        `is_plain` leaves out what the simulation has learnt later: old numbers stand for what they have found.
        """
        random, more = Random(seed), Random(f"more of {seed}")
        names = [*PROFILES]
        scenario = cls(
            seed,
            profile or names[seed % len(names)],
            random.choice([1, 2, 2, 3]),
            random.choice([1, 1, 2]),
            random.choice([15, 40, 60]),
            random.choice([3, 5, 8]),
            tuple(trouble.draw(random, SECONDS, TROUBLES, only)),
            only,
            random.random() < 0.5,
            is_plain,
        )
        if is_plain:
            return scenario
        rules = f"rules of {seed}" if more.random() < 0.6 else ""
        troubles = [*scenario.troubles, *(() if only else trouble.draw_more(more, SECONDS))]
        hosts = more.choice([scenario.hosts, MANY_HOSTS]) if rules else scenario.hosts
        limit = more.randint(3, scenario.pages) if more.random() < 0.15 else None
        ordered = tuple(sorted(troubles, key=lambda it: it.when))
        return replace(scenario, hosts=hosts, rules=rules, limit=limit, troubles=ordered)


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run."""

    error: BaseException | None
    events: tuple[str, ...]
    digest: str
    lines: int
    steps: int
    operations: int
    seconds: float  # simulated
    effects: Counter[str]


def simulate(scenario: Scenario, keep: Callable[[str], object] = lambda line: None) -> Result:
    """Run one scenario, without the garbage collector: it would walk a world that lives to the end again and again."""
    is_on = gc.isenabled()
    gc.disable()
    try:
        return _simulate(scenario, keep)
    finally:
        gc.collect(0)  # what has been made since then
        if is_on:
            gc.enable()


def _simulate(scenario: Scenario, keep: Callable[[str], object]) -> Result:
    world = World(scenario.seed)
    world.keep = keep
    profile = PROFILES[scenario.profile]
    disk = Disk(lambda: world.now, profile.loses)
    error: BaseException | None = None
    mounts: dict[str, object] = {}
    system = System(world, disk, mounts)  # type: ignore[arg-type]
    with patched(world, system, profile, bool(scenario.rules)):
        rules = Random(scenario.rules) if scenario.rules else None
        fleet = Fleet(world, disk, profile, scenario.pages, scenario.hosts, scenario.recrawls, rules, scenario.limit)
        system._mounts = fleet.mounts
        try:
            _crawl(world, fleet, scenario)
        except Exception as found:  # noqa: BLE001 - whatever the program does is a finding
            error = found
        finally:
            world.close()
    return Result(
        error,
        tuple(world.events),
        world.digest,
        world.lines,
        world.steps,
        sum(system.counts.values()),
        world.now - 1000,
        world.effects,
    )


def _crawl(world: World, fleet: Fleet, scenario: Scenario) -> None:
    fleet.make_store()
    for _ in range(scenario.machines):
        fleet.start(fleet.add_machine(), scenario.workers)
    began = world.now
    for it in scenario.troubles:
        world.wait(began + it.when)
        it.happen(fleet)
    _let_end(world, fleet)
    fleet.checks.final()
    if world.failure:
        raise world.failure


def _let_end(world: World, fleet: Fleet) -> None:
    """Wait until all troubles are over and every machine has ended; where none is left, start one."""
    limit = world.now + LONGEST
    for attempt in range(12):
        if not world.run(fleet.is_at_rest, limit):
            raise AssertionError(f"{[run.id for run in fleet.running]} have not ended after {LONGEST:.0f} s")
        last = fleet.runs[-1].ended if fleet.runs else ""
        if last == ending.LIMIT and fleet.limit:
            fleet.lift_limit()
        if attempt and last in (ending.OVER, ending.LATER) and not fleet.checks.missing():
            return
        world.wait(world.now + (HOUR if last == ending.LATER else 20))  # somebody comes and starts it again
        if not fleet.running:
            fleet.start(fleet.operator, 1)
    raise AssertionError(
        f"the crawl does not end: {[run.ended for run in fleet.runs]}, missing {fleet.checks.missing()[:3]}"
    )


def shrink(scenario: Scenario, tries: int = 100) -> Scenario:
    """Return a smaller scenario that fails as well, after at most so many runs."""
    rest = _smaller(scenario)
    while tries and (smaller := next(rest, None)):
        tries -= 1
        if simulate(smaller).error:
            scenario, rest = smaller, _smaller(smaller)
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield what is left of a scenario without some part of it, large parts first."""
    troubles = scenario.troubles
    if len(troubles) > 1:
        yield replace(scenario, troubles=())
        yield replace(scenario, troubles=troubles[: len(troubles) // 2])
        yield replace(scenario, troubles=troubles[len(troubles) // 2 :])
    yield from (replace(scenario, troubles=_without(troubles, number)) for number in range(len(troubles)))
    if scenario.machines > 1:
        yield replace(scenario, machines=scenario.machines - 1)
    if scenario.workers > 1:
        yield replace(scenario, workers=1)
    if scenario.rules:
        yield replace(scenario, rules="")
    if scenario.limit:
        yield replace(scenario, limit=None)
    if scenario.pages > 4:
        yield replace(scenario, pages=scenario.pages // 2)
    if scenario.hosts > 1:
        yield replace(scenario, hosts=scenario.hosts // 2)


def _without(troubles: tuple[trouble.Trouble, ...], number: int) -> tuple[trouble.Trouble, ...]:
    return troubles[:number] + troubles[number + 1 :]


def command(scenario: Scenario) -> str:
    """The command that replays a scenario."""
    drawn = Scenario.of(scenario.seed, scenario.profile, scenario.only, scenario.is_plain)
    kept = [str(drawn.troubles.index(it)) for it in scenario.troubles]
    args = [f"--profile {scenario.profile}", *([f"--only {','.join(scenario.only)}"] if scenario.only else [])]
    args += [f"--troubles {','.join(kept) or 'none'}"] if len(kept) < len(drawn.troubles) else []
    args += ["--plain"] if scenario.is_plain else []
    args += ["--no-rules"] if drawn.rules and not scenario.rules else []
    args += ["--no-limit"] if drawn.limit and not scenario.limit else []
    for name in ("machines", "workers", "pages", "hosts"):
        if getattr(scenario, name) != getattr(drawn, name):
            args.append(f"--{name} {getattr(scenario, name)}")
    return f'make simulate SEED={scenario.seed} ARGS="{" ".join(args)}"'


def report(scenario: Scenario, result: Result, small: Scenario) -> str:
    """What a person needs to know of a failure."""
    last = simulate(small)
    lines = "\n".join(f"    {line}" for line in last.events)
    return (
        f"seed {scenario.seed} on {scenario.profile}: {type(result.error).__name__}: {result.error}\n"
        f"shrunk to {small.machines} machines with {small.workers} workers, {small.pages} pages and "
        f"{', '.join(f'{it.kind} at {it.when:.1f} s' for it in small.troubles) or 'no trouble'}:\n{lines}\n"
        f"  {type(last.error).__name__}: {last.error}\nreplay:  {command(scenario)}\nshrunk:  {command(small)}"
    )


def check(seed: int, profile: str | None, is_quick: bool, only: tuple[str, ...]) -> tuple[str, Counter[str], str]:
    """Run one number; return its profile, what its troubles did, and what a person needs to know if it failed."""
    scenario = Scenario.of(seed, profile, only)
    result = simulate(scenario)
    text = report(scenario, result, scenario if is_quick else shrink(scenario)) if result.error else ""
    return scenario.profile, result.effects, text


def many(
    seeds: Iterable[int], profile: str | None, is_quick: bool = False, only: tuple[str, ...] = (), jobs: int = 1
) -> tuple[int, Counter[str], Counter[str]]:
    """Run many numbers, in several processes; return how many failed, were of each profile, and had which effects."""
    failed, counts, effects = 0, Counter[str](), Counter[str]()
    call = partial(check, profile=profile, is_quick=is_quick, only=only)
    with ProcessPoolExecutor(jobs, get_context("fork")) if jobs > 1 else nullcontext() as pool:
        for name, found, text in pool.map(call, seeds) if pool else map(call, seeds):  # in order, whoever is first
            counts[name] += 1
            effects.update(effect for effect, times in found.items() if times)
            failed += bool(text)
            if text:
                print(text, flush=True)
            if counts.total() % SHOW_EVERY == 0:
                print(f"{counts.total()} seeds, {failed} failed", file=sys.stderr, flush=True)
    return failed, counts, effects


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--profile", choices=[*PROFILES])
    parser.add_argument("--only", default="", help="kinds of trouble, with commas")
    parser.add_argument("--troubles", help="numbers of those that happen, or none")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 for one on each core")
    parser.add_argument("--quick", action="store_true", help="do not shrink failures")
    parser.add_argument("--digest", action="store_true", help="print what the log of each seed comes to")
    for name in ("machines", "workers", "pages", "hosts"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--plain", action="store_true", help="without what the simulation has learnt later")
    parser.add_argument("--no-rules", action="store_true", help="of hosts")
    parser.add_argument("--no-limit", action="store_true", help="of pages")
    parser.add_argument("--verbose", action="store_true", help="print every event of the one seed")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options)
    if options.digest:
        for seed in range(options.first, options.first + options.seeds):
            result = simulate(Scenario.of(seed, options.profile))
            print(seed, result.lines, result.digest, result.error or "")
        return 0
    failed, counts, effects = many(
        range(options.first, options.first + options.seeds),
        options.profile,
        options.quick,
        _kinds(options.only),
        options.jobs or len(os.sched_getaffinity(0)),
    )
    print(f"in so many of them: {', '.join(f'{name} {count}' for name, count in sorted(effects.items()))}")
    spent = os.times()
    seconds = spent.user + spent.system + spent.children_user + spent.children_system
    profiles = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(
        f"{counts.total()} seeds ({profiles}), {failed} failed; {seconds:.0f} CPU seconds, "
        f"{counts.total() / seconds:.2f} seeds a second"
    )
    return int(failed > 0)


def _kinds(names: str) -> tuple[str, ...]:
    return tuple(filter(None, names.split(",")))


def _one(options: argparse.Namespace) -> int:
    scenario = Scenario.of(options.seed, options.profile, _kinds(options.only), options.plain)
    if options.no_rules:
        scenario = replace(scenario, rules="")
    if options.no_limit:
        scenario = replace(scenario, limit=None)
    if options.troubles:
        kept = [] if options.troubles == "none" else [int(number) for number in options.troubles.split(",")]
        scenario = replace(scenario, troubles=tuple(scenario.troubles[number] for number in kept))
    for name in ("machines", "workers", "pages", "hosts"):
        if getattr(options, name):
            scenario = replace(scenario, **{name: getattr(options, name)})
    result = simulate(scenario, print if options.verbose else lambda line: None)
    print("\n".join(result.events) if not options.verbose else "")
    print(
        f"{result.lines} events, {result.steps} steps, {result.operations} operations, {result.seconds:.0f} s; "
        f"{result.digest}"
    )
    print(f"{type(result.error).__name__}: {result.error}" if result.error else "all checks hold")
    if result.error and options.verbose:
        import traceback

        traceback.print_exception(result.error)
    return int(result.error is not None)


if __name__ == "__main__":
    sys.exit(main())
