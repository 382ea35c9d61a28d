"""The links of a page that are handed over: those in scope, without those that were handed over lately."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lab.frontiers import frontier_of, make_root

from crawler.frontier.scope import Seeds
from crawler.settings.settings import Settings
from crawler.store.store import Store

HOME = "http://a.b/"
LINKS = [
    "http://a.b/1",
    "http://a.b/2",
    "http://a.b/2;jsessionid=0",  # the same page
    "http://a.b/3.zip",  # followed only from a seed
    "http://a.b/first",  # with a priority
    "http://other.example/",
    "no URL",
]
PAGES = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["", "0" * 12]), st.lists(st.sampled_from(LINKS))), max_size=6
)


def seeds_of(root: Path) -> Seeds:
    settings = Settings(scope="host", content_types=("html",), priorities={"first": 7})
    seeds = Seeds(Store(root), settings)
    seeds._add(HOME)
    return seeds


def record_of(depth: int, via: str, links: list[str]) -> dict[str, Any]:
    """The record of a page, or of a redirect."""
    return {"url": HOME, "depth": depth, "sha224": None if via else "0", "links": links}


@given(PAGES)
def test_what_is_queued_is_the_same_whether_or_not_known_links_are_left_out_before_they_are_judged(
    pages: list[tuple[int, str, list[str]]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_root(root)
        seeds, quick, slow = seeds_of(root), frontier_of(root), frontier_of(root)
        for depth, via, links in pages:
            record = record_of(depth, via, links)
            slow.hand_over(seeds.follow(record, via))
            quick.hand_over(seeds.follow(record, via, quick.recent))
        assert quick._queue == slow._queue
        assert quick.recent == slow.recent


def test_a_known_link_is_followed_again_only_from_nearer(tmp_path: Path) -> None:
    make_root(tmp_path)
    seeds, known = seeds_of(tmp_path), {"http://a.b/1": 2}
    for depth, expected in ((0, LINKS[:2]), (1, LINKS[1:2]), (2, LINKS[1:2])):
        tasks = seeds.follow(record_of(depth, "", LINKS[:2]), "", known)
        assert [task.url for task in tasks] == expected
