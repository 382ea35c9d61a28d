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
from functools import partial
from typing import Any
from unittest import mock

from simulation.breaks import Change, Mutant
from simulation.breaks_of_data import OF_DATA
from simulation.breaks_of_manners import OF_MANNERS
from simulation.run import Result, Scenario, simulate

MUTANTS = (*OF_DATA, *OF_MANNERS)


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
        scenario = Scenario.of(mutant.first + count - 1, mutant.profile, mutant.only, mutant.is_plain)
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
