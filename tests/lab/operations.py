"""How many operations a crawl asks of its mount: `crawler run` under strace, each call on the store counted by kind.

Counted as metadata is what a network file system must send to its server for names: the opening or creating of a
file, rename, unlink, mkdir, stat by path, and a folder that is opened, to list it or to sync it (one operation,
however many replies its listing takes). Apart from these, because they carry data or wait for a disk: writes, fsyncs.
Not counted: reads, closes and the stat of an open file, which go with the opening.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from crawler.store.store import FOLDERS

METADATA = ("create", "open", "folder", "rename", "unlink", "mkdir", "stat")
DATA = ("write", "fsync")
CALLS = {
    **dict.fromkeys(("open", "openat", "openat2"), "open"),
    **dict.fromkeys(("creat", "mknod", "mknodat", "link", "linkat", "symlink", "symlinkat"), "create"),
    **dict.fromkeys(("rename", "renameat", "renameat2"), "rename"),
    **dict.fromkeys(("unlink", "unlinkat", "rmdir"), "unlink"),
    **dict.fromkeys(("mkdir", "mkdirat"), "mkdir"),
    **dict.fromkeys(("stat", "lstat", "newfstatat", "statx", "statfs", "access", "faccessat", "faccessat2"), "stat"),
    **dict.fromkeys(("chmod", "fchmodat", "utimensat", "truncate", "readlink", "readlinkat"), "stat"),
    **dict.fromkeys(("write", "writev", "pwrite64", "pwritev"), "write"),
    **dict.fromkeys(("fsync", "fdatasync"), "fsync"),
}
CALL = re.compile(r"\d+ +(\w+)\(")
Counts = Counter[tuple[str, str]]


def trace(command: list[str], log: Path) -> list[str]:
    """What to run instead of a command so that its calls, and those of all its children, are noted in a file."""
    strace = shutil.which("strace") or "strace"
    # `?` lets a call pass that this processor does not have; the filter in the kernel leaves the others at full speed.
    wanted = ",".join(f"?{call}" for call in CALLS)
    return [strace, "-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-e", wanted, "-o", str(log), *command]


def can_trace() -> bool:
    """Whether strace is there and may follow a process."""
    if not shutil.which("strace"):
        return False
    return subprocess.run(trace(["true"], Path("/dev/null")), capture_output=True, check=False).returncode == 0


def count(lines: Iterable[str], root: Path) -> Counts:
    """(kind of call, folder of the store, "." for its top) of each call on a path, or a descriptor, in the store."""
    where = re.compile(rf'["<]{re.escape(str(root))}(?:/([^/">]*))?[^">]*[">]')
    counts: Counts = Counter()
    for line in lines:
        call, place = CALL.match(line), where.search(line)
        if call and place and call[1] in CALLS and (kind := _kind(call[1], line)):
            counts[kind, place[1] if place[1] in FOLDERS else "."] += 1
    return counts


def _kind(call: str, line: str) -> str:
    kind = CALLS[call]
    if kind == "open" and "O_PATH" in line:
        return ""  # a step of a path that is walked: the same look-ups as for a name with slashes, and no request more
    if kind == "open" and "O_DIRECTORY" in line:
        return "folder"
    if kind == "open" and "O_CREAT" in line:
        return "create"
    if kind == "stat" and ', "",' in line:
        return ""  # of an open file
    return kind


def per_page(counts: Counts, pages: int, kinds: Iterable[str] = METADATA) -> float:
    """Operations of these kinds per page."""
    wanted = set(kinds)
    return sum(number for (kind, _), number in counts.items() if kind in wanted) / pages


def show(title: str, counts: Counts, pages: int) -> str:
    """A table of operations per page: a row for each kind of call, a column for each folder of the store."""
    kinds = (*METADATA, *DATA)
    places = [*FOLDERS, "."]
    head = f"{'per page':<8}" + "".join(f"{place:>10}" for place in [*places, "all"])
    rows = [f"{title}: {pages} pages", head]
    for kind in kinds:
        cells = [counts[kind, place] / pages for place in places]
        rows.append(f"{kind:<8}" + "".join(f"{cell:10.2f}" if cell else " " * 10 for cell in [*cells, sum(cells)]))
    rows.append(
        f"metadata operations per page: {per_page(counts, pages):.2f}; of data: {per_page(counts, pages, DATA):.2f}"
    )
    return "\n".join(rows)
