"""Which region a host and a shard belong to. Pure, and the same on every machine.

The shards are dealt out in turn: with two regions shard 0 is for hosts of no region, 1 for the first, 2 for the second,
3 again for hosts of no region, and so on.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache

Rules = tuple[tuple[str, str], ...]  # pattern of host names, region; the first match counts


@lru_cache(maxsize=64)
def regions_of(rules: Rules) -> tuple[str, ...]:
    """Return the regions, in order."""
    return tuple(sorted({region for _, region in rules}))


def region_of_host(host: str, rules: Rules) -> str:
    """Return the region of a host, which may have a port; empty if it has none."""
    name = host.rpartition(":")[0] or host if not host.endswith("]") else host
    return next((region for pattern, region in rules if fnmatchcase(name, pattern)), "")


def region_of_shard(shard: int, rules: Rules) -> str:
    """Return the region of a shard."""
    turns = ("", *regions_of(rules))
    return turns[shard % len(turns)]


def place(number: int, shards: int, region: str, rules: Rules) -> int:
    """Return the shard of a region for a number, which is a hash."""
    turns = ("", *regions_of(rules))
    first = turns.index(region)
    return first + len(turns) * (number % len(range(first, shards, len(turns))))
