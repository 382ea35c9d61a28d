"""The page budget of this machine: how many pages its workers may bring together, while `max_pages` is set.

The supervisor looks after it in a thread of its own, because a mount may hang, and tells the workers on the scoreboard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import Scoreboard
from crawler.errors import StoreError
from crawler.fleet.budgets import Budget, Others
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Files

MIN_STOCK = 100  # pages that a machine among others reserves at a time, if it may
GROWTH = 4  # times what it brought since the last look that it reserves at most
HURRY = 0.25  # seconds between looks while the workers wait for a larger budget
CHECK_INTERVAL = 0.05  # seconds
STOP_TIMEOUT = 5.0  # seconds


class PageBudget:
    """Reserves pages for this machine, and gives back what it does not use."""

    def __init__(
        self,
        files: Files,
        machine: str,
        scoreboard: Scoreboard,
        settings: Callable[[], Settings],
        clock: Clock = SYSTEM,
    ) -> None:
        """`settings` returns them as they are now."""
        self._files, self._machine, self._scoreboard, self._settings = files, machine, scoreboard, settings
        self._clock = clock
        self._others = Others(files, machine, settings().dead_after, settings().heartbeat)
        self._mine: Budget | None = None
        self._hurries = True
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="page budget")

    def start(self) -> None:
        """Look from now on, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more: nothing is announced for a machine that has ended. A mount that hangs is not waited for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT)

    def _run(self) -> None:
        last = 0.0
        while not self._stopped.is_set():
            heartbeat = self._settings().heartbeat
            if self._clock.monotonic() - last < (min(HURRY, heartbeat) if self._hurries else heartbeat):
                self._clock.sleep(CHECK_INTERVAL)
                continue
            last = self._clock.monotonic()
            try:
                self.look()
            except StoreError as error:  # the budget that we have ends by itself (see `PageLimit`)
                log.debug("page budget not renewed: %s", error)
            except Exception:  # noqa: BLE001 - without a budget the workers would wait for ever
                log.exception("bug in the crawler: the page budget failed", extra={"event": "fault"})

    def look(self) -> None:
        """Announce what we want, then see what the others have, and tell our workers what they may bring."""
        limit = self._settings().max_pages
        if limit is None:
            self._hurries = False
            return self._end()
        began = self._clock.monotonic()
        if self._mine is None:
            self._announce(self._used())
            self._others.look(began)
        self._change_to(self._wanted(limit), began)
        self._others.look(self._clock.monotonic())
        free = limit - self._others.reserved
        if free < self._most:
            self._change_to(free, began)
        most = min(self._most, free)  # what we announced may be more: `_used` can count a page twice
        self._scoreboard.set_budget(most, began, self._pages + self._others.pages >= limit)
        self._hurries = self._used() >= most
        return None

    @property
    def _most(self) -> int:
        return self._mine.most if self._mine else 0

    @property
    def _pages(self) -> int:
        return self._scoreboard.total("pages")

    def _used(self) -> int:
        """Return the pages that we have brought, or are about to."""
        in_flight = self._scoreboard.total("in_flight")  # before the pages: one that moves on meanwhile counts twice
        return in_flight + self._pages

    def _wanted(self, limit: int) -> int:
        """Return the budget that we should have: alone all that is left, else a share that we can soon use."""
        used, others = self._used(), self._others
        free = limit - others.reserved
        if not others.budgets:
            return max(free, used)
        gain = self._pages - self._mine.pages if self._mine else 0
        if not self._scoreboard.total("waiting") or (self._most > used == self._pages and not gain):
            return used  # nothing to do, or nothing that is due: others may need it more
        left = limit - others.pages - used
        share = -(-left // (len(others.budgets) + 1))
        return max(min(used + min(share, max(MIN_STOCK, GROWTH * gain)), free), used)

    def _change_to(self, most: int, when: float) -> None:
        """Announce another budget; our workers hear of a smaller one first, and keep what they have taken by then."""
        told, _ = self._scoreboard.budget
        if most < told:
            self._scoreboard.set_budget(most, when, self._scoreboard.is_limit_reached)
        self._announce(max(most, self._used()))

    def _announce(self, most: int) -> None:
        """Show a budget under a new name."""
        old = self._mine
        new = Budget(self._machine, old.number + 1 if old else 1, most, self._pages)
        if old is None or not self._files.claim(old.name, new.name):
            self._files.create(new.name)
        self._mine = new

    def _end(self) -> None:
        if self._mine:
            self._files.drop(self._mine.name)
            self._mine = None
        self._scoreboard.set_budget(0, 0.0, False)
