"""A host's pace: when it may be asked next. Pure arithmetic, with the clock and the dice passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crawler.web import reasons
from crawler.web.page import Failure, Fetched

STRAINED = frozenset({"http-429", "http-503", "timeout", "connect"})
LEAST = 0.1  # what is doubled where there is no delay
LONGEST = 3600.0
EASE = 0.25  # how much of a doubling one good answer takes back
FAILED = 0.5  # and how much any other failure that may pass adds: one page may fail alone, but not again and again


@dataclass(frozen=True, slots=True)
class Pace:
    """How strained a host is, and when it may be asked next."""

    strain: float
    due: float


def next_pace(strain: float, answer: Fetched | Failure, delay: float, now: float, dice: float) -> Pace:
    """The pace after an answer: `delay` from its end, doubled for each sign of strain, or what Retry-After says.

    `dice` is a number from 0 to 1 that keeps machines from asking in step.
    """
    first = max(delay, LEAST)
    # Not more than leads to the longest wait: a host that is well again must not need hours to show it.
    most = max(math.log2(LONGEST / first), 0.0)
    strain = min(max(strain + _strain_of(answer), 0.0), most)
    wait = first * 2**strain * (1 + dice / 4) if strain else delay
    if isinstance(answer, Failure) and answer.retry_after:
        wait = max(wait, answer.retry_after)
    return Pace(strain, now + wait)


def _strain_of(answer: Fetched | Failure) -> float:
    """How much an answer adds to a host's strain: a doubling for a sign of it, and less than nothing if all is well."""
    if isinstance(answer, Fetched) or not reasons.look_up(answer.reason).retry:
        return -EASE
    return 1.0 if answer.reason in STRAINED else FAILED


def retry_after(attempt: int, first: float, wanted: float | None, dice: float) -> float:
    """Seconds until a URL is asked again after its (attempt + 1)-th failure."""
    return float(max(first * 2**attempt * (1 + dice / 4), wanted or 0.0))
