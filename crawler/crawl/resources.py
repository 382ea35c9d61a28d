"""What a worker needs besides a store that responds: free space in it, and file descriptors."""

from __future__ import annotations

import os
import resource
import sys

from crawler.errors import NoDescriptors
from crawler.fetch.request import KEPT
from crawler.settings.settings import Settings, show
from crawler.store.mount import Files
from crawler.store.reading import TOO_MANY

BASE_FILES = 64  # files that a worker has open besides its requests: its own, and those of a flush
MAX_OPEN_FOLDERS = 512  # folders kept open at most: with more active hosts than that, few would be used again
SPARE_FILES = 8  # with fewer to open, their lack may be what looks like another failure
RESUME_FACTOR = 1.25  # this much more than the minimum must be free before a paused machine resumes


def shortage(files: Files, settings: Settings, times: float = 1.0) -> str:
    """Return what the store has less of than `min_free` or `min_inodes` says; empty if there is enough."""
    free, inodes = files.free()
    if free < settings.min_free * times:
        return _told(files, settings, "min_free", f"{_megabytes(free)} free")
    if inodes < settings.min_inodes * times:
        return _told(files, settings, "min_inodes", f"{inodes:,} inodes free")
    return ""


def _told(files: Files, settings: Settings, name: str, left: str) -> str:
    """Return what is short, when the crawl resumes, and what to do; on a disk that is too small it never can."""
    least, (size, inodes) = getattr(settings, name), files.capacity()
    needed = least * RESUME_FACTOR
    in_all, at = (size, _megabytes(needed)) if name == "min_free" else (inodes, f"{needed:,.0f}")
    start = f"only {left} in {files.root} ({name} is {show(least)}); waiting for space"
    if in_all < needed:
        total = _megabytes(in_all) if name == "min_free" else f"{in_all:,} inodes"
        return (
            f"{start}, but the whole disk has {total}, and never the {at} that are needed to resume: "
            f"lower {name} in crawl.yaml, or use a larger disk"
        )
    return f"{start}: resumes at {at} (to resume with less, lower {name} in crawl.yaml)"


def _megabytes(count: float) -> str:
    return f"{count / (1 << 20):,.1f}M"


def files_for(concurrency: int) -> int:
    """Return how many files concurrent requests may open: two sockets each while IPv4 and IPv6 are tried together."""
    return 2 * concurrency + 16


def concurrency_for(files: int) -> int:
    """Return how many requests a process may have open that may open so many files."""
    return (files - BASE_FILES - files_for(0)) // 2


def folders_for(concurrency: int) -> int:
    """Return how many folders a worker may keep open: half of the spare file descriptors."""
    return min(_spare(concurrency) // 2, MAX_OPEN_FOLDERS)


def connections_for(concurrency: int) -> int:
    """Return how many idle connections a worker may keep open: the other half, but at least one."""
    return max(min(_spare(concurrency) // 2, KEPT), 1)


def _spare(concurrency: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else max(soft - BASE_FILES - files_for(concurrency), 0)


def check_spare_files() -> None:
    """Raise NoDescriptors if hardly a file can be opened: then a failure is not the fault of a page or its host."""
    if not can_open(SPARE_FILES):
        raise NoDescriptors("too many open files to send requests")


def can_open(count: int) -> bool:
    """Whether this process can open this many more files; tries it, and closes them again."""
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
