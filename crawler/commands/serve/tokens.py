"""The token of `serve`: whoever has it may read the store. Browsers exchange it for a cookie at their first request.

An order needs more than the cookie, which a browser also sends for pages of other ports of the same machine: a second
token, in a header or in the form, that only our own page can read.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from urllib.parse import urlencode

from crawler.commands.http_server import HttpRequest, Reply
from crawler.commands.serve.http import is_foreign, sentence, values, with_headers
from crawler.errors import UsageError
from crawler.fetch.trust import read_own

TOKEN = "CRAWLER_TOKEN"  # environment variable that fixes it
OPEN = "/healthz"  # for those who watch over containers: it says only whether the store responds
PARAMETER = "token"
HEADER = "x-crawler-token"
GOOD = re.compile(r"[A-Za-z0-9._~-]{16,200}")
NEEDED = (
    "a token is needed: open the address that `crawler serve` printed, or send the header 'Authorization: Bearer TOKEN'"
)

FOREIGN = "an order from another site's page is not carried out"
UNSIGNED = f"an order needs the header {HEADER}, or the field {PARAMETER}, with what /api/token says"


class Token:
    """One secret, in the three ways in which a request may show that it knows it."""

    def __init__(self, value: str, port: int = 0) -> None:
        """The port is part of the cookie's name: cookies are shared by all ports of a machine."""
        self.value = value
        self._name = f"crawler-{port}"
        # Not the token itself: other servers at other ports of this machine are sent the cookie, too.
        self._cookie = hashlib.sha256(b"cookie " + value.encode()).hexdigest()
        self.form = hashlib.sha256(b"form " + value.encode()).hexdigest()

    def check(self, request: HttpRequest, path: str, query: Mapping[str, str]) -> Reply | None:
        """Return None for a request that may be answered, otherwise the reply to it."""
        if path == OPEN or self._has_shown(request):
            return None
        if _same(query.get(PARAMETER, ""), self.value):
            return self._welcome(path, query)
        return sentence(403, NEEDED)

    def check_order(self, request: HttpRequest, form: Mapping[str, str]) -> Reply | None:
        """Return None for an order that may be carried out, otherwise the reply to it."""
        if is_foreign(request):
            return sentence(403, FOREIGN)
        given = [*values(request, HEADER), form.get(PARAMETER, "")]
        if self._has_sent(request) or any(_same(one, self.form) for one in given):
            return None
        return sentence(403, UNSIGNED)

    def _has_shown(self, request: HttpRequest) -> bool:
        pairs = [pair.strip() for value in values(request, "cookie") for pair in value.split(";")]
        return self._has_sent(request) or any(_same(pair, self._pair) for pair in pairs)

    def _has_sent(self, request: HttpRequest) -> bool:
        """Return whether the token itself is in a header, where no page of another site can put it."""
        given = [value.partition(" ") for value in values(request, "authorization")]
        return any(kind.lower() == "bearer" and _same(token.strip(), self.value) for kind, _, token in given)

    @property
    def _pair(self) -> str:
        return f"{self._name}={self._cookie}"

    def _welcome(self, path: str, query: Mapping[str, str]) -> Reply:
        """Return a cookie, and the way to the same page without the token, which would stay in the history."""
        rest = urlencode({name: value for name, value in query.items() if name != PARAMETER})
        way = "/" + path.lstrip("/") + (f"?{rest}" if rest else "")  # never another host's: `//host/`
        cookie = f"{self._pair}; Path=/; HttpOnly; SameSite=Strict"
        return with_headers(sentence(303, "the token is right"), ("Location", way), ("Set-Cookie", cookie))


def _same(given: str, wanted: str) -> bool:
    """Compare without telling by the time it takes how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())


def fixed_token(file: str | None) -> str | None:
    """Return the token that the operator chose, in a file or in the environment; None if a new one is to be made."""
    if file is not None:
        where, value = file, read_own(file, "token file").strip()
    else:
        where, value = f"${TOKEN}", os.environ.get(TOKEN, "").strip()
        if not value:
            return None
    if not GOOD.fullmatch(value):
        raise UsageError(f"the token in {where} must have 16 to 200 letters, digits or . _ ~ -; `openssl rand -hex 32`")
    return value


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_hex(24)
