"""The kinds of mounts that tests know by name: `pytest -m fleet --mounts local,sshfs`."""

from __future__ import annotations

from mounts import Bindfs, Local, Mount, Sshfs, SshfsKilled

KINDS: dict[str, type[Mount]] = {
    "local": Local,
    "bindfs": Bindfs,
    "sshfs": Sshfs,
    "sshfs-killed": SshfsKilled,
}
