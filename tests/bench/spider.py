"""Scrapy on the same pages, with the settings that its documentation advises for broad crawls.

    python spider.py OUT SEEDS [--depth N] [--max-pages N] [--processes N] [--polite]

Several processes share the seeds' hosts among themselves; each follows links on its own hosts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor

# The advice on SCHEDULER_PRIORITY_QUEUE is the default by now.
SETTINGS = {
    "CONCURRENT_REQUESTS": 100,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 15,
    # Breadth first, as all the others; the documentation says that it also needs less memory.
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_VERIFY_CERTIFICATES": True,
}
POLITE = {"ROBOTSTXT_OBEY": True, "DOWNLOAD_DELAY": 1}
FAST = {"ROBOTSTXT_OBEY": False, "CONCURRENT_REQUESTS_PER_DOMAIN": 100}  # 8 unless said: for the case of one site


class Pages(Spider):
    """Keeps each page's html and a JSON of its links, and follows those on the seeds' hosts."""

    name = "pages"

    def __init__(self, out: Path, seeds: list[str], depth: int, **more: Any) -> None:
        super().__init__(**more)
        self.out, self.seeds, self.depth = out, seeds, depth
        self.hosts = {urlsplit(url).netloc for url in seeds}
        self.extractor = LinkExtractor()

    async def start(self) -> AsyncIterator[Request]:
        """The seeds."""
        for url in self.seeds:
            yield Request(url)

    def parse(self, response: Response) -> Iterator[Request]:
        """Keep a page, and follow its links."""
        if not isinstance(response, HtmlResponse):
            return
        links = [link.url for link in self.extractor.extract_links(response)]
        self._keep("htmls", response.url, response.body)
        self._keep("links", response.url, json.dumps({"url": response.url, "links": links}).encode())
        if response.meta["depth"] < self.depth:
            yield from (Request(link) for link in links if urlsplit(link).netloc in self.hosts)

    def _keep(self, kind: str, url: str, content: bytes) -> None:
        path = self.out / kind / urlsplit(url).netloc / hashlib.sha224(url.encode()).hexdigest()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def crawl(out: Path, seeds: list[str], depth: int, settings: dict[str, Any]) -> None:
    """Crawl in this process."""
    process = CrawlerProcess({**SETTINGS, **settings})
    process.crawl(Pages, out=out, seeds=seeds, depth=depth)
    process.start()


def main() -> None:
    """Crawl from a file of seeds into a folder, in as many processes as are asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("seeds", type=Path)
    parser.add_argument("--depth", type=int, default=10**9)
    parser.add_argument("--max-pages", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--polite", action="store_true", help="obey robots.txt, and a second between requests to a host"
    )
    args = parser.parse_args()
    seeds = args.seeds.read_text().split()
    settings = {**(POLITE if args.polite else FAST), "CLOSESPIDER_PAGECOUNT": args.max_pages}
    if args.processes == 1:
        return crawl(args.out, seeds, args.depth, settings)
    parts = [(args.out, seeds[first :: args.processes], args.depth, settings) for first in range(args.processes)]
    processes = [multiprocessing.Process(target=crawl, args=part) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return None


if __name__ == "__main__":
    main()
