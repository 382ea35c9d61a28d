"""Files of cookies in Netscape's format, as curl and the exporters of browsers write them."""

from __future__ import annotations

import re
from time import time

from crawler.errors import UsageError
from crawler.fetch.cookies import Cookie, OwnCookie, is_sendable
from crawler.web import urls

HTTP_ONLY = "#HttpOnly_"
FIELDS = "domain, TRUE or FALSE, path, TRUE or FALSE, expiry, name and value"
MAX_NAMED = 5  # wrong lines that a message names

_EXPIRY = re.compile(r"-?[0-9]{1,12}(\.[0-9]*)?", re.ASCII)


def read(text: str, where: str) -> tuple[OwnCookie, ...]:
    """Return the cookies of a file that have not expired; UsageError names the lines that are wrong, not their text."""
    found: list[OwnCookie] = []
    wrong: list[tuple[int, str]] = []
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        line = line.removeprefix(HTTP_ONLY)
        if line.strip() and not line.startswith("#"):
            try:
                found.append(_cookie(line))
            except ValueError as error:
                wrong.append((number, str(error)))
    if wrong:
        raise UsageError(f"the cookies file {where}, {_lines(wrong)}; export it again in Netscape's format")
    fresh = tuple(one for one in found if one.cookie.until > time())
    if not fresh:
        what = "has only cookies that have expired" if found else "has no cookies"
        raise UsageError(f"the cookies file {where} {what}; log in with a browser, and export them again")
    return fresh


def _lines(wrong: list[tuple[int, str]]) -> str:
    """Say which lines are wrong, and of the first of them why."""
    (first, why), *rest = wrong
    more = ", ".join(str(number) for number, _ in rest[: MAX_NAMED - 1])
    others = f" (also line{'s' if len(rest) > 1 else ''} {more}{' ...' if len(rest) >= MAX_NAMED else ''})"
    return f"line {first}: {why}" + (others if rest else "")


def _cookie(line: str) -> OwnCookie:
    fields = line.split("\t")
    if len(fields) == 6:  # an empty value whose tab an editor has removed
        fields.append("")
    if len(fields) != 7:
        raise ValueError(f"it must have 7 fields with tabs between them ({FIELDS}), but has {len(fields)}")
    where, below, path, secure, expiry, name, value = fields
    domain = _domain(where)
    if not path.startswith("/"):
        raise ValueError("the third field, a path, must begin with /")
    if not _EXPIRY.fullmatch(expiry):
        raise ValueError("the fifth field, the expiry, must be a number of seconds, or 0")
    if not is_sendable(name, value):
        raise ValueError("a cookie's name or value has characters that cannot be sent, or is too long")
    is_below = _yes_no(below, "second") and _may_have_names_below(domain)
    until = float(expiry) if float(expiry) > 0 else float("inf")
    return OwnCookie(domain, is_below, Cookie(name, f"{name}={value}", path, _yes_no(secure, "fourth"), until))


def _domain(where: str) -> str:
    """Return a domain as URLs have it."""
    url = urls.normalize(f"http://{where.removeprefix('.')}/")
    if url is None or url.count("/") != 3 or "/" in where or ":" in where.strip("[]").rpartition("]")[2]:
        raise ValueError("the first field must be a host or a domain, such as .example.org")
    return urls.host(url).strip("[]")


def _may_have_names_below(domain: str) -> bool:
    """Tell whether a domain can have names below it; ValueError if these belong to strangers, as those of co.uk do."""
    is_address = ":" in domain or domain.rpartition(".")[2].isdigit()
    if not is_address and "." in domain and urls.domain(domain) is None:
        raise ValueError("it is for a whole public suffix, under which anybody can have a name; give a domain below it")
    if not is_address and "." not in domain and domain != "localhost":
        raise ValueError("it is for a whole top-level domain; give a domain below it")
    return not is_address


def _yes_no(text: str, which: str) -> bool:
    if text.upper() not in ("TRUE", "FALSE"):
        raise ValueError(f"the {which} field must be TRUE or FALSE")
    return text.upper() == "TRUE"
