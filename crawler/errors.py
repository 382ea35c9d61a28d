"""Our exceptions. Each is one sentence for the operator and an exit code for their script."""

from __future__ import annotations

from collections.abc import Iterable

OVER, MISSING, USAGE, STOPPED, LIMIT, STORE, FULL, NOTHING, BUG = 0, 1, 2, 3, 4, 5, 6, 7, 70
FOUND = MISSING  # problems, by `crawler check`

EXIT_CODES = {
    OVER: "the crawl is over: nothing is waiting",
    MISSING: "not in the store, or `crawler check` found problems",
    USAGE: "usage: a flag, a setting or a URL is wrong; nothing was requested",
    STOPPED: "stopped with work left (Ctrl-C, SIGTERM, crawler stop); the same command resumes",
    LIMIT: "the time or page limit was reached with work left, or nothing is due within the hour; "
    "raise max_pages in crawl.yaml, or run again",
    STORE: "the store cannot be used (missing mount, no permission, another format)",
    FULL: "the disk is full; free some space, and the same command resumes",
    NOTHING: "the crawl is over, but has no page: every URL failed or was left out; `crawler status` says why",
    BUG: "a bug in the crawler, with a traceback in the log; please report it",
}


class CrawlerError(Exception):
    """An error in one sentence for the operator."""

    exit_code = BUG


class NotThere(CrawlerError):
    """The store is fine, but does not have what the operator wants."""

    exit_code = MISSING


class UsageError(CrawlerError):
    """Something the operator wrote is wrong."""

    exit_code = USAGE


class StoreError(CrawlerError):
    """The store cannot be used as it is."""

    exit_code = STORE


class StoreAway(StoreError):
    """The mount does not respond for now: wait and try again; no page is to blame."""


class NoDescriptors(StoreAway):
    """This process or machine has as many files open as it may: wait until some are closed; no page is to blame."""


class Misshapen(StoreError):
    """Something else is where a file or a folder should be: writers stop, readers skip it, `check` names it."""


class DiskFull(StoreError):
    """No space (bytes, inodes or quota) left: workers wait until there is some, commands end."""

    exit_code = FULL


class Busy(StoreError):
    """Another machine does what only one may do at a time."""


class StoppedWaiting(CrawlerError):
    """An operator's `crawler stop` came while we waited for another machine."""

    exit_code = STOPPED


def did_you_mean(given: str, known: Iterable[str], otherwise: str, quoted: bool = True) -> str:
    """Return a hint for an unknown word: the nearest of the known ones, or `otherwise` if none is near."""
    from difflib import get_close_matches  # only mistakes need it

    near = get_close_matches(given, list(known), 1, cutoff=0.7)  # 'follow' is not meant by 'foo', which has 0.67
    return f"did you mean {repr(near[0]) if quoted else near[0]}?" if near else otherwise
