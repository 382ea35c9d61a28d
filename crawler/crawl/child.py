"""Child processes that do not outlive their parent: a pool of one each, because one dead process breaks its pool."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any, ParamSpec, TypeVar

from crawler import errors
from crawler.crawl import fork_server, tracker

CONTEXT = multiprocessing.get_context("spawn")  # forking a process that has threads or TLS is unsafe

SIGNALS = fork_server.SIGNALS

Given = ParamSpec("Given")
Result = TypeVar("Result")


def make_pool(prepare: Callable[..., None], *args: Any) -> ProcessPoolExecutor:
    """Return a pool of one process, in which `prepare(*args)` runs first; the fork server forks it, if there is one."""
    tracker.start()
    if found := fork_server.current():
        from crawler.crawl import forked  # here: a module of multiprocessing that it needs is not on every system

        return ProcessPoolExecutor(
            1, mp_context=forked.CONTEXT, initializer=_begin, initargs=(found.pid, prepare, args)
        )
    return ProcessPoolExecutor(1, mp_context=CONTEXT, initializer=_begin, initargs=(os.getpid(), prepare, args))


def submit(
    pool: ProcessPoolExecutor, call: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Future[Result]:
    """Have the pool's process make a call; it is started if there is none yet."""
    # A Ctrl-C reaches the whole group and would kill a child that is still starting: it starts with signals blocked.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with _without_main():
            return pool.submit(call, *args, **kwargs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep a new process from running the user's script again, as multiprocessing would: it needs nothing of it.

    So a script without `if __name__ == "__main__":` starts no second crawl, and one on standard input works.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def on_signals(call: Callable[[int, FrameType | None], object]) -> None:
    """Have Ctrl-C and SIGTERM make a call; in a thread of a Python program they are left as they are."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, call)


def _begin(parent: int, prepare: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Have this process die with its parent and leave signals to it."""
    if not fork_server.die_with_parent(parent):
        os._exit(errors.STOPPED)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    prepare(*args)
