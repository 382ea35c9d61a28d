"""`crawler compare`: the same URLs by one process, by several, by several requests at once, and by both."""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from crawler import errors
from crawler.commands import permissions, seeds
from crawler.commands.arguments import WHOLE, Add
from crawler.commands.library import Crawl
from crawler.crawl.machine import allowed_concurrency
from crawler.errors import UsageError
from crawler.settings import settings as config
from crawler.settings.settings import Settings, delay_for
from crawler.store.store import Store
from crawler.terminal import as_time, many, say
from crawler.web import urls
from crawler.web.robots import Rules

WAYS = "1x1,16x1,1x16,4x64"
BAR = 40  # characters of the longest bar
ALONE = {"scope": "page", "depth": 0, "sitemaps": False}  # only the given URLs are requested, and redirects of them
BRIEF = {"heartbeat": 0.5}  # the end of a crawl is seen by heartbeats, and is not what is measured
PASSED_ON = ("secrets", "proxy", "connect_to", "allow_private", "allow_metadata")


@dataclass(frozen=True, slots=True)
class Measured:
    """What one way took."""

    way: str
    processes: int
    concurrency: int
    seconds: float
    cpu: float  # seconds, of all processes
    pages: int
    failed: int  # also excluded and unwanted
    pages_per_second: float
    exit_code: int


def commands(add: Add) -> None:
    """Add `crawler compare`."""
    made = add("compare", run, "crawler compare urls.txt --ways 1x1,4x1,4x16", store=False)
    made.usage = "crawler compare FILE|URL ... [FLAG ...]"
    seeds.add_flags(made)
    help = f"processes x requests open in each ({WAYS})"
    made.add_argument("--ways", type=_ways, default=_ways(WAYS), metavar="LIST", help=help)
    made.add_argument("-w", "--delay", metavar="SECONDS", help="seconds between requests to a host [1]")
    help = "any setting by name; repeatable"
    made.add_argument("-s", "--set", metavar="KEY=VALUE", action="append", default=[], help=help)
    permissions.add_flags(made)
    made.add_argument("--json", action="store_true", help="the figures as JSON")
    made.add_argument("--plot", type=Path, metavar="FILE.svg", help="a picture of the times")
    made.add_argument("--keep", type=Path, metavar="DIR", help="keep the stores in this new folder")


def _ways(given: str) -> list[tuple[int, int]]:
    found = [re.fullmatch(r"(\d+)x(\d+)", part.strip()) for part in given.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{given!r} must be such as {WAYS}")
    return [(WHOLE(way[1]), WHOLE(way[2])) for way in found if way]


def run(options: argparse.Namespace) -> int:
    """`crawler compare`."""
    given = _given(options)
    settings = Settings(**ALONE | _settings(options))  # type: ignore[arg-type]
    for _, concurrency in options.ways:
        allowed_concurrency(concurrency)
    if options.plot and options.plot.suffix != ".svg":
        raise UsageError(f"--plot {options.plot}: give a name that ends with .svg")
    shown = sys.stderr if options.json else sys.stdout
    say(_announce(given, settings, len(options.ways)), shown)
    measured: list[Measured] = []
    with _folder(options.keep) as folder:
        for number, (processes, concurrency) in enumerate(options.ways, 1):
            store = folder / f"{number}-{processes}x{concurrency}"
            measured.append(_measure(options, given, store, processes, concurrency))
            say(f"{measured[-1].way} took {measured[-1].seconds:,.1f} s", shown)
            if measured[-1].exit_code != errors.OVER:
                break
            if number < len(options.ways):
                time.sleep(_pause(Store(store)))
    _show(options, measured)
    return max(it.exit_code for it in measured)


def _given(options: argparse.Namespace) -> list[str]:
    """Return the URLs; an argument without a scheme may be a file of them."""
    files = [given for given in options.urls if "://" not in given and Path(given).is_file()]
    options.urls = [given for given in options.urls if given not in files]
    found = seeds.given_seeds(options)
    for file in files:
        found += seeds.given_seeds(argparse.Namespace(**{**vars(options), "urls": [], "table": None, "template": None,
                                                         "sitemap": [], "input_file": file}))  # fmt: skip
    if not found:
        raise UsageError("no URLs to compare with; give some, or a file with one a line")
    return list(dict.fromkeys(found))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the user gave."""
    given = dict(config.pair(item) for item in options.set)
    if options.delay is not None:
        given["delay"] = options.delay
    wrong = [name for name in ALONE if name in given]
    if wrong:
        raise UsageError(f"--set {wrong[0]}: compare requests the given URLs alone; `crawler run` follows links")
    return BRIEF | config.check(given, "--set")


def _announce(given: Sequence[str], settings: Settings, ways: int) -> str:
    """Return what will be done, and how long politeness makes it at least."""
    hosts = Counter(map(urls.host, given))
    robots = 1 if settings.robots else 0  # is requested first
    waits = {host: (count - 1 + robots) * delay_for(settings, host) for host, count in hosts.items()}
    slowest = max(waits, key=lambda host: waits[host])
    least = ways * waits[slowest] + (ways - 1) * max(delay_for(settings, host) for host in hosts)
    said = f"{many(len(given), 'URL')} of {many(len(hosts), 'host')} in {many(ways, 'way')}, one after the other"
    if not least:
        return f"{said}, without delays"
    return (
        f"{said}; with the delay of each host this takes at least {as_time(least)}: {slowest} alone has "
        f"{many(hosts[slowest], 'URL')}, {delay_for(settings, slowest):g} s apart (its robots.txt may want more)"
    )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Make a folder for the stores, and remove it afterwards unless it is to be kept."""
    try:
        if keep is not None:
            keep.mkdir(parents=True)
        folder = keep or Path(tempfile.mkdtemp(prefix="crawler-compare-"))
    except OSError as error:
        raise UsageError(f"{keep or tempfile.gettempdir()}: {error.strerror}; name a new folder with --keep") from error
    try:
        yield folder
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _measure(options: argparse.Namespace, given: list[str], store: Path, processes: int, concurrency: int) -> Measured:
    """Crawl the URLs in one way into a store of its own."""
    passed_on = {name: getattr(options, name) for name in PASSED_ON}
    crawl = Crawl(
        store, given, globoff=True, workers=processes, concurrency=concurrency, quiet=True,
        **ALONE, **_settings(options), **passed_on,
    )  # fmt: skip
    before = _cpu()
    result = crawl.run()
    seconds = round(result.elapsed, 2)
    others = result.failed + result.excluded + result.unwanted
    rate = round(result.pages / max(seconds, 0.01), 2)
    cpu = round(_cpu() - before, 2)
    way = f"{processes}x{concurrency}"
    return Measured(way, processes, concurrency, seconds, cpu, result.pages, others, rate, result.exit_code)


def _cpu() -> float:
    """Return the CPU seconds of this process and of all its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(it.ru_utime + it.ru_stime for it in used)


def _pause(store: Store) -> float:
    """Return the seconds after which each host may be requested again: the longest delay, or what robots.txt wants."""
    settings = store.settings()
    delays = [settings.delay]
    for host in store.requested_hosts():
        robots = store.robots(host)
        wanted = Rules(robots.body, settings.user_agent).delay if robots and settings.robots else 0.0
        delays.append(delay_for(settings, host, wanted))
    return max(delays)


# ---- what people see


def _show(options: argparse.Namespace, measured: list[Measured]) -> None:
    if options.plot:
        try:
            options.plot.write_text(_svg(measured), "utf-8")
        except OSError as error:
            raise UsageError(f"--plot {options.plot}: {error.strerror}; name another file") from error
    print(json.dumps([asdict(it) for it in measured], indent=1) if options.json else "\n".join(_table(measured)))


def _table(measured: list[Measured]) -> Iterator[str]:
    """Yield the table's lines, each with a bar as long as its time."""
    longest = max(it.seconds for it in measured) or 1.0
    yield f"{'way':>8} {'seconds':>9} {'pages/s':>8} {'CPU s':>7} {'pages':>7} {'others':>7}"
    for it in measured:
        numbers = f"{it.seconds:>9,.1f} {it.pages_per_second:>8,.1f} {it.cpu:>7,.1f} {it.pages:>7,} {it.failed:>7,}"
        yield f"{it.way:>8} {numbers}  {'█' * max(round(BAR * it.seconds / longest), 1)}"


def _svg(measured: list[Measured]) -> str:
    """Return the times as bars."""
    longest = max(it.seconds for it in measured) or 1.0
    height = 40 + 30 * len(measured)
    rows = []
    for number, it in enumerate(measured):
        top, width = 35 + 30 * number, max(440 * it.seconds / longest, 1)
        said = escape(f"{it.seconds:,.1f} s, {it.cpu:,.1f} s of CPU")
        rows += [
            f'<text x="90" y="{top + 15}" text-anchor="end">{escape(it.way)}</text>',
            f'<rect x="100" y="{top}" width="{width:.0f}" height="20" fill="#4a78b5"/>',
            f'<text x="{108 + width:.0f}" y="{top + 15}">{said}</text>',
        ]
    title = f"{many(max(it.pages for it in measured), 'page')}: processes x requests at once, and the time"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{height}" font-family="sans-serif"',
        ' font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="20">{escape(title)}</text>', *rows, "</svg>", "",
    ])  # fmt: skip
