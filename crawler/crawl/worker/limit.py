"""The limit of pages of a whole crawl, as one worker sees it."""

from __future__ import annotations

from crawler.crawl.scoreboard import Scoreboard
from crawler.fleet.heartbeats import read_counters
from crawler.settings import LiveSettings
from crawler.store.mount import Files


class PageLimit:
    """`max_pages`: the pages of this machine are known at once, those of others when their counters are read."""

    def __init__(self, files: Files, settings: LiveSettings, scoreboard: Scoreboard, row: int, machine: str) -> None:
        self._files, self._settings, self._machine = files, settings, machine
        self._scoreboard, self._row = scoreboard, row
        self._elsewhere = 0  # pages of other machines and of earlier runs

    def count_elsewhere(self) -> None:
        """Count the pages of other machines and of earlier runs; reads the mount."""
        if self._settings.now.max_pages is not None:
            found = read_counters(self._files)
            self._elsewhere = sum(worker.get("pages", 0) for worker in found if worker.get("machine") != self._machine)

    def is_near(self, taken: int) -> bool:
        """Whether one more page may be too many; announces it before counting, so that two workers see each other."""
        limit = self._settings.now.max_pages
        if limit is None:
            return False
        self.show(taken + 1)
        return self._elsewhere + self._scoreboard.total("pages") + self._scoreboard.total("in_flight") > limit

    def is_reached(self) -> bool:
        """Whether there are as many pages as wanted."""
        limit = self._settings.now.max_pages
        return limit is not None and self._elsewhere + self._scoreboard.total("pages") >= limit

    def show(self, taken: int) -> None:
        """Tell the other workers of this machine how many tasks are taken."""
        self._scoreboard.set(self._row, "in_flight", taken)
