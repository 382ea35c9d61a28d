"""What one machine does when a mount is measured (by bench/measure_mounts.py): `probe.py FOLDER ROLE START ME`.

It asks the mount only through `Files`, as the crawler does, and prints one line of JSON. START is a time at which all
roles begin; the clocks of these machines are the host's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from crawler.errors import StoreError
from crawler.store.mount import Files

NEWS = 6  # names that come, and then go, in each folder
STEP = 1.5  # seconds between two of them
WAYS = ("listed", "freshened", "opened", "freshened, opened")  # how the watcher looks, each in a folder of its own
LONGEST = 75.0  # seconds that a watcher waits for a name
ROUNDS = 300  # of each contest
SLOT = 0.02  # seconds for a round
PAGE = b"<p>thirty kilobytes</p>\n" * 1250
Report = dict[str, object]


def wait_until(moment: float) -> None:
    """Sleep to a moment of the common clock."""
    time.sleep(max(0.0, moment - time.time()))


# ---- how long news take


def come(files: Files, start: float) -> Report:
    """Make names, one after the other; when each was there."""
    return _change(start, lambda name: files.put(name, PAGE))


def go(files: Files, start: float) -> Report:
    """Take the names away, one after the other; when each was gone."""
    return _change(start, files.drop)


def _change(start: float, do: Callable[[str], object]) -> Report:
    when: Report = {}
    for number in range(NEWS):
        wait_until(start + number * STEP)
        for way in WAYS:
            do(f"{way}/{number}")
            when[f"{way}/{number}"] = time.time()
    return when


def see(files: Files, start: float) -> Report:
    """For each name that was seen at last: when the last look began that did not show it."""
    return _watch(files, start, True)


def miss(files: Files, start: float) -> Report:
    """For each name that was gone at last: when the last look began that still showed it."""
    return _watch(files, start, False)


def _watch(files: Files, start: float, wanted: bool) -> Report:
    torn = [0]  # files seen in part
    with ThreadPoolExecutor(len(WAYS)) as pool:
        found = list(pool.map(lambda way: _watch_way(files, way, start, wanted, torn), WAYS))
    return {**{name: when for part in found for name, when in part.items()}, "torn": torn[0]}


def _watch_way(files: Files, way: str, start: float, wanted: bool, torn: list[int]) -> dict[str, float]:
    left = {str(number) for number in range(NEWS)}
    wrong = dict.fromkeys(left, 0.0)
    while left and time.time() < start + LONGEST:
        began = time.time()
        there = _look(files, way, left, torn)
        left = left - there if wanted else there
        wrong.update(dict.fromkeys(left, began))
        time.sleep(0.05)
    return {f"{way}/{name}": began for name, began in wrong.items() if name not in left}


def _look(files: Files, way: str, names: set[str], torn: list[int]) -> set[str]:
    """The names that are there, in this way of looking."""
    if way in ("freshened", "freshened, opened"):
        files.freshen(way)
    if way != "opened":
        names = names & set(files.names(way))
    if way in ("listed", "freshened"):
        return names
    there = {name: files.get(f"{way}/{name}") for name in names}
    torn[0] += sum(data is not None and data != PAGE for data in there.values())
    return {name for name, data in there.items() if data is not None}


# ---- who wins


def contest(files: Files, start: float) -> Report:
    """Try to be the first, in rounds that begin for all at the same time; the rounds that we won."""
    games: dict[str, Callable[[int], bool]] = {
        "create": lambda round: files.create(f"contest/created-{round}"),
        "make": lambda round: files.make(f"contest/made-{round}"),
        "claim": lambda round: files.claim(f"contest/{round}@free", f"contest/{round}@{files.me}"),
        "drop": lambda round: files.drop(f"contest/dropped-{round}"),
    }
    won: dict[str, list[int]] = {}
    for number, (game, play) in enumerate(games.items()):
        won[game] = []
        for round in range(ROUNDS):
            wait_until(start + (number * ROUNDS + round) * SLOT)
            if play(round):
                won[game].append(round)
    return {"won": won}


def prepare(files: Files, start: float) -> Report:
    """Put in place what is claimed and dropped in the contest."""
    names = [*(f"contest/{round}@free" for round in range(ROUNDS)), *(f"contest/dropped-{r}" for r in range(ROUNDS))]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(files.create, names))
    return {"claims": names}


def claims(files: Files, start: float) -> Report:
    """Who owns what after the contest."""
    files.freshen("contest")
    return {"claims": sorted(name for name in files.names("contest") if "@" in name)}


# ---- how fast


def put(files: Files, start: float) -> Report:
    """Files of 30 KB per second, with 1 and with 16 threads, with and without syncing; and renames."""
    rates: Report = {}
    for durable in (True, False):
        files.durable = durable
        for threads in (1, 16):
            stem = f"put/{durable}-{threads}"
            put_one = partial(_put, files, stem)
            rates[f"{'durable' if durable else 'not'}-{threads}"] = _rate(threads, put_one)
    files.durable = True
    for threads in (1, 16):
        rates[f"rename-{threads}"] = _rate(threads, partial(_rename, files))
    files.sync(["put"])
    rates["free"] = files.free()
    return rates


def _put(files: Files, stem: str, name: str) -> None:
    files.put(f"{stem}-{name}", PAGE)


def _rename(files: Files, name: str) -> None:
    """Each thread gives a file of its own one name after the other."""
    thread, done = name.split("-")
    if done == "0":
        files.create(f"put/renamed-{name}")
    files.claim(f"put/renamed-{name}", f"put/renamed-{thread}-{int(done) + 1}")


def _rate(threads: int, call: Callable[[str], object], seconds: float = 4.0) -> float:
    """Calls per second; each is given a name of its own."""
    began = time.monotonic()

    def go_on(thread: int) -> int:
        done = 0
        while time.monotonic() - began < seconds:
            call(f"{thread}-{done}")
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(go_on, range(threads)))
    return done / (time.monotonic() - began)


ROLES = {
    "come": come,
    "see": see,
    "go": go,
    "miss": miss,
    "contest": contest,
    "prepare": prepare,
    "claims": claims,
    "put": put,
}


def main() -> None:
    """Play a role, and print what came of it."""
    folder, role, start, me = sys.argv[1:5]
    try:
        report = ROLES[role](Files(folder, me), float(start))
    except StoreError as error:
        report = {"error": str(error)}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
