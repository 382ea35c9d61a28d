"""`crawler demo`: crawl a generated web on loopback, and compare the store with it page by page."""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from crawler import errors
from crawler.commands.arguments import WHOLE, Add, flag
from crawler.errors import UsageError
from crawler.settings import values
from crawler.store.mount import FILE, Files
from crawler.web.text import printable

if TYPE_CHECKING:
    from crawler.commands.demo.web import DemoWeb

SEED = 1
AGENT = "folder-crawler-demo/1 (+http://garden-000.example/)"


def commands(add: Add) -> None:
    """Add `crawler demo`."""
    parser = add("demo", run, "crawler demo /tmp/demo --workers 4", store=False)
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
    parser.add_argument("--pages", type=whole, default=4000, metavar="N", help="pages in the web (default 4000)")
    parser.add_argument("-j", "--workers", type=WHOLE, default=4, metavar="N", help="processes (default 4)")
    parser.add_argument(
        "--serve", metavar="[ADDR:]PORT", help="only serve the web until Ctrl-C; crawl it with --connect-to"
    )


def run(options: argparse.Namespace) -> int:
    """`crawler demo`."""
    from crawler.commands.demo.web import DemoWeb  # here and below: other commands need not load it

    web = DemoWeb(hosts=options.hosts, pages=options.pages, seed=SEED)
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
            print(
                f"serving {len(web.expected().pages)} pages on port {server.port}; start at {web.seeds()[0]}",
                flush=True,
            )
            while True:
                time.sleep(3600)
    except OSError as error:
        raise UsageError(f"--serve {where}: {error.strerror}; choose another port") from error
    except KeyboardInterrupt:
        return errors.OVER


def _crawl(web: DemoWeb, store: Path, workers: int) -> int:
    from crawler.commands.demo.server import serve

    _remove_old(store)
    log = store.parent / f"{store.name}.log"
    log.unlink(missing_ok=True)
    with serve(web, ("127.0.0.1", 0), log=str(log), process=True) as server:
        command = [
            "run",
            str(store),
            *web.seeds(),
            "--scope",
            "any",
            "-j",
            str(workers),
            "-w",
            "0.02",
            "-s",
            "retry_delay=1s",
            "-s",
            "retries=2",
            "-s",
            "max_per_address=null",  # all hosts of this web are at one address
        ]
        command += ["--connect-to", f"::127.0.0.1:{server.port}", "--user-agent", AGENT]
        print(printable(shlex.join(["crawler", *command])), flush=True)
        code = subprocess.run([sys.executable, "-m", "crawler", *command], check=False).returncode
    return _prove(web, store, log) if code == errors.OVER else code


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


def _prove(web: DemoWeb, store: Path, log: Path) -> int:
    """Compare the store with what the web expects, and check the server's log for repeated requests."""
    from crawler.commands.demo.expected import compare
    from crawler.commands.demo.server import read_log, requested_twice

    expected = web.expected()
    differences = compare(expected, store)
    twice = requested_twice(read_log(log))
    for line in [
        *differences[:20],
        *(f"requested {times} times: {url}" for url, times in list(twice.items())[:20]),
    ]:
        print(printable(line))
    if differences or twice:
        print(f"{len(differences)} differences, {len(twice)} pages requested more than once")
        return errors.BUG
    print(
        f"every page is there: {len(expected.pages):,} pages, {len(expected.redirects):,} redirects and "
        f"{len(expected.failures):,} failure records compared one by one, none requested twice"
    )
    root = printable(str(store))
    print(f"next: crawler status {root}; ls {root}/htmls | head; grep -rl яблони {root}/htmls | head -3")
    return errors.OVER
