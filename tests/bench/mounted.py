"""Case d: a crawl into a store on an sshfs mount with latency, beside a bare loop that writes the same files there."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from corpus import Web
from lab.machines.mounts import Mount, Sshfs
from lab.machines.network import until
from lab.operations import count, per_page, trace
from measure import Cost, run, times
from servers import names, nginx
from table import Row

HERE = Path(__file__).parent
WORKERS = 2
LATENCY = 0.0005  # seconds, each way
TRIED = (1, 4, 16, 32)  # threads of a process of the bare loop; the best of them is compared
SOME = 600  # pages for finding that out, and for counting operations, which strace makes slow
LONGEST = 1800.0  # seconds that anything here may take
BARE, BARE_SYNCED, OURS, OURS_SYNCED = "bare loop", "bare loop, synced", "this, durable: false", "this"
AGAINST = {OURS: BARE, OURS_SYNCED: BARE_SYNCED}


class LateSshfs(Sshfs):
    """sshfs whose requests and answers are on their way for LATENCY each."""

    port = 2223

    def start_server(self) -> None:
        """Start sshd, and the line that leads to it."""
        super().start_server()
        address = self.network.address("server")
        line = [sys.executable, str(HERE / "late.py"), address, str(self.port), str(Sshfs.port), str(LATENCY)]
        self.start(self.network.command("server", line), "late.log")
        until(lambda: "listening" in (self.folder / "late.log").read_text(), what="a line with latency")


def rows(web: Web, folder: Path, rounds: int = 3) -> list[Row]:
    """Crawl a web and write the same files without a crawler, in turn, on one mount."""
    with machine(web, folder) as mount:
        bench = Bench(web, folder, mount)
        threads = bench.best_threads()
        costs = [bench.round(str(number), threads) for number in range(rounds)]
        found = {name: tuple(cost[name] for cost in costs) for name in costs[0]}
        return [Row("d", name, cost, bench.operations(name, threads)) for name, cost in found.items()]


@contextmanager
def machine(web: Web, folder: Path) -> Iterator[Mount]:
    """This thread is on a machine that has the store mounted and the web beside it: only the store is far away."""
    with LateSshfs(folder, machines=1) as mount, mount.network.inside("m0"), names(folder), nginx(web.root, folder):
        yield mount


class Bench:
    """What runs on the mount."""

    def __init__(self, web: Web, folder: Path, mount: Mount) -> None:
        self.web, self.folder, self.mount = web, folder, mount
        self.list = folder / "pages"

    def best_threads(self) -> int:
        """With how many threads the bare loop is fastest; the pages it writes are those of a crawl."""
        self._cost("tried", self._crawl("tried", "false", self.web.part(SOME)))
        self._note_pages("tried")
        rates = {n: self._cost(f"tried-{n}", self._bare(f"tried-{n}", n)).whole.rate for n in TRIED}
        return max(rates, key=rates.__getitem__)

    def round(self, name: str, threads: int) -> dict[str, Cost]:
        """Each of them once; the bare loop writes what the crawl before it wrote, in the same order."""
        costs = {}
        for title, durable, sync in ((OURS, "false", ()), (OURS_SYNCED, "true", ("--sync",))):
            store = f"crawl-{durable}-{name}"
            costs[title] = self._cost(store, self._crawl(store, durable, self.web))
            self._note_pages(store)
            costs[AGAINST[title]] = self._cost(f"bare-{store}", self._bare(f"bare-{store}", threads, *sync))
        return costs

    def operations(self, name: str, threads: int) -> float:
        """Operations on names per page, of fewer pages."""
        title = f"traced-{name.replace(' ', '-')}"
        part, durable = self.web.part(SOME), str(name == OURS_SYNCED).lower()
        command = self._crawl(title, durable, part) if name in AGAINST else self._bare(title, threads)
        calls = self.folder / f"{title}.calls"
        pages = self._cost(title, trace(command, calls)).whole.pages
        with calls.open(encoding="utf-8", errors="replace") as lines:
            return per_page(count(lines, self.mount.at(0) / title), pages)

    def _cost(self, title: str, command: Sequence[str]) -> Cost:
        ran = run(command, self.folder / f"{title}.log", LONGEST)
        return ran.cost(times(self.mount.real / title / "links"))

    def _crawl(self, title: str, durable: str, web: Web) -> list[str]:
        seeds = self.folder / f"{title}.seeds"
        seeds.write_text("\n".join(web.seeds))
        flags = ["--allow-private", "--quiet", "-w", "0", "-j", str(WORKERS), "-i", str(seeds)]
        settings = ["robots=false", "spread=host", "scope=host", f"depth={web.depth}", f"durable={durable}"]
        sets = [word for each in settings for word in ("-s", each)]
        return [sys.executable, "-m", "crawler", "run", str(self.mount.at(0) / title), *flags, *sets]

    def _bare(self, title: str, threads: int, *flags: str) -> list[str]:
        script, root = str(HERE / "bare_files.py"), str(self.mount.at(0) / title)
        return [sys.executable, script, str(self.list), root, "--threads", str(threads), *flags]

    def _note_pages(self, store: str) -> None:
        """List the pages of a store in the order in which they were written, with the sizes of both files."""
        htmls = sorted((self.mount.real / store / "htmls").glob("*/*"), key=lambda path: path.stat().st_mtime_ns)
        with self.list.open("w") as file:
            for html in htmls:
                record = self.mount.real / store / "links" / html.parent.name / html.name
                file.write(f"{html.parent.name} {html.name} {html.stat().st_size} {record.stat().st_size}\n")


def show(found: list[Row]) -> str:
    """The table of case d."""
    by_name = {row.name: row for row in found}
    head = f"{'over sshfs':<24}{'pages/s':>9}{'steady':>9}{'CPU s/1,000':>13}{'operations':>12}{'ratio':>7}"
    lines = [f"{head}   (a page is {2 * LATENCY * 1000:g} ms there and back away)"]
    for row in found:
        other = by_name.get(AGAINST.get(row.name, ""))
        ratio = f"{row.rate / other.rate:7.2f} of the {other.name}" if other else ""
        lines.append(f"{row.name:<24}{row.rate:9.0f}{row.steady_rate:9.0f}{row.cpu:13.2f}{row.operations:12.1f}{ratio}")
    return "\n".join(lines)
