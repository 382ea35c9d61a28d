"""`crawler check`: an fsck for a store. It prints each problem with what `--repair` does about it.

The store may be in use. Files are complete on arrival and records come last, so most invariants hold at every moment;
what does not is checked again before it is reported.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crawler import errors, terminal
from crawler.commands.arguments import Add
from crawler.commands.check.files import Facts, Pages, others
from crawler.commands.check.findings import KINDS, Problem, Scene, look
from crawler.commands.check.links import Links, due_revisits
from crawler.commands.check.repair import Repair, alone
from crawler.fleet.heartbeats import read_counters
from crawler.fleet.past import MAX_ENDED, count_ended, merge
from crawler.fleet.totals import totals
from crawler.frontier import rehydrate
from crawler.frontier.batches import in_parts
from crawler.store.lock import LOCK
from crawler.store.store import open_store
from crawler.store.writer import open_to_write
from crawler.terminal import many, say
from crawler.web.text import printable

RECORD_BATCH = 100  # records per step of the progress bar
REPAIR_BATCH = 100  # problems


class Check:
    """Checks a store: first each file, then what they say together."""

    def __init__(self, scene: Scene, has_frontier: bool, is_locked: bool) -> None:
        self.scene = scene
        self.has_frontier = has_frontier
        self.is_locked = is_locked  # another process may be rebuilding it
        scene.revisiting = due_revisits(scene)
        self.pages = Pages(scene)
        self.links = Links(scene)

    def of_files(self) -> Iterator[Problem | None]:
        """Return the problems with single files, and None for each step of progress."""
        yield from others(self.scene)
        for host in self.pages.hosts:
            yield from self._host(host)

    def _host(self, host: str) -> Iterator[Problem | None]:
        names, problems = self.pages.names(host)
        yield from problems
        self.links.note_orphans(host, set(names["htmls"]).difference(names["links"]))
        files, suspects = set(names["files"]), list[str]()
        for part in in_parts(names["links"], RECORD_BATCH):
            records = list(self.pages.records(host, part, suspects))
            files.difference_update(str(record.get("file")) for record in records)
            self.links.found.add(task for record in records for task in self.links.seeds.follow(record))
            yield from [None] * len(part)
        self.links.note_orphans(host, files)
        for _ in self.pages.failures(host, names["errs"], suspects):
            yield None
        bad = {path.rpartition("/")[2] for path in suspects}
        self.links.done.add(key for key in (*names["links"], *names["errs"]) if key not in bad)
        yield from self.pages.both(host, names, bad)
        for problem in self.pages.confirm(suspects):
            self.links.will_wait(problem.tasks)
            yield problem

    def of_links(self) -> Iterator[Problem]:
        """Return the problems with the frontier, given that all single files are good."""
        yield from self.links.batches()
        if self.has_frontier:
            for problem in self.links.lost():
                self.links.will_wait(problem.tasks)
                yield problem
        else:
            self.links.expect_all()
        yield from self.links.orphans()
        if not self.has_frontier and (self.scene.alive or self.is_locked):
            self.scene.harmless["frontier that is being rebuilt"] += 1
        elif not self.has_frontier:
            yield Problem("frontier", "frontier", "folders of shards are missing or emptied, or it was never completed")

    def counted(self) -> Facts:
        """Return how much was checked."""
        counts = self.pages.counts
        return {"hosts": len(self.pages.hosts), "records": counts["links"], "failure_records": counts["errs"]}


@dataclass(slots=True)
class Reporter:
    """Prints problems, repairs them if asked to, and counts them."""

    json: bool
    repair: Repair | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def report(self, problems: Iterable[Problem]) -> None:
        """Print each problem, after its repair if there is one."""
        for part in in_parts(problems, REPAIR_BATCH if self.repair else 1):
            if self.repair:
                self.repair.repair(part)
            for problem in part:
                self.counts[problem.kind] += 1
                terminal.interject(self._line(problem))

    def _line(self, problem: Problem) -> str:
        repair = KINDS[problem.kind]
        if self.json:
            facts = {"kind": problem.kind, "path": problem.path, "what": problem.what}
            return json.dumps({**facts, "repair": repair, "repaired": self.repair is not None})
        done = f"repaired: {repair}" if self.repair else f"--repair: {repair}"
        return printable(f"{problem.kind:<10}  {problem.path}: {problem.what} ({done})")

    def sum_up(self, counted: Facts, harmless: Counter[str]) -> str:
        """Return the last line: what was checked, and the result."""
        problems = self.counts.total()
        if self.json:
            repaired = problems if self.repair else 0
            return json.dumps({**counted, "problems": problems, "repaired": repaired, "harmless": dict(+harmless)})
        ignored = ", ".join(f"{what} ({count:,})" for what, count in (+harmless).items())
        read = ", ".join(many(count, name.removesuffix("s").replace("_", " ")) for name, count in counted.items())
        by_kind = ", ".join(f"{kind} {count:,}" for kind, count in self.counts.most_common())
        verb = "repaired" if self.repair else "found"
        found = f"{many(problems, 'problem')} {verb} ({by_kind})" if problems else "no problems"
        return "\n".join([*([f"harmless: {ignored}"] if ignored else []), f"{found}; {read} checked"])


def commands(add: Add) -> None:
    """Add `crawler check`."""
    made = add("check", run, "crawler check /mnt/shared/crawl --repair")
    made.add_argument("--repair", action="store_true", help="repair the problems; no machine may be working")
    made.add_argument(
        "--quick", action="store_true", help="do not read htmls and files to compare them with their hashes"
    )
    made.add_argument("--json", action="store_true", help="one line of JSON per problem, then a summary")


def run(options: argparse.Namespace) -> int:
    """`crawler check`."""
    writer = open_to_write(options.store) if options.repair else None
    store = writer or open_store(options.store)
    settings = store.settings()
    has_frontier = rehydrate.is_whole(store)
    if writer is None:
        reporter = Reporter(options.json)
        _check(look(store, settings, options.quick), has_frontier, reporter)
        return errors.FOUND if reporter.counts else errors.OVER
    with alone(writer, settings, options.quick) as (scene, lock):
        _check(scene, has_frontier, Reporter(options.json, Repair(writer, settings, lock)))
        merged = merge(store.files, scene.clock, lock)
        if merged:
            say(f"merged the counters of {many(merged, 'worker')} that ended long ago", sys.stderr)
    return errors.OVER


def _check(scene: Scene, has_frontier: bool, reporter: Reporter) -> None:
    if scene.alive and not reporter.json:
        say("machines are working here: problems are checked again before they are reported", sys.stderr)
    check = Check(scene, has_frontier, reporter.repair is None and scene.files.get(LOCK) is not None)
    sums = totals(read_counters(scene.files))
    about = sums["pages"] + sums["redirects"] + sums["sitemaps"] + (+sums["reasons"]).total()
    reporter.report(filter(None, terminal.bar(check.of_files(), "checking", about or None)))
    reporter.report(check.of_links())
    ended = count_ended(scene.files)
    if ended > MAX_ENDED and not reporter.repair:
        scene.harmless["files of workers that have ended (--repair merges them)"] = ended
    say(reporter.sum_up(check.counted(), scene.harmless))
