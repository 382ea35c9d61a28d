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

CONTEXT = multiprocessing.get_context("spawn")  # forking a process that has threads or TLS is unsafe
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1

Given = ParamSpec("Given")
Result = TypeVar("Result")


def make_pool(prepare: Callable[..., None], *args: Any) -> ProcessPoolExecutor:
    """Return a pool of one process, in which `prepare(*args)` runs first."""
    initial = (os.getpid(), prepare, args)
    return ProcessPoolExecutor(1, mp_context=CONTEXT, initializer=_begin, initargs=initial)


def submit(
    pool: ProcessPoolExecutor, call: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Future[Result]:
    """Have the pool's process make a call; it is started if there is none yet."""
    # A Ctrl-C reaches the whole group and would kill a child that is still starting: it starts with signals blocked.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return pool.submit(call, *args, **kwargs)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _begin(parent: int, prepare: Callable[..., None], args: tuple[Any, ...]) -> None:
    """Have this process die with its parent and leave signals to it."""
    with suppress(OSError, AttributeError):  # not Linux: the checks of the parent's id, here and in upkeep, must do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(errors.STOPPED)
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    prepare(*args)
