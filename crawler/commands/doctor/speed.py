"""Free space of a mount, and its speed in the operations that a crawl uses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from crawler.commands.doctor.kinds import OK, SLOW, Finding
from crawler.errors import DiskFull
from crawler.store.mount import Files
from crawler.terminal import size

PAGE = b"0123456789abcdef" * 1920  # 30 KB
WRITE_THREADS = 16
NEEDED = (64 << 20, 2_000)  # bytes and inodes for the tests themselves
LOW = (1 << 30, 100_000)  # bytes and inodes: less is soon used up
GOOD_RATE = 50  # operations per second
LISTED_NAMES = 100


def space(files: Files) -> Finding:
    """Return free bytes and inodes; raise an error if there are too few for the tests."""
    free, inodes = files.free()
    inodes = inodes or 1 << 62  # a folder was just made, so 0 means that they are not counted
    seen = f"{size(free)} and {f'{inodes:,}' if inodes < 1 << 62 else 'uncounted'} inodes free"
    if free < NEEDED[0] or inodes < NEEDED[1]:
        raise DiskFull(
            f"not enough space to test {files.root} ({seen}; {NEEDED[0] >> 20} MB and {NEEDED[1]:,} inodes needed); "
            "free some and run again"
        )
    if free < LOW[0] or inodes < LOW[1]:
        return Finding("space", SLOW, seen, "a page is two files, about 40 KB: free some space before a long crawl")
    return Finding("space", OK, seen)


def speeds(files: Files, folder: str) -> Iterator[Finding]:
    """Measure operations per second, with one thread and with as many as a worker has."""
    files.make(folder)
    one = rate(lambda n: files.put(f"{folder}/one-{n}", PAGE), 1, 1, 200)
    many = rate(lambda n: files.put(f"{folder}/many-{n}", PAGE), WRITE_THREADS, 1, 50)
    yield _judge(
        "speed of put",
        max(one, many),
        f"{one:,.0f} files of 30 KB per second with 1 thread, {many:,.0f} with {WRITE_THREADS}",
        f"a page is two files, so this machine stores at most {max(one, many) / 2:.0f} pages per second here; "
        "`durable: false` saves the sync, a nearer file server saves more",
    )
    files.create(f"{folder}/0@0")
    renames = rate(lambda n: files.claim(f"{folder}/0@{n}", f"{folder}/0@{n + 1}"), 1, 0.5, 500)
    yield _judge("speed of rename", renames, f"{renames:,.0f} per second", "shards change owners slowly")
    opens = rate(lambda n: files.get(f"{folder}/missing-{n}"), 1, 0.5, 500)
    yield _judge("speed of open", opens, f"{opens:,.0f} per second of missing names", "a nearer server helps")
    yield _listing(files, f"{folder}/listed")


def rate(call: Callable[[int], object], threads: int, seconds: float, most: int) -> float:
    """Return calls per second; each thread makes at most `most` of them, each with another number."""
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
    for number in range(LISTED_NAMES):
        files.create(f"{folder}/{number}")

    def look(number: int) -> None:
        files.freshen(folder)
        files.names(folder)

    listings = rate(look, 1, 0.5, 200)
    seen = f"{listings:,.0f} fresh ones of {LISTED_NAMES} names per second"
    # A fresh listing takes three operations.
    return _judge("speed of listing", listings * 3, seen, "machines notice each other's work later")


def _judge(promise: str, rate: float, seen: str, advice: str) -> Finding:
    return Finding(promise, OK, seen) if rate >= GOOD_RATE else Finding(promise, SLOW, seen, advice)
