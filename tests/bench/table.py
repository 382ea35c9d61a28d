"""The one table of a benchmark: what each contender took in each case, and which targets are reached."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, nan
from statistics import median

from growth import Growth
from measure import Cost

OURS = "this, 2 workers"
HEAD = ("", "pages", "pages/s", "steady", f"of {OURS}", "CPU s/1,000", "steady", "memory MB", "operations")
# What the program must reach against the revision before, and against Scrapy, in CPU seconds per page.
AGAINST_BEFORE = {"a": 0.55, "b": 0.6, "c": 0.6, "m": 0.65}
AGAINST_SCRAPY = {"a": 9.5, "b": 5.5, "c": 7.5}
WORKERS = ("1 worker", "2 workers")

NOTES = """\
All ask the same nginx for the same pages from the same seeds, without robots.txt and delays, and store each page.
Pages are of 1 to 500 KB where one site is crawled, and of 10 to 500 KB elsewhere: 37 KB on average, as on the web.
pages        that were stored in a round; those that take long are given fewer of the same (a rate is per page)
pages/s      over the whole command, its start and its end included
steady       from when a tenth of the pages was stored until nine tenths were: pages by the times of their files, CPU
             as it was seen of all its processes ten times a second
CPU s/1,000  seconds of the user and of the kernel per 1,000 pages, of all its processes; the servers' not included
memory MB    of all its processes together at the peak, what they share counted once
             nobody syncs what is written but this program, unless it is told not to: see the row "not synced"
operations   metadata operations per page on what it writes, counted by strace on up to 300 pages
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What a contender took in the rounds of a case; of each figure the median counts."""

    case: str
    name: str
    costs: Sequence[Cost]
    operations: float | None = None  # metadata operations per page

    @property
    def pages(self) -> float:
        """Pages that it stored."""
        return median(cost.whole.pages for cost in self.costs)

    @property
    def rate(self) -> float:
        """Pages per second, whole command."""
        return median(cost.whole.rate for cost in self.costs)

    @property
    def steady_rate(self) -> float:
        """Pages per second, steady state."""
        return median(cost.steady.rate for cost in self.costs)

    @property
    def cpu(self) -> float:
        """CPU seconds per 1,000 pages, whole command."""
        return median(cost.whole.cpu_per_thousand for cost in self.costs)

    @property
    def steady_cpu(self) -> float:
        """CPU seconds per 1,000 pages, steady state."""
        return median(cost.steady.cpu_per_thousand for cost in self.costs)

    @property
    def memory(self) -> float:
        """Megabytes at the peak."""
        return median(cost.memory for cost in self.costs) / 1e6


@dataclass(frozen=True, slots=True)
class Target:
    """What must be reached, and what was."""

    what: str
    wanted: float
    whole: float  # by the whole command
    steady: float | None = None  # in its steady state, where that says something
    at_most: bool = False

    def line(self) -> str:
        """Its line in the table of targets."""
        bound = "at most" if self.at_most else "at least"
        found = "".join(
            f"{reached:>9.3g} {self._verdict(reached)}" for reached in (self.whole, self.steady) if reached is not None
        )
        return f"{self.what:<72}{bound:>9} {self.wanted:<6g}{found}"

    def _verdict(self, reached: float) -> str:
        is_reached = reached <= self.wanted if self.at_most else reached >= self.wanted
        return "yes" if is_reached else "NO "


def ratio(one: float, other: float) -> float:
    """One figure against another: infinite against nothing, and not a number, which reaches no target, if both are."""
    return one / other if other else inf if one else nan


def show(title: str, rows: Sequence[Row]) -> str:
    """The table of a case."""
    ours = next((row.rate for row in rows if row.name == OURS), None)
    return "\n".join([title, _line(HEAD), *(_line(_cells(row, ours)) for row in rows)])


def _cells(row: Row, ours: float | None) -> Sequence[str]:
    return (
        row.name,
        f"{row.pages:,.0f}",
        f"{row.rate:,.1f}",
        f"{row.steady_rate:,.1f}",
        f"{row.rate / ours:.2f}" if ours else "",
        f"{row.cpu:.2f}",
        f"{row.steady_cpu:.2f}",
        f"{row.memory:,.0f}",
        "n/a" if row.operations is None else f"{row.operations:.1f}",
    )


def _line(cells: Sequence[str]) -> str:
    widths = (-30, 8, 10, 10, 20, 13, 8, 11, 12)
    return "".join(f"{cell:{'<' if width < 0 else '>'}{abs(width)}}" for cell, width in zip(cells, widths, strict=True))


def show_targets(targets: Iterable[Target]) -> str:
    """The table of targets."""
    return "\n".join([f"{'must reach':<88}{'whole':>9}{'steady':>13}", *(target.line() for target in targets)])


def targets(rows: Iterable[Row]) -> list[Target]:
    """What the side-by-side cases must reach, of those that were run."""
    found = {(row.case, row.name): row for row in rows}
    return [target for case in sorted({case for case, _ in found}) for target in _targets(case, found)]


def _targets(case: str, found: dict[tuple[str, str], Row]) -> Iterable[Target]:
    peers = {name: row for (where, name), row in found.items() if where == case}
    for workers in WORKERS:
        if us := peers.get(f"this, {workers}"):
            yield from _cpu_targets(case, workers, us, peers)
    if us := peers.get(OURS):
        yield from _rate_targets(case, us, peers)
    for ours, loop in (("this, 1 worker", "bare loop, 1 process"), (OURS, "bare loop, 2 processes")):
        if ours in peers and loop in peers and case in "abce":
            yield Target(f"case {case}: pages/s, {ours}, against the {loop}", 0.5, peers[ours].rate / peers[loop].rate)


def _cpu_targets(case: str, workers: str, us: Row, peers: dict[str, Row]) -> Iterable[Target]:
    title = f"case {case}, {workers}:"
    before, scrapy, wget2 = peers.get(f"before, {workers}"), peers.get("scrapy"), _least_cpu(peers, "wget2")
    if before and (most := AGAINST_BEFORE.get(case)):
        what = f"{title} CPU per page against the revision before"
        yield Target(what, most, us.cpu / before.cpu, us.steady_cpu / before.steady_cpu, at_most=True)
    if scrapy and (least := AGAINST_SCRAPY.get(case)):
        what = f"{title} CPU per page of Scrapy against ours"
        yield Target(what, least, scrapy.cpu / us.cpu, scrapy.steady_cpu / us.steady_cpu)
    if wget2 and case == "a":
        what = f"{title} pages per CPU second against {wget2.name}"
        yield Target(what, 0.4, wget2.cpu / us.cpu, wget2.steady_cpu / us.steady_cpu)


def _rate_targets(case: str, us: Row, peers: dict[str, Row]) -> Iterable[Target]:
    in_case = f"case {case}:"
    scrapy, script, wget2 = peers.get("scrapy"), peers.get("the 60-line script"), _best(peers, "wget2")
    if scrapy and case in "abc":
        yield Target(f"{in_case} pages/s against Scrapy with one process", 5, us.rate / scrapy.rate)
    if script and case in "abc":
        yield Target(f"{in_case} pages/s against the 60-line script", 30, us.rate / script.rate)
    if wget2 and case in "ac":
        yield Target(f"{in_case} pages/s against {wget2.name}", 0.3, us.rate / wget2.rate)


def _best(peers: dict[str, Row], prefix: str) -> Row | None:
    """The fastest of those whose names begin so."""
    return max((row for name, row in peers.items() if name.startswith(prefix)), key=lambda row: row.rate, default=None)


def _least_cpu(peers: dict[str, Row], prefix: str) -> Row | None:
    """The one of those whose names begin so that takes least CPU."""
    return min((row for name, row in peers.items() if name.startswith(prefix)), key=lambda row: row.cpu, default=None)


def growth_targets(found: Growth) -> list[Target]:
    """What must be reached as a crawl grows."""
    known, resume = f"{found.sizes[-1].known:,} known URLs", found.resume
    return [
        Target(f"CPU per page at {known} against {found.sizes[0].known:,}", 1.27, found.cost_ratio, at_most=True),
        Target("memory of a worker then, against a tenth of the pages", 1.2, found.memory_ratio, at_most=True),
        Target(
            f"resume with {resume.waiting:,} waiting: seconds to the first page", 2.7, resume.first_page, at_most=True
        ),
        Target("resume: MB of a worker at the peak", 300, resume.peak / 1e6, at_most=True),
        Target("status on that store: seconds", 1, resume.status, at_most=True),
    ]
