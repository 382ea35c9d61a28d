"""WARC records: how they are written, one gzip member each, and what of them goes into an index (CDXJ)."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crawler.web.surt import surt

VERSION = b"WARC/1.1\r\n"
REVISIT_PROFILE = "http://netpreservation.org/warc/1.1/revisit/identical-payload-digest"
HTTP_REQUEST, HTTP_RESPONSE = "application/http;msgtype=request", "application/http;msgtype=response"
FIELDS = "application/warc-fields"
MAX_HEAD = 512 << 10  # bytes of a record's and a response's headers, as far as an index needs them
_END = b"\r\n\r\n"
_LEVEL = 4  # of compression: bodies mostly come compressed, and pages should not wait for the rest


def digest(*pieces: bytes) -> str:
    """Return the SHA-1 of bytes in the notation of WARC files."""
    sha1 = hashlib.sha1(usedforsecurity=False)
    for piece in pieces:
        sha1.update(piece)
    return "sha1:" + base64.b32encode(sha1.digest()).decode()


def record(kind: str, fields: Mapping[str, str], content_type: str, *block: bytes) -> bytes:
    """Return a record as a gzip member; the block is its pieces one after the other."""
    length = sum(map(len, block))
    lines = {
        "WARC-Type": kind,
        **fields,
        "WARC-Block-Digest": digest(*block),
        "Content-Type": content_type,
        "Content-Length": str(length),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return member([VERSION, head.encode(), b"\r\n", *block, _END])


def member(pieces: Iterable[bytes]) -> bytes:
    """Return bytes as one gzip member."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def warcinfo(fields: Mapping[str, str], about: Mapping[str, str]) -> bytes:
    """Return the record that describes a file."""
    told = "".join(f"{name}: {value}\r\n" for name, value in about.items()).encode()
    return record("warcinfo", fields, FIELDS, told)


@dataclass(frozen=True, slots=True)
class Entry:
    """What an index says of a response."""

    url: str
    date: str  # as in WARC-Date
    mime: str
    status: str
    digest: str

    def line(self, offset: int, length: int, filename: str) -> str:
        """Return the line of the index for a record at this place."""
        facts = {
            "url": self.url,
            "mime": self.mime,
            "status": self.status,
            "digest": self.digest.removeprefix("sha1:"),
            "length": str(length),
            "offset": str(offset),
            "filename": filename,
        }
        stamp = "".join(filter(str.isdigit, self.date))[:14]
        return f"{surt(self.url)} {stamp} {json.dumps({name: value for name, value in facts.items() if value})}\n"


def entry_of(kind: str, fields: Mapping[str, str], head: bytes) -> Entry | None:
    """Return what an index says of a record, by its fields and the head of its block; None if it says nothing."""
    if kind not in ("response", "revisit"):
        return None
    lines = head.partition(_END)[0].decode("latin-1").split("\r\n")
    words = lines[0].split(" ", 2)
    names = {name.lower(): value for name, _, value in (line.partition(":") for line in reversed(lines[1:]))}
    mime = names.get("content-type", "").partition(";")[0].strip().lower()
    return Entry(
        fields.get("WARC-Target-URI", ""),
        fields.get("WARC-Date", ""),
        "warc/revisit" if kind == "revisit" else mime if _is_word(mime) else "unk",
        words[1] if len(words) > 1 and words[1].isdigit() else "-",
        fields.get("WARC-Payload-Digest", ""),
    )


def _is_word(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def read_head(start: bytes) -> tuple[str, dict[str, str], bytes] | None:
    """Return the type, the fields and the beginning of the block of a record that begins like this; None if it is none.

    Only for records as `record` writes them: each field once, under its own name.
    """
    head, end, block = start.partition(_END)
    first, _, rest = head.partition(b"\r\n")
    if not end or not first.startswith(b"WARC/"):
        return None
    pairs = (line.partition(": ") for line in rest.decode("utf-8", "replace").split("\r\n"))
    fields = {name: value for name, _, value in pairs}
    return fields.get("WARC-Type", ""), fields, block
