"""`crawler status`: the state of a crawl, from the workers' counters, or counted in the folders while none is at work.

No page is read.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from random import SystemRandom
from typing import Any

from crawler import errors
from crawler.commands.ages import Sampler, chart
from crawler.commands.arguments import Add
from crawler.commands.stored import Stored, count_stored
from crawler.fleet.control import is_paused
from crawler.fleet.heartbeats import ALIVE, ENDED
from crawler.fleet.members import Facts, Members, look
from crawler.fleet.regions import count_workers
from crawler.fleet.shards import read_owners, too_many_workers
from crawler.fleet.totals import TOTALS, sum_by_rule, totals
from crawler.frontier.backlog import Backlog, count_backlog
from crawler.frontier.batches import lines_of
from crawler.settings.regions import region_of_shard, regions_of
from crawler.settings.settings import Settings
from crawler.store.inboxes import batch_names, made_shards
from crawler.store.records import utc
from crawler.store.store import Store, open_store
from crawler.terminal import bars, many, say, size
from crawler.web.reasons import KINDS
from crawler.web.reasons import kind as kind_of
from crawler.web.text import printable

FRESHNESS = ("fresh", "due", "overdue")  # how many pages
VISIT_RATES = ("revisits_rate", "unchanged_rate", "changed_rate")  # a second, over about the last minute
WAITING_FOR = {"in_flight": "in flight", "turn": "request slot"}  # other names are plain words already
FEW_WORKERS = 8  # that are shown one by one without --verbose
MAIN_REASONS = 6  # of each kind that are shown


def commands(add: Add) -> None:
    """Add `crawler status`."""
    made = add("status", run, "crawler status /mnt/shared/crawl --json | jq .waiting")
    made.add_argument("--json", action="store_true", help="for scripts")
    made.add_argument("-v", "--verbose", action="store_true", help="show each worker, however many there are")


def run(options: Namespace) -> int:
    """`crawler status`."""
    store = open_store(options.store)
    found = status(store)
    found["ages"] = Sampler(store, SystemRandom()).ages(found["busiest"]) if has_visits(found) else None
    say(json.dumps(found) if options.json else as_text(found, options.verbose))
    return errors.OVER


def status(store: Store, again: bool = True) -> dict[str, Any]:
    """Return the state of a crawl as a JSON value; `again` looks twice at workers that seem silent.

    While machines are at work, it may lack what a killed worker did since its last heartbeat.
    """
    settings, wrong = store.settings_or_defaults()
    members = look(store.files, settings, again)

    def backlog(of: Collection[int] | None) -> Backlog:
        return count_backlog(store, settings.shards, time.monotonic(), of)

    return tell(store, members, backlog, partial(count_stored, store), settings, wrong)


def tell(
    store: Store,
    members: Members,
    backlog: Callable[[Collection[int] | None], Backlog],
    stored: Callable[[int, Counter[str]], Stored | None],
    settings: Settings,
    wrong: str = "",
) -> dict[str, Any]:
    """Return the same for members seen before.

    `backlog` counts what waits in some shards, or in all (None), and `stored` what is stored if no worker is alive (see
    `count_stored`).
    """
    counters, alive, of_the_living = members.counters, members.alive, members.counters_alive
    sums = totals(counters)
    counted = None if alive else stored(sums["pages"], +sums["reasons"])
    if counted:
        sums |= _as_stored(sums, counted)
    reasons = dict((+sums["reasons"]).most_common())
    return {
        "store": str(store.root),
        **{name: sums[name] for name in TOTALS},
        **{kind: sum(count for reason, count in reasons.items() if kind_of(reason) == kind) for kind in KINDS},
        "reasons": reasons,
        "traps": dict(sums["traps"].most_common()),
        "limits": dict(sums["limits"].most_common()),
        **(_living(alive, of_the_living, _left(store, settings, alive, backlog)) if alive else backlog(None)._asdict()),
        "next_due": _next_due(of_the_living, members.counters),
        "waiting_for": dict(sum_by_rule(of_the_living, "waiting_for").most_common()),
        "uncounted": 0 if counters or counted else len(store.files.names("links")),
        "paused": is_paused(store.files),
        "blocked": _blocked(of_the_living),
        "ignored_settings": sorted({worker["ignored_settings"] for worker in alive} - {""})
        or ([wrong] if wrong else []),
        "rate": round(sum(worker["rate"] for worker in alive), 2),
        **{name: round(sum(found.get(name, 0) for found in of_the_living), 2) for name in VISIT_RATES},
        "machines": members.machines,
        "workers": members.workers,
        "shards": settings.shards,
        "regions": _regions(store, settings, {worker["id"] for worker in alive}),
        "busiest": dict(sorted(sums["busiest"].items(), key=lambda item: (-item[1], item[0]))[:10]),
    }


def _as_stored(sums: Facts, counted: Stored) -> Facts:
    """Return the sums that the folders correct; bytes are as they were fetched, unless nobody has counted the pages."""
    sitemaps = min(sums["sitemaps"], counted.others)
    return {
        "pages": counted.pages,
        "bytes": sums["bytes"] if counted.bytes is None else counted.bytes,
        "sitemaps": sitemaps,
        "redirects": counted.others - sitemaps,
        "reasons": counted.reasons,
    }


def _living(alive: list[Facts], counters: list[Facts], left: Backlog) -> Facts:
    """Return how many URLs wait and how many pages are fresh, as the living workers know, with what nobody has yet."""
    visits = {name: sum(found.get(name, 0) for found in counters) + getattr(left, name) for name in FRESHNESS}
    return {"waiting": sum(worker["waiting"] for worker in alive) + left.waiting, **visits}


def _left(
    store: Store, settings: Settings, alive: list[Facts], backlog: Callable[[Collection[int] | None], Backlog]
) -> Backlog:
    """Return what waits in shards that no living worker has: its machine has left, and another takes them soon."""
    ids = {worker["id"] for worker in alive}
    owners = read_owners(store.files, settings.shards)
    left = {shard for shard in range(settings.shards) if not owners.get(shard, set()) & ids}
    return backlog(left) if left else Backlog(0)


def _regions(store: Store, settings: Settings, alive: set[str]) -> dict[str, Facts]:
    """Return how many workers each region has, and how much waits in the folders of one that has none."""
    rules = settings.region_rules
    workers = count_workers(alive, regions_of(rules))
    lines = {region: 0 for region, count in workers.items() if not count}
    for shard in made_shards(store.files, settings.shards) if lines else ():
        region = region_of_shard(shard, rules)
        if region in lines:
            lines[region] += sum(map(lines_of, batch_names(store.files, shard)))
    return {region: {"workers": count, "waiting": lines.get(region)} for region, count in workers.items()}


def regions_without_machines(found: Facts) -> str:
    """Return the regions for which URLs wait and that have no worker, as words; empty if there are none."""
    return ", ".join(region for region, about in found["regions"].items() if about["waiting"])


def _next_due(living: list[Facts], counters: list[Facts]) -> str | None:
    """Return when the next URL is due, if that was more than an hour away when it was last seen; else None."""
    if living:
        dues = [found.get("next_due", "") for found in living if found.get("waiting")]
    else:  # of those that ended; what was due in the meantime is due now
        now = utc(time.time())
        dues = [due for found in counters if (due := found.get("next_due", now)) > now]
    return min(dues, default="") or None


def _blocked(counters: list[Facts]) -> dict[str, Facts]:
    """Return what keeps workers from sending requests: how many of them, and why in the words of one."""
    blocked: dict[str, Facts] = {}
    for found in counters:
        for kind, sentence in found.get("blocked", {}).items():
            blocked[kind] = {"workers": blocked.get(kind, {"workers": 0})["workers"] + 1, "why": str(sentence)}
    return blocked


def as_text(found: dict[str, Any], verbose: bool = False) -> str:
    """Return a status for people; workers are listed if they are few, or `verbose`."""
    rate = f", {found['rate']:.1f} a second" if found["rate"] else ""
    lines = [
        _line("pages", f"{found['pages']:,}", f"{size(found['bytes'])}{rate}"),
        *([_line("sitemaps", f"{found['sitemaps']:,}")] if found["sitemaps"] else []),
        _line("redirects", f"{found['redirects']:,}"),
        *(_line(kind, f"{found[kind]:,}", main_reasons(found, kind)) for kind in KINDS),
        *([_skipped(found)] if found["skipped"] or found["traps"] else []),
        _line("waiting", f"{found['waiting']:,}", _waiting(found)),
        *([_line("revisits", f"{found['revisits']:,}", visits(found))] if has_visits(found) else []),
        *([_line("visited", "within", chart(found["ages"], bars()))] if found.get("ages") else []),
        _states("machines", found["machines"]),
        _states("workers", found["workers"]),
    ]
    if found["paused"]:
        lines.append(_line("paused", "yes", f"`crawler resume {printable(found['store'])}` resumes it"))
    lines += [_line("blocked", printable(kind), printable(about["why"])) for kind, about in found["blocked"].items()]
    lines += [_line("settings", "", printable(sentence)) for sentence in found["ignored_settings"]]
    alive = sum(worker["state"] == ALIVE for worker in found["workers"])
    if alive > found["shards"]:
        lines.append(_line("shards", f"{found['shards']:,}", too_many_workers(alive, found["shards"])))
    lines += [_region(region, about) for region, about in found["regions"].items()]
    if found["uncounted"]:
        lines.append(_line("uncounted", "", uncounted(found)))
    lines += _members(found, verbose)
    if found["busiest"]:
        lines.append("busiest hosts")
        lines += [f"  {pages:>8,}  {printable(host)}" for host, pages in found["busiest"].items()]
    return "\n".join(lines)


def _region(region: str, about: Facts) -> str:
    if about["workers"]:
        return _line("region", region, many(about["workers"], "worker"))
    waiting = f"no machine; {about['waiting']:,} lines wait for one" if about["waiting"] else "no machine"
    return _line("region", region, waiting)


def _waiting(found: dict[str, Any]) -> str:
    """Return what the waiting URLs wait for, and when the next is due if that is more than an hour away."""
    later = [f"the next is due {printable(found['next_due'])}"] if found["waiting"] and found["next_due"] else []
    return "; ".join([*filter(None, [listed(found["waiting_for"], WAITING_FOR)]), *later])


def has_visits(found: Facts) -> bool:
    """Tell whether stored pages are visited again."""
    return bool(found["revisits"] or found["fresh"] or found["due"])


def visits(found: Facts) -> str:
    """Return what visits of stored pages found, how many there are a second, and how many pages are fresh."""
    told = listed({name: found[name] for name in ("unchanged", "changed", *FRESHNESS)})
    rates = f"; {found['revisits_rate']:.1f} visits a second, {found['unchanged_rate']:.1f} of them unchanged"
    return told + (rates if found["revisits_rate"] else "")


def _line(name: str, value: str, more: str = "") -> str:
    return f"{name:<10}{value:>12}   {more}".rstrip()


def listed(counts: dict[str, int], names: dict[str, str] | None = None) -> str:
    """Return counts in one line, each after its name."""
    return ", ".join(f"{printable((names or {}).get(name, name))} {count:,}" for name, count in counts.items())


def main_reasons(found: Facts, kind: str) -> str:
    """Return the most frequent reasons of a kind, and how many others there are."""
    reasons = [item for item in found["reasons"].items() if kind_of(item[0]) == kind]
    more = f", {many(len(reasons) - MAIN_REASONS, 'other reason')}" if len(reasons) > MAIN_REASONS else ""
    return listed(dict(reasons[:MAIN_REASONS])) + more


def uncounted(found: dict[str, Any]) -> str:
    """Return a sentence about pages that came without workers/, as in a copy of htmls/, links/ and errs/."""
    hosts = many(found["uncounted"], "host")
    return f"no counters for the pages of {hosts}; `crawler hosts {printable(found['store'])}` counts them"


def _skipped(found: dict[str, Any]) -> str:
    """Return the line about links that were not followed; of a link with a session id only the id was dropped."""
    traps = {rule: count for rule, count in found["traps"].items() if rule != "session"}
    told = [listed(traps)] if traps else []
    told += [f"beyond {printable(rule)} {count:,}" for rule, count in found["limits"].items()]
    if "session" in found["traps"]:
        told.append(f"session {found['traps']['session']:,} (only the id)")
    return _line("skipped", f"{sum(traps.values()) + found['skipped']:,}", ", ".join(told))


def _states(noun: str, members: list[Facts]) -> str:
    states = Counter(member["state"] for member in members)
    others = (f"{states[state]:,} {state}" for state in ("starting", "silent", "ended") if states[state])
    return _line(noun, f"{states[ALIVE]:,}", ", ".join(others))


def _members(found: dict[str, Any], verbose: bool) -> list[str]:
    """Return a line for each machine that has not ended, and one for each of its workers unless they are too many."""
    workers = [worker for worker in found["workers"] if worker["state"] != ENDED]
    shown = workers if verbose or len(workers) <= FEW_WORKERS else []
    lines = []
    for machine in found["machines"]:
        if machine["state"] != ENDED:
            lines.append(
                f"machine {printable(machine['id'])} on {printable(machine['name'])}: "
                f"{many(machine['workers'], 'worker')}, {_standing(machine)}"
            )
            lines += [_worker(worker) for worker in shown if worker["machine"] == machine["id"]]
    return lines + [_worker(worker) for worker in shown if not worker["machine"]]


def _worker(worker: Facts) -> str:
    return f"  worker {printable(worker['id'])}, pid {worker['pid']}: {_standing(worker)}"


def _standing(member: Facts) -> str:
    """Return the state of a machine or a worker in words."""
    seen = f"{member['state']}, seen {member['age']:,} s ago"
    if member["state"] != ALIVE:
        return seen
    return (
        f"{seen}, {member['rate']:.1f} pages a second, {many(member['pages'], 'page')}, "
        f"{member['waiting']:,} waiting, {member['in_flight']:,} in flight, {many(member['shards'], 'shard')}"
    )
