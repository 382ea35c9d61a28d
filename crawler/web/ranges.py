"""URL ranges as curl has them: `page=[0-90:30]`, `{a,b}`; and templates whose `{fields}` are filled in. Pure.

As in curl, several ranges in a URL give every combination, the last one running fastest. Unlike curl, brackets and
braces that cannot be a range stay as they are, because addresses such as `?a[]=1` are common; a step may be larger than
the range, because the last number of a paged list is often computed; and nothing can be nested.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from urllib.parse import quote

MAX_URLS = 10_000_000  # of one pattern: more would take hours to add, and is most likely a typing error

# The brackets of an IPv6 address come right after the scheme and a user name, and hold a colon but no other range.
_PART = re.compile(
    r"\\(?P<escaped>[][{}])"
    r"|(?P<address>(?<=//)\[[0-9A-Fa-f:.]*\]|(?<=@)\[[0-9A-Fa-f:.]*\])"
    r"|\[(?P<first>[0-9]+|[A-Za-z])-(?P<last>[0-9]+|[A-Za-z])(?::(?P<step>[0-9]+))?\]"
    r"|(?P<range>\[[^][{}]*-[^][{}]*\])"
    r"|\{(?P<set>[^][{}]*,[^][{}]*)\}"
    r"|(?P<open>\[(?:[0-9]+|[A-Za-z])-[^][{}]*|\{(?!.*\})[^][{}]*,[^][{}]*)"  # without its end
)
_FIELD = re.compile(r"\{([^{}]*)\}")


def expand(pattern: str) -> Sequence[str] | Iterator[str]:
    """Return the URLs that a pattern stands for, in order; ValueError if a range in it makes no sense."""
    texts, choices = [""], []
    end = 0
    for part in _PART.finditer(pattern):
        texts[-1] += pattern[end : part.start()] + (part["escaped"] or part["address"] or "")
        end = part.end()
        if part["escaped"] is None and part["address"] is None:
            choices.append(_choices(part))
            texts.append("")
    texts[-1] += pattern[end:]
    count = prod(map(len, choices))
    if count > MAX_URLS:
        raise ValueError(f"the ranges stand for {count:,} URLs, more than {MAX_URLS:,}; split them")
    return [texts[0]] if not choices else (_join(texts, chosen) for chosen in product(*choices))


def _join(texts: Sequence[str], chosen: Sequence[str]) -> str:
    return texts[0] + "".join(value + text for value, text in zip(chosen, texts[1:], strict=True))


def _choices(part: re.Match[str]) -> Sequence[str]:
    if part["set"] is not None:
        return part["set"].split(",")
    if part["range"] is not None:
        raise ValueError(
            f"{part['range']} is not a range such as [0-90], [0-90:30] or [a-z]; "
            "with --globoff brackets and braces are taken as they are"
        )
    if part["open"] is not None:
        raise ValueError(
            f"{part['open']} has no closing {']' if part['open'][0] == '[' else '}'}; "
            "with --globoff brackets and braces are taken as they are"
        )
    return _Range(part[0], part["first"], part["last"], int(part["step"] or 1))


class _Range(Sequence[str]):
    """The values of a range, made when they are needed: there may be millions."""

    def __init__(self, text: str, first: str, last: str, step: int) -> None:
        self._is_number = first.isdigit()
        low, high = (int(first), int(last)) if self._is_number and last.isdigit() else (ord(first[0]), ord(last[0]))
        if self._is_number != last.isdigit() or first.islower() != last.islower():
            raise ValueError(f"{text} is not a range: both ends must be numbers, or letters of one case")
        if high < low or step < 1:
            raise ValueError(f"{text} is an empty range; write the smaller end first, and a step of at least 1")
        self._values = range(low, high + 1, step)
        self._width = len(first) if first.startswith("0") else 0  # [001-100] keeps its zeros

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices are of no use here
        value = self._values[index]
        return str(value).zfill(self._width) if self._is_number else chr(value)


def fields(template: str) -> list[str]:
    """Return the names of a template's fields, in order and without repeats."""
    return list(dict.fromkeys(_FIELD.findall(template)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its fields replaced by values, each percent-encoded as one piece of a URL."""
    return _FIELD.sub(lambda field: quote(values[field[1]], safe=""), template)
