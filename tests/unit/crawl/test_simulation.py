"""Clock, random numbers, network and mount are passed in: a simulated crawl follows from one number."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from lab.frontiers import add, frontier_of, make_root
from lab.workers import SimulatedSetup, page

from crawler.frontier.task import Task
from crawler.web.page import Failure, Fetched


def simulate_crawl(root: Path, number: int) -> list[tuple[float, str]]:
    """Crawl a small web with trouble, and return what was requested when."""
    requested: list[tuple[float, str]] = []
    chance = Random(1)
    known = [f"https://host{host}.example/{number}" for host in range(12) for number in range(9)]
    web = {url: chance.sample(known, 5) for url in known}
    seconds = {url: chance.random() for url in known}
    tries: Counter[str] = Counter()

    async def get(url: str, **_: Any) -> Fetched | Failure:
        requested.append((mine.worker.clock.monotonic(), url))
        tries[url] += 1
        await asyncio.sleep(seconds.get(url, 0.2))
        if url.endswith("/robots.txt"):
            return Fetched(url, 404)
        if url.endswith("/3") and tries[url] == 1:
            return Failure(url, "http-503")
        return page(url, "".join(f"<a href={link}>" for link in web[url]))

    mine = SimulatedSetup(root, get, random=Random(number), concurrency=8, scope="any", delay=0.5, retry_delay=2.0)
    add(frontier_of(root, "other"), Task("https://host0.example/0"))
    assert mine.run() == "over"
    mine.end()
    return requested


def test_the_same_number_gives_the_same_crawl_and_another_one_other_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    crawls = []
    for count, number in enumerate((7, 7, 8)):
        root = tmp_path / str(count)
        root.mkdir()
        make_root(root)
        crawls.append(simulate_crawl(root, number))
    assert crawls[0] == crawls[1], "the same tasks at the same times"
    assert len(crawls[0]) > 100
    assert {url for _, url in crawls[2]} == {url for _, url in crawls[0]}
    assert crawls[2] != crawls[0], "the waits after trouble are drawn by lot"
