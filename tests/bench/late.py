"""A line with latency: passes on what comes to a port, both ways, each byte a little later.

    python tests/bench/late.py ADDRESS PORT TO_PORT SECONDS

`tc netem` does this in a kernel that has it; this works in every one, and costs a small part of a core.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from queue import SimpleQueue

PIECE = 1 << 18


def serve(address: str, port: int, to_port: int, seconds: float) -> None:
    """Pass on all connections to another port of the same address."""
    with socket.create_server((address, port)) as door:
        print("listening", flush=True)
        while True:
            near, _ = door.accept()
            far = socket.create_connection((address, to_port))
            for one, other in ((near, far), (far, near)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pass_on(one, other, seconds)


def pass_on(source: socket.socket, target: socket.socket, seconds: float) -> None:
    """Pass on one direction: what is read is noted with its time, and goes when that is `seconds` ago."""
    way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()
    threading.Thread(target=_read, args=(source, way, seconds), daemon=True).start()
    threading.Thread(target=_send, args=(target, way), daemon=True).start()


def _read(source: socket.socket, way: SimpleQueue[tuple[float, bytes]], seconds: float) -> None:
    piece = b"."
    while piece:
        try:
            piece = source.recv(PIECE)
        except OSError:
            piece = b""
        way.put((time.monotonic() + seconds, piece))


def _send(target: socket.socket, way: SimpleQueue[tuple[float, bytes]]) -> None:
    while True:
        due, piece = way.get()
        if not piece:
            return target.close()
        time.sleep(max(due - time.monotonic(), 0.0))
        try:
            target.sendall(piece)
        except OSError:
            return target.close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
