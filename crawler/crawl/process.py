"""The process of a worker: what a pool's process runs. It loads nothing that only the supervisor needs."""

from __future__ import annotations

import ctypes
import gc
import importlib
import resource
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from crawler.crawl.cpu import Core
from crawler.crawl.fork_server import set_name
from crawler.crawl.logs import Logs
from crawler.crawl.scoreboard import Scoreboard
from crawler.errors import StoreAway
from crawler.fetch.trust import Trust
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter

if TYPE_CHECKING:
    from crawler.crawl.handler import Handler

# glibc's malloc: with a heap per thread a worker used half as much memory again; without a larger threshold it would
# return the memory of each page to the kernel and fetch it again for the next.
MALLOC = {-8: 2, -1: 64 << 20, -3: 8 << 20}  # M_ARENA_MAX, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
WORKER_MODULES = ("crawler.crawl.worker.worker", "crawler.fetch.fetcher", "crawler.fetch.with_curl", "filelock")
GC_THRESHOLDS = 20_000, 20, 50  # objects that live as long as a visit are many, and few of them are in cycles

_scoreboard: Scoreboard | None = None
Result = TypeVar("Result")


def init_worker(scoreboard: Scoreboard, logs: Logs) -> None:
    """Set up a pool's process as a worker."""
    global _scoreboard
    _scoreboard = scoreboard
    set_name("crawl-worker")
    with suppress(OSError, AttributeError):  # another C library
        for option, value in MALLOC.items():
            ctypes.CDLL(None).mallopt(option, value)
    gc.freeze()  # what was imported stays
    gc.set_threshold(*GC_THRESHOLDS)
    raise_limits()
    logs.begin()


def raise_limits() -> None:
    """Raise the soft limit of open files to the hard one: the soft one is for programs that use select."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not allowed on every system
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def retry_until_store_answers(call: Callable[[], Result]) -> Result:
    """Call until the store answers or the machine stops."""
    while True:
        try:
            return call()
        except StoreAway:
            if _scoreboard is None or _scoreboard.draining:
                raise
            time.sleep(0.5)


def load_workers() -> None:
    """Import what each worker needs, before it is forked."""
    for module in WORKER_MODULES:
        importlib.import_module(module)


def work(
    root: str,
    row: int,
    region: str,
    machine: str,
    settings: Settings,
    trust: Trust,
    handler: Handler | None,
) -> str:
    """Run a worker to its end and return its outcome."""
    from crawler.crawl.worker.worker import run_worker  # here: parsers load slowly, and the supervisor needs none

    assert _scoreboard is not None
    on_page = handler.load() if handler else None
    files = Files(root, secrets.token_hex(4) + (f"-{region}" if region else ""), settings.durable)
    retry_until_store_answers(files.share_mode)
    core = Core(row, machine)  # before the worker has threads, which inherit it
    return run_worker(StoreWriter(root, files), settings, _scoreboard, row, machine, core.check, trust, on_page)
