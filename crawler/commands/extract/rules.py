"""RULES.yaml: which pages, which rows, which columns. Every mistake in it is one sentence that names the place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import Any

import turbohtml
import yaml

from crawler.errors import UsageError
from crawler.settings import Check, choice, line, several, text, yes_no
from crawler.web import urls

URL = "url"  # the column that is always there
ROW, PAGE = "row", "page"
MOST_COLUMNS = 500
MOST = 1 << 63  # what an INTEGER of SQLite holds
FORMATTED = ("date", "datetime")
WORDS = {"true": True, "yes": True, "on": True, "1": True, "": True}  # empty: it is there, as an icon or an attribute
WORDS |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: where its text is found, how that is cleaned, and what it must become."""

    name: str
    css: str = ""  # nothing: the row itself
    attribute: str | None = None  # instead of the text
    source: str = ROW  # or the whole page, or its URL
    regex: re.Pattern[str] | None = None
    replace: tuple[tuple[re.Pattern[str], str], ...] = ()
    type: str = "text"
    format: str | None = None
    required: bool = False
    default: Any = None

    def clean(self, found: str) -> str | None:
        """What is left of a text after `regex` and `replace`; None if the regex finds nothing in it."""
        if self.regex and self.type != "bool":
            match = self.regex.search(found)
            if not match:
                return None
            found = (match[1] if self.regex.groups else match[0]) or ""
        for pattern, new in self.replace:
            found = pattern.sub(new, found)
        return found.strip()

    def convert(self, found: str, base: str) -> Any:
        """A text as a value of the column's type; a ValueError if it is none."""
        return TYPES[self.type](found, self, base)


@dataclass(frozen=True, slots=True)
class Rules:
    """What to take from which pages."""

    columns: tuple[Column, ...]
    rows: str | None = None  # none: one row a page
    hosts: tuple[str, ...] = ()
    match: re.Pattern[str] | None = None
    parser: str = "turbohtml"

    @property
    def names(self) -> list[str]:
        """The names of all columns, the page's URL first."""
        return [URL, *(column.name for column in self.columns)]

    def admits_host(self, host: str) -> bool:
        """Whether pages of this host are wanted."""
        return not self.hosts or any(host == pattern or fnmatchcase(host, pattern) for pattern in self.hosts)

    def admits(self, url: str) -> bool:
        """Whether a page of such a host is wanted."""
        return not self.match or bool(self.match.search(url))


# ---- what a text becomes


def _int(found: str, column: Column, base: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", found) or not -MOST <= int(found) < MOST:
        raise ValueError("no whole number")
    return int(found)


def _float(found: str, column: Column, base: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", found) or not math.isfinite(float(found)):
        raise ValueError("no number")
    return float(found)


def _bool(found: str, column: Column, base: str) -> bool:
    """With a regex: whether it is found. Without: what the word says, and that there is something if it is empty."""
    if column.regex:
        return bool(column.regex.search(found))
    if found.lower() not in WORDS:
        raise ValueError("neither yes nor no")
    return WORDS[found.lower()]


def _moment(found: str, column: Column) -> datetime:
    try:
        return datetime.strptime(found, column.format) if column.format else datetime.fromisoformat(found)
    except (ValueError, OverflowError):
        raise ValueError(f"no {column.type} like {column.format or '2026-11-17'}") from None


def _url(found: str, column: Column, base: str) -> str:
    normalized = urls.normalize(found, base)
    if normalized is None:
        raise ValueError("no http or https URL")
    return normalized


TYPES: dict[str, Callable[[str, Column, str], Any]] = {
    "text": lambda found, column, base: found,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "date": lambda found, column, base: _moment(found, column).date().isoformat(),
    "datetime": lambda found, column, base: _moment(found, column).isoformat(),
    "url": _url,
    "list": lambda found, column, base: found,  # each of its texts
}


# ---- from YAML


def read(data: str, where: str) -> Rules:
    """The rules in a YAML text, checked."""
    given = _load(data, where)
    _stop_at_strangers(given, RULES, where)
    if not given.get("columns"):
        raise UsageError(f"{where}: there are no `columns`; write at least one line such as `title: h1` below it")
    found = _checked({name: value for name, value in given.items() if name != "columns"}, RULES, where)
    return Rules(columns=_columns(given["columns"], where), **found)


def _columns(given: Any, where: str) -> tuple[Column, ...]:
    if not isinstance(given, dict):
        raise UsageError(f"{where}: columns must be lines of `name: selector`, such as `title: h1`")
    if len(given) > MOST_COLUMNS:
        raise UsageError(f"{where}: columns has {len(given)} lines; at most {MOST_COLUMNS} are possible")
    seen = {URL: URL}
    for name in given:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise UsageError(f"{where}: columns: the name {name!r} is no text; write it in quotes")
        if name.lower() in seen:
            why = "is always there" if name.lower() == URL else f"differs from {seen[name.lower()]} by case alone"
            raise UsageError(f"{where}: columns: {name} {why}; take another name")
        seen[name.lower()] = name
    return tuple(_column(name, about, f"{where}: columns: {name}") for name, about in given.items())


def _column(name: str, about: Any, where: str) -> Column:
    given = {"selector": about} if isinstance(about, str) else about
    if not isinstance(given, dict):
        raise UsageError(f"{where} is {about!r}; write a selector, or `selector: ...` and more on lines below it")
    _stop_at_strangers(given, COLUMN, where)
    found = _checked(given, COLUMN, where)
    source = found.pop("from", ROW)
    if ("selector" in found) == (source == URL):
        what = "needs no selector" if source == URL else "has no selector"
        raise UsageError(f"{where} {what}; each column has either `selector: ...` or `from: url`")
    css, attribute = found.pop("selector", ("", None))
    column = Column(name, css, attribute, source, **found)
    _stop_at_contradictions(column, given, where)
    return column


def _stop_at_contradictions(column: Column, given: Mapping[str, Any], where: str) -> None:
    if column.format and column.type not in FORMATTED:
        raise UsageError(f"{where}: a format is for the types {' and '.join(FORMATTED)}, not for {column.type}")
    if column.required and "default" in given:
        raise UsageError(f"{where} is required and has a default, so that it is never missing; remove one of the two")
    if column.default is not None and not _fits(column):
        raise UsageError(f"{where}: default is {column.default!r}, which is not of the type {column.type}")


def _fits(column: Column) -> bool:
    value = column.default
    if column.type == "list":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    wanted: Any = {"int": int, "float": (int, float), "bool": bool}.get(column.type, str)
    if not isinstance(value, wanted) or isinstance(value, bool) != (column.type == "bool"):
        return False
    return isinstance(value, str | bool) or (math.isfinite(value) and -MOST <= value < MOST)


def _checked(given: Mapping[str, Any], checks: Mapping[str, Check], where: str) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        try:
            found[name] = checks[name](value)
        except ValueError as error:
            raise UsageError(f"{where}: {name} is {value!r}: {error}") from error
    return found


def _stop_at_strangers(given: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise UsageError(f"{where}: {name!r} is not known; {hint}")


def _host(value: Any) -> str:
    """A pattern of hosts, or a host in its one spelling."""
    given = text(value).lower()
    normalized = None if set("*?[") & set(given) else urls.normalize(f"http://{given}/")
    return urls.host(normalized) if normalized else line(given)


def _pattern(value: Any) -> re.Pattern[str]:
    """A regular expression that compiles."""
    try:
        return re.compile(text(value))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"must be a regular expression ({error})") from error


def _replacements(value: Any) -> tuple[tuple[re.Pattern[str], str], ...]:
    if not isinstance(value, dict) or not all(isinstance(new, str) and _is_whole(new) for new in value.values()):
        raise ValueError("must be lines of `'regex': 'new text'`")
    found = tuple((_pattern(old), new) for old, new in value.items())
    for pattern, new in found:
        try:
            pattern.sub(new, "")
        except (re.error, IndexError) as error:
            raise ValueError(f"{new!r} cannot stand for {pattern.pattern!r} ({error})") from error
    return found


def _default(value: Any) -> Any:
    if isinstance(value, date):  # YAML reads 2026-11-17 as one
        return value.isoformat()
    if isinstance(value, str) and not _is_whole(value):
        raise ValueError("must be text")
    return value


def _is_whole(value: str) -> bool:
    """Whether all of it can be written to a file: YAML may spell half of a character."""
    return not re.search("[\ud800-\udfff\0]", value)


def _format(value: Any) -> str:
    """A format of strptime that reads what it writes."""
    try:
        datetime.strptime(datetime(2026, 11, 17, 9, 30, 15, tzinfo=UTC).strftime(text(value)), value)
    except (ValueError, re.error) as error:
        raise ValueError(f"must be a format such as '%d.%m.%Y %H:%M' ({error})") from error
    return str(value)


# ---- selectors

_TAIL = re.compile(r"(?P<css>.*?)(?P<tail>::(?:text|attr\(\s*(?P<name>[^\s()\"'<>/=]+)\s*\)))?", re.S)
_PREFIX = re.compile(r"\"[^\"]*\"|'[^']*'|(?P<bar>\|)(?!=)")


def _selector(value: Any) -> tuple[str, str | None]:
    """What stands before ::text or ::attr(NAME), and the NAME."""
    found = _TAIL.fullmatch(text(value))
    assert found
    css = found["css"]
    if css != css.rstrip():
        raise ValueError(f"put {found['tail']} right behind what it is of; text within that is part of it")
    return _css(css) if css or not found["tail"] else "", found["name"]


def _css(value: Any) -> str:
    """A selector that all parsers understand, and understand alike."""
    from soupsieve import SelectorSyntaxError, compile

    css = text(value)
    if "::" in css:
        raise ValueError("there is only ::text and ::attr(NAME), at the end and for columns alone")
    if any(part["bar"] for part in _PREFIX.finditer(css)):
        raise ValueError("selectors with namespaces are not possible")
    try:
        turbohtml.parse("").select(css)
        compile(css)
    except (ValueError, SelectorSyntaxError, NotImplementedError) as error:
        said = str(error).splitlines()[0].removeprefix(f'invalid CSS selector "{css}": ')
        raise ValueError(f"must be a CSS selector ({said})") from error
    return css


RULES: dict[str, Check] = {
    "hosts": several(_host),
    "match": _pattern,
    "parser": choice("turbohtml", "html5lib"),
    "rows": _css,
    "columns": dict,
}
COLUMN: dict[str, Check] = {
    "selector": _selector,
    "from": choice(ROW, PAGE, URL),
    "regex": _pattern,
    "replace": _replacements,
    "type": choice(*TYPES),
    "format": _format,
    "required": yes_no,
    "default": _default,
}


def _load(data: str, where: str) -> dict[Any, Any]:
    try:
        for mark, name in _repeated(yaml.compose(data)):
            raise UsageError(f"{where}: {name} stands twice, the second time in line {mark.line + 1}; remove one")
        loaded = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        at = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        place = f" in line {at.line + 1}" if at else ""
        hint = "; regular expressions are best put in single quotes" if "escape" in said else ""
        raise UsageError(f"{where} is not valid YAML: {said}{place}{hint}") from error
    if not isinstance(loaded, dict):
        raise UsageError(f"{where} must be lines of `name: value` with `columns` among them; the README has an example")
    return loaded


def _repeated(node: yaml.Node | None) -> Iterator[tuple[yaml.Mark, str]]:
    """Each name that stands twice in one mapping: YAML would let the last one count without a word."""
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for name, value in node.value:
            if name.value in seen and isinstance(name, yaml.ScalarNode):
                yield name.start_mark, name.value
            seen.add(name.value if isinstance(name, yaml.ScalarNode) else None)
            yield from _repeated(value)
