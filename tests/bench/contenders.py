"""Who is compared: how each is told to crawl a web, and where it keeps the pages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus import Web
from measure import count_files

HERE = Path(__file__).parent
ALL = 10**9
# Pages per round of those that take long: a rate is per page, and the pages are a fair sample.
SCRAPY, HTML5LIB = 1_500, 300
THREADS = 16  # of a worker, unless said: the program's default
WRK = ["wrk", "--threads", "2", "--connections", "32"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a contender is to do."""

    web: Web
    out: Path  # where it keeps what it finds; not there yet
    seeds: Path  # a file of URLs, one a line
    urls: Path  # likewise of all pages, for those that follow no links
    trusted: Path | None  # the certificates to trust


@dataclass(frozen=True, slots=True)
class Contender:
    """One that crawls."""

    name: str
    command: Callable[[Job], list[str]]
    stored: Callable[[Path], int]  # pages, by the folder that it wrote
    most: int = ALL  # pages that it is given
    cases: str = "abce"
    codes: tuple[int, ...] = (0,)  # exit codes that are no failure
    writes: bool = True


def contenders() -> list[Contender]:
    """All of them, in the order of the table."""
    return [
        *(ours(f"this, {number} worker{'s' * (number > 1)}", number) for number in (1, 2)),
        *(ours(f"this, {number} workers", number, cases="c") for number in (3, 4)),
        ours("this, 1 worker, twice the threads", 1, threads=2 * THREADS),
        ours("this, 2 workers, requests", 2, "fetcher=requests"),
        ours("this, 2 workers, not synced", 2, "durable=false"),
        ours("this, 2 workers, html5lib", 2, "parser=html5lib", most=HTML5LIB),
        Contender("scrapy", _script("spider.py"), _htmls, SCRAPY),
        Contender("scrapy, 2 processes", _script("spider.py", "--processes", "2"), _htmls, SCRAPY, "bce"),
        *(wget2(threads) for threads in (8, 32)),
        Contender("the 60-line script", _script("baseline.py"), _htmls, HTML5LIB),
        Contender("the same with threads", _script("baseline.py", "--threads"), _htmls, HTML5LIB),
        *(bare(processes, "abce") for processes in (1, 2)),
        *(bare(processes, "c") for processes in (3, 4)),
        Contender("wrk", _wrk, _requests, writes=False),
    ]


def ours(
    name: str, workers: int, setting: str = "", threads: int = THREADS, most: int = ALL, cases: str = "abce"
) -> Contender:
    """This program; 4 is its exit code when a limit was reached."""

    def command(job: Job) -> list[str]:
        spread = "url" if len(job.web.seeds) == 1 else "host"
        settings = ["robots=false", f"spread={spread}", "scope=host", *([setting] if setting else [])]
        flags = ["--allow-private", "--quiet", "-w", "0", "-j", str(workers), "-t", str(threads), "-i", str(job.seeds)]
        sets = [word for each in settings for word in ("-s", each)]
        return [sys.executable, "-m", "crawler", "run", str(job.out), *flags, *sets, *_reach(job.web)]

    return Contender(name, command, _htmls, most, cases, codes=(0, 4))


def wget2(threads: int) -> Contender:
    """wget2, told to look for links where the others do; 8 is its exit code when a link led nowhere."""
    # Without -x or -r all pages would be kept in one folder; a level of 0 is no limit there.
    plain = ["--no-config", "--quiet", "--no-robots", "--no-hsts", "--no-ocsp", "--tries=1", "--force-directories"]
    ignored = "--ignore-tags=img,link,script,iframe,frame,area,form,input,embed,object,source,video,audio"

    def command(job: Job) -> list[str]:
        depth = {None: ["-r", "-l", "0"], 0: []}.get(job.web.depth, ["-r", "-l", str(job.web.depth)])
        trust = [f"--ca-certificate={job.trusted}"] if job.trusted else []
        where = ["-P", str(job.out), "-i", str(job.seeds)]
        return ["wget2", *plain, ignored, f"--max-threads={threads}", *trust, *depth, *where]

    return Contender(f"wget2, {threads} threads", command, _html_names, codes=(0, 8))


def bare(processes: int, cases: str) -> Contender:
    """The bare loop of fetching and writing."""

    def command(job: Job) -> list[str]:
        script = str(HERE / "bare.py")
        return [sys.executable, script, str(job.out), str(job.urls), "--processes", str(processes)]

    return Contender(f"bare loop, {processes} process{'es' * (processes > 1)}", command, count_files, cases=cases)


def environment(trusted: Path | None) -> dict[str, str]:
    """What tells contenders whom to trust, beside their flags."""
    return (
        {**os.environ, **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(trusted))}
        if trusted
        else {**os.environ}
    )


def _script(name: str, *flags: str) -> Callable[[Job], list[str]]:
    def command(job: Job) -> list[str]:
        return [sys.executable, str(HERE / name), str(job.out), str(job.seeds), *flags, *_reach(job.web)]

    return command


def _reach(web: Web) -> list[str]:
    depth = [] if web.depth is None else ["--depth", str(web.depth)]
    return depth + ([] if web.limit is None else ["--max-pages", str(web.limit)])


def _wrk(job: Job) -> list[str]:
    """Where each host has one page, each page needs a connection."""
    close = ["close"] if job.web.depth == 0 else []
    url = job.web.seeds[0]
    asked = ["--duration", "3s", "--script", str(HERE / "urls.lua"), url, "--", str(job.urls), *close]
    return [*WRK, *asked]


def _htmls(out: Path) -> int:
    return count_files(out / "htmls")


def _html_names(out: Path) -> int:
    return count_files(out, accept=lambda name: name.endswith(".html"))


def _requests(out: Path) -> int:
    """What wrk says that it got; its output is beside the folder that it does not write."""
    found = re.findall(r"(\d+) requests in", log_of(out).read_text())
    return int(found[-1]) if found else 0


def log_of(out: Path) -> Path:
    """Where the output of a contender goes that writes to this folder."""
    return out.with_suffix(".log")
