"""The progress line of a run: this machine's counters."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from crawler.crawl.scoreboard import PAUSES, Scoreboard
from crawler.terminal import many
from crawler.web.reasons import KINDS

if TYPE_CHECKING:
    from tqdm import tqdm

LINE_INTERVAL = 20.0  # seconds between progress lines when stderr is not a terminal
STOPPING = "stopping: finishing the pages in flight; Ctrl-C again to stop now (nothing is lost either way)"


class Progress:
    """A progress bar on a terminal; elsewhere a plain line every 20 seconds."""

    def __init__(self, scoreboard: Scoreboard, quiet: bool) -> None:
        self.scoreboard = scoreboard
        self.quiet = quiet
        self._next = time.monotonic() + LINE_INTERVAL
        self._announced = quiet
        self._bar = _new_bar() if sys.stderr.isatty() and not quiet else None

    def show(self) -> None:
        """Update the line."""
        facts = {name: self.scoreboard.total(name) for name in ("waiting", *KINDS, "hosts")}
        pages = self.scoreboard.total("pages")
        paused = self.scoreboard.total("paused") > 0 or any(map(self.scoreboard.pause_reason, PAUSES))
        if self._bar is not None:
            self._bar.set_postfix({**facts, **({"paused": "yes"} if paused else {})}, refresh=False)
            self._bar.update(pages - self._bar.n)
        elif not self.quiet and time.monotonic() > self._next:
            self._next = time.monotonic() + LINE_INTERVAL
            hosts = many(facts.pop("hosts"), "host")
            counts = [many(pages, "page"), *(f"{value:,} {name}" for name, value in facts.items()), hosts]
            print(", ".join([*counts, *(["paused"] if paused else [])]), file=sys.stderr)

    def announce_stop(self) -> None:
        """Acknowledge the first Ctrl-C, once."""
        if not self._announced:
            self._announced = True
            write = print if self._bar is None else self._bar.write
            write(STOPPING, file=sys.stderr)

    def close(self) -> None:
        """Leave the last line on the terminal."""
        self.show()
        if self._bar is not None:
            self._bar.close()


def _new_bar() -> tqdm[Any]:
    from tqdm import tqdm  # here: it loads slowly, and only terminals show it

    return tqdm(unit=" pages", bar_format="{n_fmt} pages {rate_noinv_fmt} {elapsed}{postfix}")
