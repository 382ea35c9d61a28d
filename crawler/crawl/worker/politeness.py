"""A host's pace: when it may be requested next. Pure arithmetic; the clock and the randomness are passed in."""

from __future__ import annotations

import math
from typing import NamedTuple

from crawler.web import reasons
from crawler.web.page import Failure, Fetched

STRAINED = frozenset({"http-429", "http-503", "timeout", "connect"})
UNANSWERED = frozenset({"dns", "connect", "timeout", "tls"})
MIN_BACKOFF = 0.1  # seconds that are doubled where there is no delay
MAX_BACKOFF = 3600.0  # seconds
RECOVERY = 0.25  # how much of a doubling one good response takes back
MILD_STRAIN = 0.5  # what any other temporary failure adds: one page may fail alone, but not many in a row


class Pace(NamedTuple):
    """How strained a host is, and when it may be requested next."""

    strain: float
    due: float


def next_pace(strain: float, response: Fetched | Failure, delay: float, now: float, dice: float) -> Pace:
    """Return the pace after a response: `delay` from its end, doubled for each sign of strain, or Retry-After.

    `dice` is a random number from 0 to 1 that keeps machines from requesting in step.
    """
    first = max(delay, MIN_BACKOFF)
    # Capped at the longest wait: a host that has recovered must not need hours to be back at its pace.
    most = max(math.log2(MAX_BACKOFF / first), 0.0)
    strain = min(max(strain + _strain_of(response), 0.0), most)
    wait = min(first * 2**strain, MAX_BACKOFF) * (1 + dice / 4) if strain else delay
    if isinstance(response, Failure) and response.retry_after:
        wait = max(wait, response.retry_after)
    return Pace(strain, now + wait)


def is_answer(response: Fetched | Failure) -> bool:
    """Tell whether a host has answered at all, with whatever."""
    return isinstance(response, Fetched) or response.reason not in UNANSWERED


def _strain_of(response: Fetched | Failure) -> float:
    """Return what a response adds to a host's strain: 1 is a doubling; a good response lowers it."""
    if isinstance(response, Fetched) or not reasons.look_up(response.reason).retry:
        return -RECOVERY
    return 1.0 if response.reason in STRAINED else MILD_STRAIN


def retry_after(attempt: int, first: float, header: float | None, dice: float) -> float:
    """Return the seconds until a URL is retried after its (attempt + 1)-th failure."""
    return float(max(first * 2**attempt * (1 + dice / 4), header or 0.0))
