"""What operators ask of a store: how it stands. From the workers' counters and the batches' names, never by a walk."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from typing import Any

from crawler import errors
from crawler.commands.arguments import Add
from crawler.fleet.control import is_paused
from crawler.fleet.members import ALIVE, ENDED, Facts, Members, look
from crawler.frontier.frontier import folder, lines_of
from crawler.store.store import Store, open_store
from crawler.terminal import many, say, size
from crawler.web.text import printable

TOTALS = ("pages", "redirects", "sitemaps", "retries", "bytes", "cut")
WAITS_FOR = {"in_flight": "in flight", "turn": "visitor"}  # other reasons are the words themselves
FEW = 8  # workers that are shown one by one without being asked for


def commands(add: Add) -> None:
    """Add `crawler status`."""
    made = add("status", run, "crawler status /mnt/shared/crawl --json | jq .waiting")
    made.add_argument("--json", action="store_true", help="for scripts")
    made.add_argument("-v", "--verbose", action="store_true", help="show each worker, however many there are")


def run(options: Namespace) -> int:
    """`crawler status`."""
    found = status(open_store(options.store))
    say(json.dumps(found) if options.json else as_text(found, options.verbose))
    return errors.OVER


def status(store: Store, again: bool = True) -> dict[str, Any]:
    """How a crawl stands, as a JSON value; `again` looks twice at workers that seem silent.

    After a kill, counters may lack what a worker did since its last pulse.
    """
    settings, wrong = store.settings_at_hand()
    return tell(store, look(store.files, settings, again), lambda: backlog(store, settings.shards), wrong)


def tell(store: Store, members: Members, backlog: Callable[[], int], wrong: str = "") -> dict[str, Any]:
    """The same of who was seen; `backlog` is asked for what waits if nobody is at work."""
    counters, alive, of_the_living = members.counters, members.alive, members.of_the_living
    sums = totals(counters)
    return {
        "store": str(store.root),
        **{name: sums[name] for name in TOTALS},
        "refusals": dict((+sums["refusals"]).most_common()),
        "traps": dict(sums["traps"].most_common()),
        "waiting": sum(worker["waiting"] for worker in alive) if alive else backlog(),
        "held": dict(_sum(of_the_living, "held").most_common()),
        "uncounted": 0 if counters else len(store.files.names("links")),
        "paused": is_paused(store.files),
        "wants": _wants(of_the_living),
        "unheeded": sorted({worker["unheeded"] for worker in alive} - {""}) or ([wrong] if wrong else []),
        "rate": round(sum(worker["rate"] for worker in alive), 2),
        "machines": members.machines,
        "workers": members.workers,
        "busiest": dict(sorted(sums["busiest"].items(), key=lambda item: (-item[1], item[0]))[:10]),
    }


def totals(counters: list[Facts]) -> Facts:
    """What workers have counted, together; of refusals one may have taken back more than it made."""
    busiest: Counter[str] = Counter()
    for found in counters:
        for host, pages in found.get("busiest", ()):
            busiest[host] = max(busiest[host], pages)
    sums = {name: sum(found.get(name, 0) for found in counters) for name in TOTALS}
    return {**sums, "refusals": _sum(counters, "refusals"), "traps": _sum(counters, "traps"), "busiest": busiest}


def _wants(counters: list[Facts]) -> dict[str, Facts]:
    """What workers wait for before they ask anybody: how many of them do, and why, as one of them says it."""
    wants: dict[str, Facts] = {}
    for found in counters:
        for kind, sentence in found.get("wants", {}).items():
            wants[kind] = {"workers": wants.get(kind, {"workers": 0})["workers"] + 1, "why": str(sentence)}
    return wants


def _sum(counters: list[Facts], name: str) -> Counter[str]:
    """What all workers have counted under a name, by reason or rule."""
    total: Counter[str] = Counter()
    for found in counters:
        total.update(found.get(name, {}))
    return total


def backlog(store: Store, shards: int) -> int:
    """The lines of all batches, as their names tell; settled ones that are not tidied away yet count too."""
    return sum(lines_of(name) for shard in range(shards) for name in store.files.names(folder(shard)))


def as_text(found: dict[str, Any], verbose: bool = False) -> str:
    """A status for people; each worker is shown when there are few, or `verbose`."""
    refused = ", ".join(f"{printable(reason)} {count:,}" for reason, count in found["refusals"].items())
    held = ", ".join(f"{WAITS_FOR.get(reason, printable(reason))} {count:,}" for reason, count in found["held"].items())
    rate = f", {found['rate']:.1f} a second" if found["rate"] else ""
    lines = [
        f"{'pages':<10}{found['pages']:>12,}   {size(found['bytes'])}{rate}",
        f"{'redirects':<10}{found['redirects']:>12,}",
        f"{'refusals':<10}{sum(found['refusals'].values()):>12,}   {refused}",
        f"{'waiting':<10}{found['waiting']:>12,}   {held}".rstrip(),
        _states("machines", found["machines"]),
        _states("workers", found["workers"]),
    ]
    if found["cut"] or found["traps"]:
        lines.insert(4, _cut(found))
    if found["sitemaps"]:
        lines.insert(2, f"{'sitemaps':<10}{found['sitemaps']:>12,}")
    if found["paused"]:
        lines.append(f"{'paused':<10}{'yes':>12}   `crawler resume {printable(found['store'])}` goes on")
    lines += [
        f"{'wanted':<10}{printable(kind):>12}   {printable(want['why'])}" for kind, want in found["wants"].items()
    ]
    lines += [f"{'settings':<10}{'':>12}   {printable(sentence)}" for sentence in found["unheeded"]]
    if found["uncounted"]:
        lines.append(f"{'uncounted':<10}{'':>12}   {uncounted(found)}")
    lines += _crews(found, verbose)
    if found["busiest"]:
        lines.append("busiest hosts")
        lines += [f"  {pages:>8,}  {printable(host)}" for host, pages in found["busiest"].items()]
    return "\n".join(lines)


def uncounted(found: dict[str, Any]) -> str:
    """What is to be said of pages that came without workers/, as a copy of htmls/, links/ and errs/ does."""
    hosts = many(found["uncounted"], "host")
    return f"of the pages of {hosts} nobody has told; `crawler hosts {printable(found['store'])}` counts them"


def _cut(found: dict[str, Any]) -> str:
    """What was left out without a refusal; of a link with a session id only the id was."""
    traps = {rule: count for rule, count in found["traps"].items() if rule != "session"}
    told = [f"{printable(rule)} {count:,}" for rule, count in traps.items()]
    if found["cut"]:
        told.append(f"beyond max_per_host {found['cut']:,}")
    if "session" in found["traps"]:
        told.append(f"session {found['traps']['session']:,} (only the id)")
    return f"{'cut':<10}{sum(traps.values()) + found['cut']:>12,}   {', '.join(told)}"


def _states(noun: str, members: list[Facts]) -> str:
    states = Counter(member["state"] for member in members)
    others = (f"{states[state]:,} {state}" for state in ("starting", "silent", "ended") if states[state])
    return f"{noun:<10}{states[ALIVE]:>12,}   {', '.join(others)}".rstrip()


def _crews(found: dict[str, Any], verbose: bool) -> list[str]:
    """A line for each machine that has not ended, and one for each of its workers unless they are too many."""
    workers = [worker for worker in found["workers"] if worker["state"] != ENDED]
    shown = workers if verbose or len(workers) <= FEW else []
    lines = []
    for machine in found["machines"]:
        if machine["state"] != ENDED:
            lines.append(
                f"machine {printable(machine['id'])} on {printable(machine['name'])}: "
                f"{many(machine['workers'], 'worker')}, {_standing(machine)}"
            )
            lines += [_line(worker) for worker in shown if worker["machine"] == machine["id"]]
    return lines + [_line(worker) for worker in shown if not worker["machine"]]


def _line(worker: Facts) -> str:
    return f"  worker {printable(worker['id'])}, pid {worker['pid']}: {_standing(worker)}"


def _standing(member: Facts) -> str:
    """How a machine or a worker stands."""
    seen = f"{member['state']}, seen {member['age']:,} s ago"
    if member["state"] != ALIVE:
        return seen
    return (
        f"{seen}, {member['rate']:.1f} pages a second, {many(member['pages'], 'page')}, "
        f"{member['waiting']:,} waiting, {member['in_flight']:,} in flight, {many(member['shards'], 'shard')}"
    )
