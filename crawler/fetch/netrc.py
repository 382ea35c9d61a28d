"""Files of logins as curl and ftp read them: `machine example.org login me password ...`."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from crawler.errors import UsageError

_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"(?=\s|$)|([^\s"]\S*)|(\S+)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
VALUES = ("login", "password", "account")

Token = tuple[int, str]  # with the number of its line


def read(text: str, where: str) -> dict[str, str]:
    """Return the Authorization header of each machine; UsageError names the line that is wrong, not its text.

    `default` is passed over: it would send a password to every host of a crawl.
    """
    try:
        logins = {name: _header(number, found) for number, name, found in _machines(_tokens(text))}
    except ValueError as error:
        raise UsageError(
            f"the netrc file {where}, line {error}; write `machine example.org login NAME password PASSWORD`"
        ) from None
    if not logins:
        raise UsageError(f"the netrc file {where} names no machine; add `machine example.org login NAME password ...`")
    return logins


def _machines(tokens: Iterator[Token]) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Yield the line, the name and the values of each machine; of two with one name, the first, as curl does."""
    name, line, found, seen = "", 0, dict[str, str](), set[str]()
    for number, token in tokens:
        if token in VALUES and line:
            found.setdefault(token, _next(tokens, number, token))
        elif token in ("machine", "default"):
            if name and name not in seen:
                yield line, name, found
            seen.add(name)
            name = _next(tokens, number, token).lower() if token == "machine" else ""
            line, found = number, {}
        else:
            raise ValueError(f"{number}: there must be `machine`, `default`, `login`, `password` or `account` here")
    if name and name not in seen:
        yield line, name, found


def _next(tokens: Iterator[Token], number: int, keyword: str) -> str:
    found = next(tokens, None)
    if found is None:
        raise ValueError(f"{number}: nothing comes after `{keyword}`")
    return found[1]


def _header(number: int, found: dict[str, str]) -> str:
    if not found.keys() >= {"login", "password"}:
        raise ValueError(f"{number}: the machine needs a login and a password")
    if ":" in found["login"]:
        raise ValueError(f"{number}: a login must not have a colon")
    pair = f"{found['login']}:{found['password']}".encode()
    return f"Authorization: Basic {base64.b64encode(pair).decode()}"


def _tokens(text: str) -> Iterator[Token]:
    """Yield the words of a file with the numbers of their lines; comments and macros are left out."""
    in_macro = False
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        in_macro = in_macro and bool(line.strip())
        if in_macro or line.lstrip().startswith("#"):
            continue
        for found in _TOKEN.finditer(line):
            quoted, plain, broken = found.groups()
            if broken is not None:
                raise ValueError(f"{number}: a quotation mark has no end")
            if plain == "macdef":
                in_macro = True
                break
            yield number, plain if quoted is None else _ESCAPE.sub(lambda it: _ESCAPED.get(it[1], it[1]), quoted)
