"""What a complete crawl of a demo web must store, and how a store differs from it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha224
from pathlib import Path
from typing import Any

Found = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Fact:
    """What the stored text and record of a page must contain; `end` is in its last line."""

    title: str
    word: str
    text: str
    end: str
    links: tuple[str, ...]


@dataclass(slots=True)
class Expected:
    """Pages with their facts, redirects with their targets, failure records with their reasons."""

    pages: dict[str, Fact] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return how many URLs must be done."""
        return len(self.pages) + len(self.redirects) + len(self.failures)


def compare(expected: Expected, root: Path | str) -> list[str]:
    """Return how a store differs from what it must contain, one line each."""
    root = Path(root)
    differences: list[str] = []
    records = _read(root / "links", differences)
    failures = _read(root / "errs", differences)
    differences += _differ("record", {*expected.pages, *expected.redirects}, records)
    differences += _differ("failure record", {*expected.failures}, failures)
    for url in records.keys() & expected.pages.keys():
        differences += _compare_page(url, expected.pages[url], records[url], root)
    for url in records.keys() & expected.redirects.keys():
        differences += _compare_links(url, (expected.redirects[url],), records[url])
    for url in failures.keys() & expected.failures.keys():
        reason = str(failures[url].get("reason"))
        if reason != expected.failures[url]:
            differences.append(f"wrong reason: {url} is {reason}, not {expected.failures[url]}")
    return sorted(differences + _stray_htmls(expected, root))


def place(url: str) -> str:
    """Return `<host>/<key>`, computed independently of the crawler's own code."""
    return f"{url.split('/')[2]}/{sha224(url.encode()).hexdigest()[:24]}"


def _names(folder: Path) -> Iterator[str]:
    # Temporary names start with a dot, and are not part of the store.
    files = (path for path in folder.glob("*/*") if not path.name.startswith("."))
    return (f"{path.parent.name}/{path.name}" for path in files)


def _read(folder: Path, differences: list[str]) -> Found:
    found: Found = {}
    for name in _names(folder):
        try:
            value = json.loads((folder / name).read_bytes())
            url = value["url"]
        except (ValueError, TypeError, KeyError) as error:
            differences.append(f"broken JSON: {folder.name}/{name}: {error!r}")
            continue
        found[url] = value
        if place(url) != name:
            differences.append(f"wrong key: {folder.name}/{name} holds {url}")
    return found


def _differ(noun: str, wanted: set[str], found: Found) -> list[str]:
    missing = [f"missing {noun}: {url}" for url in wanted - found.keys()]
    return missing + [f"unexpected {noun}: {url}" for url in found.keys() - wanted]


def _compare_page(url: str, fact: Fact, record: dict[str, Any], root: Path) -> list[str]:
    faults = _compare_links(url, fact.links, record)
    if record.get("title") != fact.title:
        faults.append(f"wrong title: {url} is {record.get('title')!r}, not {fact.title!r}")
    try:
        text = (root / "htmls" / place(url)).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return [*faults, f"no html: {url}"]
    if fact.word not in text or fact.text not in text:
        faults.append(f"wrong text: {url}")
    if fact.end not in text:
        faults.append(f"truncated html: {url}")
    return faults


def _compare_links(url: str, links: tuple[str, ...], record: dict[str, Any]) -> list[str]:
    return [f"lost link: {url} does not name {link}" for link in {*links} - {*record.get("links", [])}]


def _stray_htmls(expected: Expected, root: Path) -> list[str]:
    wanted = {place(url) for url in expected.pages}
    return [f"unexpected html: htmls/{name}" for name in _names(root / "htmls") if name not in wanted]
