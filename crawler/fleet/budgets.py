"""Page budgets: how many pages each machine may bring while the crawl has a limit of them.

A machine's budget is a name in `workers/`, so one listing shows those of all machines. The budgets and the pages of
machines that have ended never add up to more than the limit: a machine announces a larger budget first, then looks, and
takes it back if it was too much. Its number changes with each look: one that does not is of a machine that died.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from crawler.fleet.heartbeats import (
    END,
    MAX_LOOKS,
    Heartbeat,
    Watch,
    heartbeats,
    newest,
    parse_counters,
    without_folded,
)
from crawler.store.mount import Files

BUDGET = ".budget-"
_NAME = re.compile(rf"([\w-]{{1,64}}){re.escape(BUDGET)}(\d{{1,12}})-(\d{{1,15}})-(\d{{1,15}})", re.ASCII)


class Budget(NamedTuple):
    """One machine's budget: the pages that it may bring, and those that it has brought."""

    machine: str
    number: int
    most: int
    pages: int

    @classmethod
    def of(cls, name: str) -> Budget | None:
        """Parse a name in `workers/`; None if it is not a budget."""
        found = _NAME.fullmatch(name)
        return cls(found[1], *map(int, found.groups()[1:])) if found else None

    @property
    def name(self) -> str:
        """The name in `workers/`."""
        return f"workers/{self.machine}{BUDGET}{self.number:06d}-{self.most}-{self.pages}"


def budgets(names: Iterable[str]) -> dict[str, Budget]:
    """Return the newest budget of each machine among the names in `workers/`."""
    found = sorted(filter(None, map(Budget.of, names)), key=lambda budget: budget.number)
    return {budget.machine: budget for budget in found}


class Others:
    """The budgets of the other machines, and the pages of all machines that have none."""

    def __init__(self, files: Files, machine: str, dead_after: float, heartbeat: float) -> None:
        self._files, self._machine, self._heartbeat = files, machine, heartbeat
        self._watch = Watch(dead_after, heartbeat)
        self._known: dict[str, dict[str, Any]] = {}  # the counters of each worker, as last read
        self.budgets: list[Budget] = []
        self.past = 0  # pages of machines without a budget, almost all of which have ended

    @property
    def reserved(self) -> int:
        """The pages that others have brought or may still bring."""
        return self.past + sum(budget.most for budget in self.budgets)

    @property
    def pages(self) -> int:
        """The pages that others have brought."""
        return self.past + sum(budget.pages for budget in self.budgets)

    def look(self, now: float) -> None:
        """Take in a listing of `workers/`, and read the counters of who has ended since."""
        for _ in range(MAX_LOOKS):
            names = self._files.names("workers")
            workers = newest(heartbeats(names))
            if self._read({id: it for id, it in workers.items() if id not in self._known or it.mark == END}):
                break
            self._files.freshen("workers")  # files of workers that ended were merged while we read (see `past`)
        found = budgets(names)
        found.pop(self._machine, None)
        self._watch.look((Heartbeat(budget.machine, budget.number) for budget in found.values()), now)
        ended = self._ended(workers)
        live = {id for id in found if not self._is_dead(id, ended)}
        self._read({id: it for id, it in workers.items() if self._machine_of(id) not in {*live, self._machine}})
        counters = without_folded([self._known[id] for id in workers if id in self._known])
        machines = {*live, self._machine}
        self.past = sum(it.get("pages", 0) for it in counters if it.get("machine") not in machines)
        self.budgets = [budget for id, budget in found.items() if id in live]

    def _read(self, workers: dict[str, Heartbeat]) -> bool:
        """Read counters that have changed since they were last read; False if those of a worker that ended are gone."""
        is_whole = True
        for id, heartbeat in workers.items():
            if self._known.get(id, {}).get("heartbeat") != heartbeat:
                data = self._files.get(heartbeat.name)
                with suppress(ValueError, TypeError, RecursionError):  # not one of ours, or replaced just now
                    self._known[id] = {**parse_counters(data or b""), "heartbeat": heartbeat}
                is_whole = is_whole and (data is not None or heartbeat.mark != END)
        return is_whole

    def _machine_of(self, worker: str) -> str:
        return str(self._known.get(worker, {}).get("machine", ""))

    def _ended(self, workers: dict[str, Heartbeat]) -> set[str]:
        """Return the machines all of whose workers have ended, or were marked dead."""
        running = {self._machine_of(id) for id, heartbeat in workers.items() if heartbeat.mark != END}
        return {self._machine_of(id) for id in workers} - running

    def _is_dead(self, machine: str, ended: set[str]) -> bool:
        """Whether a machine died and left its budget; on our own machine its workers are marked dead at once."""
        still = self._watch.seen[machine].still
        return still >= self._watch.dead_after or (machine in ended and still > 2 * self._heartbeat)
