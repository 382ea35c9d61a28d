"""The benchmark: contenders side by side on the same real pages, in rounds; a table, the targets and a plot.

    python tests/bench/run.py [--cases abcdefgmrs] [--rounds 3] [--quick] [--only TEXT] [--base REVISION]

a: one site. b: hosts with one page each. c: hosts with some pages each. d: as c, the store far away. e: https.
f: first contact with 100,000 hosts. g: growth to a million known URLs. m: modern, large pages over https.
r: real, 20,000 hosts that answer late or never. s: some hosts beside silent ones.
With --base, this program as it was at another git revision takes part in a, b, c, f, m, r and s.
What it finds is in .bench/: table.txt, results.json and plot.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # operations, certificates, mounts

import base
import growth
import mounted
import packages
import plot
import real
import rounds
import servers
import table
from table import Row, Target

BENCH = Path(__file__).parents[2] / ".bench"
CASES = "abcdefgmrs"
QUICK = 20  # --quick takes one in so many of all pages


def main() -> None:
    """Measure what was asked for, and say at the end which targets are reached."""
    args = arguments()
    packages.provide()
    servers.enter_namespaces()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody's modules are compiled anew in each of its processes
    shutil.rmtree(BENCH, ignore_errors=True)
    BENCH.mkdir()
    say(
        table.NOTES
        + real.NOTES.format(**asdict(real.clock(args.quick)))
        + ("--quick: so few pages that most of it is start and end; no ratio counts\n" if args.quick else "")
    )
    before = base.check_out(args.base, BENCH / "base") if args.base else None
    rows, timed = side_by_side(args, before)
    targets = [*table.targets(rows), *real.targets(timed)]
    in_c = [row for row in rows if row.case == "c"]
    panels: list[plot.Panel] = [partial(plot.by_workers, rows=in_c)] if in_c else []
    if "d" in args.cases:
        targets += far_away(args)
    if "g" in args.cases:
        found = grow(args)
        targets += table.growth_targets(found)
        panels.append(partial(plot.by_size, sizes=found.sizes))
    say("\n" + table.show_targets(targets))
    if panels:
        plot.draw(BENCH / "plot.png", panels)


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--cases", default=CASES, help="some of them")
    parser.add_argument("--rounds", type=int, help="3; with --quick 1")
    parser.add_argument("--quick", action="store_true", help="little of everything, to see that it works")
    parser.add_argument("--only", default="", help="contenders whose names contain this, or one of these: TEXT;TEXT")
    parser.add_argument("--base", help="a git revision of this program that takes part as `before`")
    args = parser.parse_args()
    args.part = QUICK if args.quick else 1
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def side_by_side(args: argparse.Namespace, before: Path | None) -> tuple[list[Row], list[real.Row]]:
    """The cases in which contenders are compared; what is known is kept after each."""
    rows: list[Row] = []
    timed: list[real.Row] = []
    with servers.names(BENCH):
        for case in sorted(set(args.cases) & set(rounds.TITLES)):
            found = rounds.rows(case, BENCH, args.rounds, args.part, args.only, before)
            rows += found
            say(table.show(f"\n{rounds.TITLES[case]}; rounds: {args.rounds}, medians", found))
            keep("cases", [asdict(row) for row in rows])
        for case in sorted(set(args.cases) & set(real.TITLES)):
            timed += on_the_clock(case, args, before)
            keep("timed", [asdict(row) for row in timed])
    return rows, timed


def on_the_clock(case: str, args: argparse.Namespace, before: Path | None) -> list[real.Row]:
    """A case in which each contender has the same number of seconds."""
    found = real.rows(case, BENCH, args.rounds, args.part, args.only, before, real.clock(args.quick))
    say(f"\n{real.show(case, args.rounds, found)}")
    return found


def far_away(args: argparse.Namespace) -> list[Target]:
    """Case d: the web of case c crawled into a store on a mount with latency."""
    folder = BENCH / "mounted"
    folder.mkdir()
    found = mounted.rows(rounds.web_of("c", folder / "webs", args.part), folder, args.rounds)
    say("\ncase d: as c, into a store on a mount with latency\n" + mounted.show(found))
    keep("mounted", [asdict(row) for row in found])
    rows = {row.name: row for row in found}
    pairs = [(rows[ours], rows[bare]) for ours, bare in mounted.AGAINST.items()]
    return [
        Target(
            f"case d: pages/s, {us.name}, against the {bare.name}",
            0.7,
            us.rate / bare.rate,
            us.steady_rate / bare.steady_rate,
        )
        for us, bare in pairs
    ]


def grow(args: argparse.Namespace) -> growth.Growth:
    """What a page costs as more becomes known."""
    folder = BENCH / "growth"
    say("\ngrowth: one worker, pages of 1 KB with ten new links each")
    with rounds.fresh_disk(folder):
        found = growth.measure(folder, args.quick, say)
    keep("growth", found.facts)
    return found


def say(text: str) -> None:
    """Print, and keep in table.txt."""
    print(text, flush=True)
    with (BENCH / "table.txt").open("a") as file:
        file.write(text + "\n")


def keep(what: str, found: object) -> None:
    """Put every figure into results.json, for whoever wants to count otherwise."""
    path = BENCH / "results.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, what: found}, indent=1))


if __name__ == "__main__":
    main()
