"""A machine whose host names do not resolve says so, instead of failing one URL after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.machine import FIRST_LOOKUPS, Machine, Plan
from crawler.crawl.worker.counters import Counters
from crawler.crawl.worker.network import Requests
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM
from crawler.web.page import Failure, Fetched

DNS = Failure("http://a.invalid/", "dns")
ANSWER = Fetched("http://a.example/", 404, {}, b"")


@pytest.mark.parametrize(
    ("responses", "times"),
    [
        ([DNS] * (FIRST_LOOKUPS - 1), 0),
        ([DNS] * FIRST_LOOKUPS, 1),
        ([ANSWER] + [DNS] * FIRST_LOOKUPS, 0),
        ([Failure("http://a.example/", "timeout")] * FIRST_LOOKUPS, 0),
    ],
)
def test_a_machine_warns_once_if_its_first_lookups_all_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, responses: list[Fetched | Failure], times: int
) -> None:
    machine = Machine(Plan(tmp_path, 2, 4), Settings())
    nothing: Any = None
    for number, response in enumerate(responses):
        counters = Counters(machine.scoreboard, number % 2, SYSTEM)
        Requests(*[nothing] * 6, counters)._checked(response)
        machine._log_changes()
    machine._log_changes()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == times and all("lookups of host names on this machine all failed" in it for it in told)
