"""`crawler set`: change settings of a crawl, and say when each change counts."""

from __future__ import annotations

import re
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from typing import Any

from crawler import errors
from crawler.commands.arguments import Add, check_root
from crawler.crawl.reload import judge, shown
from crawler.errors import UsageError
from crawler.fleet import members
from crawler.settings import settings as config
from crawler.settings.settings import FIXED, LIVE, Settings, check_together, render
from crawler.store import kept
from crawler.store.writer import StoreWriter, open_to_write
from crawler.terminal import many, say

NAME = "crawl.yaml"
WHY_FIXED = {
    "shards": "all machines divide the store by it",
    "spread": "all machines divide the store by it",
    "tracking": "the names of all stored pages follow from it",
    "strip_query": "the names of all stored pages follow from it",
}
# Settings that decide which links are followed: what they left out so far is in the records, and in no batch.
LEFT_OUT = {"scope", "depth", "include", "exclude", "traps", "sitemaps", "robots"}
LEFT_OUT |= {"max_per_host", "max_per_domain", "max_hosts_per_domain", "max_bytes_per_host", "max_bytes_per_domain"}
READ = ("follow", "nofollow", "links_in", "follow_match", "parser")  # which links a page has when it is read
REFUSED = {"content_types": "wrong-type", "max_size": "too-big", "robots": "robots"}  # and their failure records


def commands(add: Add) -> None:
    """Add `crawler set`."""
    made = add("set", run, "crawler set /mnt/shared/crawl delay=2s scope=domain")
    made.add_argument("pairs", nargs="+", metavar="KEY=VALUE", help="a setting and its new value, which is YAML")


def run(options: Namespace) -> int:
    """`crawler set`."""
    check_root(options.store, "set")
    pairs = [config.pair(given, "crawler set") for given in options.pairs]
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise UsageError(f"crawler set: {name} is given {count} times; give it once")
    given = config.check(dict(pairs), "crawler set")
    store = open_to_write(options.store)
    with store.alone("changing the settings", store.settings_or_defaults()[0], say):
        before = store.settings()
        after = changed(before, given)
        if after != before or repr(after) != repr(before):  # the order of mappings counts
            _write(store, before, after)
    at_work = len(members.look(store.files, after, again=False).at_work)
    for name in given:
        say(_effect(store, before, after, name, at_work))
    return errors.OVER


def changed(before: Settings, given: dict[str, Any]) -> Settings:
    """Return the settings with these changes; UsageError if one cannot change, or if they contradict each other."""
    for name in FIXED:
        if name in given and given[name] != getattr(before, name):
            raise UsageError(
                f"{name} is {shown(name, before)} and cannot change once the store is made, because "
                f"{WHY_FIXED[name]}; a new store can have another"
            )
    after = replace(before, **given)
    check_together(after)
    judge(before, after)  # what running machines would not take up
    return after


def _write(store: StoreWriter, before: Settings, after: Settings) -> None:
    """Write crawl.yaml, whole and under its name at once, and its kept copy."""
    store.files.durable = before.durable
    old = (store.files.get(NAME) or b"").decode("utf-8", "replace")
    store.files.put(NAME, edited(old, before, after).encode())
    store.keep_settings(after)


def edited(old: str, before: Settings, after: Settings) -> str:
    """Return the text of crawl.yaml with changed lines; whatever else a person wrote there stays if it can."""
    text = old
    for name in config.differing(before, after):
        (line,) = re.findall(rf"^{name}: .*\n", render(after), re.MULTILINE)
        head, found, tail = _around(rf"^{name}\s*:.*\n(?:[ \t-].*\n)*", text)
        text = f"{head}{line}{tail}" if found else text
    try:
        if repr(Settings(**kept.parse_stored(text.encode(), NAME))) == repr(after):
            return text
    except UsageError:
        pass
    return render(after)


def _around(pattern: str, text: str) -> tuple[str, str, str]:
    """Return what is before the first match, the match itself, and what is after it."""
    found = re.search(pattern, text, re.MULTILINE)
    return (text[: found.start()], found[0], text[found.end() :]) if found else (text, "", "")


def _effect(store: StoreWriter, before: Settings, after: Settings, name: str, at_work: int) -> str:
    """Return what became of a setting, and when it counts."""
    old, new = (shown(name, settings) for settings in (before, after))
    if name not in config.differing(before, after):
        return f"{name} is {new} already"
    parts = [f"{name} {old} -> {new}", _when(store, name, at_work)]
    if name in LEFT_OUT:
        parts.append(f"`crawler rehydrate {store.root}` hands over links that were left out before")
    if name in READ:
        parts.append("pages that are stored keep the links that were read from them")
    if name == "priorities":
        parts.append(f"links that wait already get it by `crawler rehydrate {store.root}`")
    if name == "recrawl" and after.recrawl is not None:
        who = "one of them" if at_work else "that run"
        parts.append(f"{who} then plans the next visit of each page; late ones are spread over the interval")
    if name in REFUSED:
        parts.append(f"`crawler retry {store.root} --reason {REFUSED[name]}` requests again what was left out for that")
    return "; ".join(parts)


def _when(store: StoreWriter, name: str, at_work: int) -> str:
    """Return when a changed setting counts."""
    if not at_work:
        return "it counts from the next run on"
    who = f"the {many(at_work, 'machine')} at work"
    if name in LIVE:
        return f"{who} will use it within a minute"
    return f"{who} will not use it before a restart: `crawler stop {store.root}`, then run again"
