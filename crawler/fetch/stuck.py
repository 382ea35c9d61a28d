"""A watch on libcurl: a thread that ends the socket on which it is stuck."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from contextlib import suppress

STUCK_SECONDS = 1.0  # of CPU that libcurl may need for one socket without a pause


class StuckWatch:
    """Shuts down a socket on which libcurl is busy for too long: a server can keep a TLS library reading for ever.

    The CPU time of the event loop's thread counts. By the clock, a call may be long because the machine is busy, or
    because another thread reads a large page.
    """

    def __init__(self) -> None:
        self.ended: set[int] = set()  # the numbers of the sockets that were shut down
        self._socket, self._since = -1, math.inf
        self._closed = threading.Event()

    def start(self) -> None:
        """Watch from a thread: the loop itself is what may be stuck."""
        cpu = time.pthread_getcpuclockid(threading.get_ident())
        threading.Thread(target=self._watch, args=(cpu,), name="stuck", daemon=True).start()

    def enter(self, number: int) -> None:
        """Note that libcurl begins to work on a socket."""
        self._socket, self._since = number, time.monotonic()

    def leave(self) -> None:
        """Note that it has finished."""
        self._since = math.inf

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _watch(self, cpu: int) -> None:
        seen, used = math.inf, 0.0  # since when libcurl works on a socket, and the CPU time when that was first seen
        while not self._closed.wait(STUCK_SECONDS / 2):
            since, now = self._since, time.clock_gettime(cpu)
            if since != seen:
                seen, used = since, now
            elif since < math.inf and now - used > STUCK_SECONDS:
                with suppress(OSError), socket.socket(fileno=os.dup(self._socket)) as same:
                    self.ended.add(self._socket)
                    same.shutdown(socket.SHUT_RDWR)
