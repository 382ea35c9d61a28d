"""Plan: what a crawl of so many pages takes, before it begins; from measured rates, and from a small crawl of yours."""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from crawler import errors, settings
from crawler.commands.arguments import Add
from crawler.commands.plan_sums import DAY, EXT4_MOST, RATES, SHARDS, Sums, Workload, rate
from crawler.errors import NotThere, UsageError
from crawler.store.store import Store, open_store
from crawler.terminal import bar, many, say
from crawler.web import urls

UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
MOST = 1e15  # of anything that is counted
SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"))
BITS = ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"))
TIMES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
MORE_THREADS = 64  # visitors of a worker: what is advised where they decide
GIGABIT = 1e9
CLUSTERS = "a distributed file system (CephFS, Lustre, MooseFS)"


class Line(NamedTuple):
    """A figure for people, and where it comes from."""

    name: str
    value: str
    why: str


def commands(add: Add) -> None:
    """Add `crawler plan`."""
    example = "crawler plan --pages 1e9 --days 7 --hosts 1e6"
    made = add("plan", run, example, store=False)
    made.usage = "crawler plan --pages N --hosts N [FLAG ...]"
    made.add_argument("--pages", type=_count, required=True, metavar="N", help="1e9, 1,000,000 or 1M of them")
    made.add_argument("--hosts", type=_count, metavar="N", help="that they are spread over")
    made.add_argument("--days", type=_days, default=7 * DAY, metavar="TIME", help="7, 0.5 or 12h (default 7)")
    help = "a small crawl to learn hosts, sizes, links, refusals and delay from"
    made.add_argument("--from", dest="store", type=Path, metavar="STORE", help=help)
    made.add_argument("--page-size", type=_read(_size), metavar="SIZE", help="of a page's html (default 30K)")
    made.add_argument("--links", type=_read(_some), metavar="N", help="on a page (default 50)")
    made.add_argument("--delay", type=_read(settings.duration), metavar="TIME", help="between requests (default 1s)")
    made.add_argument("--latency", type=_read(settings.duration), metavar="TIME", help="of an answer (default 0.5s)")
    made.add_argument("--workers", type=_few, metavar="N", help="of a machine, one a core (default 4)")
    made.add_argument("--concurrency", type=_few, metavar="N", help="visitors of a worker (default 16)")
    help = f"a second of your mount, as `crawler doctor` says (default {rate('files'):g})"
    made.add_argument("--files", type=_count, metavar="N", help=help)
    made.add_argument("--json", action="store_true", help="for scripts: all figures and rates")


def run(options: argparse.Namespace) -> int:
    """`crawler plan`."""
    learnt = learn(open_store(options.store), options.pages) if options.store else {}
    names = ("hosts", "page_size", "links", "delay", "latency", "workers", "threads", "files")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    task = _task({"pages": options.pages, "seconds": options.days, **learnt, **given})
    sums = Sums(task)
    say(json.dumps(as_json(sums)) if options.json else as_text(sums, options.store))
    return errors.OVER


def _task(known: dict[str, Any]) -> Workload:
    if "hosts" not in known:
        raise UsageError("--hosts is missing: say how many hosts the pages are spread over, or --from a small crawl")
    if known["hosts"] > known["pages"]:
        raise UsageError(
            f"--hosts {_number(known['hosts'])} are more than --pages {_number(known['pages'])}: "
            "each host has a page at least; give fewer hosts or more pages"
        )
    return Workload(**known)


def learn(store: Store, pages: float) -> dict[str, float]:
    """What a small crawl tells of a larger one of the same kind."""
    records = [len(page.links) for page in bar(store.pages(), "pages")]
    hosts = store.hosts()
    kept, size = map(sum, zip(*(store.disk_use(host) for host in hosts), strict=True)) if hosts else (0, 0)
    if not records or not kept:
        raise NotThere(f"{store.root} has no page to learn from; crawl some first, with --limit 1000, say")
    settled = sum(len(store.done(host)) for host in {*hosts, *filter(urls.is_host, store.files.names("errs"))})
    return {
        "hosts": min(max(round(pages * len(hosts) / kept), 1), pages),  # some have only redirects
        "page_size": size / kept,
        "links": sum(records) / len(records),
        "others": max(settled / kept - 1, 0.0),
        "delay": store.settings_or_defaults()[0].delay,
    }


# ---- what is shown


def as_json(sums: Sums) -> dict[str, Any]:
    """All figures; none for what has no bound."""
    names = [name for name, found in vars(Sums).items() if isinstance(found, property) and name[0] != "_"]
    figures = {name: None if math.isinf(value := getattr(sums, name)) else value for name in names}
    limit, times = bottleneck(sums)
    rates = {name: found._asdict() for name, found in RATES.items()}
    verdict = {"possible": sums.politeness <= 1, "bottleneck": limit, "load": times, "advice": list(advice(sums))}
    return {"task": asdict(sums.task), "sums": figures, **verdict, "rates": rates}


def as_text(sums: Sums, learnt: Path | None = None) -> str:
    """The figures, each with where it comes from, and what follows."""
    task = sums.task
    head = f"{_number(task.pages)} pages of {many(round(task.hosts), 'host')} in {_time(task.seconds)}"
    rows = [f"{line.name:<12} {line.value:<27} {line.why}".rstrip() for line in lines(sums)]
    told = [f"sizes, links, refusals, delay, and pages a host without --hosts, are those of {learnt}"] if learnt else []
    return "\n".join([head, *told, *rows, _verdict(sums), *(f"- {what}" for what in advice(sums))])


def lines(sums: Sums) -> Iterator[Line]:
    """Each figure and its reason."""
    task = sums.task
    more = f"{_number(sums.requests_a_second)} requests: {_number(task.others)} redirects and refusals a page"
    yield Line("pace", f"{_number(sums.pages_a_second)} pages a second", f"{more}, a robots.txt a host")
    yield _politeness(sums)
    yield from _machines(sums)
    why = f"2 a page, {_number(task.others)} for redirects and refusals, 4 a host (folders, robots.txt)"
    yield Line("inodes", _number(sums.inodes), why)
    files = f"{_unit(task.page_size, SIZES)} of html and {_unit(sums.record, SIZES)} of record"
    yield Line("disk", _unit(sums.disk, SIZES), f"{files} ({task.links:.0f} links), in blocks of 4 KB")
    page, host = (rate(f"names_{of}") + rate(f"data_{of}") for of in ("page", "host"))
    each = f"{page:g} a page and {host:g} a host: names, writes and syncs, counted under strace"
    yield Line("file server", f"{_number(sums.server_requests)} requests a second", each)
    yield Line("", f"{_number(sums.server_files)} files a second", f"one file server carries {_server(task)}")
    web = f"and {_unit(sums.web_bits, BITS)} from the web, if it compresses nothing"
    yield Line("network", f"{_unit(sums.server_bits, BITS)} to the server", web)


def _politeness(sums: Sums) -> Line:
    task = sums.task
    if not sums.turn:
        return Line("politeness", "no delay", "a host may be asked by all workers at once, if it has agreed to it")
    why = f"{_number(sums.requests / task.hosts)} requests if all are alike, one in {sums.turn:g} s "
    why += f"(delay {task.delay:g}, answer {task.latency:g}); a host can give {_number(sums.host_pages)} pages"
    return Line("politeness", f"{_time(sums.host_seconds)} a host", why)


def _machines(sums: Sums) -> Iterator[Line]:
    task = sums.task
    cpu = f"{sums.by_cpu} for {_number(sums.cpu)} busy cores ({rate('cpu_page')} ms a page, `make bench`)"
    visitors = f"{sums.by_visitors} for {_number(sums.open_requests)} open requests ({task.threads} a worker)"
    why = f"{cpu}, {visitors}, each {_part(rate('load'))} busy"
    yield Line("machines", f"{_number(sums.machines)} with {many(task.workers, 'worker')}", why)
    yield Line("memory", f"{_unit(sums.memory, SIZES)} a machine", f"{rate('memory')} MB a worker (`make bench`)")
    why = f"{rate('known')} bytes a URL; more where more URLs are found than asked"
    yield Line("$TMPDIR", f"{_unit(sums.own_disk, SIZES)} a machine", why)


def _server(task: Workload) -> str:
    if task.files == rate("files"):
        return f"{rate('files'):g} ({RATES['files'].source}); `crawler doctor` tells of yours: --files"
    return f"{_number(task.files)}, as you say"


def bottleneck(sums: Sums) -> tuple[str, float]:
    """What is nearest to its limit, and how much of it is used."""
    return max(("politeness", sums.politeness), ("the file server", sums.servers), key=lambda found: found[1])


def _verdict(sums: Sums) -> str:
    limit, used = bottleneck(sums)
    if used > 1:
        return f"bottleneck: {limit}, {_number(used)} times what there may be of it"
    return f"it can be done; nearest to its limit is {limit}, {_part(used)}"


def advice(sums: Sums) -> Iterator[str]:
    """What follows, in plain words."""
    yield from _about_hosts(sums)
    yield _about_server(sums)
    if sums.by_visitors > sums.by_cpu and sums.task.threads < MORE_THREADS:
        fewer = Sums(_with(sums.task, threads=MORE_THREADS)).machines
        yield f"waiting visitors decide how many machines: with `--concurrency {MORE_THREADS}` {fewer:,} would do"
    yield from _about_shards(sums)
    yield from _about_disk(sums)
    if sums.server_bits > GIGABIT * rate("load"):
        yield "a network of 1 Gbit/s is too little for the file server"


def _about_hosts(sums: Sums) -> Iterator[str]:
    if sums.politeness <= 1:
        return
    hosts = [f"{_number(sums.hosts_needed)} hosts"] if sums.host_pages else []
    ways = ", or ".join([*hosts, _time(sums.host_seconds), "a shorter delay"])
    yield f"not possible politely, whatever the machines: it takes {ways}"


def _about_server(sums: Sums) -> str:
    if sums.servers <= 1:
        return f"one file server is enough: it is {_part(sums.servers * rate('load'))} busy"
    needed = _number(math.ceil(sums.server_files / rate("load")))
    longer = _time(sums.task.seconds * sums.servers)
    return (
        f"one file server ends here: take {CLUSTERS} worth {math.ceil(sums.servers)} of them, "
        f"or one on which `crawler doctor` counts {needed} files a second, or {longer}"
    )


def _about_shards(sums: Sums) -> Iterator[str]:
    usual, most = SHARDS
    workers = sums.machines * sums.task.workers
    if workers > most:
        stores = math.ceil(workers / most)
        yield f"a store has at most {most:,} shards, and so many workers: share the hosts among {stores:,} stores"
    elif sums.shards > usual:
        yield f"make the store with `--shards {sums.shards}`: it cannot change, and every worker needs some"


def _about_disk(sums: Sums) -> Iterator[str]:
    xfs = f"`mkfs.xfs -i maxpct={sums.xfs_wanted}`" if sums.xfs_wanted else "xfs"
    if sums.ext4_wanted > EXT4_MOST:
        yield f"ext4 has at most {EXT4_MOST:,} inodes, so take {xfs}, or several disks"
    elif sums.ext4_wanted:
        yield f"ext4 makes too few inodes by itself: `mkfs.ext4 -N {sums.ext4_wanted}`, or {xfs}"


def _with(task: Workload, **changed: Any) -> Workload:
    return Workload(**{**asdict(task), **changed})


# ---- reading and writing numbers


def _count(given: str) -> float:
    """1e9, 1,000,000, 1_000_000, 10M: at least 1."""
    found = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d+(?:_\d+)*)(\.\d+)?(e\+?\d{1,2})?([kmgbt]?)", given.strip().lower())
    value = float(re.sub("[,_]", "", found[1]) + (found[2] or "") + (found[3] or "")) * UNITS[found[4]] if found else 0
    if not 1 <= value <= MOST:
        raise argparse.ArgumentTypeError(f"{given!r} must be a number such as 1e9, 1,000,000 or 10M, from 1 to 1e15")
    return round(value)


def _days(given: str) -> float:
    """Seconds: of days, or of 12h, 90m, 7d."""
    try:
        seconds = settings.duration(given) * (1 if given.strip()[-1:].isalpha() else DAY)
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 36525 * DAY:
        raise argparse.ArgumentTypeError(f"{given!r} must be days such as 7 or 0.5, or a time such as 12h or 90m")
    return seconds


def _some(given: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", given):
        raise ValueError("must be a number such as 50")
    return float(given)


def _size(given: str) -> int:
    size = settings.size(given)
    if not size:
        raise ValueError("must be a size such as 500K, 10M or 1G")
    return size


def _few(given: str) -> int:
    return int(_read(settings.whole(1, 1024))(given))


def _read(check: Callable[[str], Any]) -> Callable[[str], Any]:
    """A check of `config` as argparse has it."""

    def read(given: str) -> Any:
        try:
            return check(given)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{given!r} {error}") from error

    return read


def _number(value: float) -> str:
    if math.isinf(value):
        return "any number of"
    return "under 0.01" if 0 < value < 0.01 else f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    size, name = next((unit for unit in units if value >= unit[0]), units[-1])
    return f"{_number(value / size)} {name}"


def _part(value: float) -> str:
    return "under 1 %" if 0 < value < 0.01 else f"{100 * value:.0f} %"


def _time(seconds: float) -> str:
    return _unit(seconds, TIMES)
