"""A file that is exported: beside its part stands how far it is, so that a killed export goes on."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from crawler.commands.export.formats import Form, Row
from crawler.commands.export.output import Sheet, trouble
from crawler.commands.export.rows import Selection
from crawler.errors import UsageError
from crawler.terminal import many


@dataclass(frozen=True, slots=True)
class Point:
    """How far an export has come: the last page that is whole in the part, and what is behind it may be cut off."""

    mark: str
    store: str
    wanted: Selection
    host: str = ""
    key: str = ""
    offset: int = 0
    pages: int = 0


class ExportFile(Sheet):
    """A file that is gone on with where its form allows it."""

    def __init__(self, out: Path, form: Form, point: Point, force: bool) -> None:
        self.point = point
        super().__init__(out, form, force)

    @property
    def mark(self) -> str:
        """That of the run that began the part: what was stored since may be missing in it."""
        return self.point.mark

    @property
    def pages(self) -> int:
        """How many pages are in it."""
        return self.point.pages

    @property
    def goes_on(self) -> bool:
        """Whether the same command goes on with the part."""
        return self.form.goes_on and self.pages > 0

    def _begin(self, force: bool) -> None:
        """Go on with a part that a killed export of the same selection has left, or begin."""
        left = self._left(force)
        if left is None:
            super()._begin(force)
        else:
            self.point = left
            os.ftruncate(self._file, left.offset)
            os.lseek(self._file, 0, os.SEEK_END)

    def _left(self, force: bool) -> Point | None:
        """How far the part is; None if there is nothing to go on with."""
        left = self._noted() if self.form.goes_on else None
        if left is None or os.fstat(self._file).st_size < left.offset:
            return None
        if (left.store, left.wanted) == (self.point.store, self.point.wanted):
            return left
        if force:
            return None
        raise UsageError(
            f"{self.part} is left from an export of another store or with other flags; "
            "give those to go on with it, or --force to begin anew"
        )

    def _noted(self) -> Point | None:
        try:
            told = json.loads(self.journal.read_bytes())
            wanted = Selection(**{**told["wanted"], "hosts": tuple(told["wanted"]["hosts"])})
            return Point(**{**told, "wanted": wanted, "offset": int(told["offset"]), "pages": int(told["pages"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None  # there is none, or a power cut has left half of it

    def lacking(self, host: str, keys: list[str]) -> list[str]:
        """The keys of a host that come after the last page of the part."""
        if host == self.point.host:
            return [key for key in keys if key > self.point.key]
        return keys if host > self.point.host else []

    def add(self, rows: list[Row]) -> None:
        """Add a batch; it is whole on the disk before the journal speaks of it."""
        super().add(rows)
        host, key = rows[-1]["host"], rows[-1]["key"]
        with trouble(self.part):
            offset = os.lseek(self._file, 0, os.SEEK_CUR)
            point = replace(self.point, host=host, key=key, offset=offset, pages=self.pages + len(rows))
            if self.form.goes_on:
                self._note(point)
        self.point = point

    def _note(self, point: Point) -> None:
        os.fsync(self._file)
        new = self.journal.with_name(f".{self.journal.name}")
        new.write_text(json.dumps(asdict(point)))
        new.replace(self.journal)

    def left(self) -> str:
        """What an export that is stopped leaves."""
        if self.goes_on:
            return f"{many(self.pages, 'page')} are in {self.part}; the same command goes on"
        return "nothing is left of it; the same command begins anew"
