"""The limit of pages of a whole crawl, as one worker sees it."""

from __future__ import annotations

from crawler.crawl.scoreboard import Scoreboard
from crawler.settings.settings import LiveSettings
from crawler.store.clock import Clock


class PageLimit:
    """`max_pages`: the workers of a machine share a budget of pages, which their supervisor looks after."""

    def __init__(self, settings: LiveSettings, scoreboard: Scoreboard, row: int, clock: Clock) -> None:
        self._settings, self._scoreboard, self._row, self._clock = settings, scoreboard, row, clock

    def is_near(self, taken: int) -> bool:
        """Whether one more page may be too many; announces it before counting, so that two workers see each other."""
        if self._settings.now.max_pages is None:
            return False
        self.show(taken + 1)
        most, when = self._scoreboard.budget
        is_old = self._clock.monotonic() - when > self._settings.now.dead_after / 2  # others may share it by now
        in_flight = self._scoreboard.total("in_flight")  # before the pages: one that moves on meanwhile counts twice
        return is_old or in_flight + self._scoreboard.total("pages") > most

    def is_reached(self) -> bool:
        """Whether there are as many pages as wanted."""
        return self._settings.now.max_pages is not None and self._scoreboard.is_limit_reached

    def show(self, taken: int) -> None:
        """Tell the other workers of this machine how many tasks are taken."""
        self._scoreboard.set(self._row, "in_flight", taken)
