"""How often one address and one domain may be requested, however many host names lead there.

Ten thousand names of one wildcard zone may be one machine, perhaps somebody else's. The requests of a worker to each
address and to each domain are counted here by time; one that would be too many waits, without a request slot.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping

from crawler.settings.settings import LiveSettings, delay_for
from crawler.store.clock import Clock
from crawler.web import urls
from crawler.web.addresses import is_in, machine_of

DOMAIN_FACTOR = 10.0  # a domain may have so many times the requests of an address: its hosts are on several machines
MAX_COUNTED = 1000  # requests that are remembered of one address: at higher rates of a part of a second
MAX_BOOKED = 20_000  # addresses and domains with requests that wait; of one that is forgotten they only come too soon
MAX_HELD = 50_000  # hosts, for the report on what URLs wait for
MAX_WAIT = 3600.0  # seconds
MOMENT = 0.25  # of the time between two requests

Queue = tuple[str, bool]  # an address or domain, and whether the hosts in it have begun


class TooSoon(Exception):
    """A request that was not sent: its address or its domain has had as many as it may have."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"in {seconds:.1f} s")
        self.seconds = seconds  # until there is a turn


class AddressPace:
    """The pace of addresses and domains, as one worker keeps it: other workers keep their own."""

    def __init__(self, settings: LiveSettings, clock: Clock) -> None:
        self._settings, self._clock = settings, clock
        self._sent: OrderedDict[str, deque[float]] = OrderedDict()  # when; the one that was requested last at the end
        self._booked: OrderedDict[Queue, float] = OrderedDict()  # the last turn that was given to a request
        self._held: OrderedDict[str, None] = OrderedDict()  # hosts whose requests wait

    def admit(self, host: str, has_begun: bool, addresses: tuple[str, ...]) -> None:
        """Count a request to a host, which may go to any of these addresses; TooSoon if it must wait for its turn.

        None of them are known behind a proxy: then the domain has the rate of an address. A host that `has_begun` has
        had its robots.txt requested, say, and no page: it waits in a queue of its own, not behind all new hosts.
        """
        limits = self._limits(host, addresses)
        now = self._clock.monotonic()
        self._forget(now)
        opens = {key: self._opens(key, rate, now) for key, rate in limits.items()}
        if all(when <= now for when in opens.values()):
            for key in limits:
                self._note(key, now)
            self._held.pop(host, None)
            return
        blocked = {key: when for key, when in opens.items() if when > now}
        turns = [self._book((key, has_begun), when, limits[key], now) for key, when in blocked.items()]
        self._held[host] = None
        if len(self._held) > MAX_HELD:
            self._held.popitem(last=False)
        raise TooSoon(min(max(turns) - now, MAX_WAIT))

    def holds(self, host: str) -> bool:
        """Tell whether a request to a host waits for its turn at an address or domain."""
        return host in self._held

    def _limits(self, host: str, addresses: tuple[str, ...]) -> Mapping[str, float]:
        """Return the addresses and domains that a request counts for, and the requests a second that each may have."""
        settings = self._settings.now
        delay = delay_for(settings, host)
        if settings.max_per_address is None or delay == 0:
            return {}
        rate = max(settings.max_per_address, 1 / delay)  # an address may have what a single host may have
        machines = set(map(machine_of, addresses))
        by_address = {machine: rate for machine in machines if not is_in(machine, settings.shared_addresses)}
        is_known = bool(machines) and len(by_address) == len(machines)
        return {urls.zone(host): rate * DOMAIN_FACTOR if is_known else rate, **by_address}

    def _opens(self, key: str, rate: float, now: float) -> float:
        """Return when the next request fits: there are never more than `rate` in a second."""
        sent = self._sent.get(key, ())
        most, window = (int(rate), 1.0) if rate >= 1 else (1, 1 / rate)
        if most > MAX_COUNTED:
            most, window = MAX_COUNTED, MAX_COUNTED / most
        return now if len(sent) < most else max(sent[-most] + window, now)

    def _note(self, key: str, now: float) -> None:
        self._sent.setdefault(key, deque(maxlen=MAX_COUNTED)).append(now)
        self._sent.move_to_end(key)

    def _book(self, queue: Queue, opens: float, rate: float, now: float) -> float:
        """Return the turn of a request that has to wait: one after the other, so that they do not all come at once.

        One that comes only a moment too soon, perhaps for the turn that it was given, waits for that moment.
        """
        if opens - now < MOMENT / rate:
            return opens
        turn = self._booked[queue] = max(opens, self._booked.pop(queue, 0.0) + 1 / rate)
        if len(self._booked) > MAX_BOOKED:
            self._booked.popitem(last=False)
        return turn

    def _forget(self, now: float) -> None:
        """Forget what restrains nobody any more: memory depends on the requests of the last seconds alone."""
        settings = self._settings.now
        window = max(1.0, 1 / (settings.max_per_address or 1.0))
        while self._sent and next(iter(self._sent.values()))[-1] + window < now:
            self._sent.popitem(last=False)
        while self._booked and next(iter(self._booked.values())) < now:
            self._booked.popitem(last=False)
