"""When pages are visited again, as one worker knows it: the rules, and the price of a request at each host."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from crawler.frontier.batches import Outbox
from crawler.frontier.recrawl import Recrawl, next_price, price_in
from crawler.frontier.task import Task
from crawler.settings.settings import LiveSettings, Settings
from crawler.store import visits
from crawler.store.clock import SYSTEM, Clock
from crawler.store.records import to_json
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.page import Failure

MAX_PRICES = 10_000  # hosts; that of another is in its records


class Schedule:
    """Plans the next visits."""

    def __init__(self, settings: LiveSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._read, self._rules = settings.now, Recrawl(settings.now.recrawl)
        self._prices: OrderedDict[str, float] = OrderedDict()

    @property
    def rules(self) -> Recrawl:
        """The rules of the settings as they are now."""
        if self._settings.now is not self._read:
            self._read, self._rules = self._settings.now, Recrawl(self._settings.now.recrawl)
        return self._rules

    def plan(self, record: dict[str, Any]) -> Task | None:
        """Return the next visit of a page, to be handed over before its new record is written; None if there is none.

        For the adaptive rule the host's price goes into the record: so the visit can be derived from that alone.
        """
        if not self.rules:
            return None
        if self.rules.is_adaptive(record):
            self._note_price(record)
        return self.rules.task(record, self._clock.monotonic(), self._clock.time())

    def _note_price(self, record: dict[str, Any]) -> None:
        host, mean = urls.host(str(record["url"])), self.rules.mean(record)
        price = self._prices.pop(host, price_in(record) or 0.0)
        record["price"] = round(price, 4)
        interval = self.rules.interval(record)
        self._prices[host] = price if mean is None or interval is None else next_price(price, interval, mean)
        if len(self._prices) > MAX_PRICES:
            self._prices.popitem(last=False)

    def is_early(self, record: dict[str, Any]) -> bool:
        """Tell whether a page was visited so lately that a visit now would be more often than its schedule."""
        due, interval = self.rules.due(record), self.rules.interval(record) or 0.0
        is_spread = "visits" not in record  # its first visit is on a day of its own (see `Recrawl.task`)
        return due is not None and not is_spread and due - self._clock.time() > max(0.1 * interval, 1.0)


def give_up(store: StoreWriter, outbox: Outbox, settings: Settings, task: Task, failure: Failure) -> None:
    """Note that a revisit failed, for who is no worker: the next one is handed over first."""
    old = store.record(task.subject)
    if old is None or task.visit <= visits.visits_of(old):
        return
    record = visits.failed(old, failure, task.visit, SYSTEM.time())
    following = Recrawl(settings.recrawl).task(record, SYSTEM.monotonic(), SYSTEM.time())
    outbox.send([following] if following else [])
    store.put_record(task.subject, to_json(record))
