"""How many URLs wait while no worker is alive to say so: from the batches, and from what is done."""

from __future__ import annotations

from collections import defaultdict

from crawler.frontier.batches import batch_names, from_lines, lines_of, read_batches
from crawler.frontier.task import REVISIT
from crawler.store.store import Store
from crawler.web import urls

MAX_LINES_READ = 50_000  # takes about half a second; then the names of the batches must do
MAX_HOSTS_LISTED = 1000


def count_waiting(store: Store, shards: int) -> int:
    """Return how many URLs wait, without revisits; where they are too many to read, at most so many.

    A URL that several pages link to may be in several batches, and one that is done stays until its batch is removed:
    after a kill more than half of the lines may be such.
    """
    lines = sum(lines_of(name) for shard in range(shards) for name in batch_names(store.files, shard))
    if not 0 < lines <= MAX_LINES_READ:
        return lines
    waiting: dict[str, set[str]] = defaultdict(set)
    for shard in range(shards):
        for data in read_batches(store.files, shard):
            for task in from_lines(data):
                if task.kind != REVISIT:
                    waiting[task.host].add(urls.key(task.name))
    listed = list(waiting)[:MAX_HOSTS_LISTED]
    return sum(map(len, waiting.values())) - sum(len(waiting[host] & store.done(host)) for host in listed)
