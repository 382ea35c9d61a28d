"""A file that is exported: OUT.part until it is whole, and beside it how far it is, so that a killed export goes on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from crawler.errors import DiskFull, UsageError
from crawler.export_forms import Form
from crawler.export_rows import Row, Selection
from crawler.files import FULL
from crawler.logs import many


@dataclass(frozen=True, slots=True)
class Point:
    """How far an export has come: the last page that is whole in the part, and what is behind it may be cut off."""

    mark: str
    wanted: Selection
    host: str = ""
    key: str = ""
    offset: int = 0
    pages: int = 0


class ExportFile:
    """OUT as it is written; only `finish` gives it its name."""

    def __init__(self, out: Path, form: Form, point: Point, force: bool) -> None:
        self.out, self.form, self.point = out, form, point
        self.part = out.with_name(f"{out.name}.part")
        self.journal = out.with_name(f"{out.name}.part.json")
        with self._trouble():
            if out.is_dir() or (out.exists() and not force):
                raise UsageError(f"{out} is there already; name another file, or give --force to replace it")
            self._file = os.open(self.part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            self._begin(force)
        except BaseException:
            self.close()
            raise

    @property
    def mark(self) -> str:
        """That of the run that began the part: what was stored since may be missing in it."""
        return self.point.mark

    @property
    def pages(self) -> int:
        """How many pages are in it."""
        return self.point.pages

    def _begin(self, force: bool) -> None:
        """Go on with a part that a killed export of the same selection has left, or begin."""
        self._lock()
        left = self._left(force)
        with self._trouble():
            os.ftruncate(self._file, left.offset if left else 0)
            os.lseek(self._file, 0, os.SEEK_END)
            if left is None:
                self.journal.unlink(missing_ok=True)
                self._write(self.form.begin())
            else:
                self.point = left

    def _lock(self) -> None:
        """One at a time; not promised between machines on mounts where locks do not exclude."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._busy() from error
        except OSError:
            pass  # a disk without locks
        if not self.part.exists():  # it got its name while we waited: what we have opened is OUT
            raise self._busy()

    def _busy(self) -> UsageError:
        return UsageError(f"another export is writing {self.part}; wait for it, or name another file")

    def _left(self, force: bool) -> Point | None:
        """How far the part is; None if there is nothing to go on with."""
        left = self._noted() if self.form.goes_on else None
        if left is None or (force and left.wanted != self.point.wanted):
            return None
        if left.wanted != self.point.wanted:
            raise UsageError(
                f"{self.part} is left from an export with other flags; "
                "give those to go on with it, or --force to begin anew"
            )
        return left if os.fstat(self._file).st_size >= left.offset else None

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
        data = self.form.add(rows)
        with self._trouble():
            self._write(data)
            offset = os.lseek(self._file, 0, os.SEEK_CUR)
            last = rows[-1]
            self.point = replace(
                self.point, host=last["host"], key=last["key"], offset=offset, pages=self.pages + len(rows)
            )
            if self.form.goes_on:
                self._note()

    def _note(self) -> None:
        os.fsync(self._file)
        new = self.journal.with_name(f".{self.journal.name}")
        new.write_text(json.dumps(asdict(self.point)))
        new.replace(self.journal)

    def finish(self) -> None:
        """Give the file its name."""
        data = self.form.end()
        with self._trouble():
            self._write(data)
            os.fsync(self._file)
            self.part.replace(self.out)
            self.journal.unlink(missing_ok=True)

    def left(self) -> str:
        """What an export that is stopped leaves."""
        if self.form.goes_on and self.point.host:
            return f"{many(self.pages, 'page')} are in {self.part}; the same command goes on"
        with suppress(OSError):
            self.part.unlink()
        return "nothing is left of it; the same command begins anew"

    def close(self) -> None:
        """Let the file go."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    @contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"{self.part}: {error.strerror or error}"
            if error.errno in FULL:
                raise DiskFull(f"no room for the export ({what}); make room, and {self._goes_on()}") from error
            raise UsageError(f"the export cannot be written ({what}); check the folder, or name another") from error

    def _goes_on(self) -> str:
        return "the same command goes on" if self.form.goes_on else "run it again"
