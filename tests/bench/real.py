"""Cases r, f and s: webs that answer late or not at all, and more hosts than there is time for.

Each contender has the same number of seconds and is then killed. Pages are counted by when their files got their
names, requests by the log of nginx.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import corpus
import servers
from contenders import PROJECT, Contender, htmls, is_wanted, ours, script
from corpus import Web
from measure import Cost
from rounds import Turns, progress
from table import Target, ratio

LUA = Path(__file__).parent / "latency.lua"
THIS, BEFORE, SCRAPY = "this, 1 worker", "before, 1 worker", "scrapy"
LIVING, FEW, ALONE = "without the dead hosts", "200 living hosts", "alone"
TITLES = {
    "r": "case r: real, 20,000 hosts that answer after 0.4 s in the median, a tenth of them dead, delay 1 s",
    "f": "case f: first contact, 100,000 hosts with robots.txt and one page, which answer at once, delay 1 s",
    "s": "case s: silent, 20 hosts with many pages, alone and beside 100 that accept and stay silent, delay 0.5 s",
}
NOTES = """\
In cases f, r and s robots.txt is obeyed, and each has {seconds:g} s and is then killed:
steady       from second {steady:g} on
largest MB   the peak of the process that had most: of the worker
requests     that nginx answered in that time, robots.txt among them; those to dead hosts are not
first        seconds from the start of the command until the first page was stored
"""
HEAD = (
    "",
    "pages",
    "pages/s",
    "steady",
    "CPU ms/page",
    "steady",
    "largest MB",
    "requests/min",
    "pages/request",
    "first",
)
# The silent server notices when a client leaves; the hosts of the others share folders by their last two digits.
SHARED = """
  map $host $folder {{ "~-[0-9]*(?<last>[0-9][0-9])[.]" $last; default none; }}
  log_format answers "$msec";
  server {{
    listen {silent}:80 backlog=4096;
    lua_check_client_abort on;
    location / {{ access_by_lua_block {{ ngx.sleep(86400) }} }}
  }}
"""


@dataclass(frozen=True, slots=True)
class Found:
    """What a contender did in one turn."""

    cost: Cost
    requests: int
    first: float | None  # seconds until the first page


@dataclass(frozen=True, slots=True)
class Row:
    """What a contender did in the rounds of a case; of each figure the median counts."""

    case: str
    name: str
    found: Sequence[Found]

    def of(self, figure: Callable[[Found], float]) -> float:
        """The median of a figure."""
        return median(map(figure, self.found))

    @property
    def rate(self) -> float:
        """Pages per second, whole command."""
        return self.of(lambda one: one.cost.whole.rate)

    @property
    def steady(self) -> float:
        """Pages per second, steady state."""
        return self.of(lambda one: one.cost.steady.rate)

    @property
    def requests_per_minute(self) -> float:
        """Requests that were answered."""
        return self.of(lambda one: 60 * one.requests / one.cost.whole.seconds)

    @property
    def pages_per_request(self) -> float:
        """Pages stored for each request that was answered."""
        return self.of(lambda one: one.cost.whole.pages / max(one.requests, 1))


@dataclass(frozen=True, slots=True)
class Clock:
    """How long a contender may take, and from which second on its state counts as steady."""

    seconds: float
    steady: float


def clock(quick: bool) -> Clock:
    """The one that is used."""
    return Clock(12, 6) if quick else Clock(60, 15)


def rows(case: str, folder: Path, rounds: int, part: int, only: str, base: Path | None, clock: Clock) -> list[Row]:
    """What each contender does that `only` asks for, round after round; of the hosts it takes one in `part`."""
    web = web_of(case, folder / "webs" / case, part)
    chosen = [(one, a_part) for one, a_part in entries(case, web, base) if is_wanted(one.name, only)]
    found: dict[str, list[Found]] = {one.name: [] for one, _ in chosen}
    log = folder / "nginx" / "answers"
    with servers.nginx(web.root, folder / "nginx", more=late(log, case == "r")):
        turns = Turns(folder / "turn", None)
        for number in range(rounds):
            for one, a_part in chosen:
                found[one.name].append(turn(turns, one, a_part, log, clock))
                progress(f"{case}, round {number + 1}: {one.name}", found[one.name][-1].cost)
    return [Row(case, name, turns_of) for name, turns_of in found.items()]


def web_of(case: str, folder: Path, part: int) -> Web:
    """The web of a case, or one in `part` of its hosts."""
    if case == "r":
        return corpus.real(folder, 20_000 // part)
    return corpus.first(folder, 100_000 // part) if case == "f" else corpus.silent(folder)


def entries(case: str, web: Web, base: Path | None) -> Iterator[tuple[Contender, Web]]:
    """Who takes part in a case, and on which part of its web."""
    pace = ("delay=0.5",) if case == "s" else ("delay=1",)
    programs = {THIS: PROJECT, **({BEFORE: base} if base else {})}
    for name, program in programs.items():
        yield ours(name, 1, pace=pace, program=program), web
        if case == "s":
            yield ours(f"{name}, {ALONE}", 1, pace=pace, program=program), corpus.living(web)
    if case == "r" and base:
        yield ours(f"{BEFORE}, {FEW}", 1, pace=pace, program=base), few(web)
    if case == "r":
        yield Contender(SCRAPY, script("spider.py", "--polite"), htmls), web
        yield ours(f"{THIS}, {LIVING}", 1, pace=pace), corpus.living(web)


def few(web: Web) -> Web:
    """Of a web so many living hosts that 16 requests at once have had every robots.txt before the steady state."""
    living = corpus.living(web)
    return living.part(living.pages * 200 // len(living.seeds))


def late(log: Path, is_late: bool) -> servers.More:
    """What nginx needs to have very many hosts, some of them silent, and to answer late."""
    return servers.More(
        main="load_module modules/ndk_http_module.so; load_module modules/ngx_http_lua_module.so;",
        beside=SHARED.format(silent=servers.DEAD_ADDRESSES["silent"]),
        inside=f"access_log {log} answers;" + (f" access_by_lua_file {LUA};" if is_late else ""),
        host="$folder",
    )


def turn(turns: Turns, one: Contender, web: Web, log: Path, clock: Clock) -> Found:
    """One contender for as long as the clock allows."""
    ran, stored = turns.take_for(one, web, clock.seconds)
    first = min(stored) - ran.began if stored else None
    return Found(ran.cost_from(stored, clock.steady), answered(log, ran.began, ran.seconds), first)


def answered(log: Path, began: float, seconds: float) -> int:
    """Requests that were answered in these seconds; a request may be answered after its client was killed."""
    times = sorted(map(float, log.read_text().split()))
    return bisect_left(times, began + seconds) - bisect_left(times, began)


def show(case: str, rounds: int, rows: Sequence[Row]) -> str:
    """The table of a case."""
    title = f"{TITLES[case]}; rounds: {rounds}, medians"
    return "\n".join([title, _line(HEAD), *(_line(_cells(row)) for row in rows)])


def _cells(row: Row) -> Sequence[str]:
    firsts = [one.first for one in row.found if one.first is not None]
    return (
        row.name,
        f"{row.of(lambda one: one.cost.whole.pages):,.0f}",
        f"{row.rate:,.1f}",
        f"{row.steady:,.1f}",
        f"{row.of(lambda one: one.cost.whole.cpu_per_thousand):.2f}",
        f"{row.of(lambda one: one.cost.steady.cpu_per_thousand):.2f}",
        f"{row.of(lambda one: one.cost.largest) / 1e6:,.0f}",
        f"{row.requests_per_minute:,.0f}",
        f"{row.pages_per_request:.2f}",
        f"{median(firsts):.1f}" if firsts else "never",
    )


def _line(cells: Sequence[str]) -> str:
    widths = (-40, 8, 9, 9, 13, 9, 12, 14, 15, 8)
    return "".join(f"{cell:{'<' if width < 0 else '>'}{abs(width)}}" for cell, width in zip(cells, widths, strict=True))


def targets(rows: Sequence[Row]) -> Iterator[Target]:
    """What these cases must reach, of those that were run."""
    found = {(row.case, row.name): row for row in rows}
    us = found.get(("r", THIS))
    for what, other, wanted in (
        ("pages/s against the revision before", BEFORE, 8),
        (f"pages/s against the revision before on {FEW}", f"{BEFORE}, {FEW}", 8),
        ("pages/s with the dead hosts against without", f"{THIS}, {LIVING}", 0.9),
        ("pages/s against Scrapy", SCRAPY, 4),
    ):
        if us and (them := found.get(("r", other))):
            yield Target(f"case r: {what}", wanted, ratio(us.rate, them.rate), ratio(us.steady, them.steady))
    if first := found.get(("f", THIS)):
        yield Target("case f: pages for each request", 0.4, first.pages_per_request)
