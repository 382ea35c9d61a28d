"""Edits of crawl.yaml while a machine is at work: what it takes up of them, and what it says of the rest.

Only the supervisor reads the file, so all workers of a machine go by the same settings, those that start later too. An
editor may be in the middle of writing, and a mount may show for 20 seconds an old file, or a new one cut off at the old
length: an edit counts when it has stood for longer than that. All machines have it within a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from crawler import settings as config
from crawler.crawl.logs import log
from crawler.crawl.scoreboard import SETTINGS
from crawler.errors import StoreError, UsageError
from crawler.settings import FIXED, LIVE, Settings
from crawler.store.mount import Files

NAME = "crawl.yaml"
LOOK, STILL = 2.5, 11.0  # pulses between looks, and for which an edit must stand
LONGEST_HEARTBEAT = 2.0  # seconds; a longer one counts as this
LONGEST = 200  # characters of a value that are said


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a machine goes by from now on, and what it says: of that which it has taken up, and of the rest."""

    settings: Settings
    taken: str = ""
    warning: str = ""


class Edits:
    """A machine's eye on crawl.yaml."""

    def __init__(self, files: Files, settings: Settings) -> None:
        self.files = files
        self.settings = settings
        heartbeat = min(settings.heartbeat, LONGEST_HEARTBEAT)
        self._rest, self._still = LOOK * heartbeat, STILL * heartbeat
        self._seen: bytes | None = b""  # what was judged
        self._news: bytes | None = b""  # what is there, and since when
        self._since = 0.0
        self._named: frozenset[str] = frozenset()  # the settings that the file named when it was last right
        self._wrong = False

    def watch(self, heed: Callable[[Verdict], None]) -> None:
        """Look at it again and again, and have each edit heeded; without an end."""
        while True:
            time.sleep(self._rest)
            try:
                verdict = self.look(time.monotonic())
                if verdict:
                    heed(verdict)
            except StoreError as error:
                log.debug("no look at crawl.yaml: %s", error)
            except Exception:  # noqa: BLE001 - without a word, edits would not be taken up any more
                log.exception("a fault of the program at an edit of crawl.yaml", extra={"event": "fault"})

    def look(self, now: float) -> Verdict | None:
        """What to make of crawl.yaml, if that is news."""
        data = self.files.get(NAME)
        if data != self._news:
            self._news, self._since = data, now
        if data == self._seen or now - self._since < self._still:
            return None
        self._seen = data
        return self._judge(data)

    def _judge(self, data: bytes | None) -> Verdict:
        try:
            found = read(data, self._named)
            verdict = judge(self.settings, Settings(**found))
        except UsageError as error:
            self._wrong = True
            return Verdict(self.settings, warning=f"an edit is not taken up: {error}")
        mended = f"{NAME} is right again" if self._wrong and not (verdict.taken or verdict.warning) else ""
        self._wrong = bool(verdict.warning)
        self._named = frozenset(found)
        self.settings = verdict.settings
        return replace(verdict, taken=verdict.taken or mended)


def read(data: bytes | None, named: Iterable[str]) -> dict[str, Any]:
    """The settings in a crawl.yaml; one that has lost some that it named before is half written, or cut off."""
    if data is None:
        raise UsageError(f"{NAME} is missing; put it back")
    found = config.parse(data.decode("utf-8", "replace"), NAME)
    lost = [item.name for item in fields(Settings) if item.name in set(named) - found.keys()]
    if lost:
        more = f" and {len(lost) - 1} other settings" if len(lost) > 1 else ""
        raise UsageError(f"{NAME} has no line for {lost[0]}{more} any more; put it back, with null for no limit")
    return found


def judge(settings: Settings, found: Settings) -> Verdict:
    """What a machine that goes by `settings` makes of what is found in crawl.yaml."""
    edited = replace(settings, **{name: getattr(found, name) for name in LIVE})
    config.check_together(edited)
    if len(config.render(edited).encode()) >= SETTINGS:
        raise UsageError(f"{NAME} is longer than machines at work can take up ({SETTINGS >> 10}K); make it shorter")
    changed = [
        f"{name} is {_show(name, edited)} now, it was {_show(name, settings)}" for name in _differing(settings, edited)
    ]
    taken = f"{NAME} was edited: {'; '.join(changed)}" if changed else ""
    return Verdict(edited, taken, _unheeded(edited, found))


def _unheeded(settings: Settings, found: Settings) -> str:
    """A sentence about the settings that differ, but may not while machines are at work; empty if none does."""
    differing = _differing(settings, found)
    fixed = [f"{name} cannot change once the store is made" for name in differing if name in FIXED]
    later = [f"{name} cannot change while machines are at work" for name in differing if name not in FIXED]
    if not differing:
        return ""
    here = ", ".join(f"{name} {_show(name, settings)}" for name in differing)
    hint = "stop them all and start them again, or put it back" if later else "put it back"
    return f"{NAME}: {', '.join([*fixed, *later])}; this machine goes on with {here}; {hint}"


def _differing(one: Settings, other: Settings) -> list[str]:
    """The names of the settings that differ; of `delays` the order counts too."""
    names = [item.name for item in fields(Settings)]
    return [name for name in names if repr(getattr(one, name)) != repr(getattr(other, name))]


def _show(name: str, settings: Settings) -> str:
    shown = config.show_safely(name, getattr(settings, name))
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
