"""Network namespaces for tests with several machines: one bridge, one namespace for each machine, all of it private.

The bridge has a namespace of its own too, so no name, address or route of this machine is used, and several test runs
at a time do not meet. `Network.close` ends what still runs in the namespaces and removes them.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

CLONE_NEWNET = 0x40000000
NAMED = Path("/run/netns")  # where `ip netns add` keeps them


class Network:
    """A bridge (namespace `hub`) and machines on it, by role: Network("server", "web", "m0", "m1")."""

    def __init__(self, *roles: str) -> None:
        self.tag = f"{os.getpid():x}-{secrets.token_hex(2)}"
        self.roles = ("hub", *roles)
        self._addresses = {role: f"10.77.0.{number}" for number, role in enumerate(roles, 10)}
        self._addresses["hub"] = "10.77.0.254"

    def __enter__(self) -> Network:
        sweep()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *what: object) -> None:
        self.close()

    def name(self, role: str) -> str:
        """The namespace's name for `ip netns`."""
        return f"crawl-{self.tag}-{role}"

    def address(self, role: str) -> str:
        """Where the others reach this machine."""
        return self._addresses[role]

    def command(self, role: str, argv: Sequence[str]) -> list[str]:
        """A command that runs on this machine; it sees all mounts, which under `ip netns exec` it would not."""
        return ["nsenter", f"--net={NAMED / self.name(role)}", *argv]

    def pids(self, role: str) -> list[int]:
        """The processes that run on this machine."""
        return pids_in(self.name(role))

    @contextmanager
    def inside(self, role: str) -> Iterator[None]:
        """This thread is on that machine meanwhile: sockets that it opens and processes that it starts stay there."""
        with Path("/proc/thread-self/ns/net").open() as home, (NAMED / self.name(role)).open() as away:
            set_namespace(away.fileno())
            try:
                yield
            finally:
                set_namespace(home.fileno())

    def close(self) -> None:
        """End what still runs in the namespaces, and remove them."""
        for role in reversed(self.roles):
            remove(self.name(role))

    def _build(self) -> None:
        hub = self.name("hub")
        for role in self.roles:
            run("ip", "netns", "add", self.name(role))
            run("ip", "-n", self.name(role), "link", "set", "lo", "up")
        run("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", hub, "addr", "add", f"{self.address('hub')}/24", "dev", "bridge")
        run("ip", "-n", hub, "link", "set", "bridge", "up")
        for role in self.roles[1:]:
            here = self.name(role)
            ends = f"link add to-{role} netns {hub} type veth peer name eth0 netns {here}"
            run("ip", *ends.split())
            run("ip", "-n", hub, "link", "set", f"to-{role}", "master", "bridge", "up")
            run("ip", "-n", here, "addr", "add", f"{self.address(role)}/24", "dev", "eth0")
            run("ip", "-n", here, "link", "set", "eth0", "up")


def pids_in(name: str) -> list[int]:
    """The processes in a namespace."""
    done = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def remove(name: str) -> None:
    """End what runs in a namespace, and remove it."""
    for pid in pids_in(name):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def sweep() -> None:
    """Remove the namespaces of test runs that were killed: their names say which process made them."""
    for path in NAMED.glob("crawl-*-*-*"):
        with suppress(ValueError):
            if not Path(f"/proc/{int(path.name.split('-')[1], 16)}").exists():
                remove(path.name)


def set_namespace(number: int) -> None:
    """setns(2), which Python has only from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(number, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def run(*argv: str) -> str:
    """Run a command that must succeed; its output is in the error when it does not."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: exit code {done.returncode}: {done.stdout}"
    return done.stdout


def until(happened: object, seconds: float = 60, what: str = "it") -> None:
    """Wait until a call returns something true."""
    limit = time.monotonic() + seconds
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < limit, f"{what} did not happen within {seconds:.0f} s"
        time.sleep(0.05)


def missing(*programs: str) -> str | None:
    """Why something cannot be run here: a sentence, or None when all that it needs is there."""
    absent = [
        program for program in programs if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    ]
    if os.geteuid() != 0:
        return "mounts and network namespaces need root"
    return f"not installed: {', '.join(absent)}" if absent else None


def no_fuse() -> str | None:
    """Why FUSE cannot be used here, or None."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse cannot be used: {error.strerror}"
    return None


def no_namespaces() -> str | None:
    """Why network namespaces cannot be made here, or None."""
    try:
        with Network("a"):
            return None
    except (AssertionError, OSError) as error:
        return f"network namespaces cannot be made: {error}"
