"""What `crawler top` shows: the facts of an outlook as lines that fit a window. Pure."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from crawler.commands import status
from crawler.fleet.heartbeats import ALIVE, ENDED, SILENT
from crawler.fleet.members import STARTING, Facts
from crawler.terminal import BOLD, DIM, GREEN, RED, YELLOW, many, size
from crawler.web.text import printable

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
WIDE = 76  # columns in which two lists have room beside each other
ROOMY = 36  # lines that are enough for a taller graph
FEW = 4  # lines for workers with which it is worth while that all others stay
CELL = 10  # columns of a number
NAME = 16  # columns that a name needs at least: numbers are left out before
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " ..::--=#"  # the second for terminals that cannot show the first
COLOURS = {ALIVE: "", SILENT: RED}  # of machines and workers; others are about to work

Paint = Callable[[str, str], str]
Row = tuple[Sequence[str], str]  # cells and their colour


def no_paint(text: str, colour: str) -> str:
    """Text as it is, whatever colour was meant."""
    return text


@dataclass(frozen=True, slots=True)
class View:
    """A window: its size (without a height, all lines are wanted), how far it is scrolled, what the terminal can do."""

    width: int
    height: int | None = None
    offset: int = 0
    paint: Paint = no_paint
    bars: str = BARS

    def lines(self, found: Facts, trouble: str = "") -> list[str]:
        """What concerns the whole crawl, and below it the machines and workers; what there is no room for scrolls."""
        fixed, rest = self._parts(found, trouble)
        return fixed + (rest if self.height is None else self._scrolled(rest, self.height - len(fixed)))

    def assumed_depth(self, found: Facts, trouble: str = "") -> int:
        """How far it can be scrolled until the last line is to be seen."""
        fixed, rest = self._parts(found, trouble)
        return _unseen(rest, (self.height or 0) - len(fixed))

    def _parts(self, found: Facts, trouble: str) -> tuple[list[str], list[str]]:
        """The lines that stay and those that scroll: the workers, or nearly all where the window is small."""
        above = [*self._head(found, trouble), *self._graph(found), *self._hosts(found)]
        lines = above + self._crew(found)
        stay = len(above) + 1 if self.height is None or self.height - len(above) > FEW else 1
        return lines[:stay], lines[stay:]

    def _scrolled(self, lines: list[str], room: int) -> list[str]:
        """As many of the lines as there is room for, and how many there are besides."""
        unseen = _unseen(lines, room)
        if not unseen:
            return lines[: max(room, 0)]
        first = min(self.offset, unseen)
        below = unseen - first
        return [*lines[first:][: room - 1], self._painted(f"{first:,} lines above, {below:,} below: arrow keys", DIM)]

    # ---- the whole crawl

    def _head(self, found: Facts, trouble: str) -> list[str]:
        clock = time.strftime(" %H:%M:%S", time.localtime(found["when"]))
        title = fit(f"crawler top {printable(found['store'])}", self.width - len(clock)) + clock
        most = 3 if self.height is None or self.height >= ROOMY else 1
        return [
            self._painted(title, BOLD),
            *(
                self._painted(line, colour)
                for text, colour in news(found, trouble)
                for line in self._wrapped(text, most)
            ),
            *self._wrapped(done(found)),
            *self._wrapped(f"{found['waiting']:,} waiting" + listed(status.WAITS_FOR, found["held"])),
            *self._wrapped(many(sum(found["refusals"].values()), "refusal") + listed({}, found["refusals"]), most),
            *self._wrapped(free(found["free"])),
        ]

    def _graph(self, found: Facts) -> list[str]:
        """Pages a second over time."""
        points = [point for point in found["history"] if point["t"] > found["when"] - HOUR]
        if len(points) < 2:
            return []
        span = max(found["when"] - points[0]["t"], MINUTE)
        rates = resample(points, found["when"] - span, found["when"], self.width)
        most = max(*rates, 0.1)
        tall = 6 if self.height and self.height >= ROOMY else 3
        title = self._painted(f"pages a second over {as_time(span)}, {most:,.1f} at most", DIM)
        return [title, *(self._painted(row, GREEN) for row in draw(rates, most, tall, self.bars))]

    def _hosts(self, found: Facts) -> list[str]:
        """The busiest hosts and the slowest, side by side if there is room."""
        most = 10 if self.height is None else max(min((self.height - 16) // 3, 10), 3)
        half = (self.width - 2) // 2 if self.width >= WIDE else self.width
        busy = [((printable(host["host"]), f"{host['pages']:,}"), "") for host in found["hosts"][:most]]
        slow = [((printable(host["host"]), *pace(host)), "") for host in found["slowest"][:most]]
        busiest = self._table(("busiest hosts", "pages"), busy, half)
        slowest = self._table(("slowest hosts", "waiting", "takes", "delay"), slow, half)
        if half == self.width:
            return busiest + slowest
        return [f"{left}  {right}" for left, right in zip_longest(busiest, slowest, fillvalue=" " * half)]

    # ---- machines and workers

    def _crew(self, found: Facts) -> list[str]:
        """A line for each machine that has not ended, and below it one for each of its workers."""
        workers: dict[str, list[Facts]] = {}
        for worker in (worker for worker in found["workers"] if worker["state"] != ENDED):
            workers.setdefault(worker["machine"], []).append(worker)
        rows: list[Row] = []
        for machine in (machine for machine in found["machines"] if machine["state"] != ENDED):
            crew = workers.get(machine["id"], [])
            rows.append(member(f"{machine['name']} {machine['id']}, {many(len(crew), 'worker')}", machine))
            rows += [member(f"  {worker['id']}", worker) for worker in crew]
        rows += [member(f"  {worker['id']}", worker) for worker in workers.get("", ())]  # of no machine that we know
        title = ("machines", "pages/s", "seen", "state", "pages", "waiting", "in flight", "shards")
        return self._table(title, rows, self.width)

    # ---- lines

    def _table(self, title: Sequence[str], rows: Sequence[Row], width: int) -> list[str]:
        """Names and their numbers, as many of these as there is room for; nothing if there are no rows."""
        numbers = max(min(len(title) - 1, (width - NAME) // CELL), 1)

        def line(cells: Sequence[str]) -> str:
            name = fit(cells[0], width - numbers * CELL)
            return clip(name + "".join(fit_right(cell, CELL) for cell in cells[1 : numbers + 1]), width)

        return [self._painted(line(cells), colour) for cells, colour in [(title, DIM), *rows]] if rows else []

    def _painted(self, text: str, colour: str) -> str:
        clipped = clip(text, self.width)
        return self.paint(clipped, colour) if colour else clipped

    def _wrapped(self, text: str, most: int = 3) -> list[str]:
        """Words in a few lines; in the last of them what does not fit is cut."""
        lines = [""]
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}" if lines[-1] else word
            if width_of(longer) > self.width and lines[-1] and len(lines) < most:
                lines.append(f"  {word}")
            else:
                lines[-1] = longer
        return [clip(line, self.width) for line in lines]


def _unseen(lines: list[str], room: int) -> int:
    """How many lines there is no room for, when one of it is needed to say so."""
    return len(lines) - max(room - 1, 0) if len(lines) > room > 0 else 0


# ---- facts in words


def news(found: Facts, trouble: str) -> list[tuple[str, str]]:
    """What an operator should know at once, and its colour."""
    told = [(printable(trouble), RED)] if trouble else []
    if found["paused"]:
        told.append((f"paused: no host is asked until `crawler resume {printable(found['store'])}`", YELLOW))
    for want in found["wants"].values():
        told.append((f"no host is asked by {many(want['workers'], 'worker')}: {printable(want['why'])}", YELLOW))
    if not any(machine["state"] in (ALIVE, STARTING) for machine in found["machines"]):
        told.append(("nobody is at work", YELLOW))
    told += [(printable(sentence), YELLOW) for sentence in found["unheeded"]]
    return [*told, (status.uncounted(found), YELLOW)] if found["uncounted"] else told


def done(found: Facts) -> str:
    """What the crawl has brought so far."""
    pages = f"{many(found['pages'], 'page')}, {size(found['bytes'])}, {found['rate']:,.1f} a second"
    return f"{pages}, {many(found['redirects'], 'redirect')}, {found['retries']:,} retries"


def listed(names: dict[str, str], counts: dict[str, int]) -> str:
    """What a number is made of."""
    told = (f"{printable(names.get(name, name))} {count:,}" for name, count in counts.items())
    return f": {', '.join(told)}" if counts else ""


def free(counted: dict[str, int | None]) -> str:
    """What is left of the disk, as far as anybody counts it."""
    bytes, inodes = counted["bytes"], counted["inodes"]
    told = "bytes nobody counts" if bytes is None else size(bytes)
    return f"free: {told}, {'inodes nobody counts' if inodes is None else many(inodes, 'inode')}"


def pace(host: Facts) -> tuple[str, str, str]:
    """What waits at a host, how long all of it takes, and the time between two requests."""
    waiting, delay = host["waiting"], host["delay"]
    return f"{waiting:,}", as_time(waiting * delay), f"{delay:,.1f} s"


def member(name: str, facts: Facts) -> Row:
    """The row of a machine or a worker."""
    numbers = (f"{facts[what]:,}" for what in ("pages", "waiting", "in_flight", "shards"))
    cells = (printable(name), f"{facts['rate']:,.1f}", as_time(facts["age"]), facts["state"], *numbers)
    return cells, COLOURS.get(facts["state"], YELLOW)


def as_time(seconds: float) -> str:
    """A time in one unit."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"


# ---- pictures


def resample(points: Sequence[Facts], start: float, end: float, count: int) -> list[float]:
    """Rates at equal distances in time: the mean of the points in each part, or the last rate before it."""
    parts: list[list[float]] = [[] for _ in range(count)]
    for point in points:
        place = int((point["t"] - start) / (end - start) * count)
        parts[min(max(place, 0), count - 1)].append(point["rate"])
    rates: list[float] = []
    for part in parts:
        rates.append(sum(part) / len(part) if part else rates[-1] if rates else 0.0)
    return rates


def draw(rates: Sequence[float], most: float, tall: int, bars: str) -> list[str]:
    """A graph of so many lines, the highest first."""
    steps = len(bars) - 1
    heights = [math.ceil(rate / most * tall * steps) for rate in rates]
    rows = ([min(max(height - row * steps, 0), steps) for height in heights] for row in reversed(range(tall)))
    return ["".join(bars[step] for step in row) for row in rows]


# ---- text in columns


def width_of(text: str) -> int:
    """How many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """As much of a text as fits; if it is cut, it ends with a mark."""
    if width_of(text) <= width:
        return text
    kept = 0
    for place, char in enumerate(text):
        kept += _width(char)
        if kept > width - 1:
            return text[:place] + "~" * (width > 0)
    return text


def fit(text: str, width: int) -> str:
    """A text in exactly so many columns."""
    clipped = clip(text, width)
    return clipped + " " * (width - width_of(clipped))


def fit_right(text: str, width: int) -> str:
    """The same at the right, with a space before it."""
    clipped = clip(text, width - 1)
    return " " * (width - width_of(clipped)) + clipped
