"""What a record tells of earlier visits, and the record after one more: unchanged, changed, moved or failed. Pure.

`visits` counts them (1 without the field), `checked` is the last one that was answered, `fetched` that which brought
the stored page, `first_fetched` the first. `changes` counts how often the visible text was another one than before,
`changed` is the last time, `watched` the seconds from the first visit to the last. After failures the page stays:
`failures` in a row, the last at `failed` for the reason `failure`; after the second 404 or 410 in a row it is `gone`.
`moved` is when a page became a redirect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crawler.store.records import from_utc, utc
from crawler.web.page import Failure

Record = dict[str, Any]
MISSING = ("http-404", "http-410")
GONE_AFTER = 2  # of these in a row
OF_FAILURES = ("failures", "failed", "failure", "missing", "gone")


def number(record: Mapping[str, Any], name: str, unknown: int = 0) -> int:
    """Return a count in a record; people edit records."""
    found = record.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else unknown


def visits_of(record: Mapping[str, Any]) -> int:
    """Return how often a page was visited."""
    return max(number(record, "visits", 1), 1)


def when(record: Mapping[str, Any], *names: str) -> float:
    """Return the time in the first of these fields that has one; 0 if none has."""
    return next((time for name in names if (time := from_utc(str(record.get(name))))), 0.0)


def last_visit(record: Mapping[str, Any]) -> float:
    """Return when a page was last visited, whether that failed or not."""
    return max(when(record, "checked", "fetched"), when(record, "failed"))


def unchanged(old: Mapping[str, Any], visit: int, now: float) -> Record:
    """Return the record after a visit that found the same page."""
    kept = {name: value for name, value in old.items() if name not in OF_FAILURES}
    returned = {"changed": utc(now)} if old.get("gone") else {}  # whoever was told that it is gone is told that
    return kept | returned | _counted(old, visit, now)


def replaced(old: Mapping[str, Any], new: Mapping[str, Any], visit: int, now: float, is_news: bool) -> Record:
    """Return the record after a visit that found another page; `is_news` if a reader would notice."""
    record = {**new, **_counted(old, visit, now), "changes": number(old, "changes") + is_news}
    if "price" in old:
        record["price"] = old["price"]
    if is_news or old.get("gone") or old.get("changed"):
        record["changed"] = utc(now) if is_news or old.get("gone") else old["changed"]
    if new.get("sha224") is None and (old.get("sha224") or old.get("moved")) and not new.get("sitemap"):
        record["moved"] = old.get("moved") or utc(now)
    return record


def failed(old: Mapping[str, Any], failure: Failure, visit: int, now: float) -> Record:
    """Return the record after a visit that failed: the page stays as it is."""
    missing = number(old, "missing") + 1 if failure.reason in MISSING else 0
    facts = {"visits": visit, "failures": number(old, "failures") + 1, "failed": utc(now), "failure": failure.reason}
    record = {**old, **facts, "missing": missing}
    if missing >= GONE_AFTER and not old.get("gone"):
        record["gone"] = utc(now)
    return record


def _counted(old: Mapping[str, Any], visit: int, now: float) -> Record:
    first = when(old, "first_fetched", "fetched")
    return {
        "visits": visit,
        "changes": number(old, "changes"),
        "first_fetched": utc(first) if first else utc(now),
        "checked": utc(now),
        "watched": round(max(now - first, 0)) if first else 0,
    }
