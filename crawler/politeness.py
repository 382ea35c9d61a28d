"""A host's pace: when it may be asked next. Pure arithmetic, with the clock and the dice passed in."""

from __future__ import annotations

from dataclasses import dataclass

from crawler.records import Failure, Page

STRAINED = frozenset({"http-429", "http-503", "timeout", "connect"})
MOST = 15.0  # doublings: from a tenth of a second to about an hour
LEAST = 0.1  # what is doubled where there is no delay
LONGEST = 3600.0
EASE = 0.25  # how much of a doubling one good answer takes back


@dataclass(frozen=True, slots=True)
class Pace:
    """How strained a host is, and when it may be asked next."""

    strain: float
    due: float


def next_pace(strain: float, answer: Page | Failure, delay: float, now: float, dice: float) -> Pace:
    """The pace after an answer: `delay` from its end, doubled for each sign of strain, or what Retry-After says.

    `dice` is a number from 0 to 1 that keeps machines from asking in step.
    """
    if isinstance(answer, Failure) and answer.reason in STRAINED:
        strain = min(strain + 1, MOST)
    else:
        strain = max(strain - EASE, 0.0)
    wait = delay
    if strain:
        wait = min(max(delay, LEAST) * 2**strain, max(LONGEST, delay)) * (1 + dice / 4)
    if isinstance(answer, Failure) and answer.retry_after:
        wait = max(wait, answer.retry_after)
    return Pace(strain, now + wait)


def retry_after(attempt: int, first: float, wanted: float | None, dice: float) -> float:
    """Seconds until a URL is asked again after its (attempt + 1)-th failure."""
    return float(max(first * 2**attempt * (1 + dice / 4), wanted or 0.0))
