"""A program that is broken on purpose: texts in the source of functions in place of others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """In the source of a function, one text in place of another."""

    owner: Any
    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A broken program: which invariant, and within how many seeds of which profile it is found."""

    name: str
    invariant: str
    changes: tuple[Change, ...]
    profile: str | None = None
    within: int = 40
    only: tuple[str, ...] = ()  # kinds of trouble; all if none is named
    first: int = 0  # seed
    is_plain: bool = False  # whether hosts have no rules
