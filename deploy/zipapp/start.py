"""The `__main__.py` of crawler.pyz: unpacks the program onto a disk of this node, once, and runs it from there.

Compiled modules cannot be loaded from within a zip file. A start finds the folder that an earlier one made, which has
the name of its contents' digest; else it makes it, alone among all that start here now. Killed meanwhile, it leaves
only what the next one removes.

Old Pythons read this file too, to be told in a sentence that they are: it has nothing that Python 3.6 lacks.
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
LIST = ".list"  # what belongs into the folder: cleaners of /tmp may have taken some of it


def main():
    """Run the program, unpacked, with this process's arguments."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a word
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
    """Say why it ends; the exit code."""
    sys.stderr.write("crawler: %s\n" % text)
    return code


def fitting(contents):
    """The part for this Python: compiled modules are for one version, processor and C library."""
    from importlib.machinery import EXTENSION_SUFFIXES

    abi = EXTENSION_SUFFIXES[0].split(".")[1]  # cpython-311-x86_64-linux-gnu
    if abi not in contents["parts"] or glibc() < contents["glibc"]:
        here = "%s with glibc %s" % (abi, ".".join(map(str, glibc())))
        then = "start it with one that fits, as in: python3.12 %s --help, or on another machine" % __loader__.archive
        sys.exit(told("this file is for %s, but %s is %s; %s" % (contents["for"], sys.executable, here, then)))
    return abi, contents["parts"][abi]


def glibc():
    """The version of this C library; of another one 0."""
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
        return [int(number) for number in version.split(".")] if name == "glibc" else [0]
    except (AttributeError, OSError, ValueError):
        return [0]


def find_or_unpack(part, digest):
    """The folder with the program, on the first disk that takes it: of the node rather than a home that all share."""
    faults = []
    for place in [os.environ.get("TMPDIR"), "/tmp", "/var/tmp"]:
        try:
            if place:
                return in_place(os.path.join(os.path.abspath(place), "crawler-%d" % os.getuid()), part, digest)
        except OSError as error:
            faults.append(error)
    code = FULL if any(error.errno in (errno.ENOSPC, errno.EDQUOT) for error in faults) else USAGE
    then = "set TMPDIR to a folder of this machine with 100 MB to spare"
    sys.exit(told("there is no place to unpack the program (%s); %s" % ("; ".join(map(str, faults)), then), code))


def in_place(place, part, digest):
    """The folder with the program in this place."""
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
    """Make a folder for us alone, or find it so: who else can write there can have us run what they like."""
    with suppress(FileExistsError):
        os.mkdir(place, 0o700)
    found = os.lstat(place)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "Others may write to it", place)
    if os.statvfs(place).f_flag & os.ST_NOEXEC:
        raise PermissionError(errno.EACCES, "Mounted with noexec", place)


@contextmanager
def alone(place):
    """One at a time; whoever is killed lets go."""
    lock = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def hold(folder):
    """Lock the folder for as long as we live: systemd-tmpfiles takes nothing out of one that is locked."""
    with suppress(OSError):  # it is only a precaution
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_whole(folder):
    """Whether every file is there, with its size."""
    try:
        with open(os.path.join(folder, LIST)) as file:
            return all(os.stat(os.path.join(folder, name)).st_size == size for name, size in json.load(file))
    except (OSError, ValueError):
        return False


def sweep(place):
    """Remove what was not finished: only one is at work here, and that is us."""
    import shutil

    for name in os.listdir(place):
        if name.startswith("."):
            shutil.rmtree(os.path.join(place, name), ignore_errors=True)


def unpack(part, digest, folder):
    """Fill the folder under another name; it gets its own when it is whole."""
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
    if os.path.lexists(folder):  # and is not whole any more
        os.rename(folder, made + ".old")
    os.rename(made, folder)


if __name__ == "__main__":
    main()
