"""What operators ask of a store: how it stands. From the workers' counters and the batches' names, never by a walk."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from crawler.frontier import folder
from crawler.logs import printable
from crawler.shards import END, read_counters
from crawler.store import Store, from_utc

TOTALS = ("pages", "redirects", "retries", "bytes", "cut")


def status(store: Store) -> dict[str, Any]:
    """How a crawl stands, as a JSON value.

    After a kill, counters may lack what a worker did since its last pulse.
    """
    settings = store.settings()
    counters = read_counters(store.files)
    workers = [_worker(found, settings.patience) for found in counters]
    alive = [worker for worker in workers if worker["state"] == "alive"]
    refusals = sum((Counter(found.get("refusals", {})) for found in counters), Counter())
    busiest: Counter[str] = Counter()
    for found in counters:
        for host, pages in found.get("busiest", ()):
            busiest[host] = max(busiest[host], pages)
    return {
        "store": str(store.root),
        **{name: sum(found.get(name, 0) for found in counters) for name in TOTALS},
        "refusals": dict(refusals.most_common()),
        "waiting": sum(worker["waiting"] for worker in alive) if alive else _backlog(store, settings.shards),
        "workers": sorted(workers, key=lambda worker: (worker["state"], worker["machine"])),
        "busiest": dict(busiest.most_common(10)),
    }


def _worker(found: dict[str, Any], patience: float) -> dict[str, Any]:
    age = max(time.time() - from_utc(found.get("when", "")), 0.0)
    gone = found["pulse"].mark == END
    kept = ("id", "name", "machine", "pid", "pages", "waiting", "flying", "hosts", "shards", "started")
    state = "ended" if gone else "silent" if age > patience else "alive"
    return {**{name: found.get(name, 0) for name in kept}, "age": round(age), "state": state}


def _backlog(store: Store, shards: int) -> int:
    """The lines of all batches, as their names tell; settled ones that are not tidied away yet count too."""
    names = (name for shard in range(shards) for name in store.files.names(folder(shard)))
    return sum(int(lines) for lines in (name.rpartition(".")[2] for name in names) if lines.isdigit())


def as_text(found: dict[str, Any]) -> str:
    """A status for people."""
    refused = ", ".join(f"{reason} {count:,}" for reason, count in found["refusals"].items())
    states = Counter(worker["state"] for worker in found["workers"])
    lines = [
        f"{'pages':<10}{found['pages']:>12,}   {_megabytes(found['bytes'])}",
        f"{'redirects':<10}{found['redirects']:>12,}",
        f"{'refusals':<10}{sum(found['refusals'].values()):>12,}   {refused}",
        f"{'waiting':<10}{found['waiting']:>12,}",
        f"{'workers':<10}{states['alive']:>12,}   {states['silent']} silent, {states['ended']} ended",
    ]
    if found["cut"]:
        lines.insert(4, f"{'cut':<10}{found['cut']:>12,}   beyond max_per_host")
    for worker in found["workers"]:
        if worker["state"] != "ended":
            lines.append(
                f"  {worker['id']} on {printable(worker['name'])}, pid {worker['pid']}: {worker['state']}, "
                f"seen {worker['age']} s ago, {worker['pages']:,} pages, {worker['waiting']:,} waiting, "
                f"{worker['shards']} shards"
            )
    if found["busiest"]:
        lines.append("busiest hosts")
        lines += [f"  {pages:>8,}  {host}" for host, pages in found["busiest"].items()]
    return "\n".join(lines)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
