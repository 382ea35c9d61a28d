"""The end of a request from outside: a library that is kept busy by what a server sends looks at no clock."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from time import monotonic, sleep

LOOK = 0.5  # seconds between two looks
GRACE = 1.0  # for the library to see by itself that the time is over


class Flight:
    """A request on its way: the socket that it uses, and when it must have ended."""

    def __init__(self) -> None:
        self.until = math.inf
        self.ended = False
        self._socket = -1, -1

    def hold(self, number: int) -> None:
        """Remember the socket by its number and its inode: numbers are given again."""
        self._socket = number, os.fstat(number).st_ino

    def end(self) -> None:
        """Shut the socket down, which whoever reads from it notices at once."""
        self.ended = True
        number, inode = self._socket
        with suppress(OSError):
            if os.fstat(number).st_ino == inode:
                with socket.socket(fileno=os.dup(number)) as same:
                    same.shutdown(socket.SHUT_RDWR)


class Deadlines:
    """Watches all requests of a fetcher, from a thread that begins with the first of them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds + GRACE
        self._lock = Lock()
        self._flying: set[Flight] = set()
        self._closed = Event()
        self._thread: Thread | None = None

    @contextmanager
    def watch(self, flight: Flight) -> Iterator[None]:
        """End the request when its time is over."""
        flight.until, flight.ended = monotonic() + self._seconds, False
        with self._lock:
            self._flying.add(flight)
            if self._thread is None:
                self._thread = Thread(target=self._look, name="deadlines", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._flying.discard(flight)

    def close(self) -> None:
        """Watch no longer than until those in flight have ended."""
        self._closed.set()

    def _look(self) -> None:
        while self._flying or not self._closed.is_set():
            sleep(LOOK)
            with self._lock:
                for flight in self._flying:
                    if monotonic() > flight.until:
                        flight.end()
