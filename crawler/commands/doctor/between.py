"""The tests between two machines: races, and how soon each sees what the other did.

Both run the same steps at the same time. They exchange messages as files in the leader's folder, `say-<step>-<id>`,
each written once.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from crawler.commands.doctor.alone import MAX_DELAY, fresh_names, is_complete, judge_delay, wait_until, with_checksum
from crawler.commands.doctor.kinds import OK, SLOW, UNFIT, USE_ANOTHER, Finding, Mount
from crawler.commands.doctor.pairing import BUSY, Pair, Pairing
from crawler.errors import StoreAway
from crawler.store.mount import Files

RACE_NAMES = 200  # names that both try to get
PAGES = 40  # files that each writes for the other
STEP_TIMEOUT = 300  # seconds that the other may take for a step
CACHE_TIMEOUT = 25  # seconds: sshfs keeps a listing for 20
BLIND = "blind"  # the state of one that does not see what the other wrote
GOOD_AGE = 5  # seconds of a listing without `freshen`


class PartnerLost(Exception):
    """The other doctor ended, or its machine did."""


class NotVisible(Exception):
    """Both are alive, but a file of one is not visible to the other."""


class Channel:
    """Messages between the two machines."""

    def __init__(self, pairing: Pairing, pair: Pair) -> None:
        self.files: Files = pairing.files
        self.folder, self.me, self.other = pair.leader, pair.me, pair.other
        self.leads = pair.leader == pair.me
        self.sent = 0
        self.over = False
        self._pairing = pairing

    def send(self, step: str, data: Any = None) -> None:
        """Leave a message for the other; our heartbeat tells how many we have sent."""
        self.files.put(f"{self.folder}/say-{step}-{self.me}", json.dumps({"data": data}).encode())
        self.sent += 1
        self._pairing.state = f"{BUSY}{self.sent}"

    def receive(self, step: str, number: int | None = None) -> Any:
        """Return the other's message, waiting for a slow machine but not for a mount that does not show it."""
        number = number or self.sent
        began = time.monotonic()
        sent: float | None = None  # when we saw that it was sent
        while time.monotonic() - began < STEP_TIMEOUT:
            for _ in range(20):
                with suppress(ValueError):  # not complete yet
                    found = self.files.get(f"{self.folder}/say-{step}-{self.other}")
                    if found:
                        return json.loads(found)["data"]
                time.sleep(0.02)
            state = self._pairing.look().get(self.other, "")
            if self.over or not self._pairing.is_alive(self.other):
                break
            if state.startswith(BUSY) and int(state.removeprefix(BUSY) or 0) >= number:
                sent = sent or time.monotonic()
            if state == BLIND or (sent and time.monotonic() - sent > MAX_DELAY):
                raise NotVisible
            self.files.freshen(self.folder)
        raise PartnerLost

    def exchange(self, step: str, data: Any = None) -> Any:
        """Send ours and receive theirs: after it both are at the same step."""
        self.send(step, data)
        return self.receive(step)


def between(pairing: Pairing, pair: Pair, mount: Mount) -> Iterator[Finding]:
    """Run all tests between two machines."""
    channel = Channel(pairing, pair)
    try:
        yield from _races(channel, mount)
        yield from _visibility(channel, mount)
        yield from _pages(channel, mount)
        yield _clocks(channel)
        channel.send("bye")
        if channel.leads:
            channel.receive("bye")  # the other still reads in our folder
    except PartnerLost:
        yield Finding("between", SLOW, "the other doctor went away before the end", "run both again")
    except NotVisible:
        pairing.state = BLIND  # until the other knows as well
        wait_until(lambda: pairing.look().get(pair.other) in (BLIND, None), MAX_DELAY)
        seen = f"both machines are alive, but one does not see a file of the other within {MAX_DELAY} s"
        yield Finding("between", UNFIT, seen, mount.against_stale())


def _races(channel: Channel, mount: Mount) -> Iterator[Finding]:
    """Test that names which both machines try to get have one winner."""
    files, me = channel.files, channel.me
    yield _race(channel, "create", mount, files.create)
    yield _race(channel, "mkdir", mount, files.make)
    yield _race(channel, "rename", mount, lambda name: files.claim(name, f"{name}@{me}"))


def _race(channel: Channel, promise: str, mount: Mount, attempt: Callable[[str], bool]) -> Finding:
    folder = f"{channel.folder}/race-{promise}"
    if channel.leads:
        channel.files.make(folder)
        for number in range(RACE_NAMES if promise == "rename" else 0):
            channel.files.create(f"{folder}/{number}")
    channel.exchange(f"ready-{promise}")
    ours = _win(folder, attempt)
    theirs = channel.exchange(f"won-{promise}", ours)
    both, nobody = set(ours) & set(theirs), set(range(RACE_NAMES)) - set(ours) - set(theirs)
    if both or nobody:
        seen = f"of {RACE_NAMES} names {len(both)} were won by both machines and {len(nobody)} by neither"
        if not both and promise != "rename":  # GlusterFS does this; a crawl claims by rename
            return Finding(f"{promise}, between", SLOW, seen, "nothing to do: a crawl claims by rename")
        return Finding(f"{promise}, between", UNFIT, seen, mount.against_races())
    seen = f"one winner for each of {RACE_NAMES} names: {len(ours)} here, {len(theirs)} there"
    if min(len(ours), len(theirs)) < RACE_NAMES // 20:
        seen += "; too uneven for a race: run it again on less busy machines"
    return Finding(f"{promise}, between", OK, seen)


def _win(folder: str, attempt: Callable[[str], bool]) -> list[int]:
    """Try to get all names; the winner of one waits a little, so that both machines stay side by side."""
    won = []
    for number in range(RACE_NAMES):
        began = time.monotonic()
        if attempt(f"{folder}/{number}"):
            won.append(number)
            time.sleep(random.random() * 4 * (time.monotonic() - began))
    return won


def _visibility(channel: Channel, mount: Mount) -> Iterator[Finding]:
    """Test how soon the other's new and removed names are visible in a listing here."""
    new, gone = _watch(channel, "fresh", lambda folder: fresh_names(channel.files, folder), MAX_DELAY)
    yield judge_delay("new names", new, "new names of the other machine", mount.against_stale())
    yield judge_delay("removed names", gone, "removals of the other machine", mount.against_stale())
    delays = _watch(channel, "cached", channel.files.names, CACHE_TIMEOUT)
    worst = max(delay if delay is not None else CACHE_TIMEOUT for delay in delays)
    seen = f"listings without `freshen` are up to {worst:.1f} s old{' or more' if None in delays else ''}"
    slow = worst > GOOD_AGE  # a crawl freshens where it matters; `ls` and `status` see stale listings
    yield Finding("cached listings", SLOW if slow else OK, seen, mount.against_stale() if slow else "")


def _watch(
    channel: Channel, how: str, look: Callable[[str], list[str]], limit: float
) -> tuple[float | None, float | None]:
    """Return the delays of a new name and of a removed one; each machine changes its own folder."""
    files = channel.files
    mine, theirs = (f"{channel.folder}/{how}-{id}" for id in (channel.me, channel.other))
    files.make(mine)
    files.create(f"{mine}/old")
    channel.exchange(f"{how}-old")
    wait_until(lambda: "old" in fresh_names(files, theirs), MAX_DELAY)
    channel.exchange(f"{how}-seen")
    files.create(f"{mine}/new")
    files.drop(f"{mine}/old")
    channel.exchange(f"{how}-done")
    began = time.monotonic()
    delays: dict[str, float] = {}

    def both() -> bool:
        names, now = look(theirs), time.monotonic() - began
        if "new" in names:
            delays.setdefault("new", now)
        if "old" not in names:
            delays.setdefault("old", now)
        return len(delays) == 2

    wait_until(both, limit)
    return delays.get("new"), delays.get("old")


def _pages(channel: Channel, mount: Mount) -> Iterator[Finding]:
    """Test files that one machine writes and replaces while the other reads them."""
    mine = f"{channel.folder}/pages-{channel.me}"
    channel.files.make(mine)
    channel.files.put(f"{mine}/replaced", with_checksum())
    channel.exchange("pages")
    reads = _Reads(channel.files, f"{channel.folder}/pages-{channel.other}")
    with ThreadPoolExecutor(2) as pool:
        try:
            writing, last = pool.submit(_write, channel, mine), pool.submit(channel.receive, "last", channel.sent + 1)
            while not last.done():
                reads.look()
        finally:
            channel.over = True  # ends `receive` after an interruption
        writing.result()
    channel.over = False
    seconds = wait_until(
        lambda: reads.look() == last.result() and len(reads.complete | reads.truncated) == PAGES, MAX_DELAY
    )
    yield reads.judge_new(mount)
    yield reads.judge_replaced(seconds, mount)
    channel.exchange("read")


def _write(channel: Channel, folder: str) -> None:
    for number in range(PAGES):
        channel.files.put(f"{folder}/{number}", with_checksum())
        page = with_checksum()
        channel.files.put(f"{folder}/replaced", page)
        time.sleep(0.01)
    channel.send("last", hashlib.sha224(page).hexdigest())


class _Reads:
    """What was read of the other's files while it wrote them."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self.complete: set[str] = set()
        self.truncated: set[str] = set()
        self._reads = self._missing = self._cut = 0

    def look(self) -> str | None:
        """Read all new files and the replaced one; return the hash of that if it is complete."""
        for name in set(fresh_names(self._files, self._folder)) - self.complete - self.truncated - {"replaced"}:
            data = self._get(name)
            if data is not None:
                (self.complete if is_complete(data) else self.truncated).add(name)
        data = self._get("replaced")
        self._reads += 1
        self._missing += data is None
        self._cut += data is not None and not is_complete(data)
        return hashlib.sha224(data).hexdigest() if data is not None and is_complete(data) else None

    def _get(self, name: str) -> bytes | None:
        with suppress(StoreAway):  # ESTALE again and again, while the file is replaced
            return self._files.get(f"{self._folder}/{name}")
        return None

    def judge_new(self, mount: Mount) -> Finding:
        """Return whether new files were complete on arrival."""
        missing = PAGES - len(self.complete) - len(self.truncated)
        if self.truncated or missing:
            seen = f"of {PAGES} new files of the other machine {len(self.truncated)} were truncated, {missing} missing"
            return Finding("new files", UNFIT, seen, mount.against_stale() if missing else USE_ANOTHER)
        return Finding("new files", OK, f"{PAGES} of the other machine, each complete when first seen")

    def judge_replaced(self, seconds: float | None, mount: Mount) -> Finding:
        """Return whether the replaced file became right; a crawl can bear a moment in between."""
        seen = f"of {self._reads} reads {self._cut} were truncated and {self._missing} found nothing"
        if seconds is None:
            seen += f"; the last version was not visible within {MAX_DELAY} s"
            return Finding("replaced files", UNFIT, seen, mount.against_stale())
        if self._cut or self._missing:
            seen += f"; complete after {seconds:.1f} s (readers look again)"
            return Finding("replaced files", SLOW, seen, mount.against_stale())
        return Finding("replaced files", OK, f"complete in {self._reads} reads while the other machine replaced it")


def _clocks(channel: Channel) -> Finding:
    """Compare the clocks: the other sends its time between two times of ours."""
    before = time.time()
    channel.exchange("tick")
    theirs = float(channel.exchange("time", time.time()))
    after = time.time()
    ahead, error = theirs - (before + after) / 2, (after - before) / 2
    which = "ahead of" if ahead > 0 else "behind"
    seen = f"the other's is {abs(ahead):.1f} s {which} ours, within {error:.1f} s; a crawl compares no clocks"
    return Finding("clocks", OK, seen)
