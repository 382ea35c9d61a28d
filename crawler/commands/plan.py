"""`crawler plan`: what a crawl of so many pages will take, from measured rates or from a small crawl.

Not promised: that your web, machines and file server are like those that were measured. Each rate has its source, so
that you can judge it.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from crawler import errors
from crawler.commands.arguments import WHOLE, Add, flag
from crawler.crawl.machine import CONCURRENCY
from crawler.errors import NotThere, UsageError
from crawler.settings import values
from crawler.store import history
from crawler.store.segments import FOLDER as WARCS
from crawler.store.store import Store, open_store
from crawler.terminal import bar, many, say
from crawler.web import urls

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
MAX_COUNT = 1e15
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
DAY = 86400.0
BLOCK = 4096  # bytes: files take whole blocks of a disk
LATENCY = 0.5  # seconds of a request, an assumption
PAGES_PER_HOST = 1000  # where --hosts is not given, an assumption
SHARDS = (256, 4096)  # of a store that is made without --shards, and at most
# mkfs.ext4 by default: from so many bytes of disk on, one inode for so many; and its limit.
EXT4 = ((16 << 40, 65536), (4 << 40, 32768), (512 << 20, 16384), (0, 4096))
EXT4_MAX = 2**32 - 1


class MeasuredRate(NamedTuple):
    """A figure that the estimate relies on, what it counts, and its source."""

    value: float
    what: str
    source: str


# Measured on one machine with 2 cores, which also ran the servers.
RATES = {
    "cpu_page": MeasuredRate(1.4, "ms of CPU a page", "`make bench`: case c, 1.4 s per 1,000 pages of 300 hosts"),
    "cpu_host": MeasuredRate(0.6, "ms of CPU a host", "`make bench`: case b, hosts with a page each, less the page"),
    "server": MeasuredRate(460, "files a second of a file server", "`make bench`, sshfs 1 ms away: 232 pages/s"),
    "others": MeasuredRate(0.2, "redirects and failures a page", "the embedded web: 821 beside 4,046 pages"),
    "files_page": MeasuredRate(2, "files a page", "its html and its record"),
    "files_host": MeasuredRate(4, "files and folders a host", "in htmls, links and errs, and its robots.txt"),
    "record": MeasuredRate(4150, "bytes of a record", "measured: 400, and an assumption: 50 links of 75"),
    "warc": MeasuredRate(0.23, "bytes of WARC for a byte of html", "the embedded web: 3.5 MB beside 15.1 MB of html"),
    "memory": MeasuredRate(190, "MB of memory a worker", "`make bench`: case r, 185 at the default concurrency"),
    "load": MeasuredRate(0.7, "of the capacity is planned with", "an assumption: the rest is for bursts and restarts"),
}


def rate(name: str) -> float:
    """Return the value of a rate."""
    return RATES[name].value


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be crawled, and with what."""

    pages: float
    hosts: float
    seconds: float = 7 * DAY
    page_size: float = 30 << 10
    delay: float = 1.0
    workers: int = 4
    concurrency: int = CONCURRENCY
    files: float = RATES["server"].value
    others: float = RATES["others"].value
    warc: float = 0.0  # bytes of WARC files a page
    versions: float = 0.0  # older versions of a page that are kept


class Estimate:
    """What a workload takes if its pages are spread evenly over the hosts and the time."""

    def __init__(self, task: Workload) -> None:
        pages, hosts, seconds = task.pages, task.hosts, task.seconds
        self.task = task
        self.pages_a_second = pages / seconds
        self.requests = pages * (1 + task.others) + hosts  # pages, redirects and failures, and each host's robots.txt
        # How long one host takes; without a delay it can be requested by many at once.
        self.host_seconds = (task.delay + LATENCY) * self.requests / hosts if task.delay else 0.0
        cpu = (rate("cpu_page") * pages + rate("cpu_host") * hosts) / 1000
        open_requests = self.requests * LATENCY / task.concurrency
        workers = max(cpu, open_requests) / seconds / rate("load")
        self.machines = max(math.ceil(workers / task.workers - 1e-9), 1)
        self.memory = rate("memory") * 1e6 * task.workers  # bytes a machine
        # Each takes an inode, and the versions of a page have a folder.
        folders = min(task.versions, 1.0)
        versions = task.versions * rate("files_page") + folders
        self.files = pages * (rate("files_page") + versions + task.others) + rate("files_host") * hosts
        page = _blocks(task.page_size) + _blocks(rate("record")) + task.others * BLOCK
        page += task.versions * (_blocks(task.page_size) + _blocks(rate("record"))) + folders * BLOCK
        self.disk = pages * (page + task.warc) + hosts * rate("files_host") * BLOCK
        # Files a second that the file server takes, as `crawler doctor` counts them; over 1 server, one is too slow.
        self.server_files = (rate("files_page") * pages + rate("files_host") * hosts) / seconds
        self.servers = self.server_files / (task.files * rate("load"))
        self.least_seconds = max(self.host_seconds, self.servers * seconds)  # whatever the machines
        # Four shards for each worker, so that they can be divided evenly.
        least, most = SHARDS
        self.shards = min(max(1 << math.ceil(math.log2(4 * self.machines * task.workers)), least), most)
        size = self.disk / rate("load")
        self.ext4_inodes = size / next(each for from_size, each in EXT4 if size >= from_size)  # of mkfs.ext4's default


def _blocks(size: float) -> float:
    return math.ceil(size / BLOCK) * BLOCK


# ---- the command


def commands(add: Add) -> None:
    """Add `crawler plan`."""
    made = add("plan", run, "crawler plan --pages 1e9 --days 7 --hosts 1e6", store=False)
    made.usage = "crawler plan --pages N [FLAG ...]"
    made.add_argument("--pages", type=flag(_count), required=True, metavar="N", help="1e9, 1,000,000 or 1M")
    made.add_argument("--hosts", type=flag(_count), metavar="N", help=f"default: one for {PAGES_PER_HOST:,} pages")
    made.add_argument("--days", type=flag(_days), default=7 * DAY, metavar="TIME", help="7, 0.5 or 12h (default 7)")
    help = "a small crawl to learn hosts, page size, failures and delay from"
    made.add_argument("--from", dest="store", type=Path, metavar="STORE", help=help)
    made.add_argument("--page-size", type=flag(_size), metavar="SIZE", help="of a page's html (default 30K)")
    made.add_argument("--warc", action="store_true", help="with `warc: true`: WARC files beside the pages")
    made.add_argument("--versions", type=flag(values.whole(0)), metavar="N", help="older ones of a page (`history`)")
    made.add_argument("--delay", type=flag(values.duration), metavar="TIME", help="between requests (default 1s)")
    made.add_argument("--workers", type=WHOLE, metavar="N", help="of a machine, one a core (default 4)")
    made.add_argument(
        "--concurrency", type=WHOLE, metavar="N", help=f"requests open at once per worker (default {CONCURRENCY})"
    )
    help = f"a second of your mount, as `crawler doctor` counts (default {rate('server'):g})"
    made.add_argument("--files", type=flag(_count), metavar="N", help=help)
    made.add_argument("--json", action="store_true", help="for scripts")


def run(options: argparse.Namespace) -> int:
    """`crawler plan`."""
    learned = learn(open_store(options.store), options.pages) if options.store else {}
    hosts = math.ceil(options.pages / PAGES_PER_HOST)
    names = ("hosts", "page_size", "delay", "workers", "concurrency", "files")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    task = Workload(**{"pages": options.pages, "hosts": hosts, "seconds": options.days, **learned, **given})
    if options.versions is not None:
        task = replace(task, versions=options.versions)
    if options.warc and not task.warc:
        task = replace(task, warc=rate("warc") * task.page_size)
    if task.hosts > task.pages:
        raise UsageError(f"--hosts {_number(task.hosts)} is more than --pages {_number(task.pages)}; give fewer hosts")
    estimate = Estimate(task)
    say(json.dumps(as_json(estimate)) if options.json else as_text(estimate))
    return errors.OVER


def learn(store: Store, pages: float) -> dict[str, float]:
    """Return what a small crawl says about a larger one of the same kind."""
    hosts = store.hosts()
    uses = [store.disk_use(host) for host in bar(hosts, "hosts", len(hosts))]
    kept, size = sum(count for count, _ in uses), sum(size for _, size in uses)
    if not kept:
        raise NotThere(f"{store.root} has no page to learn from; crawl some first, with --max-pages 1000, say")
    done = sum(len(store.done(host)) for host in {*hosts, *filter(urls.is_host, store.files.names("errs"))})
    return {
        "hosts": min(max(round(pages * len(hosts) / kept), 1), pages),  # some have only redirects
        "page_size": size / kept,
        "others": max(done / kept - 1, 0.0),
        "delay": store.settings_or_defaults()[0].delay,
        "warc": sum(size for _, size in store.files.sizes(WARCS)) / kept,
        "versions": sum(history.count(store.files, host) for host in history.hosts(store.files)) / kept,
    }


def as_json(estimate: Estimate) -> dict[str, Any]:
    """Return the workload, the estimate, the warnings and the rates."""
    figures = {name: value for name, value in vars(estimate).items() if name != "task"}
    return {
        "task": asdict(estimate.task),
        "estimate": figures,
        "warnings": list(warnings(estimate)),
        "rates": {name: found._asdict() for name, found in RATES.items()},
    }


def as_text(estimate: Estimate) -> str:
    """Return a line for each figure, with how it was calculated, and the warnings."""
    task = estimate.task
    lines = [f"{_number(task.pages)} pages of {many(round(task.hosts), 'host')} in {_unit(task.seconds, TIMES)}"]
    lines += [f"{name:<12} {value:<24} {why}" for name, value, why in figures(estimate)]
    return "\n".join([*lines, *(f"warning: {sentence}" for sentence in warnings(estimate))])


def figures(estimate: Estimate) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each figure, its value, and how it was calculated."""
    task = estimate.task
    page = f"{_unit(task.page_size, SIZES)} of html and {_unit(rate('record'), SIZES)} of record a page"
    warc = f", and {_unit(task.warc, SIZES)} of WARC a page" if task.warc else ""
    older = f"; with {_number(task.versions)} older versions of each page" if task.versions else ""
    yield "disk", _unit(estimate.disk, SIZES), f"{page}, in blocks of 4 KB{warc}{older}"
    each = f"{rate('files_page'):g} a page, {_number(task.others)} for redirects and failures"
    yield "files", _number(estimate.files), f"{each}, {rate('files_host'):g} a host; each is an inode{older}"
    yield "pace", f"{_number(estimate.pages_a_second)} pages a second", "to be done in time"
    why = f"{_number(estimate.requests / task.hosts)} requests, {LATENCY:g} s each and {task.delay:g} s between them"
    yield "each host", _unit(estimate.host_seconds, TIMES), why if task.delay else "no delay"
    carries = f"one carries {_number(task.files)}, of which {rate('load'):.0%} are planned with"
    yield "file server", f"{_number(estimate.server_files)} files a second", carries
    yield "least time", _unit(estimate.least_seconds, TIMES), "that politeness and one file server allow"
    why = "is enough, " if estimate.machines == 1 else "each "
    why += f"with {many(task.workers, 'worker')} of {many(task.concurrency, 'request')} at once"
    if estimate.servers > 1:
        why += f"; one file server limits this to {_number(estimate.pages_a_second / estimate.servers)} pages a second"
    yield "machines", _number(estimate.machines), why
    yield "memory", f"{_unit(estimate.memory, SIZES)} a machine", f"{rate('memory'):g} MB a worker"


def warnings(estimate: Estimate) -> Iterator[str]:
    """Yield what does not fit, each with what to do."""
    task = estimate.task
    if estimate.host_seconds > task.seconds:
        longer = _unit(estimate.host_seconds, TIMES)
        yield f"not possible politely, whatever the machines: take {longer}, more hosts or a shorter delay"
    if estimate.servers > 1:
        needed = _number(math.ceil(estimate.server_files / rate("load")))
        longer = _unit(estimate.servers * task.seconds, TIMES)
        fast = f"one on which `crawler doctor` counts {needed} files a second"
        yield f"one file server is too slow: take {fast}, or {longer}"
    if estimate.machines * task.workers > SHARDS[1]:
        yield f"a store has at most {SHARDS[1]:,} shards, one a worker: divide the hosts among several stores"
    elif estimate.shards > SHARDS[0]:
        yield f"make the store with `--shards {estimate.shards}`: it cannot change later, and each worker needs some"
    wanted = math.ceil(estimate.files / rate("load"))
    if wanted > EXT4_MAX:
        yield f"ext4 has at most {EXT4_MAX:,} inodes: take another file system or several disks"
    elif wanted > estimate.ext4_inodes:
        yield f"mkfs.ext4 makes too few inodes by default: `mkfs.ext4 -N {wanted}`"


# ---- reading and writing numbers


def _count(given: str) -> float:
    found = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(\.\d+)?(e\+?\d{1,2})?([kmgbt]?)", given.strip().lower())
    value = float(re.sub("[,_]", "", found[1]) + (found[2] or "") + (found[3] or "")) * UNITS[found[4]] if found else 0
    if not 1 <= value <= MAX_COUNT:
        raise ValueError("must be a number such as 1e9, 1,000,000 or 10M, from 1 to 1e15")
    return round(value)


def _days(given: str) -> float:
    """Return seconds, given as days or with a unit: 7, 12h, 90m."""
    try:
        seconds = values.duration(given) * (1 if given.strip()[-1:].isalpha() else DAY)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 36525 * DAY:
        raise ValueError("must be days such as 7 or 0.5, or a time such as 12h or 90m")
    return seconds


def _size(given: str) -> int:
    size = values.size(given)
    if not size:
        raise ValueError("must be a size such as 500K, 10M or 1G")
    return size


def _number(value: float) -> str:
    return "under 0.01" if 0 < value < 0.01 else f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{_number(value / size)} {name}"
