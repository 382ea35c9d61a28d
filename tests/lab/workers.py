"""Workers over a small store, with a network that the test draws: the test calls their steps, or lets them run."""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.worker.worker import Worker
from crawler.fetch.cookies import Cookies
from crawler.frontier.hosts import Host
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.clock import SYSTEM, Clock
from crawler.store.mount import Files, Io
from crawler.store.records import build_record
from crawler.store.writer import StoreWriter
from crawler.web.page import Failure, Fetched, Reading
from lab.frontiers import make_root
from lab.loops import Blocking, inline, run
from lab.simulation import LoopHeartbeat, Simulation

Get = Callable[..., Awaitable[Fetched | Failure]]
Kind = TypeVar("Kind", bound="Setup")


def page(url: str, body: str = "<p>x") -> Fetched:
    """A response with a page."""
    return Fetched(url, 200, {"content-type": "text/html"}, body.encode())


async def nothing(url: str, **_: Any) -> Failure:
    """A network on which no name is known; a `Get`."""
    return Failure(url, "dns")


class Web:
    """A network with this `get`."""

    def __init__(self, get: Get) -> None:
        self.get = get


class Setup:
    """A worker over a store. Its parts that have coroutines are here as `Blocking`: to be called like functions."""

    def __init__(
        self,
        root: Path,
        get: Get = nothing,
        *,
        name: str = "worker",
        workers: int = 1,
        concurrency: int = 4,
        io: Io = inline,
        clock: Clock = SYSTEM,
        random: Random | None = None,
        **given: object,
    ) -> None:
        self.root = root
        self.settings = Settings(**{"shards": 2, "durable": False, "scope": "any", **given})  # type: ignore[arg-type]
        self.store = StoreWriter(root, Files(root, name, durable=False))
        self.scoreboard = Scoreboard(get_context("spawn"), workers, concurrency)
        self.cookies = Cookies((), name, lambda host: True)
        self.worker = worker = Worker(
            self.store,
            self.settings,
            Web(get),
            self.scoreboard,
            0,
            "machine",
            io,
            clock=clock,
            random=random,
            cookies=self.cookies,
        )
        self.table, self.shards, self.ending = worker.frontier.table, worker.shards, worker.ending
        self.in_flight = worker.in_flight
        self.upkeep: Any = Blocking(worker.upkeep)
        self.flush: Any = Blocking(worker.flush)
        self.frontier: Any = Blocking(worker.frontier)
        self.visits: Any = Blocking(worker.visits)
        self.robots_cache: Any = Blocking(worker.robots_cache)

    def beat(self) -> None:
        """Show a heartbeat, as `begin` does."""
        self.shards.beat(self.worker.upkeep.report()[0], "")

    def keep(self, url: str, depth: int, *links: str, text: str = "") -> None:
        """As if a visit had brought a page, and then a flush."""
        record = build_record(Fetched(url, 200), Reading(text, "utf-8", "", links), depth, links, 0.0)
        self.worker.frontier.hand_over(Task(link, depth + 1) for link in links)
        self.worker.flush.put_page(Task(url, depth), record, text.encode())
        self.upkeep.flush()

    def take(self) -> tuple[Task, Host] | None:
        """Take a task if one is due and may be taken, as `InFlight.fill` does."""
        may_take = self.table.revisits or not self.worker.limit.is_near(self.table.taken)
        return self.worker.frontier.take() if may_take and self.in_flight._may_take() else None

    def visit(self) -> None:
        """Visit the next URL that is due."""
        taken = self.worker.frontier.take()
        assert taken is not None
        run(self.worker.visits.run(*taken))

    def end(self) -> None:
        """Leave nothing behind, as the end of the process would."""
        self.ending.closed = True
        self.shards.local_lock.release()


class SimulatedSetup(Setup):
    """The same in simulated time: the worker runs as it does in its process, with its heartbeat on the loop."""

    def __init__(self, root: Path, get: Get = nothing, **given: Any) -> None:
        self.simulation = Simulation()
        super().__init__(root, get, clock=self.simulation.clock, **given)
        self.worker.heartbeat = LoopHeartbeat(self.worker)  # type: ignore[assignment]

    def run(self) -> str | None:
        """Run the worker to its end, and return its outcome."""
        self.simulation.run(self.worker.run())
        return self.ending.outcome

    def end(self) -> None:
        super().end()
        self.simulation.close()


def small_store(folder: Path, patch: pytest.MonkeyPatch, shards: int = 2) -> Path:
    """A store in this folder, where the workers' locks are too."""
    patch.setattr(tempfile, "tempdir", str(folder))
    root = folder / "store"
    root.mkdir()
    make_root(root, shards)
    return root


@contextmanager
def making(kind: type[Kind], root: Path) -> Iterator[Callable[..., Kind]]:
    """Give a function that makes workers of this kind over a store; in the end nothing is left of them."""
    made: list[Kind] = []

    def make(*get: Get, **given: Any) -> Kind:
        made.append(kind(root, *get, **given))
        return made[-1]

    yield make
    for one in made:
        one.end()
