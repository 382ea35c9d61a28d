"""Signs of life: what the names in `workers/` say, and who is alive by them. Pure but for `read_counters`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crawler.store.mount import Files

END = "end"
ALL = ".all"

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What the name of a worker's file says: `id@n` is busy, `id@n.k` idle for the k-th time, `id@n.end` gone.

    `id@n.k.all` is idle, and has looked into all its inboxes since its last beat.
    """

    id: str
    beat: int
    mark: str = ""

    @classmethod
    def of(cls, name: str) -> Heartbeat | None:
        """Read a name in `workers/`; None for one that is not ours."""
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
        return self.mark.removesuffix(ALL).isdigit()


@dataclass(slots=True)
class Seen:
    """What we have seen of another worker, by our own clock."""

    heartbeat: Heartbeat
    still: float = 0.0  # how long its pulse has stood still while we were looking
    looked: float = 0.0


class Watch:
    """Who is alive, from listings of `workers/` and our own monotonic clock alone."""

    def __init__(self, dead_after: float, heartbeat: float) -> None:
        self.dead_after = dead_after
        self.longest_gap = 2 * heartbeat
        self.seen: dict[str, Seen] = {}

    def look(self, heartbeats: Iterable[Heartbeat], now: float) -> None:
        """Take in one listing.

        Time in which we could not look (a mount that hung) counts for two pulses at most: everyone else may
        have hung with us.
        """
        newest: dict[str, Heartbeat] = {}
        for heartbeat in sorted(heartbeats, key=lambda heartbeat: (heartbeat.beat, heartbeat.mark)):
            newest[heartbeat.id] = heartbeat
        for id in self.seen.keys() | newest.keys():
            seen = self.seen.get(id)
            if seen is None or (id in newest and seen.heartbeat != newest[id]):
                self.seen[id] = Seen(newest[id], 0.0, now)
            else:
                seen.still += min(now - seen.looked, self.longest_gap)
                seen.looked = now

    def expect(self, id: str, now: float) -> None:
        """Watch for a worker that owns a shard but has no pulse (somebody removed its file, say)."""
        self.seen.setdefault(id, Seen(Heartbeat(id, 0), 0.0, now))

    def mark_dead(self, id: str) -> None:
        """Believe that a worker is gone."""
        if id in self.seen:
            self.seen[id].still = float("inf")

    def is_marked_dead(self, id: str) -> bool:
        """Whether we have seen to a dead worker already; one that comes back is not."""
        return self.seen[id].still == float("inf")

    def alive(self) -> list[Heartbeat]:
        """The workers whose pulse goes."""
        # From a copy: the pulse may see a new worker while the housekeeper counts them.
        return [seen.heartbeat for seen in list(self.seen.values()) if not self._stands_still(seen)]

    def is_dead(self, id: str) -> bool:
        """Whether a worker's pulse has stood still for too long, or it said goodbye."""
        return self._stands_still(self.seen[id])

    def _stands_still(self, seen: Seen) -> bool:
        return seen.heartbeat.mark == END or seen.still >= self.dead_after


def read_counters(files: Files, known: dict[str, dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    """What every worker of the crawl, alive or not, has last said of itself, with its pulse as `pulse`.

    `known` is what one who looks again and again has read before, by id: a name is written once, and so is read once.
    """
    known = {} if known is None else known
    newest: dict[str, Heartbeat] = {}
    read: set[str] = set()
    for _ in range(3):  # a pulse that is gone since the listing has a successor in the next one
        heartbeats = sorted(
            filter(None, map(Heartbeat.of, files.names("workers"))), key=lambda heartbeat: heartbeat.beat
        )
        newest |= {heartbeat.id: heartbeat for heartbeat in heartbeats}
        new = [p for p in newest.values() if p.id not in read and known.get(p.id, {}).get("heartbeat") != p]
        texts = {heartbeat: files.get(heartbeat.name) for heartbeat in new}
        for heartbeat, text in texts.items():
            with suppress(ValueError, TypeError, RecursionError):  # not one of ours
                known[heartbeat.id] = {**said(text or b""), "heartbeat": heartbeat}
                read.add(heartbeat.id)
        if None not in texts.values():
            break
    return without_folded([known[id] for id in newest if id in known])


def without_folded(counters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counters without those of workers that stand in another's, as `check --repair` leaves them of ended workers."""
    folded = {id for found in counters for id in found.get("folded", ())}
    return [found for found in counters if found["heartbeat"].id not in folded]


def said(text: bytes) -> dict[str, Any]:
    """What a worker says of itself, without what has another shape than workers give it.

    TypeError or ValueError if it is none of ours.
    """
    facts = {**json.loads(text)}
    return {name: value for name, value in facts.items() if name not in SHAPES or SHAPES[name](value)}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and -1e18 < value < 1e18


def _dict_of(kind: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(kind, value.values()))


def _rows_of(*kinds: Check) -> Check:
    def fits(row: object) -> bool:
        return (
            isinstance(row, list)
            and len(row) == len(kinds)
            and all(fit(it) for fit, it in zip(kinds, row, strict=True))
        )

    return lambda value: isinstance(value, list) and all(map(fits, value))


NUMBERS = ("pid", "pages", "waiting", "in_flight", "hosts", "shards", "rate")
SHAPES: dict[str, Check] = {
    **dict.fromkeys((*NUMBERS, "redirects", "sitemaps", "retries", "bytes", "skipped"), _is_number),
    **dict.fromkeys(("reasons", "traps", "waiting_for"), _dict_of(_is_number)),
    "blocked": _dict_of(_is_text),
    "busiest": _rows_of(_is_text, _is_number),
    "slowest": _rows_of(_is_text, _is_number, _is_number, _is_number),
    "minutes": _rows_of(_is_number, _is_number),
}
