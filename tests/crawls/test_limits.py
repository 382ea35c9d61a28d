"""`max_pages` with several workers and several machines: real processes on one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.webs import FlatWeb
from lab.world import Answers, World, crawler, end, links, wait_for, world

from crawler.commands.demo.web import WebReply

LIMIT = 150


def pages(w: World) -> int:
    return len(list((w.root / "htmls").glob("*/[!.]*")))


@pytest.mark.parametrize(
    ("machines", "workers"),
    [(2, 2), *(pytest.param(*pair, marks=pytest.mark.fleet) for pair in [(1, 1), (1, 2), (1, 4), (3, 1)])],
)
def test_a_page_limit_is_kept_to_the_page_by_all_workers_and_machines(
    tmp_path: Path, machines: int, workers: int
) -> None:
    with world(FlatWeb(hosts=60, pages=20), tmp_path) as w:
        args = (*w.web.seeds(), "--max-pages", str(LIMIT), "-j", str(workers), "-t", "8")
        for process in [w.start(*args) for _ in range(machines)]:
            assert "limit was reached" in end(process, code=4)
        assert pages(w) == LIMIT
        assert not [path.name for path in (w.root / "workers").iterdir() if ".budget-" in path.name]
        w.run(code=4)
        assert pages(w) == LIMIT, "a later run of the same crawl is at its limit already"


def test_a_machine_that_was_killed_gives_its_part_of_the_limit_to_the_next_at_once(tmp_path: Path) -> None:
    with world(FlatWeb(hosts=60, pages=20, delay=0.02), tmp_path) as w:
        process = w.start(*w.web.seeds(), "--max-pages", str(LIMIT), "-j", "1", "-t", "4")
        w.until(60)
        process.kill()
        process.wait()
        w.run(code=4)  # dead_after is two minutes here, and nobody waits so long
        assert LIMIT <= pages(w) <= LIMIT + 4 + 60, "what the dead one brought since its last heartbeat may be over"


@pytest.mark.fleet  # for time
def test_a_run_on_two_machines_ends_when_all_that_waits_is_due_in_hours_and_says_when(tmp_path: Path) -> None:
    busy = WebReply(503, (("Retry-After", "7200"),))
    with world(Answers({"a.example/": links("/1", "/2"), "a.example/1": busy, "a.example/2": "x"}), tmp_path) as w:
        args = (*w.web.seeds(), "-s", "robots=false")
        printed = [end(process, code=4) for process in [w.start(*args) for _ in range(2)]]
        assert all("nothing is due within the hour, the next URL at 20" in text for text in printed), printed
        assert "http://a.example/1" in w.waiting()
        found = w.status()
        assert found["next_due"] and found["waiting"] >= 1
        assert "the next is due 20" in crawler("status", str(w.root))
        process = w.start("--forever")
        wait_for(lambda: w.status()["machines"][0]["state"] == "alive")
        assert process.poll() is None
        crawler("stop", str(w.root))
        end(process, code=3)
        assert "http://a.example/1" in w.waiting()
