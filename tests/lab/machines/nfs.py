"""NFS of the real kernel, server and clients: each machine is a guest, a Linux kernel that runs as a process.

The guests (user-mode Linux) have the host's file system as their root, so Python and this program are there.
They are slow in absolute terms: use them for what NFS does, not for how fast it is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lab.machines.mounts import TIED, Mount
from lab.machines.network import Network, missing, no_fuse, no_namespaces, run

HERE = Path(__file__).parent / "uml"
PACKAGES = "user-mode-linux nfs-common nfs-kernel-server rpcbind kmod sshfs openssh-server iproute2"
PROGRAMS = (
    "linux.uml rpc.nfsd exportfs rpc.mountd rpc.statd mount.nfs rpcbind modprobe sshfs sshd ssh-keygen ip nsenter"
)
EXPORT = "/run/export"  # in the server's memory
# A guest's kernel is the first of its processes: all of them end with it.
ALONE = ["unshare", "--pid", "--fork", "--kill-child"]


class Nfs4(Mount):
    """NFS 4.2, with the client's defaults; `real` is the server's folder, seen by sshfs without caches."""

    shows_processes = False
    source = "/"
    options = "vers=4.2"

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs the guests' kernel and programs, FUSE, and network namespaces with taps."""
        absent = missing(*PROGRAMS.split(), "setpriv", "unshare")
        hint = f"{absent} (Debian's packages: {PACKAGES})" if absent else None
        if " " in f"{HERE}{sys.executable}":
            hint = "its kernel takes no path with a space, and this clone's has one"
        return hint or no_fuse() or no_namespaces() or (None if Path("/dev/net/tun").exists() else "no /dev/net/tun")

    def up(self) -> None:
        """Boot the guests and mount in each."""
        self.network = self.stack.enter_context(Network("web", "looker"))
        self.web_host = self.network.address("web")
        self._configure()
        self._server = self._boot("server", 100)
        for machine in range(self.machines):
            self.at(machine).mkdir()
            self._boot("client", 101 + machine)
        self._look()
        whole = f"{address(100)}:{self.source}"
        for machine in range(self.machines):
            self._in_guest(101 + machine, "mount", "-t", "nfs", "-o", self.options, whole, str(self.at(machine)))
        self.stack.callback(self.thaw)  # first of all: nothing can be unmounted while it is frozen

    def at(self, machine: int) -> Path:
        """The mount of this machine; on the host there is an empty folder in its place."""
        return self.folder / f"nfs-{machine}"

    def command(self, machine: int, argv: Sequence[str]) -> list[str]:
        """In the machine's guest."""
        return self._command(101 + machine, argv)

    def beside_web(self) -> AbstractContextManager[None]:
        """In the web's network namespace."""
        return self.network.inside("web")

    def servers(self) -> list[int]:
        """The kernel of the server, which is the child of what started it."""
        pid = self._server.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    # ---- the guests

    def _configure(self) -> None:
        for key in ("host", "user"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / f"{key}.key"))
        (self.folder / "sshd.conf").write_text(
            f"Port 2222\nHostKey {self.folder}/host.key\nAuthorizedKeysFile {self.folder}/user.key.pub\nPidFile none\n"
            "PermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n"
            "Subsystem sftp internal-sftp\n"
        )

    def _boot(self, role: str, number: int) -> subprocess.Popen[bytes]:
        """Start a guest; its console is in the folder."""
        hub, tap = self.network.name("hub"), f"tap{number}"
        run("ip", "netns", "exec", hub, "ip", "tuntap", "add", "dev", tap, "mode", "tap")
        run("ip", "-n", hub, "link", "set", tap, "master", "bridge", "up")
        kernel = f"""
            linux.uml umid=guest uml_dir={self.folder}/uml-{number}/ mem=512M
            root=/dev/root rootfstype=hostfs rootflags=/ ro init={HERE}/init.sh con=null con0=null,fd:1 ssl=null quiet
            vec0:transport=tap,ifname={tap},depth=128,gro=1,mac=02:00:00:00:00:{number - 100:02x}
            GUEST_ROLE={role} GUEST_ADDRESS={address(number)} GUEST_FOLDER={self.folder}
            GUEST_PYTHON={sys.executable} GUEST_AGENT={HERE}/agent.py
        """
        (self.folder / f"uml-{number}").mkdir()
        log = self.folder / f"guest-{number}.log"
        with log.open("ab") as file:
            guest = subprocess.Popen(
                self.network.command("hub", [*TIED, *ALONE, *kernel.split()]),
                env=os.environ | {"TMPDIR": "/dev/shm"},  # the guest's memory is a file there
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self.stack.callback(guest.wait, 60)
        self.stack.callback(guest.kill)
        return guest

    def _command(self, number: int, argv: Sequence[str]) -> list[str]:
        client = [sys.executable, str(HERE / "client.py"), address(number), *argv]
        return self.network.command("hub", client)

    def _in_guest(self, number: int, *argv: str) -> None:
        try:
            run(*self._command(number, argv))
        except (AssertionError, subprocess.TimeoutExpired) as error:
            console = (self.folder / f"guest-{number}.log").read_text(errors="replace")
            raise AssertionError(f"guest {number}: {error}\n{console[-2000:]}") from error

    def _look(self) -> None:
        """Show the server's folder as `real`."""
        self._in_guest(100, "test", "-d", EXPORT)  # it is up
        options = f"IdentityFile={self.folder}/user.key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null"
        options += ",LogLevel=ERROR,dir_cache=no,attr_timeout=0,entry_timeout=0,negative_timeout=0"
        argv = ["sshfs", "-f", "-p", "2222", "-o", options, f"root@{address(100)}:{EXPORT}", str(self.real)]
        self.mounted(self.real, self.start(self.network.command("looker", argv), "look.log"), "look.log")


class Nfs3(Nfs4):
    """NFS 3, with the client's defaults."""

    source = EXPORT
    options = "vers=3"


def address(number: int) -> str:
    """A guest's address."""
    return f"10.77.0.{number}"
