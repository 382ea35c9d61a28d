"""A line with latency: passes on what comes to a port, both ways, each byte a little later.

    python tests/bench/late.py ADDRESS PORT TO_PORT SECONDS

`tc netem` does this in a kernel that has it; this works in every one, and costs a part of a core.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections import deque
from select import select
from time import monotonic

PIECE = 1 << 18


def serve(address: str, port: int, to_port: int, seconds: float) -> None:
    """Pass on all connections to another port of the same address."""
    with socket.create_server((address, port)) as door:
        print("listening", flush=True)
        while True:
            near, _ = door.accept()
            far = socket.create_connection((address, to_port))
            threading.Thread(target=pass_on, args=(near, far, seconds), daemon=True).start()


def pass_on(near: socket.socket, far: socket.socket, seconds: float) -> None:
    """Pass on what either end sends, until one has no more to say; what is read goes when it is `seconds` old."""
    others = {near: far, far: near}
    way: deque[tuple[float, socket.socket, bytes]] = deque()
    for end in others:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with near, far:
        while True:
            ready, _, _ = select(others, [], [], max(way[0][0] - monotonic(), 0.0) if way else None)
            for end in ready:
                piece = end.recv(PIECE)
                if not piece:
                    return
                way.append((monotonic() + seconds, others[end], piece))
            while way and way[0][0] <= monotonic():
                _, end, piece = way.popleft()
                end.sendall(piece)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
