"""Machines that one reaches by ssh: each has a name, a home, a login shell, and the shared folder at the same path."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from lab.machines.mounts import TIED, Sshfs
from lab.machines.network import missing, until
from lab.world import COMMAND, LONG

TOP = Path(__file__).parents[3]
LAUNCH = str(TOP / "deploy/launch")
APART = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-euc"]
ON = 'hostname "$1"; for pair in "$3" "$4"; do [ -z "$pair" ] || mount --bind "${pair%%>*}" "${pair#*>}"; done; '
ON += 'exec /usr/sbin/sshd -D -e -f "$2"'


class Hosts(Sshfs):
    """Hosts m0, m1, ... with an sshfs at `mnt` each, and an operator's machine that reaches them by these names.

    `away` is the name of a host that is not there, `silent` of one whose sshd takes connections and says nothing.
    """

    def __init__(self, folder: Path, shells: Sequence[str] = ("bash",) * 3, bare: Collection[int] = ()) -> None:
        super().__init__(folder, len(shells))
        self.shells, self.bare = shells, bare  # login shells; the hosts whose mount is missing
        self.mnt = folder / "mnt"

    @classmethod
    def skip_reason(cls) -> str | None:
        """What sshfs needs, and what a host has."""
        return super().skip_reason() or missing("bash", "unshare", "hostname", "flock", "pgrep", "ps")

    def up(self) -> None:
        """An sshd for each host, and an ssh that knows the hosts."""
        super().up()
        self.mnt.mkdir()
        (self.folder / "bin").mkdir()
        for machine in range(self.machines):
            self._serve(machine)
        with self.beside_web():
            silent = self.stack.enter_context(socket.create_server((self.web_host, 0)))
        known = {f"m{number}": self.network.address(f"m{number}") for number in range(self.machines)}
        config = "".join(f"Host {name}\nHostName {address}\n" for name, address in known.items())
        config += f"Host silent\nHostName {self.web_host}\nPort {silent.getsockname()[1]}\n"
        config += f"Host away\nHostName 10.77.0.99\nHost *\nPort 2222\nUser root\nIdentityFile {self.folder}/user.key\n"
        config += "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        (self.folder / "ssh.conf").write_text(config)
        ssh = self.folder / "bin/ssh"
        ssh.write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {shlex.quote(str(self.folder))}/ssh.conf "$@"\n')
        ssh.chmod(0o755)

    def home(self, machine: int) -> Path:
        """Where a host keeps what its user has."""
        return self.folder / f"home-{machine}"

    def logs(self, machine: int) -> str:
        """All that was printed by what was launched there."""
        return "".join(path.read_text() for path in self.home(machine).glob(".local/state/crawler/*.log"))

    def pids(self, machine: int) -> list[int]:
        """What was launched there last, for each store."""
        return [int(path.read_text()) for path in self.home(machine).glob(".local/state/crawler/*.pid")]

    def launch(self, *args: str, code: int = 0, command: str = shlex.join(COMMAND)) -> str:
        """deploy/launch on the operator's machine; what it printed."""
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "CRAWLER": command}
        done = subprocess.run(
            [*TIED, *self.network.command("hub", [LAUNCH, *args])],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"exit code {done.returncode}, not {code}: {said}"
        return said

    def hostfile(self, *lines: str) -> str:
        """A host file with these lines."""
        path = self.folder / "hosts"
        path.write_text("\n".join(lines))
        return str(path)

    def _serve(self, machine: int) -> None:
        home, config = self.home(machine), self.folder / f"sshd-{machine}.conf"
        home.mkdir()
        text = (self.folder / "sshd.conf").read_text()
        text = text.replace(self.network.address("server"), self.network.address(f"m{machine}"))
        given = {"HOME": home, "TMPDIR": home, "PYTHONPATH": TOP, "PATH": os.environ["PATH"]}
        text += "SetEnv " + " ".join(f'"{name}={value}"' for name, value in given.items()) + "\n"
        config.write_text(text)
        users = Path("/etc/passwd").read_text()
        passwd = re.sub(r"^(root:.*:).*$", rf"\1/usr/bin/{self.shells[machine]}", users, flags=re.MULTILINE)
        (self.folder / f"passwd-{machine}").write_text(passwd)
        shared = "" if machine in self.bare else f"{self.at(machine)}>{self.mnt}"
        words = [f"m{machine}", str(config), shared, f"{self.folder}/passwd-{machine}>/etc/passwd"]
        log = self.folder / f"sshd-{machine}.log"
        self.start(self.network.command(f"m{machine}", [*APART, ON, "sh", *words]), log.name)
        until(lambda: "listening on" in log.read_text(), what=f"sshd of m{machine}: {log}")
