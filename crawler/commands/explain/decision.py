"""Which rule or failure decided what became of a URL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from crawler.commands.explain.fate import NEVER_SEEN, WAITING, Facts
from crawler.frontier.batches import COMMON_SHARD, from_lines, read_batches
from crawler.frontier.limits import StoredLimits
from crawler.frontier.scope import Scope, bars
from crawler.frontier.task import Task
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.store import Store
from crawler.web import addresses, kinds, patterns, urls
from crawler.web.reasons import look_up

SHOWN = 5  # seeds or patterns that are named
TRAPS = {
    "long": "it is longer than 1,000 characters",
    "repeat": "its path has one segment three times or more",
    "deep": "its path has more than 20 segments",
    "calendar": "it has a date far ahead, or a calendar's date long past",
}

Decision = tuple[str | None, str]  # the name of the rule or reason, and what it says


def decided(store: Store, settings: Settings, found: Facts) -> Decision:
    """Return the name of the rule or reason that decided, and what it says."""
    if "failure" in found:
        failure = found["failure"]
        again = "; `crawler retry` has queued it again" if failure["again"] else ""
        return failure["reason"], f"{failure['kind']}: {failure['meaning']}{again}"
    if "broken" in found:
        return None, f"{found['broken']} cannot be read; remove it and rehydrate to request the URL again"
    if "record" in found:
        target = found["record"]["redirect"]
        return None, "it is a redirect; explain its target to see what became of it" if target else "it was kept"
    if found["state"] == NEVER_SEEN:
        kept_out = _not_followed(store, settings, found["url"])
    else:
        kept_out = _left_out(settings, found["url"], found["waiting"]["depth"])
    kept_out = kept_out or _never(store, found["url"]) or _not_now(store, settings, found)
    if kept_out:
        return kept_out
    if found["state"] == WAITING:
        failed = "; a `--log-file` of the machines has what its last attempt failed with, the store does not"
        tried = failed if found["waiting"]["attempt"] else ""
        return None, f"nothing excludes it: it is requested when it is due and the delay of its host allows{tried}"
    return None, f"nothing excludes it, but no page links to it; `crawler add {store.root} URL` adds it"


def _never(store: Store, url: str) -> Decision | None:
    """Return the rule by which a URL is never requested, wherever it comes from.

    What the operators of the machines allowed is not in the store, so it is said as a condition, unless pages show it.
    """
    port = _port(url)
    if port in addresses.BAD_PORTS:
        return "bad-port", f"port {port} is {look_up('bad-port').meaning}, unless --connect-to leads elsewhere"
    if addresses.names_private(urls.host(url)) and not any(store.files.each_name(f"links/{urls.host(url)}")):
        return "private-address", "the host is on a private network: requested only by machines that were told to"
    return None


def _port(url: str) -> int:
    found = re.search(r":(\d+)\Z", urls.host(url))
    return int(found[1]) if found else addresses.DEFAULT_PORTS[url.partition(":")[0]]


def seeds_of(store: Store) -> Iterator[str]:
    """Yield the seeds, and where their redirects led."""
    for _, seeds in store.seeds():
        yield from seeds


def _not_followed(store: Store, settings: Settings, url: str) -> Decision | None:
    """Return the rule by which a link is not followed."""
    seeds = seeds_of(store) if settings.scope != "any" else ()
    scope = Scope(
        settings.scope,
        seeds,
        settings.include,
        settings.exclude,
        settings.traps,
        content_types=settings.content_types,
    )
    rule = scope.refuses(url)
    if rule is None:
        return None
    if rule == "scope":
        return rule, f"it is outside the scope `{settings.scope}` of the seeds: {_some(scope.places)}"
    if rule == "extension":
        name = kinds.unwanted_extension(url, settings.content_types)
        wanted = ", ".join(settings.content_types)
        return rule, f"a file .{name} is of no type that is stored ({wanted}; rule `extension` of the setting `traps`)"
    if rule in TRAPS:
        return rule, f"it looks like a trap: {TRAPS[rule]} (rule `{rule}` of the setting `traps`)"
    return rule, _barred(settings, url, rule)


def _barred(settings: Settings, url: str, rule: str) -> str:
    if rule == "include":
        return f"none of the include patterns is found in it: {_some(settings.include)}"
    pattern = next(pattern for pattern in settings.exclude if patterns.compiled(pattern).search(url))
    return f"the exclude pattern {pattern} is found in it"


def _left_out(settings: Settings, url: str, depth: int) -> Decision | None:
    """Return the pattern, edited since the URL was queued, that excludes it."""
    task = Task.named(url, depth)
    rule = bars(Scope("any", (), settings.include, settings.exclude), task)
    return (rule, f"{_barred(settings, task.url, rule)}: it will be dropped from the queue") if rule else None


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return (", ".join(islice(names, SHOWN)) or "none") + more


def _not_now(store: Store, settings: Settings, found: Facts) -> Decision | None:
    """Return what would exclude it if it were requested now."""
    if found["robots"].get("allowed") is False and settings.robots:
        return "robots", f"{look_up('robots').meaning}, as it was last read"
    host, limits = urls.host(found["url"]), StoredLimits(store, settings)
    limits.add_waiting(_waiting_hosts(store.files, found["shard"], urls.zone(host)))
    return limits.reached(host)


def _waiting_hosts(files: Files, shard: int, zone: str) -> set[str]:
    """Return the hosts of a domain of which URLs wait: its shard has all of them if the domain has limits."""
    hosts: set[str] = set()
    for data in chain.from_iterable(read_batches(files, it) for it in {shard, COMMON_SHARD}):
        lines = (line for line in data.splitlines(keepends=True) if zone.encode() in line)
        hosts.update(task.host for task in from_lines(b"".join(lines)))
    return hosts
