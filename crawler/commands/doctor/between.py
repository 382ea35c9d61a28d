"""What two machines find out together: the races between them, and when each sees what the other did.

Both run the same steps at the same time. They talk through files in the leader's folder, `say-<step>-<id>`, each
written once.
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

from crawler.commands.doctor.alone import PATIENCE, fresh_names, is_whole, judge_delay, sealed, wait_until
from crawler.commands.doctor.kinds import ANOTHER, OK, SLOW, UNFIT, Finding, Mount
from crawler.commands.doctor.pairing import BUSY, Lobby, Pair
from crawler.errors import StoreAway
from crawler.store.mount import Files

ROUNDS = 200  # names that both want
PAGES = 40  # files that each writes for the other
LONGEST = 300  # seconds that the other may take for a step
CACHED = 25  # seconds: sshfs keeps a listing for 20
BLIND = "blind"  # the state of one that does not see what the other wrote
LONG = 5  # seconds that a listing may be old without `freshen`


class Lost(Exception):
    """The other doctor ended, or its machine did."""


class Unseen(Exception):
    """Both live, but a file of one is not seen by the other."""


class Talk:
    """The two machines' words to each other."""

    def __init__(self, lobby: Lobby, pair: Pair) -> None:
        self.files: Files = lobby.files
        self.folder, self.me, self.other = pair.leader, pair.me, pair.other
        self.leads = pair.leader == pair.me
        self.said = 0
        self.over = False
        self._lobby = lobby

    def say(self, step: str, data: Any = None) -> None:
        """Leave a word for the other; our sign of life tells how many we have said."""
        self.files.put(f"{self.folder}/say-{step}-{self.me}", json.dumps({"word": data}).encode())
        self.said += 1
        self._lobby.state = f"{BUSY}{self.said}"

    def hear(self, step: str, number: int | None = None) -> Any:
        """The other's word, which has the same number as ours; a slow machine is waited for, a blind mount is not."""
        number = number or self.said
        began = time.monotonic()
        said: float | None = None  # when we knew that it was said
        while time.monotonic() - began < LONGEST:
            for _ in range(20):
                with suppress(ValueError):  # what is not whole yet
                    found = self.files.get(f"{self.folder}/say-{step}-{self.other}")
                    if found:
                        return json.loads(found)["word"]
                time.sleep(0.02)
            state = self._lobby.look().get(self.other, "")
            if self.over or not self._lobby.lives(self.other):
                break
            if state.startswith(BUSY) and int(state.removeprefix(BUSY) or 0) >= number:
                said = said or time.monotonic()
            if state == BLIND or (said and time.monotonic() - said > PATIENCE):
                raise Unseen
            self.files.freshen(self.folder)
        raise Lost

    def swap(self, step: str, data: Any = None) -> Any:
        """Say ours and hear theirs: after it both are at the same step."""
        self.say(step, data)
        return self.hear(step)


def between(lobby: Lobby, pair: Pair, mount: Mount) -> Iterator[Finding]:
    """All tests between two machines, and one line if they cannot be brought to an end."""
    talk = Talk(lobby, pair)
    try:
        yield from _races(talk, mount)
        yield from _visibility(talk, mount)
        yield from _pages(talk, mount)
        yield _clocks(talk)
        talk.say("bye")
        if talk.leads:
            talk.hear("bye")  # our folder is where the other reads
    except Lost:
        yield Finding("between", SLOW, "the other doctor went away before the end", "run both again")
    except Unseen:
        lobby.state = BLIND  # until the other knows as well
        wait_until(lambda: lobby.look().get(pair.other) in (BLIND, None), PATIENCE)
        seen = f"both machines live, but one does not see a file of the other within {PATIENCE} s"
        yield Finding("between", UNFIT, seen, mount.against_stale())


def _races(talk: Talk, mount: Mount) -> Iterator[Finding]:
    """Both machines want the same names."""
    files, me = talk.files, talk.me
    yield _race(talk, "create", mount, files.create)
    yield _race(talk, "mkdir", mount, files.make)
    yield _race(talk, "rename", mount, lambda name: files.claim(name, f"{name}@{me}"))


def _race(talk: Talk, promise: str, mount: Mount, attempt: Callable[[str], bool]) -> Finding:
    folder = f"{talk.folder}/race-{promise}"
    if talk.leads:
        talk.files.make(folder)
        for number in range(ROUNDS if promise == "rename" else 0):
            talk.files.create(f"{folder}/{number}")
    talk.swap(f"ready-{promise}")
    ours = _win(folder, attempt)
    theirs = talk.swap(f"won-{promise}", ours)
    both, nobody = set(ours) & set(theirs), set(range(ROUNDS)) - set(ours) - set(theirs)
    if both or nobody:
        seen = f"of {ROUNDS} names {len(both)} were won by both machines and {len(nobody)} by none"
        if not both and promise != "rename":  # GlusterFS does this; what is claimed in a crawl is claimed by rename
            return Finding(f"{promise}, between", SLOW, seen, "nothing: the crawl needs no winner there")
        return Finding(f"{promise}, between", UNFIT, seen, mount.against_races())
    seen = f"one winner for each of {ROUNDS} names: {len(ours)} here, {len(theirs)} there"
    if min(len(ours), len(theirs)) < ROUNDS // 20:
        seen += "; that was hardly a race, run it again on less busy machines"
    return Finding(f"{promise}, between", OK, seen)


def _win(folder: str, attempt: Callable[[str], bool]) -> list[int]:
    """Whoever wins dawdles and whoever loses hurries, so that both stay neck and neck without a clock."""
    won = []
    for number in range(ROUNDS):
        began = time.monotonic()
        if attempt(f"{folder}/{number}"):
            won.append(number)
            time.sleep(random.random() * 4 * (time.monotonic() - began))
    return won


def _visibility(talk: Talk, mount: Mount) -> Iterator[Finding]:
    """How long until the other's new names are in a listing here, and its removed ones are not."""
    new, gone = _watch(talk, "fresh", lambda folder: fresh_names(talk.files, folder), PATIENCE)
    yield judge_delay("new names", new, "new names of the other machine", mount.against_stale())
    yield judge_delay("removed names", gone, "removals of the other machine", mount.against_stale())
    delays = _watch(talk, "cached", talk.files.names, CACHED)
    worst = max(delay if delay is not None else CACHED for delay in delays)
    seen = f"a listing that was not freshened is at {'least' if None in delays else 'most'} {worst:.1f} s old"
    slow = worst > LONG  # the crawl freshens where it matters; people and `status` see old ones
    yield Finding("listings at rest", SLOW if slow else OK, seen, mount.against_stale() if slow else "")


def _watch(talk: Talk, how: str, look: Callable[[str], list[str]], limit: float) -> tuple[float | None, float | None]:
    """The delays of a new name and of a removed one; each machine makes its own and watches the other's."""
    files = talk.files
    mine, theirs = (f"{talk.folder}/{how}-{id}" for id in (talk.me, talk.other))
    files.make(mine)
    files.create(f"{mine}/old")
    talk.swap(f"{how}-old")
    wait_until(lambda: "old" in fresh_names(files, theirs), PATIENCE)
    talk.swap(f"{how}-seen")
    files.create(f"{mine}/new")
    files.drop(f"{mine}/old")
    talk.swap(f"{how}-done")
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


def _pages(talk: Talk, mount: Mount) -> Iterator[Finding]:
    """Each machine writes new files and replaces one, while the other reads them."""
    mine = f"{talk.folder}/pages-{talk.me}"
    talk.files.make(mine)
    talk.files.put(f"{mine}/replaced", sealed())
    talk.swap("pages")
    reads = _Reads(talk.files, f"{talk.folder}/pages-{talk.other}")
    with ThreadPoolExecutor(2) as pool:
        try:
            writing, last = pool.submit(_write, talk, mine), pool.submit(talk.hear, "last", talk.said + 1)
            while not last.done():
                reads.look()
        finally:
            talk.over = True  # whoever still listens stops, if this was an interruption
        writing.result()
    talk.over = False
    seconds = wait_until(lambda: reads.look() == last.result() and len(reads.whole | reads.torn) == PAGES, PATIENCE)
    yield reads.judge_new(mount)
    yield reads.judge_replaced(seconds, mount)
    talk.swap("read")


def _write(talk: Talk, folder: str) -> None:
    for number in range(PAGES):
        talk.files.put(f"{folder}/{number}", sealed())
        page = sealed()
        talk.files.put(f"{folder}/replaced", page)
        time.sleep(0.01)
    talk.say("last", hashlib.sha224(page).hexdigest())


class _Reads:
    """What was seen of the other's files while it wrote them."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files, self._folder = files, folder
        self.whole: set[str] = set()
        self.torn: set[str] = set()
        self._reads = self._missing = self._cut = 0

    def look(self) -> str | None:
        """Read all that is new, and the replaced one, whose hash is the answer when it is whole."""
        for name in set(fresh_names(self._files, self._folder)) - self.whole - self.torn - {"replaced"}:
            data = self._get(name)
            if data is not None:
                (self.whole if is_whole(data) else self.torn).add(name)
        data = self._get("replaced")
        self._reads += 1
        self._missing += data is None
        self._cut += data is not None and not is_whole(data)
        return hashlib.sha224(data).hexdigest() if data is not None and is_whole(data) else None

    def _get(self, name: str) -> bytes | None:
        with suppress(StoreAway):  # ESTALE again and again, for a file that is replaced under us
            return self._files.get(f"{self._folder}/{name}")
        return None

    def judge_new(self, mount: Mount) -> Finding:
        """A file is complete on arrival."""
        missing = PAGES - len(self.whole) - len(self.torn)
        if self.torn or missing:
            seen = f"of {PAGES} new files of the other machine {len(self.torn)} came cut short and {missing} not at all"
            return Finding("new files", UNFIT, seen, mount.against_stale() if missing else ANOTHER)
        return Finding("new files", OK, f"{PAGES} of the other machine, each whole when it was first seen")

    def judge_replaced(self, seconds: float | None, mount: Mount) -> Finding:
        """The crawl replaces nothing that other machines read, so only what stays wrong is unfit."""
        seen = f"of {self._reads} reads {self._cut} were cut short and {self._missing} found nothing"
        if seconds is None:
            seen += f"; the last one was not seen whole within {PATIENCE} s"
            return Finding("replaced files", UNFIT, seen, mount.against_stale())
        if self._cut or self._missing:
            seen += f"; whole after {seconds:.1f} s (the crawl replaces nothing that other machines read)"
            return Finding("replaced files", SLOW, seen, mount.against_stale())
        return Finding("replaced files", OK, f"whole in {self._reads} reads while the other machine replaced it")


def _clocks(talk: Talk) -> Finding:
    """The other says its time between two moments of ours."""
    before = time.time()
    talk.swap("tick")
    theirs = float(talk.swap("time", time.time()))
    after = time.time()
    ahead, error = theirs - (before + after) / 2, (after - before) / 2
    which = "ahead of" if ahead > 0 else "behind"
    seen = f"the other's is {abs(ahead):.1f} s {which} ours, give or take {error:.1f} s; the crawl compares none"
    return Finding("clocks", OK, seen)
