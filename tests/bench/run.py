"""The benchmark: contenders side by side on the same real pages, in rounds; a table, the targets and a plot.

python tests/bench/run.py [--cases abce] [--rounds 3] [--quick] [--only TEXT]

What it finds is in .bench/: table.txt, results.json, plot.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # operations, certificates

import corpus
import operations
import packages
import plot
import servers
import table
from contenders import Contender, Job, contenders, environment, log_of
from corpus import Web
from measure import Cost, run
from table import Row

BENCH = Path(__file__).parents[2] / ".bench"
LIMIT = 900.0  # seconds after which a contender is ended
TRACED = 300  # pages of the run whose operations are counted
AGREE = 0.03  # of the pages: so many may a contender lack or have over
TITLES = {
    "a": "case a: one site, by its links",
    "b": "case b: hosts with one page each",
    "c": "case c: hosts with a front page and the pages that it links to",
    "e": "case e: https, hosts with one page each",
}


QUICK = 20  # the part of everything that --quick takes is one in so many


def main() -> None:
    """Run the cases that were asked for."""
    args = arguments()
    packages.provide()
    servers.enter_namespaces()
    shutil.rmtree(BENCH, ignore_errors=True)
    BENCH.mkdir()
    rows: list[Row] = []
    say(table.NOTES)
    with servers.names(BENCH):
        for case in args.cases:
            found = measure_case(case, args)
            rows += found
            say(table.show(f"\n{TITLES[case]}, {args.rounds} rounds, medians", found))
            write_json(rows)
    finish(rows)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", default="abce", help="which of a, b, c and e")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--only", default="", help="contenders whose names contain this")
    return parser.parse_args()


def finish(rows: Sequence[Row]) -> None:
    """The targets and the plot."""
    say("\n" + table.show_targets(table.targets(rows)))
    in_c = [row for row in rows if row.case == "c"]
    if in_c:
        plot.draw(BENCH / "plot.png", [lambda axes: plot.by_workers(axes, in_c)])


def say(text: str) -> None:
    """Print, and keep in table.txt."""
    print(text, flush=True)
    with (BENCH / "table.txt").open("a") as file:
        file.write(text + "\n")


def write_json(rows: Sequence[Row]) -> None:
    """Every round of every contender so far, for whoever wants to count otherwise."""
    (BENCH / "results.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))


def measure_case(case: str, args: argparse.Namespace) -> list[Row]:
    """All contenders in turn, round after round."""
    part = QUICK if args.quick else 1
    chosen = [one for one in contenders() if case in one.cases and args.only in one.name]
    costs: dict[str, list[Cost]] = {one.name: [] for one in chosen}
    with served(case, part) as (web, trusted):
        for number in range(args.rounds):
            for one in chosen:
                costs[one.name].append(take_turn(one, web.part(one.most // part), trusted))
                progress(case, number, one, costs[one.name][-1])
        traced = web.part(TRACED // part)
        return [Row(case, one.name, costs[one.name], count_operations(one, traced, trusted)) for one in chosen]


def progress(case: str, number: int, one: Contender, cost: Cost) -> None:
    """A line for each turn, on standard error."""
    what = f"{cost.pages:,} pages in {cost.seconds:.1f} s, {cost.cpu_per_thousand:.2f} CPU s per 1,000"
    print(f"  {case}, round {number + 1}: {one.name}: {what}", file=sys.stderr, flush=True)


@contextmanager
def served(case: str, part: int) -> Iterator[tuple[Web, Path | None]]:
    """The web of a case, or one in so many of its pages, while it is served; and whom to trust."""
    folder = BENCH / "webs"
    webs = {
        "a": lambda: corpus.site(folder, 5_000 // part),
        "b": lambda: corpus.flat(folder, 2_941 // part),
        "c": lambda: corpus.many(folder, 300 // part),
        "e": lambda: corpus.flat(folder, 500 // part, "https"),
    }
    web = webs[case]()
    certificate, trusted = servers.certificate(BENCH / "certificates") if case == "e" else (None, None)
    with servers.nginx(web.root, BENCH / "nginx", certificate=certificate):
        yield web, trusted


def take_turn(one: Contender, web: Web, trusted: Path | None) -> Cost:
    """What it costs a contender to crawl a web; what it has written is counted, compared and removed."""
    os.sync()  # what the one before has written is not written in this one's time
    with job_for(web, trusted) as job:
        cost = run(one.command(job), log_of(job.out), LIMIT, environment(trusted), codes=one.codes)
        pages = one.stored(job.out)
    if one.writes and not web.limit and abs(pages - web.pages) > AGREE * web.pages:
        say(f"{one.name} stored {pages} pages of {web.name}, which has {web.pages}")
    return replace(cost, pages=max(pages, 1))


def count_operations(one: Contender, web: Web, trusted: Path | None) -> float | None:
    """Metadata operations per page, in a run under strace that is not timed."""
    if not one.writes or not operations.can_trace():
        return None
    with job_for(web, trusted) as job:
        calls = job.out.with_suffix(".calls")
        run(operations.trace(one.command(job), calls), log_of(job.out), LIMIT, environment(trusted), codes=one.codes)
        with calls.open(encoding="utf-8", errors="replace") as lines:
            return operations.per_page(operations.count(lines, job.out), max(1, one.stored(job.out)))


@contextmanager
def job_for(web: Web, trusted: Path | None) -> Iterator[Job]:
    """A fresh folder to write to, gone afterwards."""
    folder = BENCH / "job"
    with ExitStack() as stack:
        folder.mkdir()
        stack.callback(shutil.rmtree, folder)
        job = Job(web, folder / "out", folder / "seeds", folder / "urls", trusted)
        job.seeds.write_text("".join(f"{url}\n" for url in web.seeds))
        job.urls.write_text("".join(f"{url}\n" for url in web.urls()))
        yield job


if __name__ == "__main__":
    main()
