"""CephFS: one daemon of each kind, the objects in memory, and a FUSE client for each machine, in network namespaces.

Debian 12's ceph-fuse (16.2) may hang for good when several machines want one name: it waits in the kernel to drop a
name from a folder that a look-up holds, which it does not answer meanwhile. So this kind is for those who ask for it.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from pathlib import Path

from lab.machines.mounts import Networked
from lab.machines.network import missing, no_fuse, no_namespaces, run, until

CONFIG = """\
[global]
fsid = {fsid}
mon host = [v2:{address}:3300/0,v1:{address}:6789/0]
mon initial members = a
public network = 10.77.0.0/24
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 4294967296
mon allow pool size one = true
mon data avail crit = 1
mon data = {folder}/mon
mgr data = {folder}/mgr
osd data = {folder}/osd
mds data = {folder}/mds
keyring = {folder}/keyring
run dir = {folder}
log file = {folder}/$name.$pid.log
admin socket = {folder}/$name.$pid.asok
"""
DAEMONS = ("mon", "mgr", "osd", "mds")


class Ceph(Networked):
    """The client's defaults on each machine; `real` is a client on the server's own machine."""

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs Debian's packages of Ceph, FUSE and network namespaces."""
        absent = missing("ceph", "ceph-fuse", *(f"ceph-{kind}" for kind in DAEMONS), "nsenter", "ip", "setpriv")
        packages = "ceph-mon ceph-mgr ceph-osd ceph-mds ceph-fuse iproute2"
        return (f"{absent} (Debian's packages: {packages})" if absent else None) or no_fuse() or no_namespaces()

    def up(self) -> None:
        """Start the daemons, make the file system, mount it on each machine."""
        self.join_network("looker")
        self._configure()
        self._start_daemons()
        self._make_file_system()
        self._mount("looker", self.real)
        for machine in range(self.machines):
            self.at(machine).mkdir()
            self._mount(f"m{machine}", self.at(machine))
        until(lambda: os.statvfs(self.real).f_bavail, what="the manager's word of how much room there is")
        self.stack.callback(self.thaw)  # first of all: nothing can be unmounted while it is frozen

    def at(self, machine: int) -> Path:
        """This machine's mount."""
        return self.folder / f"ceph-{machine}"

    def _configure(self) -> None:
        fsid, address = str(uuid.uuid4()), self.network.address("server")
        for name in DAEMONS:
            (self.folder / name).mkdir()
        (self.folder / "ceph.conf").write_text(CONFIG.format(fsid=fsid, address=address, folder=self.folder))
        (self.folder / "keyring").touch()
        monitors = f"{self.folder}/monmap"
        whole = f"[v2:{address}:3300,v1:{address}:6789]"
        run("monmaptool", "--create", "--addv", "a", whole, "--fsid", fsid, monitors)
        self._run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors)

    def _start_daemons(self) -> None:
        self._start("mon", "a")
        until(lambda: self._ask("mon", "stat").returncode == 0, what="the monitor")
        self._start("mgr", "x")
        disk = str(uuid.uuid4())
        self._do("osd", "new", disk)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._start("osd", "0")
        self._start("mds", "a")

    def _make_file_system(self) -> None:
        for pool in ("metadata", "data"):
            self._do("osd", "pool", "create", pool, "16")
        self._do("fs", "new", "crawl", "metadata", "data")
        until(lambda: "up:active" in self._do("mds", "stat"), what="the metadata server")

    def _start(self, kind: str, name: str) -> None:
        argv = [f"ceph-{kind}", "-f", "-i", name, "-c", f"{self.folder}/ceph.conf"]
        self.start(self.network.command("server", argv), f"ceph-{kind}.log")

    def _mount(self, role: str, point: Path) -> None:
        log = f"ceph-fuse-{role}.log"
        argv = ["ceph-fuse", "-f", "-c", f"{self.folder}/ceph.conf", str(point)]
        self.mounted(point, self.start(self.network.command(role, argv), log), log)
        # If it hangs, what waits for it is let go first.
        self.stack.callback(subprocess.run, ["umount", "-f", str(point)], capture_output=True, check=False)

    def _run(self, *argv: str) -> None:
        run(*self.network.command("server", [*argv, "-c", f"{self.folder}/ceph.conf"]))

    def _do(self, *words: str) -> str:
        """What the command `ceph` says, which must succeed."""
        done = self._ask(*words)
        assert done.returncode == 0, f"ceph {' '.join(words)}: {done.stderr}"
        return done.stdout

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = self.network.command("server", ["ceph", "-c", f"{self.folder}/ceph.conf", *words])
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
