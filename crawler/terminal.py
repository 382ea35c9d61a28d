"""What people see: safe text, colours, progress bars, counts, sizes."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from typing import TextIO, TypeVar

from crawler.web.text import masked, printable

RED, GREEN, YELLOW, BOLD, DIM = "31", "32", "33", "1", "2"

BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " ..::--=#"  # the second for terminals that cannot show the first

Item = TypeVar("Item")


def say(text: str, file: TextIO | None = None) -> None:
    """Print lines for a person, without control characters and passwords."""
    print(_safe(text), file=file, flush=True)


def _safe(text: str) -> str:
    return masked("\n".join(map(printable, text.split("\n"))))


def interject(text: str) -> None:
    """Print the same while a progress bar may be on the terminal."""
    from tqdm import tqdm

    tqdm.write(_safe(text), file=sys.stdout)
    sys.stdout.flush()


def paint(text: str, colour: str) -> str:
    """Return text in a colour if standard output is a terminal; not for `say`, which removes colours."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours(sys.stdout) else text


def has_colours(file: TextIO) -> bool:
    """Return whether to use colours there: see no-color.org."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bars() -> str:
    """Return the heights of a bar that standard output can show, the lowest first."""
    try:
        BARS.encode(sys.stdout.encoding)
    except UnicodeEncodeError:
        return PLAIN_BARS
    return BARS


def bar(items: Iterable[Item], what: str, total: int | None = None) -> Generator[Item, None, None]:
    """Yield the same items, with a progress bar if standard error is a terminal."""
    from tqdm import tqdm

    with tqdm(items, what, total, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False, unit="") as shown:
        yield from shown


def count(items: Iterable[object]) -> int | None:
    """Return how many there are, for such a bar; None, without counting, if there is no terminal."""
    return sum(1 for _ in items) if sys.stderr.isatty() else None


def many(count: int, noun: str) -> str:
    """Return a count and its noun: 1 page, 2 pages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """Return bytes in one unit."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,.0f} bytes"


def as_time(seconds: float) -> str:
    """Return a duration in one unit."""
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"
