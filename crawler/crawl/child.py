"""Child processes that do not outlive their parent: a pool of one each, because one dead process breaks its pool."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from crawler import errors

# Forking a process that has threads or TLS is unsafe: children are forked from a server process that has neither.
CONTEXT = multiprocessing.get_context("forkserver")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
SERVER = "crawler.crawl.server_process"
CONTEXT.set_forkserver_preload([SERVER])

Given = ParamSpec("Given")
Result = TypeVar("Result")


def preload(*modules: str) -> None:
    """Have the server process import these modules, so that no child needs to; before the first child starts."""
    CONTEXT.set_forkserver_preload([SERVER, *modules])


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    with suppress(OSError, AttributeError):  # not Linux: `is_orphan` must do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def is_orphan() -> bool:
    """Tell whether the program that started this child is gone, and the kernel has not killed us."""
    program = multiprocessing.parent_process()
    return program is not None and not program.is_alive()


def make_pool(prepare: Callable[..., None], *args: Any) -> ProcessPoolExecutor:
    """Return a pool of one process, in which `prepare(*args)` runs first."""
    return ProcessPoolExecutor(1, mp_context=CONTEXT, initializer=_begin, initargs=(prepare, args))


def submit(
    pool: ProcessPoolExecutor, call: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Future[Result]:
    """Have the pool's process make a call; it is started if there is none yet."""
    # A Ctrl-C reaches the whole group and would kill a child that is still starting: it starts with signals blocked,
    # and so does the server process, for good.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return pool.submit(call, *args, **kwargs)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _begin(prepare: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Have this process die with the server process, which ends with the program, and leave signals to the program."""
    die_with_parent()
    if is_orphan():
        os._exit(errors.STOPPED)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    prepare(*args)
