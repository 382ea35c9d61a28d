"""GlusterFS: a server with one brick, and a FUSE client for each machine, all in network namespaces."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.machines.mounts import Networked
from lab.machines.network import missing, no_fuse, no_namespaces, until

VOLUME = "crawl"
# The server keeps its state in fixed places: it gets its own, seen by nobody else.
START = """
mount -t tmpfs run /run && mkdir /run/gluster && mount --bind "$1/state" /var/lib/glusterd &&
mount --bind "$1/logs" /var/log/glusterfs && exec glusterd --no-daemon --log-level WARNING
"""


class Gluster(Networked):
    """A volume of one brick with the options that it has when it is made; `real` is the brick."""

    @classmethod
    def skip_reason(cls) -> str | None:
        """It needs Debian's glusterfs-server, FUSE and network namespaces."""
        absent = missing("glusterd", "gluster", "glusterfs", "unshare", "nsenter", "ip", "setpriv")
        hint = f"{absent} (Debian's packages: glusterfs-server iproute2)" if absent else None
        return hint or no_fuse() or no_namespaces()

    def up(self) -> None:
        """Start the server, make the volume, mount it on each machine."""
        self.join_network()
        for folder in ("state", "logs"):
            (self.folder / folder).mkdir()
        self._start_server()
        for machine in range(self.machines):
            self._mount(machine)
        self.stack.callback(self.thaw)  # first of all: nothing can be unmounted while it is frozen

    def at(self, machine: int) -> Path:
        """This machine's mount."""
        return self.folder / f"gluster-{machine}"

    def _start_server(self) -> None:
        shell = ["unshare", "--mount", "--propagation", "private", "sh", "-c", START, "sh", str(self.folder)]
        self._server = self.start(self.network.command("server", shell), "glusterd.log")
        until(lambda: self._ask("volume", "list").returncode == 0, what="glusterd")
        brick = f"{self.network.address('server')}:{self.real}"
        for words in (["create", VOLUME, brick, "force"], ["start", VOLUME]):
            done = self._ask("volume", *words)
            assert done.returncode == 0, done.stdout

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """The command `gluster`, where the server is."""
        assert self._server.poll() is None, (self.folder / "glusterd.log").read_text()
        command = ["nsenter", "-t", str(self._server.pid), "-m", "-n", "gluster", "--mode=script", *words]
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
        )

    def _mount(self, machine: int) -> None:
        point = self.at(machine)
        point.mkdir()
        argv = ["glusterfs", f"--volfile-server={self.network.address('server')}", f"--volfile-id={VOLUME}"]
        argv += ["--no-daemon", "--log-level=WARNING", f"--log-file={self.folder}/gluster-{machine}.client", str(point)]
        log = f"gluster-{machine}.log"
        self.mounted(point, self.start(self.command(machine, argv), log), log)
