"""How a run goes on, for who watches it: a line of its own machine's counters."""

from __future__ import annotations

import sys
import time

from crawler.crawl.scoreboard import WANTS, Scoreboard

PLAIN_LINE = 20.0  # seconds between lines of progress where there is no terminal


class Progress:
    """One line for a person: a bar on a terminal, a plain line now and then elsewhere."""

    def __init__(self, scoreboard: Scoreboard, quiet: bool) -> None:
        self.scoreboard = scoreboard
        self.quiet = quiet
        self.terminal = sys.stderr.isatty()
        self._next = time.monotonic() + PLAIN_LINE
        self._announced = quiet
        from tqdm import tqdm  # here, because workers load this module too, and show nothing

        self._bar = tqdm(
            unit=" pages",
            disable=quiet or not self.terminal,
            bar_format="{n_fmt} pages {rate_noinv_fmt} {elapsed}{postfix}",
        )

    def show(self) -> None:
        """Bring the line up to date."""
        facts = {name: self.scoreboard.total(name) for name in ("waiting", "failed", "hosts")}
        pages = self.scoreboard.total("pages")
        paused = self.scoreboard.total("paused") > 0 or any(map(self.scoreboard.wanted, WANTS))
        if self.terminal:
            self._bar.set_postfix({**facts, **({"paused": "yes"} if paused else {})}, refresh=False)
            self._bar.update(pages - self._bar.n)
        elif not self.quiet and time.monotonic() > self._next:
            self._next = time.monotonic() + PLAIN_LINE
            print(
                f"{pages} pages,",
                ", ".join(f"{value} {name}" for name, value in facts.items()) + (", paused" if paused else ""),
                file=sys.stderr,
            )

    def announce_the_end(self) -> None:
        """Say once that Ctrl-C was heard."""
        if not self._announced:
            self._announced = True
            self._bar.write(
                "finishing what is in flight; Ctrl-C again to stop now (nothing is lost either way)", file=sys.stderr
            )

    def close(self) -> None:
        """Leave the last line on the terminal."""
        self.show()
        self._bar.close()
