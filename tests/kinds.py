"""The kinds of mounts that tests know by name: `pytest -m fleet --mounts local,sshfs`."""

from __future__ import annotations

from mount_ceph import Ceph
from mount_gluster import Gluster
from mount_moosefs import Moosefs
from mount_nfs import Nfs3, Nfs4
from mounts import Bindfs, Local, Mount, Sshfs, SshfsKilled

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
