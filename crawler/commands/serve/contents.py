"""Content that is not a page's text: images that a browser may show, text, and everything else as a download.

Nothing of it may act in the browser: only pictures made of dots are shown (a drawing, SVG, can hold scripts), and every
reply is sandboxed and must not be taken for another type than it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from crawler.commands.http_server import Reply
from crawler.commands.serve.http import reply, with_headers
from crawler.errors import NotThere
from crawler.store.mount import Files
from crawler.web import urls

IMAGE, TEXT, DOWNLOAD = "image", "text", "download"
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif")
TEXTS = re.compile(r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml|javascript|x-ndjson)")
POLICY = "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
LONGEST_NAME = 100

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """A file of the store that is about to be sent."""

    kind: str
    shown: str
    name: str
    size: int
    parts: Iterable[bytes]

    def reply(self) -> Reply:
        """Return the reply that shows it, or has the browser save it."""
        is_image = self.shown == IMAGE
        made = reply(200, b"", self.kind if is_image else "application/octet-stream", POLICY)
        how = "inline" if is_image else "attachment"
        made = with_headers(made, ("Content-Disposition", f'{how}; filename="{self.name}"'))
        return Reply(made.status, made.headers, parts=self.parts, size=self.size)


def name_of(url: str, record: Record) -> str | None:
    """Return the file of the store that holds a page's content; None if that is text, or the record says nonsense.

    People edit records, so the name is checked: it leads nowhere else.
    """
    leaf = record.get("file")
    is_ours = isinstance(leaf, str) and re.fullmatch(rf"{urls.key(url)}\.[0-9a-z]{{1,8}}", leaf)
    return f"files/{urls.host(url)}/{leaf}" if is_ours else None


def shown_as(record: Record) -> str:
    """Return how content of this type is shown."""
    kind = str(record.get("type"))
    return IMAGE if kind in IMAGES else TEXT if TEXTS.fullmatch(kind) else DOWNLOAD


def start_of(files: Files, name: str, size: int) -> str:
    """Return the first bytes of a file as text."""
    found = files.parts(name)
    start = b""
    for part in found[1] if found else ():
        start += part
        if len(start) >= size:
            break
    return start[:size].decode("utf-8", "replace")


def open_content(files: Files, url: str, record: Record) -> Content:
    """Open the file with a page's content; NotThere if it has none."""
    name = name_of(url, record)
    found = files.parts(name) if name else None
    if name is None or found is None:
        raise NotThere(f"{url} has no file in the store")
    last = url.partition("?")[0].rstrip("/").rpartition("/")[2]
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", last.rpartition(".")[0] or last).strip(".-")[:LONGEST_NAME]
    extension = name.rpartition("/")[2].partition(".")[2]
    return Content(str(record.get("type")), shown_as(record), f"{stem or 'file'}.{extension}", *found)
