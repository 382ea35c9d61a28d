"""Pages are visited again when they are due, cheaply, and what they find is in their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from lab.changing import DAY, HOST, HOUR, START, Keeping, Law, WithSitemap, freshness
from lab.frontiers import add, frontier_of, on_disk
from lab.workers import making, small_store

from crawler.crawl.worker.recent import MAX_BYTES, RecentRecords
from crawler.frontier.task import sitemap_task
from crawler.store import history, visits


@pytest.fixture
def keeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Keeping]]:
    with making(Keeping, small_store(tmp_path, monkeypatch)) as make:
        yield make


def test_a_page_is_visited_at_its_interval_and_what_did_not_change_is_not_sent_again(
    keeping: Callable[..., Keeping],
) -> None:
    mine = keeping({"/": Law(links=("/daily",)), "/daily": Law(every=DAY)}, recrawl=6 * HOUR)
    mine.keep_up(10 * DAY)
    visits = mine.web.visits("/")
    assert len(visits) == 40
    assert all(6 * HOUR <= later - earlier < 6 * HOUR + 1800 for earlier, later in pairwise(visits))
    assert mine.web.statuses("/") == [200, *[304] * 39]
    assert mine.web.statuses("/daily").count(200) == 10
    record = mine.record("/daily")
    assert record["visits"] == 40 and record["changes"] == 9
    assert record["checked"] > record["changed"] == record["fetched"] > record["first_fetched"]
    assert mine.record("/")["fetched"] == mine.record("/")["first_fetched"]
    waiting = on_disk(mine.root)
    assert waiting.keys() == {f"{HOST}/#revisit-41", f"{HOST}/daily#revisit-41"}, "one visit for each page, not more"


def test_a_nonce_is_no_news_but_the_newest_html_is_kept(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(nonce=True)}, recrawl=DAY)
    mine.keep_up(5.5 * DAY)
    record = mine.record("/")
    assert record["visits"] == 6 and record["changes"] == 0 and "changed" not in record
    assert set(mine.web.statuses("/")) == {200}
    assert record["fetched"] > record["first_fetched"]
    html = mine.store.text_bytes(f"{HOST}/")
    assert html is not None and b"nonce = 4" in html


def test_a_page_without_validators_is_compared_by_its_hash(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(validators=False)}, recrawl=DAY)
    mine.keep_up(3.5 * DAY)
    assert mine.web.statuses("/") == [200] * 4
    assert mine.record("/")["changes"] == 0
    assert mine.record("/")["fetched"] == mine.record("/")["first_fetched"]


def test_a_page_that_is_missing_twice_is_gone_and_looked_for_less_and_less_often(
    keeping: Callable[..., Keeping],
) -> None:
    mine = keeping({"/": Law(gone_after=DAY / 2)}, recrawl=DAY, retries=0)
    mine.keep_up(20 * DAY)
    days = [round(age / DAY) for age in mine.web.visits("/")]
    assert days == [0, 1, 3, 7, 15]
    record = mine.record("/")
    assert record["failures"] == 4 and record["failure"] == "http-404"
    assert mine.since_start(record, "gone") // DAY == 3, "when it was missing for the second time"
    assert b"version 0" in (mine.store.text_bytes(f"{HOST}/") or b""), "the html stays"
    assert mine.store.failure(f"{HOST}/") is None


def test_a_page_that_comes_back_is_no_longer_gone(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(gone_after=DAY / 2)}, recrawl=DAY)
    mine.simulation.loop.call_later(10 * DAY, mine.web.laws.update, {"/": Law()})
    mine.keep_up(17 * DAY)
    record = mine.record("/")
    assert not {"gone", "failures", "failure", "failed", "missing"} & record.keys()
    assert record["changes"] == 0
    assert 15 <= mine.since_start(record, "changed") / DAY < 16, "whoever was told that it is gone is told that"


def test_a_page_that_moves_becomes_a_redirect_whose_target_is_fetched(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(moves_after=DAY / 2), "/-moved": Law()}, recrawl=DAY)
    mine.keep_up(1.5 * DAY)
    record = mine.record("/")
    assert record["status"] == 301 and record["links"] == [f"{HOST}/-moved"]
    assert mine.since_start(record, "moved") // DAY == 1
    assert mine.record("/-moved")["status"] == 200


def test_new_links_on_a_page_are_followed(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(), "/article": Law()}, recrawl={"/article": 30 * DAY, "*": HOUR})
    mine.simulation.loop.call_later(
        10 * HOUR + 60, mine.web.laws.update, {"/": Law(every=9 * HOUR, links=("/article",))}
    )
    mine.keep_up(DAY)
    assert len(mine.web.visits("/")) == 24
    assert [round(age / HOUR) for age in mine.web.visits("/article")] == [11]


def test_pages_get_the_interval_of_the_first_pattern_that_they_match(keeping: Callable[..., Keeping]) -> None:
    links = ("/latest/", "/never/", "/other")
    rules = {"/latest/": HOUR, "/never/": None, "*": DAY}
    mine = keeping({"/": Law(links=links), **{path: Law() for path in links}}, recrawl=rules)
    mine.keep_up(2.5 * DAY)
    latest, never, other = (len(mine.web.visits(path)) for path in links)
    assert 55 <= latest <= 61 and (never, other) == (1, 3)


def test_the_price_of_a_host_is_still_known_after_a_page_has_changed() -> None:
    old = {"url": f"{HOST}/", "fetched": "2026-01-01T00:00:00Z", "price": -1.5, "sha224": "x"}
    new = {"url": f"{HOST}/", "sha224": "y"}
    assert visits.replaced(old, new, 2, START, is_news=True)["price"] == -1.5
    assert "price" not in visits.replaced({}, new, 2, START, is_news=True)


def test_older_versions_are_kept_and_pruned(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(every=DAY)}, recrawl=DAY / 2, history=3)
    mine.keep_up(8.2 * DAY)
    versions = history.versions(mine.store.files, f"{HOST}/")
    assert len(versions) == 3
    texts = [found[1] for version in versions if (found := history.read(mine.store, f"{HOST}/", version))]
    assert ["version 5" in texts[0], "version 6" in texts[1], "version 7" in texts[2]] == [True] * 3
    assert b"version 8" in (mine.store.text_bytes(f"{HOST}/") or b"")


def test_a_page_that_is_visited_again_within_the_hour_has_its_record_read_by_nobody(
    keeping: Callable[..., Keeping], monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {"/often": HOUR / 2, "*": 6 * HOUR}
    mine = keeping({"/": Law(links=("/often",)), "/often": Law(every=4 * HOUR)}, recrawl=rules)
    read, record = [], mine.store.record
    monkeypatch.setattr(mine.store, "record", lambda url: read.append(url) or record(url))
    mine.keep_up(DAY)
    assert mine.record("/often")["visits"] >= 40 and mine.record("/often")["changes"] == 5
    assert f"{HOST}/often" not in read[:-2] and read.count(f"{HOST}/") == len(mine.web.visits("/")) - 1


def test_a_record_is_known_only_while_no_shard_came_and_while_there_is_room() -> None:
    recent = RecentRecords()
    recent.put("a", b'{"visits": 2}', gains=1)
    assert recent.get("a", 1) == {"visits": 2} and recent.get("a", 2) is None and recent.get("b", 1) is None
    recent.put("a", b'{"visits": 3}', gains=2)
    assert recent.get("a", 2) == {"visits": 3}
    recent.put("large", b"{" + b" " * (MAX_BYTES - 10) + b"}", gains=2)
    assert recent.get("a", 2) is None and recent.get("large", 2) == {}
    recent.put("a", b"{}", gains=2)
    recent.drop("large")
    recent.drop("large")
    assert recent.get("a", 2) == {} and recent._bytes == 2


def test_without_the_setting_no_page_is_visited_again(keeping: Callable[..., Keeping]) -> None:
    mine = keeping({"/": Law(every=HOUR)})
    mine.keep_up(30 * DAY)
    assert len(mine.web.visits("/")) == 1
    assert "text_sha224" not in mine.record("/")


def test_a_limit_of_pages_does_not_count_visits(keeping: Callable[..., Keeping]) -> None:
    links = tuple(f"/{number}" for number in range(9))
    mine = keeping({"/": Law(links=links), **{path: Law() for path in links}}, recrawl=DAY, max_per_host=3)
    mine.keep_up(3.5 * DAY)
    assert len(mine.web.visits("/")) == 4
    assert len({path for _, path, _ in mine.web.asked}) == 3
    assert len(mine.web.asked) == 12


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("lies", [False, True])
def test_a_lastmod_brings_visits_forward_only_where_it_has_proved_right(
    keeping: Callable[..., Keeping], lies: bool
) -> None:
    laws = {f"/{number}": Law(every=(40 if lies else 3 + number) * DAY) for number in range(8)} | {"/calm": Law()}
    mine = keeping(laws | {"/sitemap.xml": WithSitemap(laws, lies)}, recrawl={"sitemap": 12 * HOUR, "*": 10 * DAY})
    add(frontier_of(mine.root, "seed"), sitemap_task(f"{HOST}/sitemap.xml"))
    mine.keep_up(60 * DAY, seed="")
    visits = len(mine.web.visits("/0"))
    assert len(mine.web.visits("/sitemap.xml")) >= 480, "four times as often as its rule says: it tells of the rest"
    if lies:
        assert visits <= 7 and len(mine.web.visits("/calm")) <= 7, "as scheduled"
    else:
        assert visits >= 12, "most changes are seen soon after they happen"
        assert len(mine.web.visits("/calm")) <= 7


@pytest.mark.fleet  # for time
def test_the_adaptive_rule_keeps_more_pages_fresh_with_no_more_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    periods = [0.0] * 8 + [HOUR] * 3 + [4.3 * DAY] * 8 + [31.7 * DAY] * 8
    laws = {f"/{number}": Law(every=every) for number, every in enumerate(periods)}
    laws["/"] = Law(links=tuple(laws))
    found = {}
    for rule in (3 * DAY, "adaptive 3d"):
        folder = tmp_path / str(rule)
        folder.mkdir()
        with making(Keeping, small_store(folder, monkeypatch)) as make:
            mine = make(laws, recrawl=rule)
            mine.keep_up(80 * DAY)
            requests = sum(age > 30 * DAY for age, *_ in mine.web.asked)
            found[str(rule).partition(" ")[0]] = freshness(mine.web, 30 * DAY), requests
    (fixed, fixed_requests), (adaptive, adaptive_requests) = found.values()
    with capsys.disabled():
        print(f"\nfresh: fixed {fixed:.3f} ({fixed_requests} requests), adaptive {adaptive:.3f} ({adaptive_requests})")
    assert adaptive > fixed + 0.05
    assert adaptive_requests <= 1.1 * fixed_requests
