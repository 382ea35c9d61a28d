"""MooseFS: a master and a chunk server, and a FUSE client for each machine, all in network namespaces."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lab.machines.mounts import Networked
from lab.machines.network import missing, no_fuse, no_namespaces, until

MASTER = """\
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/master
EXPORTS_FILENAME = {folder}/exports.cfg
TOPOLOGY_FILENAME = {folder}/topology.cfg
MATOML_LISTEN_HOST = {address}
MATOCS_LISTEN_HOST = {address}
MATOCL_LISTEN_HOST = {address}
LOCK_MEMORY = 0
"""
CHUNKS = """\
WORKING_USER = root
WORKING_GROUP = root
DATA_PATH = {folder}/chunks
HDD_CONF_FILENAME = {folder}/disks.cfg
MASTER_HOST = {address}
BIND_HOST = {address}
CSSERV_LISTEN_HOST = {address}
HDD_LEAVE_SPACE_DEFAULT = 256MiB
HDD_TEST_FREQ = 1000000
LOCK_MEMORY = 0
"""
NO_CACHES = "mfscachemode=DIRECT,mfsattrcacheto=0,mfsentrycacheto=0,mfsdirentrycacheto=0,mfsnegentrycacheto=0"


class Moosefs(Networked):
    """The client's defaults on each machine; `real` is a client without caches, on the server's own machine."""

    options = ""

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs Debian's packages of MooseFS, FUSE and network namespaces."""
        absent = missing("mfsmaster", "mfschunkserver", "mfsmount", "nsenter", "ip", "setpriv")
        packages = "moosefs-master moosefs-chunkserver moosefs-client iproute2"
        return (f"{absent} (Debian's packages: {packages})" if absent else None) or no_fuse() or no_namespaces()

    def up(self) -> None:
        """Start the servers, mount on each machine."""
        self.join_network("looker")
        self._configure()
        # Both run in the foreground of `start`, so that they end with it.
        self.start(self.network.command("server", ["mfsmaster", "-f", "-c", f"{self.folder}/master.cfg"]), "master.log")
        self.start(
            self.network.command("server", ["mfschunkserver", "-f", "-c", f"{self.folder}/chunks.cfg"]), "chunks.log"
        )
        until(self._master_answers, what="the master")
        self._mount("looker", self.real, NO_CACHES)
        for machine in range(self.machines):
            self.at(machine).mkdir()
            self._mount(f"m{machine}", self.at(machine), self.options)
        self._wait_for_room()
        self.stack.callback(self.thaw)  # first of all: nothing can be unmounted while it is frozen

    def at(self, machine: int) -> Path:
        """This machine's mount."""
        return self.folder / f"moosefs-{machine}"

    def _configure(self) -> None:
        for name in ("master", "chunks", "disk"):
            (self.folder / name).mkdir()
        names = {"folder": self.folder, "address": self.network.address("server")}
        texts = {
            "master.cfg": MASTER.format(**names),
            "chunks.cfg": CHUNKS.format(**names),
            "exports.cfg": "* / rw,alldirs,maproot=0:0\n",
            "topology.cfg": "",
            "disks.cfg": f"{self.folder}/disk\n",
            "master/metadata.mfs": "MFSM NEW",  # what stands for no metadata yet
        }
        for name, text in texts.items():
            (self.folder / name).write_text(text)

    def _mount(self, role: str, point: Path, options: str) -> None:
        argv = ["mfsmount", "-f", str(point), "-H", self.network.address("server"), "-o", "allow_other"]
        argv += ["-o", options] if options else []
        log = f"mfsmount-{role}.log"
        self.mounted(point, self.start(self.network.command(role, argv), log), log)

    def _master_answers(self) -> bool:
        """A client gives up when the master does not answer yet."""
        try:
            with self.network.inside("looker"):
                socket.create_connection((self.network.address("server"), 9421), 1).close()
        except OSError:
            return False
        return True

    def _wait_for_room(self) -> None:
        """Until the chunk server has told the master of its disk, there is nowhere to write."""
        until(lambda: os.statvfs(self.real).f_bavail, what="the chunk server")
