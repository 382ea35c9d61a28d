"""The tests of a mount that one machine can run: races between threads, listings, unusual names, replaced files."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from crawler.commands.doctor.kinds import OK, SLOW, UNFIT, USE_ANOTHER, Finding, Mount
from crawler.errors import StoreError
from crawler.store.mount import Files

RACE_THREADS = 8
RACE_ROUNDS, RACE_SECONDS = 100, 1.0  # whichever comes first
GOOD_DELAY = 2  # seconds: a listing that is right after one heartbeat is good
MAX_DELAY = 30  # seconds: with a longer one, live machines look dead
MAX_GAP = 1  # seconds that a file may be missing while it is replaced
UNUSUAL_NAMES = ("a.example:8080", "017@free", "0123abcd@7.end", "x" * 200)  # of hosts, shards and workers


def races(files: Files, folder: str, mount: Mount) -> Iterator[Finding]:
    """Test that exclusive create, mkdir and rename have one winner per name."""
    for promise in ("create", "mkdir", "rename"):
        home = f"{folder}-{promise}"
        files.make(home)
        yield _judge(promise, *_race(files, home, promise), mount)


def _race(files: Files, folder: str, promise: str) -> tuple[int, int]:
    """Return the number of rounds, and of those without exactly one winner."""
    barrier = Barrier(RACE_THREADS)

    def attempt(name: str, thread: int) -> bool:
        barrier.wait(MAX_DELAY)
        if promise == "rename":
            return files.claim(f"{name}@free", f"{name}@{thread}")
        return files.create(name) if promise == "create" else files.make(name)

    rounds = bad = 0
    limit = time.monotonic() + RACE_SECONDS
    with ThreadPoolExecutor(RACE_THREADS) as pool:
        while not rounds or (rounds < RACE_ROUNDS and time.monotonic() < limit):
            name = f"{folder}/{rounds}"
            if promise == "rename":
                files.create(f"{name}@free")
            won = list(pool.map(attempt, [name] * RACE_THREADS, range(RACE_THREADS)))
            rounds += 1
            bad += sum(won) != 1
    return rounds, bad + _wrong_names(files, folder, promise, rounds)


def _wrong_names(files: Files, folder: str, promise: str, rounds: int) -> int:
    """Return the number of names too many or too few: a rename leaves one name, not two."""
    numbers = [name.partition("@")[0] for name in fresh_names(files, folder)]
    return len(set(map(str, range(rounds))) ^ set(numbers)) + len(numbers) - len(set(numbers))


def _judge(promise: str, rounds: int, bad: int, mount: Mount) -> Finding:
    if bad:
        seen = f"no single winner among {RACE_THREADS} threads in {bad} of {rounds} rounds"
        return Finding(promise, UNFIT, seen, mount.against_races())
    return Finding(promise, OK, f"one winner among {RACE_THREADS} threads, {rounds} rounds")


def names(files: Files, folder: str) -> Iterator[Finding]:
    """Test that unusual names are kept as they are."""
    files.make(folder)
    broken = []
    for name in UNUSUAL_NAMES:
        try:
            files.create(f"{folder}/{name}")
        except StoreError:
            broken.append(name)
    files.freshen(folder)
    broken += sorted(set(UNUSUAL_NAMES) - set(files.names(folder)) - set(broken))
    if broken:
        yield Finding("names", UNFIT, f"a file cannot be named {broken[0]}", USE_ANOTHER)
    else:
        yield Finding("names", OK, "colons, @ and 200 characters work")


def listing(files: Files, folder: str, mount: Mount) -> Iterator[Finding]:
    """Test that a fresh listing shows new names and no removed ones."""
    files.make(folder)
    files.names(folder)
    for number in range(40):
        files.create(f"{folder}/{number}")
    for number in range(20):
        files.drop(f"{folder}/{number}")
    files.sync([folder])
    right = {str(number) for number in range(20, 40)}
    seconds = wait_until(lambda: set(fresh_names(files, folder)) == right, MAX_DELAY)
    yield judge_delay("listing", seconds, "our own new and removed names", mount.against_stale())


def fresh_names(files: Files, folder: str) -> list[str]:
    """Return a folder's names after `freshen`, as a crawl lists them."""
    files.freshen(folder)
    return files.names(folder)


def wait_until(happened: Callable[[], bool], seconds: float) -> float | None:
    """Wait until something is true, and return how long it took; None after a timeout."""
    began = time.monotonic()
    while True:
        tried = time.monotonic() - began
        if happened():
            return tried
        if tried > seconds:
            return None
        time.sleep(0.05)


def judge_delay(promise: str, seconds: float | None, what: str, advice: str) -> Finding:
    """Return the finding for a delay in seconds, None being too long."""
    if seconds is None:
        return Finding(promise, UNFIT, f"{what} are not visible within {MAX_DELAY} s", advice)
    if seconds > GOOD_DELAY:
        return Finding(promise, SLOW, f"{what} are visible after {seconds:.1f} s", advice)
    return Finding(promise, OK, f"{what} are visible {'at once' if seconds < 0.2 else f'after {seconds:.1f} s'}")


def replaced(files: Files, folder: str) -> Iterator[Finding]:
    """Test that a file that is replaced again and again always reads complete, old or new."""
    files.make(folder)
    page = f"{folder}/page"
    files.put(page, with_checksum())
    over = Event()
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(_read, files, page, over) for _ in range(3)]
        try:
            limit = time.monotonic() + RACE_SECONDS
            for _ in range(200):
                files.put(page, with_checksum())
                if time.monotonic() > limit:
                    break
        finally:
            over.set()
        seen = [reader.result() for reader in readers]
    reads, truncated = sum(each[0] for each in seen), sum(each[1] for each in seen)
    gone = max(each[2] for each in seen)
    if truncated or gone > MAX_GAP:
        yield Finding(
            "replace", UNFIT, f"{truncated} of {reads} reads were truncated; missing for {gone:.1f} s", USE_ANOTHER
        )
    else:
        yield Finding("replace", OK, f"complete in {reads} reads while it was replaced")


def _read(files: Files, page: str, over: Event) -> tuple[int, int, float]:
    """Return the number of reads, of truncated ones, and the longest time that several reads in a row found nothing."""
    reads = truncated = missing = 0
    longest = since = 0.0
    while not over.is_set():
        data = files.get(page)
        reads += 1
        truncated += data is not None and not is_complete(data)
        now = time.monotonic()
        missing, since = (0, now) if data is not None else (missing + 1, since or now)
        longest = max(longest, now - since) if missing > 2 else longest
    return reads, truncated, longest


def with_checksum() -> bytes:
    """Return up to 30 KB with a checksum."""
    body = secrets.token_bytes(1000 + secrets.randbelow(29_000))
    return hashlib.sha224(body).digest() + body


def is_complete(data: bytes) -> bool:
    """Return whether the checksum is right."""
    return hashlib.sha224(data[28:]).digest() == data[:28]
