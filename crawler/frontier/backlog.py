"""How many URLs wait of which no living worker knows: from the batches, and from what is done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import NamedTuple

from crawler.frontier.batches import from_lines, lines_of, read_batches
from crawler.frontier.task import OVERDUE, REVISIT
from crawler.store.inboxes import batch_names, made_shards
from crawler.store.store import Store
from crawler.web import urls

MAX_LINES_READ = 50_000  # takes about half a second; then the names of the batches must do
MAX_HOSTS_LISTED = 1000


class Backlog(NamedTuple):
    """How many URLs wait, and of how many pages the next visit is not due yet, is due, and among these is overdue."""

    waiting: int
    fresh: int = 0
    due: int = 0
    overdue: int = 0


def count_backlog(store: Store, shards: int, now: float, of: Collection[int] | None = None) -> Backlog:
    """Return what waits, in all shards or in some `of` them; `now` is monotonic.

    Where it is too much to read, at most so many URLs, and no visits. A URL that several pages link to may be in
    several batches, and one that is done stays until its batch is removed: after a kill more than half of the lines may
    be such. Of the visits of a page the last one is to come.
    """
    made = [shard for shard in made_shards(store.files, shards) if of is None or shard in of]
    lines = sum(lines_of(name) for shard in made for name in batch_names(store.files, shard))
    if not 0 < lines <= MAX_LINES_READ:
        return Backlog(lines)
    waiting: dict[str, set[str]] = defaultdict(set)
    visits: dict[str, tuple[int, float]] = {}
    for shard in made:
        for data in read_batches(store.files, shard):
            for task in from_lines(data):
                if task.kind == REVISIT:
                    visits[task.subject] = max(visits.get(task.subject, (0, 0.0)), (task.visit, -task.due))
                else:
                    waiting[task.host].add(urls.key(task.name))
    listed = list(waiting)[:MAX_HOSTS_LISTED]
    count = sum(map(len, waiting.values())) - sum(len(waiting[host] & store.done(host)) for host in listed)
    late = [now + earlier for _, earlier in visits.values()]  # by how many seconds: less than none of those to come
    due = sum(it >= 0 for it in late)
    return Backlog(count, len(late) - due, due, sum(OVERDUE <= it < now for it in late))
