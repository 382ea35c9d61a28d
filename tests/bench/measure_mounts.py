"""Measure mounts between machines: python tests/bench/measure_mounts.py [ROW...] prints the table of deploy/README.md.

A mount is fit when it keeps the promises of crawler/store/mount.py: what is put appears whole; of several machines that
create or claim a name one wins; a listing after `freshen` misses nothing. The figures are of this machine,
and the guests of NFS are slow in absolute terms: compare rows, and read lags as what to expect.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from lab.machines.fleet import fleet
from lab.machines.kinds import KINDS
from lab.machines.mounts import Bindfs, Mount, Sshfs
from lab.machines.nfs import Nfs3, Nfs4
from lab.machines.probe import LONGEST, NEWS, ROUNDS, WAYS
from lab.webs import TreeWeb

PROBE = [sys.executable, str(Path(__file__).parents[1] / "lab/machines/probe.py")]
MACHINES = 3
SLACK = 0.5  # seconds that the clocks of guests may be apart
LEAD = 4.0  # seconds in which all roles have started; guests need some more


class SshfsQuick(Sshfs):
    """sshfs that believes a listing for one second."""

    options = ",dcache_timeout=1"


class Nfs4Positive(Nfs4):
    """NFS 4.2 that does not remember what was missing."""

    options = "vers=4.2,lookupcache=positive"


class Nfs3Positive(Nfs3):
    """NFS 3 that does not remember what was missing."""

    options = "vers=3,lookupcache=positive"


# Not among them is CephFS by ceph-fuse 16.2, which hangs when several machines want one name (see deploy/README.md).
MEASURED: dict[str, type[Mount]] = {
    "local disk": KINDS["local"],
    "NFS 4.2 (guests), lookupcache=positive": Nfs4Positive,
    "NFS 4.2 (guests)": Nfs4,
    "NFS 3 (guests), lookupcache=positive": Nfs3Positive,
    "NFS 3 (guests)": Nfs3,
    "sshfs, dcache_timeout=1": SshfsQuick,
    "sshfs": Sshfs,
    "MooseFS": KINDS["moosefs"],
    "GlusterFS": KINDS["gluster"],
    "bindfs, the worst caches": Bindfs,
}


@dataclass
class Row:
    """What was measured of one mount."""

    name: str
    options: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is odd, but nothing that the crawler relies on
    lags: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    pages: float = 0.0
    cpu: float | None = None  # seconds of the file server per 1,000 pages

    def cells(self) -> list[str]:
        """The row of the table."""
        listed = max((self.lags.get(f"{WAYS[0]} {news}", 0.0) for news in ("new", "removed")), default=None)
        return [
            self.name.partition(",")[0],
            f"`{self.options}`" if self.options else "",
            "; ".join(self.faults or ["yes", *self.notes]),
            show_lag(listed),
            show_lag(self.lags.get(f"{WAYS[2]} new")),
            self.pair("durable"),
            self.pair("rename"),
            f"{self.pages:.0f}",
            "-" if self.cpu is None else f"{self.cpu:.1f}",
        ]

    def pair(self, name: str) -> str:
        """A rate with one thread and with 16."""
        return " / ".join(f"{self.rates.get(f'{name}-{threads}', 0):,.0f}" for threads in (1, 16))


HEAD = [
    "mount",
    "options",
    "fit",
    "others' new and removed names are listed after",
    "a file that was asked for before it was there opens after",
    "files of 30 KB per second, 1 / 16 threads",
    "renames per second, 1 / 16 threads",
    f"pages per second, {MACHINES} machines",
    "CPU seconds of the file server per 1,000 pages",
]


def show_lag(seconds: float | None) -> str:
    """A lag as a person reads it."""
    if seconds is None:
        return "-"
    return f"over {LONGEST:.0f} s" if seconds == float("inf") else "at once" if seconds < SLACK else f"{seconds:.0f} s"


def play(mount: Mount, roles: dict[int, str]) -> dict[int, dict[str, object]]:
    """Let machines play their roles at the same time; what each of them reports."""
    start = time.time() + LEAD * (4 if isinstance(mount, Nfs4) else 1)
    started = {
        number: subprocess.Popen(
            mount.command(number, [*PROBE, str(mount.at(number) / "probe"), role, str(start), f"m{number}"]),
            stdout=subprocess.PIPE,
            text=True,
        )
        for number, role in roles.items()
    }
    return {number: read(process.communicate(timeout=600)[0]) for number, process in started.items()}


def read(printed: str) -> dict[str, object]:
    """The line of JSON that a role prints last."""
    found: dict[str, object] = json.loads(printed.strip().splitlines()[-1]) if printed.strip() else {"error": "nothing"}
    return found


def prepare(mount: Mount) -> None:
    """Make the folder that is measured in; with a README it passes for a store."""
    folders = [str(mount.at(0) / "probe" / name) for name in (*WAYS, "contest", "put")]
    subprocess.run(mount.command(0, ["mkdir", "-p", *folders]), check=True)
    subprocess.run(mount.command(0, ["touch", str(mount.at(0) / "probe" / "README")]), check=True)


def news(mount: Mount, row: Row) -> None:
    """How long machine 1 does not see what machine 0 has done."""
    for does, looks, what in (("come", "see", "new"), ("go", "miss", "removed")):
        told = play(mount, {0: does, 1: looks})
        if any("error" in report for report in told.values()):
            row.faults.append(f"{what}: {told}")
            continue
        for way in WAYS:
            names = [f"{way}/{number}" for number in range(NEWS)]
            # How old what a look showed was for certain: however slow the machines are, this does not grow with it.
            lags = [float(str(told[1].get(name, "inf"))) - float(str(told[0][name])) for name in names]
            row.lags[f"{way} {what}"] = max(0.0, *lags)
        if told[1]["torn"]:
            row.faults.append(f"{told[1]['torn']} files seen in part")
        if row.lags[f"freshened {what}"] > SLACK:
            row.faults.append(f"a freshened listing was {row.lags[f'freshened {what}']:.1f} s old")
        if row.lags[f"freshened, opened {what}"] > SLACK:
            row.faults.append("what is listed cannot be opened, or what is gone can")


def contest(mount: Mount, row: Row) -> None:
    """Whether there is one winner in each round."""
    play(mount, {0: "prepare"})
    told = play(mount, dict.fromkeys(range(MACHINES), "contest"))
    for game in ("create", "make", "claim", "drop"):
        won = Counter(round for report in told.values() for round in report.get("won", {}).get(game, []))  # type: ignore[attr-defined]
        none, many = sum(not won[r] for r in range(ROUNDS)), sum(won[r] > 1 for r in range(ROUNDS))
        if none or many:
            found = row.faults if game in ("create", "claim") else row.notes
            found.append(f"{game}: of {ROUNDS} rounds {none} without a winner, {many} with several")
    seen = play(mount, dict.fromkeys(range(MACHINES), "claims"))
    if any(seen[number] != seen[0] for number in seen) or len(seen[0].get("claims", [])) != ROUNDS:  # type: ignore[arg-type]
        row.faults.append("machines see different claims")


def speed(mount: Mount, row: Row) -> None:
    """Files per second of one machine."""
    told = play(mount, {0: "put"})[0]
    if "error" in told:
        row.faults.append(f"put: {told['error']}")
    row.rates = {name: float(rate) for name, rate in told.items() if isinstance(rate, int | float)}


def crawl(mount: Mount, row: Row) -> None:
    """Pages per second, from the first request to the last answer, of a crawl with all machines."""
    with fleet(TreeWeb(hosts=40, fanout=7, depth=4), mount, delay=0, dead_after=60, heartbeat=2) as ships:
        before = cpu_of(mount)
        for number in range(MACHINES):
            ships.join(number)
        ships.end(900)
        wrong = ships.differences()
        row.faults += [f"crawl: {len(wrong)} differences"] if wrong else []
        row.pages = len(ships.log) / (max(r.end for r in ships.log) - min(r.start for r in ships.log))
        row.cpu = 1000 * (cpu_of(mount) - before) / len(ships.log) if before else None


def cpu_of(mount: Mount) -> float:
    """Seconds that the processes of the file server have computed; 0 where they are no processes of this machine."""
    if isinstance(mount, Nfs4) or not mount.servers():
        return 0.0
    stats = (Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in mount.servers())
    return sum(int(ticks) for stat in stats for ticks in stat[11:15]) / os.sysconf("SC_CLK_TCK")


def measure(name: str) -> Row | None:
    """Measure one kind of mount; None where it cannot be mounted."""
    kind = MEASURED[name]
    row = Row(name, str(getattr(kind, "options", "") or getattr(kind, "caches", "")).lstrip(","))
    if reason := kind.skip_reason():
        print(f"no {name} here: {reason}", flush=True)
        return None
    with tempfile.TemporaryDirectory(prefix="mount-") as folder, kind(Path(folder), MACHINES) as mount:
        prepare(mount)
        for step in (contest, news, speed, crawl):
            step(mount, row)
    return row


def main() -> None:
    """Measure all kinds, or those that are named."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))  # and unmount
    wanted = [name for name in MEASURED if not sys.argv[1:] or name in sys.argv[1:]]
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD), flush=True)
    for name in wanted:
        row = measure(name)
        if row:
            print("| " + " | ".join(row.cells()) + " |", flush=True)
        if row and name == "local disk":
            print(f"without `durable` its files per second are {row.pair('not')}", file=sys.stderr)


if __name__ == "__main__":
    main()
