"""Checks of values: each takes what a person wrote and returns it as the program uses it, or raises ValueError."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from crawler.web import kinds, patterns
from crawler.web.addresses import networks

Check = Callable[[Any], Any]
SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def duration(value: Any) -> float:
    """Seconds: 90, "90s", "1.5m", "2h", "1d"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e-\d+)?)([smhd]?)", str(value).strip())
    if not found or isinstance(value, bool):
        raise ValueError("must be a duration such as 30s, 5m, 2h or 1d")
    return float(found[1]) * SECONDS[found[2]]


def some_time(value: Any) -> float:
    """The same, but more than nothing."""
    if not duration(value):
        raise ValueError("must be a duration of more than 0, such as 90s, 30m, 2h or 1d")
    return duration(value)


def show_duration(seconds: float, second: str = "") -> str:
    """Return seconds as a person would write them: 90, 5m, 2h, 1d; `second` is the unit of those without another."""
    unit = next((unit for unit in "dhm" if seconds and seconds % SECONDS[unit] == 0), second)
    return f"{seconds / SECONDS[unit]:.12g}{unit}"


def size(value: Any) -> int:
    """Bytes: 4096, "512K", "10M", "1G"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMG]?)B?", str(value).strip().upper())
    if not found or isinstance(value, bool):
        raise ValueError("must be a size such as 500K, 10M or 1G")
    return int(float(found[1]) * BYTES[found[2]])


def whole(least: int, most: int = 1 << 40) -> Check:
    """A whole number within bounds."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)) or not least <= int(value) <= most:
            raise ValueError(f"must be a whole number from {least}" + (f" to {most}" if most < 1 << 40 else ""))
        return int(value)

    return check


def choice(*allowed: str) -> Check:
    """One of these words."""

    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError("must be one of " + ", ".join(allowed))
        return str(value)

    return check


def yes_no(value: Any) -> bool:
    """true or false, as YAML or as a word."""
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if str(value).lower() not in words:
        raise ValueError("must be true or false")
    return words[str(value).lower()]


def text(value: Any) -> str:
    """One line of text."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("must be one line of text")
    return value.strip()


def line(value: Any) -> str:
    """One line of ASCII text, as in headers."""
    if not text(value).isascii():
        raise ValueError("must be one line of ASCII")
    return text(value)


def mime(value: Any) -> str:
    """A content type, a pattern of one or a word for some, in lower case."""
    return kinds.check(text(value))


def optional(check: Check) -> Check:
    """The same as `check`, or null."""
    return lambda value: None if value is None or value in ("null", "none") else check(value)


def several(check: Check) -> Check:
    """A list; a single value counts as a list of one."""

    def check_all(value: Any) -> tuple[Any, ...]:
        return tuple(check(item) for item in (value if isinstance(value, list | tuple) else [value]))

    return check_all


def by_pattern(check: Check) -> Check:
    """A mapping from host name patterns to values."""

    def check_each(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("must be a mapping such as `*.example.org: 5s`")
        return {line(pattern).lower(): check(item) for pattern, item in value.items()}

    return check_each


def by_regex(check: Check) -> Check:
    """A mapping from regular expressions to values."""

    def check_each(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError("must be a mapping such as {/news/: 9}")
        return {regex(pattern): check(item) for pattern, item in value.items()}

    return check_each


def share(value: Any) -> float:
    """A fraction: 0.1 or "10%"."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", str(value).strip())
    part = float(found[1]) / (100 if found[2] else 1) if found and not isinstance(value, bool) else 0.0
    if not 0 < part <= 1:
        raise ValueError("must be a fraction such as 0.1 or 10%")
    return part


def rate(value: Any) -> float:
    """A number a second, from one in ten seconds on."""
    if isinstance(value, bool) or not re.fullmatch(r"\d+(?:\.\d+)?", str(value).strip()) or float(value) < 0.1:
        raise ValueError("must be a number of at least 0.1")
    return float(value)


def network(value: Any) -> str:
    """A network of addresses."""
    try:
        networks((line(value),))
    except ValueError as error:
        raise ValueError("must be a network of addresses such as 192.0.2.0/24 or 2001:db8::/32") from error
    return line(value)


def region(value: Any) -> str:
    """The name of a region: it becomes part of file names."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", text(value)):
        raise ValueError("must be a name such as tokyo: small letters, digits, - and _, 32 at most")
    return text(value)


def regex(value: Any) -> str:
    """A regular expression that takes linear time."""
    text(value)
    patterns.compiled(value)
    return str(value)


def selector(value: Any) -> str:
    """A CSS selector."""
    from crawler.web.markup import check_selector  # here: the parser takes long to load, and few crawls have one

    return check_selector(text(value))


def by(check: Callable[[str], object]) -> Check:
    """A line of text that passes another module's check."""

    def check_text(value: Any) -> str:
        check(line(value))
        return line(value)

    return check_text


ADAPTIVE = "adaptive"


def interval(value: Any) -> float | str:
    """How often pages are visited again: a duration of at least a second, or `adaptive` with or without a mean."""
    words = str(value).split()
    if words[:1] == [ADAPTIVE] and len(words) <= 2:
        return f"{ADAPTIVE} {words[1]}" if words[1:] and _spaced(words[1]) else ADAPTIVE
    return _spaced(value)


def _spaced(value: Any) -> float:
    try:
        seconds = duration(value)
    except ValueError:
        seconds = 0.0
    if seconds < 1:
        raise ValueError("must be a duration of a second or more, such as 1h or 7d, or `adaptive`, or `adaptive 7d`")
    return seconds


def recrawl(value: Any) -> Any:
    """The same for all pages, or by the first pattern in a mapping that a URL matches; null there: never."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _mapping(value)
    if not isinstance(value, Mapping):
        return interval(value)
    return {_url_pattern(pattern): optional(interval)(item) for pattern, item in value.items()}


def _mapping(value: str) -> Any:
    from crawler.web import safe_yaml

    try:
        return safe_yaml.load(value)
    except ValueError as error:
        raise ValueError("must be a duration, adaptive, or a mapping such as {'/latest/': 1h, '*': 7d}") from error


def _url_pattern(value: Any) -> str:
    return "*" if value == "*" else str(regex(value))


def versions(value: Any) -> int | str:
    """How many: a whole number from 0, or all."""
    return "all" if value == "all" else int(whole(0)(value))
