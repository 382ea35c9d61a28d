"""Folders as the script of sixty lines wrote them: no records, and keys made from URLs as they were spelled."""

from __future__ import annotations

import json
from hashlib import sha224
from pathlib import Path
from urllib.parse import urlsplit

from crawler.commands.demo.web import Web


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


def half(root: Path, web: Web, pages: int) -> list[str]:
    """What the script had after so many pages of a web, level by level; return their URLs."""
    waiting, done = list(web.seeds()), list[str]()
    while len(done) < pages:
        url = waiting.pop(0)
        leaf = web.leaf(url)
        assert leaf
        host, _, path = url.removeprefix("http://").partition("/")
        keep(root, url, web.reply(host, f"/{path}").body, list(leaf.links))
        waiting += leaf.links
        done.append(url)
    return done
