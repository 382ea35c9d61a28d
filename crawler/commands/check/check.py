"""Check: an fsck of a store. Each problem is named, with what `--repair` does about it; what is harmless is counted.

A store may be in use meanwhile. Files are complete on arrival and receipts come last, so most of what must hold does so
at every moment; the rest is looked at again before anything is said of it.
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
from crawler.commands.check.findings import KINDS, Finding, Scene, look
from crawler.commands.check.links import Links
from crawler.commands.check.repair import MANY, Repair, alone, fold
from crawler.commands.status import totals
from crawler.fleet.heartbeats import END, Heartbeat, read_counters
from crawler.frontier import rehydrate
from crawler.frontier.frontier import in_parts
from crawler.store.store import LOCK, open_store, open_to_write
from crawler.terminal import many, say
from crawler.web.text import printable

PART = 100  # records between two steps of the bar, and findings that are mended together


class Check:
    """One look at a whole store: first at each file, then at what they say together."""

    def __init__(self, scene: Scene, is_whole: bool, is_locked: bool) -> None:
        self.scene = scene
        self.is_whole = is_whole  # whether there is a frontier to look at
        self.is_locked = is_locked  # whether somebody else may be making it again
        self.pages = Pages(scene)
        self.links = Links(scene)

    def of_files(self) -> Iterator[Finding | None]:
        """What is wrong with single files; None for each step on the way."""
        yield from others(self.scene)
        for host in self.pages.hosts:
            yield from self._host(host)

    def _host(self, host: str) -> Iterator[Finding | None]:
        names, findings = self.pages.names(host)
        yield from findings
        self.links.note_misrouted(host, set(names["htmls"]).difference(names["links"]))
        suspects: list[str] = []
        for part in in_parts(names["links"], PART):
            records = self.pages.records(host, part, suspects)
            self.links.found.add(task for record in records for task in self.links.seeds.follow(record))
            yield from [None] * len(part)
        for _ in self.pages.refusals(host, names["errs"], suspects):
            yield None
        bad = {path.rpartition("/")[2] for path in suspects}
        self.links.settled.add(key for key in (*names["links"], *names["errs"]) if key not in bad)
        yield from self.pages.both(host, names, bad)
        for finding in self.pages.accuse(suspects):
            self.links.will_wait(finding.tasks)
            yield finding

    def of_links(self) -> Iterator[Finding]:
        """What is wrong with what waits, when all single files are as they should be."""
        yield from self.links.batches()
        if self.is_whole:
            for finding in self.links.lost():
                self.links.will_wait(finding.tasks)
                yield finding
        else:
            self.links.expect_all()
        yield from self.links.misrouted()
        if not self.is_whole and (self.scene.alive or self.is_locked):
            self.scene.harmless["frontier that is being made again"] += 1
        elif not self.is_whole:
            yield Finding("frontier", "frontier", "folders of shards are missing, or it was never made to the end")

    def counted(self) -> Facts:
        """How much was looked at."""
        counts = self.pages.counts
        return {"hosts": len(self.pages.hosts), "records": counts["links"], "refusals": counts["errs"]}


@dataclass(slots=True)
class Teller:
    """Says what is found, and keeps count."""

    json: bool
    repair: Repair | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def tell(self, findings: Iterable[Finding]) -> None:
        """Name each finding, after it is mended if it is to be."""
        for part in in_parts(findings, PART if self.repair else 1):
            if self.repair:
                self.repair.mend(part)
            for finding in part:
                self.counts[finding.kind] += 1
                terminal.interject(self._line(finding))

    def _line(self, finding: Finding) -> str:
        mending = KINDS[finding.kind]
        if self.json:
            facts = {"kind": finding.kind, "path": finding.path, "what": finding.what}
            return json.dumps({**facts, "repair": mending, "repaired": self.repair is not None})
        done = f"repaired: {mending}" if self.repair else f"--repair: {mending}"
        return printable(f"{finding.kind:<10}  {finding.path}: {finding.what} ({done})")

    def sum_up(self, counted: Facts, harmless: Counter[str]) -> str:
        """The last line: what was looked at, and what came of it."""
        problems = self.counts.total()
        if self.json:
            repaired = problems if self.repair else 0
            return json.dumps({**counted, "problems": problems, "repaired": repaired, "harmless": dict(+harmless)})
        told = ", ".join(f"{what} ({count:,})" for what, count in (+harmless).items())
        read = ", ".join(many(counted[f"{noun}s"], noun) for noun in ("host", "record", "refusal"))
        by_kind = ", ".join(f"{kind} {count:,}" for kind, count in self.counts.most_common())
        verb = "repaired" if self.repair else "found"
        found = f"{many(problems, 'problem')} {verb} ({by_kind})" if problems else "sound"
        return "\n".join([*([f"harmless: {told}"] if told else []), f"{found}; {read} looked at"])


def commands(add: Add) -> None:
    """Add `crawler check`."""
    made = add("check", run, "crawler check /mnt/shared/crawl --repair")
    made.add_argument("--repair", action="store_true", help="mend what is found, while no machine is at work")
    made.add_argument("--json", action="store_true", help="for scripts: a line for each finding, then a summary")


def run(options: argparse.Namespace) -> int:
    """`crawler check`."""
    store = open_to_write(options.store) if options.repair else open_store(options.store)
    settings = store.settings()
    is_whole = not rehydrate.is_needed(store, settings)
    if not options.repair:
        teller = Teller(options.json)
        _check(look(store, settings), is_whole, teller)
        return errors.FOUND if teller.counts else errors.OVER
    with alone(store, settings) as scene:
        _check(scene, is_whole, Teller(options.json, Repair(store, settings)))
        folded = fold(store.files, scene.clock)
        if folded:
            say(f"the counters of {many(folded, 'worker')} that ended long ago are in one file now", sys.stderr)
    return errors.OVER


def _check(scene: Scene, is_whole: bool, teller: Teller) -> None:
    if scene.alive and not teller.json:
        say("machines are at work here: what seems wrong is looked at again before it is named", sys.stderr)
    check = Check(scene, is_whole, teller.repair is None and scene.files.get(LOCK) is not None)
    sums = totals(read_counters(scene.files))
    about = sums["pages"] + sums["redirects"] + sums["sitemaps"] + (+sums["reasons"]).total()
    teller.tell(filter(None, terminal.bar(check.of_files(), "checking", about or None)))
    teller.tell(check.of_links())
    ended = sum(heartbeat.mark == END for heartbeat in filter(None, map(Heartbeat.of, scene.files.names("workers"))))
    if ended > MANY and not teller.repair:
        scene.harmless["files of workers that have ended (--repair makes one of them)"] = ended
    say(teller.sum_up(check.counted(), scene.harmless))
