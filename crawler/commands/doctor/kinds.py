"""The kind of mount that a folder is on, and advice for the weak points of each kind."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from crawler.store.mountinfo import read_mounts

OK, SLOW, UNFIT = "ok", "slow", "unfit"

# With these a rename is a copy and a delete. Some are named in the type, some only in the source.
OBJECT_STORE = re.compile("s3fs|goofys|geesefs|rclone|gcsfuse|blobfuse2?|mount(point)?-s3|ossfs|cosfs|obsfs")
LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "vfat", "exfat"}
FAMILIES = {
    "nfs4": "nfs",
    "smb3": "cifs",
    "smbfs": "cifs",
    "fuse.sshfs": "sshfs",
    "fuse.glusterfs": "glusterfs",
    "fuse.ceph-fuse": "ceph-fuse",
}

NOTES = {
    "overlay": "an overlay, such as a container's own layer, which no other machine sees; "
    "mount the shared folder into the container",
    "cifs": "SMB; mount it with cache=strict,actimeo=1 and the same user everywhere",
    "9p": "9p; mount it with cache=none: its other caches do not notice changes by other machines",
    "ceph-fuse": "ceph-fuse, whose version 16.2 hangs when machines compete for one name: if the tests between "
    "two machines do not end, use the kernel's client (mount -t ceph)",
    "local": "a disk of this machine: fit for one machine, invisible to others unless it is exported",
}
STALE = {
    "sshfs": "mount with -o dcache_timeout=1 (better than dir_cache=no, which leaves removed files under hidden names)",
    "nfs": "mount with lookupcache=positive, or with actimeo=1",
    "glusterfs": "mount with attribute-timeout=0,entry-timeout=0",
    "cifs": "mount with actimeo=1",
    "9p": "mount with cache=none",
    "fuse": "mount with attr_timeout=1,entry_timeout=1,negative_timeout=0 and without a directory cache",
}
RACES = {
    "sshfs": "mount the same folder of one OpenSSH server on every machine",
    "nfs": "mount the same export of one server on every machine, with vers=4.1 or newer",
    "cifs": "mount the same share of one server on every machine, with cache=none",
    "overlay": "mount the shared folder into the container instead of the overlay",
}
USE_ANOTHER = "use another mount (NFS, sshfs, a cluster file system)"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result for one promise of the mount: `ok`, `slow` or `unfit`, what was seen, and advice if it is not ok."""

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
        """Return the kind as the tables of advice have it."""
        if self.kind in LOCAL:
            return "local"
        return FAMILIES.get(self.kind, "fuse" if self.kind.startswith("fuse") else self.kind)

    def is_object_store(self) -> bool:
        """Return whether it is an object store that is mounted as a file system."""
        names = (self.kind.removeprefix("fuse."), self.source.lower())
        return self.kind.startswith("fuse") and any(map(OBJECT_STORE.fullmatch, names))

    def why_untested(self) -> str:
        """Return why an object store is not tested."""
        return (
            f"{self.point} is an object store behind FUSE ({self.kind} of {self.source}), where a rename is a copy and "
            f"a delete, so two machines can both claim one name; {USE_ANOTHER}"
        )

    def finding(self) -> Finding:
        """Return the line about the mount itself."""
        note = NOTES.get(self.family)
        return Finding("mount", OK, f"{self.kind} of {self.source} at {self.point}" + (f"; {note}" if note else ""))

    def against_stale(self) -> str:
        """Return how to see changes by other machines sooner."""
        return STALE.get(self.family, f"turn off its caches of directories and attributes, or {USE_ANOTHER}")

    def against_races(self) -> str:
        """Return how to get one winner per name."""
        return RACES.get(self.family, USE_ANOTHER)


def find_mount(folder: str, table: str | None = None) -> Mount:
    """Return the mount that a folder's path leads to."""
    found = Mount("/", "unknown", "unknown")
    for _, point, kind, source in read_mounts(table):
        # The later one of two mounts on one point hides the other.
        if _is_inside(folder, point) and len(point) >= len(found.point):
            found = Mount(point, kind, source)
    return found


def _is_inside(folder: str, point: str) -> bool:
    return folder == point or folder.startswith(point.rstrip(os.sep) + os.sep)
