"""Contenders side by side: each crawls the same web in turn, round after round."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import corpus
import servers
from contenders import Contender, Job, contenders, environment, is_wanted, log_of
from corpus import Web
from lab.operations import can_trace, count, per_page, trace
from measure import KILLED, Cost, Ran, run
from table import Row

LIMIT = 900.0  # seconds after which a contender is ended
TRACED = 300  # pages at most of the run whose operations are counted
DISK = 8 << 30  # bytes that a contender has; the file behind it takes only what is written
AGREE = 0.03  # of the pages: so many may a contender lack or have over
TITLES = {
    "a": "case a: one site, by its links",
    "b": "case b: hosts with one page each",
    "c": "case c: hosts with a front page and the pages that it links to",
    "e": "case e: https, hosts with one page each",
    "m": "case m: modern, https, hosts with one page of 200 to 260 KB each",
}


HTTPS = "em"


def rows(case: str, folder: Path, rounds: int, part: int = 1, only: str = "", base: Path | None = None) -> list[Row]:
    """What a case costs each contender that `only` asks for; of everything it takes one in `part`."""
    chosen = [one for one in contenders(base) if case in one.cases and is_wanted(one.name, only)]
    costs: dict[str, list[Cost]] = {one.name: [] for one in chosen}
    with served(case, folder, part) as (web, trusted):
        turns = Turns(folder / "turn", trusted)
        for number in range(rounds):
            for one in chosen:
                costs[one.name].append(turns.take(one, web.part(one.most // part)))
                progress(f"{case}, round {number + 1}: {one.name}", costs[one.name][-1])
        traced = {one.name: turns.operations(one, web.part(min(TRACED, one.most) // part)) for one in chosen}
        return [Row(case, name, found, traced[name]) for name, found in costs.items()]


def progress(what: str, cost: Cost) -> None:
    """Say on stderr what a turn has found."""
    whole, steady = cost.whole, cost.steady
    found = f"{whole.pages:,} pages in {whole.seconds:.1f} s, {whole.cpu_per_thousand:.2f} CPU s per 1,000"
    found += f"; steady {steady.rate:,.1f} pages/s, {steady.cpu_per_thousand:.2f}"
    print(f"  {what}: {found}", file=sys.stderr, flush=True)


@contextmanager
def served(case: str, folder: Path, part: int) -> Iterator[tuple[Web, Path | None]]:
    """The web of a case, or one in `part` of its pages, while it is served; and whom to trust."""
    web = web_of(case, folder / "webs" / case, part)
    certificate, trusted = servers.certificate(folder / "certificates") if case in HTTPS else (None, None)
    with servers.nginx(web.root, folder / "nginx", certificate=certificate):
        yield web, trusted


def web_of(case: str, folder: Path, part: int = 1) -> Web:
    """The web of a case, or one in `part` of its pages."""
    makers: dict[str, Callable[[], Web]] = {
        "a": lambda: corpus.site(folder, 5_000 // part),
        "b": lambda: corpus.flat(folder, 2_941 // part),
        "c": lambda: corpus.many(folder, 300 // part),
        "e": lambda: corpus.flat(folder, 500 // part, "https"),
        "m": lambda: corpus.large(folder, 1_000 // part),
    }
    return makers[case]()


@contextmanager
def fresh_disk(folder: Path) -> Iterator[None]:
    """A file system of its own in a folder.

    For minutes ext4 does not use the inodes of removed files again, and looks at each of them when it makes one: on a
    disk that others use, whoever comes after something large was removed pays for that.
    """
    image = folder.with_suffix(".disk")
    with image.open("wb") as file:
        file.truncate(DISK)
    folder.mkdir()
    servers.run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image))
    servers.run("mount", "-o", "loop", str(image), str(folder))
    yield  # after an error the mount stays until the namespace ends
    servers.run("umount", "--lazy", str(folder))  # what was killed may not have let go of it yet
    folder.rmdir()
    image.unlink()


class Turns:
    """Gives each contender a fresh disk to write to."""

    def __init__(self, folder: Path, trusted: Path | None) -> None:
        self.folder, self.trusted = folder, trusted

    def take(self, one: Contender, web: Web) -> Cost:
        """What it costs a contender to crawl a web; says so when it has not stored the pages that there are."""
        with self._job(web) as job:
            cost = self._run(one, one.command(job), job).cost(one.stored(job.out))
        pages = cost.whole.pages
        if one.writes and not web.limit and abs(pages - web.pages) > AGREE * web.pages:
            print(f"{one.name} stored {pages:,} of {web.pages:,} pages of {web.name}", flush=True)
        return cost

    def take_for(self, one: Contender, web: Web, seconds: float) -> tuple[Ran, list[float]]:
        """A contender that is killed after so many seconds, and when it stored each page."""
        with self._job(web) as job:
            return self._run(one, one.command(job), job, seconds, (*one.codes, KILLED)), one.stored(job.out)

    def operations(self, one: Contender, web: Web) -> float | None:
        """Metadata operations per page, in a run under strace that is not timed."""
        if not one.writes or not can_trace():
            return None
        with self._job(web) as job:
            calls = self.folder / "calls"
            self._run(one, trace(one.command(job), calls), job)
            with calls.open(encoding="utf-8", errors="replace") as lines:
                return per_page(count(lines, job.out), max(len(one.stored(job.out)), 1))

    def _run(
        self, one: Contender, command: list[str], job: Job, limit: float = LIMIT, codes: tuple[int, ...] = ()
    ) -> Ran:
        os.sync()  # or what the one before has written is written in this one's time
        return run(command, log_of(job.out), limit, environment(self.trusted), one.program, codes or one.codes)

    @contextmanager
    def _job(self, web: Web) -> Iterator[Job]:
        """What a contender is to do; its log is beside the disk, to be read after a failure."""
        with fresh_disk(self.folder):
            job = Job(web, self.folder / "out", self.folder / "seeds", self.trusted)
            job.seeds.write_text("".join(f"{url}\n" for url in web.seeds))
            yield job
