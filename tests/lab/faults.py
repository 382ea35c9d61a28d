"""Faults of the store's disk, one call at a time: whole crawls in simulated time over an `os` that fails when told.

What a sync that fails was to bring to the disk is overwritten with NULs, as a kernel may do it: reading it again from
memory would prove nothing.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import logging
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from crawler.commands import main
from crawler.commands import run as run_command
from crawler.crawl import process
from crawler.crawl.logs import log
from crawler.crawl.machine import Machine
from crawler.crawl.worker.ending import STOPPED
from crawler.crawl.worker.worker import Worker
from crawler.errors import CrawlerError, StoreError
from crawler.fetch.exchange import Exchange
from crawler.store import directories, local_disk, mount, reading, store, stream, sync
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter
from crawler.web.page import Failure, Fetched, Place, Saved
from lab.loops import inline
from lab.simulation import LoopHeartbeat, Simulation
from lab.workers import Web

DOORS = ("open", "close", "read", "write", "pwrite", "fsync", "rename", "unlink", "mkdir", "mknod", "stat", "fstat")
DOORS += ("listdir", "scandir", "statvfs", "syncfs")
DONE_ALL_THE_SAME = {"rename", "unlink", "mkdir", "close"}  # a reply that is lost comes after the deed
STOP_AFTER = 120.0  # simulated seconds until an operator stops a crawl that cannot go on


@dataclass
class FaultyOs:
    """`os` as the modules of the store see it: from the `first` call on, some calls fail with this error."""

    first: int = 0  # the number of the call; 0 for none
    code: int = errno.EIO
    seconds: float = 0.0  # for how long calls fail; 0.0 for this one alone
    at_once: bool = True  # whether one call syncs all
    afterwards: bool = False  # whether a rename that fails has been done
    now: Callable[[], float] = lambda: 0.0
    calls: list[str] = field(default_factory=list)
    thread: threading.Thread = field(default_factory=threading.current_thread)  # others may be left by other tests
    _since: float | None = None
    _unsynced: dict[tuple[int, int], int] = field(default_factory=dict)  # inode -> a descriptor of our own
    _from: dict[tuple[int, int], int] = field(default_factory=dict)  # inode -> where the unsynced part begins

    def __getattr__(self, name: str) -> Any:
        is_ours = name in DOORS and threading.current_thread() is self.thread
        return self._door(name) if is_ours else getattr(os, name)

    def _door(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            act = getattr(self, f"_{name}", None) or getattr(os, name)
            if not self._fails():
                return act(*args, **kwargs)
            if name in ("fsync", "syncfs"):
                self._lose(*args if name == "fsync" else ())
            elif name == "close" or (self.afterwards and name in DONE_ALL_THE_SAME):
                act(*args, **kwargs)
            raise OSError(self.code, os.strerror(self.code), *filter(lambda arg: isinstance(arg, str), args[:1]))

        return call

    def _fails(self) -> bool:
        if not self.first or len(self.calls) < self.first:
            return False
        if self._since is None:
            self._since = self.now()
            return True
        return self.now() < self._since + self.seconds

    @property
    def has_failed(self) -> bool:
        """Whether it came to that."""
        return self._since is not None

    # ---- a disk that forgets

    def _open(self, path: str, flags: int, *args: Any, **kwargs: Any) -> int:
        descriptor = os.open(path, flags, *args, **kwargs)
        if flags & os.O_CREAT:
            seen = os.fstat(descriptor)
            self._unsynced[seen.st_dev, seen.st_ino] = os.dup(descriptor)
        return descriptor

    def _pwrite(self, descriptor: int, data: bytes, at: int) -> int:
        seen = os.fstat(descriptor)
        if (seen.st_dev, seen.st_ino) not in self._unsynced:
            self._unsynced[seen.st_dev, seen.st_ino] = os.dup(descriptor)
            self._from[seen.st_dev, seen.st_ino] = at
        return os.pwrite(descriptor, data, at)

    def _fsync(self, descriptor: int) -> None:
        seen = os.fstat(descriptor)
        ours = self._unsynced.pop((seen.st_dev, seen.st_ino), None)
        self._from.pop((seen.st_dev, seen.st_ino), None)
        if ours is not None:
            os.close(ours)

    def _syncfs(self, *_: int) -> None:
        for ours in self._unsynced.values():
            os.close(ours)
        self._unsynced.clear()
        self._from.clear()

    def _lose(self, *descriptors: int) -> None:
        """Overwrite what waits for a sync: of these files, or of all."""
        wanted = [(os.fstat(it).st_dev, os.fstat(it).st_ino) for it in descriptors]
        for inode in wanted or list(self._unsynced):
            ours = self._unsynced.pop(inode, None)
            if ours is not None:
                start = self._from.pop(inode, 0)
                os.pwrite(ours, bytes(os.fstat(ours).st_size - start), start)
                os.close(ours)

    def sync_all(self, handle: int) -> int:
        """Stand for syncfs(2)."""
        try:
            self._door("syncfs")(handle)
        except OSError as error:
            ctypes.set_errno(error.errno or errno.EIO)
            return -1
        return 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the modules of the store use it."""
        with pytest.MonkeyPatch.context() as patch:
            for module in (mount, reading, directories, sync, stream):
                patch.setattr(module, "os", self)
            patch.setattr(sync, "SYNC", self.sync_all)
            patch.setattr(sync, "one_call_syncs_all", lambda root: self.at_once)
            try:
                yield
            finally:
                self._syncfs()


HOST, OTHER = "http://a.example", "http://b.example"
HTML = {"content-type": "text/html"}


class SmallWeb:
    """A tree with a redirect, a failure, a page that fails once, files, a sitemap, and a second host."""

    pages: ClassVar = {
        f"{HOST}/": ["/1", "/moved", "/flaky", "/image", "/large", f"{OTHER}/"],
        f"{HOST}/1": ["/2", "/missing"],
        f"{HOST}/2": [],
        f"{HOST}/target": ["/leaf"],
        f"{HOST}/leaf": [],
        f"{HOST}/flaky": ["/behind"],
        f"{HOST}/behind": [],
        f"{HOST}/listed": [],
        f"{OTHER}/": ["/1"],
        f"{OTHER}/1": [],
    }
    others: ClassVar = {
        f"{HOST}/moved": Fetched(f"{HOST}/moved", 302, {"location": "/target"}),
        f"{HOST}/robots.txt": Fetched(f"{HOST}/robots.txt", 200, {}, f"Sitemap: {HOST}/sitemap.xml\n".encode()),
        f"{HOST}/sitemap.xml": Fetched(
            f"{HOST}/sitemap.xml", 200, {}, f"<urlset><url><loc>{HOST}/listed</loc></url></urlset>".encode()
        ),
    }
    files: ClassVar = {f"{HOST}/image": b"\x89PNG" * 100, f"{HOST}/large": bytes(range(256)) * 2048}
    records: ClassVar = {*pages, *files, f"{HOST}/moved", f"{HOST}/sitemap.xml#sitemap"}
    failures: ClassVar = {f"{HOST}/missing"}

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def get(
        self,
        url: str,
        keep: Callable[[Exchange], None] | None = None,
        place: Callable[[], Place] | None = None,
        **_: Any,
    ) -> Fetched | Failure:
        """Answer a request."""
        self.requested.append(url)
        if keep:
            keep(Exchange(url, b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", url.encode()))
        if url == f"{HOST}/large" and place:
            return self._saved(url, place)
        if url in self.files:
            return Fetched(url, 200, {"content-type": "image/png"}, self.files[url])
        if url == f"{HOST}/flaky" and self.requested.count(url) == 1:
            return Failure(url, "http-503")
        if url in self.pages:
            return Fetched(url, 200, HTML, self.html(url))
        return self.others.get(url) or Failure(url, "http-404")

    def _saved(self, url: str, place: Callable[[], Place]) -> Fetched:
        """A body that is saved as it comes, in two pieces."""
        body, file = self.files[url], place()
        try:
            file.write(body[:100_000])
            file.write(body[100_000:])
            file.finish()
        except StoreError:
            with suppress(StoreError):
                file.discard()
            raise
        saved = Saved(len(body), hashlib.sha224(body).hexdigest(), body[:100], file)
        return Fetched(url, 200, {"content-type": "application/pdf"}, saved=saved)

    def html(self, url: str) -> bytes:
        """The page at a URL."""
        return f"<title>{url}</title>{''.join(f'<a href={link}>x</a>' for link in self.pages[url])}".encode()


class SimulatedMachine(Machine):
    """A machine with one worker, in this process and in simulated time."""

    web: SmallWeb
    disk: FaultyOs

    def run(self) -> int:
        """Run to the end and return the exit code."""
        simulation = Simulation()
        started = simulation.clock.monotonic()
        self.disk.now = lambda: simulation.clock.monotonic() - started
        try:
            self._run_worker(simulation)
        finally:
            simulation.close()
        if self._error:
            raise self._error
        return self._exit_code()

    def _run_worker(self, simulation: Simulation) -> None:
        root = self.plan.root
        process._scoreboard = self.scoreboard
        files = Files(root, secrets.token_hex(4), self.settings.durable)
        try:
            process.retry_until_store_answers(files.share_mode)
        except CrawlerError as error:
            self._error = error
            return
        worker = Worker(
            StoreWriter(root, files),
            self.settings,
            Web(self.web.get),
            self.scoreboard,
            0,
            self.id,
            inline,
            clock=simulation.clock,
            random=Random(1),
        )
        worker.heartbeat = LoopHeartbeat(worker)  # type: ignore[assignment]
        simulation.loop.call_later(STOP_AFTER, self.scoreboard.drain)
        with local_disk.named():
            simulation.run(worker.run())
        worker.shards.local_lock.release()
        files.close()
        self._error = worker.ending.error
        self._outcomes[worker.ending.outcome or STOPPED] += 1


def crawl(root: Path, disk: FaultyOs, web: SmallWeb | None = None, flags: tuple[str, ...] = ()) -> int:
    """`crawler run` in this process, over this disk; the exit code."""
    with pytest.MonkeyPatch.context() as patch, disk.installed():
        made = type("Made", (SimulatedMachine,), {"web": web or SmallWeb(), "disk": disk})
        sleeps, really_sleep = iter(range(20)), time.sleep

        def sleep(seconds: float) -> None:
            """Nobody sleeps in simulated time, or for ever: the operator stops who waits for long."""
            if threading.current_thread() is not disk.thread:
                return really_sleep(seconds)
            if next(sleeps, None) is None and process._scoreboard:
                process._scoreboard.drain()
            return None

        patch.setattr(run_command, "Machine", made)
        patch.setattr(process, "_scoreboard", None)
        patch.setattr(process.time, "sleep", sleep)
        patch.setattr(store, "MISSING_CACHED", 0.1)
        patch.setattr(tempfile, "tempdir", str(root.parent))
        log.setLevel(logging.WARNING)
        settings = ["-s", "shards=2", "-w", "0.1", "-s", "retry_delay=1s", "-s", "min_free=0", "-s", "min_inodes=0"]
        settings += ["-s", "content_types=[html, pdf, images]"]
        return main.run(["run", str(root), f"{HOST}/", "--scope", "any", "-q", "-j", "1", "-t", "4", *settings, *flags])
