"""The `lastmod` of sitemaps: it brings visits forward, but only at hosts where it has proved right.

A claim is a lastmod that is newer than at the last visit of its sitemap. When a page is visited after a claim, the
claim was right if the page has changed. A host is believed after MIN_CLAIMS, as long as most of them were right. What
is known of hosts is this worker's own, and a new worker begins again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from crawler.crawl.worker.pauses import Pauses
from crawler.frontier.frontier import Frontier
from crawler.frontier.recrawl import task_now
from crawler.store.records import links_of
from crawler.store.writer import StoreWriter
from crawler.web import urls

MIN_CLAIMS = 5
MIN_RIGHT = 0.8
FORGET = 0.9  # of what is known of a host, with each claim: a host may change its ways
MAX_CLAIMS = 20_000  # that are remembered
MAX_HOSTS = 10_000
MAX_FORWARD = 1000  # visits that one visit of a sitemap brings forward


class Lastmods:
    """What the sitemaps of a worker's hosts claim, and which hosts are believed."""

    def __init__(self, store: StoreWriter, frontier: Frontier, pauses: Pauses) -> None:
        self._store, self._frontier, self._pauses = store, frontier, pauses
        self._claims: OrderedDict[str, None] = OrderedDict()  # URLs
        self._seen: OrderedDict[str, tuple[float, float]] = OrderedDict()  # host -> claims, those that were right

    def judge(self, url: str, has_changed: bool) -> None:
        """Take in whether a page that was visited has changed."""
        if url not in self._claims:
            return
        del self._claims[url]
        claims, right = self._seen.pop(urls.host(url), (0.0, 0.0))
        self._seen[urls.host(url)] = FORGET * claims + 1, FORGET * right + has_changed
        _limit(self._seen, MAX_HOSTS)

    def believes(self, host: str) -> bool:
        """Tell whether the sitemaps of a host have proved right."""
        claims, right = self._seen.get(host, (0.0, 0.0))
        enough = sum(FORGET**number for number in range(MIN_CLAIMS))
        return claims > enough - 0.01 and right >= MIN_RIGHT * claims

    async def note(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Take in what a sitemap claims since its last visit; visits of hosts that are believed are brought forward."""
        before, forward = _by_link(old), 0
        for url, when in _by_link(new).items():
            if when <= before.get(url, when) or not urls.is_safe(url):
                continue
            self._claims[url] = None
            _limit(self._claims, MAX_CLAIMS)
            if self.believes(urls.host(url)) and forward < MAX_FORWARD:
                forward += 1
                await self._bring_forward(url)

    async def _bring_forward(self, url: str) -> None:
        record = await self._pauses.until_store_answers(self._store.record, url)
        if record is not None:
            self._frontier.hand_over([task_now(record)])


def _by_link(record: Mapping[str, Any]) -> dict[str, float]:
    """Return the lastmod of each link of a sitemap's record, as far as it has one."""
    said = record.get("lastmods")
    times = said if isinstance(said, list) else ()
    pairs = zip(links_of(record), times, strict=False)
    return {link: float(when) for link, when in pairs if isinstance(when, int | float)}


def _limit(known: OrderedDict[str, Any], most: int) -> None:
    if len(known) > most:
        known.popitem(last=False)
