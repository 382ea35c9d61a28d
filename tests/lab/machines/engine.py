"""Docker in a network, a process tree and a /run of its own: what a test starts in it is gone when the test is.

No image can be pulled in there, so a stand-in for the Dockerfile's base is made of Debian's packages: the same release
and the same Python, and the wheels that pip asks for, because there is no index to be reached either.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.machines.network import missing, no_namespaces
from lab.world import LONG, kill

PACKAGES = "docker.io iptables mmdebstrap"
PROGRAMS = "dockerd docker containerd runc iptables mmdebstrap unshare nsenter setpriv"
PLUGIN = "usr/libexec/docker/cli-plugins/docker-compose"
BEGIN = """
mount -t tmpfs tmpfs /run
ip link set lo up
exec dockerd --data-root "$0/data" --host "unix://$0/socket" --exec-root /run/docker --pidfile /run/docker.pid \\
    --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "${0##*/}"
"""
TOP = Path(__file__).parents[3]


class Engine:
    """A Docker daemon, and the command line that talks to it."""

    def __init__(self, folder: Path, daemon: subprocess.Popen[bytes]) -> None:
        self.folder, self.daemon = folder, daemon
        self._environment = os.environ | {"DOCKER_HOST": f"unix://{folder}/socket", "DOCKER_CONFIG": f"{folder}/client"}

    def docker(self, *args: str, code: int = 0, **variables: str) -> str:
        """`docker` with this exit code; what it printed."""
        done = run(["docker", *args], env=self._environment | variables, cwd=TOP)
        assert done.returncode == code, f"docker {args}: exit code {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if code else "")

    def compose(self, *args: str, **variables: str) -> str:
        """`docker compose`, with the compose file at the top."""
        return self.docker("compose", *args, **variables)

    def states(self, service: str) -> list[dict[str, object]]:
        """What Docker says of all containers of a service."""
        ids = self.compose("ps", "--all", "--quiet", service).split()
        return [found["State"] for found in json.loads(self.docker("inspect", *ids))] if ids else []

    def volume(self, name: str) -> Path:
        """A volume's folder, as root sees it from outside."""
        return self.folder / "data/volumes" / name / "_data"

    def on_the_host(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A command in the network in which Docker publishes ports."""
        return run(["nsenter", f"--net=/proc/{self.daemon.pid}/ns/net", *argv])

    def answers(self) -> bool:
        """Whether the daemon is there; the test is skipped where the kernel or a sandbox does not let it be."""
        if self.daemon.poll() is not None:
            pytest.skip(f"no containers here: dockerd ended: {(self.folder / 'log').read_text()[-500:]}")
        return run(["docker", "version"], env=self._environment).returncode == 0


def run(argv: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; only what hangs takes so long, even where Debian is unpacked on a busy machine."""
    return subprocess.run(argv, capture_output=True, text=True, timeout=3 * LONG, check=False, **how)


@contextmanager
def engine(base: str) -> Iterator[Engine]:
    """A daemon that has a stand-in for this image; the test is skipped where there can be none."""
    absent = missing(*PROGRAMS.split())
    if reason := f"{absent} (Debian's packages: {PACKAGES})" if absent else no_namespaces():
        pytest.skip(f"no containers here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="engine-"))  # a short name: a socket's path may have 107 characters
    alone = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", BEGIN]
    with (folder / "log").open("wb") as log:
        command = ["setpriv", "--pdeathsig", "KILL", *alone, str(folder)]
        daemon = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        made = Engine(folder, daemon)
        wait_for(made.answers, "Docker answers")
        provide(made, base)
        yield made
    finally:
        end(daemon)
        for group in sorted(Path("/sys/fs/cgroup").glob(f"**/{folder.name}/**/"), reverse=True):
            group.rmdir()
        shutil.rmtree(folder)


def end(daemon: subprocess.Popen[bytes]) -> None:
    """Kill the first process in there: it is gone only when all that runs in there is."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children")
    for pid in children.read_text().split() if daemon.poll() is None else []:
        kill(int(pid))
    daemon.wait(LONG)


def wait_for(happened: Callable[[], object], what: str) -> None:
    """Wait until a call returns something true."""
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end, f"it never came true that {what}"
        time.sleep(0.3)


def provide(made: Engine, base: str) -> None:
    """Make the image, and take the compose plugin from where Debian first has it."""
    version, release = base.removeprefix("python:").split("-slim-")
    python = version.rpartition(".")[0]
    download_wheels(made.folder / "wheels", python)
    (made.folder / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    hooks = ['chroot "$1" python3 -m venv /usr/local', "copy-in wheels /", "upload pip.conf /etc/pip.conf"]
    debian(made, release, "base.tar", "apt", "python3-venv,passwd", hooks)
    debian(made, "trixie", "plugin", "extract", "docker-compose", [])
    made.docker("import", str(made.folder / "base.tar"), base)
    plugins = made.folder / "client/cli-plugins"
    plugins.mkdir(parents=True)
    shutil.copy(made.folder / "plugin" / PLUGIN, plugins)
    found = made.docker("run", "--rm", base, "python", "--version")
    assert found.startswith(f"Python {python}."), f"Debian {release} has {found}, which cannot stand in for {base}"


def debian(made: Engine, release: str, target: str, variant: str, package: str, hooks: list[str]) -> None:
    """Debian with a package, as a tar file or a folder."""
    flags = ["--dpkgopt=force-unsafe-io", *(f"--customize-hook={hook}" for hook in hooks)]
    argv = ["mmdebstrap", "--quiet", f"--variant={variant}", f"--include={package}", *flags, release, target]
    done = run(argv, cwd=made.folder)
    if done.returncode:
        pytest.skip(f"no containers here: mmdebstrap cannot make a Debian {release}: {done.stderr[-500:]}")


def download_wheels(target: Path, python: str) -> None:
    """Download what pip needs to install the lock and to build and install the package with another Python."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    flags = ["--quiet", "--only-binary=:all:", f"--python-version={python}", f"--dest={target}"]
    for wanted in (["--requirement=requirements.lock"], project["build-system"]["requires"]):
        done = run([sys.executable, "-m", "pip", "download", *flags, *wanted], cwd=TOP)
        assert done.returncode == 0, done.stderr
