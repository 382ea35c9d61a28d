"""The kinds of mounts that tests know by name: `pytest -m fleet --mounts local,sshfs`."""

from __future__ import annotations

from lab.machines.ceph import Ceph
from lab.machines.gluster import Gluster
from lab.machines.moosefs import Moosefs
from lab.machines.mounts import Bindfs, Local, Mount, Sshfs, SshfsKilled
from lab.machines.nfs import Nfs3, Nfs4

KINDS: dict[str, type[Mount]] = {
    "local": Local,
    "bindfs": Bindfs,
    "sshfs": Sshfs,
    "sshfs-killed": SshfsKilled,
    "gluster": Gluster,
    "moosefs": Moosefs,
    "ceph": Ceph,
    "nfs4": Nfs4,
    "nfs3": Nfs3,
}
