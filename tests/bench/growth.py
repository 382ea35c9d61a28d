"""Growth: what a page costs when few and when very many URLs are known, and what it takes to resume with them.

One worker crawls an endless web, so all that is known is in one table. At each size its CPU seconds, pages and memory
are noted over a window of pages; then everything is killed and started again on the same store, and `status` and
`explain` are asked while it works.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import endless
from measure import cpu_of, family, memory_of, peak_of

from crawler import Store
from crawler.fleet.heartbeats import read_counters
from crawler.web import urls

SIZES = (10_000, 100_000, 1_000_000)  # known URLs
QUICK = (5_000, 20_000, 100_000)
WINDOW = 2_000  # pages over which the cost is taken, beginning at each size
PROJECT = Path(__file__).parents[2]
LIMIT = 1800.0  # seconds that any single step may take


@dataclass(frozen=True, slots=True)
class Size:
    """What a page costs with so many known URLs, and the memory of the worker then."""

    known: int
    cpu_per_thousand: float
    rate: float
    memory: int


@dataclass(frozen=True, slots=True)
class Resume:
    """What it takes to go on with so many waiting URLs after everything was killed."""

    waiting: int
    first_page: float  # seconds from the start of the command until a new record is in the store
    loaded: float  # seconds until every waiting URL is in the table
    cpu: float  # seconds that the workers took until then
    peak: int  # bytes of a worker
    status: float
    explain: float


@dataclass(frozen=True, slots=True)
class Growth:
    """All of it."""

    sizes: list[Size]
    resume: Resume

    @property
    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)

    @property
    def cost_ratio(self) -> float:
        """The cost of a page at the largest size against the smallest."""
        return self.sizes[-1].cpu_per_thousand / self.sizes[0].cpu_per_thousand

    @property
    def memory_ratio(self) -> float:
        """The memory of a worker at the largest size against that at the one before."""
        return self.sizes[-1].memory / self.sizes[-2].memory


def measure(folder: Path, quick: bool = False, show: Callable[[str], None] = print) -> Growth:
    """Crawl in a new store below `folder`, kill it at the largest size, and resume."""
    root = folder.absolute() / "store"
    with endless.serve() as web:
        with _crawler(web, root, folder / "growth.log") as run:
            sizes = [_at_size(web, run, known, show) for known in (QUICK if quick else SIZES)]
            waiting = _waiting(root, run)
        web.asked.value = 0
        resume = _resume(web, root, folder / "resume.log", waiting)
    show(
        f"resume with {waiting:,} waiting: first page after {resume.first_page:.1f} s, all loaded after "
        f"{resume.loaded:.1f} s ({resume.cpu:.1f} CPU s), {resume.peak >> 20} MB at the peak; "
        f"status {resume.status:.2f} s, explain {resume.explain:.2f} s"
    )
    return Growth(sizes, resume)


@contextmanager
def _crawler(web: endless.Endless, root: Path, log: Path) -> Iterator[int]:
    """`crawler run` on the store; everything is killed at the end, as a power cut would."""
    command = [sys.executable, "-m", "crawler", "run", str(root), endless.url(0), "-j", "1"]
    settings = ("robots=false", "delay=0", "spread=host", "scope=any")
    command += ["--connect-to", f"::127.0.0.1:{web.port}"]
    for setting in settings:
        command += ["-s", setting]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, cwd=PROJECT)
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _at_size(web: endless.Endless, run: int, known: int, show: Callable[[str], None]) -> Size:
    pages = known // endless.NEW
    _until(lambda: web.asked.value >= pages)
    asked, began, cpu = web.asked.value, time.monotonic(), _workers_cpu(run)
    _until(lambda: web.asked.value >= pages + WINDOW)
    more, seconds = web.asked.value - asked, time.monotonic() - began
    cost = 1000 * (_workers_cpu(run) - cpu) / more
    found = Size(known, cost, more / seconds, max(map(memory_of, _workers(run))))
    show(f"{known:,} known URLs: {cost:.2f} CPU s per 1,000 pages, {found.rate:.0f} pages/s, {found.memory >> 20} MB")
    return found


def _resume(web: endless.Endless, root: Path, log: Path, waiting: int) -> Resume:
    began = time.monotonic()
    with _crawler(web, root, log) as run:
        _until(lambda: web.asked.value > 0)
        first = endless.url(web.first.value)
        _until((root / "links" / urls.host(first) / urls.key(first)).exists)
        first_page = time.monotonic() - began
        _until(lambda: _waiting(root, run) >= waiting)
        loaded, cpu = time.monotonic() - began, _workers_cpu(run)
        peak = max(map(peak_of, _workers(run)))
        status = _seconds("status", str(root))
        explain = _seconds("explain", str(root), endless.url(endless.NEW * web.asked.value))
    return Resume(waiting, first_page, loaded, cpu, peak, status, explain)


def _seconds(*arguments: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "crawler", *arguments], check=True, stdout=subprocess.DEVNULL, cwd=PROJECT)
    return time.monotonic() - began


def _workers(run: int) -> list[int]:
    return family(run)[1:]


def _workers_cpu(run: int) -> float:
    return sum(map(cpu_of, _workers(run)))


def _waiting(root: Path, run: int) -> int:
    """What the workers of this run said to have before them, when they last showed a pulse."""
    workers = _workers(run)
    return sum(found["waiting"] for found in read_counters(Store(root).files) if found["pid"] in workers)


def _until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT
    while not is_so():
        if time.monotonic() > limit:
            raise SystemExit(f"growth: a step has taken more than {LIMIT:.0f} s")
        time.sleep(0.02)
