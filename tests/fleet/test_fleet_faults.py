"""Many machines, one mount, and what can happen to them: nothing is lost, little is asked twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lab.machines.fleet import fleet
from lab.machines.mounts import Mount
from lab.machines.storm import SlowTree, Storm, Strict
from lab.webs import gaps

from crawler.commands.demo.server import LoggedRequest

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]


def test_thirty_events_that_machines_and_file_servers_suffer_lose_nothing(
    kind: str, mounting: Mounting, tmp_path: Path, seed: int
) -> None:
    web = SlowTree(hosts=24, fanout=6, depth=4).slow_down(tmp_path / "brake", 2.5)  # 160 s at least: twice a storm
    with fleet(web, mounting(kind, 4), retries=9) as f:
        storm = Storm(f, machines=4, seed=seed)
        storm.begin()
        f.until(10)
        storm.rage()
        storm.calm()
        web.brake.unlink()
        began = time.monotonic()
        late = f.end()
        again = f.again()
        print(
            f"{kind}: {dict(storm.events)}: {again.total()} requests made twice, bound {storm.bound}; "
            f"the rest took {time.monotonic() - began:.0f} s, and the end {late:.1f} s after the last answer"
        )
        assert f.differences() == []
        assert again.total() <= storm.bound


def told(log: list[LoggedRequest]) -> list[LoggedRequest]:
    """The requests from the last /robots.txt before a host's first page: who died before reading the rules, or before
    following a redirect to them, could not leave their delay to the next one."""
    known: dict[str, list[LoggedRequest]] = {}
    for request in sorted(log):
        visits = known.setdefault(request.host, [])
        if [visit.path for visit in visits] == [request.path] == ["/robots.txt"]:
            visits.clear()
        visits.append(request)
    return [visit for visits in known.values() for visit in visits]


def test_hosts_are_spared_while_machines_die_come_and_go(
    kind: str, mounting: Mounting, tmp_path: Path, seed: int
) -> None:
    delay = 1.0
    web = Strict(hosts=100, fanout=6, depth=4).slow_down(tmp_path / "brake", 2.0)  # new hosts come up all the while
    with fleet(web, mounting(kind, 3), delay=delay, retries=9) as f:
        storm = Storm(f, machines=3, seed=seed)
        storm.BAG = ("kill worker", "kill machine", "leave") * 4
        storm.begin()
        f.until(10)
        storm.rage()
        storm.calm()
        web.brake.unlink()
        f.end()
        shortest = gaps(f.log)
        strict = {host: gap for host, gap in gaps(told(f.log)).items() if web.longer(host)}
        print(
            f"{kind}: {dict(storm.events)}: shortest gap {min(shortest.values()):.3f} s of {len(f.log)} requests of "
            f"{len(shortest)} hosts, {min(strict.values()):.3f} s of {len(strict)} hosts that ask for 1.5 s, "
            f"{shortest[web.RULES]:.3f} s where the rules of others are ({len(f.asked(web.RULES))} requests)"
        )
        hasty = f.haste(delay) | {host: gap for host, gap in strict.items() if gap < 1.5}
        assert hasty == {}, "\n".join(f"{host}: {f.visits(host)}" for host in hasty)
        assert f.differences() == []
