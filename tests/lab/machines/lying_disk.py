"""An ext4 file system on a disk that fails: writes of blocks with certain bytes in them end with EIO, as often as told.

The disk is a loop device over a file in a file system of our own (the kernel's FUSE protocol, spoken here without a
library), so the error takes the way of a real one: block device, write-back, `syncfs`. Needs root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SIZE = 96 << 20  # bytes
INIT, LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 26, 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, OPENDIR, RELEASEDIR, ACCESS, INTERRUPT, BATCH_FORGET = 17, 18, 20, 25, 27, 29, 34, 36, 42
SILENT = {FORGET, INTERRUPT, BATCH_FORGET}
EMPTY = {RELEASE, FSYNC, FLUSH, RELEASEDIR, ACCESS}
ROOT, IMAGE = 1, 2  # node ids
# A write comes in one piece, from blocks as large as pages: the loop device takes one that fails in its second piece
# for a success.
MAX_PAGES, MAX_WRITE = 256, 1 << 20
BIG_WRITES, PAGES_ARE_LIMITED = 1 << 5, 1 << 22


class Server:
    """Serves one folder with one file, `image`, which is kept in `backing`."""

    def __init__(self, channel: int, backing: int, control: Path) -> None:
        self.channel, self.backing, self.control = channel, backing, control

    def serve(self) -> None:
        """Answer requests until the file system is unmounted."""
        while True:
            try:
                request = os.read(self.channel, MAX_WRITE + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            if opcode in SILENT:
                continue
            try:
                reply, code = self._reply(opcode, node, request[40:]), 0
            except OSError as error:
                reply, code = b"", -(error.errno or errno.EIO)
            os.write(self.channel, struct.pack("<IiQ", 16 + len(reply), code, unique) + reply)

    def _reply(self, opcode: int, node: int, body: bytes) -> bytes:
        if opcode == INIT:
            flags = BIG_WRITES | PAGES_ARE_LIMITED
            return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, flags, 8, 6, MAX_WRITE, 1, MAX_PAGES, 0, 0, *[0] * 7)
        if opcode == LOOKUP:
            if body.rstrip(b"\0") != b"image":
                raise FileNotFoundError(errno.ENOENT, "no such file")
            return struct.pack("<QQQQII", IMAGE, 0, 60, 60, 0, 0) + self._attributes(IMAGE)
        if opcode in (GETATTR, SETATTR):
            return struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if opcode in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if opcode == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return os.pread(self.backing, size, offset)
        if opcode == WRITE:
            return self._write(body)
        if opcode == STATFS:
            return struct.pack("<5Q10I", 1 << 20, 1 << 20, 1 << 20, 1 << 10, 1 << 10, 4096, 255, 4096, *[0] * 7)
        if opcode in EMPTY:
            return b""
        raise OSError(errno.ENOSYS, "not needed")

    def _write(self, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        data = body[40 : 40 + size]
        self._fail_if_told(data)
        return struct.pack("<II", os.pwrite(self.backing, data, offset), 0)

    def _fail_if_told(self, data: bytes) -> None:
        with suppress(FileNotFoundError):
            count, _, mark = self.control.read_bytes().partition(b" ")
            if int(count) and mark in data:
                _replace(self.control, b"%d %s" % (int(count) - 1, mark))
                raise OSError(errno.EIO, "as told")

    @staticmethod
    def _attributes(node: int) -> bytes:
        mode, size = (0o40755, 0) if node == ROOT else (0o100644, SIZE)
        return struct.pack("<6Q10I", node, size, size >> 9, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.rename(path)


class LyingDisk:
    """A mounted ext4 on such a disk."""

    def __init__(self, folder: Path) -> None:
        self.image, self.point, self._control = folder / "disk", folder / "ext4", folder / "control"
        self.image.mkdir()
        self.point.mkdir()
        libc = ctypes.CDLL(None, use_errno=True)
        channel = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={channel},rootmode=40000,user_id=0,group_id=0"
        if libc.mount(b"disk", bytes(self.image), b"fuse.disk", 0, options.encode()):
            os.close(channel)
            raise OSError(ctypes.get_errno(), "mount")
        backing = os.open(folder / "backing", os.O_RDWR | os.O_CREAT)
        os.truncate(backing, SIZE)
        command = [sys.executable, __file__, str(channel), str(backing), str(self._control)]
        self._server = subprocess.Popen(command, pass_fds=[channel, backing])
        os.close(channel)
        os.close(backing)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", self.image / "image"], check=True)
        self.mount()

    def mount(self) -> None:
        """Mount the file system, with nothing of it in memory."""
        subprocess.run(["mount", "-o", "loop", self.image / "image", self.point], check=True)

    def forget(self) -> None:
        """Unmount and mount again: what is read afterwards is what the disk has."""
        self._unmount()
        self.mount()

    def fail(self, mark: bytes, times: int = 1) -> None:
        """Let this many writes of blocks that hold these bytes fail from now on."""
        _replace(self._control, b"%d %s" % (times, mark))

    def left(self) -> int:
        """How many of them have not failed yet."""
        return int(self._control.read_bytes().partition(b" ")[0])

    def _unmount(self) -> None:
        limit = time.monotonic() + 30
        while subprocess.run(["umount", self.point], stderr=subprocess.DEVNULL).returncode:
            assert time.monotonic() < limit, "somebody still uses the disk"
            time.sleep(0.1)

    def close(self) -> None:
        """Unmount everything and end the server."""
        with suppress(FileNotFoundError):
            self._control.unlink()
        subprocess.run(["umount", "-l", self.point], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["umount", "-l", self.image], check=False)
        try:
            self._server.wait(10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


@contextmanager
def lying_disk(folder: Path) -> Iterator[LyingDisk]:
    """Mount one; skips the test where that is not possible."""
    import pytest

    try:
        disk = LyingDisk(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system on a loop device over FUSE here: {error}")
    try:
        yield disk
    finally:
        disk.close()


if __name__ == "__main__":
    Server(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])).serve()
