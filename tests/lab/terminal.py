"""A terminal for the tests of what draws on one: a real pty with a program in it, and what is to be seen there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from lab.world import COMMAND, LONG

LEAVE = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
SEQUENCE = re.compile(r"\x1b\[(\??)([\d;]*)([A-Za-z])|([^\x1b]+)|\x1b")


class Terminal:
    """`crawler` (or another command) with these arguments at work in a window."""

    def __init__(
        self, *args: str, lines: int = 24, columns: int = 80, command: Sequence[str] = COMMAND, **env: str
    ) -> None:
        self._near, self._far = pty.openpty()
        self.resize(lines, columns)
        self.manners = termios.tcgetattr(self._far)
        self.said = b""
        self.process = subprocess.Popen(
            [*command, *args],
            env={**os.environ, "TERM": "xterm-256color", **env},
            preexec_fn=lambda: os.login_tty(self._far),  # it is in charge here: it gets Ctrl-C and the news of its size
        )

    def resize(self, lines: int, columns: int) -> None:
        """The user pulls at the window."""
        self.lines, self.columns = lines, columns
        fcntl.ioctl(self._near, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        """The user presses keys."""
        os.write(self._near, keys)

    def read(self, seconds: float = 0.05) -> None:
        """Take in what was written meanwhile."""
        while select.select([self._near], [], [], seconds)[0]:
            with suppress(OSError):
                self.said += os.read(self._near, 65536)

    def wait(self, happened: Callable[[list[str]], Any]) -> list[str]:
        """Wait until something is to be seen on the screen; the screen."""
        limit = time.monotonic() + LONG
        while not happened(screen := self.screen()):
            assert time.monotonic() < limit and self.process.poll() is None, screen
        return screen

    def wait_for(self, words: str) -> list[str]:
        """Wait until these words are on the screen; the screen."""
        return self.wait(lambda screen: any(words in line for line in screen))

    def screen(self) -> list[str]:
        """The lines of the screen, as far as the sequences that we use tell."""
        self.read()
        rows: dict[int, str] = {}
        row = 1
        for private, number, end, text in SEQUENCE.findall(self.said.decode("utf-8", "ignore")):
            if end == "H":
                row = int(number.partition(";")[0])
            elif end == "K":
                rows[row] = ""
            elif end == "J" or (private and number == "1049"):
                rows = {line: text for line, text in rows.items() if line < row and number == ""}
            elif text:
                rows[row] = rows.get(row, "") + text
        return [rows.get(line, "") for line in range(1, max(rows, default=0) + 1)]

    def end(self) -> int:
        """Wait until the program has ended; its exit code. Its terminal must be as it was."""
        limit = time.monotonic() + LONG
        while self.process.poll() is None:
            assert time.monotonic() < limit, "it did not end"
            self.read()
        self.read()
        last_drawn = self.said.rpartition(b";1H")[2]
        assert last_drawn.count(LEAVE) == 1, last_drawn
        assert termios.tcgetattr(self._far) == self.manners
        return self.process.returncode

    def close(self) -> None:
        """Leave nothing behind."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._near)
        os.close(self._far)


@contextmanager
def terminal(*args: str, **how: Any) -> Iterator[Terminal]:
    """A terminal that is gone after the test."""
    made = Terminal(*args, **how)
    try:
        yield made
    finally:
        made.close()
