"""The limits per host and domain, as the task table keeps them and as commands find them in a store."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.frontiers import at, frontier_of, make_root

from crawler.frontier import table as module
from crawler.frontier.limits import Limits, StoredLimits, limits_of
from crawler.frontier.table import Table
from crawler.frontier.task import Task, robots_task
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.web import urls


def pages(host: str, count: int, depth: int = 1) -> list[Task]:
    return [Task(f"http://{host}/{page}", depth) for page in range(count)]


def names(count: int, depth: int = 1, first: int = 0) -> list[Task]:
    return [Task(f"http://n{name}.zone.example/", depth) for name in range(first, first + count)]


def take_all(table: Table, size: int = 0, now: float = 0.0) -> int:
    """Take and finish tasks until none is left; how many there were."""
    taken = 0
    while found := table.take(now):
        task, host = found
        table.set_met(host, host.kept, table.gains, host.size or 0)
        table.mark_done([task], kept=True, sizes={task.name: size})
        table.rest(host, now)
        taken += 1
        now += 1.0
    return taken


def test_the_limits_of_domains_need_one_worker_for_each_domain() -> None:
    assert limits_of(Settings()) == Limits(None, 20 << 30, 5_000_000, 100 << 30, 1000)
    for spread in ("host", "url"):
        assert limits_of(Settings(spread=spread)) == Limits(None, 20 << 30)


def test_new_hosts_of_a_domain_are_skipped_beyond_the_limit_but_not_those_that_are_known_or_given() -> None:
    table = Table(limits=Limits(max_hosts_per_domain=3))
    table.remember([("old.zone.example", 0, 1)])
    table.add(at(0, names(5)), 1)
    assert (table.waiting, dict(table.skipped)) == (2, {"max_hosts_per_domain": 3})
    assert table.left[1] == 2, "the batch may go when these are done"
    table.add(at(0, [Task("http://old.zone.example/", 1), Task("http://n0.zone.example/more", 1)]), 2)
    given = [Task("http://given.zone.example/", 0), robots_task("http://r.zone.example/", "a.example", "t")]
    table.add(at(0, given), 3)
    table.add(at(0, names(3, first=100)), 4)
    table.add(at(0, [Task("http://other.example/", 1)]), 5)
    assert (table.waiting, table.skipped["max_hosts_per_domain"]) == (7, 6)


def test_hosts_are_counted_anew_when_a_shard_comes_back() -> None:
    table = Table(limits=Limits(max_hosts_per_domain=3))
    for round in range(5):
        table.remember([("one.zone.example", 0, 1), ("one.zone.example", 0, 2), ("two.zone.example", 0, 1)])
        table.add(at(0, names(4, first=10 * round)), round)
        assert (table.waiting, table.skipped["max_hosts_per_domain"]) == (1, 3 * (round + 1))
        for _ in table.forget([0], split=False):
            pass


def test_a_host_that_has_its_bytes_is_skipped_and_what_is_not_written_yet_counts() -> None:
    table = Table(limits=Limits(max_bytes_per_host=1000))
    table.add(at(0, pages("a.example", 20)), 1)
    assert take_all(table, size=300) == 4
    assert (table.waiting, dict(table.skipped)) == (0, {"max_bytes_per_host": 16})

    table = Table(limits=Limits(max_bytes_per_host=1000))
    table.add(at(0, pages("a.example", 20)), 1)
    waiting: list[Task] = []
    for now in range(10):
        if found := table.take(float(now)):
            waiting.append(found[0])
            table.note_fetched(found[0], 300)
            table.rest(found[1], float(now))
    assert len(waiting) == 4, "the others are held back until these are written"
    assert table.skipped.total() == 0
    table.mark_done(waiting, kept=True, sizes={task.name: 100 for task in waiting})
    assert table.take(20.0), "they were smaller than expected"


@pytest.mark.parametrize(
    "limits, rule",
    [(Limits(max_per_domain=5), "max_per_domain"), (Limits(max_bytes_per_domain=1500), "max_bytes_per_domain")],
)
def test_the_hosts_of_a_domain_share_its_limit_with_what_others_have_stored(limits: Limits, rule: str) -> None:
    table = Table(limits=limits)
    table.add(at(0, [*names(20), Task("http://other.example/", 1)]), 1)
    assert take_all(table, size=300) == 5 + 1
    assert dict(table.skipped) == {rule: 15}

    table = Table(limits=limits)
    table.remember([(f"past{number}.zone.example", 0, 1) for number in range(4)])
    table.add(at(0, names(20)), 1)
    found = table.take(0.0)
    assert found
    counted = 0
    while other := table.uncounted(found[1]):
        table.count_unmet(other, 1, 300)
        table.count_unmet(other, 1, 300)  # a second visit had looked it up, too
        counted += 1
    table.mark_done([found[0]], kept=True, sizes={found[0].name: 300})
    table.rest(found[1], 0.0)
    assert (counted, take_all(table, size=300), table.skipped[rule]) == (4, 0, 19)


def test_a_host_of_millions_is_skipped_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SKIPPED_AT_ONCE", 10)
    table = Table(limits=Limits(max_per_host=1))
    table.add(at(0, pages("a.example", 36)), 1)
    found = table.take(0.0)
    assert found
    table.mark_done([found[0]], kept=True)
    table.rest(found[1], 0.0)
    left = []
    for now in range(1, 6):
        assert table.take(float(now)) is None
        left.append(table.waiting)
    assert left == [25, 15, 5, 0, 0]


def test_a_frontier_that_takes_a_shard_over_knows_the_hosts_of_its_domains(tmp_path: Path) -> None:
    make_root(tmp_path)
    one = frontier_of(tmp_path, "one", max_hosts_per_domain=2)
    one.own(range(2), past=[("n0.zone.example", 1), ("n1.zone.example", 1)])
    one.hand_over(names(5, first=1))
    one.flush()
    assert (one.table.waiting, one.table.skipped["max_hosts_per_domain"]) == (1, 4)


def test_commands_find_the_limits_in_the_store(tmp_path: Path) -> None:
    make_root(tmp_path)
    store = StoreWriter(tmp_path, Files(tmp_path, "me", durable=False))
    for name in range(3):
        for page in range(50):
            url = f"http://n{name}.zone.example/{page}"
            store.put_html(url, "x" * 900)
            store.put_record(url, b"{}" + b" " * 98)
    store.files.put(f"errs/n9.zone.example/{urls.key('http://n9.zone.example/')}", b"{}")

    def reached(host: str, **given: object) -> str | None:
        found = StoredLimits(store, Settings(**given)).reached(host)  # type: ignore[arg-type]
        return found and found[0]

    assert store.stored_size("n0.zone.example") == (50, 50_000)
    assert reached("n0.zone.example") is None
    assert reached("n0.zone.example", max_bytes_per_host=50_000) == "max_bytes_per_host"
    assert reached("n5.zone.example", max_bytes_per_host=50_000) is None
    assert reached("n5.zone.example", max_per_domain=150) == "max_per_domain"
    assert reached("n5.zone.example", max_bytes_per_domain=150_000) == "max_bytes_per_domain"
    assert reached("n5.zone.example", max_bytes_per_domain=150_000, spread="host") is None
    assert reached("n5.zone.example", max_hosts_per_domain=4) == "max_hosts_per_domain"
    assert reached("n9.zone.example", max_hosts_per_domain=4) is None
    assert reached("a.other.example", max_per_domain=1, max_hosts_per_domain=1) is None
