"""What a task is requested for: its kind, its name, and how a batch writes both."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.frontiers import add, at, frontier_of, make_root, on_disk, owner_of

from crawler.frontier.batches import from_lines, to_lines
from crawler.frontier.table import Table
from crawler.frontier.task import (
    PAGE,
    RETRY,
    ROBOTS,
    SITEMAP,
    Task,
    retry_task,
    robots_task,
    shard_of_host,
    sitemap_task,
)
from crawler.web import urls

X = "http://a.example/x"
NAMES = {
    X: Task(X),
    f"{X}#sitemap": Task(X, kind=SITEMAP),
    f"{X}#sitemap-2": Task(X, kind=SITEMAP, detail="2"),
    f"{X}#robots-of-b.example:81~0123abcd": Task(X, kind=ROBOTS, detail="b.example:81~0123abcd"),
    f"{X}#again~89abcdef": Task(X, kind=RETRY, detail="89abcdef"),
    f"{X}#sitemap-2#again~89abcdef": Task(X, kind=RETRY, detail="sitemap-2#89abcdef"),
}

hexes = st.text("0123456789abcdef", min_size=8, max_size=8)
hosts = st.sampled_from(["b.example", "b.example:81", "[2001:db8::1]:8080"])
simple = st.one_of(
    st.just(Task(X)),
    st.builds(sitemap_task, st.just(X), st.integers(1, 9)),
    st.builds(robots_task, st.just(X), hosts, hexes),
)
tasks = st.one_of(simple, st.builds(lambda task, mark: retry_task(task.name, mark), simple, hexes))


def take(table: Table) -> Task:
    found = table.take(0.0)
    assert found
    task, host = found
    table.rest(host, 0.0)
    return task


@pytest.mark.parametrize("name, task", NAMES.items())
def test_a_task_has_the_name_that_keys_in_old_stores_were_made_from(name: str, task: Task) -> None:
    assert task.name == name
    assert Task.named(name) == task


@given(tasks, st.integers(0, 9), st.integers(0, 9), st.sampled_from(["", "0" * 12]), st.integers(0, 10))
def test_a_task_is_the_same_by_its_name_and_by_its_line(
    task: Task, depth: int, attempt: int, via: str, ten: int
) -> None:
    task = task._replace(depth=depth, attempt=attempt, via=via, priority=ten)
    assert Task.named(task.name, depth, attempt, 0.0, via, ten) == task
    assert list(from_lines(to_lines([task]))) == [task]
    old_line = f"{depth}\t{attempt}\t0\t{task.name}\t{via}\t{ten}\n".encode()
    assert list(from_lines(old_line)) == [task]


@given(st.text(max_size=30))
def test_whatever_follows_the_url_only_a_role_is_kept(fragment: str) -> None:
    task = Task.named(f"{X}#{fragment}")
    assert task.url == X
    assert task.name == (X if task.kind == PAGE else f"{X}#{fragment}")


@pytest.mark.parametrize("host", ["", ".", "..", "a/b", "a/../../x", "/", "a?b", "a#b", "a b", "A.example", "a\n"])
def test_a_robots_task_is_for_a_host_and_nothing_that_leads_elsewhere(host: str) -> None:
    task = Task.named(f"http://b.example/robots.txt#robots-of-{host}~00")
    assert (task.kind, task.robots_host) == (PAGE, "")


def test_lines_of_pages_are_as_they_were_and_others_end_with_their_role() -> None:
    lines = to_lines([Task(X), Task(X, priority=7), sitemap_task(X, 2, 1), robots_task(X, "b.example", "00")]).decode()
    assert lines.splitlines() == [
        f"0\t0\t0\t{X}",
        f"0\t0\t0\t{X}\t\t7",
        f"1\t0\t0\t{X}\t\t5\tsitemap-2",
        f"0\t0\t0\t{X}\t\t5\trobots-of-b.example~00",
    ]


def test_only_a_retry_is_about_another_task() -> None:
    for name, task in NAMES.items():
        assert task.subject == (name if task.kind != RETRY else name.partition("#again")[0])
        assert task.is_side_task == (task.kind in (ROBOTS, RETRY))
        assert task.host == "a.example"
        assert task.level == (int(task.detail or 1) if task.kind == SITEMAP else 0)


def test_a_page_and_the_other_tasks_of_its_url_wait_side_by_side(tmp_path: Path) -> None:
    make_root(tmp_path)
    add(owner_of(tmp_path), *NAMES.values())
    assert on_disk(tmp_path) == NAMES


def test_a_table_gives_each_task_back_whole() -> None:
    table = Table()
    table.add(at(0, NAMES.values()), 1)
    taken = [take(table) for _ in NAMES]
    assert sorted(taken) == sorted(NAMES.values())
    assert all(task.is_side_task for task in taken[:3]), "pages may wait for these"
    table.put_back(taken[4])
    assert take(table) == taken[4]
    table.mark_done(taken[:2], kept=False)
    table.skip(taken[2])
    assert sorted(table.of_batches([1])) == sorted(taken[3:])
    table.forget_done(taken[1])
    table.add(at(0, NAMES.values()), 2)
    assert table.of_batches([2]) == [taken[1]]


@pytest.mark.parametrize("how", ["listed", "in flight"])
def test_a_sitemap_that_is_done_and_found_to_be_nearer_is_still_one(how: str) -> None:
    table = Table(relax=True)
    table.add(at(0, [sitemap_task(X, 2, 3)]), 1)
    taken = take(table)
    if how == "listed":
        table.meet("a.example", {urls.key(taken.name)}, lambda _: True)
    else:
        table.add(at(0, [sitemap_task(X, 2, 1)]), 2)
        table.mark_done([taken], kept=False)
    assert [task for task, _ in table.nearer] == [sitemap_task(X, 2, 3 if how == "listed" else 1)]


def test_where_hosts_are_split_a_retry_belongs_to_the_owner_of_the_failure_record(tmp_path: Path) -> None:
    make_root(tmp_path, 64)
    by_url, by_host = (frontier_of(tmp_path, shards=64, spread=spread) for spread in ("url", "host"))
    for task in NAMES.values():
        assert by_host.shard_of(task) == shard_of_host(urls.host(X), 64)
        assert by_url.shard_of(task) == shard_of_host(task.subject, 64, "url")
