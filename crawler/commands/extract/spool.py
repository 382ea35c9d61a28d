"""Rows whose columns are known only when the last page was read: kept on this machine's disk until then."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawler.commands.export.formats import Row
from crawler.commands.export.output import trouble

BATCH_ROWS, BATCH_SIZE = 2_000, 16 << 20  # kept in memory


class Spool:
    """Takes rows that end with texts by column; gives them back with the columns that any of them has."""

    def __init__(self, names: list[str], max_columns: int) -> None:
        self._names, self._max = names, max_columns
        self._found: dict[str, str] = {}  # by name without case: databases do not tell them apart
        self._folder = Path(tempfile.gettempdir())
        self.dropped = 0  # rows that have a column more than there may be
        with trouble(self._folder):
            self._file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed by `close`

    @property
    def more(self) -> list[str]:
        """The columns that were found in headers, in the order in which they came."""
        return list(self._found.values())

    def add(self, rows: list[list[Any]]) -> None:
        """Take rows."""
        with trouble(self._folder):
            for *values, more in rows:
                self._file.write(json.dumps([*values, self._renamed(more)]) + "\n")

    def _renamed(self, more: dict[str, str]) -> dict[str, str]:
        found, is_whole = {}, True
        for name, text in more.items():
            if name.casefold() not in self._found and len(self._names) + len(self._found) >= self._max:
                is_whole = False
            else:
                found[self._found.setdefault(name.casefold(), name)] = text
        self.dropped += not is_whole
        return found

    def batches(self) -> Iterator[list[Row]]:
        """Return all rows, in their order."""
        with trouble(self._folder):
            self._file.seek(0)
        batch: list[Row] = []
        size = 0
        for line in self._file:
            *values, more = json.loads(line)
            batch.append({**dict(zip(self._names, values, strict=True)), **more})
            size += len(line)
            if len(batch) >= BATCH_ROWS or size >= BATCH_SIZE:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def close(self) -> None:
        """Remove them."""
        self._file.close()
