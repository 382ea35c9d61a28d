"""`crawler top`: all machines of a crawl at work, live in a terminal, or once as text.

The terminal is restored however we end. Another thread reads the store, so that a mount that hangs blocks neither the
screen nor the keyboard.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from argparse import Namespace
from contextlib import suppress
from types import FrameType

from crawler import errors
from crawler.commands.arguments import Add, flag
from crawler.commands.history import Outlook
from crawler.commands.top.view import View, clip
from crawler.errors import CrawlerError
from crawler.fleet.members import Facts
from crawler.settings import values
from crawler.store.store import open_store
from crawler.terminal import bars, many, paint, say
from crawler.web.text import printable

PIPE = 100  # columns where there is no window
QUICKEST = 0.2  # seconds between two looks
TICK = 1.0  # seconds after which the screen is drawn again, whatever happens
HANGING = 5.0  # seconds after which a look at the store counts as hanging
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, no line wrap
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
KEY = re.compile(rb"\x1b[\[O][\d;]*[A-Za-z~]|.", re.DOTALL)
KEYS = {b"\x1b[A": -1, b"\x1bOA": -1, b"k": -1, b"\x1b[B": 1, b"\x1bOB": 1, b"j": 1, b"\x1b[5~": -10, b"\x1b[6~": 10}
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def commands(add: Add) -> None:
    """Add `top` to the program."""
    made = add("top", run, "crawler top /mnt/shared/crawl --every 5s")
    made.add_argument(
        "--every", type=flag(_seconds), default=2.0, metavar="TIME", help="between two looks (default 2s)"
    )
    made.add_argument("--once", action="store_true", help="print it once as plain text, as into a pipe")


def _seconds(given: str) -> float:
    seconds = values.duration(given)
    if seconds < QUICKEST:
        raise ValueError(f"is too often for a shared folder; take at least {QUICKEST}s")
    return seconds


def run(options: Namespace) -> int:
    """`crawler top`."""
    outlook = Outlook(open_store(options.store))
    if sys.stdout.isatty() and not options.once and os.environ.get("TERM") != "dumb":
        return Live(outlook, options.every).run()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else PIPE
    lines = View(width, bars=bars()).lines(outlook.look(again=True))
    say(_encoded("\n".join(map(str.rstrip, lines))).decode(sys.stdout.encoding))
    return errors.OVER


def _encoded(text: str) -> bytes:
    """Return the text in the terminal's encoding; characters that it lacks become question marks."""
    return text.encode(sys.stdout.encoding, "replace")


class Watcher:
    """Looks at the store repeatedly, in a thread of its own, and keeps what it saw last."""

    def __init__(self, outlook: Outlook, every: float, wake: int) -> None:
        self.found: Facts | None = None
        self.fault: Exception | None = None
        self._outlook, self._every, self._wake = outlook, every, wake
        self._sentence = ""
        self._began: float | None = None

    def watch(self) -> None:
        """Look until the process ends."""
        while self.fault is None:
            self._began = time.monotonic()
            try:
                self.found = self._outlook.look()
                self._sentence = ""
            except CrawlerError as error:
                self._sentence = str(error)
            except Exception as error:  # noqa: BLE001 - raised again once the screen is restored
                self.fault = error
            self._began = None
            with suppress(BlockingIOError):  # the last one is not read yet
                os.write(self._wake, b"!")
            time.sleep(self._every)

    def trouble(self) -> str:
        """Return a sentence about why the store cannot be read now; empty if it can."""
        began = self._began
        waited = time.monotonic() - began if began else 0.0
        if waited > HANGING:
            return f"the store has not responded for {many(int(waited), 'second')}; is the mount still there?"
        return self._sentence


class Live:
    """The screen, its keys and its signals."""

    def __init__(self, outlook: Outlook, every: float) -> None:
        self._news, self._wake = os.pipe()
        for end in (self._news, self._wake):
            os.set_blocking(end, False)
        self.watcher = Watcher(outlook, every, self._wake)
        self._signals: set[int] = set()  # received and not handled yet
        self._is_over = False
        self._offset = 0
        self._shown: list[str] = []
        self._keyboard = sys.stdin.fileno() if sys.stdin and sys.stdin.isatty() else None
        self._terminal = termios.tcgetattr(self._keyboard) if self._keyboard is not None else None

    def run(self) -> int:
        """Show it until the user quits."""
        self._listen()
        try:
            self._take_screen()
            threading.Thread(target=self.watcher.watch, daemon=True, name="watcher").start()
            while not self._is_over and not self.watcher.fault:
                self._draw()
                self._wait()
                self._handle_signals()
        except OSError:
            return errors.STOPPED  # the terminal is gone: errors of the store stay in the watcher
        finally:
            with suppress(OSError):
                self._restore_screen()
        if self.watcher.fault:
            raise self.watcher.fault
        return errors.OVER

    # ---- keys and signals

    def _listen(self) -> None:
        """Signals are only noted, and end the wait: none may interrupt drawing or restoring the screen."""
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        for number in (*ENDS, signal.SIGWINCH, signal.SIGTSTP):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.add(number)

    def _wait(self) -> None:
        """Wait for a new look, a key or a signal, but not for long: the store may hang."""
        keyboard = [self._keyboard] if self._keyboard is not None else []
        ready, _, _ = select.select([self._news, *keyboard], [], [], TICK)
        if self._news in ready:
            os.read(self._news, 4096)
        if self._keyboard in ready:
            for key in KEY.findall(os.read(self._keyboard, 1024)) or [b"q"]:  # end of file: the terminal is gone
                self._press(key)

    def _handle_signals(self) -> None:
        received, self._signals = self._signals, set()
        self._is_over = self._is_over or not received.isdisjoint(ENDS)
        if signal.SIGTSTP in received:
            self._suspend()
        if signal.SIGWINCH in received:
            self._shown = []

    def _suspend(self) -> None:
        """Ctrl-Z: restore the screen and stop until `fg`."""
        self._restore_screen()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._note)
        self._take_screen()

    def _press(self, key: bytes) -> None:
        if key in b"qQ":
            self._is_over = True
        elif self.watcher.found and key in KEYS:
            farthest = self._view().farthest(self.watcher.found, self.watcher.trouble())
            self._offset = max(min(self._offset + KEYS[key], farthest), 0)

    # ---- the screen

    def _take_screen(self) -> None:
        if self._keyboard is not None:
            tty.setcbreak(self._keyboard)
        self._shown = []
        _write(ENTER)

    def _restore_screen(self) -> None:
        _write(LEAVE)
        if self._keyboard is not None and self._terminal is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, self._terminal)

    def _view(self) -> View:
        size = os.get_terminal_size(sys.stdout.fileno())
        return View(size.columns or 80, size.lines or 24, self._offset, paint, bars())

    def _draw(self) -> None:
        """Write the lines that have changed."""
        view, trouble = self._view(), self.watcher.trouble()
        if self.watcher.found:
            lines = view.lines(self.watcher.found, trouble)
        else:
            lines = [clip(printable(trouble) or "looking at the store ...", view.width)]
        before = self._shown + [""] * (len(lines) - len(self._shown))
        new = [(row, line) for row, line in enumerate(lines, 1) if line != before[row - 1]]
        # A line is erased before it is written: after a full one the cursor is on its last character.
        text = "".join(f"\x1b[{row};1H\x1b[2K{line}" for row, line in new)
        rest = f"\x1b[{len(lines) + 1};1H\x1b[J" if len(lines) < len(self._shown) else ""
        if text or rest:
            _write(("" if self._shown else "\x1b[2J") + text + rest)
        self._shown = lines


def _write(text: str) -> None:
    """Write to the terminal without Python's buffer, which could not be flushed if the terminal is gone."""
    data = _encoded(text)
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
