"""The store's lock: one holder, a heartbeat, and an heir if the holder dies."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lab.world import wait_for

from crawler.errors import Busy
from crawler.store.lock import LOCK, StoreLock
from crawler.store.mount import Files

BEATS, DEAD = 0.1, 1.5  # seconds

HOLDER = """
import sys, time
from crawler.store.lock import StoreLock
from crawler.store.mount import Files
with StoreLock(Files(sys.argv[1], "holder"), 0.1, 1.5).held("holding", print, lambda: False):
    print("held", flush=True)
    sys.stdin.read()
"""


def lock_of(root: Path) -> StoreLock:
    return StoreLock(Files(root, "waiter", durable=False), BEATS, DEAD)


def never() -> bool:
    return False


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith(LOCK))


def holder(root: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends."""
    made = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert made.stdout and made.stdout.readline() == "held\n"
    return made


def as_of_another_machine(root: Path) -> None:
    """Have a lock name a machine whose processes cannot be looked at from here."""
    path = root / LOCK
    path.write_text(path.read_text().replace(path.read_text().splitlines()[1], "another-machine"))


def test_a_lock_that_is_released_leaves_nothing(tmp_path: Path) -> None:
    with lock_of(tmp_path).held("trying", print, never):
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == []


def test_a_holder_that_is_killed_on_this_machine_leaves_nothing_to_its_heir(tmp_path: Path) -> None:
    made = holder(tmp_path)
    made.kill()
    made.communicate()
    assert len(names(tmp_path)) == 2
    with lock_of(tmp_path).held("trying", print, never):
        assert len(names(tmp_path)) == 2
    assert names(tmp_path) == []


def test_a_holder_that_is_killed_on_another_machine_has_an_heir(tmp_path: Path) -> None:
    other = holder(tmp_path)
    other.kill()
    other.communicate()
    as_of_another_machine(tmp_path)
    told: list[str] = []
    with lock_of(tmp_path).held("rehydrating the store", told.append, never):
        assert len([name for name in names(tmp_path) if name.startswith(f"{LOCK}@")]) == 1
    assert [line.partition(":")[0] for line in told] == [
        "waiting",
        "the machine that had locked the store shows no heartbeat for 2 s",
    ]
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", ["", "half a li"])
def test_a_lock_whose_holder_died_before_it_wrote_its_name_has_an_heir(tmp_path: Path, content: str) -> None:
    (tmp_path / LOCK).write_text(content)
    with lock_of(tmp_path).held("making the store", print, never):
        pass
    assert names(tmp_path) == []


def test_a_holder_that_lives_is_waited_for_longer_than_a_dead_one(tmp_path: Path) -> None:
    other = holder(tmp_path)
    as_of_another_machine(tmp_path)
    held = threading.Event()

    def wait() -> None:
        with lock_of(tmp_path).held("holding", lambda _: None, never):
            held.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not held.wait(2 * DEAD)
    (tmp_path / LOCK).unlink()  # as its own release would: it no longer knows the name that we gave it
    other.communicate()
    thread.join(60)
    assert held.is_set()


def test_a_holder_that_hung_learns_that_it_has_an_heir(tmp_path: Path) -> None:
    mine = lock_of(tmp_path)
    with mine.held("making the store", print, never) as lock:
        lock.check()
        Files(tmp_path, "heir").claim(LOCK, ".lock-dead-heir")
        for name in names(tmp_path):
            (tmp_path / name).unlink(missing_ok=True)

        def is_lost() -> bool:
            try:
                lock.check()
            except Busy:
                return True
            return False

        wait_for(is_lost)
