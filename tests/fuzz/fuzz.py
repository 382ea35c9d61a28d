"""A fuzz target for all that reads what strangers wrote: URLs, pages, robots.txt, sitemaps, batches.

`make fuzz SECONDS=300` runs it with atheris, which follows the branches of our own code. What must hold is asserted
here; any other exception, a hang or a gigabyte is a find, and is left in .fuzz/ as a file that repeats it:
`python tests/fuzz/fuzz.py .fuzz/crash-...`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import atheris

with atheris.instrument_imports(include=["crawler"]):
    from crawler.frontier import batches
    from crawler.web import charset, markup, robots, sitemap, traps, urls
    from crawler.web.page import Fetched, Unreadable

BASE = "https://a.example/dir/page?q=1"
TYPES = [
    "text/html",
    "text/html; charset=",
    "application/xhtml+xml",
    "",
    "text/plain; charset=utf-16",
    "application/xml",
]


def spelling(data: atheris.FuzzedDataProvider) -> None:
    """A spelling is stable, safe as a path, and no rule about it fails."""
    normalized = urls.normalize(data.ConsumeUnicode(3000), BASE if data.ConsumeBool() else None)
    if normalized is None:
        return
    assert urls.normalize(normalized) == normalized
    assert urls.is_safe(normalized)
    host = urls.host(normalized)
    assert host not in (".", "..") and "/" not in host and "\0" not in host and len(host) <= urls.MAX_NETLOC
    plain = urls.without_session(normalized)
    assert urls.normalize(plain) == plain and urls.without_session(plain) == plain
    assert urls.trap(normalized, traps.TRAPS, 2026) in (None, *traps.TRAPS)
    urls.domain(host)


def joining(data: atheris.FuzzedDataProvider) -> None:
    """The links of a page are normalized as each would be alone, though plainly written ones are only joined."""
    page = data.PickValueInList([BASE, "http://a.example/", data.ConsumeUnicode(100)])
    links = data.ConsumeUnicode(3000).split("\n")
    assert list(urls.normalize_links(links, page)) == [urls.normalize(link, page) for link in links]


def page(data: atheris.FuzzedDataProvider) -> None:
    """Any page is read, or refused by name; its links are spelled, its text and title can be written."""
    parser = data.PickValueInList(["turbohtml"] * 9 + ["html5lib"])
    kind = data.PickValueInList(TYPES) + data.ConsumeUnicodeNoSurrogates(10)
    headers = {"content-type": kind, "x-robots-tag": data.ConsumeUnicodeNoSurrogates(40)}
    wants = markup.Wants(parser=parser, token="folder-crawler")
    try:
        reading = markup.read(Fetched(BASE, 200, headers, data.ConsumeBytes(1 << 16)), wants)
    except Unreadable:
        return
    reading.text.encode()
    assert not re.search("[\0-\x1f\x7f-\x9f\ud800-\udfff]", reading.title)
    assert all(urls.is_safe(link) for link in reading.links)
    assert len(reading.links) <= wants.max_links


def text(data: atheris.FuzzedDataProvider) -> None:
    """Decoding always succeeds, and a charset that is plainly declared is what the whole prescan finds."""
    label = data.ConsumeUnicode(30)
    decoded, name = charset.decode(data.ConsumeBytes(1 << 14), f"text/html; charset={label}")
    decoded.encode()
    assert name
    head = data.ConsumeBytes(1 << 10).lower()
    assert charset._plain(head) in (None, charset._scan(head))


def rules(data: atheris.FuzzedDataProvider) -> None:
    """Any bytes are rules of some kind."""
    url = f"https://a.example/{data.ConsumeUnicodeNoSurrogates(60)}"
    found = robots.Rules(data.ConsumeBytes(1 << 14), "folder-crawler/1")
    assert found.allow(urls.normalize(url) or BASE) in (True, False)
    assert found.allow("https://a.example/robots.txt")
    assert found.delay >= 0


def listed(data: atheris.FuzzedDataProvider) -> None:
    """Any bytes are a sitemap or none."""
    try:
        found = sitemap.read(data.ConsumeBytes(1 << 14), data.PickValueInList(TYPES), BASE)
    except Unreadable:
        return
    assert len(found.links) == len(found.priorities) <= sitemap.MAX_ENTRIES
    assert all(urls.is_safe(link) for link in found.links)
    assert all(0 <= priority <= 10 for priority in found.priorities)


def batch(data: atheris.FuzzedDataProvider) -> None:
    """What is read from a batch, however it came about, is written so that it is read again."""
    tries = [task for task in batches.from_lines(data.ConsumeBytes(1 << 12)) if not task.due]
    assert list(batches.from_lines(batches.to_lines(tries))) == tries


TARGETS: tuple[Callable[[atheris.FuzzedDataProvider], None], ...] = (
    spelling,
    joining,
    page,
    text,
    rules,
    listed,
    batch,
)


def one(data: bytes) -> None:
    """One input: its first bytes choose the target."""
    provider = atheris.FuzzedDataProvider(data)
    TARGETS[provider.ConsumeIntInRange(0, len(TARGETS) - 1)](provider)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
