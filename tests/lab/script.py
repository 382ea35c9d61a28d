"""Folders as the script of sixty lines wrote them: no records, and keys made from URLs as they were spelled."""

from __future__ import annotations

import json
from hashlib import sha224
from pathlib import Path
from urllib.parse import urlsplit


def place(url: str) -> str:
    """`netloc/key` of a URL as the script spelled it."""
    return f"{urlsplit(url).netloc}/{sha224(url.encode()).hexdigest()[:24]}"


def write(root: Path, noun: str, url: str, data: str | bytes = b"") -> Path:
    """A file of the script."""
    path = root / noun / place(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def keep(root: Path, url: str, html: str | bytes, links: list[str]) -> None:
    """A page and its links."""
    write(root, "htmls", url, html)
    write(root, "links", url, json.dumps(links))
