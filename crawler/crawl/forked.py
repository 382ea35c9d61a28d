"""Processes for multiprocessing that are forked by the fork server: what a pool needs to start one.

multiprocessing has the same in its forkserver, which starts an interpreter of its own, and whose socket's path does not
fit into a long $TMPDIR.
"""

from __future__ import annotations

import io
import os
import pickle
import threading
from contextlib import suppress
from multiprocessing import context, popen_fork, reduction, util
from multiprocessing import sharedctypes as sharedctypes  # for the scoreboard: a worker gets it with its process object
from multiprocessing import synchronize as synchronize  # for the pool's queues: likewise
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from crawler.crawl import fork_server

_received: tuple[int, ...] = ()  # the files that this worker was given
GONE = 255  # the exit code of a worker whose fork server was killed


class Received:
    """A file that a worker was given, by its place among them: so its number travels in pickles."""

    def __init__(self, place: int) -> None:
        self._place = place

    def detach(self) -> int:
        """Return its descriptor in the worker."""
        return _received[self._place]


class Popen(popen_fork.Popen):
    """The handle of a process that the fork server has forked."""

    method = "fork server"
    DupFd = Received

    def __init__(self, process: BaseProcess) -> None:
        self._files: list[int] = []
        self._reading = threading.Lock()  # a pool's thread and the supervisor may both wait for the exit code
        super().__init__(process)

    def duplicate_for_child(self, file: int) -> int:
        """Note a file that the process needs, and return its place."""
        self._files.append(file)
        return len(self._files) - 1

    def _launch(self, process: BaseProcess) -> None:
        """Start the process; multiprocessing calls it."""
        found = fork_server.current()
        if found is None:
            raise OSError("the fork server is gone")
        data = io.BytesIO()
        context.set_spawning_popen(self)  # type: ignore[arg-type]  # it takes any Popen
        try:
            reduction.dump(process, data)
        finally:
            context.set_spawning_popen(None)
        self._server = found
        to_worker, self.sentinel = found.fork(self._files)
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        with suppress(BrokenPipeError), os.fdopen(to_worker, "wb") as file:  # it is gone: the next line tells
            file.write(data.getbuffer())
        try:
            self.pid = fork_server.read_status(self.sentinel)
        except EOFError:
            raise OSError("no process can be started; are there too many?") from None

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code; None if the process runs."""
        if self.returncode is None and wait([self.sentinel], 0 if flag == os.WNOHANG else None):
            with self._reading:
                if self.returncode is None:
                    self.returncode = self._read_exit_code()
        return self.returncode

    def _read_exit_code(self) -> int:
        try:
            return fork_server.read_status(self.sentinel)
        except (OSError, EOFError):
            self._server.end()  # it is just ending, and must not be told to fork the next
            return GONE

    def _send_signal(self, number: int) -> None:
        if self.poll() is None:  # otherwise its id may be another process's by now
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Process(BaseProcess):
    """A process that is forked from the fork server."""

    _start_method = "spawn"

    @staticmethod
    def _Popen(process: BaseProcess) -> Popen:
        return Popen(process)


class Context(context.SpawnContext):
    """What a pool takes its process from; its locks and queues are those of new interpreters."""

    Process = Process  # type: ignore[assignment]  # it need not be started as SpawnProcess is


CONTEXT = Context()


def run(data: int, files: tuple[int, ...]) -> int:
    """Run the process object that comes through a pipe, in the worker, and return its exit code."""
    global _received
    _received = files
    with os.fdopen(data, "rb") as file:
        process = pickle.load(file)
    return int(process._bootstrap())
