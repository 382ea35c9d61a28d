"""Text from strangers, made fit to be printed."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"((?<=:)[/\\]++|[/\\]{2,}+)[^\s/\\?#]+@")


def printable(text: str) -> str:
    """Text from the web or a user as a terminal may see it: no control characters, nothing that turns text around."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def masked(text: str) -> str:
    """The same text with the user names and passwords of its URLs hidden."""
    return _USERINFO.sub(r"\1***@", text)
