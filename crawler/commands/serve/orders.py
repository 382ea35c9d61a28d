"""What the buttons of `serve` do: pause, resume, stop and retry, as the commands of these names do it.

An order may take long (`stop` waits for the machines, `retry` reads failure records): each has a thread of its own, and
everybody who looks sees what it has said so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crawler.commands import retry
from crawler.crawl.logs import log
from crawler.errors import CrawlerError, StoreError, UsageError
from crawler.fleet import control
from crawler.store.writer import StoreWriter, open_to_write
from crawler.terminal import say

FIRST_WORDS = 5.0  # seconds for which whoever gives an order waits to hear what came of it
SHOWN_FOR = 600.0  # seconds for which the last order of each kind is shown
TRY_EVERY = 30.0  # seconds between two tries whether the store can be written
READ_ONLY = "this view is read-only: `crawler serve` was started with --read-only"

Form = dict[str, str]
Show = Callable[[str], object]


class OrderFailed(CrawlerError):
    """An order that was not carried out, and why."""


class NoOrders(CrawlerError):
    """No order can be given here, and why."""


class Order:
    """One order, and what came of it so far."""

    def __init__(self, name: str, form: Form) -> None:
        self.name, self.form, self.began = name, form, time.monotonic()
        self.said: list[str] = []
        self.failed = False
        self.ended = threading.Event()

    def say(self, line: str) -> None:
        """Add a line for those who look, and for the terminal of `serve`."""
        self.said.append(line)
        say(f"{self.name}: {line}")

    def carry_out(self, act: Callable[[Show], object]) -> None:
        """Do it; an error is a line, too."""
        try:
            act(self.say)
        except CrawlerError as error:
            self.failed = True
            self.say(str(error))
        except Exception:  # noqa: BLE001 - a bug must not end the server
            self.failed = True
            log.exception("crawler: a bug in the program; please report it with these lines")
            self.said.append("a bug in the program; the terminal of `crawler serve` has more")
        finally:
            self.ended.set()

    def facts(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        ended, ago = self.ended.is_set(), round(time.monotonic() - self.began)
        return {"order": self.name, "said": [*self.said], "ended": ended, "failed": self.failed, "ago": ago}


class Orders:
    """Gives orders to the machines of a store, one of each kind at a time."""

    def __init__(self, root: Path, read_only: bool = False) -> None:
        self._root = root
        self._read_only = READ_ONLY if read_only else ""
        self._next_try = float("inf") if read_only else 0.0
        self._given: dict[str, Order] = {}
        self._lock = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """Return why no order can be given (empty if one can), and the last order of each kind."""
        recent = [order for order in self._given.values() if time.monotonic() - order.began < SHOWN_FOR]
        recent.sort(key=lambda order: order.began)
        return {"read_only": self.why_read_only(), "given": [order.facts() for order in recent]}

    def why_read_only(self) -> str:
        """Return why no order can be given here; whether the store can be written is tried now and then."""
        if time.monotonic() >= self._next_try:
            self._next_try = time.monotonic() + TRY_EVERY
            try:
                open_to_write(self._root).files.clock("workers")  # writes a file
                self._read_only = ""
            except StoreError as error:
                self._read_only = f"this view is read-only: {error}"
        return self._read_only

    def give(self, form: Form) -> dict[str, Any]:
        """Carry out an order, or go on with one of its kind that is under way; return what it has said so far."""
        name = form.get("order", "")
        form = {field: form[field] for field in ("reason", "host") if form.get(field)}
        if name not in ACTS:
            raise UsageError(f"the order is {name[:100]!r}; it must be one of {', '.join(ACTS)}")
        if self.why_read_only():
            raise NoOrders(self.why_read_only())
        order = self._begin(name, form)
        order.ended.wait(FIRST_WORDS)
        if order.failed:
            raise OrderFailed(order.said[-1])
        return order.facts()

    def _begin(self, name: str, form: Form) -> Order:
        with self._lock:
            order = self._given.get(name)
            if order is not None and not order.ended.is_set() and order.form != form:
                raise OrderFailed(f"another {name} is under way; try again when it has ended")
            if order is None or order.ended.is_set():
                order = self._given[name] = Order(name, form)
                act = ACTS[name]
                work = lambda show: act(open_to_write(self._root), form, show)  # noqa: E731
                threading.Thread(target=order.carry_out, args=(work,), daemon=True).start()
        return order


def _retry(store: StoreWriter, form: Form, show: Show) -> None:
    """Request failed URLs again: those of a reason or kind, of a host, or all that failed."""
    reason, host = form.get("reason") or "failed", form.get("host")
    wanted = retry.select(store, [reason], [host] if host else [])
    show(retry.retry(store, store.settings(), wanted))


ACTS: dict[str, Callable[[StoreWriter, Form, Show], object]] = {
    "pause": lambda store, form, show: show(control.pause(store)),
    "resume": lambda store, form, show: show(control.resume(store)),
    "stop": lambda store, form, show: control.stop(store, show),
    "retry": _retry,
}
