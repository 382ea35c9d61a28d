"""A fleet in the simulation: a disk, machines that mount it, runs and operators."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from crawler.crawl.start import add
from crawler.errors import CrawlerError, StoreError
from crawler.frontier import rehydrate
from crawler.frontier.batches import LOSS
from crawler.settings.settings import Settings
from crawler.store.directories import leaf_of
from crawler.store.inboxes import MADE, shards_in
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter, open_to_write
from simulation.checks import Checks, shard_of
from simulation.disk import Disk
from simulation.machine import Run
from simulation.manners import Manners
from simulation.mount import Mount, Profile
from simulation.system import ROOT
from simulation.web import Tree
from simulation.world import Machine, Process, World

SHARDS, DELAY, PER_ADDRESS = 4, 0.3, 5
SETTINGS: dict[str, Any] = {
    "shards": SHARDS,
    "scope": "any",
    "delay": DELAY,
    "retry_delay": 1.0,
    "retries": 8,
    "heartbeat": 0.5,
    "dead_after": 6.0,
    "max_per_address": PER_ADDRESS,
}
RECRAWL: dict[str, Any] = {"recrawl": "30d", "history": 1}
START_AGAIN = 2.0  # seconds until an operator gives a command again that could not be carried out


class Fleet:
    """Everything that there is."""

    def __init__(
        self,
        world: World,
        disk: Disk,
        profile: Profile,
        pages: int,
        hosts: int,
        recrawls: bool = False,
        rules: Random | None = None,
        limit: int | None = None,
    ) -> None:
        """With `recrawls` each page is to be visited again after a month, and one older version is kept.

        `rules` draws what hosts want of crawlers, if they want anything; `limit` is that of pages.
        """
        self.is_small = rules is not None  # whether workers have little memory
        self.limit = limit
        self.world, self.disk, self.profile = world, disk, profile
        self._settings = SETTINGS | (RECRAWL if recrawls else {}) | ({"max_pages": limit} if limit else {})
        self.tree = Tree(pages, hosts, Random(world.random.random()), rules)
        disk.effects = world.effects
        manners = Manners(world, disk, self.tree, DELAY, lambda host: shard_of(host, SHARDS), PER_ADDRESS)
        self.checks = Checks(world, disk, self.tree, manners, SHARDS, recrawls)
        self.machines: dict[str, Machine] = {}
        self.mounts: dict[str, Mount] = {}
        self.runs: list[Run] = []
        self._names = 0
        self.operator = self.add_machine()

    def new_name(self, kind: str) -> str:
        """A name that nothing had before; sorted by chance, as random ids are."""
        self._names += 1
        return f"{kind}{self.world.random.randrange(256):02x}{self._names}"

    def add_machine(self) -> Machine:
        """Another computer; on a local disk it is always the same one."""
        if self.machines and not self.profile.is_shared:
            return next(iter(self.machines.values()))
        machine = Machine(self.world, f"computer{len(self.machines)}")
        self.machines[machine.name] = machine
        self.mounts[machine.name] = Mount(self.world, machine, self.disk, self.profile)
        return machine

    def make_store(self) -> None:
        """Make the store with its first seed, before anything goes wrong."""
        self.checks.seeds.add(self.tree.urls[0])
        self.do(self._make)
        self.world.run(lambda: not self.busy, self.world.now + 60)
        self.disk.sync_all()
        self.world.effects.clear()

    def _make(self) -> None:
        root = Path(ROOT + self.operator.name)
        store = StoreWriter(root, Files(root, "maker"))
        store.make(Settings(**self._settings))
        add(store, [self.tree.urls[0]])

    def later(self, seconds: float, act: Callable[[], object]) -> None:
        """Let something happen after a while, unless the fleet is left in peace by then."""
        self.world.at(self.world.now + seconds, Process(self.operator, "fate"), act)

    busy = 0

    def do(self, *calls: Callable[[], Any], gap: float = 0.0) -> None:
        """Let an operator do something, in a process of its own; again, if the store does not respond."""
        self.busy += 1
        process = Process(self.operator, self.new_name("o"))

        def work() -> Any:
            for call in calls:
                result = self._until_it_works(call)
                self.world.pause(gap)
            return result

        self.world.thread(process, work, self._did)

    def _until_it_works(self, call: Callable[[], Any]) -> Any:
        while True:
            power_cuts = self.checks.power_cuts
            try:
                result = call()
                if power_cuts == self.checks.power_cuts:
                    return result
                self.world.note("operator: a power cut has ended the command")
            except StoreError as error:
                self.world.note(f"operator: {error}")
            self.world.pause(START_AGAIN)

    def _did(self, result: Any, error: BaseException | None) -> None:
        self.busy -= 1
        if error is not None and not isinstance(error, (StoreError, CrawlerError)):
            self.world.failure = self.world.failure or error
        self.world.note(f"operator: {error or result}")
        self.world.effects["operator failed" if error else "operator done"] += 1

    def lift_limit(self) -> None:
        """The limit of pages was held; an operator removes it from crawl.yaml."""
        assert self.limit is not None
        self.checks.hold_limit(self.limit)
        self.limit = None
        settings = self.disk.find("crawl.yaml")
        assert settings is not None
        settings.data = re.sub(rb"(?m)^max_pages: .*", b"max_pages: null", settings.data)

    def open(self) -> StoreWriter:
        """The store as an operator's command opens it."""
        return open_to_write(Path(ROOT + self.operator.name))

    def start(self, machine: Machine, workers: int) -> None:
        """`crawler run`."""
        self.runs.append(Run(self, machine, workers))
        self.world.note(f"start {self.runs[-1].id} on {machine.name}")

    @property
    def running(self) -> list[Run]:
        """The runs that have not ended."""
        return [run for run in self.runs if not run.is_gone]

    def is_at_rest(self) -> bool:
        """Whether no machine and no operator does anything; asked after each step."""
        for run in reversed(self.runs):  # the last ones are still there
            if run.ended is None and not run.process.is_dead:
                return False
        return not self.busy

    def is_incomplete(self) -> bool:
        """Whether the frontier lacks something, and says so: then a run rehydrates before it ends."""
        folder = self.disk.find("frontier")
        names = set(folder.entries) if folder else set()
        is_marked = any(f"frontier/{name}".startswith((rehydrate.MARK, LOSS)) for name in names)
        folders, made = shards_in(names)
        return leaf_of(MADE) not in names or is_marked or not made <= folders
