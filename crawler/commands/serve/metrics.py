"""The state of a crawl in the text format of Prometheus. No input or output."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crawler import __version__
from crawler.web.reasons import kind as kind_of

TYPE = "text/plain; version=0.0.4; charset=utf-8"

Facts = Mapping[str, Any]
Sample = tuple[Mapping[str, object], float]

# fact, name, type, help
PLAIN = (
    ("pages", "crawler_pages_total", "counter", "Pages that were kept."),
    ("bytes", "crawler_bytes_total", "counter", "Bytes of their bodies, decompressed."),
    ("redirects", "crawler_redirects_total", "counter", "Redirects, which are records without a page."),
    ("sitemaps", "crawler_sitemaps_total", "counter", "Sitemaps that were read."),
    ("retries", "crawler_retries_total", "counter", "Requests that failed and were put off."),
    ("skipped", "crawler_skipped_total", "counter", "Links skipped because their host or domain has reached a limit."),
    ("revisits", "crawler_revisits_total", "counter", "Visits of pages that were in the store."),
    ("unchanged", "crawler_unchanged_total", "counter", "Of these, visits that found the same page."),
    ("changed", "crawler_changed_total", "counter", "Of these, visits that found another text."),
    ("fresh", "crawler_fresh_pages", "gauge", "Pages whose next visit is not due yet."),
    ("due", "crawler_due_pages", "gauge", "Pages whose next visit is due."),
    ("overdue", "crawler_overdue_pages", "gauge", "Of these, pages whose next visit is due for more than an hour."),
    ("revisits_rate", "crawler_revisits_per_second", "gauge", "Such visits a second over about the last minute."),
    ("unchanged_rate", "crawler_unchanged_per_second", "gauge", "Of these, visits that found the same page."),
    ("waiting", "crawler_waiting", "gauge", "URLs that wait to be requested."),
    ("rate", "crawler_pages_per_second", "gauge", "Pages a second over about the last minute."),
    ("paused", "crawler_paused", "gauge", "Whether an operator has paused the crawl."),
)
# fact, name, label, type, help
BY_LABEL = (
    ("traps", "crawler_traps_total", "rule", "counter", "Links that looked endless or unwanted, by rule."),
    ("limits", "crawler_limits_total", "limit", "counter", "The same links, by the setting that limits them."),
    (
        "waiting_for",
        "crawler_waiting_for",
        "what",
        "gauge",
        "URLs that wait, by what they wait for.",
    ),
)
STATES = {
    "machines": ("starting", "alive", "silent", "ended"),
    "workers": ("alive", "silent", "ended"),
}


def text(found: Facts | None) -> str:
    """Return all metrics of a crawl; for None, that the store does not respond."""
    families = [_family("crawler_store_up", "gauge", "Whether the store responds.", [({}, float(found is not None))])]
    families += _families(found) if found is not None else []
    return "".join(families)


def _families(found: Facts) -> Iterator[str]:
    labels = {"store": found.get("store", ""), "version": __version__}
    yield _family("crawler_store_info", "gauge", "The store, and the version of this program.", [(labels, 1.0)])
    for fact, name, kind, help in PLAIN:
        yield _family(name, kind, help, [({}, float(found.get(fact) or 0))])
    failures = [
        ({"kind": kind_of(reason), "reason": reason}, float(n)) for reason, n in found.get("reasons", {}).items()
    ]
    help = "URLs without a page, by kind (failed, excluded, unwanted) and reason."
    yield _family("crawler_failures_total", "counter", help, failures)
    for fact, name, label, kind, help in BY_LABEL:
        counts = found.get(fact) or {}
        yield _family(name, kind, help, [({label: value}, float(count)) for value, count in counts.items()])
    ages = {name: share for name, share in (found.get("ages") or {}).items() if name != "sample"}
    help = "Share of the pages that were last visited so long ago, from a sample; up to 1 h, 1 d, 7 d, 30 d, or older."
    yield _family("crawler_age_share", "gauge", help, [({"age": name}, float(share)) for name, share in ages.items()])
    for noun, states in STATES.items():
        counted = Counter(member["state"] for member in found.get(noun, ()))
        samples: list[Sample] = [({"state": state}, float(counted[state])) for state in states]
        yield _family(f"crawler_{noun}", "gauge", f"{noun.capitalize()} of the crawl by their state.", samples)
    blocked = [({"by": kind}, float(about["workers"])) for kind, about in (found.get("blocked") or {}).items()]
    yield _family("crawler_workers_blocked", "gauge", "Workers that cannot send requests, by the cause.", blocked)
    in_flight = sum(worker.get("in_flight", 0) for worker in found.get("workers", ()) if worker["state"] == "alive")
    yield _family("crawler_in_flight", "gauge", "URLs that are being requested.", [({}, float(in_flight))])
    for noun, free in (found.get("free") or {}).items():
        samples = [] if free is None else [({}, float(free))]
        yield _family(f"crawler_store_free_{noun}", "gauge", f"Free {noun} of the store.", samples)


def _family(name: str, kind: str, help: str, samples: Sequence[Sample]) -> str:
    lines = [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
    lines += [f"{name}{_labels(labels)} {_number(value)}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, object]) -> str:
    pairs = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    whole = value.encode("utf-8", "replace").decode()  # a folder's name need not be valid text
    return whole.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
