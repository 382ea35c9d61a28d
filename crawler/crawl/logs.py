"""Logging: sentences on the terminal, JSON lines in a file."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from crawler.web.text import masked, printable

log = logging.getLogger("crawler")
STANDARD = set(vars(logging.makeLogRecord({})))


class Logs(NamedTuple):
    """How verbose to be, and the log file; sent to each worker process."""

    verbose: int = 0
    file: str | None = None

    def begin(self) -> None:
        """Set up logging in this process."""
        log.handlers.clear()
        log.propagate = False
        log.setLevel(logging.DEBUG if self.verbose > 1 or self.file else logging.INFO)
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][min(max(self.verbose, 0), 2)])
        terminal.setFormatter(TerminalFormatter("\r\x1b[K" if sys.stderr.isatty() else ""))  # clears the progress bar
        log.addHandler(terminal)
        if self.file:
            # One write per line to a file opened for appending, so lines of several workers do not mix.
            handler = logging.FileHandler(Path(self.file), encoding="utf-8")
            handler.setFormatter(JsonFormatter())
            log.addHandler(handler)


class TerminalFormatter(logging.Formatter):
    """A line for people, in which text from the web can neither move the cursor nor start a new line."""

    def __init__(self, before: str = "") -> None:
        super().__init__()
        self.before = before

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, followed by the lines of its traceback."""
        lines = [record.getMessage()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return self.before + masked("\n".join(map(printable, lines)))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (ISO 8601, UTC), level, message, and the fields given as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        fields = {name: value for name, value in vars(record).items() if name not in STANDARD and name != "message"}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": masked(record.getMessage()),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = masked(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
