"""What a worker must have before it asks hosts: a store that answers, room in it, and files that it may open."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crawler import settings as config
from crawler.fetch.request import KEPT
from crawler.settings import Settings
from crawler.store.mount import TOO_MANY, Files

STANDING = 56  # files that a worker has open whoever is asked: its own, and for moments those of a flush
PLACES = 512  # folders that are kept open at most: with more hosts than that at a time, few would be met again
MORE = 1.25  # times what is set must be free before a machine goes on: else it would go back and forth


@dataclass(slots=True)
class Want:
    """Something that must come before hosts are asked again; `kind` is one of `slate.WANTS`."""

    kind: str
    sentence: str
    is_met: Callable[[], bool]
    stuck_since: float | None = None  # since when something could not be read or written for want of it
    seen: float = field(default_factory=time.monotonic)  # when it was last found wanting


def shortage(files: Files, settings: Settings, times: float = 1.0) -> str:
    """What the store has less of than is set, as a sentence; empty if nothing is short."""
    free, inodes = files.free()
    if free < settings.min_free * times:
        left, name, until = (
            f"only {free / (1 << 20):,.1f}M are",
            "min_free",
            f"{settings.min_free * MORE / (1 << 20):,.1f}M",
        )
    elif inodes < settings.min_inodes * times:
        left, name, until = f"only {inodes:,} inodes are", "min_inodes", f"{settings.min_inodes * MORE:,.0f}"
    else:
        return ""
    return (
        f"{left} free in {files.root} ({name} is {config.show(getattr(settings, name))}); make room, and it goes on "
        f"by itself when there are {until} (to go on with less, lower {name} in crawl.yaml)"
    )


def files_for(threads: int) -> int:
    """How many files visitors may open at once: their sockets, and what curl and the resolver take for a while."""
    return 3 * threads + 8


def places_for(threads: int) -> int:
    """How many folders a worker may keep open: half of the files that nobody else needs."""
    return min(_spare(threads) // 2, PLACES)


def connections_for(threads: int) -> int:
    """How many connections a worker may keep open: the other half, and one in any case."""
    return max(min(_spare(threads) // 2, KEPT), 1)


def _spare(threads: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - STANDING - files_for(threads), 0)


def can_open(count: int) -> bool:
    """Whether this process may open so many files more; they are opened all at once, and closed again."""
    opened: list[int] = []
    try:
        for _ in range(count):
            opened.append(os.open("/", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in TOO_MANY
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True
