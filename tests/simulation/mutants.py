"""Each invariant of manual/design.md broken on purpose, by a small change of the source.

A check that cannot fail is none.

PYTHONPATH=tests python -m simulation.mutants prints which seed finds each.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from crawler.crawl.worker.flush import Flush
from crawler.crawl.worker.visit import Visits
from crawler.fleet.shards import Shards
from crawler.frontier import rehydrate
from crawler.frontier.batches import BatchFiles
from crawler.frontier.frontier import Frontier
from crawler.store.mount import Files
from simulation.run import Result, Scenario, simulate


@dataclass(frozen=True, slots=True)
class Change:
    """In the source of a function, one text in place of another."""

    owner: Any
    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken program: which invariant, and within how many seeds of which profile it is found."""

    name: str
    invariant: str
    changes: tuple[Change, ...]
    profile: str | None = None
    within: int = 40
    only: tuple[str, ...] = ()  # kinds of trouble; all if none is named
    first: int = 0  # seed


PUBLISH = "await self._io(self._publish, drafts, published)"
HAND_OVER = "await self._frontier.flush("
CUT, FREEZE, KILL = ("power_cut",), ("freeze",), ("kill_machine", "kill_worker")
MUTANTS = (
    Mutant(
        "the record before the hand-over",
        "1",
        (Change(Flush, "flush", PUBLISH, "pass"), Change(Flush, "flush", HAND_OVER, f"{PUBLISH}; {HAND_OVER}")),
        within=5,
    ),
    Mutant(
        "the record without its html",
        "1",
        (Change(Flush, "_write", "self._write_body(it)", "it.task.depth or self._write_body(it)"),),
        within=5,
    ),
    Mutant(
        "no sync before the records",
        "1",
        (Change(BatchFiles, "write", "self.files.sync(", "(lambda *_: None)("),),
        "local",
        100,
        CUT,
    ),
    Mutant(
        "no sync of the records before batches are removed",
        "2",
        (Change(Flush, "_sync_records", "self._files.sync(", "(lambda *_: None)("),),
        "local",
        80,
        ("power_cut_after_drop",),
    ),
    Mutant(
        "what is retried leaves the frontier",
        "2",
        (
            Change(
                Flush,
                "retry_later",
                "self._frontier.hand_over([task])",
                "self._frontier.table.mark_done([task], kept=False)",
            ),
        ),
        within=10,
    ),
    Mutant(
        "what could not be written is not queued again",
        "2",
        (Change(Frontier, "flush", "self._queue = queue + self._queue", "pass"),),
        within=40,
        only=("faults",),
    ),
    Mutant(
        "a file is written under its own name",
        "3",
        (Change(Files, "put", "self._new_name()", "leaf_of(name)"),),
        within=5,
    ),
    Mutant(
        "an owner is who says so",
        "4",
        (
            Change(
                Shards,
                "claim",
                "return self.files.claim(",
                'return self.files.create(f"shards/{number}@{self.me}") or (lambda *_: True)(',
            ),
        ),
        "sshfs",
        20,
    ),
    Mutant(
        "requests without a heartbeat",
        "5",
        (Change(Shards, "is_sure", "return ", "return True or "),),
        "nfs3",
        100,
        ("hang", "freeze"),
    ),
    Mutant(
        "a worker that is marked dead does not end",
        "5",
        (
            Change(Shards, "beat", "self._is_marked_dead()", "False"),
            Change(Shards, "beat", "self._has_been_away()", "False"),
        ),
        "nfs3",
        100,
        FREEZE,
    ),
    Mutant(
        "hosts of a dead worker do not rest",
        "5",
        (Change(Visits, "_first_due", "now = self._clock.monotonic()", "return self._clock.monotonic()"),),
        None,
        100,
        KILL,
    ),
    Mutant(
        "an emptied frontier is not noted",
        "6",
        (
            Change(BatchFiles, "_note_loss", "mark = ", "return; mark = "),
            Change(rehydrate, "is_needed", "not made <= folders or", ""),
        ),
        None,
        40,
        ("remove_folder",),
    ),
    Mutant(
        "what was inherited is not rewritten",
        "7",
        (
            Change(Frontier, "_make_safe", "while self._unsafe and", "while False and"),
            Change(Frontier, "_make_safe", "return not (self._unsafe or self._unread)", "return not self._unread"),
        ),
        "sshfs",
        100,
        ("freeze_before_drop",),
    ),
    Mutant(
        "a sync that failed is forgotten",
        "7",
        (Change(Files, "sync", "self.failed_syncs += 1", "pass"),),
        "local",
        100,
        ("sync_fails", "power_cut"),
    ),
    Mutant(
        "a page is replaced by one that is not on the disk yet",
        "1",
        (Change(Files, "_must_replace", "return ", "return False and "),),
        "local",
        40,
        ("refresh", "power_cut_before"),
        first=50,  # about one seed in 70 notices it
    ),
    Mutant(
        "a page is replaced before its older version is kept",
        "1",
        (Change(Flush, "_write", "self._replacing.keep(name, it.old)", "pass"),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "a former owner goes on writing",
        "4",
        (Change(Flush, "_check_owner", "if not self._frontier.is_sure():", "if False:"),),
        "moosefs",
        40,
        ("refresh", "freeze_before_records"),
    ),
    Mutant(
        "a record without the next visit",
        "2",
        (Change(Flush, "put_revisit", "self._plan(record)", "False"),),
        None,
        20,
        ("refresh",),
    ),
    Mutant(
        "no fresh listings",
        "mounts",
        (Change(Files, "freshen", "name = self._new_name()", "return True"),),
        "sshfs",
        40,
    ),
    Mutant(
        "the end from one look",
        "the end",
        (
            Change(Shards, "all_is_done", "before is None or before.keys() != now.keys()", "False"),
            Change(Shards, "all_is_done", "any(before[id].state != now[id].state for id in now)", "False"),
            Change(Shards, "all_is_done", "now[id].polled > before[id].beat", "True"),
        ),
        None,
        40,
    ),
    Mutant(
        "inboxes that were read before the first look",
        "the end",
        (Change(Shards, "all_is_done", "now[id].polled > before[id].beat", "True"),),
        None,
        100,
        ("hang", "kill_worker", "add_seed"),
    ),
)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Run the program with this change."""
    with ExitStack() as stack:
        sources: dict[tuple[Any, str], list[Change]] = {}
        for change in mutant.changes:
            sources.setdefault((change.owner, change.function), []).append(change)
        for (owner, name), changes in sources.items():
            stack.enter_context(mock.patch.object(owner, name, _changed(changes)))
        yield


def _changed(changes: list[Change]) -> Any:
    """Apply several changes to one function."""
    first = changes[0]
    given = inspect.getattr_static(first.owner, first.function)
    source = textwrap.dedent(inspect.getsource(given))
    for change in changes:
        if change.old not in source:
            raise LookupError(f"{change.function} has no {change.old!r} any more; mend this mutant")
        source = source.replace(change.old, change.new)
    found: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", "mutant", "exec")
    exec(code, vars(sys.modules[given.__module__]), found)
    return found[first.function]


def find(mutant: Mutant, most: int | None = None) -> tuple[int, Scenario, Result] | None:
    """Return how many seeds it took to find a mutant, and the last of them; None if it was not found."""
    for count in range(1, (mutant.within if most is None else most) + 1):
        scenario = Scenario.of(mutant.first + count - 1, mutant.profile, mutant.only)
        with applied(mutant):
            result = simulate(scenario)
        if result.error:
            as_it_is = simulate(scenario).error
            assert as_it_is is None, f"this is no find, because the program as it is fails there too: {as_it_is}"
            return count, scenario, result
    return None


def row(mutant: Mutant, found: tuple[int, Scenario, Result] | None) -> str:
    """A line of the table of mutants."""
    if found is None:
        return f"{mutant.invariant:8} {mutant.name:50} not found within {mutant.within} seeds"
    count, scenario, result = found
    return f"{mutant.invariant:8} {mutant.name:50} {count:4} {scenario.profile:8} {str(result.error)[:90]}"


def line(number: int, most: int | None = None) -> tuple[bool, str]:
    """Return whether the mutant with this number was found, and its line of the table."""
    found = find(MUTANTS[number], most)
    return found is not None, row(MUTANTS[number], found)


def main() -> int:
    """Print the table; 1 if some mutant was not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", help="only those whose name has this")
    parser.add_argument("--most", type=int, help="seeds for each")
    parser.add_argument("--jobs", type=int, default=1, help="processes; 0 for one on each core")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.k in mutant.name]
    missed = 0
    with ProcessPoolExecutor(options.jobs or len(os.sched_getaffinity(0))) as pool:
        for is_found, text in pool.map(partial(line, most=options.most), map(MUTANTS.index, chosen)):
            missed += not is_found
            print(text, flush=True)
    print(f"{len(chosen)} mutants, {missed} not found")
    return int(missed > 0 or not chosen)


if __name__ == "__main__":
    sys.exit(main())
