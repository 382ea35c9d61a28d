"""`crawler demo`: two machines crawl a generated web, one is killed, and the store is compared page by page."""

from __future__ import annotations

import argparse
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from crawler import errors
from crawler.commands.arguments import WHOLE, Add, flag
from crawler.errors import UsageError
from crawler.settings import values
from crawler.store.mount import Files
from crawler.store.reading import FILE
from crawler.terminal import many, say

if TYPE_CHECKING:
    from crawler.commands.demo.expected import Expected
    from crawler.commands.demo.two_machines import Killed
    from crawler.commands.demo.web import DemoWeb

SEED = 1
PAGES, SERVED_PAGES = 2000, 4000  # the first are crawled in less than a minute
AGENT = "folder-crawler-demo/1 (+http://garden-000.example/)"


def commands(add: Add) -> None:
    """Add `crawler demo`."""
    parser = add("demo", run, "crawler demo /tmp/demo", store=False)
    whole = flag(values.whole(1, 1_000_000))
    parser.add_argument(
        "store",
        type=Path,
        nargs="?",
        default=Path("demo/store"),
        metavar="STORE",
        help="replaced if it exists (default demo/store)",
    )
    parser.add_argument("--hosts", type=whole, default=300, metavar="N", help="hosts in the web (default 300)")
    help = f"pages in the web (default {PAGES}; {SERVED_PAGES} with --serve)"
    parser.add_argument("--pages", type=whole, metavar="N", help=help)
    help = "processes of each of the two machines (default 2)"
    parser.add_argument("-j", "--workers", type=WHOLE, default=2, metavar="N", help=help)
    parser.add_argument(
        "--serve", metavar="[ADDR:]PORT", help="only serve the web until Ctrl-C; prints the command that crawls it"
    )


def run(options: argparse.Namespace) -> int:
    """`crawler demo`."""
    from crawler.commands.demo.web import DemoWeb  # here and below: other commands need not load it

    pages = options.pages or (SERVED_PAGES if options.serve else PAGES)
    web = DemoWeb(hosts=options.hosts, pages=pages, seed=SEED)
    if options.serve:
        return _serve(web, options.serve)
    return _crawl(web, options.store, options.workers)


def _serve(web: DemoWeb, where: str) -> int:
    from crawler.commands.demo.server import serve

    address, _, port = where.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--serve {where}: use PORT or ADDR:PORT, such as 8000")
    try:
        with serve(web, (address or "127.0.0.1", int(port))) as server:
            print(f"serving {len(web.expected().pages)} pages on port {server.port}; crawl them with:", flush=True)
            to = address if address not in ("", "0.0.0.0") else "127.0.0.1"
            print(shlex.join(["crawler", *_command(web, Path("STORE"), f"::{to}:{server.port}")]), flush=True)
            while True:
                time.sleep(3600)
    except OSError as error:
        raise UsageError(f"--serve {where}: {error.strerror}; choose another port") from error
    except KeyboardInterrupt:
        return errors.OVER


def _command(web: DemoWeb, store: Path, connect_to: str) -> list[str]:
    """Return the arguments with which the web is crawled; all its hosts are at one address, so none has a limit."""
    command = ["run", str(store), *web.seeds(), "--scope", "any", "-w", "0.02", "-s", "max_per_address=null"]
    return [*command, "--connect-to", connect_to]


def _crawl(web: DemoWeb, store: Path, workers: int) -> int:
    from crawler.commands.demo.server import serve
    from crawler.commands.demo.two_machines import DEAD_AFTER, HEARTBEAT, Show, crawl

    _remove_old(store)
    log = store.parent / f"{store.name}.log"
    log.unlink(missing_ok=True)
    expected = web.expected()
    with serve(web, ("127.0.0.1", 0), log=str(log), process=True) as server:
        say(
            f"A web of {many(web.hosts, 'host')} and {many(len(expected.pages), 'page')} runs on this computer. Two "
            "machines crawl it into one folder;\nhalf-way one of them is killed, and the other takes over. "
            "Then the folder is compared with the web, page by page."
        )
        settings = {"retry_delay": "1s", "retries": 2, "heartbeat": HEARTBEAT, "dead_after": DEAD_AFTER}
        command = _command(web, store, f"::127.0.0.1:{server.port}")
        command += ["-j", str(workers), "-t", "32", "--user-agent", AGENT]
        command += [item for name, value in settings.items() for item in ("-s", f"{name}={value}")]
        code, killed = crawl(Show(store, len(expected)), command, workers)
    if code != errors.OVER:
        say(f"machine 2 has not finished; see {store}.machine-2.log")
        return code
    return _prove(expected, store, log, killed)


def _remove_old(store: Path) -> None:
    """Remove the store of an earlier demo, and nothing else."""
    shape = Files(store).root_shape()
    if shape == FILE or (shape and any(store.iterdir())):
        if shape == FILE or AGENT not in _read(store / "crawl.yaml"):
            raise UsageError(f"{store} exists and is not a store of the demo; choose a new folder")
        shutil.rmtree(store)
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{store.parent} cannot be made ({error.strerror}); choose another folder") from error


def _read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def _prove(expected: Expected, store: Path, log: Path, killed: Killed | None) -> int:
    """Compare the store with what the web expects, and the server's log with what was in flight at the kill."""
    from crawler.commands.demo.expected import compare
    from crawler.commands.demo.server import read_log, requested_twice

    differences = compare(expected, store)
    twice = requested_twice(read_log(log))
    wrong = {url: times for url, times in twice.items() if not _was_in_flight(url, times, killed)}
    for line in [*differences[:20], *(f"requested {times} times: {url}" for url, times in list(wrong.items())[:20])]:
        say(line)
    if differences or wrong:
        say(f"{len(differences)} differences, {len(wrong)} pages requested more than once")
        return errors.BUG
    say(
        f"every page is there: {len(expected.pages):,} pages, {len(expected.redirects):,} redirects and "
        f"{len(expected.failures):,} failure records compared one by one"
    )
    again = f"; {many(len(twice), 'URL')} in flight at the kill came twice" if twice else ""
    say(f"nothing that was done was requested again{again}")
    say(f"look at it: crawler serve {store}\nor: crawler status {store}; grep -rl яблони {store}/htmls | head -3")
    return errors.OVER


def _was_in_flight(url: str, times: int, killed: Killed | None) -> bool:
    """Tell whether a URL was requested again because the machine that had it in flight was killed."""
    from crawler.commands.demo.expected import place

    return killed is not None and times == 2 and place(url) not in killed.done
