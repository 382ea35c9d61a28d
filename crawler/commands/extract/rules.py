"""RULES.yaml: which pages, rows and columns to extract. Every mistake in it is an error that names the place."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from typing import Any

from crawler.commands.extract import selectors
from crawler.commands.extract.selectors import ITSELF, JSONPATH, XPATH, Selector
from crawler.errors import UsageError
from crawler.settings.values import Check, choice, line, several, text, yes_no
from crawler.web import safe_yaml, urls
from crawler.web.patterns import Pattern

URL = "url"  # a column that every output file has
ROW, PAGE = "row", "page"
MAX_COLUMNS = 500
INT_LIMIT = 1 << 63  # of an INTEGER in SQLite
FORMATTED = ("date", "datetime")
BOOL_WORDS = {"true": True, "yes": True, "on": True, "1": True, "": True}  # empty: an icon or an attribute
BOOL_WORDS |= {"false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: where its text is, how it is cleaned, and its type."""

    name: str
    selector: Selector = ITSELF
    source: str = ROW  # or PAGE, or URL
    regex: re.Pattern[str] | None = None
    replace: tuple[tuple[re.Pattern[str], str], ...] = ()
    type: str = "text"
    format: str | None = None
    required: bool = False
    default: Any = None

    def clean(self, found: str) -> str | None:
        """Apply `regex` and `replace` to a text; None if the regex does not match."""
        if self.regex and self.type != "bool":
            match = self.regex.search(found)
            if not match:
                return None
            found = (match[1] if self.regex.groups else match[0]) or ""
        for pattern, new in self.replace:
            found = pattern.sub(new, found)
        return found.strip()

    def convert(self, found: str, base: str) -> Any:
        """Return a text as a value of the column's type, or raise ValueError."""
        return TYPES[self.type](found, self, base)


@dataclass(frozen=True, slots=True)
class ExtractRules:
    """What to extract from which pages."""

    columns: tuple[Column, ...]
    rows: Selector | None = None  # None: one row per page
    table: Selector | None = None  # instead: the rows of these tables, whose header names more columns
    url: bool = True  # whether there is a column for the page's URL
    hosts: tuple[str, ...] = ()
    match: Pattern | None = None
    parser: str = "turbohtml"
    is_json: bool = False  # whether they are for JSON pages

    @property
    def names(self) -> list[str]:
        """Return the names of all columns that the rules name, the page's URL first."""
        return [URL, *(column.name for column in self.columns)]

    @property
    def selectors(self) -> list[Selector]:
        """Return all selectors."""
        named = [column.selector for column in self.columns if column.source != URL]
        return [*named, *filter(None, [self.rows, self.table])]

    def admits_host(self, host: str) -> bool:
        """Return whether pages of this host match."""
        return not self.hosts or any(host == pattern or fnmatchcase(host, pattern) for pattern in self.hosts)

    def admits(self, url: str) -> bool:
        """Return whether a page of such a host matches."""
        return not self.match or self.match.search(url)


# ---- types


def _int(found: str, column: Column, base: str) -> int:
    if not re.fullmatch(r"[+-]?\d{1,19}", found) or not -INT_LIMIT <= int(found) < INT_LIMIT:
        raise ValueError("not a whole number")
    return int(found)


def _float(found: str, column: Column, base: str) -> float:
    if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", found) or not math.isfinite(float(found)):
        raise ValueError("not a number")
    return float(found)


def _bool(found: str, column: Column, base: str) -> bool:
    """With a regex: whether it matches. Without one: what the word says; an empty text is true."""
    if column.regex:
        return bool(column.regex.search(found))
    if found.lower() not in BOOL_WORDS:
        raise ValueError("neither yes nor no")
    return BOOL_WORDS[found.lower()]


def _moment(found: str, column: Column) -> datetime:
    try:
        return datetime.strptime(found, column.format) if column.format else datetime.fromisoformat(found)
    except (ValueError, OverflowError):
        raise ValueError(f"not a {column.type} like {column.format or '2026-11-17'}") from None


def _url(found: str, column: Column, base: str) -> str:
    normalized = urls.normalize(found, base)
    if normalized is None:
        raise ValueError("not an http or https URL")
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


def read(data: str, where: str) -> ExtractRules:
    """Return the rules in a YAML text, checked."""
    given = _load(data, where)
    _check_names(given, RULES, where)
    if not given.get("columns") and "table" not in given:
        raise UsageError(f"{where}: `columns` is missing or empty; add at least one line such as `title: h1` below it")
    found = _checked({name: value for name, value in given.items() if name != "columns"}, RULES, where)
    rules = ExtractRules(columns=_columns(given.get("columns") or {}, where), **found)
    rules = replace(rules, is_json=any(selector.kind == JSONPATH for selector in rules.selectors))
    _check_together(rules, where)
    return rules


def _check_together(rules: ExtractRules, where: str) -> None:
    """Raise an error for what is right by itself, but not together."""
    kinds = {selector.kind for selector in rules.selectors}
    if rules.table and rules.rows:
        raise UsageError(f"{where} has both `rows` and `table`; remove one: the rows of a table are its own")
    if rules.is_json and (len(kinds) > 1 or rules.table):
        raise UsageError(f"{where} mixes JSONPath with selectors for HTML; write rules for each of the two")
    if XPATH in kinds and rules.parser == "html5lib":
        raise UsageError(f"{where}: XPath works only with `parser: turbohtml`; remove `parser`, or use CSS selectors")
    for column in rules.columns if rules.rows or rules.table else ():
        path = column.selector.path
        if column.source == ROW and column.selector.kind == XPATH and re.match(r"\(?/", path):
            raise UsageError(
                f"{where}: columns: {column.name}: {path} begins at the page and would be the same in every row; "
                f"write .{path.lstrip('(')} to look within the row, or add `from: page`"
            )


def _columns(given: Any, where: str) -> tuple[Column, ...]:
    if not isinstance(given, dict):
        raise UsageError(f"{where}: columns must be lines of `name: selector`, such as `title: h1`")
    if len(given) > MAX_COLUMNS:
        raise UsageError(f"{where}: {len(given)} columns; the limit is {MAX_COLUMNS}")
    seen = {URL: URL}
    for name in given:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise UsageError(f"{where}: columns: the name {name!r} is not text; put it in quotes")
        if name.lower() in seen:
            why = "exists in every output" if name.lower() == URL else f"differs from {seen[name.lower()]} only in case"
            raise UsageError(f"{where}: columns: {name} {why}; choose another name")
        seen[name.lower()] = name
    return tuple(_column(name, about, f"{where}: columns: {name}") for name, about in given.items())


def _column(name: str, about: Any, where: str) -> Column:
    given = {"selector": about} if isinstance(about, str) else about
    if not isinstance(given, dict):
        raise UsageError(f"{where} is {about!r}; write a selector, or `selector: ...` and other keys on lines below it")
    _check_names(given, COLUMN, where)
    found = _checked(given, COLUMN, where)
    source = found.pop("from", ROW)
    if ("selector" in found) == (source == URL):
        what = "must not have a selector" if source == URL else "has no selector"
        raise UsageError(f"{where} {what}; each column has either `selector: ...` or `from: url`")
    column = Column(name, found.pop("selector", ITSELF), source, **found)
    _check_contradictions(column, given, where)
    return column


def _check_contradictions(column: Column, given: Mapping[str, Any], where: str) -> None:
    if column.format and column.type not in FORMATTED:
        raise UsageError(f"{where}: format works only with the types {' and '.join(FORMATTED)}, not with {column.type}")
    if column.selector.siblings and column.source == PAGE:
        raise UsageError(f"{where}: a selector that begins with + or ~ begins at a row; remove `from: page`")
    if column.required and "default" in given:
        raise UsageError(f"{where} is required and has a default; remove one of the two")
    if column.default is not None and not _fits(column):
        raise UsageError(f"{where}: default is {column.default!r}, which is not of type {column.type}")


def _fits(column: Column) -> bool:
    value = column.default
    if column.type == "list":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    wanted: Any = {"int": int, "float": (int, float), "bool": bool}.get(column.type, str)
    if not isinstance(value, wanted) or isinstance(value, bool) != (column.type == "bool"):
        return False
    return isinstance(value, str | bool) or (math.isfinite(value) and -INT_LIMIT <= value < INT_LIMIT)


def _checked(given: Mapping[str, Any], checks: Mapping[str, Check], where: str) -> dict[str, Any]:
    found = {}
    for name, value in given.items():
        try:
            found[name] = checks[name](value)
        except ValueError as error:
            raise UsageError(f"{where}: {name} is {value!r}: {error}") from error
    return found


def _check_names(given: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(known)}"
            raise UsageError(f"{where}: unknown key {name!r}; {hint}")


def _host(value: Any) -> str:
    """Return a pattern of hosts, or a normalized host."""
    given = text(value).lower()
    normalized = None if set("*?[") & set(given) else urls.normalize(f"http://{given}/")
    return urls.host(normalized) if normalized else line(given)


def _pattern(value: Any) -> re.Pattern[str]:
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
            raise ValueError(f"{new!r} cannot replace {pattern.pattern!r} ({error})") from error
    return found


def _default(value: Any) -> Any:
    if isinstance(value, date):  # YAML reads 2026-11-17 as one
        return value.isoformat()
    if isinstance(value, str) and not _is_whole(value):
        raise ValueError("must be text")
    return value


def _is_whole(value: str) -> bool:
    """Return whether a text can be written to a file: YAML can express lone surrogates."""
    return not re.search("[\ud800-\udfff\0]", value)


def _format(value: Any) -> str:
    """Return a format that strptime can read."""
    try:
        datetime.strptime(datetime(2026, 11, 17, 9, 30, 15, tzinfo=UTC).strftime(text(value)), value)
    except (ValueError, re.error) as error:
        raise ValueError(f"must be a format such as '%d.%m.%Y %H:%M' ({error})") from error
    return str(value)


RULES: dict[str, Check] = {
    "hosts": several(_host),
    "match": lambda value: Pattern(text(value)),
    "parser": choice("turbohtml", "html5lib"),
    "rows": selectors.read_rows,
    "table": selectors.read_rows,
    "url": yes_no,
    "columns": dict,
}
COLUMN: dict[str, Check] = {
    "selector": selectors.read,
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
        loaded = safe_yaml.load(data)
    except ValueError as error:
        hint = "; put regular expressions in single quotes" if "escape" in str(error) else ""
        raise UsageError(f"{where} is not valid YAML: {error}{hint}") from error
    if not isinstance(loaded, dict):
        raise UsageError(f"{where} must be lines of `name: value` with `columns`; see `crawler help extract`")
    return loaded
