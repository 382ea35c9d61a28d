"""Make crawler.pyz of a wheel: the program and all that it needs, for several Pythons, in one file (`make zipapp`)."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

START = Path(__file__).with_name("start.py")
GLIBC = (2, 28)  # of 2018; pycurl and turbohtml have wheels for no older one
THEN = (1980, 1, 1, 0, 0, 0)  # the same contents are the same bytes, whenever they were packed
# Notes of the installer, with paths and times of this machine.
NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock"}


def main() -> None:
    """Read the arguments, build, and say what was built."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("wheel", type=Path)
    reader.add_argument("out", type=Path)
    reader.add_argument("--pythons", nargs="+", required=True, metavar="3.X")
    reader.add_argument("--extras", default="", help="of pyproject.toml, with commas between")
    reader.add_argument("--machine", required=True, help="x86_64 or aarch64")
    given = reader.parse_args()
    parts = {
        abi(python, given.machine): part(given.wheel, given.extras, python, given.machine) for python in given.pythons
    }
    told = f"CPython {' and '.join(given.pythons)} on Linux {given.machine} with glibc {GLIBC[0]}.{GLIBC[1]} or newer"
    write(given.out, parts, told)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.0f} MB, for {told}")


def abi(python: str, machine: str) -> str:
    """What a Python calls the compiled modules that it can load."""
    return f"cpython-{python.replace('.', '')}-{machine}-linux-gnu"


def part(wheel: Path, extras: str, python: str, machine: str) -> bytes:
    """A zip file of what has to be on the path of one Python."""
    with tempfile.TemporaryDirectory() as folder:
        install(f"{wheel}[{extras}]", Path(folder), python, f"{machine}-manylinux_{GLIBC[0]}_{GLIBC[1]}")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                name = path.relative_to(folder).as_posix()
                if is_wanted(name):
                    put(archive, name, path.read_bytes())
        return packed.getvalue()


def install(what: str, folder: Path, python: str, platform: str) -> None:
    """Install wheels for a Python that need not be here: uv reads their markers for it, pip for the one that runs."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--target", str(folder), "--python-version", python, "--python-platform", platform]
    done = subprocess.run([*command, "--only-binary", ":all:", what], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"what {what} needs cannot be had for Python {python}, {platform}:\n{done.stderr}")


def is_wanted(name: str) -> bool:
    return not name.startswith("bin/") and Path(name).name not in NOTES


def put(archive: zipfile.ZipFile, name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    info = zipfile.ZipInfo(name, THEN)
    info.external_attr = 0o644 << 16
    archive.writestr(info, data, how)


def write(out: Path, parts: dict[str, bytes], told: str) -> None:
    """Few members, and the parts whole: Python reads the list of members at each start, and a part only once."""
    digests = {name: hashlib.sha224(packed).hexdigest() for name, packed in parts.items()}
    contents = {"for": told, "glibc": GLIBC, "parts": digests}
    made = out.with_name(f".{out.name}")
    with made.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            put(archive, "__main__.py", START.read_bytes())
            put(archive, "contents.json", json.dumps(contents).encode())
            for name, packed in parts.items():
                put(archive, name, packed, zipfile.ZIP_STORED)
    made.chmod(0o755)
    made.replace(out)  # a new file: nodes that start from the old one just now have it to its end


if __name__ == "__main__":
    main()
