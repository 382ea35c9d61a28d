"""Heartbeats: the names in `workers/`, who is alive by them, and the counters in those files.

Whether a worker is alive is decided here alone, by `state_of`. Observers differ only in how they know how long it has
been silent. A worker watches the others all the time by its own clock (`Watch`), as `crawler stop` does while it waits,
and may take over from a dead one. A command that looks once has only the age of the file by the mount's clock
(`members.look`), which may be wrong: it looks a second time before it reports a worker as silent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from crawler.errors import StoreError
from crawler.store.mount import Files

END = "end"
ALL = ".all-"
LATER = ".later"
ALIVE, SILENT, ENDED = "alive", "silent", "ended"
MAX_LOOKS = 5  # for the counters of workers whose heartbeat was replaced while we read

Check = Callable[[Any], bool]


class Heartbeat(NamedTuple):
    """The name of a worker's file: `id@n` is busy, `id@n.k` idle after k arrivals, `id@n.end` ended or dead.

    `id@n.k.all-m` is idle, and has read all its inboxes since beat m. With `.later` before that it has URLs, but none
    that is due within the hour.
    """

    id: str
    beat: int
    mark: str = ""

    @classmethod
    def of(cls, name: str) -> Heartbeat | None:
        """Parse a name in `workers/`; None if it is not a heartbeat."""
        id, _, rest = name.partition("@")
        beat, _, mark = rest.partition(".")
        return cls(id, int(beat), mark) if id and beat.isdecimal() else None

    @property
    def name(self) -> str:
        """The name in `workers/`."""
        return f"workers/{self.id}@{self.beat:06d}" + (f".{self.mark}" if self.mark else "")

    @property
    def idle(self) -> bool:
        """Whether the worker had nothing to do at this beat."""
        return self.state.removesuffix(LATER).isdigit()

    @property
    def state(self) -> str:
        """What changes when the worker has had something to do since."""
        return self.mark.partition(ALL)[0]

    @property
    def polled(self) -> int:
        """The beat since which the worker has read all its inboxes, from the first to the last; -1 if it has not."""
        beat = self.mark.partition(ALL)[2]
        return int(beat) if beat.isdecimal() else -1


def heartbeats(names: Iterable[str]) -> list[Heartbeat]:
    """Return the heartbeats among the names in `workers/`."""
    return [heartbeat for heartbeat in map(Heartbeat.of, names) if heartbeat]


def newest(found: Iterable[Heartbeat]) -> dict[str, Heartbeat]:
    """Return the newest heartbeat of each worker, by id."""
    ordered = sorted(found, key=lambda heartbeat: (heartbeat.beat, heartbeat.mark))
    return {heartbeat.id: heartbeat for heartbeat in ordered}


def newest_in(files: Files) -> dict[str, Heartbeat]:
    """Return the same from a listing of `workers/`."""
    return newest(heartbeats(files.names("workers")))


def state_of(heartbeat: Heartbeat, silent_for: float, dead_after: float) -> str:
    """Return ENDED if a worker signed off or was marked dead, SILENT after `dead_after` seconds, else ALIVE."""
    return ENDED if heartbeat.mark == END else SILENT if silent_for >= dead_after else ALIVE


@dataclass(slots=True)
class Seen:
    """What we have seen of another worker, by our own clock."""

    heartbeat: Heartbeat
    still: float = 0.0  # how long it showed no new heartbeat while we were watching
    looked: float = 0.0


class Watch:
    """Watches who is alive, by listings of `workers/` and our own monotonic clock alone."""

    def __init__(self, dead_after: float, heartbeat: float) -> None:
        self.dead_after = dead_after
        self.longest_gap = 2 * heartbeat
        self.seen: dict[str, Seen] = {}

    def look(self, found: Iterable[Heartbeat], now: float) -> None:
        """Take in one listing.

        Time in which we could not look (the mount hung) counts as two heartbeats at most: the others may have hung too.
        """
        last = newest(found)
        for id in sorted(self.seen.keys() | last.keys()):  # sorted: what follows must not hang on hashes
            seen = self.seen.get(id)
            if seen is None or (id in last and seen.heartbeat != last[id]):
                self.seen[id] = Seen(last[id], 0.0, now)
            elif id not in last and seen.heartbeat.mark == END:
                del self.seen[id]  # its file was merged with those of others
            else:
                seen.still += min(now - seen.looked, self.longest_gap)
                seen.looked = now

    def expect(self, id: str, now: float) -> None:
        """Watch a worker that owns a shard but has no heartbeat (somebody removed its file, say)."""
        self.seen.setdefault(id, Seen(Heartbeat(id, 0), 0.0, now))

    def mark_dead(self, id: str) -> None:
        """Remember that a worker was marked dead."""
        if seen := self.seen.get(id):
            seen.still = float("inf")

    def is_marked_dead(self, id: str) -> bool:
        """Tell whether a worker was marked dead already, and has shown no heartbeat since."""
        seen = self.seen.get(id)
        return seen is not None and seen.still == float("inf")

    def alive(self) -> list[Heartbeat]:
        """Return the last heartbeats of the workers that are alive."""
        # From a copy: the heartbeat thread may add a worker meanwhile.
        return [seen.heartbeat for seen in list(self.seen.values()) if self._is_alive(seen)]

    def not_ended(self) -> set[str]:
        """Return the workers that have not signed off and were not marked dead, as far as we have seen."""
        return {id for id, seen in list(self.seen.items()) if seen.heartbeat.mark != END}

    def dead(self, id: str) -> Heartbeat | None:
        """Return the last heartbeat of a worker that has ended or been silent for too long; None if it has not."""
        seen = self.seen.get(id)
        return None if seen is None or self._is_alive(seen) else seen.heartbeat

    def _is_alive(self, seen: Seen) -> bool:
        return state_of(seen.heartbeat, seen.still, self.dead_after) == ALIVE


def read_counters(files: Files, known: dict[str, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """Return the last counters of every worker of the crawl, alive or not, with its heartbeat as `heartbeat`.

    `known` caches counters by id for repeated calls: a file in `workers/` is written once, and so need be read once.
    """
    known = {} if known is None else known
    last: dict[str, Heartbeat] = {}
    read: set[str] = set()
    for _ in range(MAX_LOOKS):
        last |= newest_in(files)
        new = [it for it in last.values() if it.id not in read and known.get(it.id, {}).get("heartbeat") != it]
        texts = {heartbeat: files.get(heartbeat.name) for heartbeat in new}
        for heartbeat, text in texts.items():
            with suppress(ValueError, TypeError, RecursionError):  # not one of ours
                known[heartbeat.id] = {**parse_counters(text or b""), "heartbeat": heartbeat}
                read.add(heartbeat.id)
        if None not in texts.values():
            break
        with suppress(StoreError):  # a file that is gone has a successor, which a cached listing does not show
            files.freshen("workers")
    return without_folded([known[id] for id in last if id in known])


def without_folded(counters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return counters without those that others include: workers that ended long ago are merged (`past`)."""
    folded = {id for found in counters for id in found.get("folded", ())}
    return [found for found in counters if found["heartbeat"].id not in folded]


def parse_counters(text: bytes) -> dict[str, Any]:
    """Return a worker's counters, without values of a wrong type; TypeError or ValueError if they are no counters."""
    facts = {**json.loads(text)}
    return {name: value for name, value in facts.items() if name not in CHECKS or CHECKS[name](value)}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and -1e18 < value < 1e18


def _dict_of(kind: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def _list_of(kind: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _rows_of(*kinds: Check) -> Check:
    def fits(row: object) -> bool:
        return (
            isinstance(row, list)
            and len(row) == len(kinds)
            and all(fit(it) for fit, it in zip(kinds, row, strict=True))
        )

    return lambda value: isinstance(value, list) and all(map(fits, value))


NUMBERS = ("pid", "pages", "waiting", "in_flight", "hosts", "shards", "rate")
CHECKS: dict[str, Check] = {
    **dict.fromkeys((*NUMBERS, "redirects", "sitemaps", "retries", "bytes", "skipped"), _is_number),
    **dict.fromkeys(("revisits", "unchanged", "changed", "fresh", "due", "overdue"), _is_number),
    **dict.fromkeys(("revisits_rate", "unchanged_rate", "changed_rate"), _is_number),
    **dict.fromkeys(("reasons", "traps", "limits", "waiting_for"), _dict_of(_is_number)),
    "blocked": _dict_of(_is_text),
    **dict.fromkeys(("machine", "next_due"), _is_text),
    "folded": _list_of(_is_text),
    "busiest": _rows_of(_is_text, _is_number),
    "slowest": _rows_of(_is_text, _is_number, _is_number, _is_number),
    "minutes": _rows_of(_is_number, _is_number),
}
