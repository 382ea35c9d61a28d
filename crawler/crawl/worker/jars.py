"""The cookies of hosts between a worker's memory and the store, so that a session survives a resume and is shared.

A host's cookies are read when it is first met, and written with the flush, before the records of the pages that set
them. Where a host is spread over workers, they are read again whenever URLs came from others since the last look:
cookies are in the store before the links of the page that set them are handed over, so who requests such a link has
seen them. (From another machine, up to a second later: see `_is_news`.)
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import Scoreboard
from crawler.crawl.worker.pauses import Pauses
from crawler.fetch.cookies import Cookie, Cookies
from crawler.fleet.shards import Shards
from crawler.frontier.frontier import Frontier
from crawler.frontier.task import Task
from crawler.settings.settings import LiveSettings, delay_for
from crawler.store import jars
from crawler.store.clock import Clock
from crawler.store.writer import StoreWriter
from crawler.web.page import REDIRECTS, Failure, Fetched

MAX_KNOWN = 5_000  # hosts of which is known what was read; one that is forgotten is read again
YOUNG = 10.0  # seconds after the first request to a host in which others may be about to get its cookies
RETRY_SECONDS = 3.0  # seconds until a page that was refused then is requested again: longer than a flush
LOOK_INTERVAL = 1.0  # seconds between looks for what other machines have written, unless a request was refused
REFUSED = ("http-401", "http-403")


@dataclass(slots=True)
class Known:
    """What we know of a host's files in the store."""

    since: float  # when we began with it
    names: set[str] = field(default_factory=set)  # of files whose cookies we have
    heard: int = -1  # batches from others that had been read at the last look
    others: int = 0  # files that other workers of this machine had written by then
    looked: float = 0.0  # when that was
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Jars:
    """The cookies of the hosts that a worker requests."""

    def __init__(
        self,
        store: StoreWriter,
        cookies: Cookies,
        frontier: Frontier,
        pauses: Pauses,
        shards: Shards,
        settings: LiveSettings,
        scoreboard: Scoreboard,
        row: int,
        clock: Clock,
    ) -> None:
        self._files, self._cookies, self._frontier, self._pauses = store.files, cookies, frontier, pauses
        self._shards, self._settings, self._clock = shards, settings, clock
        self._scoreboard, self._row = scoreboard, row
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._numbers = count(1)  # one for all hosts: a name is never used again
        self._old: dict[str, set[str]] = {}  # of the hosts that are being written: the files that the new one contains
        self._written: dict[str, str] = {}  # and their new files
        self._warned: set[str] = set()

    # ---- before and after a request

    def meet(self, host: str, was_requested: bool) -> None:
        """Note a host that is new to us; if others may have requested it, the store may have its cookies."""
        if was_requested or self._is_shared:
            self._known.pop(host, None)
            self._cookies.expect(host)

    async def ready(self, host: str) -> None:
        """Return when the cookies of a host that others have left in the store are here."""
        if not self._settings.now.cookies:
            return
        known = self._of(host)
        if self._is_shared and known.heard != self._frontier.batches_read and self._is_news(known):
            self._cookies.expect(host)
        if self._cookies.is_away(host):
            await self._look(host, known)

    async def ask_again(self, task: Task, response: Fetched | Failure, sent: frozenset[str]) -> float | None:
        """Return after how many seconds a URL that was refused or redirected is worth another request; None if not.

        It is if cookies came meanwhile; `sent` are the pairs that the request had. While a host without a delay is new
        and nobody here has a cookie of it, others may be about to get one. Only the first attempt counts, so a URL is
        requested once more at most.
        """
        if task.attempt or not self._settings.now.cookies:
            return None
        if isinstance(response, Fetched):
            is_redirect = response.status in REDIRECTS
            is_new = is_redirect and await self._has_new(task, sent, response.headers.get("set-cookie", ""))
            return 0.0 if is_new else None
        if response.reason not in REFUSED:
            return None
        if await self._has_new(task, sent, None):
            return 0.0
        return RETRY_SECONDS if self._may_come(task.host, sent) else None

    async def prepare(self, task: Task) -> frozenset[str]:
        """Return the name=value of each cookie that a request is sent with, once they are here."""
        await self.ready(task.host)
        return self._cookies.pairs(task.url) if self._settings.now.cookies else frozenset()

    async def _has_new(self, task: Task, sent: frozenset[str], own: str | None) -> bool:
        """Whether there are new cookies for a URL, here or in the store."""
        known = self._of(task.host)
        if self._is_shared and not self._cookies.has_new(task.url, sent, own) and self._is_news(known, 0.0):
            self._cookies.expect(task.host)
            await self._look(task.host, known, is_fresh=True)
        return self._cookies.has_new(task.url, sent, own)

    def _is_news(self, known: Known, interval: float = LOOK_INTERVAL) -> bool:
        """Whether other workers may have written cookies since the last look: those of this machine say so."""
        if self._count_others() != known.others:
            return True
        is_alone = self._shards.count_alive() <= self._scoreboard.workers
        return not is_alone and self._clock.monotonic() - known.looked >= interval

    def _count_others(self) -> int:
        return self._scoreboard.total("jars") - self._scoreboard.get(self._row, "jars")

    def _may_come(self, host: str, sent: frozenset[str]) -> bool:
        """Whether requests that are sent at the same time may bring the first cookies of a host."""
        is_alone = not self._is_shared and delay_for(self._settings.now, host) > 0
        return not sent and not is_alone and self._clock.monotonic() - self._of(host).since < YOUNG

    @property
    def _is_shared(self) -> bool:
        return self._settings.now.spread == "url"

    def _of(self, host: str) -> Known:
        known = self._known.get(host)
        if known is None:
            known = self._known[host] = Known(self._clock.monotonic())
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        self._known.move_to_end(host)
        return known

    async def _look(self, host: str, known: Known, is_fresh: bool = False) -> None:
        """Read the files of a host that are new; whoever comes meanwhile waits."""
        async with known.looking:
            if self._cookies.is_away(host):
                heard, others = self._frontier.batches_read, self._count_others()
                seen = set(known.names) if self._cookies.has(host) else set[str]()
                found = await self._pauses.until_store_answers(self._read, host, seen, is_fresh)
                self._cookies.merge(host, [one for cookies in found.values() for one in cookies])
                known.names |= found.keys()
                known.heard, known.others, known.looked = heard, others, self._clock.monotonic()

    def _read(self, host: str, seen: set[str], is_fresh: bool) -> dict[str, list[Cookie]]:
        """Return the cookies of each file of a host that was not seen yet."""
        found: dict[str, list[Cookie]] = {}
        for name in jars.names(self._files, host, is_fresh):
            if name not in seen:
                try:
                    found[name] = jars.read(self._files, host, name)
                except jars.BadJar as error:
                    self._warn(f"{jars.folder_of(host)}/{name}", error)
        return found

    def _warn(self, path: str, error: jars.BadJar) -> None:
        if path not in self._warned and len(self._warned) < MAX_KNOWN:
            self._warned.add(path)
            log.warning("warning: %s is ignored: %s; `crawler check` lists such files", path, error)

    # ---- for the flush

    @property
    def unflushed(self) -> int:
        """How many hosts have cookies that must be stored."""
        return self._cookies.count_due() if self._settings.now.cookies else 0

    def take(self, everything: bool) -> dict[str, tuple[Cookie, ...]]:
        """Return the cookies that must be stored, by host; with `everything` those that could wait, too."""
        if not self._settings.now.cookies:
            return {}
        taken = self._cookies.take(everything)
        self._old = {host: set(self._of(host).names) for host in taken}
        return taken

    def write(self, host: str, cookies: tuple[Cookie, ...]) -> None:
        """Write the cookies of a host to a new file; blocks."""
        number = next(self._numbers)
        self._written[host] = f"{self._files.me}-{number}"
        jars.write(self._files, host, self._written[host], cookies)
        self._scoreboard.set(self._row, "jars", number)

    def end(self, is_done: bool) -> dict[str, set[str]]:
        """Note whether what was taken is on the disk; return the files of each host that can go."""
        for host, name in self._written.items():
            known = self._of(host)
            known.names = (known.names - self._old[host] if is_done else known.names) | {name}
        old = {host: self._old[host] for host in self._written} if is_done else {}
        self._written, self._old = {}, {}
        self._cookies.stored(is_done)
        return old

    def drop(self, old: dict[str, set[str]]) -> None:
        """Remove files whose cookies are in newer ones; blocks."""
        for host, names in old.items():
            jars.drop(self._files, host, names)
