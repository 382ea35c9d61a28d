"""The walk of a URL through the code: calls and modules per visit, and calls that come back to where they came from.

python tests/bench/walk.py

A worker visits pages of one host with ten links each, one after the other, with a fetch that is only the real Fetcher's
client left out; the flush of a group of pages is shared among them. Counted are calls of functions of this program.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # lab

from lab.frontiers import add, make_root
from lab.loops import run
from lab.workers import Setup, page

import crawler
from crawler.frontier.task import Task
from crawler.web.page import Fetched

FOLDER = str(Path(crawler.__file__).parent) + "/"
PAGES, LINKS = 200, 10
HOST = "http://a.example/"


class Walk:
    """What is called while visits are made."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.back: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(FOLDER) and frame.f_code.co_name[0] != "<":
            self.calls[module_of(frame)] += 1
            self._look_back(frame)

    def _look_back(self, frame: FrameType) -> None:
        """Note a call from one module to a second one and back to the first."""
        modules: list[str] = []
        above: FrameType | None = frame
        while above is not None and len(modules) < 3:
            name = module_of(above)
            if name and (not modules or modules[-1] != name):
                modules.append(name)
            above = above.f_back
        if len(modules) == 3 and modules[0] == modules[2]:
            self.back[f"{modules[0]} > {modules[1]} > {modules[0]}"] += 1


def module_of(frame: FrameType) -> str:
    """The module of ours that a frame is in, or nothing."""
    path = frame.f_code.co_filename
    return path.removeprefix(FOLDER).removesuffix(".py") if path.startswith(FOLDER) else ""


async def get(url: str, **_: Any) -> Fetched:
    """A page with links."""
    links = "".join(f"<a href='/{hash(url) % 1000}/{number}'>x</a>" for number in range(LINKS))
    return page(url, f"<!doctype html><title>x</title>{links}")


def main() -> None:
    """Make some visits to warm up, count others, and print what they took."""
    with tempfile.TemporaryDirectory() as folder:
        make_root(Path(folder))
        setup = Setup(Path(folder), get, robots=False, delay=0.0, concurrency=1)
        setup.store.files.directories.max_kept = 64  # it keeps folders open, as it does in its process
        setup.beat()
        setup.frontier.own(range(2))
        add(setup.frontier, *(Task(f"{HOST}page{number}") for number in range(2 * PAGES)))
        walk = Walk()
        for counted in (False, True):
            sys.setprofile(walk if counted else None)
            run(visits(setup, PAGES))
            sys.setprofile(None)
        setup.end()
    print(f"{walk.calls.total() / PAGES:.0f} calls in {len(walk.calls)} modules per visit")
    for name, count in walk.calls.most_common():
        print(f"  {count / PAGES:6.1f}  {name}")
    for name, count in walk.back.most_common():
        print(f"back: {name}, {count / PAGES:.1f} a visit")


async def visits(setup: Setup, count: int) -> None:
    """Visit so many pages and flush them."""
    for _ in range(count):
        taken = setup.take()
        assert taken
        await setup.worker.visits.run(*taken)
    await setup.worker.upkeep.flush()


if __name__ == "__main__":
    main()
