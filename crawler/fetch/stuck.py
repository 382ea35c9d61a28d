"""A watch on libcurl: a thread that ends the socket on which it is stuck."""

from __future__ import annotations

import math
import os
import socket
import threading
from contextlib import suppress
from time import monotonic

STUCK_SECONDS = 1.0  # that libcurl may work on one socket without a pause


class StuckWatch:
    """Shuts down a socket on which libcurl is busy for too long: a server can keep a TLS library reading for ever."""

    def __init__(self) -> None:
        self.ended: set[int] = set()  # the numbers of the sockets that were shut down
        self._socket, self._since = -1, math.inf
        self._closed = threading.Event()

    def start(self) -> None:
        """Watch from a thread: the loop itself is what may be stuck."""
        threading.Thread(target=self._watch, name="stuck", daemon=True).start()

    def enter(self, number: int) -> None:
        """Note that libcurl begins to work on a socket."""
        self._socket, self._since = number, monotonic()

    def leave(self) -> None:
        """Note that it has finished."""
        self._since = math.inf

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(STUCK_SECONDS / 2):
            if monotonic() - self._since > STUCK_SECONDS:
                with suppress(OSError), socket.socket(fileno=os.dup(self._socket)) as same:
                    self.ended.add(self._socket)
                    same.shutdown(socket.SHUT_RDWR)
