"""`from crawler import Crawl`: `crawler run` for Python programs, with its flags and the settings as keywords."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawler.commands import run as command
from crawler.commands.main import parsers, read
from crawler.commands.run import Result
from crawler.crawl import child, handler
from crawler.crawl.logs import log
from crawler.errors import UsageError, did_you_mean
from crawler.fetch.request import is_secret
from crawler.settings import settings as config
from crawler.store.store import Page

__all__ = ["Crawl", "Result"]

WHERE = "Crawl()"  # where a wrong value was given, in the words of an error
NOT_KEYWORDS = {"help", "store", "urls", "set"}  # arguments of the command that have a name of their own here, or none


class Crawl:
    """A crawl that a Python program runs: the same machine, store and settings as `crawler run`.

    Keywords are the settings of crawl.yaml (`scope`, `max_pages` ...) and the flags of `crawler run` with underscores
    (`workers`, `concurrency`, `quiet`, `time_limit`, `connect_to` ...). What is wrong raises an error of
    `crawler.errors`, here or in `run`.
    """

    def __init__(self, store: str | os.PathLike[str], seeds: str | Sequence[str] = (), **keywords: Any) -> None:
        self._options = read(["run", "store"])
        self._options.store = Path(store)
        self._options.urls = _texts("seeds", seeds)
        self._settings: dict[str, Any] = {}
        flags = _flags()
        for name, value in keywords.items():
            if name in flags and not (name == "cookies" and isinstance(value, bool)):  # a file, or the setting
                if value is not None:
                    setattr(self._options, name, _flag_value(flags[name], value))
            else:
                self._set(name, value, flags)
        if self._options.config:
            self._settings = command.given_settings(self._options) | self._settings

    def __repr__(self) -> str:
        return f"Crawl({str(self._options.store)!r})"

    def run(self, on_page: Callable[[Page], object] | None = None) -> Result:
        """Crawl until it is over, a limit is reached or somebody stops it, and return what `crawler run` would tell.

        `on_page(page)` is called in the workers for each page before its record is written. It must be a function
        that they can import. In the main thread, Ctrl-C and SIGTERM end the run cleanly while it lasts.
        """
        if handler.is_loading():
            raise UsageError(handler.GUARD)
        found = None if on_page is None else handler.describe(on_page)
        if found:
            found.check()
        with _as_before():
            return command.crawl(self._options, self._settings, found)

    def _set(self, name: str, value: Any, flags: dict[str, argparse.Action]) -> None:
        if name not in config.CHECKS:
            hint = did_you_mean(name, [*config.CHECKS, *flags], "`crawler help python` lists them")
            raise UsageError(f"{WHERE} has no keyword {name!r}; {hint}")
        if isinstance(value, tuple | set | frozenset):
            value = list(value)
        if name == "headers":  # secret ones are not for the store
            self._options.set_headers = _texts(name, value)
            value = [line for line in self._options.set_headers if not is_secret(line)]
            if not value:
                return
        self._settings[name] = config.check_one(name, value, WHERE)


def _flags() -> dict[str, argparse.Action]:
    """Return the flags of `crawler run` that are keywords, by name; those for settings are not among them."""
    actions = parsers(["run"])["run"]._actions
    return {it.dest: it for it in actions if it.dest not in NOT_KEYWORDS and not it.dest.startswith("set_")}


def _flag_value(flag: argparse.Action, value: Any) -> Any:
    """Return a keyword's value as the command would have it; UsageError if it is wrong."""
    if isinstance(flag.const, bool):  # --quiet and the like
        return _of_type(flag.dest, bool, value)
    if flag.nargs == 0:  # --verbose, which is counted
        return int(_of_type(flag.dest, int, value))
    if isinstance(flag.default, list):
        return _texts(flag.dest, value)
    if flag.type is None:
        return _of_type(flag.dest, str, os.fspath(value) if isinstance(value, os.PathLike) else value)
    try:
        return flag.type(value)  # type: ignore[operator]
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{WHERE}: {flag.dest}: {error}") from None


def _of_type(name: str, wanted: type, value: Any) -> Any:
    if not isinstance(value, wanted):
        raise UsageError(f"{WHERE}: {name} must be of type {wanted.__name__}, but is {value!r}")
    return value


def _texts(name: str, given: Any) -> list[str]:
    """Return one text or several as a list."""
    texts = [given] if isinstance(given, str) else list(given)
    for text in texts:
        _of_type(name, str, text)
    return texts


@contextmanager
def _as_before() -> Iterator[None]:
    """Leave signals and logging as they were: the machine sets them up for itself."""
    in_main = threading.current_thread() is threading.main_thread()
    signals = {number: signal.getsignal(number) for number in child.SIGNALS} if in_main else {}
    handlers, level, propagate = list(log.handlers), log.level, log.propagate
    try:
        yield
    finally:
        for number, before in signals.items():
            if before is not None:  # None: not set by Python
                signal.signal(number, before)
        log.handlers[:] = handlers
        log.setLevel(level)
        log.propagate = propagate
