"""When a page is visited again follows from the setting and its record; revisits share a host's turns with new URLs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.frontiers import at

from crawler.errors import UsageError
from crawler.frontier.batches import from_lines, to_lines
from crawler.frontier.limits import Limits
from crawler.frontier.recrawl import BOUNDS, DAY, Recrawl, best_interval, chosen_interval, task_now
from crawler.frontier.table import Table
from crawler.frontier.task import Task, revisit_task
from crawler.settings.settings import check_one
from crawler.store.records import utc

HOST = "http://a.example"
NOW = 1_700_000_000.0


def record(**more: object) -> dict[str, object]:
    return {"url": f"{HOST}/x", "fetched": utc(NOW), "depth": 2, "sha224": "x", **more}


@pytest.mark.parametrize(
    ("name", "visit", "role"),
    [(f"{HOST}/x", 5, "revisit-5"), (f"{HOST}/s.xml#sitemap-2", 2, "sitemap-2#revisit-2")],
)
def test_a_revisit_is_a_line_of_a_batch_and_knows_its_subject(name: str, visit: int, role: str) -> None:
    task = revisit_task(name, visit, depth=3, due=time.monotonic() + 700_000)
    (read,) = from_lines(to_lines([task]))
    assert (read.role, read.subject, read.visit, read.depth) == (role, name, visit, 3)
    assert abs(read.due - task.due) < 5 and not read.is_unscheduled
    assert read.level == (2 if "sitemap" in name else 0)


def test_what_somebody_asks_for_is_a_task_of_its_own() -> None:
    planned, now = revisit_task(f"{HOST}/x", 5), task_now(record(visits=4))
    assert now.is_unscheduled and now.visit == planned.visit and now.name != planned.name


@pytest.mark.parametrize(
    ("setting", "facts", "days"),
    [
        ("7d", {}, 7),
        ("7d", {"sitemap": "urlset"}, 7 / 4),
        ("7d", {"type": "application/rss+xml"}, 7 / 4),
        ("7d", {"failures": 1}, 14),
        ("7d", {"failures": 3}, 56),
        ("7d", {"failures": 99}, 7 * 32),
        ({"/x$": "1d", "*": "7d"}, {}, 1),
        ({"/y$": "1d", "*": "7d"}, {}, 7),
        ({"/x$": None, "*": "7d"}, {}, None),
        ({"/y$": "1d"}, {}, None),
        (None, {}, None),
    ],
)
def test_the_interval_follows_from_the_setting_and_the_record(
    setting: object, facts: dict[str, object], days: float | None
) -> None:
    found = Recrawl(check_one("recrawl", setting, "test")).interval(record(**facts))
    assert found == (None if days is None else days * DAY)


@pytest.mark.parametrize("wrong", ["0", "often", "adaptive often", {"(": "1d"}, {"x": "never"}])
def test_a_wrong_setting_is_told_in_a_sentence(wrong: object) -> None:
    with pytest.raises(UsageError, match="recrawl"):
        check_one("recrawl", wrong, "crawl.yaml")


def test_a_page_is_due_after_its_last_visit_and_one_from_long_ago_within_the_interval() -> None:
    rules = Recrawl(7 * DAY)
    soon = rules.task(record(visits=3, checked=utc(NOW + DAY)), 50.0, NOW + 2 * DAY)
    assert soon is not None and soon.visit == 4 and abs(soon.due - 50.0 - 6 * DAY) < 2
    dues = [
        task.due - 50.0
        for number in range(100)
        if (task := rules.task(record(url=f"{HOST}/{number}"), 50.0, NOW + 400 * DAY))
    ]
    assert 0 <= min(dues) < DAY and 6 * DAY < max(dues) <= 7 * DAY


def test_with_a_new_setting_pages_that_are_late_are_spread_over_the_interval_however_often_they_were_visited() -> None:
    rules, visited = Recrawl(DAY), record(visits=9, checked=utc(NOW))
    late, early = (rules.task(visited, 50.0, NOW + age, is_new=True) for age in (5 * DAY, DAY / 2))
    assert late and early and abs(early.due - 50.0 - DAY / 2) < 2
    assert 60 < late.due - 50.0 <= DAY
    due = rules.task(visited, 50.0, NOW + 5 * DAY)
    assert due and due.due - 50.0 < 1, "after a rest of the crawl all that is late is due"


@given(st.integers(0, 1000), st.integers(0, 1000), st.floats(0, 1e9), st.floats(-40, 40))
def test_the_adaptive_interval_keeps_its_bounds(visits: int, changes: int, watched: float, price: float) -> None:
    found = chosen_interval(visits, min(changes, visits), watched, 7 * DAY, price)
    assert 0.999 * BOUNDS[0] * 7 * DAY <= found <= 1.001 * BOUNDS[1] * 7 * DAY


def test_neither_what_never_changes_nor_what_always_does_is_worth_many_visits() -> None:
    price = 5 * DAY
    calm, middling = best_interval(1 / (300 * DAY), price), best_interval(1 / (20 * DAY), price)
    assert middling < calm and best_interval(1 / HOURLY, price) == float("inf")


HOURLY = 3600.0


# ---- the turns of a host


def table_with(new: int, due: int, **given: float) -> Table:
    table = Table(**given)  # type: ignore[arg-type]
    table.add(at(0, [Task(f"{HOST}/new{number}", 1) for number in range(new)]), 1)
    table.add(at(0, [revisit_task(f"{HOST}/{number}", 2, due=1.0 + number) for number in range(due)]), 1)
    return table


def turns(table: Table, count: int, only: bool = False) -> list[str]:
    kinds = []
    for _ in range(count):
        taken = table.take(1000.0, revisits_only=only)
        if taken is None:
            break
        task, host = taken
        host.met = True
        kinds.append(task.kind)
        table.mark_done([task], kept=False)
        table.rest(host, 0.0)
    return kinds


@pytest.mark.parametrize(("share", "revisits"), [(0.5, 20), (0.25, 10), (1.0, 40)])
def test_revisits_that_are_due_and_new_urls_share_the_turns_of_a_host(share: float, revisits: int) -> None:
    assert turns(table_with(100, 100, fresh_share=share), 40).count("revisit") == revisits


def test_without_the_one_the_other_has_all_turns() -> None:
    assert turns(table_with(5, 0), 9) == ["page"] * 5
    assert turns(table_with(0, 5), 9) == ["revisit"] * 5
    assert turns(table_with(3, 30), 99).count("revisit") == 30


def test_a_host_that_was_put_off_at_the_limit_of_pages_goes_on_as_soon_as_there_is_room() -> None:
    table = table_with(2, 0)
    assert table.take(1000.0, revisits_only=True) is None
    assert table.take(1000.0) is not None


def test_at_the_limit_of_pages_a_host_without_urls_is_not_due_soon() -> None:
    table = table_with(1, 0)
    assert turns(table, 1) == ["page"]
    table.add(at(0, [revisit_task(f"{HOST}/a", 2, due=90_000.0)]), 1)
    assert table.take(1000.0, revisits_only=True) is None
    assert table.earliest() == 90_000.0  # else the worker would wait for it, and never be idle


def test_at_a_limit_only_revisits_are_taken() -> None:
    assert turns(table_with(9, 4), 99, only=True) == ["revisit"] * 4
    table = Table(limits=Limits(max_per_host=1))
    table.add(at(0, [Task(f"{HOST}/a"), revisit_task(f"{HOST}/b", 2)]), 1)
    first = table.take(1000.0)
    assert first is not None
    first[1].kept = 1
    table.put_back(first[0])
    table.rest(first[1], 0.0)
    assert turns(table, 9) == ["revisit"]


def test_the_longest_due_is_visited_first_and_a_done_visit_leaves_no_row() -> None:
    table = table_with(0, 50)
    order = []
    while taken := table.take(1000.0):
        order.append(taken[0].url)
        table.mark_done([taken[0]], kept=False)
        table.rest(taken[1], 0.0)
    assert order == [f"{HOST}/{number}" for number in range(50)]
    assert (table.waiting, table.revisits) == (0, 0)
    assert table._db.execute("SELECT count(*) FROM task").fetchone() == (0,)


def test_a_visit_that_is_read_twice_waits_once_at_the_earlier_time() -> None:
    table = Table()
    for batch, due in ((1, 500.0), (2, 300.0), (3, 400.0)):
        table.add(at(0, [revisit_task(f"{HOST}/x", 2, due=due)]), batch)
    assert (table.waiting, table.next_revisit()) == (1, 300.0)
    assert {batch: left for batch, left in table.left.items() if left} == {2: 1}


def test_visits_that_are_due_in_weeks_leave_a_worker_idle() -> None:
    table = Table()
    table.add(at(0, [revisit_task(f"{HOST}/x", 2, due=1e6)]), 1)
    assert table.take(1000.0) is None
    assert table.earliest() == 1e6
    assert table.freshness(1000.0) == {"fresh": 1, "due": 0, "overdue": 0}
    assert table.next_retry("a.example") == 0.0, "they are no trace of requests by others"
