"""The script that this project grew from, kept as it was meant: a pool, level by level, and one dict for all.

    python baseline.py OUT SEEDS [--depth N] [--max-pages N] [--threads]

Its pace is as it was, with a delay of 0: the counts of all hosts are summed for each page, and nobody waits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import Manager
from multiprocessing.managers import DictProxy
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from bs4 import BeautifulSoup

WORKERS = 32
DELAY = 0.0


def paths(out: Path, url: str) -> tuple[Path, Path]:
    """Where a page's html and its links are kept."""
    key = hashlib.sha224(url.encode()).hexdigest()
    host = urlsplit(url).netloc
    return out / "htmls" / host / key, out / "links" / host / key


def throttle(counts: DictProxy[str, int], host: str) -> None:
    """Wait the longer the more of all pages this host has had."""
    counts[host] = counts.get(host, 0) + 1
    time.sleep(DELAY * counts[host] / sum(counts.values()))


def links_of(html: str, url: str) -> list[str]:
    """Where a page leads, without queries and fragments."""
    found = (urljoin(url, str(tag["href"])) for tag in BeautifulSoup(html, "html5lib").find_all("a", href=True))
    return [link.split("#")[0].split("?")[0] for link in found if link.startswith("http")]


def visit(out: Path, counts: DictProxy[str, int], url: str) -> list[str]:
    """Fetch and keep a page unless it is there; its links."""
    html_path, links_path = paths(out, url)
    if links_path.exists():
        return list(json.loads(links_path.read_text())["links"])
    throttle(counts, urlsplit(url).netloc)
    try:
        answer = requests.get(url, timeout=5)
    except requests.RequestException:
        return []
    if answer.status_code != 200 or "html" not in answer.headers.get("content-type", ""):
        return []
    links = links_of(answer.text, url)
    for path, text in ((html_path, answer.text), (links_path, json.dumps({"url": url, "links": links}))):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return links


def saved_links(out: Path) -> Iterable[str]:
    """All links of all pages, read again from the disk."""
    for path in out.glob("links/*/*"):
        yield from json.loads(path.read_text())["links"]


def crawl(executor: Executor, counts: DictProxy[str, int], out: Path, seeds: list[str], depth: int, limit: int) -> None:
    """Level by level; when nothing new was found, the links on the disk are read once more."""
    hosts = {urlsplit(url).netloc for url in seeds}
    seen: set[str] = set()

    def new(links: Iterable[str]) -> list[str]:
        unseen = dict.fromkeys(link for link in links if link not in seen and urlsplit(link).netloc in hosts)
        return list(unseen)[: limit - len(seen)]

    frontier = new(seeds)
    while frontier and depth >= 0:
        seen.update(frontier)
        found = executor.map(partial(visit, out, counts), frontier)
        frontier = new(link for links in found for link in links) or new(saved_links(out))
        depth -= 1


def main() -> None:
    """Crawl from a file of seeds into a folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("seeds", type=Path)
    parser.add_argument("--depth", type=int, default=10**9)
    parser.add_argument("--max-pages", type=int, default=10**9)
    parser.add_argument("--threads", action="store_true")
    args = parser.parse_args()
    pool = ThreadPoolExecutor if args.threads else ProcessPoolExecutor
    with Manager() as manager, pool(WORKERS) as executor:
        crawl(executor, manager.dict(), args.out, args.seeds.read_text().split(), args.depth, args.max_pages)


if __name__ == "__main__":
    main()
