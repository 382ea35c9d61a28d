"""Untrusted text, made safe to print."""

from __future__ import annotations

import re

_USERINFO = re.compile(r"((?<=:)[/\\]++|[/\\]{2,}+)[^\s/\\?#]+@")


def printable(text: str) -> str:
    """Return untrusted text that is safe for a terminal: no control or bidirectional characters."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def masked(text: str) -> str:
    """Return the text with the user names and passwords of its URLs hidden."""
    return _USERINFO.sub(r"\1***@", text)
