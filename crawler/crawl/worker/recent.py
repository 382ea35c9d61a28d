"""Records of pages that are visited again soon, kept in memory: a visit that finds 304 need not read its record.

Only a worker's own records are kept, and only while it surely is the one who writes them: none of them counts any more
once shards became its own, because others may have had those in between.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, NamedTuple

SOON = 3600.0  # seconds until the next visit
MAX_BYTES = 4 << 20  # about a thousand records


class Kept(NamedTuple):
    """A record as it was written, and how often shards had become this worker's own by then."""

    record: bytes
    gains: int


class RecentRecords:
    """The records of the pages that are visited soonest again, by name; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._bytes = 0

    def put(self, name: str, record: bytes, gains: int) -> None:
        """Keep a record that was just written."""
        self.drop(name)
        self._kept[name] = Kept(record, gains)
        self._bytes += len(record)
        while self._bytes > MAX_BYTES:
            self.drop(next(iter(self._kept)))

    def get(self, name: str, gains: int) -> dict[str, Any] | None:
        """Return a record that is as it is in the store; None if it must be read."""
        kept = self._kept.get(name)
        if kept is None or kept.gains != gains:
            return None
        found: dict[str, Any] = json.loads(kept.record)
        return found

    def drop(self, name: str) -> None:
        """Forget a record, because it is written in another way."""
        kept = self._kept.pop(name, None)
        self._bytes -= len(kept.record) if kept else 0
