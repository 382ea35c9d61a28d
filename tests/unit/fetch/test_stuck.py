"""The watch on libcurl: only a thread that works is stuck, not one that has to wait."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from crawler.fetch.stuck import STUCK_SECONDS, StuckWatch


@pytest.fixture
def watch() -> Iterator[StuckWatch]:
    watch = StuckWatch()
    watch.start()
    yield watch
    watch.close()


def test_a_socket_that_keeps_the_thread_busy_is_shut_down(watch: StuckWatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch.enter(ours.fileno())
        limit = time.thread_time() + 10 * STUCK_SECONDS
        while not watch.ended and time.thread_time() < limit:
            pass
        watch.leave()
        assert watch.ended == {ours.fileno()}
        assert theirs.recv(1) == b"", "the connection has ended"


def test_a_socket_whose_thread_had_to_wait_is_left_alone(watch: StuckWatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch.enter(ours.fileno())
        time.sleep(2.5 * STUCK_SECONDS)  # as for another thread that holds the interpreter's lock
        watch.leave()
        assert watch.ended == set()
        theirs.sendall(b"x")
        assert ours.recv(1) == b"x"


def test_many_short_calls_are_no_long_one(watch: StuckWatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        limit = time.thread_time() + 2 * STUCK_SECONDS
        while time.thread_time() < limit:
            watch.enter(ours.fileno())
            watch.leave()
        assert watch.ended == set()
