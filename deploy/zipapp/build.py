"""Build crawler.pyz from a wheel: the program and its dependencies for several Pythons in one file (`make zipapp`)."""

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
LOCKS = [Path(__file__).parents[2] / "requirements.lock", Path(__file__).with_name("extras.lock")]
GLIBC = (2, 28)  # from 2018; pycurl and turbohtml have no wheels for older ones
THEN = (1980, 1, 1, 0, 0, 0)  # a fixed time, so that the same contents give the same bytes
# Written by the installer, with paths and times of this machine.
NOTES = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", ".lock"}


def main() -> None:
    """Read the arguments, build, and print what was built."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("wheel", type=Path)
    reader.add_argument("out", type=Path)
    reader.add_argument("--pythons", nargs="+", required=True, metavar="3.X")
    reader.add_argument("--extras", default="", help="extras of pyproject.toml, separated by commas")
    reader.add_argument("--machine", required=True, help="x86_64 or aarch64")
    given = reader.parse_args()
    parts = {
        abi(python, given.machine): part(given.wheel, given.extras, python, given.machine) for python in given.pythons
    }
    told = f"CPython {' and '.join(given.pythons)} on Linux {given.machine} with glibc {GLIBC[0]}.{GLIBC[1]} or newer"
    write(given.out, parts, told)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.0f} MB, for {told}")


def abi(python: str, machine: str) -> str:
    """Return the tag of the compiled modules that this Python can load."""
    return f"cpython-{python.replace('.', '')}-{machine}-linux-gnu"


def part(wheel: Path, extras: str, python: str, machine: str) -> bytes:
    """Return a zip file of what has to be on the path of one Python."""
    with tempfile.TemporaryDirectory() as folder:
        install(wheel, extras, Path(folder), python, f"{machine}-manylinux_{GLIBC[0]}_{GLIBC[1]}")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
                name = path.relative_to(folder).as_posix()
                if is_wanted(name):
                    put(archive, name, path.read_bytes())
        return packed.getvalue()


def install(wheel: Path, extras: str, folder: Path, python: str, platform: str) -> None:
    """Install the wheel and what it needs, each with a hash of the lock files, for a Python that need not be here."""
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    command += ["--target", str(folder), "--python-version", python, "--python-platform", platform]
    command += ["--only-binary", ":all:", "--require-hashes", "--requirements", "-"]
    command += [f"--constraints={lock}" for lock in LOCKS]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = f"{wheel.name.split('-')[0]}[{extras}] @ {wheel.resolve().as_uri()} --hash=sha256:{digest}"
    done = subprocess.run(command, input=wanted, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"cannot install {wheel.name}[{extras}] for Python {python} on {platform}:\n{done.stderr}")


def is_wanted(name: str) -> bool:
    return not name.startswith("bin/") and Path(name).name not in NOTES


def put(archive: zipfile.ZipFile, name: str, data: bytes, how: int = zipfile.ZIP_DEFLATED) -> None:
    info = zipfile.ZipInfo(name, THEN)
    info.external_attr = 0o644 << 16
    archive.writestr(info, data, how)


def write(out: Path, parts: dict[str, bytes], told: str) -> None:
    """Write few members, each part as one: Python reads the list of members at each start, and a part only once."""
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
    made.replace(out)  # a new file: nodes that are starting from the old one can still read it


if __name__ == "__main__":
    main()
