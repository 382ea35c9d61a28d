"""What a whole crawl of the embedded web must leave behind, and how a store differs from it."""

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
    """What the kept text and record of a page must have; `end` stands in its last line."""

    title: str
    word: str
    text: str
    end: str
    links: tuple[str, ...]


@dataclass(slots=True)
class Expected:
    """The pages with their facts, the redirects with their targets, the refusals with their reasons."""

    pages: dict[str, Fact] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many URLs must be settled."""
        return len(self.pages) + len(self.redirects) + len(self.refused)


def compare(expected: Expected, root: Path | str) -> list[str]:
    """How a store differs from what it must contain, a line each; empty when every page is there."""
    root = Path(root)
    differences: list[str] = []
    records = _read(root / "links", differences)
    refusals = _read(root / "errs", differences)
    differences += _differ("record", {*expected.pages, *expected.redirects}, records)
    differences += _differ("refusal", {*expected.refused}, refusals)
    for url in records.keys() & expected.pages.keys():
        differences += _judge_page(url, expected.pages[url], records[url], root)
    for url in records.keys() & expected.redirects.keys():
        differences += _judge_links(url, (expected.redirects[url],), records[url])
    for url in refusals.keys() & expected.refused.keys():
        reason = str(refusals[url].get("reason"))
        if reason != expected.refused[url]:
            differences.append(f"wrong reason: {url} is {reason}, not {expected.refused[url]}")
    return sorted(differences + _stray_htmls(expected, root))


def place(url: str) -> str:
    """`<host>/<key>`: worked out here again, so that a mistake in the crawler's own cannot hide itself."""
    return f"{url.split('/')[2]}/{sha224(url.encode()).hexdigest()[:24]}"


def _names(folder: Path) -> Iterator[str]:
    # Temporary names start with a dot: what a killed worker left of them is not yet part of the store.
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


def _judge_page(url: str, fact: Fact, record: dict[str, Any], root: Path) -> list[str]:
    faults = _judge_links(url, fact.links, record)
    if record.get("title") != fact.title:
        faults.append(f"wrong title: {url} is {record.get('title')!r}, not {fact.title!r}")
    try:
        text = (root / "htmls" / place(url)).read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return [*faults, f"without html: {url}"]
    if fact.word not in text or fact.text not in text:
        faults.append(f"wrong text: {url}")
    if fact.end not in text:
        faults.append(f"half html: {url}")
    return faults


def _judge_links(url: str, links: tuple[str, ...], record: dict[str, Any]) -> list[str]:
    return [f"lost link: {url} does not name {link}" for link in {*links} - {*record.get("links", [])}]


def _stray_htmls(expected: Expected, root: Path) -> list[str]:
    wanted = {place(url) for url in expected.pages}
    return [f"unexpected html: htmls/{name}" for name in _names(root / "htmls") if name not in wanted]
