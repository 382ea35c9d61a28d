"""What a crawl takes: sums from measured rates. Pure arithmetic, for `crawler plan`.

Not promised: that your web, your machines or your file server are like those that were measured. Each rate says where
it comes from, so that you can put your own in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class Rate(NamedTuple):
    """A figure that the sums rely on, what it is of, and where it comes from."""

    value: float
    what: str
    source: str


# Measured on one machine with 2 cores, which held the servers too and was busy with other things besides.
RATES = {
    "cpu_page": Rate(2.1, "ms of CPU a page", "`make bench`: 2.10 s per 1,000 pages of 300 hosts"),
    "cpu_host": Rate(0.9, "ms of CPU a host", "`make bench`: 3.01 s per 1,000 hosts with a page each"),
    "names_page": Rate(5, "operations on names a page", "counted under strace: 4.6 to 5.1 on one deep site"),
    "names_host": Rate(14, "operations on names a host", "counted under strace: 19 with one page per host"),
    "data_page": Rate(4.2, "writes and syncs a page", "counted under strace: 2 and 2.2 on a network mount"),
    "data_host": Rate(4, "writes and syncs a host", "counted under strace: 8.4 with one page per host"),
    "files": Rate(460, "files a second of a file server", "`make bench`, sshfs 1 ms away: 232 pages/s, 2 files each"),
    "others": Rate(0.2, "redirects and failures a page", "the embedded web: 821 beside 4,046 pages"),
    "inodes_page": Rate(2, "inodes a page", "its html and its record"),
    "inodes_host": Rate(4, "inodes a host", "its folders in htmls, links and errs, and its robots.txt"),
    "record": Rate(400, "bytes of a record without links", "measured: 403 on the embedded web"),
    "link": Rate(75, "bytes a link", "an assumption: the length of a URL"),
    "known": Rate(230, "bytes a known URL in $TMPDIR", "measured: 200,000 URLs of 77 letters in a worker's table"),
    "memory": Rate(90, "MB of memory a worker", "`make bench`: 84 with a million known URLs"),
    "load": Rate(0.7, "of what can be done is planned", "an assumption: the rest is for bursts and restarts"),
}
BLOCK = 4096  # bytes: what a file takes of a disk is whole blocks
SHARDS = (64, 4096)  # of a store that is made without --shards, and at most
DAY = 86400.0
# What mkfs.ext4 does by itself: from so many bytes of disk on, an inode for so many; and its most in any case.
EXT4 = ((16 << 40, 65536), (4 << 40, 32768), (512 << 20, 16384), (0, 4096))
EXT4_MOST = 2**32 - 1
# What mkfs.xfs does: from so many bytes on, inodes may take so many percent of the disk.
XFS = ((50 << 40, 1), (1 << 40, 5), (0, 25))
XFS_INODE = 512  # bytes


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be crawled, and with what."""

    pages: float
    hosts: float
    seconds: float = 7 * DAY
    page_size: float = 30 << 10
    links: float = 50
    delay: float = 1.0
    latency: float = 0.5
    workers: int = 4
    concurrency: int = 16
    files: float = RATES["files"].value
    others: float = RATES["others"].value


def rate(name: str) -> float:
    """The value of a rate."""
    return RATES[name].value


@dataclass(frozen=True, slots=True)
class Sums:
    """What a task takes. Pages are taken to be spread evenly over the hosts and the time."""

    task: Workload

    # ---- asking hosts

    @property
    def pages_a_second(self) -> float:
        """The pace of the whole crawl."""
        return self.task.pages / self.task.seconds

    @property
    def requests(self) -> float:
        """Pages, what turns out to be none, and a robots.txt for each host."""
        return self.task.pages * (1 + self.task.others) + self.task.hosts

    @property
    def requests_a_second(self) -> float:
        """The same in each second."""
        return self.requests / self.task.seconds

    @property
    def turn(self) -> float:
        """Seconds from one request to a host to the next; 0 without a delay: many workers may request it at once."""
        return self.task.delay + self.task.latency if self.task.delay else 0.0

    @property
    def host_seconds(self) -> float:
        """How long a host takes."""
        return self.turn * self.requests / self.task.hosts

    @property
    def host_pages(self) -> float:
        """The pages that one host can give in the time; no limit without a delay."""
        if not self.turn:
            return math.inf
        return max(math.floor((self.task.seconds / self.turn - 1) / (1 + self.task.others)), 0)

    @property
    def hosts_needed(self) -> float:
        """The fewest hosts that can give so many pages in the time; none are enough if a host can give no page."""
        return math.ceil(self.task.pages / self.host_pages) if self.host_pages else math.inf

    @property
    def politeness(self) -> float:
        """The part of the time that a host takes: over 1, it cannot be done."""
        return self.host_seconds / self.task.seconds

    # ---- machines

    @property
    def cpu(self) -> float:
        """Cores that are busy all the time."""
        work = rate("cpu_page") * self.task.pages + rate("cpu_host") * self.task.hosts
        return work / 1000 / self.task.seconds

    @property
    def open_requests(self) -> float:
        """Requests that are open at any moment: each takes a request slot."""
        return self.requests_a_second * self.task.latency

    @property
    def by_cpu(self) -> int:
        """Machines that have enough cores."""
        return _up(self.cpu / (self.task.workers * rate("load")))

    @property
    def by_concurrency(self) -> int:
        """Machines that have enough request slots."""
        return _up(self.open_requests / (self.task.workers * self.task.concurrency * rate("load")))

    @property
    def machines(self) -> int:
        """Machines that are enough."""
        return max(self.by_cpu, self.by_concurrency)

    @property
    def shards(self) -> int:
        """What the store should be made with: four for each worker, so that they can be shared fairly."""
        least, most = SHARDS
        return min(max(1 << math.ceil(math.log2(4 * self.machines * self.task.workers)), least), most)

    @property
    def memory(self) -> float:
        """Bytes of memory of a machine."""
        return rate("memory") * 1e6 * self.task.workers

    @property
    def own_disk(self) -> float:
        """Bytes on a machine's own disk, at the least: URLs that are found and never requested come on top."""
        return rate("known") * self.task.pages * (1 + self.task.others) / self.machines

    # ---- the store

    @property
    def inodes(self) -> float:
        """Files and folders."""
        pages = self.task.pages * (rate("inodes_page") + self.task.others)
        return pages + rate("inodes_host") * self.task.hosts

    @property
    def record(self) -> float:
        """Bytes of a record."""
        return rate("record") + rate("link") * self.task.links

    @property
    def disk(self) -> float:
        """Bytes of the disk, in whole blocks."""
        page = _blocks(self.task.page_size) + _blocks(self.record) + self.task.others * BLOCK
        return self.task.pages * page + self.task.hosts * rate("inodes_host") * BLOCK

    @property
    def disk_size(self) -> float:
        """Bytes of a disk that is not full with them."""
        return self.disk / rate("load")

    @property
    def ext4_inodes(self) -> float:
        """The inodes that mkfs.ext4 gives such a disk by itself."""
        return self.disk_size / next(each for least, each in EXT4 if self.disk_size >= least)

    @property
    def ext4_wanted(self) -> int:
        """The inodes that it must be told to make; 0 where its own are enough."""
        wanted = math.ceil(self.inodes / rate("load"))
        return wanted if wanted > self.ext4_inodes else 0

    @property
    def xfs_wanted(self) -> int:
        """The percent of the disk that mkfs.xfs must be told to leave for inodes; 0 where its own are enough."""
        wanted = math.ceil(100 * self.inodes * XFS_INODE / self.disk)
        return wanted if wanted > next(part for least, part in XFS if self.disk_size >= least) else 0

    @property
    def server_requests(self) -> float:
        """Requests to the file server per second: names, writes and syncs."""
        page, host = (rate(f"names_{of}") + rate(f"data_{of}") for of in ("page", "host"))
        return (page * self.task.pages + host * self.task.hosts) / self.task.seconds

    @property
    def server_files(self) -> float:
        """Files that it takes in a second, as `crawler doctor` counts them: all requests, as those of so many pages."""
        page = rate("names_page") + rate("data_page")
        return rate("inodes_page") * self.server_requests / page

    @property
    def servers(self) -> float:
        """How many of the file servers that were measured, or of yours, this is: over 1, one cannot carry it."""
        return self.server_files / (self.task.files * rate("load"))

    # ---- the network

    @property
    def web_bits(self) -> float:
        """Bits a second from the web, if nothing comes compressed."""
        return 8 * self.pages_a_second * self.task.page_size

    @property
    def server_bits(self) -> float:
        """Bits a second to and from the file server: pages, records, and each link in a batch, written and read."""
        links = 2 * rate("link") * self.task.links
        return 8 * self.pages_a_second * (self.task.page_size + self.record + links)


def _up(count: float) -> int:
    """Whole machines; a hair above a whole number is an error of the sums."""
    return max(math.ceil(count - 1e-9), 1)


def _blocks(size: float) -> float:
    return math.ceil(size / BLOCK) * BLOCK
