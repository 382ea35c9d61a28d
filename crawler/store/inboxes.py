"""The shards' folders in frontier/. Each is made before its first batch: one listing shows that all others are empty.

A folder that was made and is gone, or has lost the mark in it, was removed or emptied by somebody. What was in it is
lost, and the crawl rehydrates.
"""

from __future__ import annotations

from collections.abc import Collection

from crawler.store.directories import leaf_of
from crawler.store.mount import Files
from crawler.store.store import shard_name

MADE = "frontier/.made"  # an empty file that is made with the store; one for each folder, made with it, begins so
WHOLE = "whole.0"  # an empty file in each folder: whoever empties the folder removes it too


def folder(shard: int) -> str:
    """Return the folder of a shard's batches."""
    return f"frontier/{shard_name(shard)}"


def mark_of(shard: int) -> str:
    """Return the mark that the folder of a shard was made."""
    return f"{MADE}-{shard_name(shard)}"


def make_folder(files: Files, shard: int) -> None:
    """Make the folder of a shard, unless it is there; also if somebody has removed all of frontier/ meanwhile.

    The mark that it was made comes last, so that nobody takes a folder that is being made for one that was emptied.
    """
    files.create(f"{folder(shard)}/{WHOLE}")
    files.create(mark_of(shard))


def shards_in(names: Collection[str]) -> tuple[set[int], set[int]]:
    """Return the shards that have a folder, and those whose folder was made, by the names in frontier/."""
    begin = f"{leaf_of(MADE)}-"
    marks = (name.removeprefix(begin) for name in names if name.startswith(begin))
    return {int(name) for name in names if name.isdecimal()}, {int(number) for number in marks if number.isdecimal()}


def made_shards(files: Files, count: int) -> list[int]:
    """Return those of so many shards that have a folder: in all others nothing waits."""
    return sorted(shard for shard in shards_in(files.names("frontier"))[0] if shard < count)


def batch_names(files: Files, shard: int) -> set[str]:
    """Return the names in a shard's folder: those of its batches, and the mark that it is whole."""
    return set(files.names(folder(shard)))
