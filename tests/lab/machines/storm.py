"""Random trouble for a fleet: deaths, machines that stand still, come and go, a file server that does not answer."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Self
from zlib import crc32

from crawler.commands.demo.pages import Leaf
from crawler.commands.demo.web import Web, WebReply
from lab.machines.fleet import IN_FLIGHT, PATIENCE, Fleet, Machine
from lab.webs import FlatWeb, TreeWeb
from lab.world import Links, kill

FREEZE = 20.0  # seconds that the file server does not answer: longer than patience


class Braked(Web):
    """A web whose pages take their time as long as there is a file, so that it is not over too soon."""

    brake: Path
    seconds: float

    def slow_down(self, brake: Path, seconds: float) -> Self:
        """Put the brake on."""
        brake.touch()
        self.brake, self.seconds = brake, seconds
        return self

    def leaf(self, url: str) -> Leaf | None:
        """As it is, but slow."""
        leaf = super().leaf(url)
        return replace(leaf, delay=self.seconds) if leaf and self.brake.exists() else leaf


class SlowTree(Braked, TreeWeb):
    """A tree with a brake."""


class Strict(SlowTree):
    """A tree whose hosts have rules: some ask for a longer delay, and some keep their robots.txt on one other host."""

    RULES = "rules.example"

    def longer(self, host: str) -> bool:
        """Whether a host asks for a crawl-delay."""
        return crc32(host.encode()) % 3 < 2 and host != self.RULES

    def reply(self, host: str, path: str) -> WebReply:
        """Rules where there are some, or where they are."""
        rules = WebReply(
            200, (("Content-Type", "text/plain"),), b"User-agent: *\nCrawl-delay: 1.5\nDisallow: /closed\n"
        )
        if host == self.RULES:
            return rules if path != "/robots.txt" else WebReply(404)
        if path != "/robots.txt" or not self.longer(host):
            return super().reply(host, path)
        there = f"http://{self.RULES}/{host}/robots.txt"
        return rules if crc32(host.encode()) % 3 else WebReply(302, (("Location", there),))


class SlowFlat(Braked, FlatWeb):
    """Equal hosts with a brake."""


class SlowLinks(Braked, Links):
    """Pages drawn in the test, with a brake."""


class Storm:
    """What happens to a fleet, event by event, and how many pages each may have cost."""

    BAG = ("kill worker",) * 9 + ("kill machine",) * 6 + ("stand still",) * 3 + ("leave",) * 4 + ("freeze",)

    def __init__(self, fleet: Fleet, machines: int, seed: int) -> None:
        self.fleet, self.rng = fleet, random.Random(seed)
        self.places: dict[int, Machine | None] = dict.fromkeys(range(machines))
        self.leaving: list[Machine] = []
        self.events: Counter[str] = Counter()
        self.bound = 0  # requests that all of it may have made twice
        self._frozen = False
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._began = time.monotonic()

    def begin(self) -> None:
        """All machines start."""
        for number in self.places:
            self.places[number] = self.fleet.join(number)

    def rage(self) -> None:
        """Let all that is in the bag happen, in a random order; a machine that is gone comes back after a while."""
        mount = self.fleet.mount
        can = {"freeze": mount.can_freeze, "kill worker": mount.shows_processes}
        bag = [event for event in self.BAG if can.get(event, True)]
        self.rng.shuffle(bag)
        bag.sort(key=lambda event: event != "stand still")  # one at a time, and the others meanwhile
        while bag or self._later:
            time.sleep(self.rng.uniform(0.2, 2.0))
            assert not any(machine.process.poll() == 0 for machine in self.fleet.machines), f"over after {self.events}"
            self._see_to_what_is_due()
            self._see_who_gave_up()
            happened = next((event for event in bag if self._happens(event)), None)
            if happened:
                bag.remove(happened)

    def calm(self) -> None:
        """Wait for those that were asked to leave."""
        for machine in self.leaving:
            code = machine.wait()
            assert code in ((3,) if self.fleet.mount.hangs else (3, 5)), f"{machine} was asked to leave: {code}"

    def _happens(self, event: str) -> bool:
        """Let something happen, if it can now: only machines with workers have something to lose."""
        hidden = not self.fleet.mount.shows_processes
        ready = [machine for machine in self._up() if (machine.printed if hidden else machine.workers())]
        one_stands = any(machine and machine.is_stopped for machine in self.places.values())
        if len(ready) < 2 or (event in ("stand still", "freeze", "leave") and (one_stands or self._frozen)):
            return False
        machine = self.rng.choice(ready)
        cost = {"kill worker": IN_FLIGHT, "leave": 0, "freeze": 2 * IN_FLIGHT * len(self.places)}
        self._note(event, None if event == "freeze" else machine, cost.get(event, 2 * IN_FLIGHT))
        if event == "kill worker":
            kill(self.rng.choice(machine.workers() or [machine.process.pid]))
        elif event == "kill machine":
            machine.signal(signal.SIGKILL)  # not waited for: what hangs on a frozen file server dies when that goes on
            self._empty(machine)
        elif event == "stand still":
            self._stand_still(machine)
        elif event == "leave":
            machine.leave()
            self.leaving.append(machine)
            self._empty(machine)
        else:
            self._freeze()
        return True

    def _stand_still(self, machine: Machine) -> None:
        """Longer than the others' patience, so that they take over; then it goes on and knows nothing of it."""

        def go_on() -> None:
            machine.go_on()
            self._note("go on", machine)

        machine.stop()
        self._after(PATIENCE + self.rng.uniform(2, 4), go_on)

    def _freeze(self) -> None:
        """The file server stands still: for all machines alike."""

        def thaw() -> None:
            self.fleet.mount.thaw()
            self._frozen = False
            self._note("thaw")

        self._frozen = True
        self.fleet.mount.freeze()
        self._after(FREEZE, thaw)

    def _empty(self, machine: Machine) -> None:
        """A machine's place is empty; after a while another comes."""

        def join() -> None:
            if self._frozen and not self.fleet.mount.hangs:
                return self._after(1, join)
            self.places[machine.number] = self.fleet.join(machine.number)
            return self._note("join", self.places[machine.number])

        self.places[machine.number] = None
        self._after(self.rng.uniform(0, 4), join)

    def _up(self) -> list[Machine]:
        return [machine for machine in self.places.values() if machine and machine.runs and not machine.is_stopped]

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self._later.append((time.monotonic() + seconds, call))

    def _see_to_what_is_due(self) -> None:
        now = time.monotonic()
        due = [item for item in self._later if item[0] <= now]
        for item in due:
            self._later.remove(item)
            item[1]()

    def _see_who_gave_up(self) -> None:
        """A machine that starts or leaves on a mount that fails says so and ends: another comes in its place."""
        for machine in filter(None, list(self.places.values())):
            if machine.process.poll() == 5 and not self.fleet.mount.hangs:
                machine.may_end = True
                self._empty(machine)

    def _note(self, what: str, machine: Machine | None = None, cost: int = 0) -> None:
        self.events[what] += 1
        self.bound += cost
        asked = len(self.fleet.log)
        print(f"{time.monotonic() - self._began:6.1f} s, {asked:5} requests: {what} {machine or ''}")
