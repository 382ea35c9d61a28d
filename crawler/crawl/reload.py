"""Edits of crawl.yaml while a machine runs: which are applied, and what is said about the others.

Only the supervisor reads the file, so all workers of a machine have the same settings, including those that start
later. An editor may be in the middle of writing, and a mount may show the old file, or the new one truncated to the old
length, for 20 seconds: an edit counts when it has been stable for longer than that. All machines apply it within a
minute.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, NamedTuple

from crawler.crawl.logs import log
from crawler.crawl.scoreboard import SETTINGS_BYTES
from crawler.errors import StoreError, UsageError
from crawler.settings.settings import (
    FIXED,
    LIVE,
    Settings,
    check_together,
    differing,
    is_duration,
    render,
    show_safely,
)
from crawler.settings.values import show_duration
from crawler.store.kept import parse_stored
from crawler.store.mount import Files

NAME = "crawl.yaml"
CHECK_EVERY, STABLE_FOR = 2.5, 11.0  # heartbeats between checks, and for which an edit must be unchanged
MAX_HEARTBEAT = 2.0  # seconds; a longer heartbeat counts as this
MAX_SHOWN = 200  # characters of a value in a message


class Verdict(NamedTuple):
    """The settings to use from now on, and messages about the edits that were applied and those that were not."""

    settings: Settings
    applied: str = ""
    warning: str = ""


class SettingsWatcher:
    """Watches crawl.yaml for a machine."""

    def __init__(self, files: Files, settings: Settings) -> None:
        self.files = files
        self.settings = settings
        heartbeat = min(settings.heartbeat, MAX_HEARTBEAT)
        self._interval, self._stable = CHECK_EVERY * heartbeat, STABLE_FOR * heartbeat
        self._judged: bytes | None = b""
        self._found: bytes | None = b""  # what is in the file, and since when
        self._since = 0.0
        self._named: frozenset[str] = frozenset()  # the settings in the file when it was last valid
        self._wrong = False

    def watch(self, apply: Callable[[Verdict], None], ended: threading.Event) -> None:
        """Call `apply` for each edit, until the machine has `ended`."""
        while not ended.wait(self._interval):
            try:
                verdict = self.check(time.monotonic())
                if verdict:
                    apply(verdict)
            except StoreError as error:
                log.debug("cannot read crawl.yaml: %s", error)
            except Exception:  # noqa: BLE001 - else edits would silently be ignored from here on
                log.exception(
                    "bug in the crawler: an edit of crawl.yaml could not be applied", extra={"event": "fault"}
                )

    def check(self, now: float) -> Verdict | None:
        """Return a verdict on crawl.yaml if it was edited and is stable."""
        data = self.files.get(NAME)
        if data != self._found:
            self._found, self._since = data, now
        if data == self._judged or now - self._since < self._stable:
            return None
        self._judged = data
        return self._judge(data)

    def _judge(self, data: bytes | None) -> Verdict:
        try:
            found = read(data, self._named)
            verdict = judge(self.settings, Settings(**found))
        except UsageError as error:
            self._wrong = True
            return Verdict(self.settings, warning=f"ignoring an edit: {error}")
        fixed = f"{NAME} is valid again" if self._wrong and not (verdict.applied or verdict.warning) else ""
        self._wrong = bool(verdict.warning)
        self._named = frozenset(found)
        self.settings = verdict.settings
        return verdict._replace(applied=verdict.applied or fixed)


def read(data: bytes | None, named: Iterable[str]) -> dict[str, Any]:
    """Parse crawl.yaml; a file that lost settings it had before counts as half written or truncated."""
    if data is None:
        raise UsageError(f"{NAME} is missing; restore it")
    found = parse_stored(data, NAME)
    missing = [item.name for item in fields(Settings) if item.name in set(named) - found.keys()]
    if missing:
        more = f" and {len(missing) - 1} other settings" if len(missing) > 1 else ""
        raise UsageError(f"{NAME} no longer has a line for {missing[0]}{more}; restore it (null means no limit)")
    return found


def judge(settings: Settings, found: Settings) -> Verdict:
    """Return what a machine that runs with `settings` does about the settings found in crawl.yaml."""
    edited = replace(settings, **{name: getattr(found, name) for name in LIVE})
    check_together(edited)
    if len(render(edited).encode()) >= SETTINGS_BYTES:
        raise UsageError(
            f"{NAME} is longer than {SETTINGS_BYTES >> 10}K, the limit while machines run; make it shorter"
        )
    changed = [f"{name} {shown(name, settings)} -> {shown(name, edited)}" for name in differing(settings, edited)]
    applied = f"{NAME} was edited: {'; '.join(changed)}" if changed else ""
    return Verdict(edited, applied, _ignored(edited, found))


def _ignored(settings: Settings, found: Settings) -> str:
    """Return a warning about edited settings that cannot change while machines run; empty if there are none."""
    names = differing(settings, found)
    fixed = [f"{name} cannot change once the store exists" for name in names if name in FIXED]
    later = [f"{name} cannot change while machines run" for name in names if name not in FIXED]
    if not names:
        return ""
    here = ", ".join(f"{name} {shown(name, settings)}" for name in names)
    hint = "restart all machines, or undo the edit" if later else "undo the edit"
    return f"{NAME}: {', '.join([*fixed, *later])}; this machine still uses {here}; {hint}"


def shown(name: str, settings: Settings) -> str:
    """Return a setting's value for a message: without passwords, and not too long."""
    value = getattr(settings, name)
    text = show_duration(value) if isinstance(value, float) and is_duration(name) else show_safely(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
