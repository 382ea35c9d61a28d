"""Many machines, one mount: complete, nothing asked twice, polite, and over when it is over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fleet import fleet
from mounts import Mount

from crawler.web import TreeWeb

pytestmark = pytest.mark.fleet
Mounting = Callable[[str, int], Mount]


def test_three_machines_get_every_page_once_politely_and_end_by_themselves(kind: str, mounting: Mounting) -> None:
    delay = 0.1
    with fleet(TreeWeb(hosts=30, fanout=6, depth=3, delay=0.05), mounting(kind, 3), delay=delay, patience=30) as f:
        for number in range(3):
            f.join(number)
        late = f.end()
        print(f"{kind}: {len(f.log)} requests, the last machine ended {late:.1f} s after the last answer")
        assert f.differences() == []
        assert f.again() == {}
        assert f.haste(delay) == {}
        assert late < 60
        shares = {worker["machine"]: 0 for worker in f.counters().values()}
        assert not shares, "all workers have said goodbye"
