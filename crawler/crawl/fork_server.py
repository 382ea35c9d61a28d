"""The fork server: a process that has loaded the code of workers, and of which they are forks.

`crawler run` forks it from itself while it has neither threads nor locks nor connections, and the fork server never has
any either: so no worker inherits a lock that nobody will release. The code that the command and the workers share is
loaded once, and the rest while the command prepares the store. It ends with the process that began it, and its workers
with it. A process that has threads, as a Python program may, begins none: its workers are new interpreters.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from crawler.crawl import tracker

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
MAX_FILES = 250  # that a worker is given; the kernel passes 253 at once
STATUS_BYTES = 8

_current: ForkServer | None = None


class ForkServer:
    """A fork server, as the process that began it sees it."""

    def __init__(self, load: Callable[[], object]) -> None:
        """Fork it; there it calls `load` before it forks workers."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # It leaves signals to us: a Ctrl-C reaches the whole group.
        parent, before = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.pid = os.fork()
            if not self.pid:
                self._channel.close()
                _be_server(parent, theirs, load)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._is_alive, self._looking = True, threading.RLock()  # a pool's thread and the supervisor may both look

    def is_alive(self) -> bool:
        """Tell whether it can fork workers."""
        with self._looking:
            if self._is_alive and select.select([self._channel], [], [], 0)[0]:  # it says nothing: this is its end
                os.waitpid(self.pid, 0)
                self._is_alive = False
            return self._is_alive

    def fork(self, files: list[int]) -> tuple[int, int]:
        """Fork a worker that is given these files.

        Returns what to write its process object to, and what tells its id first and its exit code when it has ended.
        """
        data, to_worker = os.pipe()
        status, from_server = os.pipe()
        try:
            socket.send_fds(self._channel, [b"\0"], [data, from_server, *files])
        except OSError:
            os.close(to_worker)
            os.close(status)
            raise
        finally:
            os.close(data)
            os.close(from_server)
        return to_worker, status

    def end(self) -> None:
        """End it at once, and the workers that may be left with it."""
        with self._looking:
            if self.is_alive():
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self._is_alive = False
            self._channel.close()


@contextmanager
def running(load: Callable[[], object]) -> Iterator[None]:
    """Have a fork server while this runs, from which `child` forks, if this process is still fit to be forked."""
    global _current
    with suppress(OSError):  # too many processes: workers will be new interpreters, or say why there are none
        if _is_fit():
            from crawler.crawl import forked  # noqa: F401 - here, so that no process loads what they all need again

            _flush()  # otherwise each fork would print what is not printed yet once more
            tracker.fork()  # first, or it would hold the channel of the fork server open
            _current = ForkServer(load)
    try:
        yield
    finally:
        if _current:
            _current.end()
        _current = None


def current() -> ForkServer | None:
    """Return the fork server to fork workers from, if there is one."""
    return _current if _current and _current.is_alive() else None


def set_name(name: str) -> None:
    """Give this process the name that `ps` and `top` show for it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def die_with_parent(parent: int) -> bool:
    """Have the kernel kill this process when its parent ends; False if that is not `parent` any more."""
    with suppress(OSError, AttributeError):  # not Linux: a closed channel, and checks of the parent's id, must do
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def read_status(status: int) -> int:
    """Return a number that a fork server wrote about its worker; EOFError if it has ended."""
    data = os.read(status, STATUS_BYTES)  # a pipe gives what was written at once as a whole
    if len(data) < STATUS_BYTES:
        raise EOFError
    return int.from_bytes(data, "little", signed=True)


def _write_status(status: int, number: int) -> None:
    with suppress(BrokenPipeError):  # nobody wants to know any more
        os.write(status, number.to_bytes(STATUS_BYTES, "little", signed=True))


def _is_fit() -> bool:
    """Tell whether this process may be forked: it has no other threads, and the system's libraries bear it."""
    return sys.platform == "linux" and threading.active_count() == 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed
            stream.flush()


def _be_server(parent: int, channel: socket.socket, load: Callable[[], object]) -> None:
    """Live as a fork server until the parent's end of the channel is closed; does not return."""
    try:
        if die_with_parent(parent):
            set_name("crawl-fork")
            gc.disable()  # while code is loaded, as in `__main__`
            with suppress(Exception):  # a worker that lacks something says so
                load()
            gc.freeze()  # a collection in a worker would copy the memory of all that is loaded
            gc.enable()
            _Forks(channel).serve()
    except BaseException:  # noqa: BLE001 - the stack below is the parent's: nothing may return to it
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(0)


class _Forks:
    """The workers of a fork server, as it sees them."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._status: dict[int, int] = {}  # worker -> where its exit code is written
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # so that the next line is told of it
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork workers and pass on their exit codes, until nobody can ask for more."""
        while True:
            ready, _, _ = select.select([self._channel.fileno(), self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._pass_on_exits()
            if self._channel.fileno() in ready:
                _, files, _, _ = socket.recv_fds(self._channel, 1, MAX_FILES)
                if not files:
                    return
                self._fork(*files)

    def _pass_on_exits(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = self._status.pop(ended[0])
                _write_status(status, os.waitstatus_to_exitcode(ended[1]))
                os.close(status)

    def _fork(self, data: int, status: int, *files: int) -> None:
        given = [data, *files]
        try:
            pid = os.fork()
        except OSError:  # too many processes, and who reads an end of the file instead of an id knows it
            given.append(status)
        else:
            if not pid:
                self._leave(status)
                _be_worker(data, files)
            _write_status(status, pid)
            self._status[pid] = status
        for file in given:
            os.close(file)

    def _leave(self, status: int) -> None:
        """Undo in a worker what makes a fork server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._channel.close()
        for file in (self._woken, self._wake, status, *self._status.values()):
            os.close(file)


def _be_worker(data: int, files: tuple[int, ...]) -> None:
    """Run the process object that comes through a pipe; does not return."""
    code = 1
    try:
        from crawler.crawl import forked  # here: it imports this module

        code = forked.run(data, files)
    except BaseException:  # noqa: BLE001 - as above
        sys.excepthook(*sys.exc_info())
    finally:
        _flush()
        os._exit(code)
