"""The next visits of all pages after an edit of `recrawl`: no page is left without one, whoever edits or dies when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawler.crawl.machine import Machine, Plan
from crawler.crawl.reload import Verdict
from crawler.crawl.start import begin
from crawler.crawl.visit_planner import VisitPlanner
from crawler.errors import StoreAway
from crawler.fleet import members
from crawler.frontier.batches import read_batches
from crawler.frontier.rehydrate import is_scheduled, schedule_all, unschedule
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.writer import StoreWriter
from crawler.web.page import Fetched, Reading

PAGE = "https://a.example/"
WEEKLY = Settings(shards=2, durable=False, recrawl=7 * 86400.0)
NEVER = replace(WEEKLY, recrawl=None)


def quiet(_: str) -> None:
    """For what is shown."""


@pytest.fixture
def store(tmp_path: Path) -> StoreWriter:
    """A store with one page, whose visits are planned by no setting yet."""
    root = tmp_path / "store"
    root.mkdir()
    store = StoreWriter(root, Files(root, "me", durable=False))
    store.make(WEEKLY)
    put_page(store, PAGE)
    return store


def put_page(store: StoreWriter, url: str) -> None:
    page = Fetched(url, 200, {"content-type": "text/html"}, b"body")
    store.put_record(url, to_json(build_record(page, Reading("body", "utf-8", "", ()), 0, [], 0.0)))


def batches(store: StoreWriter) -> list[bytes]:
    return [data for shard in range(WEEKLY.shards) for data in read_batches(store.files, shard)]


def planned(store: StoreWriter) -> bool:
    return any(b"revisit" in data for data in batches(store))


def test_all_visits_are_planned_again_if_workers_went_by_another_setting_for_a_moment(store: StoreWriter) -> None:
    schedule_all(store, WEEKLY, quiet)
    unschedule(store)  # `recrawl` is null: workers drop the visit, and nobody has planned by that yet
    assert not is_scheduled(store, WEEKLY)


def test_who_is_just_planning_is_not_believed_when_another_takes_up_an_edit(store: StoreWriter) -> None:
    late = StoreWriter(Path(store.root), Files(Path(store.root), "late", durable=False))

    def show(_: str) -> None:
        unschedule(late)

    schedule_all(store, WEEKLY, show)
    assert planned(store) and not is_scheduled(store, WEEKLY), "the late one may have dropped it"
    schedule_all(store, WEEKLY, quiet)
    assert is_scheduled(store, WEEKLY)


def test_a_machine_that_joins_does_not_undo_what_is_planned_by_the_same_setting(store: StoreWriter) -> None:
    other = StoreWriter(Path(store.root), Files(Path(store.root), "other", durable=False))
    schedule_all(store, WEEKLY, lambda _: unschedule(other, but_for=WEEKLY))
    assert is_scheduled(store, WEEKLY)


def test_planning_that_is_stopped_counts_as_not_done_and_leaves_no_name(store: StoreWriter) -> None:
    schedule_all(store, WEEKLY, quiet, is_stopped=lambda: True)
    assert not is_scheduled(store, WEEKLY)
    assert not [name for name in store.files.all_names("frontier") if name.startswith(".recrawl")]


def test_machines_that_start_together_plan_the_visits_before_their_crawl_can_be_over(store: StoreWriter) -> None:
    begin(Path(store.root), {}, [], "before", quiet)
    unschedule(store)
    members.announce(store.files, "other")
    begin(Path(store.root), {}, [], "me", quiet)
    assert is_scheduled(store, WEEKLY)


def test_pages_that_our_own_workers_planned_by_the_setting_before_and_write_after_an_edit_are_planned_too(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = VisitPlanner(store)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        put_page(store, f"{PAGE}late")

    monkeypatch.setattr(planner._ended, "wait", wait)
    edit_of(store, planner, lambda _: None)
    assert planner._thread
    planner._thread.join()
    assert waited == [60.0] and is_scheduled(store, WEEKLY)
    assert sum(data.count(b"revisit") for data in batches(store)) == 2


def edit_of(store: StoreWriter, planner: VisitPlanner, publish: Callable[[str], None]) -> Any:
    """A machine that never visits pages again, after an edit that wants it to."""
    machine: Any = Machine(Plan(Path(store.root), 1, 1), NEVER)
    machine._planner = planner
    machine.scoreboard.publish_settings = publish
    machine._apply(Verdict(WEEKLY, "edited"))
    return machine


def test_nothing_is_planned_before_workers_go_by_an_edit(store: StoreWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule_all(store, WEEKLY, quiet)
    was_planned: list[bool] = []
    planner = VisitPlanner(store)
    monkeypatch.setattr(planner, "plan", lambda settings: None)
    edit_of(store, planner, lambda _: was_planned.append(is_scheduled(store, WEEKLY)))
    assert was_planned == [False]


def test_workers_do_not_go_by_an_edit_before_that_can_be_noted(
    store: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    planner = VisitPlanner(store)

    def away(_: object) -> None:
        planner.stop()  # the machine ends while the store is away
        raise StoreAway("away")

    monkeypatch.setattr("crawler.frontier.rehydrate.unschedule", away)
    published: list[str] = []
    assert edit_of(store, planner, published.append).settings is NEVER and not published
