"""The servers of a benchmark: nginx for the pages, dnsmasq for the names, both for this process's namespaces alone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from corpus import DEAD, DOMAIN
from lab.certificates import Authority

INSIDE = "BENCH_INSIDE"
# Where the names of dead hosts lead: nobody listens, nobody answers, no route, and no address at all.
DEAD_ADDRESSES = dict(zip(DEAD, ("127.0.0.2", "127.0.0.3", "192.0.2.1", ""), strict=True))
ROBOTS = "User-agent: *\nDisallow: /search\nDisallow: /private/\n"
NGINX = """
{main}
daemon off;
user root;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/nginx.log warn;
worker_rlimit_nofile 20000;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 75s;
  keepalive_requests 100000;
  open_file_cache max=20000 inactive=1h;
  open_file_cache_valid 1h;
  server_names_hash_bucket_size 128;
  default_type text/html;
  types {{ }}
  {beside}
  server {{
    listen {listen};
    {tls}
    {inside}
    root {root}/{host};
    if ($args) {{ return 404; }}
    location = /robots.txt {{ alias {folder}/robots.txt; default_type text/plain; }}
    # A page has one address, or contenders would count it differently.
    location = / {{ rewrite ^ /index.html break; }}
    location = /index.html {{ return 404; }}
    location ~ \\.html$ {{ }}
    location / {{ return 404; }}
  }}
}}
"""


def enter_namespaces() -> None:
    """Run this program again where its mounts, network and processes are its own, and end with it: unshare(1), once.

    Nothing of the machine changes, nothing can leave loopback, and nothing is left behind, however it ends.
    """
    if os.geteuid() != 0:
        raise SystemExit("the benchmark makes namespaces of its own for names and servers, and that needs root")
    if not os.environ.get(INSIDE):
        os.environ[INSIDE] = "1"
        unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])
    _furnish()


def _furnish() -> None:
    """Loopback is up, the network namespaces that others have named are out of sight, and SIGTERM ends us.

    It would not otherwise: we are the first process here, which gets no signal that it does not ask for.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    run("ip", "link", "set", "lo", "up")
    run("ip", "route", "add", "unreachable", DEAD_ADDRESSES["unreachable"])
    # As many as there are: a contender that asks 20,000 hosts makes a connection to the one nginx for each.
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("1024 65535")
    Path("/run/netns").mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")


@contextmanager
def names(folder: Path) -> Iterator[None]:
    """All host names below .test lead to loopback, but those of dead hosts; no other name leads anywhere."""
    resolver = folder / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n")
    run("mount", "--bind", str(resolver), "/etc/resolv.conf")
    options = ["--no-resolv", "--no-hosts", "--no-ping", "--address=/test/127.0.0.1", "--listen-address=127.0.0.1"]
    options += [f"--address=/{name}.{DOMAIN}/{address}" for name, address in DEAD_ADDRESSES.items()]
    command = [
        "dnsmasq",
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--bind-interfaces",
        "--user=root",
        "--pid-file",
    ]
    try:
        with server([*command, *options], ("127.0.0.1", 53), folder / "dnsmasq.log"):
            yield
    finally:
        run("umount", "/etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class More:
    """Lines for the configuration of nginx that a case needs, by where they belong."""

    main: str = ""
    beside: str = ""  # the server of the pages
    inside: str = ""  # that server
    host: str = "$host"  # the folder of a host's pages


PLAIN = More()


@contextmanager
def nginx(
    root: Path,
    folder: Path,
    address: str = "127.0.0.1",
    certificate: Path | None = None,
    more: More = PLAIN,
) -> Iterator[None]:
    """The hosts below a root, on port 80, or with a certificate on port 443."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "robots.txt").write_text(ROBOTS)
    port = 443 if certificate else 80
    tls = f"ssl_certificate {certificate}; ssl_certificate_key {certificate};" if certificate else ""
    listen = f"{address}:{port} backlog=4096" + (" ssl" if certificate else "")
    config = folder / "nginx.conf"
    config.write_text(
        NGINX.format(root=root, folder=folder, listen=listen, tls=tls, workers=os.cpu_count(), **asdict(more))
    )
    with server(["nginx", "-c", str(config)], (address, port), folder / "nginx.log"):
        yield


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for all hosts of the benchmark, and the file of who trusts it."""
    shutil.rmtree(folder, ignore_errors=True)
    authority = Authority(folder)
    return authority.issue(f"*.{DOMAIN}", "bench"), authority.trusted


@contextmanager
def server(command: Sequence[str], where: tuple[str, int], log: Path) -> Iterator[None]:
    """A program that serves, from when it can be connected to until it is told to end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _wait_for(where, process, log)
        yield
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(where: tuple[str, int], process: subprocess.Popen[bytes], log: Path) -> None:
    limit = monotonic() + 60
    while monotonic() < limit and process.poll() is None:
        with suppress(OSError), socket.create_connection(where, 1):
            return
        sleep(0.05)
    raise SystemExit(f"{process.args!r} does not serve; see {log}")


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True)
