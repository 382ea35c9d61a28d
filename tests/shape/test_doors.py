"""What touches the store goes through store/mount: nobody else calls the functions of a file system, save as listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import crawler

FOLDER = Path(crawler.__file__).parent
DOORS = {"store/mount.py", "store/reading.py", "store/directories.py", "store/stream.py", "store/sync.py"}
# Modules that touch other files than the store's, and which.
OTHERS = {
    "crawl/cpu.py": "/proc",
    "crawl/handler.py": "the user's script",
    "crawl/machine.py": "/proc",
    "crawl/resources.py": "opens / to count free descriptors",
    "crawl/start.py": "makes the root, before there is a store",
    "fleet/local_lock.py": "$TMPDIR",
    "store/mountinfo.py": "/proc",
    "fetch/resolver.py": "/proc",
    "fetch/trust.py": "the operator's files of secrets and certificates",
    "web/urls.py": "the public suffix list, a file of its library",
    "commands/compare.py": "files that the user names",
    "commands/main.py": "/dev/null",
    "commands/run.py": "files that the user names",
    "commands/help.py": "the manual",
    "commands/http_server.py": "the path of a socket that the user names",
    "commands/seeds.py": "files that the user names",
    "commands/demo/demo.py": "removes the store of an earlier demo",
    "commands/demo/expected.py": "the store of the demo",
    "commands/demo/server.py": "the log of the demo",
    "commands/demo/two_machines.py": "logs and temporary files of the demo",
    "commands/doctor/doctor.py": "/dev/null",
    "commands/doctor/pairing.py": "doctor's own folder",
    "commands/export/export.py": "files that the user names",
    "commands/export/output.py": "files that the user names",
    "commands/extract/extract.py": "files that the user names",
    "commands/serve/app.py": "files of the package",
}
OS = {
    "open",
    "stat",
    "lstat",
    "listdir",
    "scandir",
    "unlink",
    "rename",
    "replace",
    "mkdir",
    "rmdir",
    "makedirs",
    "remove",
}
OS |= {"fsync", "statvfs", "mknod", "link", "symlink", "truncate", "utime", "walk"}
PATHS = {"is_dir", "is_file", "is_symlink", "iterdir", "read_text", "read_bytes", "write_text", "write_bytes", "touch"}
PATHS |= {"unlink", "mkdir", "rmdir", "rglob"}


def touches(path: Path) -> Iterator[str]:
    """The calls in a module that touch some file system."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield "open"
        elif isinstance(called, ast.Attribute):
            of = called.value.id if isinstance(called.value, ast.Name) else ""
            if (of == "os" and called.attr in OS) or of == "shutil" or called.attr in PATHS:
                yield f"{of or '...'}.{called.attr}"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_nobody_touches_the_store_but_its_doors(path: Path) -> None:
    name = path.relative_to(FOLDER).as_posix()
    assert name in DOORS or name in OTHERS or list(touches(path)) == []
