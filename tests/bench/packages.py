"""The Debian packages that a benchmark needs: programs, and documentation for its pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from corpus import PACKAGES, folder_of

PROGRAMS = {
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "mkfs.ext4": "e2fsprogs",
    "nginx": "nginx-light",
    "openssl": "openssl",
    "sshfs": "sshfs",
    "strace": "strace",
    "wget2": "wget2",
    "wrk": "wrk",
}
MODULES = {"/usr/lib/nginx/modules/ngx_http_lua_module.so": "libnginx-mod-http-lua"}


def provide() -> None:
    """Install what is missing, or end with a sentence that says what it is."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    absent = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    absent += [package for module, package in MODULES.items() if not Path(module).exists()]
    absent += [package for package in PACKAGES if not folder_of(package).is_dir()]
    if not absent:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *absent]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"the benchmark needs Debian packages that are not installed: {' '.join(install)}")
    subprocess.run(install, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
