"""Selectors: where something is on a page. CSS and XPath for HTML, JSONPath for JSON; checked with the rules."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha224
from typing import Any, NamedTuple

import turbohtml

from crawler.settings.values import text

CSS, XPATH, JSONPATH = "CSS", "XPath", "JSONPath"


class Selector(NamedTuple):
    """Where to look from a row or a page: siblings first, then the path; an empty path is what one looks from."""

    path: str = ""
    attribute: str | None = None  # instead of the text
    kind: str = CSS
    siblings: tuple[tuple[str, str], ...] = ()  # + or ~, and what the sibling must match
    needles: tuple[tuple[str, str], ...] = ()  # an attribute that stands for `:contains(TEXT)`, and the text


ITSELF = Selector()


def read(value: Any) -> Selector:
    """Return the selector of a column, or raise ValueError."""
    given = text(value)
    kind = _kind(given)
    return _CHECKS[kind](given) if kind != CSS else _with_tail(given)


def read_rows(value: Any) -> Selector:
    """Return a selector of elements, or of JSON values, or raise ValueError."""
    given = text(value)
    kind = _kind(given)
    if kind == XPATH and _NO_ELEMENT.search(given):
        raise ValueError("must lead to elements; take their text or attribute in a column, such as ./@src")
    found = _CHECKS[kind](given)
    if found.siblings:
        raise ValueError("only a column's selector may begin with + or ~: it begins at the row")
    return found


def _kind(given: str) -> str:
    if re.match(r"\(|\.{0,2}/|\.\.?$", given):
        return XPATH
    return JSONPATH if given.startswith("$") else CSS


# ---- CSS

_TAIL = re.compile(r"(?P<css>.*?)(?P<tail>::(?:text|attr\(\s*(?P<name>[^\s()\"'<>/=]+)\s*\)))?", re.S)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_PREFIX = re.compile(rf"{_QUOTED}|(?P<bar>\|)(?!=)")
_CONTAINS = re.compile(rf"(?P<contains>:contains\(\s*(?P<text>{_QUOTED}|[^()\"']*?)\s*\))|{_QUOTED}")
_INNER = rf"(?:{_QUOTED}|[^()\"'])"
_STEP = re.compile(
    rf"\s*(?P<how>[+~])\s*(?P<what>(?:\[(?:{_QUOTED}|[^\]\"'])*\]|\((?:{_INNER}|\({_INNER}*\))*\)|[^\s>+~,()\[])+)"
)
_NO_ELEMENT = re.compile(r"(@[\w:*-]+|(text|comment|string|count|concat|normalize-space)\s*\([^()]*\))\s*\)*$")


def _with_tail(given: str) -> Selector:
    """Return what comes before ::text or ::attr(NAME), and the NAME."""
    found = _TAIL.fullmatch(given)
    assert found
    css = found["css"]
    if css != css.rstrip():
        raise ValueError(f"remove the space before {found['tail']}; text of elements within is included")
    selector = _css(css) if css or not found["tail"] else ITSELF
    return selector._replace(attribute=found["name"])


def _css(given: str) -> Selector:
    """Return a selector that all parsers understand in the same way."""
    if "::" in given:
        raise ValueError("only ::text and ::attr(NAME) are supported, at the end of a column's selector")
    if any(part["bar"] for part in _PREFIX.finditer(given)):
        raise ValueError("selectors with namespaces are not supported")
    needles: dict[str, str] = {}
    css = _CONTAINS.sub(lambda part: _needle(part, needles), given)
    siblings, path = _split_siblings(css)
    for part in [what for _, what in siblings] + ([path] if path else []):
        _check_css(part)
    return Selector(path, siblings=siblings, needles=tuple(needles.items()))


def _needle(part: re.Match[str], needles: dict[str, str]) -> str:
    """Return a test for an attribute that elements with this text will get: parsers do not know `:contains`."""
    if not part["contains"]:
        return part[0]
    quoted = part["text"][:1] in ("'", '"')
    wanted = " ".join((re.sub(r"\\(.)", r"\1", part["text"][1:-1]) if quoted else part["text"]).split())
    if not wanted:
        raise ValueError("`:contains` needs a text, such as td:contains('Total')")
    name = f"contains-{sha224(wanted.encode('utf-8', 'replace')).hexdigest()[:16]}"
    needles[name] = wanted
    return f"[{name}]"


def _split_siblings(css: str) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the steps to siblings that a selector begins with, and the rest of it."""
    steps = []
    rest = css
    while found := _STEP.match(rest):
        steps.append((found["how"], found["what"]))
        rest = rest[found.end() :]
    if steps and (_commas(rest) or [how for how, _ in steps].count("~") > 1):
        raise ValueError("after + or ~ at its beginning a selector has no comma and no other ~")
    return tuple(steps), f":scope {rest.strip()}" if steps and rest.strip() else rest


def _commas(css: str) -> bool:
    return "," in re.sub(rf"{_QUOTED}|\([^()]*\)", "", css)


def _check_css(css: str) -> None:
    from soupsieve import SelectorSyntaxError, compile

    try:
        turbohtml.parse("").select(css)
        compile(css)
    except (ValueError, SelectorSyntaxError, NotImplementedError) as error:
        said = str(error).splitlines()[0].removeprefix(f'invalid CSS selector "{css}": ')
        raise ValueError(f"must be a CSS selector ({said})") from error


# ---- XPath


def _xpath(given: str) -> Selector:
    """Return an XPath 1.0 expression."""
    called = set(re.findall(r"([\w:-]+)\s*\(", re.sub(_QUOTED, "", given)))
    try:
        turbohtml.parse("").xpath(given)
        for name in called:  # one that stands behind elements which the empty page lacks was not called
            _check_function(name)
    except ValueError as error:
        raise ValueError(f"must be an XPath ({str(error).removeprefix('xpath: ')})") from error
    return Selector(given, kind=XPATH)


def _check_function(name: str) -> None:
    try:
        turbohtml.parse("").xpath(f"{name}()")
    except ValueError as error:
        if "unknown function" in str(error):
            raise


# ---- JSONPath


def _jsonpath(given: str) -> Selector:
    """Return a JSONPath as RFC 9535 has it."""
    from jsonpath import JSONPathError

    try:
        compiled(given)
    except (JSONPathError, ValueError, RecursionError) as error:
        raise ValueError(f"must be a JSONPath ({str(error).partition(chr(10))[0]})") from error
    return Selector(given, kind=JSONPATH)


@lru_cache(maxsize=1000)
def compiled(path: str) -> Any:
    """Return a JSONPath, ready to be used."""
    from jsonpath import JSONPathEnvironment  # loaded only by rules for JSON

    return JSONPathEnvironment(strict=True).compile(path)


_CHECKS = {CSS: _css, XPATH: _xpath, JSONPATH: _jsonpath}
