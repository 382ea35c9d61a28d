"""Whether and how a worker ends."""

from __future__ import annotations

from crawler.crawl.scoreboard import Scoreboard
from crawler.errors import StoreError

# The outcomes of a worker. Later: nothing is due within the hour.
OVER, LATER, STOPPED, LIMIT = "over", "later", "stopped", "limit"
MARKED_DEAD, NO_HEARTBEAT = REPLACED = "marked dead", "no heartbeat"  # after these a new worker is started


class Stopped(Exception):
    """The worker ends or may have been replaced before this task was done; the task stays in the frontier."""


class Ending:
    """The outcome of a worker, as soon as it is known: then no more tasks are taken."""

    def __init__(self, scoreboard: Scoreboard) -> None:
        self._scoreboard = scoreboard
        self.outcome: str | None = None
        self.error: StoreError | None = None
        self.closed = False  # nothing is waited for any more

    @property
    def draining(self) -> bool:
        """Whether this worker or its whole machine is about to end."""
        return self.outcome is not None or self._scoreboard.draining

    def end(self, outcome: str) -> None:
        """Set the outcome; only the first one counts."""
        self.outcome = self.outcome or outcome

    def fail(self, error: StoreError) -> None:
        """End because of an error of the store that does not pass."""
        self.error = self.error or error
        self.end(STOPPED)
