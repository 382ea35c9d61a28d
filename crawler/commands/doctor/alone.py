"""What one machine can find out about a mount: races between threads, listings, odd names, replaced files."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

from crawler.commands.doctor.kinds import ANOTHER, OK, SLOW, UNFIT, Finding, Mount
from crawler.errors import StoreError
from crawler.store.mount import Files

THREADS = 8
ROUNDS, SECONDS = 100, 1.0  # of a race: whichever comes first
AT_ONCE = 2  # seconds: a listing that is right within a pulse is right
PATIENCE = 30  # seconds: what is not seen for so long makes the living look dead
BLINK = 1  # seconds that a file may be missing while it is replaced
NAMES = ("a.example:8080", "017@free", "0123abcd@7.end", "x" * 200)  # as hosts, shards and workers have them


def races(files: Files, folder: str, mount: Mount) -> Iterator[Finding]:
    """Exclusive create, mkdir and rename: each name has one winner."""
    for promise in ("create", "mkdir", "rename"):
        home = f"{folder}-{promise}"
        files.make(home)
        yield _judge(promise, *_race(files, home, promise), mount)


def _race(files: Files, folder: str, promise: str) -> tuple[int, int]:
    """Rounds, and those of them that did not have one winner."""
    barrier = Barrier(THREADS)

    def attempt(name: str, thread: int) -> bool:
        barrier.wait(PATIENCE)
        if promise == "rename":
            return files.claim(f"{name}@free", f"{name}@{thread}")
        return files.create(name) if promise == "create" else files.make(name)

    rounds = bad = 0
    limit = time.monotonic() + SECONDS
    with ThreadPoolExecutor(THREADS) as pool:
        while not rounds or (rounds < ROUNDS and time.monotonic() < limit):
            name = f"{folder}/{rounds}"
            if promise == "rename":
                files.create(f"{name}@free")
            won = list(pool.map(attempt, [name] * THREADS, range(THREADS)))
            rounds += 1
            bad += sum(won) != 1
    return rounds, bad + _wrong_names(files, folder, promise, rounds)


def _wrong_names(files: Files, folder: str, promise: str, rounds: int) -> int:
    """Names that should be gone, or that should be there: a rename leaves one name, not two."""
    numbers = [name.partition("@")[0] for name in fresh_names(files, folder)]
    return len(set(map(str, range(rounds))) ^ set(numbers)) + len(numbers) - len(set(numbers))


def _judge(promise: str, rounds: int, bad: int, mount: Mount) -> Finding:
    if bad:
        seen = f"not one winner among {THREADS} threads in {bad} of {rounds} rounds"
        return Finding(promise, UNFIT, seen, mount.against_races())
    return Finding(promise, OK, f"one winner among {THREADS} threads, {rounds} rounds")


def names(files: Files, folder: str) -> Iterator[Finding]:
    """Names keep their spelling, whatever of ours is in them."""
    files.make(folder)
    strange = []
    for name in NAMES:
        try:
            files.create(f"{folder}/{name}")
        except StoreError:
            strange.append(name)
    files.freshen(folder)
    strange += sorted(set(NAMES) - set(files.names(folder)) - set(strange))
    if strange:
        yield Finding("names", UNFIT, f"a file cannot be named {strange[0]}", ANOTHER)
    else:
        yield Finding("names", OK, "colons, @ and 200 letters are kept")


def listing(files: Files, folder: str, mount: Mount) -> Iterator[Finding]:
    """A listing shows new names and no removed ones, once it was freshened."""
    files.make(folder)
    files.names(folder)
    for number in range(40):
        files.create(f"{folder}/{number}")
    for number in range(20):
        files.drop(f"{folder}/{number}")
    files.sync([folder])
    right = {str(number) for number in range(20, 40)}
    seconds = wait_until(lambda: set(fresh_names(files, folder)) == right, PATIENCE)
    yield judge_delay("listing", seconds, "own names, new and removed,", mount.against_stale())


def fresh_names(files: Files, folder: str) -> list[str]:
    """A folder's names after `freshen`, as the crawl asks for them."""
    files.freshen(folder)
    return files.names(folder)


def wait_until(happened: Callable[[], bool], seconds: float) -> float | None:
    """How long it took until something was true; None if it did not within the time."""
    began = time.monotonic()
    while True:
        tried = time.monotonic() - began
        if happened():
            return tried
        if tried > seconds:
            return None
        time.sleep(0.05)


def judge_delay(promise: str, seconds: float | None, what: str, advice: str) -> Finding:
    """Within a pulse is well; longer than a worker's patience is unfit."""
    if seconds is None:
        return Finding(promise, UNFIT, f"{what} are not seen within {PATIENCE} s", advice)
    if seconds > AT_ONCE:
        return Finding(promise, SLOW, f"{what} are seen after {seconds:.1f} s", advice)
    return Finding(promise, OK, f"{what} are seen {'at once' if seconds < 0.2 else f'after {seconds:.1f} s'}")


def replaced(files: Files, folder: str) -> Iterator[Finding]:
    """A file that is replaced again and again is always seen whole: the old one or the new one."""
    files.make(folder)
    page = f"{folder}/page"
    files.put(page, sealed())
    over = Event()
    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(_read, files, page, over) for _ in range(3)]
        try:
            limit = time.monotonic() + SECONDS
            for _ in range(200):
                files.put(page, sealed())
                if time.monotonic() > limit:
                    break
        finally:
            over.set()
        seen = [reader.result() for reader in readers]
    reads, torn = sum(each[0] for each in seen), sum(each[1] for each in seen)
    gone = max(each[2] for each in seen)
    if torn or gone > BLINK:
        yield Finding("replace", UNFIT, f"of {reads} reads {torn} were cut short; missing for {gone:.1f} s", ANOTHER)
    else:
        yield Finding("replace", OK, f"whole in {reads} reads while it was replaced")


def _read(files: Files, page: str, over: Event) -> tuple[int, int, float]:
    """Reads, torn ones, and the longest time that the file was missing in several reads in a row."""
    reads = torn = missing = 0
    longest = since = 0.0
    while not over.is_set():
        data = files.get(page)
        reads += 1
        torn += data is not None and not is_whole(data)
        now = time.monotonic()
        missing, since = (0, now) if data is not None else (missing + 1, since or now)
        longest = max(longest, now - since) if missing > 2 else longest
    return reads, torn, longest


def sealed() -> bytes:
    """Bytes of any length up to 30 KB that show whether they are whole."""
    body = secrets.token_bytes(1000 + secrets.randbelow(29_000))
    return hashlib.sha224(body).digest() + body


def is_whole(data: bytes) -> bool:
    """Whether all of what `sealed` gave is here."""
    return hashlib.sha224(data[28:]).digest() == data[:28]
