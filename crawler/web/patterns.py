"""Regular expressions on URLs that take linear time, whatever the pattern and the URL.

Python's `re` backtracks: `/([\\w-]+/?)+\\.pdf$` on one long URL runs for years, and no signal ends it. Here a pattern
is read by Python's own parser, so it means the same, and then run as a finite automaton: all ways to match are followed
at once, one character after the other. What was found is kept, so a character mostly costs one look into a dictionary.
Patterns that cannot backtrack much on a URL of the longest kind (`\\.pdf$`, `^https://a\\.example/.*/edit`) are left to
`re`, which is a hundred times faster.

Look-ahead and look-behind are run first, each over the whole text: where they hold is then a fact about a place in it,
as `^` or `\\b` is. Back references and what controls backtracking are refused by name.

Not promised: what a group has matched; there is only yes or no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from math import inf
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # without a public parser
from typing import Any

from crawler.web.urls import MAX_URL

MAX_STATES = 1000  # of an automaton: what a character costs at most
MAX_RE_STEPS = 200_000  # that `re` may need for one URL, at about a hundred a microsecond
MAX_KEPT = 20_000  # steps that are kept in memory, before all of them are forgotten
_SCOPED = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE
_TYPES = re.ASCII | re.LOCALE | re.UNICODE
_SPLIT, _JUMP, _PLACE, _CHARACTER, _END = range(5)  # instructions
_SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.ANY, _constants.IN)
_REPEAT = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_BEGINNING = (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING)
_LOOK = (_constants.ASSERT, _constants.ASSERT_NOT)
_REFUSED = {
    _constants.GROUPREF: "a back reference such as \\1; write out what it may stand for",
    _constants.GROUPREF_EXISTS: "a condition such as (?(1)a|b); write both cases as alternatives",
    _constants.ATOMIC_GROUP: "an atomic group (?>...); write (?:...), which cannot be slow here",
    _constants.POSSESSIVE_REPEAT: "a possessive quantifier such as *+; write *, which cannot be slow here",
}

Find = Callable[[str, list[int]], Iterable[int]]  # the places in a text where something holds; bits of what is known


class Pattern:
    """A pattern that is searched in texts."""

    def __init__(self, pattern: str) -> None:
        """Raise ValueError for what is no regular expression, or cannot be matched in linear time."""
        self.pattern = pattern
        try:
            self._re = re.compile(pattern)
            parsed = _parser.parse(pattern)
            self._places: list[Find] = []  # the n-th finds where the n-th bit is set
            self._automaton = self._build(parsed, parsed.state.flags, backwards=False)
            self._is_quick = _most_steps(parsed) <= MAX_RE_STEPS
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"must be a regular expression ({error})") from error

    def __reduce__(self) -> tuple[type[Pattern], tuple[str]]:
        return Pattern, (self.pattern,)

    def search(self, text: str) -> bool:
        """Tell whether the pattern is found in a text."""
        if self._is_quick and len(text) <= MAX_URL:
            return self._re.search(text) is not None
        bits = [0] * (len(text) + 1)
        for number, find in enumerate(self._places):
            for place in find(text, bits):
                bits[place] |= 1 << number
        return next(self._automaton.places(text, bits), None) is not None

    def _build(self, parsed: Iterable[Any], flags: int, backwards: bool) -> _Automaton:
        automaton = _Automaton(backwards)
        self._add(automaton, parsed, flags)
        automaton.finish()
        return automaton

    def _add(self, to: _Automaton, parsed: Iterable[Any], flags: int) -> None:
        """Add the instructions for a sequence; one that is read backwards begins with its end."""
        nodes = list(parsed)
        for kind, value in reversed(nodes) if to.backwards else nodes:
            if kind in _SINGLE:
                to.add(_CHARACTER, _single(kind, value, flags).match)
            elif kind is _constants.BRANCH:
                self._add_branches(to, value[1], flags)
            elif kind is _constants.SUBPATTERN:
                _, added, removed, inner = value
                self._add(to, inner, _combined(flags, added, removed))
            elif kind in _REPEAT:
                self._add_repeat(to, value, flags)
            else:
                to.add(_PLACE, *self._place(kind, value, flags))

    def _add_branches(self, to: _Automaton, branches: list[Any], flags: int) -> None:
        ends = []
        for branch in branches[:-1]:
            split = to.add(_SPLIT, 0, 0)
            self._add(to, branch, flags)
            ends.append(to.add(_JUMP, 0))
            to.code[split] = (_SPLIT, split + 1, len(to.code))
        self._add(to, branches[-1], flags)
        for end in ends:
            to.code[end] = (_JUMP, len(to.code))

    def _add_repeat(self, to: _Automaton, value: tuple[int, int, Any], flags: int) -> None:
        least, most, item = value
        for _ in range(least):
            size = len(to.code)
            self._add(to, item, flags)
            if len(to.code) == size:
                return  # of nothing, as in (){4000000000}: once is the same, and no limit of states would end this
        if most == _constants.MAXREPEAT:
            split = to.add(_SPLIT, 0, 0)
            self._add(to, item, flags)
            to.add(_JUMP, split)
            to.code[split] = (_SPLIT, split + 1, len(to.code))
            return
        splits = []
        for _ in range(most - least):
            splits.append(to.add(_SPLIT, 0, 0))
            self._add(to, item, flags)
        for split in splits:
            to.code[split] = (_SPLIT, split + 1, len(to.code))

    def _place(self, kind: Any, value: Any, flags: int) -> tuple[int, int]:
        """Return the bit of a condition on a place in the text, and the value that it must have."""
        if kind in _REFUSED:
            raise ValueError(f"cannot be matched in linear time: it has {_REFUSED[kind]}")
        if kind is _constants.AT:
            condition = _single(kind, value, flags)
            find: Find = partial(_all_places, condition)
        elif kind in _LOOK:
            direction, inner = value
            # What is ahead is searched from the end of the text, so that each place is passed once.
            find = self._build(inner, flags, backwards=direction > 0).places
        else:  # (?!), which holds nowhere
            find = _nowhere
        self._places.append(find)
        if len(self._places) > MAX_STATES:
            raise _too_large()
        bit = 1 << (len(self._places) - 1)
        return bit, 0 if kind is _constants.ASSERT_NOT else bit


class _Automaton:
    """Instructions, run for all ways to match at once. A set of instructions is a number with their bits."""

    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.code: list[tuple[Any, ...]] = []
        self._steps: dict[tuple[int, str, int], int] = {}
        self._closures: dict[tuple[int, int], int] = {}
        self._takers: dict[str, int] = {}

    def add(self, *instruction: Any) -> int:
        """Add an instruction and return its number; a character or a condition is followed by the next one."""
        if len(self.code) >= MAX_STATES:
            raise _too_large()
        self.code.append(instruction)
        return len(self.code) - 1

    def finish(self) -> None:
        """Add the end."""
        self._end = 1 << len(self.code)
        self.code.append((_END,))

    def places(self, text: str, bits: list[int]) -> Iterator[int]:
        """Yield the places where a match ends; where it begins, if it is read backwards."""
        place, step = (len(text), -1) if self.backwards else (0, 1)
        found = self._closure(0, bits[place])
        if found & self._end:
            yield place
        for character in reversed(text) if self.backwards else text:
            place += step
            key = found, character, bits[place]
            if (known := self._steps.get(key)) is None:
                known = self._step(*key)
            found = known
            if found & self._end:
                yield place

    def _step(self, found: int, character: str, bits: int) -> int:
        """Return where we are after a character: what takes it is passed, and a match may begin anew here."""
        taken = found & self._takers_of(character)
        after = self._closure(0, bits)
        while taken:
            lowest = taken & -taken
            after |= self._closure(lowest.bit_length(), bits)
            taken ^= lowest
        if len(self._steps) >= MAX_KEPT:
            self._steps.clear()
        self._steps[found, character, bits] = after
        return after

    def _takers_of(self, character: str) -> int:
        """Return the instructions that take a character."""
        known = self._takers.get(character)
        if known is None:
            if len(self._takers) >= MAX_KEPT:
                self._takers.clear()
            taking = (n for n, (kind, *rest) in enumerate(self.code) if kind == _CHARACTER and rest[0](character))
            known = self._takers[character] = sum(1 << number for number in taking)
        return known

    def _closure(self, start: int, bits: int) -> int:
        """Return what is reached from an instruction without a character, at a place with these bits."""
        known = self._closures.get((start, bits))
        if known is None:
            if len(self._closures) >= MAX_KEPT:
                self._closures.clear()
            known = self._closures[start, bits] = self._reach(start, bits)
        return known

    def _reach(self, start: int, bits: int) -> int:
        reached, seen, todo = 0, {start}, [start]
        while todo:
            number = todo.pop()
            kind, *rest = self.code[number]
            if kind in (_CHARACTER, _END):
                reached |= 1 << number
                continue
            if kind == _PLACE:
                rest = [number + 1] if bits & rest[0] == rest[1] else []
            todo += (next for next in rest if next not in seen)
            seen.update(rest)
        return reached


def _most_steps(parsed: Any) -> float:
    """Return a bound for the steps of `re` with a pattern on a URL: infinity for what we know no good one for."""
    nodes = list(parsed)
    is_anchored = nodes and nodes[0][0] is _constants.AT and nodes[0][1] in _BEGINNING
    starts = 1 if is_anchored and not parsed.state.flags & re.MULTILINE else MAX_URL + 1
    return starts * _ways_and_steps(nodes)[1]


def _ways_and_steps(parsed: Iterable[Any]) -> tuple[float, float]:
    """Return in how many ways a sequence may match from one place, and the steps to try all of them."""
    ways, steps = 1.0, 1.0
    for kind, value in parsed:
        more, cost = _ways_and_steps_of(kind, value)
        steps += ways * cost
        ways *= more
    return ways, steps


def _ways_and_steps_of(kind: Any, value: Any) -> tuple[float, float]:
    if kind in _SINGLE or kind is _constants.AT:
        return 1.0, 1.0
    if kind is _constants.SUBPATTERN:
        return _ways_and_steps(value[-1])
    if kind is _constants.BRANCH:
        found = [_ways_and_steps(branch) for branch in value[1]]
        return sum(ways for ways, _ in found), sum(steps for _, steps in found)
    if kind not in _REPEAT:
        return inf, inf
    least, most, item = value
    ways, steps = _ways_and_steps(item)
    if most <= 1:
        return ways + 1, steps + 1
    is_single = len(item) == 1 and item[0][0] in _SINGLE
    most = min(most, MAX_URL)
    return (most - min(least, most) + 1.0, most * steps) if is_single else (inf, inf)


def _too_large() -> ValueError:
    return ValueError(f"is too large (more than {MAX_STATES} states); shorten counts such as {{1,500}}")


def _combined(flags: int, added: int, removed: int) -> int:
    """Return the flags inside of a group such as (?i-s:...)."""
    if added & _TYPES:
        flags &= ~_TYPES
    return (flags | added) & ~removed


def _single(kind: Any, value: Any, flags: int) -> re.Pattern[str]:
    """Return what `re` makes of one character or one place: that has nothing to backtrack to."""
    state = _parser.State()
    state.flags = flags & (_SCOPED | _TYPES)
    made: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(kind, value)]))
    return made


def _all_places(condition: re.Pattern[str], text: str, bits: list[int]) -> Iterator[int]:
    return (found.start() for found in condition.finditer(text))


def _nowhere(text: str, bits: list[int]) -> Iterable[int]:
    return ()


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Pattern:
    """Return a pattern; many places need the same ones."""
    return Pattern(pattern)
