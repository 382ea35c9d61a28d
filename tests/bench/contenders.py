"""Who is compared: how each is told to crawl a web, and where it keeps the pages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus import Web
from measure import times

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
ALL = 10**9
# Pages per round of those that take long: a rate is per page, and the pages are a fair sample.
SCRAPY, HTML5LIB = 1_500, 300
FAST = ("robots=false", "delay=0")  # as all the others are
WRK = ["wrk", "--threads", "2", "--connections", "32"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a contender is to do."""

    web: Web
    out: Path  # where it keeps what it finds; not there yet
    seeds: Path  # a file of URLs, one a line
    trusted: Path | None  # the certificates to trust

    def urls(self) -> Path:
        """A file of all pages' URLs, for those that follow no links."""
        path = self.out.with_suffix(".urls")
        path.write_text("".join(f"{url}\n" for url in self.web.urls()))
        return path


@dataclass(frozen=True, slots=True)
class Contender:
    """One that crawls."""

    name: str
    command: Callable[[Job], list[str]]
    stored: Callable[[Path], list[float]]  # when each page was, by the folder that it wrote
    most: int = ALL  # pages that it is given
    cases: str = "abce"
    codes: tuple[int, ...] = (0,)  # exit codes that are no failure
    writes: bool = True
    program: Path = PROJECT  # the folder that it runs in: Python takes the package from there


def contenders(base: Path | None = None) -> list[Contender]:
    """All of them, in the order of the table; `base` is where another revision of this program is."""
    return [
        *(ours(f"this, {count(number)}", number, cases="abcem") for number in (1, 2)),
        *(ours(f"this, {count(number)}", number, cases="c") for number in (3, 4)),
        *(before(base, number) for number in (1, 2) if base),
        ours("this, 2 workers, requests", 2, "fetcher=requests"),
        ours("this, 2 workers, not synced", 2, "durable=false"),
        ours("this, 2 workers, html5lib", 2, "parser=html5lib", most=HTML5LIB),
        Contender("scrapy", script("spider.py"), htmls, SCRAPY, "abcem"),
        Contender("scrapy, 2 processes", script("spider.py", "--processes", "2"), htmls, SCRAPY, "bce"),
        *(wget2(threads) for threads in (8, 32)),
        Contender("the 60-line script", script("baseline.py"), htmls, HTML5LIB),
        Contender("the same with threads", script("baseline.py", "--threads"), htmls, HTML5LIB),
        *(bare(processes, "abcem") for processes in (1, 2)),
        *(bare(processes, "c") for processes in (3, 4)),
        Contender("wrk", _wrk, _requests, writes=False),
    ]


def is_wanted(name: str, only: str) -> bool:
    """Tell whether a contender was asked for: its name contains one of these texts, which semicolons divide."""
    return any(text in name for text in only.split(";"))


def count(workers: int) -> str:
    """So many workers, in words."""
    return f"{workers} worker{'s' * (workers > 1)}"


def before(base: Path, workers: int) -> Contender:
    """This program as it was at another revision."""
    return ours(f"before, {count(workers)}", workers, cases="abcm", program=base)


def ours(
    name: str,
    workers: int,
    *more: str,
    pace: Sequence[str] = FAST,
    most: int = ALL,
    cases: str = "abce",
    program: Path = PROJECT,
) -> Contender:
    """This program with its default concurrency and these settings; 4 is its exit code when a limit was reached."""

    def command(job: Job) -> list[str]:
        spread = "url" if len(job.web.seeds) == 1 else "host"
        new = ("max_per_address=null",) if program == PROJECT else ()  # all hosts are at one address
        sets = [word for each in (*pace, *more, *new, f"spread={spread}", "scope=host") for word in ("-s", each)]
        flags = ["--allow-private", "--quiet", "-j", str(workers), "-i", str(job.seeds)]
        return [sys.executable, "-m", "crawler", "run", str(job.out), *flags, *sets, *_reach(job.web)]

    return Contender(name, command, htmls, most, cases, codes=(0, 4), program=program)


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

    return Contender(f"wget2, {threads} threads", command, _html_names, cases="abcem", codes=(0, 8))


def bare(processes: int, cases: str) -> Contender:
    """The bare loop of fetching and writing."""

    def command(job: Job) -> list[str]:
        where = [str(HERE / "bare.py"), str(job.out), str(job.urls())]
        return [sys.executable, *where, "--processes", str(processes)]

    return Contender(f"bare loop, {processes} process{'es' * (processes > 1)}", command, times, cases=cases)


def environment(trusted: Path | None) -> dict[str, str]:
    """What tells contenders whom to trust, beside their flags."""
    return (
        {**os.environ, **dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), str(trusted))}
        if trusted
        else {**os.environ}
    )


def script(name: str, *flags: str) -> Callable[[Job], list[str]]:
    """A script of this folder."""

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
    asked = ["--duration", "3s", "--script", str(HERE / "urls.lua"), url, "--", str(job.urls()), *close]
    return [*WRK, *asked]


def htmls(out: Path) -> list[float]:
    """When each page was stored by those who have a folder for them."""
    return times(out / "htmls")


def _html_names(out: Path) -> list[float]:
    return times(out, accept=lambda name: name.endswith(".html"))


def _requests(out: Path) -> list[float]:
    """As many as wrk says that it got, which it does at its end, in its output beside the folder it does not write."""
    log = log_of(out)
    found = re.findall(r"(\d+) requests in", log.read_text())
    return int(found[-1]) * [log.stat().st_mtime] if found else []


def log_of(out: Path) -> Path:
    """Where the output of a contender goes that writes to this folder: beside the disk that the folder is on."""
    return out.parent.with_suffix(".log")
