"""Bodies that go to a file while they come: decoded, counted and hashed a piece at a time, in bounded memory.

A body that is no text is saved once it is larger than SAVED_FROM; a text, which is read as a whole, when it is larger
than MAX_TEXT. What is smaller stays in memory until its flush.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import monotonic

from crawler.errors import StoreAway, StoreError
from crawler.fetch.request import CODINGS, GZIP, MAX_MEMBERS, ZLIB, Request, codings_of
from crawler.web import kinds
from crawler.web.page import Failure, Place, Saved, type_of

SAVED_FROM = 256 << 10  # bytes before decoding
MAX_TEXT = 32 << 20  # bytes of a text that is read and stored as one
SLICE = 64 << 10  # bytes that are decoded at a time: what is left over is copied
PIECE = 256 << 10  # bytes after decoding that are written at a time
MAX_PENDING = 512 << 10  # bytes of one body that wait to be written
MAX_FILES = 16  # that are open at a time: other bodies wait
STALLED = 5.0  # seconds: a write that takes longer is the store's fault


class CutShort(Exception):
    """A compressed body that ends too early."""


class TooBig(Exception):
    """A body that is larger than the limit after decoding."""


def memory_limit(request: Request, headers: Mapping[str, str]) -> int:
    """Return how many bytes of a body may be in memory; a larger one is saved, if the request says where."""
    if request.place is None:
        return request.limit
    return min(request.limit, MAX_TEXT if kinds.is_text(type_of(headers)) else SAVED_FROM)


class Download:
    """A body on its way to a file. All calls block, and only one thread at a time makes them."""

    def __init__(self, request: Request, headers: Mapping[str, str]) -> None:
        assert request.place is not None
        self._limit = request.limit
        self._layers = [Inflater(CODINGS[coding]) for coding in reversed(codings_of(headers))]
        self._hash = hashlib.sha224()
        self._size, self._head, self._writing = 0, b"", 0.0
        self._new_place = request.place
        self._place: Place | None = None
        self.has_stalled = False

    def feed(self, data: bytes) -> None:
        """Take a piece of the body as it came; TooBig, CutShort, zlib.error or a StoreError if that is the end."""
        for piece in self._decoded(data, len(self._layers)):
            self._size += len(piece)
            if self._size > self._limit:
                raise TooBig(f"more than {self._limit} bytes after decoding")
            if len(self._head) < kinds.HEAD:
                self._head = (self._head + piece)[: kinds.HEAD]
            self._hash.update(piece)
            self._call(partial(_write, piece))

    def _decoded(self, data: bytes, layers: int) -> Iterator[bytes]:
        if not layers:
            yield data
            return
        for piece in self._decoded(data, layers - 1):
            yield from self._layers[layers - 1].feed(piece)

    def finish(self) -> Saved:
        """Bring the file to the disk, now that the body is whole."""
        for layer in self._layers:
            layer.check_end()
        self._call(lambda place: place.finish())
        assert self._place is not None
        return Saved(self._size, self._hash.hexdigest(), self._head, self._place)

    def discard(self) -> None:
        """Remove what was written."""
        if self._place is not None:
            with suppress(StoreError):
                self._place.discard()

    def _call(self, call: Callable[[Place], None]) -> None:
        self._writing = monotonic()
        try:
            if self._place is None:
                self._place = self._new_place()
            call(self._place)
        finally:
            self.has_stalled = self.stalls
            self._writing = 0.0

    @property
    def stalls(self) -> bool:
        """Whether a write takes or took so long that a timeout is the fault of the store; for any thread."""
        return self.has_stalled or (self._writing > 0 and monotonic() - self._writing > STALLED)

    def check_store(self) -> None:
        """Raise StoreAway if the store is to blame for a request that took too long."""
        if self.stalls:
            raise StoreAway("the store does not respond (a write took several seconds); is the mount still there?")


def _write(piece: bytes, place: Place) -> None:
    place.write(piece)


def failure_of(request: Request, error: Exception) -> Failure:
    """Return why a body was not saved; any other error is raised."""
    if isinstance(error, TooBig):
        return request.fail("too-big", str(error))
    if isinstance(error, CutShort | zlib.error):
        return request.fail("cut-short" if isinstance(error, CutShort) else "bad-coding", str(error))
    raise error


class Inflater:
    """Decodes gzip or deflate as it comes, in pieces of bounded size."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._member: zlib._Decompress | None = None
        self._start = b""  # too short to tell what it is
        self._members, self._is_over = 0, False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes become."""
        for start in range(0, len(data), SLICE):
            yield from self._feed(data[start : start + SLICE])

    def _feed(self, data: bytes) -> Iterator[bytes]:
        data, has_more = self._start + data, False
        self._start = b""
        while (data or has_more) and not self._is_over:
            if self._member is None and not self._begin(data):
                return
            assert self._member is not None
            piece = self._member.decompress(data, PIECE)
            if piece:
                yield piece
            data = self._member.unconsumed_tail or self._member.unused_data
            has_more = len(piece) == PIECE and not self._member.eof  # perhaps, though all of the data is consumed
            if self._member.eof:
                self._member, self._is_over = None, self._window != GZIP

    def _begin(self, data: bytes) -> bool:
        """Begin a member; False if more bytes are needed first, or what follows the last one is padding."""
        if len(data) < 2:
            self._start = data
            return False
        if self._members and not data.startswith(b"\x1f\x8b"):
            self._is_over = True
            return False
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise zlib.error(f"more than {MAX_MEMBERS} gzip members")
        is_raw = self._window == ZLIB and not has_zlib_header(data)
        self._member = zlib.decompressobj(-ZLIB if is_raw else self._window)
        return True

    def check_end(self) -> None:
        """Raise CutShort unless the data ended with a member; no data at all is good too."""
        if self._member is not None or (self._start and not self._members):
            raise CutShort("the compressed body has no end")


def has_zlib_header(data: bytes) -> bool:
    """Tell whether deflated data begins with a header, as it should."""
    return len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0


class Savers:
    """The threads that save bodies, for one event loop: so many at a time, and those that come later wait."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(MAX_FILES, thread_name_prefix="save")
        self._free = MAX_FILES
        self._waiting: list[Callable[[], None]] = []

    def take(self, when_free: Callable[[], None]) -> bool:
        """Tell whether one more may be saved; if not, `when_free` is called when to try again."""
        if not self._free:
            self._waiting.append(when_free)
            return False
        self._free -= 1
        return True

    def release(self) -> None:
        """Let the next one be saved."""
        self._free += 1
        waiting, self._waiting = self._waiting, []
        for try_again in waiting:  # all of them: some may have given up
            try_again()

    def submit(self, call: Callable[[], None], loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Make a call that blocks."""
        return loop.run_in_executor(self._pool, call)

    def close(self) -> None:
        """Take no more calls; those that wait, which may remove a file, are still made."""
        self._pool.shutdown(wait=False)


class Pump:
    """Feeds a download from an event loop: pieces are written by a thread, and one who has enough says so."""

    def __init__(self, download: Download, savers: Savers, go_on: Callable[[], None]) -> None:
        """`go_on` is called when a piece that was refused may be pushed again."""
        self.download, self._savers, self._go_on = download, savers, go_on
        self._loop = asyncio.get_running_loop()
        self._pending: list[bytes] = []
        self._size = 0
        self._is_full = False
        self._writing: asyncio.Future[None] | None = None
        self.error: Exception | None = None  # that ended it

    def push(self, data: bytes) -> bool:
        """Take a piece, unless so many wait that it must come again later."""
        if self._size and self._size + len(data) > MAX_PENDING:
            self._is_full = True
            return False
        self._pending.append(data)
        self._size += len(data)
        self._write()
        return True

    def _write(self) -> None:
        if self._writing is None and self._pending and self.error is None:
            pieces, self._pending = self._pending, []
            self._writing = self._savers.submit(lambda: self._feed(pieces), self._loop)
            self._writing.add_done_callback(lambda done: self._written(done, sum(map(len, pieces))))

    def _feed(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.download.feed(piece)

    def _written(self, done: asyncio.Future[None], size: int) -> None:
        self._writing = None
        self._size -= size
        if not done.cancelled():
            self.error = done.exception() or self.error  # type: ignore[assignment]
        self._write()
        if self._is_full:
            self._is_full = False
            self._go_on()

    async def finish(self) -> Saved:
        """Write what is left and bring the file to the disk; raise what ended it."""
        while self._writing is not None and self.error is None:
            await asyncio.wait([self._writing])
        if self.error is not None:
            raise self.error
        saved: list[Saved] = []
        await self._savers.submit(lambda: saved.append(self.download.finish()), self._loop)
        return saved[0]

    def discard(self) -> None:
        """Remove the file, when what is being written is written."""
        self._pending = []
        self.error = self.error or StoreAway("discarded")
        if self._writing is not None:
            self._writing.add_done_callback(lambda _: self._discard())
        else:
            self._discard()

    def _discard(self) -> None:
        with suppress(RuntimeError):  # the program ends: `check --repair` removes it
            self._savers.submit(self.download.discard, self._loop)
