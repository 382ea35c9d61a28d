"""The Pythons of this machine: those that the program is declared for, and older ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

DECLARED = ("3.11", "3.12", "3.13", "3.14")
OLDER = ("2.7", "3.6", "3.8", "3.9", "3.10")
BARE = {"PATH": os.defpath, "HOME": "/nowhere"}  # the environment of a node where nothing of ours is set


@cache
def python(version: str) -> Path | None:
    """A Python of this version, without our packages, if one is here: from the PATH, or one that pyenv hides."""
    for found in _candidates(version):
        asked = [found, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"]
        done = subprocess.run(asked, env=BARE, capture_output=True, text=True, check=False)
        told, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and told == version:
            return Path(path)
    return None


def _candidates(version: str) -> Iterator[Path]:
    for folder in ("/usr/bin", "/usr/local/bin", *os.environ.get("PATH", "").split(os.pathsep)):
        found = shutil.which(f"python{version}", path=folder)
        if found and not (Path(found).parent.parent / "pyvenv.cfg").exists():
            yield Path(found)
    yield from Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}")


def here(versions: tuple[str, ...]) -> list[str]:
    """Those of the versions that this machine has."""
    return [version for version in versions if python(version)]
