"""Log lines: words for people on a terminal, JSON lines for programs in a file."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from crawler.web.text import masked, printable

log = logging.getLogger("crawler")
PLAIN = set(vars(logging.makeLogRecord({})))


@dataclass(frozen=True, slots=True)
class Logs:
    """What is said, and where: sent to each worker, which is a process of its own."""

    verbose: int = 0
    file: str | None = None

    def begin(self) -> None:
        """Set up this process' logging."""
        log.handlers.clear()
        log.propagate = False
        log.setLevel(logging.DEBUG if self.verbose > 1 or self.file else logging.INFO)
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setLevel([logging.WARNING, logging.INFO, logging.DEBUG][min(max(self.verbose, 0), 2)])
        terminal.setFormatter(Words("\r\x1b[K" if sys.stderr.isatty() else ""))  # the line may hold the progress bar
        log.addHandler(terminal)
        if self.file:
            # One write per line to a file opened for appending: the workers of a machine do not mix their lines.
            handler = logging.FileHandler(Path(self.file), encoding="utf-8")
            handler.setFormatter(JsonLines())
            log.addHandler(handler)


class Words(logging.Formatter):
    """A sentence for a person, in which nothing from the web can move the cursor or begin a line of its own."""

    def __init__(self, before: str = "") -> None:
        super().__init__()
        self.before = before

    def format(self, record: logging.LogRecord) -> str:
        """The line of a log record, and its traceback's."""
        lines = [record.getMessage()]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return self.before + masked("\n".join(map(printable, lines)))


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, message, and the facts that were given with it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a log record."""
        facts = {name: value for name, value in vars(record).items() if name not in PLAIN and name != "message"}
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "message": masked(record.getMessage()),
            **facts,
        }
        if record.exc_info:
            line["traceback"] = masked(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
