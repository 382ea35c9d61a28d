"""Many machines, one mount: each has its share of the work, and twice the machines do twice as much.

Answers take 0.3 s and each machine has few threads, so that it is the waiting that is shared, not this machine's cores.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.machines.fleet import WORKERS, Fleet, fleet
from lab.machines.mounts import Mount
from lab.machines.storm import SlowFlat

from crawler.settings.settings import Settings

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]
SHARDS = Settings().shards
WINDOW = 8.0  # seconds


def test_eight_workers_share_equal_hosts_equally_and_one_that_joins_has_its_share_soon(
    mounting: Mounting, tmp_path: Path
) -> None:
    web = SlowFlat(hosts=300, pages=1000).slow_down(tmp_path / "brake", 0.3)
    with fleet(web, mounting("local", 4), dead_after=30, shards=SHARDS) as f:
        for number in range(3):
            f.join(number)
        all_are_busy(f, 3 * WORKERS)
        waits = [time_to_its_share(f)]
        while min(waits) > 15 and len(waits) < 3:
            f.machines[-1].leave()
            f.machines[-1].wait()
            waits.append(time_to_its_share(f))
        print(f"a machine that joined had its share after {[round(wait, 1) for wait in waits]} s")
        assert min(waits) < 15
        all_are_busy(f, 4 * WORKERS)
        ratios = [busiest_to_mean(f)]
        while min(ratios) > 1.5 and len(ratios) < 3:
            ratios.append(busiest_to_mean(f))
        print(f"the busiest worker did {[round(ratio, 2) for ratio in ratios]} times the mean")
        assert min(ratios) <= 1.5


def all_are_busy(f: Fleet, workers: int) -> None:
    """Wait until so many workers have each done some pages from now on, and so have something to do."""
    before = {id: counters["pages"] for id, counters in f.counters().items()}

    def busy() -> bool:
        done = [counters["pages"] - before.get(id, 0) for id, counters in f.counters().items()]
        return len(done) == workers and min(done) >= 10

    f.wait(busy, f"{workers} workers are busy")


def time_to_its_share(f: Fleet) -> float:
    """Seconds from the first sign of life of a machine that joins until its workers have three quarters of a share."""
    before = f.counters().keys()
    f.join(3)
    f.wait(lambda: f.counters().keys() - before, "a sign of life")
    began = time.monotonic()
    fair = SHARDS * WORKERS / (len(before) + WORKERS)
    f.wait(lambda: sum(id not in before for id in f.owners().values()) >= 0.75 * fair, "its share")
    return time.monotonic() - began


def busiest_to_mean(f: Fleet) -> float:
    """How much more than the mean the busiest worker has done in a while."""
    before = f.counters()
    time.sleep(WINDOW)
    pages = [counters["pages"] - before[id]["pages"] for id, counters in f.counters().items() if id in before]
    print(f"pages of each worker in {WINDOW:.0f} s: {sorted(pages)}")
    return max(pages) * len(pages) / sum(pages)


@pytest.mark.alone
def test_eight_machines_do_nearly_eight_times_the_work_of_one(mounting: Mounting, tmp_path: Path) -> None:
    web = SlowFlat(hosts=400, pages=1000).slow_down(tmp_path / "brake", 0.3)
    with fleet(web, mounting("local", 8), dead_after=30, heartbeat=1, shards=SHARDS) as f:
        rates: dict[int, float] = {}
        for machines in (1, 2, 4, 8):
            while len(f.machines) < machines:
                f.join(len(f.machines), workers=1, threads=3)
            f.wait(lambda all=machines: even(f, all), f"equal shares for {machines}")  # type: ignore[misc]
            all_are_busy(f, machines)
            rates[machines] = best_rate(f, enough=0.9 * machines * rates.get(1, 0))
        linear = {machines: rate / rates[1] / machines for machines, rate in rates.items()}
        for machines, rate in rates.items():
            print(f"{machines} machines: {rate:.1f} pages/s, {linear[machines]:.2f} of linear")
        assert linear[8] >= 0.9


def even(f: Fleet, workers: int) -> bool:
    """Whether so many workers have equal shares."""
    shares = Counter(f.owners().values())
    return shares.keys() == f.counters().keys() and [*shares.values()] == [SHARDS // workers] * workers


def best_rate(f: Fleet, enough: float) -> float:
    """Pages per second, as the server saw them: the best of three whiles, or the first that is enough."""
    best = 0.0
    for _ in range(3):
        began = time.monotonic()
        time.sleep(WINDOW)
        taken = time.monotonic() - began
        best = max(best, len(f.answered(since=began)) / taken)
        if best >= enough:
            break
    return best
