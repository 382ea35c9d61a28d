"""How many URLs of each host wait, from the batches: for `hosts` and `serve`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from crawler.frontier.batches import from_lines, read_batches
from crawler.store.inboxes import made_shards
from crawler.store.store import Store
from crawler.web import urls


class QueuedUrls:
    """All URLs in batches, each once: on this machine's disk, because there may be many millions.

    Not for two threads at a time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE waiting(host TEXT, key TEXT, PRIMARY KEY (host, key)) WITHOUT ROWID")

    def read(self, shards: int) -> Iterator[None]:
        """Read all batches; yield after each, so that the caller may rest."""
        self._db.execute("BEGIN")
        for shard in made_shards(self._store.files, shards):
            for data in read_batches(self._store.files, shard):
                rows = ((task.host, urls.key(task.name)) for task in from_lines(data))
                self._db.executemany("INSERT OR IGNORE INTO waiting VALUES (?, ?)", rows)
                yield
            yield
        self._db.execute("COMMIT")

    def hosts(self) -> Iterator[str]:
        """Return the hosts that have a URL in a batch."""
        return (host for (host,) in self._db.execute("SELECT DISTINCT host FROM waiting"))

    def count(self, host: str) -> int:
        """Return how many URLs of a host wait; batches also have some that are done and not removed yet."""
        keys = {key for (key,) in self._db.execute("SELECT key FROM waiting WHERE host = ?", (host,))}
        for folder in ("links", "errs") if keys else ():
            for name in self._store.files.each_name(f"{folder}/{host}"):
                keys.discard(name)
        return len(keys)

    def close(self) -> None:
        """Give its place on the disk back."""
        self._db.close()
