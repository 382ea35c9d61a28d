"""Many machines, one mount: complete, nothing asked twice, polite, and over when it is over."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from lab.machines.fleet import IN_FLIGHT, SHARDS, WORKERS, Fleet, fleet
from lab.machines.mounts import Mount
from lab.machines.storm import SlowLinks, SlowTree
from lab.webs import TreeWeb

from crawler.frontier.task import shard_of_host
from crawler.settings.settings import Settings
from crawler.store.store import shard_name
from crawler.store.writer import StoreWriter
from crawler.web import urls

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]


def test_three_machines_get_every_page_once_politely_and_end_by_themselves(kind: str, mounting: Mounting) -> None:
    delay = 0.1
    web = TreeWeb(hosts=30, fanout=6, depth=3, delay=0.05)
    with fleet(web, mounting(kind, 3), delay=delay, dead_after=30, durable="true") as f:
        for number in range(3):
            f.join(number)
        late = f.end()
        print(f"{kind}: {len(f.log)} requests, the last machine ended {late:.1f} s after the last answer")
        assert f.differences() == []
        assert f.again() == {}
        assert f.haste(delay) == {}
        assert late < 60
        assert f.counters() == {}, "all workers have said goodbye"
        assert set(f.owners().values()) == {"free"}


def test_a_store_that_another_machine_has_just_made_is_found_by_one_that_had_looked_before(
    kind: str, mounting: Mounting
) -> None:
    """Machines are started by one command at one moment: for each, the store was not there when it first looked."""
    with fleet(TreeWeb(hosts=10, fanout=4, depth=2, delay=0.5), mounting(kind, 3), dead_after=30) as f:
        f.root.mkdir()
        for number in range(1, 3):
            assert not (f.mount.at(number) / "store" / "README").exists()
        f.join(0)
        f.wait((f.root / "README").exists, "a store")
        for number in range(1, 3):
            f.join(number)
        f.end()
        assert f.differences() == []
        assert f.again() == {}


def test_machines_that_make_a_store_at_the_same_moment_wait_for_each_other(kind: str, mounting: Mounting) -> None:
    mount = mounting(kind, 4)
    for number in range(10):
        (mount.real / f"store-{number}").mkdir()
        together = threading.Barrier(4)

        def take_turns(machine: int, number: int = number, together: threading.Barrier = together) -> None:
            store = StoreWriter(mount.at(machine) / f"store-{number}")
            together.wait()
            with store.alone("taking turns", Settings()):
                pass

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(take_turns, range(4)))


SHIFT = """
import os, time
hours, now, now_ns = float(os.environ["SHIFT"]), time.time, time.time_ns
time.time = lambda: now() + 3600 * hours
time.time_ns = lambda: now_ns() + int(3600e9 * hours)
"""


def test_machines_of_one_name_with_the_same_process_ids_and_clocks_hours_apart(
    mounting: Mounting, tmp_path: Path
) -> None:
    """As containers are: each supervisor is process 1 of a host called the same. Clocks are shifted inside Python."""
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    booted = ["--time", "--monotonic", "86400"]  # a machine that has been up for a day longer
    if subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("process namespaces cannot be made here: it needs root and the right to unshare")
    if subprocess.run([*apart, *booted, "true"], capture_output=True, check=False).returncode:
        booted = []
    (tmp_path / "shift").mkdir()
    (tmp_path / "shift" / "sitecustomize.py").write_text(SHIFT)
    path = f"{tmp_path / 'shift'}:{Path.cwd()}"
    with fleet(TreeWeb(hosts=30, fanout=6, depth=3, delay=0.05), mounting("local", 3), dead_after=30) as f:
        for number, hours in enumerate((0, 5, -7)):
            wrap = [*apart, *(booted if number == 1 else [])]
            f.join(number, wrap=wrap, SHIFT=str(hours), PYTHONPATH=path)
        f.end()
        assert f.differences() == []
        assert f.again() == {}
        hours = {record["fetched"][:13] for record in f.records()}
        assert len(hours) >= 3, f"the clocks were not apart: {hours}"


def test_a_machine_that_stood_still_finds_itself_replaced_and_begins_anew(mounting: Mounting, tmp_path: Path) -> None:
    web = SlowTree(hosts=24, fanout=6, depth=3).slow_down(tmp_path / "brake", 0.5)
    with fleet(web, mounting("local", 2), retries=9) as f:
        first = f.join(0)
        f.wait(lambda: len(f.counters()) == WORKERS, "the workers of the first machine")
        old = f.counters().keys()
        f.join(1)
        f.wait(lambda: len(set(f.owners().values())) == 2 * WORKERS, "shares for all")
        first.stop()
        f.wait(lambda: old.isdisjoint(f.owners().values()), "the other machine takes everything")
        first.go_on()
        f.wait(
            lambda: "showed no heartbeat for too long and was declared dead" in first.printed, "the machine knows of it"
        )
        f.wait(lambda: len(f.counters().keys() - old) == 2 * WORKERS, "its new workers")
        web.brake.unlink()
        f.end()
        print(f"{f.again().total()} requests made twice, bound {WORKERS * IN_FLIGHT}")
        assert f.differences() == []
        assert f.again().total() <= WORKERS * IN_FLIGHT


def test_a_link_for_another_machine_is_fetched_soon_although_its_mount_believes_old_listings(
    kind: str, mounting: Mounting, tmp_path: Path
) -> None:
    """A chain of hosts: each link is found on one machine, and half of them are the other's to fetch."""
    chain = [f"http://host-{number}.example/" for number in range(20)]
    web = SlowLinks({here: [there] for here, there in pairwise(chain)} | {chain[-1]: []})
    with fleet(web.slow_down(tmp_path / "brake", 1.0), mounting(kind, 2), dead_after=30) as f:
        for number in range(2):
            f.join(number, workers=1)
        half = SHARDS // 2
        f.wait(lambda: sorted(Counter(f.owners().values()).values()) == [half, half], "equal shares")
        owners, began = f.owners(), time.monotonic()
        web.brake.unlink()
        f.end()
        assert f.differences() == []
        lags = [
            lag
            for (here, there), (lag, found) in zip(pairwise(chain), lags_of(f, chain), strict=True)
            if owners[shard(here)] != owners[shard(there)] and found > began
        ]
        print(f"{kind}: {len(lags)} links went to the other machine and took {[round(lag, 1) for lag in lags]} s")
        assert sorted(lags)[len(lags) // 2] < 15, f"a listing may be 20 s old, and was believed: {lags}"


def lags_of(f: Fleet, chain: list[str]) -> Iterator[tuple[float, float]]:
    """For each link of the chain: how long it took until its host was asked, and when it was found."""
    asked = {request.host: request.start for request in sorted(f.log, reverse=True)}
    answered = {request.host: request.end for request in f.log if request.status == 200}
    for here, there in pairwise(map(urls.host, chain)):
        yield asked[there] - answered[here], answered[here]


def shard(url: str) -> str:
    """The shard of a URL, as it is spelled in the store."""
    return shard_name(shard_of_host(urls.host(url), SHARDS))
