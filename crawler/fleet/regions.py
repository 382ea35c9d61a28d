"""Regions: which workers may own the shards of which region.

A worker's region is the end of its id (`3f2a91c0-tokyo`), so that a listing of `workers/` shows who is where. The
shards of a region belong to its own workers alone while one of them is alive. If none has been for `region_takeover`
seconds of our own clock, all others may own them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from crawler.settings.regions import region_of_shard, regions_of
from crawler.settings.settings import Settings

ANYWHERE = ""  # the region of hosts that match no pattern: their shards are for all workers


class Regions:
    """Tells which shards a worker may own, from who is alive."""

    def __init__(self, settings: Settings) -> None:
        self.names = regions_of(settings.region_rules)
        self._takeover, self._dead_after = settings.region_takeover, settings.dead_after
        self._by_region: dict[str, set[int]] = {name: set() for name in (ANYWHERE, *self.names)}
        for shard in range(settings.shards):
            self._by_region[region_of_shard(shard, settings.region_rules)].add(shard)
        self._absent_since: dict[str, float] = {}

    def shards(self, region: str) -> set[int]:
        """Return the shards of a region."""
        return self._by_region[region]

    def look(self, alive: Collection[str], now: float) -> None:
        """Take in which workers are alive now."""
        present = set(map(region_of, alive))
        for region in self.names:
            if region in present:
                self._absent_since.pop(region, None)
            else:
                self._absent_since.setdefault(region, now)

    def candidates(self, region: str, alive: Collection[str], now: float) -> list[str]:
        """Return the workers that may own the shards of a region, in order."""
        own = [id for id in alive if region_of(id) == region]
        return sorted(alive if region == ANYWHERE or self._is_taken_over(region, now) else own)

    def _is_taken_over(self, region: str, now: float) -> bool:
        since = self._absent_since.get(region)
        return since is not None and self._takeover is not None and now - since >= self._takeover

    def absent(self, now: float) -> set[int]:
        """Return the shards of regions without a worker for `dead_after` seconds: one may just be starting."""
        absent = [region for region, since in self._absent_since.items() if now - since >= self._dead_after]
        return set().union(*(self._by_region[region] for region in absent))

    def waiting(self, now: float) -> set[int]:
        """Return those of them that wait for a worker of their region, as `region_takeover: null` says."""
        return self.absent(now) if self._takeover is None else set()


def region_of(id: str) -> str:
    """Return the region of a worker, by its id; empty if it has none."""
    return id.partition("-")[2]


def count_workers(ids: Collection[str], regions: Collection[str]) -> dict[str, int]:
    """Return how many of these workers are in each of the regions."""
    found = Counter(map(region_of, ids))
    return {region: found[region] for region in regions}
