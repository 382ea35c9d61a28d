"""Real mounts on one machine: a folder, and how each of several machines sees it.

    with Sshfs(tmp_path, machines=3) as mount:
        with mount.beside_web():
            server = serve(web, (mount.web_host, 0), ...)
        Popen(mount.command(1, ["ls", str(mount.at(1))]))

A kind of mount is a subclass of `Mount`, and a line in tests/lab/machines/kinds.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Self

from lab.machines.network import Network, missing, no_fuse, no_namespaces, run, until

# What we start ends with the test run, even when that is killed.
TIED = ["setpriv", "--pdeathsig", "KILL"]


class Mount(ABC):
    """One folder (`real`, where a test looks at the truth) and the views that machines 0, 1, ... have of it.

    Use it as a context manager: it is mounted on entry, and on exit nothing of it is left. `folder` is where it keeps
    what it needs.
    """

    can_freeze = True  # whether there is a file server that can be stopped
    hangs = True  # whether the mount waits for a server that does not answer; otherwise it fails, and nobody can start
    shows_processes = True  # whether what runs on a machine is seen in /proc here
    web_host = "127.0.0.1"  # where machines reach the web, and where it must listen

    def __init__(self, folder: Path, machines: int = 3) -> None:
        self.folder, self.machines = folder, machines
        self.real = folder / "real"
        self.stack = ExitStack()  # what is closed on exit, in reverse order

    @classmethod
    def skip_reason(cls) -> str | None:
        """Why this kind cannot be mounted here, in a sentence; None when it can."""
        return None

    def __enter__(self) -> Self:
        self.real.mkdir(parents=True, exist_ok=True)
        try:
            self.up()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *what: object) -> None:
        self.stack.close()

    @abstractmethod
    def up(self) -> None:
        """Mount; each thing that must be undone is pushed on `self.stack` when it is there."""

    @abstractmethod
    def at(self, machine: int) -> Path:
        """The folder as this machine sees it."""

    def command(self, machine: int, argv: Sequence[str]) -> list[str]:
        """A command that runs on this machine, in the place of `argv`."""
        return [*argv]

    def beside_web(self) -> AbstractContextManager[None]:
        """Meanwhile this thread is where the web is served: open its listening socket in here."""
        return nullcontext()

    def servers(self) -> list[int]:
        """The processes of the file server."""
        return []

    def freeze(self) -> None:
        """Stop the file server: what machines ask of the mount hangs until `thaw`."""
        assert self.can_freeze
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the file server go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.servers():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    # ---- for kinds

    def start(self, argv: Sequence[str], log: str) -> subprocess.Popen[bytes]:
        """Start a process that is ended on exit; what it says is in `folder`/`log`."""
        with (self.folder / log).open("ab") as file:
            process = subprocess.Popen([*TIED, *argv], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.stack.callback(process.wait, 60)
        self.stack.callback(process.kill)
        return process

    def mounted(self, point: Path, process: subprocess.Popen[bytes], log: str) -> Path:
        """Wait until something is mounted here, which is unmounted on exit."""

        def there() -> bool:
            assert process.poll() is None, f"no mount: {(self.folder / log).read_text()}"
            return point.is_mount()

        until(there, what=f"the mount at {point}")
        self.stack.callback(subprocess.run, ["umount", "-l", str(point)], capture_output=True, check=False)
        return point


class Local(Mount):
    """The folder itself: all machines on one disk."""

    can_freeze = False

    def up(self) -> None:
        """Nothing to do."""

    def at(self, machine: int) -> Path:
        """The folder itself."""
        return self.real


class Bindfs(Mount):
    """A bindfs for each machine, whose kernel believes for 20 s what it last heard: stale caches, no network."""

    caches = "attr_timeout=20,entry_timeout=20,negative_timeout=20"

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs bindfs and FUSE."""
        return missing("bindfs", "setpriv") or no_fuse()

    def up(self) -> None:
        """Mount the folder once for each machine."""
        self._servers = [self._mount(machine) for machine in range(self.machines)]
        self.stack.callback(self.thaw)  # first of all: nothing can be unmounted while it is frozen

    def _mount(self, machine: int) -> subprocess.Popen[bytes]:
        point = self.at(machine)
        point.mkdir()
        log = f"bindfs-{machine}.log"
        process = self.start(["bindfs", "-f", "-o", self.caches, str(self.real), str(point)], log)
        self.mounted(point, process, log)
        return process

    def at(self, machine: int) -> Path:
        """This machine's mount."""
        return self.folder / f"bindfs-{machine}"

    def servers(self) -> list[int]:
        """All bindfs processes."""
        return [process.pid for process in self._servers if process.poll() is None]


class Networked(Mount):
    """A file server, the web and each machine in a network namespace of its own."""

    def join_network(self, *more: str) -> None:
        """Make the network, with `more` namespaces that a file server needs."""
        roles = [f"m{machine}" for machine in range(self.machines)]
        self.network = self.stack.enter_context(Network("server", "web", *more, *roles))
        self.web_host = self.network.address("web")

    def command(self, machine: int, argv: Sequence[str]) -> list[str]:
        """In the machine's network namespace."""
        return self.network.command(f"m{machine}", argv)

    def beside_web(self) -> AbstractContextManager[None]:
        """In the web's network namespace."""
        return self.network.inside("web")

    def servers(self) -> list[int]:
        """All processes of the file server."""
        return self.network.pids("server")


class Sshfs(Networked):
    """An sshd on one machine, the web on another, and machines with an sshfs each: defaults, so caches of 20 s."""

    options = ""
    port = 2222  # where machines reach it; sshd itself is at 2222

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs sshfs, sshd, FUSE and network namespaces."""
        return missing("sshfs", "sshd", "ssh-keygen", "ip", "nsenter", "setpriv") or no_fuse() or no_namespaces()

    def up(self) -> None:
        """Make the network, start sshd, mount on each machine."""
        self.join_network()
        self._configure()
        self.start_server()
        for machine in range(self.machines):
            self._mount(machine)
        self.stack.callback(self.thaw)

    def start_server(self) -> None:
        """Start sshd and wait until it answers."""
        sshd = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd.conf")]
        self.start(self.network.command("server", sshd), "sshd.log")
        until(lambda: "listening on" in (self.folder / "sshd.log").read_text(), what="sshd")

    def at(self, machine: int) -> Path:
        """This machine's mount."""
        return self.folder / f"sshfs-{machine}"

    def _configure(self) -> None:
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd insists on it
        for key in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / f"{key}.key"))
        (self.folder / "sshd.conf").write_text(
            f"Port 2222\nListenAddress {self.network.address('server')}\nHostKey {self.folder}/host.key\n"
            f"AuthorizedKeysFile {self.folder}/user.key.pub\nPidFile none\nPermitRootLogin prohibit-password\n"
            "PasswordAuthentication no\nUsePAM no\nStrictModes no\nMaxStartups 100\nSubsystem sftp internal-sftp\n"
        )

    def _mount(self, machine: int) -> None:
        point = self.at(machine)
        point.mkdir()
        ssh = (
            f"IdentityFile={self.folder}/user.key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,LogLevel=ERROR"
        )
        whole = f"root@{self.network.address('server')}:{self.real}"
        argv = ["sshfs", "-f", "-p", str(self.port), "-o", ssh + self.options, whole, str(point)]
        log = f"sshfs-{machine}.log"
        self.mounted(point, self.start(self.command(machine, argv), log), log)


class SshfsKilled(Sshfs):
    """sshfs that reconnects: `freeze` kills the server, `thaw` starts it again; meanwhile the mount fails."""

    hangs = False
    options = ",reconnect,ServerAliveInterval=2,ServerAliveCountMax=2"

    def freeze(self) -> None:
        """Kill the server."""
        self._signal(signal.SIGKILL)

    def thaw(self) -> None:
        """Start it again if it is not there."""
        if not self.servers():
            (self.folder / "sshd.log").write_text("")
            self.start_server()
