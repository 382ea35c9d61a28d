"""Rehydrate: the records alone are enough to know what still waits."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from lab.frontiers import Stale, add, frontier_with

from crawler.commands import main
from crawler.crawl.start import begin
from crawler.crawl.whole import make_whole
from crawler.frontier import rehydrate as rehydrate_module
from crawler.frontier.batches import Outbox
from crawler.frontier.rehydrate import MARK, is_needed, rehydrate
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store import origin
from crawler.store.inboxes import make_folder
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.page import Failure, Fetched, Reading

SITE = "https://a.example"
# A little crawl: page -> (depth, links); /old is a redirect, /gone was refused.
PAGES: dict[str, tuple[int, list[str]]] = {
    f"{SITE}/": (0, [f"{SITE}/one", f"{SITE}/gone", f"{SITE}/old", f"{SITE}/waits-1"]),
    f"{SITE}/one": (1, [f"{SITE}/", f"{SITE}/two", f"{SITE}/waits-2", "https://b.example/waits-2"]),
    f"{SITE}/two": (2, [f"{SITE}/waits-1", f"{SITE}/waits-3", "https://c.example/waits-3"]),
    f"{SITE}/old": (1, [f"{SITE}/new-1"]),
}


def quiet(_: str) -> None:
    """For what rehydration would show."""


def settings_of(**given: object) -> Settings:
    return Settings(**{"shards": 4, "durable": False, "scope": "any", **given})  # type: ignore[arg-type]


def draw(root: Path, settings: Settings) -> StoreWriter:
    """The store of the little crawl, with an empty frontier."""
    root.mkdir()
    store = StoreWriter(root, Files(root, "me", durable=False))
    store.make(settings)
    store.add_seeds([f"{SITE}/"], "first")
    for url, (depth, links) in PAGES.items():
        is_redirect = url.endswith("/old")
        page = Fetched(url, 301 if is_redirect else 200, {"content-type": "text/html"}, b"body")
        reading = None if is_redirect else Reading("body", "utf-8", "", tuple(links))
        store.put_record(url, to_json(build_record(page, reading, depth, links, 0.0)))
    store.put_failure(f"{SITE}/gone", Failure(f"{SITE}/gone", "http-404"), 1)
    return store


BAD = [
    "http://../../x",
    "http://a.example/../..\0",
    "http://A.EXAMPLE/",
    f"http://{'a' * 300}.example/",
    "x",
    "",
    7,
    None,
]
BAD += [["http://b.example/"], {"a": 1}, "ftp://b.example/", "http://b.example"]
BAD += ["http:///x", "http://b.example/\ud800"]
ODD_RECORDS = {
    "links that are no URLs": {"url": f"{SITE}/odd", "depth": 1, "sha224": "x", "links": [*BAD, f"{SITE}/good"]},
    "links that are no list": {"url": f"{SITE}/odd", "depth": 1, "links": f"{SITE}/waits-9"},
    "no links and no depth": {"url": f"{SITE}/odd"},
    "a depth that is none": {"url": f"{SITE}/odd", "depth": "deep", "links": [f"{SITE}/good"]},
    "a depth below nought": {"url": f"{SITE}/odd", "depth": -5, "links": [f"{SITE}/good"]},
    "a list": [f"{SITE}/waits-9"],
    "a URL that is none": {"url": "http://../x", "depth": 0, "links": []},
    "a URL that is a number": {"url": 5, "depth": 0, "links": []},
    "an empty record": {},
}


@pytest.mark.parametrize("has_seeds", [True, False])
@pytest.mark.parametrize("odd", ODD_RECORDS)
def test_a_record_made_by_hand_harms_nothing(tmp_path: Path, odd: str, has_seeds: bool) -> None:
    settings = settings_of()
    store = draw(tmp_path / "s", settings)
    if not has_seeds:
        store.files.drop("seeds/first")
    rehydrate(store, settings, quiet)
    before = waiting(store, settings)
    odd_one = store.root / "links" / "a.example" / urls.key(f"{SITE}/odd")
    odd_one.write_text(json.dumps(ODD_RECORDS[odd]))
    (odd_one.parent / ("f" * 24)).write_text("[" * 100_000)
    rehydrate(store, settings, quiet)
    assert waiting(store, settings).keys() - {f"{SITE}/good"} == before.keys()
    assert all(map(urls.is_safe, waiting(store, settings)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]


def waiting(store: StoreWriter, settings: Settings) -> dict[str, int]:
    """What a worker finds in the batches: URL -> depth."""
    owner = frontier_with(Files(store.root, "reader", durable=False), settings)
    owner.own(range(settings.shards))
    numbers = [number for batches in owner._batches.values() for number in batches.values()]
    return {task.name: task.depth for task in owner.table.of_batches(numbers)}


ALL = {
    f"{SITE}/waits-1": 1,
    f"{SITE}/waits-2": 2,
    f"{SITE}/waits-3": 3,
    f"{SITE}/new-1": 1,
    "https://b.example/waits-2": 2,
    "https://c.example/waits-3": 3,
}


@pytest.mark.parametrize("spread", ["host", "url"])
def test_every_link_that_is_not_done_waits_again_at_its_smallest_depth(tmp_path: Path, spread: str) -> None:
    settings = settings_of(spread=spread)
    store = draw(tmp_path / "store", settings)
    shutil.rmtree(store.root / "frontier")
    assert is_needed(store)
    assert rehydrate(store, settings, quiet) == len(ALL)
    assert waiting(store, settings) == ALL
    assert not is_needed(store)


@pytest.mark.parametrize("what", ["host", "page"])
def test_what_another_machine_has_recorded_a_moment_ago_counts(tmp_path: Path, what: str) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    mine = StoreWriter(store.root, Stale(store.root, "mine"))
    url, link = ("https://new.example/" if what == "host" else f"{SITE}/new"), f"{SITE}/waits-4"
    known = [mine.keys("links", host) for host in mine.hosts()]
    page, reading = Fetched(url, 200, {"content-type": "text/html"}, b"body"), Reading("body", "utf-8", "", (link,))
    store.put_record(url, to_json(build_record(page, reading, 1, [link], 0.0)))
    shutil.rmtree(store.root / "frontier")
    assert [mine.keys("links", host) for host in mine.hosts()] == known, "the mount shows old listings"
    rehydrate(mine, settings, quiet)
    assert waiting(store, settings)[link] == 2


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"depth": 2}, {url for url, depth in ALL.items() if depth <= 2}),
        ({"scope": "host"}, {url for url in ALL if url.startswith(SITE)}),
        ({"exclude": ("waits-3",)}, {url for url in ALL if "waits-3" not in url}),
        ({"include": ("new",)}, {f"{SITE}/new-1"}),
    ],
)
def test_only_what_is_in_scope_waits_again(tmp_path: Path, given: dict[str, object], expected: set[str]) -> None:
    settings = settings_of(**given)
    store = draw(tmp_path / "store", settings)
    shutil.rmtree(store.root / "frontier")
    rehydrate(store, settings, quiet)
    assert waiting(store, settings).keys() == expected


def test_one_missing_shard_is_enough_to_rehydrate(tmp_path: Path) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    make_folder(store.files, 2)
    assert not is_needed(store)
    shutil.rmtree(store.root / "frontier" / "002")
    assert is_needed(store)
    rehydrate(store, settings, quiet)
    assert not is_needed(store)


def test_a_frontier_of_which_only_the_folder_is_left_is_made_again(tmp_path: Path) -> None:
    store = draw(tmp_path / "store", settings_of())
    assert not is_needed(store), "shards that never had a batch lack nothing"
    shutil.rmtree(store.root / "frontier")
    (store.root / "frontier").mkdir()
    assert is_needed(store)


@pytest.mark.parametrize("hosts_read", [0, 1])
def test_a_rehydration_that_is_cut_off_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts_read: int
) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    shutil.rmtree(store.root / "frontier")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if hosts_read:
            patch.setattr(Outbox, "send", die)
        else:
            patch.setattr(rehydrate_module, "_links", die)
        with pytest.raises(KeyboardInterrupt):
            rehydrate(store, settings, quiet)
    assert is_needed(store)
    begin(store.root, {}, [], "me", quiet)
    assert waiting(store, settings) == ALL


@pytest.mark.parametrize("how", ["run", "repair", "rehydrate"])
def test_a_frontier_that_was_lost_while_a_worker_is_silent_is_made_again_a_second_time_without_it(
    tmp_path: Path, how: str
) -> None:
    """A worker was suspended after it had handed over the links of a page, and before its record; then it goes on."""
    settings = settings_of(dead_after=4.0, heartbeat=1.0)
    store = draw(tmp_path / "store", settings)
    for url in (f"{SITE}/", f"{SITE}/one", f"{SITE}/two"):
        store.put_html(url, b"body")
    origin.note(store.files)
    store.files.claim("shards/000@free", "shards/000@silent")
    store.files.put("workers/silent@000003", b"{}")
    shutil.rmtree(store.root / "frontier")
    os.utime(store.root / "workers" / "silent@000003", (3600, 3600))
    if how == "run":
        begin(store.root, {}, [], "me", quiet)
    else:
        arguments = ["check", "--repair"] if how == "repair" else [how]
        assert main.run([*arguments, str(store.root)]) == 0
    assert waiting(store, settings) == ALL
    late = Reading("body", "utf-8", "", (f"{SITE}/late",))
    page = Fetched(f"{SITE}/waits-1", 200, {"content-type": "text/html"}, b"body")
    store.put_html(page.url, b"body")
    store.put_record(page.url, to_json(build_record(page, late, 1, late.links, 0.0)))
    store.files.claim("workers/silent@000003", "workers/silent@000003.end")  # the others have declared it dead
    origin.note(store.files)
    make_whole(store, settings, "me", quiet)
    assert f"{SITE}/late" in waiting(store, settings)
    assert not is_needed(store)


def test_rehydrating_what_is_whole_adds_nothing_that_would_be_asked_twice(tmp_path: Path) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    for _ in range(3):
        rehydrate(store, settings, quiet)
    assert waiting(store, settings) == ALL
    assert not (store.root / MARK).exists()


def test_a_retry_keeps_its_attempts_when_another_rehydration_comes(tmp_path: Path) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    add(frontier_with(store.files, settings), Task(f"{SITE}/waits-1", 1, 2, 1000.0))
    rehydrate(store, settings, quiet)
    owner = frontier_with(Files(store.root, "reader", durable=False), settings)
    shard = owner.shard_of(Task(SITE + "/"))
    owner.own([shard])
    found = {task.url: task for task in owner.table.of_batches(owner._batches[shard].values())}
    assert (found[f"{SITE}/waits-1"].depth, found[f"{SITE}/waits-1"].attempt) == (1, 2)


def test_a_copy_without_seeds_finds_them_in_the_records(tmp_path: Path) -> None:
    settings = settings_of(scope="host")
    old = draw(tmp_path / "old", settings)
    copy = tmp_path / "copy"
    shutil.copytree(old.root / "links", copy / "links")
    found = begin(copy, {"shards": 4, "scope": "host", "durable": False}, [], "me", quiet)
    store = StoreWriter(copy)
    assert [seeds for _, seeds in store.seeds()] == [[f"{SITE}/"]]
    assert waiting(store, found).keys() == {url for url in {*ALL, f"{SITE}/gone"} if url.startswith(SITE)}


def test_a_seed_that_was_never_asked_waits_again(tmp_path: Path) -> None:
    settings = settings_of()
    store = draw(tmp_path / "store", settings)
    store.add_seeds(["https://d.example/"], "second")
    shutil.rmtree(store.root / "frontier")
    rehydrate(store, settings, quiet)
    assert waiting(store, settings)["https://d.example/"] == 0


def test_a_seed_given_when_the_frontier_is_gone_does_not_cost_another_url(tmp_path: Path) -> None:
    settings = settings_of(include=("new",))
    store = draw(tmp_path / "store", settings)
    shutil.rmtree(store.root / "frontier")
    begin(store.root, {}, [f"{SITE}/new-seed"], "me", quiet)
    assert waiting(store, settings).keys() == {f"{SITE}/new-1", f"{SITE}/new-seed"}
