"""How much room a mount has and how fast it is, in the operations that a crawl is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from crawler.commands.doctor.kinds import OK, SLOW, Finding
from crawler.errors import DiskFull
from crawler.store.mount import Files
from crawler.terminal import size

PAGE = b"0123456789abcdef" * 1920  # 30 KB
THREADS = 16
NEEDED = (64 << 20, 2_000)  # bytes and inodes that our own tests may use
LOW = (1 << 30, 100_000)  # less than this is soon used up
FLOOR = 50  # of an operation per second: below it a mount is slow
LISTED = 100


def room(files: Files) -> Finding:
    """Free bytes and inodes; nothing is tested on a disk that is full."""
    free, inodes = files.free()
    inodes = inodes or 1 << 62  # the lobby was just made, so "none" means that they are not counted
    seen = f"{size(free)} and {f'{inodes:,}' if inodes < 1 << 62 else 'uncounted'} inodes free"
    if free < NEEDED[0] or inodes < NEEDED[1]:
        raise DiskFull(
            f"no room to test {files.root} ({seen}, {NEEDED[0] >> 20} MB and {NEEDED[1]:,} inodes are needed); "
            "free some and run again"
        )
    if free < LOW[0] or inodes < LOW[1]:
        return Finding("room", SLOW, seen, "a page is two files of about 40 KB in all: make room before a long crawl")
    return Finding("room", OK, seen)


def speeds(files: Files, folder: str) -> Iterator[Finding]:
    """Operations per second, alone and with as many threads as a worker has."""
    files.make(folder)
    one = rate(lambda n: files.put(f"{folder}/one-{n}", PAGE), 1, 1, 200)
    many = rate(lambda n: files.put(f"{folder}/many-{n}", PAGE), THREADS, 1, 50)
    yield _judge(
        "speed of put",
        max(one, many),
        f"{one:,.0f} files of 30 KB a second with 1 thread, {many:,.0f} with {THREADS}",
        f"a page is two files, so this machine stores at most {max(one, many) / 2:.0f} pages a second here; "
        "`durable: false` saves the sync, a nearer file server saves more",
    )
    files.create(f"{folder}/0@0")
    renames = rate(lambda n: files.claim(f"{folder}/0@{n}", f"{folder}/0@{n + 1}"), 1, 0.5, 500)
    yield _judge("speed of rename", renames, f"{renames:,.0f} a second", "shards change hands slowly")
    opens = rate(lambda n: files.get(f"{folder}/missing-{n}"), 1, 0.5, 500)
    yield _judge("speed of open", opens, f"{opens:,.0f} a second of names that are not there", "a nearer server helps")
    yield _listing(files, f"{folder}/listed")


def rate(call: Callable[[int], object], threads: int, seconds: float, most: int) -> float:
    """Calls per second; each thread makes at most so many, each with a number of its own."""
    began = time.monotonic()

    def loop(thread: int) -> int:
        done = 0
        while not done or (done < most and time.monotonic() - began < seconds):
            call(thread * most + done)
            done += 1
        return done

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(loop, range(threads)))
    return done / (time.monotonic() - began)


def _listing(files: Files, folder: str) -> Finding:
    files.make(folder)
    for number in range(LISTED):
        files.create(f"{folder}/{number}")

    def look(number: int) -> None:
        files.freshen(folder)
        files.names(folder)

    listings = rate(look, 1, 0.5, 200)
    seen = f"{listings:,.0f} fresh ones of {LISTED} names a second"
    # Making a fresh one takes three operations.
    return _judge("speed of listing", listings * 3, seen, "machines find each other's work later")


def _judge(promise: str, rate: float, seen: str, advice: str) -> Finding:
    return Finding(promise, OK, seen) if rate >= FLOOR else Finding(promise, SLOW, seen, advice)
