"""Search the records of one host by the words in their URL and title, a limited time at a time.

Whoever types a word searches the same records with each key: so the keys of the host that was searched last, and the
words of those of its records that were read, are kept for a while.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Any
from urllib.parse import unquote

from crawler.store.store import Store

SEARCH = 1.0  # seconds that a search may take at a time
LISTING_KEPT = 30.0  # seconds for which a listing is not made again
WORDS_KEPT = 300.0  # and a record is not read again
MAX_KEPT = 50_000  # records whose words are kept
LONGEST = 500  # characters of a record's words

Facts = dict[str, Any]


class Host:
    """What is kept of a host's records, or of its failure records."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name
        self.began = time.monotonic()
        self.keys: list[str] = []
        self.listed = float("-inf")
        self.words: dict[str, str] = {}


class Finder:
    """Finds records by words; keeps some of the host that was searched last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._host = Host("", "")

    def find(self, folder: str, host: str, search: str, after: str, most: int) -> tuple[list[Facts], Facts]:
        """Return up to so many records after a key, and where the search stands.

        `after` is the key to go on from, None at the end; `seen` of `total` records were looked at.
        """
        kept, wanted = self._kept(folder, host), search.casefold().split()
        found: list[Facts] = []
        keys, limit = kept.keys, time.monotonic() + SEARCH
        place = bisect_right(keys, after)
        while place < len(keys):
            words = self._words(kept, keys[place])
            if all(word in words for word in wanted):
                record = self._store.read(folder, host, keys[place])
                found += [record] if record else []
            place += 1
            if len(found) == most or time.monotonic() > limit:
                break
        last = None if place == len(keys) else keys[place - 1]
        return found, {"after": last, "seen": place, "total": len(keys)}

    def _kept(self, folder: str, host: str) -> Host:
        kept, now = self._host, time.monotonic()
        if (kept.folder, kept.name) != (folder, host) or now - kept.began > WORDS_KEPT:
            kept = self._host = Host(folder, host)
        if now - kept.listed > LISTING_KEPT:
            kept.keys, kept.listed = self._store.keys(folder, host), now
        return kept

    def _words(self, kept: Host, key: str) -> str:
        words = kept.words.get(key)
        if words is None:
            words = _words_of(self._store.read(kept.folder, kept.name, key) or {})
            if len(kept.words) < MAX_KEPT:
                kept.words[key] = words
        return words


def _words_of(record: Facts) -> str:
    """Return the URL, as it is and as people read it, and the title or the reason."""
    url = str(record.get("url"))
    names = ("title", "reason", "detail")
    texts = [url, *([unquote(url)] if "%" in url else []), *(str(record.get(name) or "") for name in names)]
    return " ".join(text[:LONGEST] for text in texts).casefold()
