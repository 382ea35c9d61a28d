"""Ends requests from outside at their deadline: a library kept busy by a server does not look at the clock."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic, sleep

INTERVAL = 0.5  # seconds between two checks
GRACE = 1.0  # seconds for the library to notice the timeout itself


class Flight:
    """A request in flight: its socket, and its deadline."""

    def __init__(self) -> None:
        self.until = math.inf
        self.ended = False
        self._socket = -1, -1

    def hold(self, number: int) -> None:
        """Remember the socket by its number and its inode: numbers are reused."""
        self._socket = number, os.fstat(number).st_ino

    def end(self) -> None:
        """Shut the socket down, which ends a blocked read at once."""
        self.ended = True
        number, inode = self._socket
        with suppress(OSError):
            if os.fstat(number).st_ino == inode:
                with socket.socket(fileno=os.dup(number)) as same:
                    same.shutdown(socket.SHUT_RDWR)


class Deadlines:
    """Watches all requests of a fetcher, from a thread that starts with the first of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds + GRACE
        self._lock = Lock()
        self._in_flight: set[Flight] = set()
        self._closed = Event()
        self._thread: Thread | None = None

    @contextmanager
    def watch(self, flight: Flight) -> Iterator[None]:
        """End the request if it passes its deadline."""
        flight.until, flight.ended = monotonic() + self._seconds, False
        with self._lock:
            self._in_flight.add(flight)
            if self._thread is None:
                self._thread = Thread(target=self._check, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._in_flight.discard(flight)

    def close(self) -> None:
        """Stop the thread when the requests in flight have ended."""
        self._closed.set()

    def _check(self) -> None:
        while self._in_flight or not self._closed.is_set():
            sleep(INTERVAL)
            with self._lock:
                for flight in self._in_flight:
                    if monotonic() > flight.until:
                        flight.end()
