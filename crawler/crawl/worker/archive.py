"""The exchanges of a worker on their way into WARC files, with `warc: true`.

They are written with the flush and are on the disk before the records of their pages appear. If a sync fails, what was
written since the last good one is written anew, into another segment.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

from crawler import __version__
from crawler.fetch.exchange import Exchange
from crawler.fleet.heartbeats import END, newest_in
from crawler.settings.settings import Settings
from crawler.store.clock import Clock
from crawler.store.mount import Files
from crawler.store.records import utc
from crawler.store.segments import FOLDER, Member, Segments, index, is_indexed, unindexed, worker_of
from crawler.web import warc

MAX_DIGESTS = 16_384  # payloads that are recognised when they come again; beyond that the oldest is forgotten
Dated = tuple[str, Exchange]


class Archive:
    """Collects exchanges, and appends them to the segments of this worker."""

    def __init__(self, files: Files, settings: Settings, clock: Clock, random: Random) -> None:
        self._files, self._settings, self._clock, self._random = files, settings, clock, random
        self.segments = Segments(files, settings.warc_size, self._describe)
        self._waiting: list[Dated] = []
        self._unsynced: list[Dated] = []  # appended, but perhaps not on the disk yet
        self._failed_syncs = files.failed_syncs
        self._known: OrderedDict[str, tuple[str, str]] = OrderedDict()  # digest: URL and date of the first
        self._new: dict[str, tuple[str, str]] = {}  # the same of those in `_unsynced`
        self.bytes = 0  # of those that wait or are unsynced

    def keep(self) -> Callable[[Exchange], None]:
        """Return what takes the exchange of a request that is sent now."""
        return partial(self._add, utc(self._clock.time()))

    def _add(self, date: str, exchange: Exchange) -> None:
        self._waiting.append((date, exchange))
        self.bytes += exchange.weight

    @property
    def count(self) -> int:
        """How many exchanges wait to be written."""
        return len(self._waiting)

    def write(self) -> None:
        """Append what waits; blocks. If a sync has failed since the last call, what that lost comes first."""
        if self._files.failed_syncs != self._failed_syncs and self._unsynced:
            self._write_anew()
        self._failed_syncs = self._files.failed_syncs
        waiting = self._waiting[:]
        if not waiting:
            return
        try:
            self.segments.append(member for dated in waiting for member in self._members(*dated))
        except BaseException:
            self._write_anew()
            raise
        del self._waiting[: len(waiting)]
        self._unsynced += waiting

    def _write_anew(self) -> None:
        self.segments.abandon()
        self._waiting[:0] = self._unsynced
        self._unsynced = []
        self._new.clear()

    @property
    def folders(self) -> set[str]:
        """The folders to sync after `write`."""
        return {FOLDER} if self._unsynced and self.segments.is_new else set()

    def synced(self) -> None:
        """Note that a sync was good: all that was appended is on the disk."""
        self.bytes -= sum(exchange.weight for _, exchange in self._unsynced)
        self._unsynced = []
        self._known.update(self._new)
        self._new.clear()
        while len(self._known) > MAX_DIGESTS:
            self._known.popitem(last=False)
        self.segments.synced()

    def close(self) -> None:
        """Index the last segment; to be called after the last flush."""
        if not self._unsynced:
            self.segments.close()

    def index_left(self) -> None:
        """Index the segments that dead workers left, and those that this one abandoned; blocks, perhaps for long.

        If several machines do so at the same time, they write the same.
        """
        alive = {id for id, heartbeat in newest_in(self._files).items() if heartbeat.mark != END}
        alive -= {self._files.me}
        for name in unindexed(self._files):
            if worker_of(name) not in alive and name != self.segments.name and not is_indexed(self._files, name):
                index(self._files, name)

    # ---- records

    def _id(self) -> str:
        return f"<urn:uuid:{uuid.UUID(int=self._random.getrandbits(128), version=4)}>"

    def _describe(self, filename: str) -> bytes:
        settings = self._settings
        fields = {"WARC-Record-ID": self._id(), "WARC-Date": utc(self._clock.time()), "WARC-Filename": filename}
        about = {
            "software": f"folder-crawler/{__version__}",
            "format": "WARC File Format 1.1",
            "http-header-user-agent": settings.user_agent,
            "robots": "obey" if settings.robots else "ignore",
        }
        return warc.warcinfo(fields, about)

    def _members(self, date: str, exchange: Exchange) -> Iterator[Member]:
        """Yield the response, or the revisit of one whose payload is known, and then the request."""
        payload = warc.digest(exchange.body)
        id = self._id()
        fields = {
            "WARC-Record-ID": id,
            "WARC-Date": date,
            "WARC-Target-URI": exchange.url,
            "WARC-IP-Address": exchange.address,
            "WARC-Protocol": exchange.protocol,
        }
        about = {**fields, "WARC-Payload-Digest": payload, "WARC-Truncated": exchange.truncated}
        first = self._first(payload, date, exchange)
        kind, body = ("revisit", b"") if first else ("response", exchange.body)
        if first:
            about["WARC-Profile"] = warc.REVISIT_PROFILE
            about["WARC-Refers-To-Target-URI"], about["WARC-Refers-To-Date"] = first
        data = warc.record(kind, about, warc.HTTP_RESPONSE, exchange.head, body)
        yield Member(data, warc.entry_of(kind, about, exchange.head))
        sent = {**fields, "WARC-Record-ID": self._id(), "WARC-Concurrent-To": id}
        yield Member(warc.record("request", sent, warc.HTTP_REQUEST, exchange.request))

    def _first(self, payload: str, date: str, exchange: Exchange) -> tuple[str, str] | None:
        """Return URL and date of the response that brought the same payload first; None for the first, which is noted.

        A payload that is empty or not whole is neither.
        """
        if not exchange.body or exchange.truncated:
            return None
        found = self._known.get(payload) or self._new.get(payload)
        if found is None:
            self._new[payload] = exchange.url, date
        return found
