"""Links that are in no element of a page: in its headers, among the values of JSON, and in `srcset`. Linear in time."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping

RELATIONS = frozenset({"next", "prev", "alternate", "canonical"})

_LINK = re.compile(r'<([^<>]*+)>((?:[^,"<]|"[^"]*+"?+)*+)')
_PARAMETER = re.compile(r';[\s]*+([\w*-]++)[\s]*+=[\s]*+(?:"([^"]*+)|([^\s;,"]++))', re.ASCII)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"[ \t\r\n]*+(:?)', re.DOTALL)
_ADDRESS = re.compile(r"https?:(?:\\?/){2}", re.IGNORECASE)
_SPACE = " \t\n\f\r"
_DESCRIPTOR = re.compile(r"(?:[^,()]|\([^)]*+\)?+)*+")


def in_headers(headers: Mapping[str, str], follow: Collection[str], skips_nofollow: bool = False) -> Iterator[str]:
    """Yield the links of the `Link` header whose relations are followed, as written."""
    wanted = RELATIONS.intersection(follow)
    for target, rest in _LINK.findall(_as_utf8(headers.get("link", ""))) if wanted else ():
        said = dict[str, str]()
        for name, quoted, plain in _PARAMETER.findall(rest):
            said.setdefault(name.lower(), quoted or plain)
        relations = set(said.get("rel", "").lower().split())
        # One with an anchor says where another page leads.
        if relations & wanted and not relations & _others(skips_nofollow) and "anchor" not in said:
            yield target.strip()


def _others(skips_nofollow: bool) -> set[str]:
    return {"stylesheet", "nofollow"} if skips_nofollow else {"stylesheet"}


def _as_utf8(value: str) -> str:
    """Return a header as browsers read raw bytes."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


def in_json(text: str) -> Iterator[str]:
    """Yield the absolute http and https URLs among the values of JSON, or of lines of it; broken JSON has some too."""
    for found in _STRING.finditer(text):
        inside, is_name = found.groups()
        if not is_name and _ADDRESS.match(inside):
            try:
                yield str(json.loads(f'"{inside}"', strict=False))
            except ValueError:
                continue


def in_srcset(value: str) -> Iterator[str]:
    """Yield the images of a `srcset`, by the standard's steps."""
    place = 0
    while place < len(value):
        while place < len(value) and value[place] in _SPACE + ",":
            place += 1
        start = place
        while place < len(value) and value[place] not in _SPACE:
            place += 1
        link = value[start:place]
        if link.rstrip(","):
            yield link.rstrip(",")
        if not link.endswith(","):
            place = _DESCRIPTOR.match(value, place).end()  # type: ignore[union-attr] # it matches nothing, too
