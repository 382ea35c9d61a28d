"""Database servers for the tests of exports: real ones, each with a folder and a port of loopback to itself."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.world import LONG, wait_for


@contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL; the address of a database in it. Root may not run one, so it is run by somebody else."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    port = free_port()
    with folder("postgres" if who else None) as place:
        made = [*who, str(found[-1].with_name("initdb")), "-D", f"{place}/data", "-U", "me", "-A", "trust", "-N"]
        run(*made, "-E", "UTF8", "--locale=C.UTF-8")
        command = [*who, str(found[-1]), "-D", f"{place}/data", "-h", "127.0.0.1", "-p", str(port), "-k", place, "-F"]
        ready = [str(found[-1].with_name("pg_isready")), "-h", "127.0.0.1", "-p", str(port)]
        with served(command, port, signal.SIGINT):  # it ends at once, whoever is connected
            wait_for(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)
            yield f"postgresql+psycopg://me@127.0.0.1:{port}/postgres"


@contextmanager
def mariadb() -> Iterator[str]:
    """A MariaDB, which speaks as MySQL does; the address of a database in it."""
    server = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")
    if not server or not shutil.which("mariadb-install-db"):
        pytest.skip("no MariaDB here: apt-get install mariadb-server")
    port = free_port()
    user = ["--user=root"] if os.geteuid() == 0 else []
    with folder(None) as place:
        normal = "--auth-root-authentication-method=normal"
        own = [f"--datadir={place}/data", f"--tmpdir={place}"]  # names in a shared /tmp may be those of another
        run("mariadb-install-db", "--no-defaults", *own, normal, "--skip-test-db", *user)
        where = [*own, f"--socket={place}/socket", f"--pid-file={place}/pid"]
        with served([server, "--no-defaults", *where, f"--port={port}", "--bind-address=127.0.0.1", *user], port):
            run("mariadb", "--no-defaults", f"--socket={place}/socket", "-uroot", "-e", MAKE_USER)
            yield f"mysql+pymysql://me:secret-word@127.0.0.1:{port}/crawl"


# The database's own charset is one that knows few letters, as older ones have it: the table must not rely on it.
MAKE_USER = (
    "CREATE DATABASE crawl CHARACTER SET latin1; CREATE USER me@'127.0.0.1' IDENTIFIED BY 'secret-word'; "
    "GRANT ALL ON crawl.* TO me@'127.0.0.1'"
)


@contextmanager
def folder(owner: str | None) -> Iterator[str]:
    """A folder that its owner can reach: those of pytest are closed to others."""
    place = tempfile.mkdtemp(prefix="crawler-test-")
    try:
        if owner:
            shutil.chown(place, owner, owner)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def served(command: list[str], port: int, ending: int = signal.SIGTERM) -> Iterator[None]:
    """Run a server until it listens, and end it afterwards."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None, f"{command} has ended"
        yield
    finally:
        process.send_signal(ending)
        process.wait(LONG)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
