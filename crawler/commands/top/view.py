"""What `crawler top` shows: the facts of an outlook as lines that fit a window. No input or output."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from crawler.commands import ages, status
from crawler.fleet.heartbeats import ALIVE, ENDED, SILENT
from crawler.fleet.members import STARTING, Facts
from crawler.terminal import BARS, BOLD, DIM, GREEN, RED, YELLOW, as_time, many, size
from crawler.web.text import printable

MINUTE, HOUR = 60.0, 3600.0
WIDE = 76  # columns that two lists side by side need
ROOMY = 36  # lines from which the graph is taller
FEW_LINES = 4  # left for workers; with fewer, everything scrolls
CELL = 10  # columns of a number
NAME = 16  # columns that a name gets at least; numbers are dropped first
COLOURS = {ALIVE: "", SILENT: RED}  # of machines and workers; those in other states are yellow

Paint = Callable[[str, str], str]
TableRow = tuple[Sequence[str], str]  # cells and their colour


def no_paint(text: str, colour: str) -> str:
    """Return the text without the colour."""
    return text


@dataclass(frozen=True, slots=True)
class View:
    """A window: its size (no height: all lines), how far it is scrolled, and what the terminal can show."""

    width: int
    height: int | None = None
    offset: int = 0
    paint: Paint = no_paint
    bars: str = BARS

    def lines(self, found: Facts, trouble: str = "") -> list[str]:
        """Return the lines about the whole crawl and, below them, machines and workers; what does not fit scrolls."""
        fixed, rest = self._parts(found, trouble)
        return fixed + (rest if self.height is None else self._scrolled(rest, self.height - len(fixed)))

    def farthest(self, found: Facts, trouble: str = "") -> int:
        """Return how far it can be scrolled until the last line is visible."""
        fixed, rest = self._parts(found, trouble)
        return _unseen(rest, (self.height or 0) - len(fixed))

    def _parts(self, found: Facts, trouble: str) -> tuple[list[str], list[str]]:
        """Return the lines that stay and those that scroll: the workers, or nearly all in a small window."""
        above = [*self._head(found, trouble), *self._graph(found), *self._hosts(found)]
        lines = above + self._members(found)
        stay = len(above) + 1 if self.height is None or self.height - len(above) > FEW_LINES else 1
        return lines[:stay], lines[stay:]

    def _scrolled(self, lines: list[str], room: int) -> list[str]:
        """Return as many lines as fit, and how many there are above and below."""
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
            *self._wrapped(waiting(found)),
            *(line for text in visits(found, self.bars) for line in self._wrapped(text, most)),
            *(
                self._painted(line, RED if found["failed"] else "")
                for line in self._wrapped(kind(found, "failed"), most)
            ),
            *self._wrapped(f"{kind(found, 'excluded')}; {kind(found, 'unwanted')}", most),
            *self._wrapped(free(found["free"])),
        ]

    def _graph(self, found: Facts) -> list[str]:
        """Return the graph of pages a second."""
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
        """Return the busiest and the slowest hosts, side by side if there is room."""
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

    def _members(self, found: Facts) -> list[str]:
        """Return a line for each machine that has not ended, and below it one for each of its workers."""
        workers: dict[str, list[Facts]] = {}
        for worker in (worker for worker in found["workers"] if worker["state"] != ENDED):
            workers.setdefault(worker["machine"], []).append(worker)
        rows: list[TableRow] = []
        for machine in (machine for machine in found["machines"] if machine["state"] != ENDED):
            own = workers.get(machine["id"], [])
            rows.append(member(f"{machine['name']} {machine['id']}, {many(len(own), 'worker')}", machine))
            rows += [member(f"  {worker['id']}", worker) for worker in own]
        rows += [member(f"  {worker['id']}", worker) for worker in workers.get("", ())]  # of no machine that we know
        title = ("machines", "pages/s", "seen", "state", "pages", "waiting", "in flight", "shards")
        return self._table(title, rows, self.width)

    # ---- lines

    def _table(self, title: Sequence[str], rows: Sequence[TableRow], width: int) -> list[str]:
        """Return rows of a name and as many numbers as fit; nothing if there are no rows."""
        numbers = max(min(len(title) - 1, (width - NAME) // CELL), 1)

        def line(cells: Sequence[str]) -> str:
            name = fit(cells[0], width - numbers * CELL)
            return clip(name + "".join(fit_right(cell, CELL) for cell in cells[1 : numbers + 1]), width)

        return [self._painted(line(cells), colour) for cells, colour in [(title, DIM), *rows]] if rows else []

    def _painted(self, text: str, colour: str) -> str:
        clipped = clip(text, self.width)
        return self.paint(clipped, colour) if colour else clipped

    def _wrapped(self, text: str, most: int = 3) -> list[str]:
        """Return the text wrapped to a few lines; the last one is clipped."""
        lines = [""]
        for word in text.split(" "):
            longer = f"{lines[-1]} {word}" if lines[-1] else word
            if width_of(longer) > self.width and lines[-1] and len(lines) < most:
                lines.append(f"  {word}")
            else:
                lines[-1] = longer
        return [clip(line, self.width) for line in lines]


def _unseen(lines: list[str], room: int) -> int:
    """Return how many lines do not fit, if one line is needed to say so."""
    return len(lines) - max(room - 1, 0) if len(lines) > room > 0 else 0


# ---- facts in words


def news(found: Facts, trouble: str) -> list[tuple[str, str]]:
    """Return what an operator should know at once, each with its colour."""
    told = [(printable(trouble), RED)] if trouble else []
    if found["paused"]:
        told.append((f"paused: no requests are sent until `crawler resume {printable(found['store'])}`", YELLOW))
    for about in found["blocked"].values():
        told.append((f"{many(about['workers'], 'worker')} blocked: {printable(about['why'])}", YELLOW))
    if not any(machine["state"] in (ALIVE, STARTING) for machine in found["machines"]):
        told.append(("no machine is running", YELLOW))
    told += [(printable(sentence), YELLOW) for sentence in found["ignored_settings"]]
    return [*told, (status.uncounted(found), YELLOW)] if found["uncounted"] else told


def done(found: Facts) -> str:
    """Return what the crawl has brought so far."""
    pages = f"{many(found['pages'], 'page')}, {size(found['bytes'])}, {found['rate']:,.1f} a second"
    return f"{pages}, {many(found['redirects'], 'redirect')}, {found['retries']:,} retries"


def waiting(found: Facts) -> str:
    """Return how many URLs wait, and for what."""
    told = status.listed(found["waiting_for"], status.WAITING_FOR)
    return f"{found['waiting']:,} waiting" + (f": {told}" if told else "")


def visits(found: Facts, bars: str) -> list[str]:
    """Return lines about visits of stored pages and how old these are; none if they are not visited again."""
    told = [status.visits(found)] if status.has_visits(found) else []
    return [*told, f"last visited within {ages.chart(found['ages'], bars)}"] if found.get("ages") else told


def kind(found: Facts, name: str) -> str:
    """Return how many URLs failed, or are excluded or unwanted, and their main reasons."""
    told = status.main_reasons(found, name)
    return f"{found[name]:,} {name}" + (f": {told}" if told else "")


def free(counted: dict[str, int | None]) -> str:
    """Return what is left of the disk, as far as the file system counts it."""
    bytes, inodes = counted["bytes"], counted["inodes"]
    told = "bytes not counted" if bytes is None else size(bytes)
    return f"free: {told}, {'inodes not counted' if inodes is None else many(inodes, 'inode')}"


def pace(host: Facts) -> tuple[str, str, str]:
    """Return how many URLs of a host wait, how long they take, and the time between two requests."""
    waiting, delay = host["waiting"], host["delay"]
    return f"{waiting:,}", as_time(waiting * delay), f"{delay:,.1f} s"


def member(name: str, facts: Facts) -> TableRow:
    """Return the row of a machine or a worker."""
    numbers = (f"{facts[what]:,}" for what in ("pages", "waiting", "in_flight", "shards"))
    cells = (printable(name), f"{facts['rate']:,.1f}", as_time(facts["age"]), facts["state"], *numbers)
    return cells, COLOURS.get(facts["state"], YELLOW)


# ---- pictures


def resample(points: Sequence[Facts], start: float, end: float, count: int) -> list[float]:
    """Return rates at equal intervals: the mean of the points in each, or the last rate before it."""
    parts: list[list[float]] = [[] for _ in range(count)]
    for point in points:
        place = int((point["t"] - start) / (end - start) * count)
        parts[min(max(place, 0), count - 1)].append(point["rate"])
    rates: list[float] = []
    for part in parts:
        rates.append(sum(part) / len(part) if part else rates[-1] if rates else 0.0)
    return rates


def draw(rates: Sequence[float], most: float, tall: int, bars: str) -> list[str]:
    """Return a graph of so many lines, the highest first."""
    steps = len(bars) - 1
    heights = [math.ceil(rate / most * tall * steps) for rate in rates]
    rows = ([min(max(height - row * steps, 0), steps) for height in heights] for row in reversed(range(tall)))
    return ["".join(bars[step] for step in row) for row in rows]


# ---- text in columns


def width_of(text: str) -> int:
    """Return how many columns a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, width: int) -> str:
    """Return as much of a text as fits; a clipped one ends with ~."""
    if width_of(text) <= width:
        return text
    kept = 0
    for place, char in enumerate(text):
        kept += _width(char)
        if kept > width - 1:
            return text[:place] + "~" * (width > 0)
    return text


def fit(text: str, width: int) -> str:
    """Return a text in exactly so many columns."""
    clipped = clip(text, width)
    return clipped + " " * (width - width_of(clipped))


def fit_right(text: str, width: int) -> str:
    """Return the same aligned to the right, after a space."""
    clipped = clip(text, width - 1)
    return " " * (width - width_of(clipped)) + clipped
