"""How often one address and one domain may be requested: in any second no more than the rate, whatever the names."""

from __future__ import annotations

import heapq
from collections import defaultdict
from random import Random

import pytest

from crawler.crawl.worker import address_pace
from crawler.crawl.worker.address_pace import AddressPace, TooSoon
from crawler.settings.settings import LiveSettings, Settings
from crawler.store.clock import Clock


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.clock = Clock(monotonic=lambda: self.now, time=lambda: self.now)


def pace_of(time: Time, **given: object) -> AddressPace:
    return AddressPace(LiveSettings(Settings(**given)), time.clock)  # type: ignore[arg-type]


def wait(pace: AddressPace, host: str, *addresses: str) -> float:
    """How long a request has to wait; 0 if it was admitted."""
    try:
        pace.admit(host, False, addresses)
    except TooSoon as soon:
        return soon.seconds
    return 0.0


def admitted(pace: AddressPace, hosts: list[str], *addresses: str) -> int:
    """How many of these are admitted at one moment."""
    return sum(not wait(pace, host, *addresses) for host in hosts)


def most_in(window: float, times: list[float]) -> int:
    return max(sum(start <= time < start + window for time in times) for start in times)


@pytest.mark.parametrize("rate", [0.5, 1.0, 5.0, 12.5])
@pytest.mark.parametrize("seed", range(3))
def test_no_address_gets_more_than_its_rate_and_one_that_is_wanted_gets_about_that(rate: float, seed: int) -> None:
    random, time = Random(seed), Time()
    pace = pace_of(time, max_per_address=rate, delay=2.0)
    sent: dict[str, list[float]] = defaultdict(list)
    names = [f"n{number}.{random.choice('abc')}.example" for number in range(300)]
    addresses = {name: f"192.0.2.{random.randrange(2)}" for name in names}
    waiting = [(time.now + random.random(), name) for name in names]
    heapq.heapify(waiting)
    while waiting[0][0] < 1060.0:
        time.now, name = heapq.heappop(waiting)
        seconds = wait(pace, name, addresses[name])
        if not seconds:
            sent[addresses[name]].append(time.now)
            seconds = 2.0  # its own delay
        late = random.random() * 0.01  # that the worker is busy
        heapq.heappush(waiting, (time.now + seconds + late, name))
    window = 1.0 if rate >= 1 else 1 / rate
    for times in sent.values():
        assert most_in(window - 1e-6, times) <= max(int(rate), 1)
        assert len(times) >= 0.8 * 60 * rate


def test_one_more_than_the_rate_waits_and_each_of_the_others_longer_than_the_last() -> None:
    time = Time()
    pace = pace_of(time)
    waits = [wait(pace, f"n{number}.zone.example", "192.0.2.1") for number in range(105)]
    assert waits[:5] == [0.0] * 5
    assert waits[5:] == pytest.approx([1.0 + number / 5 for number in range(100)])
    time.now += 1.0
    assert admitted(pace, [f"n{number}.zone.example" for number in range(5, 15)], "192.0.2.1") == 5
    assert pace.holds("n50.zone.example")
    assert not pace.holds("n5.zone.example")


def test_a_host_that_has_begun_does_not_wait_behind_all_that_are_new() -> None:
    time = Time()
    pace = pace_of(time)
    for number in range(1000):
        wait(pace, f"n{number}.example", "192.0.2.1")
    assert wait(pace, "last.example", "192.0.2.1") > 100
    with pytest.raises(TooSoon) as soon:
        pace.admit("n0.example", True, ("192.0.2.1",))
    assert soon.value.seconds <= 1.0


@pytest.mark.parametrize(
    "addresses, machines",
    [
        (["192.0.2.1", "192.0.2.2"], 2),
        (["2001:db8:0:1::1", "2001:db8:0:1:ffff::2"], 1),  # a /64 is one machine
        (["2001:db8:0:1::1", "2001:db8:0:2::1"], 2),
        (["64:ff9b::192.0.2.1", "64:ff9b::192.0.2.2"], 2),  # NAT64: each has an address of its own
        (["::ffff:192.0.2.1", "192.0.2.1"], 1),
    ],
)
def test_what_counts_as_one_machine(addresses: list[str], machines: int) -> None:
    pace = pace_of(Time())
    asked = [(f"{place}-{number}.example", address) for place, address in enumerate(addresses) for number in range(20)]
    assert sum(not wait(pace, host, address) for host, address in asked) == 5 * machines


def test_a_name_with_several_addresses_counts_for_each_that_it_may_go_to() -> None:
    time = Time()
    pace = pace_of(time)
    hosts = [f"n{number}.example" for number in range(20)]
    assert sum(not wait(pace, host, f"198.51.100.{place}", "192.0.2.1") for place, host in enumerate(hosts)) == 5


def test_a_domain_on_many_addresses_has_ten_times_the_rate_of_one() -> None:
    pace = pace_of(Time())
    names = [f"n{number}.zone.example" for number in range(200)]
    assert sum(not wait(pace, name, f"192.0.2.{place}") for place, name in enumerate(names)) == 50


@pytest.mark.parametrize("shared", [("192.0.2.0/24",), ("2001:db8::/32", "192.0.0.0/8")])
def test_at_a_shared_hoster_and_behind_a_proxy_the_rate_is_that_of_each_domain(shared: tuple[str, ...]) -> None:
    names = [f"n{number}.{zone}.example" for zone in ("one", "two", "three") for number in range(20)]
    assert admitted(pace_of(Time(), shared_addresses=shared), names, "192.0.2.1") == 3 * 5
    assert admitted(pace_of(Time(), shared_addresses=()), names) == 3 * 5


def test_a_shorter_delay_that_the_operator_set_raises_the_rate_and_no_delay_lifts_it() -> None:
    names = [f"n{number}.example" for number in range(2000)]
    assert admitted(pace_of(Time(), delay=0.1), names, "192.0.2.1") == 10
    assert admitted(pace_of(Time(), delay=0.0), names, "192.0.2.1") == 2000
    assert admitted(pace_of(Time(), max_per_address=None), names, "192.0.2.1") == 2000
    agreed = pace_of(Time(), delays={"n1*": 0.0})
    assert admitted(agreed, names, "192.0.2.1") == 5 + sum(name.startswith("n1") for name in names)


def test_an_edit_of_the_settings_counts_at_once() -> None:
    time = Time()
    live = LiveSettings(Settings())
    pace = AddressPace(live, time.clock)
    names = [f"n{number}.example" for number in range(100)]
    assert admitted(pace, names, "192.0.2.1") == 5
    live.now = Settings(max_per_address=20.0)
    assert admitted(pace, names, "192.0.2.1") == 15
    live.now = Settings(shared_addresses=("192.0.2.1/32",))
    assert admitted(pace, names, "192.0.2.1") == 100, "each has a domain of its own"


def test_memory_depends_on_the_last_seconds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_pace, "MAX_BOOKED", 50)
    monkeypatch.setattr(address_pace, "MAX_HELD", 50)
    time = Time()
    pace = pace_of(time)
    for number in range(4_000):
        for name in "abcdefgh":
            wait(pace, f"{name}{number}.example", f"10.{number >> 8}.{number & 255}.1")
        time.now += 0.01
    assert max(len(pace._booked), len(pace._held)) <= 50
    assert len(pace._sent) < 2000
