"""What a revisit replaces: older versions are kept before and pruned afterwards; a file that became html is removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawler.frontier.scope import Seeds
from crawler.store import history
from crawler.store.clock import Clock
from crawler.store.store import file_of, path_of
from crawler.store.writer import StoreWriter

Record = Mapping[str, Any]


class Replacing:
    """Older versions of pages, as the settings `history` and `history_age` say, and files that became unnecessary."""

    def __init__(self, store: StoreWriter, seeds: Seeds, clock: Clock) -> None:
        self._store, self._seeds, self._clock = store, seeds, clock
        self._unneeded: list[str] = []  # files that no record names once the new records are on the disk

    @property
    def is_kept(self) -> bool:
        """Whether older versions are kept."""
        return bool(self._seeds.settings.history)

    def keep(self, name: str, old: Record) -> None:
        """Keep the stored version of a page that has changed."""
        if self.is_kept:
            history.keep(self._store, name, old)

    def folders(self, names: list[str]) -> set[str]:
        """Return the folders in which versions of pages were kept, to be synced."""
        return set(map(history.folder, names)) if self.is_kept else set()

    def prune(self, name: str) -> None:
        """Remove versions of a page that are too many or too old, now that the new one has its record."""
        if self.is_kept:
            settings = self._seeds.settings
            history.prune(self._store.files, name, settings.history, settings.history_age, self._clock.time())

    def note(self, old: Record, new: Record) -> None:
        """Note the html or file that a page had before, if it has content under another name now."""
        if old.get("sha224") and new.get("sha224") and _content(old) != _content(new):
            self._unneeded.append(_content(old))

    def drop(self, most: int) -> None:
        """Remove the first `most` of these files, now that the new records are on the disk."""
        for name in self._unneeded[:most]:
            self._store.files.drop(name)
        del self._unneeded[:most]

    @property
    def unneeded(self) -> int:
        """How many such files there are."""
        return len(self._unneeded)


def _content(record: Record) -> str:
    return file_of(record) or path_of("htmls", str(record.get("url")))
