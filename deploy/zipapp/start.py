"""The `__main__.py` of crawler.pyz: unpacks the program onto a disk of this node, once, and runs it from there.

Compiled modules cannot be loaded from within a zip file. The folder is named after the digest of its contents: if it
is there, it is used; else it is made under a lock. A process that is killed meanwhile leaves only what the next one
removes.

Old Pythons must be able to parse this file to say that they are too old, so it uses nothing newer than Python 3.6.
"""

import errno
import fcntl
import json
import os
import signal
import stat
import sys
from contextlib import contextmanager, suppress

USAGE, FULL = 2, 6  # exit codes, as in crawler/errors.py
LIST = ".list"  # the files of the folder: cleaners of /tmp may have removed some


def main():
    """Unpack the program if needed, and run it with this process's arguments."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C exits silently
    if sys.version_info < (3, 6):
        sys.exit(
            told("Python %d.%d is too old; try: python3 %s --help" % (sys.version_info[:2] + (__loader__.archive,)))
        )
    part, digest = fitting(json.loads(__loader__.get_data("contents.json").decode()))
    folder = find_or_unpack(part, digest)
    hold(folder)
    sys.path[0] = folder  # instead of the zip file: from here on nothing is read from the mount
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))  # for children
    from crawler.__main__ import main

    main()


def told(text, code=USAGE):
    """Print an error; return the exit code."""
    sys.stderr.write("crawler: %s\n" % text)
    return code


def fitting(contents):
    """Return the part for this Python: compiled modules are for one version, processor and C library."""
    from importlib.machinery import EXTENSION_SUFFIXES

    abi = EXTENSION_SUFFIXES[0].split(".")[1]  # cpython-311-x86_64-linux-gnu
    if abi not in contents["parts"] or glibc() < contents["glibc"]:
        here = "%s with glibc %s" % (abi, ".".join(map(str, glibc())))
        then = "start it with one that fits, as in: python3.12 %s --help, or on another machine" % __loader__.archive
        sys.exit(told("this file is for %s, but %s is %s; %s" % (contents["for"], sys.executable, here, then)))
    return abi, contents["parts"][abi]


def glibc():
    """Return the version of glibc; [0] for another C library."""
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
        return [int(number) for number in version.split(".")] if name == "glibc" else [0]
    except (AttributeError, OSError, ValueError):
        return [0]


def find_or_unpack(part, digest):
    """Return the folder with the program, on a disk of this node rather than in a home that nodes share."""
    faults = []
    for place in [os.environ.get("TMPDIR"), "/tmp", "/var/tmp"]:
        try:
            if place:
                return in_place(os.path.join(os.path.abspath(place), "crawler-%d" % os.getuid()), part, digest)
        except OSError as error:
            faults.append(error)
    code = FULL if any(error.errno in (errno.ENOSPC, errno.EDQUOT) for error in faults) else USAGE
    then = "set TMPDIR to a folder on a local disk with 100 MB free"
    sys.exit(told("cannot unpack the program (%s); %s" % ("; ".join(map(str, faults)), then), code))


def in_place(place, part, digest):
    """Return the folder with the program below this one; unpack it if it is missing or incomplete."""
    claim(place)
    folder = os.path.join(place, digest)
    if not is_whole(folder):
        with alone(place):
            if not is_whole(folder):
                sweep(place)
                try:
                    unpack(part, digest, folder)
                finally:
                    sweep(place)
    return folder


def claim(place):
    """Make a folder that only we can write to, or check that it is one: others could have us run their code."""
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "Others can write to it", place)
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise PermissionError(errno.EACCES, "Mounted with noexec", place)


@contextmanager
def alone(place):
    """Hold a lock on this folder; it ends with the process."""
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def hold(folder):
    """Lock the folder until this process ends: systemd-tmpfiles removes nothing from a locked one."""
    with suppress(OSError):  # it is only a precaution
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_whole(folder):
    """Return whether every file is there, with its size."""
    try:
        with open(os.path.join(folder, LIST)) as file:
            return all(os.stat(os.path.join(folder, name)).st_size == size for name, size in json.load(file))
    except (OSError, ValueError):
        return False


def sweep(place):
    """Remove unfinished folders; we hold the lock, so nobody is working on them."""
    import shutil

    for name in os.listdir(place):
        if name.startswith("."):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)


def unpack(part, digest, folder):
    """Unpack under another name, then rename: the folder appears when it is complete."""
    import hashlib
    import io
    import tempfile
    import zipfile

    packed = __loader__.get_data(part)
    if hashlib.sha224(packed).hexdigest() != digest:
        sys.exit(told("%s is damaged; copy it here again" % __loader__.archive))
    made = tempfile.mkdtemp(prefix=".", dir=os.path.dirname(folder))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(made)
        files = [[info.filename, info.file_size] for info in archive.infolist()]
    with open(os.path.join(made, LIST), "w") as file:
        json.dump(files, file)
    if os.path.lexists(folder):  # and is incomplete
        os.rename(folder, made + ".old")
    os.rename(made, folder)


if __name__ == "__main__":
    main()
