"""The WARC files of a store: `warcs/<worker>-<n>.warc.gz`, each with an index when it is closed.

Only its own worker appends to a segment, and nobody ever does again after an error or a kill: then the worst is a last
record that is cut off. What a dead worker left without an index is indexed by others (see `index`), up to the cut.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from crawler.errors import StoreError
from crawler.store.mount import Files
from crawler.web.warc import MAX_HEAD, Entry, entry_of, read_head

FOLDER = "warcs"
SEGMENT, INDEX = ".warc.gz", ".cdxj"
MAX_INDEX = 16 << 20  # bytes of lines for an index, which are kept in memory; with more, a segment is closed early
STEP, MOST = 16 << 10, 1 << 20  # bytes of a segment that are unpacked at a time, and into how many at most
NAME = re.compile(r"([\w-]{1,64})-(\d{5,})(\.warc\.gz|\.cdxj)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Member:
    """A record as a gzip member, and what the index says of it."""

    data: bytes
    entry: Entry | None = None


class Segments:
    """The segments that one worker writes, one after the other."""

    def __init__(self, files: Files, max_size: int, describe: Callable[[str], bytes]) -> None:
        """`describe` returns the record with which a file of this name begins."""
        self._files, self._max_size, self._describe = files, max_size, describe
        self._number = 0
        self._begin()

    def _begin(self) -> None:
        self._number += 1
        self.name = f"{self._files.me}-{self._number:05d}"
        self._end = self._good = self._index_bytes = 0  # where it ends, and up to where it is on the disk
        self._lines: list[str] = []

    def append(self, members: Iterable[Member]) -> None:
        """Append records, to be synced with what else is written now; after an error the segment is to be abandoned."""
        path, parts, lines, end = f"{FOLDER}/{self.name}{SEGMENT}", list[bytes](), list[str](), self._end
        if not end:
            parts.append(self._describe(f"{self.name}{SEGMENT}"))
            end += len(parts[0])
        for member in members:
            if member.entry:
                lines.append(member.entry.line(end, len(member.data), f"{self.name}{SEGMENT}"))
            parts.append(member.data)
            end += len(member.data)
        self._files.append(path, b"".join(parts), self._end)
        self._end = end
        self._lines += lines
        self._index_bytes += sum(map(len, lines))

    def abandon(self) -> None:
        """Begin another segment, because what was written last may be lost; the old one waits to be indexed anew."""
        if not self._good:
            with suppress(StoreError):  # there is nothing in it that anybody relies on
                self._files.drop(f"{FOLDER}/{self.name}{SEGMENT}")
        self._begin()

    @property
    def is_new(self) -> bool:
        """Whether nothing of the segment, nor its name, is known to be on the disk."""
        return not self._good

    def synced(self) -> None:
        """Note that all that was appended is on the disk."""
        self._good = self._end

    @property
    def is_full(self) -> bool:
        """Whether it is time to close the segment."""
        return self._end >= self._max_size or self._index_bytes >= MAX_INDEX

    def close(self) -> None:
        """Index the segment, all of which is synced, and begin another."""
        if self._end:
            self._files.put(f"{FOLDER}/{self.name}{INDEX}", _sorted(self._lines))
            self._begin()


def _sorted(lines: Iterable[str]) -> bytes:
    return "".join(sorted(lines)).encode()


def unindexed(files: Files) -> list[str]:
    """Return the segments that have no index, as `<worker>-<n>`, sorted."""
    names = set(files.names(FOLDER))
    found = [name.removesuffix(SEGMENT) for name in names if NAME.fullmatch(name) and name.endswith(SEGMENT)]
    return sorted(name for name in found if name + INDEX not in names)


def is_indexed(files: Files, name: str) -> bool:
    """Tell whether a segment has an index by now."""
    return files.size(f"{FOLDER}/{name}{INDEX}") is not None


def worker_of(name: str) -> str:
    """Return the id of the worker that writes a segment."""
    return name.rpartition("-")[0]


def index(files: Files, name: str) -> None:
    """Index a segment that nobody writes any more, up to where it is cut off; blocks as long as reading it takes."""
    filename = name + SEGMENT
    lines: list[str] = []
    _, parts = files.parts(f"{FOLDER}/{filename}") or (0, iter(()))
    for offset, length, start in records(parts):
        head = read_head(start)
        entry = entry_of(*head) if head else None
        if entry:
            lines.append(entry.line(offset, length, filename))
    files.put(f"{FOLDER}/{name}{INDEX}", _sorted(lines))


def records(parts: Iterable[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, length and the beginning of each whole gzip member, until the file ends or makes no sense."""
    offset, length, start = 0, 0, bytearray()
    unpacker = zlib.decompressobj(31)
    for part in parts:
        at = 0
        while at < len(part):
            piece = part[at : at + STEP]  # small, because what follows a member is copied for each
            try:
                data = unpacker.decompress(piece, MOST)
            except zlib.error:
                return
            start += data[: MAX_HEAD - len(start)]
            used = len(piece) - len(unpacker.unused_data) - len(unpacker.unconsumed_tail)
            at, length = at + used, length + used
            if unpacker.eof:
                yield offset, length, bytes(start)
                offset, length, start = offset + length, 0, bytearray()
                unpacker = zlib.decompressobj(31)
