"""`crawler history` and `crawler diff`: the versions of a page, and what is different between two of them."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, NamedTuple

from crawler import errors
from crawler.commands.arguments import Add, normalize_seed
from crawler.commands.changes import moment
from crawler.errors import NotThere
from crawler.store import history, visits
from crawler.store.records import links_of
from crawler.store.store import Store, open_store
from crawler.terminal import many, say
from crawler.web.text import printable
from crawler.web.visible import visible

MAX_LINES = 20_000  # of a page that are compared: the time grows with their square


class Version(NamedTuple):
    """A version of a page: when it was fetched, its record, and its text."""

    fetched: str
    record: Mapping[str, Any]
    html: str


def commands(add: Add) -> None:
    """Add `crawler history` and `crawler diff`."""
    made = add("history", list_versions, "crawler history /mnt/shared/crawl https://example.org/")
    made.add_argument("url", metavar="URL", help="need not be normalized")
    made.add_argument("--json", action="store_true", help="a JSON line each: its record")
    made = add("diff", compare, "crawler diff /mnt/shared/crawl https://example.org/ --text")
    made.add_argument("url", metavar="URL", help="need not be normalized")
    made.add_argument(
        "--from", dest="since", metavar="T", type=moment, help="the version of that time (2026-11-01, 7d)"
    )
    made.add_argument("--to", metavar="T", type=moment, help="the same for the newer one (default: the newest)")
    made.add_argument("--text", action="store_true", help="compare the visible text, not the html")


def list_versions(options: Namespace) -> int:
    """`crawler history`."""
    store = open_store(options.store)
    name, newest = _find(store, options.url)
    for fetched in [*history.versions(store.files, name), None]:
        found = (newest, "") if fetched is None else history.read(store, name, fetched)
        if found:
            print(json.dumps(found[0]) if options.json else _as_line(found[0], fetched is None))  # `say` shows no tabs
    return errors.OVER


def compare(options: Namespace) -> int:
    """`crawler diff`."""
    store = open_store(options.store)
    name, newest = _find(store, options.url)
    known = [*history.versions(store.files, name), str(newest.get("fetched"))]
    old, new = _two(known, options.since, options.to, printable(name))
    before, after = (_lines(_read(store, name, it, newest), options.text) for it in (old, new))
    for line in unified_diff(before, after, f"{name} {old}", f"{name} {new}", lineterm=""):
        say(printable(line))
    return errors.OVER


def _find(store: Store, given: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the record of a page that the user means."""
    url = normalize_seed(given, store.settings_or_defaults()[0].removed_parameters)
    record = store.record(url)
    if record is None:
        raise NotThere(f"{url} is not in {store.root}; `crawler explain {store.root} {url}` tells why")
    return url, record


def _two(known: list[str], since: str | None, to: str | None, name: str) -> tuple[str, str]:
    """Return the two versions of a page to compare; NotThere, with the reason, if there are none."""
    if len(known) < 2:
        raise NotThere(
            f"{name} has no two versions to compare; older ones are kept with the setting history, "
            "from the next change on"
        )
    new = _at(known, to, name) if to else known[-1]
    if since:
        old = _at(known, since, name)
    elif new > known[0]:
        old = [it for it in known if it < new][-1]
    else:
        raise NotThere(f"there is no version of {name} from before {new}: that is its oldest")
    if old == new:
        raise NotThere(f"both times mean the version of {name} of {new}; `crawler history` lists the others")
    return old, new


def _at(known: list[str], moment: str, name: str) -> str:
    """Return the version that was stored at a time: the last one fetched before it; NotThere if there was none yet."""
    found = [it for it in known if it <= moment]
    if not found:
        raise NotThere(f"there is no version of {name} from before {moment}; the oldest is of {known[0]}")
    return found[-1]


def _read(store: Store, name: str, fetched: str, newest: Mapping[str, Any]) -> Version:
    found = history.read(store, name, fetched)
    if found:
        return Version(fetched, *found)
    return Version(fetched, newest, store.text(name) or "")


def _lines(version: Version, text: bool) -> list[str]:
    if "file" in version.record:
        named = ((name, version.record.get(name)) for name in ("type", "bytes", "sha224"))
        return [f"{name}: {value}" for name, value in named]
    if target := _target(version.record):
        return [f"moved to {target}"]
    lines = (visible(version.html) if text else version.html).splitlines()
    return lines[:MAX_LINES]


def _target(record: Mapping[str, Any]) -> str:
    """Return where a page has moved to; empty if it is no redirect."""
    return "" if record.get("sha224") or record.get("sitemap") else next(iter(links_of(record)), "")


def _as_line(record: Mapping[str, Any], is_newest: bool) -> str:
    """Return columns: when it was fetched, status, bytes, visits, title or target; the newest is marked."""
    cells = [str(record.get(name, "-")) for name in ("fetched", "status", "bytes")]
    facts = f"{many(visits.visits_of(record), 'visit')}, {many(visits.number(record, 'changes'), 'change')}"
    more = [f"gone since {record['gone']}"] if record.get("gone") else []
    title = str(record.get("title") or "") or (f"-> {target}" if (target := _target(record)) else "")
    return "\t".join(map(printable, [*cells, "newest" if is_newest else "-", facts, *more, title]))
