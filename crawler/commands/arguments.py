"""Flags and arguments that several commands share, and their checks."""

from __future__ import annotations

import os
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from crawler.errors import UsageError
from crawler.settings import values
from crawler.web import urls

Value = TypeVar("Value")


class Add(Protocol):
    """How a module adds a command to the program."""

    def __call__(self, name: str, call: Callable[[Namespace], int], example: str, store: bool = True) -> ArgumentParser:
        """Return the parser of a command, which has STORE as its first argument unless `store` is false."""


def flag(check: Callable[[Any], Value]) -> Callable[[str], Value]:
    """Return a type for argparse that checks a flag as a setting is checked, with the same message."""

    def read(given: str) -> Value:
        try:
            return check(given)
        except ValueError as error:
            raise ArgumentTypeError(f"{given!r} {error}") from error

    return read


WHOLE = flag(values.whole(1, 1024))
DURATION = flag(values.duration)
SOME_TIME = flag(values.some_time)
# The cores that this process may use: a container, or a job of a cluster, may have few of the computer's.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
WORKERS: Any = {"type": WHOLE, "default": CORES, "metavar": "N", "help": "processes (default: cores)"}

# flag, setting, how argparse reads it
SETTING_FLAGS: tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...] = (
    (("-d", "--depth"), "depth", {"metavar": "N"}),
    (("-w", "--delay"), "delay", {"metavar": "SECONDS"}),
    (("--scope",), "scope", {"metavar": "page|prefix|host|domain|any"}),
    (("--include",), "include", {"metavar": "RE", "action": "append"}),
    (("--exclude",), "exclude", {"metavar": "RE", "action": "append"}),
    (("--follow-match",), "follow_match", {"metavar": "RE", "action": "append"}),
    (("--order",), "order", {"metavar": "bfs|dfs"}),
    (("--max-pages",), "max_pages", {"metavar": "PAGES"}),
    (("--max-per-host",), "max_per_host", {"metavar": "PAGES"}),
    (("-U", "--user-agent"), "user_agent", {"metavar": "TEXT"}),
    (("-T", "--timeout"), "timeout", {"metavar": "SECONDS"}),
    (("--max-size",), "max_size", {"metavar": "SIZE"}),
    (("-H", "--header"), "headers", {"metavar": "LINE", "action": "append"}),
    (("--no-robots",), "robots", {"action": "store_false", "default": None}),
    (("--shards",), "shards", {"metavar": "N"}),
    (("--recrawl",), "recrawl", {"metavar": "TIME|adaptive"}),
)


def check_root(root: Path, command: str, others: Sequence[str] = ()) -> None:
    """Raise UsageError if a URL stands in the place of the store, which may be one of the other arguments."""
    if str(root).startswith(("http:/", "https:/")):
        url = hidden(str(root).replace(":/", "://", 1))
        url += "/" if url.count("/") == 2 else ""  # a path has no slash at its end
        folder = next((hidden(it) for it in others if "://" not in it), None)
        if folder:
            raise UsageError(f"the folder comes first: {shlex.join(['crawler', command, folder, url])}")
        raise UsageError(f"the store's folder is missing before the URL; write crawler {command} STORE {url}")


@contextmanager
def reading(file: str, what: str) -> Iterator[None]:
    """Raise UsageError, which asks for `what`, if a text file that the user named cannot be read."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); name {what}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8; name {what}") from None


def normalize_seed(seed: str, tracking: Sequence[str] = ()) -> str:
    """Return a URL that the user gave, normalized; UsageError if it is none."""
    normalized = urls.normalize(seed, tracking=tracking)
    if normalized is None:
        raise UsageError(f"{hidden(seed)!r} is {what_is_wrong(seed)}")
    return normalized


def what_is_wrong(url: str, scheme: str = "https") -> str:
    """Return why a URL cannot be normalized, with a suggestion if it only lacks its scheme."""
    guess = urls.normalize(f"{scheme}://{url}") if urls.lacks_scheme(url) else None
    return f"not a valid URL (no scheme); did you mean {guess}?" if guess else f"not a valid URL: {urls.why_not(url)}"


def hidden(seed: str) -> str:
    """Return what a user gave as a URL without what may be a password: whatever stands before an @ in a part of it."""
    return re.sub(r"[^\s/\\?#]+", lambda part: ("***@" if "@" in part[0] else "") + part[0].rpartition("@")[2], seed)
