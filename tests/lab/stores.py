"""Stores for the tests of what reads them: one that the real program has crawled, and large ones made to measure."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from crawler.commands.demo.web import DemoWeb
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.writer import StoreWriter
from crawler.web.page import Failure, Fetched, Reading
from lab.world import COMMAND, LONG, world

WORDS = "<p>The quick brown fox jumps over the lazy dog.</p>" * 20


def crawl(folder: Path) -> Path:
    """A store of about 60 pages on 8 hosts, with redirects and refusals, as `crawler run` leaves it."""
    with world(DemoWeb(hosts=8, pages=60, seed=5), folder) as w:
        w.crawl()
        return w.root


def large(root: Path, pages: int = 100_000, hosts: int = 100) -> StoreWriter:
    """A store of very many pages, made without asking anybody: one in ten URLs is refused, all are of one day."""
    root.mkdir()
    store = StoreWriter(root, Files(root, "maker", durable=False))
    store.make(Settings(shards=4, scope="any"))
    store.files.directories.max_kept = 3 * hosts
    for number in range(pages):
        url = f"https://host-{number % hosts:03d}.example/page/{number}"
        links = [f"https://host-{(number + step) % hosts:03d}.example/page/{number + step}" for step in range(1, 11)]
        page = Fetched(url, 200, {"content-type": "text/html"}, WORDS.encode())
        reading = Reading(f"<title>Page {number}</title>{WORDS}", "utf-8", f"Page {number}", tuple(links))
        store.put_html(url, reading.text)
        store.put_record(url, to_json(build_record(page, reading, 1, links, 1_700_000_000 + number % 86_400)))
        if number % 10 == 0:
            store.put_failure(f"{url}/gone", Failure(url, "http-404"), 1)
    store.files.directories.close_kept()
    return store


def of(root: Path, pages: dict[str, str], kind: str = "text/html") -> StoreWriter:
    """A store of these pages, by URL, made without asking anybody; more are added to one that is there."""
    store = StoreWriter(root, Files(root, "maker", durable=False))
    if not root.exists():
        root.mkdir(parents=True)
        store.make(Settings(shards=4))
    for url, text in pages.items():
        page = Fetched(url, 200, {"content-type": kind}, text.encode())
        store.put_html(url, text)
        store.put_record(url, to_json(build_record(page, Reading(text, "utf-8", "", ()), 1, [], 1_700_000_000)))
    return store


@dataclass(frozen=True, slots=True)
class Took:
    """What a command printed, and what it took."""

    code: int
    out: str
    seconds: float
    megabytes: int


def measure(*args: str) -> Took:
    """Run `crawler` with these arguments, and see what it takes: for tests that state time and memory."""
    script = (
        "import resource, subprocess, sys\n"
        "code = subprocess.run(sys.argv[1:]).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, *COMMAND, *args], capture_output=True, text=True, timeout=4 * LONG, check=False
    )
    seconds = time.monotonic() - began
    return Took(done.returncode, done.stdout, seconds, int(done.stderr.split()[-1]))
