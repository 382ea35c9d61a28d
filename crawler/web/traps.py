"""Crawler traps: URLs of sites without end. Decided by the normalized URL and the current year alone.

A date far in the future is a trap anywhere; one long past only next to a calendar word, because newspaper archives are
finite. Numbers that may be something else (an id, a version, a map tile) count as a date only in the forms below. Not
every calendar is recognized.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from functools import cache

# Each rule can be switched off; `session` rejects nothing, but removes session ids from URLs. `extension` is about URLs
# of files that nobody wants: see `kinds`.
TRAPS = ("long", "repeat", "deep", "calendar", "session", "extension")

MAX_LENGTH = 1000  # characters
MAX_REPEATS = 2  # of one path segment
MAX_SEGMENTS = 20
YEARS_AHEAD, YEARS_BACK = 2, 30
SECONDS_OF_A_YEAR = 31_556_952


def trap(url: str, rules: Collection[str], year: int) -> str | None:
    """Return the rule that rejects a normalized URL in this year, or None."""
    if len(url) > MAX_LENGTH and "long" in rules:
        return "long"
    segments = url.partition("?")[0].removesuffix("/").split("/")[3:]
    if len(segments) > MAX_REPEATS and "repeat" in rules and _repeats(segments):
        return "repeat"
    if len(segments) > MAX_SEGMENTS and "deep" in rules:
        return "deep"
    if "calendar" in rules and _MAY_BE_DATED(url) and _is_endless(url[url.index("/") + 1 :].lower(), year):
        return "calendar"
    return None


def _repeats(segments: list[str]) -> bool:
    if len(segments) - len(set(segments)) < MAX_REPEATS:
        return False
    # Short numbers may repeat: in map tiles, in dates, in ids that are spread over folders digit by digit.
    counted = (segment for segment in segments if segment and not (segment.isdigit() and len(segment) <= 3))
    return max(Counter(counted).values(), default=0) > MAX_REPEATS


# ---- calendars

_NUMBERS = re.compile("[0-9]{4,}")
_MAY_BE_DATED = re.compile("[0-9]{4}|month", re.IGNORECASE | re.ASCII).search  # most URLs have no number of that length
_YEAR = r"((?:1[5-9]|20)\d\d)"
_M, _D = "(?:0[1-9]|1[0-2])", r"(?:0[1-9]|[12]\d|3[01])"
_NAME = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    "|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_END = "(?![0-9a-z]|-[a-z])"  # not in the middle of a title: 2030-10-year-plan
_PARAMETER = "[?&;](?:[^?&;=]*(?:[^?&;=a-z]|%5b|cal|get))?"  # with a prefix of its name: cal_, x[, %5B
_IS = r"(?:\]|%5d)?="

# Dates anywhere in a URL; the group is the year. Lookbehinds come late: a pattern that starts with something rare is
# fastest.
_DATES = (
    rf"([12]\d{{3}}|9999)(?<!\d....)(?<!\d-....)-{_M}-{_D}(?!\d)",  # 2031-05-12
    rf"[/=]{_YEAR}-(?:{_M}|w\d\d|{_NAME}){_END}",  # 2031-05, 2031-w20
    rf"[/=](?<!\d.){_YEAR}/(?:{_M}|{_NAME}){_END}",  # 2031/05, but not the tile 12/2031/10
    rf"[/=](?<!\d.)(2\d{{3}})/0[1-9]{_END}",  # 2999/05; 2999/10 may be the tenth page of a topic
    rf"[/=](?<!\d.){_YEAR}[/-]\d\d?[/-]\d\d?{_END}",  # 2031/5/12
    rf"[/=]{_NAME}(?:[/_+-]|%20)?{_YEAR}{_END}",  # may-2031
    rf"{_D}(?<![\d.-]..)(?:-{_D}-|\.{_M}\.){_YEAR}(?![\d.-])",  # 12-05-2031, 12.05.2031
    rf"/(?:0[1-9]/{_D}|{_D}/0[1-9])/{_YEAR}{_END}",  # 12/05/2031; 12/10/2031 may be a tile
)
_DATES_OF_QUERIES = (
    rf"=\d\d?(?:/|%2f)\d\d?(?:/|%2f){_YEAR}(?!\d)",  # date=5/12/2031
    rf"[?&;][^?&;=]*(?:year|yr|jahr|annee|anno){_IS}(\d{{4}})(?!\d)",
    rf"^[^?]*\?(?!(?:.*&)?x=)(?:.*&)?y={_YEAR}(?!\d)",  # y=2031, unless it is a map tile
    rf"[?&;][^?&;=]*(?:date|datum|month){_IS}(\d{{4}})-?{_M}(?:-?{_D})?(?!\d)",
    rf"{_PARAMETER}(?:dat|ym|m){_IS}(\d{{4}}){_M}(?:{_D})?(?!\d)",
    rf"{_PARAMETER}(?:day|d|from|to|start|end|since|until|when){_IS}(\d{{4}}){_M}{_D}(?!\d)",
)

_CALENDARS = "cal|calendars?|calendario|calendrier|kalender"
_EVENTS = "events?|eventos|evenements|veranstaltungen|termine|agenda|schedules?"
_WORD = re.compile(
    rf"[/?&=.](?:[a-z]+[_-])?(?:{_CALENDARS}|{_EVENTS})(?:[_-][a-z0-9]+)?(?=[/?&=.;]|$)"
    r"|[/=](?:view_|by)?(?:month|week|day)(?:_?view)?(?=[/?&.;]|$)"
)
_MONTH, _DAY = re.compile(f"{_PARAMETER}month{_IS}"), re.compile(f"{_PARAMETER}d(?:ay)?{_IS}")

# Dates only next to a calendar word; the group is the year, or seconds since 1970.
_SOON = r"((?:19|20|21)\d\d)"
_DATES_OF_CALENDARS = (
    rf"{_SOON}(?<!\d....)[/_-](?:w?\d\d?|{_NAME}){_END}",  # 2031/5
    rf"(?<!\d)(?:\d\d?|{_NAME})[/_.-]{_SOON}{_END}",  # 5/2031
    rf"[/_-]{_SOON}{_M}{_D}(?!\d)",
    rf"(?<![a-z])(?:{_CALENDARS}|month)[/=_-]{_SOON}(?:{_M})?(?![\w-])",  # cal/2031
    rf"(?<![a-z])(?:{_CALENDARS}|month)[/=_-]([2-9]\d{{3}})[/_-]\d\d?{_END}",  # cal/2999/5
    rf"([2-9]\d{{3}})(?<!\d....)-{_M}{_END}",
    r"(?<![a-z])events[/=]((?:20[2-9]|21\d)\d)(?![\w-])",  # events/1950 may be an id, or history
    rf"{_PARAMETER}(?:time|timestamp|ts|t|date|start){_IS}(\d{{9,11}})(?!\d)",
)
_COUNTER = re.compile(rf"(?:[?&;/\[]|%5b)(?:cal[_-]?)?month(?:\]|%5d)?[=/]-?(?!{_YEAR})\d{{3,}}(?!\d)", re.ASCII)


def _is_endless(text: str, year: int) -> bool:
    """Tell whether a lower-case URL, from the last slash before its host, has a date out of range."""
    if not _has_unusual_number(text, year):
        return False
    beside = _has_calendar_word(text)
    first = year - YEARS_BACK if beside else 0
    queries = _DATES_OF_QUERIES if "?" in text else ()
    for pattern in map(_compiled, (*_DATES, *queries, *(_DATES_OF_CALENDARS if beside else ()))):
        if any(not first <= _to_year(found) <= year + YEARS_AHEAD for found in pattern.findall(text)):
            return True
    return _COUNTER.search(text) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when it is first needed: all of them take 5 ms, and most runs of a command need none."""
    return re.compile(pattern, re.ASCII)


def _has_unusual_number(text: str, year: int) -> bool:
    """Tell whether the patterns are worth running: most links have no number that could be a distant year."""
    if "month" in text:
        return True
    runs = _NUMBERS.findall(text)
    if not runs:
        return False
    near = range(year - YEARS_BACK, year + YEARS_AHEAD + 1)
    for run in runs:
        if 9 <= len(run) <= 11:
            return True
        # Only queries have patterns for a year that begins with a zero; host names have such numbers.
        if len(run) in (4, 6, 8) and int(run[:4]) not in near and (run[0] != "0" or "?" in text):
            return True
    return False


def _has_calendar_word(text: str) -> bool:
    # A month without a day is a calendar's page; with a day it may be a newspaper's.
    return _WORD.search(text) is not None or (_MONTH.search(text) is not None and not _DAY.search(text))


def _to_year(found: str) -> int:
    return int(found) if len(found) == 4 else 1970 + int(found) // SECONDS_OF_A_YEAR


# ---- session ids

_SIGNS = ("sess", "s=", "id=", "cfid", "cftoken", "/(")  # every session id has one of these
_ID = (
    "(?:[0-9A-Za-z]{16,}|[0-9A-Fa-f-]{16,}"  # not a title: those have hyphens, or capitals only where words begin
    r"|(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[\w+/=,.~%-]{16,})"
)
_SESSION = re.compile(
    r"(?i:phpsessid|jsessionid|aspsessionid\w*|asp\.net_sessionid|cfid|cftoken)(?:=.*)?"
    rf"|(?i:(?:php|osc|xtc|mod)?s(?:ess(?:ion)?)?[_-]?id|sess|zenid|sess(?:ion)?[_-]?(?:key|token))={_ID}"
    r"|(?i:s|session)=[0-9a-fA-F]{32,}",
    re.ASCII,
)
_IN_PATH = re.compile(r"(?i)/\((?:[a-z]\([^()/]+\))+\)(?=/|$)")  # ASP.NET: /(S(lit3py55t21z5v55vlm25s55))/


def without_ids(url: str) -> str:
    """Return a URL without session ids, which may need normalizing again (`/..;jsessionid=1/`)."""
    lower = url.lower()
    if not any(sign in lower for sign in _SIGNS):
        return url
    path, mark, query = url.partition("?")
    if ";" in path:
        path = "/".join(_without(segment, ";") for segment in path.split("/"))
    path = _IN_PATH.sub("", path)
    kept = "&".join(piece for piece in query.split("&") if not _SESSION.fullmatch(piece))
    return f"{path}{mark}{kept}" if kept or not query else path


def _without(segment: str, mark: str) -> str:
    first, *parameters = segment.split(mark)
    return mark.join([first, *(piece for piece in parameters if not _SESSION.fullmatch(piece))])
