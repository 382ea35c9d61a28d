"""This program as it was at another revision, to run it beside what it is now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def check_out(revision: str, folder: Path) -> Path:
    """The package at a revision in a folder of its own, compiled; it uses the dependencies that are installed now."""
    folder.mkdir()
    archive = ["git", "-C", str(PROJECT), "archive", revision, "crawler"]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as git:
        subprocess.run(["tar", "-x", "-C", str(folder)], stdin=git.stdout, check=True)
    if git.returncode:
        raise SystemExit(f"git has no package at {revision!r}; name a commit that has crawler/")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(folder)], check=True)
    return folder
