"""Runs commands in a guest: one connection is one command, which ends, stops and goes on as its client does.

The client (client.py) sends a line of JSON {"argv", "env", "cwd"}, and then a line now and then: the number of a
signal, or 0 as a sign of life. Without one for a while the command is stopped, because its client is; when the
connection breaks it is killed. What the command prints comes back as it is, and a last line says its exit code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from contextlib import suppress

PORT = 7000
SILENCE = 3.0  # seconds after which a client counts as stopped


def serve(talk: socket.socket) -> None:
    """Run the command of one connection."""
    with talk, talk.makefile("rb", buffering=0) as lines:
        asked = json.loads(lines.readline())
        command = subprocess.Popen(
            asked["argv"],
            env=asked["env"] | {"TMPDIR": "/run/tmp"},  # the guest's own disk
            cwd=asked["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        listener = threading.Thread(target=obey, args=(command, talk, lines), daemon=True)
        listener.start()
        with suppress(OSError):
            answer(command, talk)


def answer(command: subprocess.Popen[bytes], talk: socket.socket) -> None:
    """Send what it prints, then its exit code."""
    assert command.stdout
    while data := os.read(command.stdout.fileno(), 1 << 16):
        talk.sendall(data)
    talk.sendall(b"\n%d\n" % command.wait())
    talk.shutdown(socket.SHUT_RDWR)


def obey(command: subprocess.Popen[bytes], talk: socket.socket, lines: object) -> None:
    """Do to the command what is done to its client."""
    stopped, heard = False, time.monotonic()
    with suppress(OSError, ValueError):
        while True:
            if select.select([talk], [], [], 0.5)[0]:
                line = lines.readline()  # type: ignore[attr-defined]
                if not line:
                    break
                heard = time.monotonic()
                send(command, int(line))
            silent = time.monotonic() - heard > SILENCE
            if silent != stopped:
                send(command, signal.SIGSTOP if silent else signal.SIGCONT)
                stopped = silent
    send(command, signal.SIGKILL)
    command.wait()


def send(command: subprocess.Popen[bytes], number: int) -> None:
    """Send the command and its children a signal; 0 is none."""
    with suppress(ProcessLookupError):
        if number:
            os.killpg(command.pid, number)


def main() -> None:
    """Serve for ever."""
    with socket.create_server(("0.0.0.0", PORT), backlog=64) as listener:
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


main()
