"""What kind of mount a folder is on, as the kernel says, and what to do about each kind's weak points."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from crawler.store.mountinfo import read_mounts

OK, SLOW, UNFIT = "ok", "slow", "unfit"

# Behind these a rename is a copy and then a removal. Some name themselves in the type, some only in the source.
OBJECT_STORE = re.compile("s3fs|goofys|geesefs|rclone|gcsfuse|blobfuse2?|mount(point)?-s3|ossfs|cosfs|obsfs")
OF_ONE_MACHINE = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "vfat", "exfat"}
FAMILIES = {
    "nfs4": "nfs",
    "smb3": "cifs",
    "smbfs": "cifs",
    "fuse.sshfs": "sshfs",
    "fuse.glusterfs": "glusterfs",
    "fuse.ceph-fuse": "ceph-fuse",
}

WORDS = {
    "overlay": "an overlay, such as a container's own layer, which no other machine sees; "
    "mount the shared folder into the container",
    "cifs": "SMB; mount it with cache=strict,actimeo=1 and the same user everywhere",
    "9p": "9p; mount it with cache=none, since its other caches do not see other machines",
    "ceph-fuse": "ceph-fuse, whose version 16.2 hangs when machines want one name: if the tests between two "
    "do not end, take the kernel's client (mount -t ceph)",
    "local": "a disk of this machine: fit for one machine, not seen by others unless it is exported",
}
STALE = {
    "sshfs": "mount with -o dcache_timeout=1 (better than dir_cache=no, which leaves removed files under hidden names)",
    "nfs": "mount with lookupcache=positive, or with actimeo=1",
    "glusterfs": "mount with attribute-timeout=0,entry-timeout=0",
    "cifs": "mount with actimeo=1",
    "9p": "mount with cache=none",
    "fuse": "mount with attr_timeout=1,entry_timeout=1,negative_timeout=0 and without a cache of folders",
}
RACES = {
    "sshfs": "let every machine mount the same folder of one OpenSSH server",
    "nfs": "let every machine mount the same export of one server, with vers=4.1 or newer",
    "cifs": "let every machine mount the same share of one server, with cache=none",
    "overlay": "mount the shared folder into the container instead of the overlay",
}
ANOTHER = "use another mount (NFS, sshfs, a cluster's file system)"


@dataclass(frozen=True, slots=True)
class Finding:
    """One promise of the mount: `ok`, `slow` or `unfit`, what was seen, and what to do when it is not ok."""

    promise: str
    verdict: str
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a folder is mounted from, and as what."""

    point: str
    kind: str
    source: str

    @property
    def family(self) -> str:
        """The kind in one word, as the tables of advice have it."""
        if self.kind in OF_ONE_MACHINE:
            return "local"
        return FAMILIES.get(self.kind, "fuse" if self.kind.startswith("fuse") else self.kind)

    def is_object_store(self) -> bool:
        """Whether it is an object store in the clothes of a file system."""
        names = (self.kind.removeprefix("fuse."), self.source.lower())
        return self.kind.startswith("fuse") and any(map(OBJECT_STORE.fullmatch, names))

    def refusal(self) -> str:
        """Why an object store is not tested at all."""
        return (
            f"{self.point} is an object store behind FUSE ({self.kind} of {self.source}), where a rename is a copy and "
            f"a removal, so two machines can both win one name; {ANOTHER}"
        )

    def finding(self) -> Finding:
        """The line about the mount itself."""
        words = WORDS.get(self.family)
        return Finding("mount", OK, f"{self.kind} of {self.source} at {self.point}" + (f"; {words}" if words else ""))

    def against_stale(self) -> str:
        """What makes names of other machines visible sooner."""
        return STALE.get(self.family, f"turn off its cache of folders and attributes, or {ANOTHER}")

    def against_races(self) -> str:
        """What gives a name one winner."""
        return RACES.get(self.family, ANOTHER)


def find_mount(folder: str, table: str | None = None) -> Mount:
    """Return the mount that a folder's path leads to."""
    found = Mount("/", "unknown", "unknown")
    for _, point, kind, source in read_mounts(table):
        # Of two mounts on one point the later one is seen.
        if _is_inside(folder, point) and len(point) >= len(found.point):
            found = Mount(point, kind, source)
    return found


def _is_inside(folder: str, point: str) -> bool:
    return folder == point or folder.startswith(point.rstrip(os.sep) + os.sep)
