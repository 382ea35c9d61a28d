"""Whether a store is the one that was made here or a copy of it.

A copy of a live store is never whole: frontier/ and links/ are copied at different moments. A machine that has checked
a store leaves a mark in it whose name no copy would have: it is made from the inode number and the change time of a
file that is written once. All clients of a mount see the same ones, except where each client invents them (sshfs and
object stores); there the mark is made from the place, as the table of mounts names it.

Not promised: a copy that takes the original's place on such a mount is not recognised. Another way to mount a store
looks like a copy, and costs one check.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from crawler.errors import StoreError
from crawler.store.inboxes import MADE
from crawler.store.mount import Files
from crawler.store.mountinfo import MountEntry, read_mounts

SEEN = ".seen-"  # begins the names of such marks
INVENTED_INODES = {"fuse.sshfs", "fuse.rclone", "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.curlftpfs"}


def is_known(files: Files) -> bool:
    """Tell whether this store was checked where it is; also if nothing here could tell."""
    mark = _mark(files)
    if not mark or files.get(mark) is not None:
        return True
    files.freshen("")  # a client may believe for a while that a name is still missing
    return mark in files.all_names("")


def note(files: Files) -> None:
    """Note that this store, where it is now, is whole."""
    mark = _mark(files)
    if mark:
        files.create(mark)


def _mark(files: Files) -> str:
    root = os.path.realpath(files.root)
    mount = _mount_of(root)
    facts = _place(root, mount) if mount and mount.kind in INVENTED_INODES else _inode(files)
    return SEEN + hashlib.sha224(facts.encode()).hexdigest()[:16] if facts else ""


def _mount_of(root: str) -> MountEntry | None:
    """Return the mount that holds a folder: the last one at the longest path above it."""
    above = [mount for mount in read_mounts() if root == mount.point or root.startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def _place(root: str, mount: MountEntry) -> str:
    """Return where a folder is on its server; machines may log in there as different users."""
    below = os.path.relpath(root, mount.point)
    return os.path.normpath(f"{mount.source.rpartition('@')[2]}/{below}")


def _inode(files: Files) -> str:
    """Return the inode number and change time of a file that is never written again; empty if it is not there."""
    with suppress(StoreError):
        found = files.identity(MADE)
        if found:  # otherwise the frontier is incomplete, which is another matter
            return f"{found[0]}@{found[1]}"
    return ""
