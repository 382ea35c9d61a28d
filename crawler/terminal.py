"""What reaches the terminal: no control characters, colours where they are wanted, a bar if somebody looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable
from typing import TextIO, TypeVar

from crawler.web.text import masked, printable

RED, GREEN, YELLOW, BOLD, DIM = "31", "32", "33", "1", "2"

Item = TypeVar("Item")


def say(text: str, file: TextIO | None = None) -> None:
    """Print lines for a person: whatever is in them, no control character and no password reaches the terminal."""
    print(_harmless(text), file=file, flush=True)


def _harmless(text: str) -> str:
    return masked("\n".join(map(printable, text.split("\n"))))


def interject(text: str) -> None:
    """The same while a bar may be on the terminal: it makes room."""
    from tqdm import tqdm

    tqdm.write(_harmless(text), file=sys.stdout)
    sys.stdout.flush()


def paint(text: str, colour: str) -> str:
    """Text in a colour, where standard output is a terminal and nobody wants none; to print, for `say` removes it."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colours(sys.stdout) else text


def has_colours(file: TextIO) -> bool:
    """Whether colours are wanted there: see no-color.org."""
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def bar(items: Iterable[Item], what: str, total: int | None = None) -> Generator[Item, None, None]:
    """The same items, with a bar on standard error while somebody looks."""
    from tqdm import tqdm

    with tqdm(items, what, total, file=sys.stderr, disable=not sys.stderr.isatty(), leave=False, unit="") as shown:
        yield from shown


def count(items: Iterable[object]) -> int | None:
    """How many there are, for such a bar; None, without a look at them, if nobody looks."""
    return sum(1 for _ in items) if sys.stderr.isatty() else None


def many(count: int, noun: str) -> str:
    """A count and its noun: 1 page, 2 pages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """Bytes in one unit."""
    for unit, name in ((1e12, "TB"), (1e9, "GB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count / 1e6:,.1f} MB"
