"""The sums of the counters that workers have left in `workers/`."""

from __future__ import annotations

from collections import Counter
from typing import Any

TOTALS = ("pages", "redirects", "sitemaps", "retries", "bytes", "skipped", "revisits", "unchanged", "changed")


def totals(counters: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums of the workers' counters; one worker may have withdrawn more failures than it made."""
    busiest: Counter[str] = Counter()
    for found in counters:
        for host, pages in found.get("busiest", ()):
            busiest[host] = max(busiest[host], pages)
    sums = {name: sum(found.get(name, 0) for found in counters) for name in TOTALS}
    by_rule = {name: sum_by_rule(counters, name) for name in ("reasons", "traps", "limits")}
    return {**sums, **by_rule, "busiest": busiest}


def sum_by_rule(counters: list[dict[str, Any]], name: str) -> Counter[str]:
    """Return the sum of a counter that is split by reason or rule."""
    total: Counter[str] = Counter()
    for found in counters:
        total.update(found.get(name, {}))
    return total
