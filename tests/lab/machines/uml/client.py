"""python client.py ADDRESS COMMAND...: run a command in a guest as if it ran here; see agent.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

PORT = 7000


def main() -> int:
    """Run it; its exit code, or minus the signal that ended it."""
    talk = connect(sys.argv[1])
    asked = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}
    talk.sendall(json.dumps(asked).encode() + b"\n")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, frame: tell(talk, number))
    threading.Thread(target=beat, args=(talk,), daemon=True).start()
    tail = b""
    while data := talk.recv(1 << 16):
        whole = tail + data
        # The last two lines are not ours to print yet: they may be the exit code.
        cut = max(0, len(whole) - 16)
        sys.stdout.buffer.write(whole[:cut])
        sys.stdout.flush()
        tail = whole[cut:]
    printed, _, code = tail.rstrip(b"\n").rpartition(b"\n")
    sys.stdout.buffer.write(printed)
    sys.stdout.flush()
    return int(code)


def connect(address: str) -> socket.socket:
    """Connect to the guest's agent, which may still be booting."""
    limit = time.monotonic() + 120
    while True:
        try:
            talk = socket.create_connection((address, PORT), timeout=5)
            talk.settimeout(None)
            return talk
        except OSError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.2)


def tell(talk: socket.socket, number: int) -> None:
    """Pass on a signal; 0 is a sign of life."""
    with suppress(OSError):
        talk.sendall(b"%d\n" % number)


def beat(talk: socket.socket) -> None:
    """Show that we run: a command whose client stands still is stopped."""
    while True:
        tell(talk, 0)
        time.sleep(0.5)


if __name__ == "__main__":
    end = main()
    if end < 0:  # as a command that was ended by a signal
        signal.signal(-end, signal.SIG_DFL)
        os.kill(os.getpid(), -end)
    sys.exit(end)
