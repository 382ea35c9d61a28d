"""The least that keeping a page takes: its two files, each written under a temporary name and renamed, in a loop.

    python tests/bench/bare_files.py LIST FOLDER --processes 2 --threads 16 [--sync]

Each line of the list is a page: `host key bytes_of_html bytes_of_record`. No coordination and no order.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

Pages = list[tuple[str, str, int, int]]
NOUNS = ("htmls", "links")
TEXT = memoryview(bytearray(b"a") * (1 << 24))  # of a page; its memory is there, or each write would come in pieces


@dataclass(frozen=True, slots=True)
class Keeper:
    """Writes pages below a folder, from so many threads, each file synced before its rename or not."""

    root: str
    threads: int
    sync: bool

    def keep(self, pages: Pages) -> None:
        """Write these pages; the folders of their hosts are made first."""
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(lambda folder: Path(folder).mkdir(), self._folders(pages)))
            list(pool.map(self._keep_page, pages))

    def _folders(self, pages: Pages) -> Iterable[str]:
        hosts = {host for host, *_ in pages}
        return [f"{self.root}/{noun}/{host}" for noun in NOUNS for host in hosts]

    def _keep_page(self, page: tuple[str, str, int, int]) -> None:
        host, key, *sizes = page
        for noun, size in zip(NOUNS, sizes, strict=True):
            self._put(f"{self.root}/{noun}/{host}", key, size)

    def _put(self, folder: str, name: str, size: int) -> None:
        temporary = f"{folder}/.{name}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(descriptor, TEXT[:size])
        if self.sync:
            os.fsync(descriptor)
        os.close(descriptor)
        os.rename(temporary, f"{folder}/{name}")


def read(pages: Path, processes: int) -> list[Pages]:
    """The pages of a list for each process: a host is one process's."""
    shares: list[Pages] = [[] for _ in range(processes)]
    for line in pages.read_text().splitlines():
        host, key, html, record = line.split()
        shares[sum(host.encode()) % processes].append((host, key, int(html), int(record)))
    return shares


def main() -> None:
    """Write all pages of the list."""
    parser = argparse.ArgumentParser()
    parser.add_argument("list", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--sync", action="store_true")
    given = parser.parse_args()
    for noun in NOUNS:
        (given.root / noun).mkdir(parents=True)
    keeper = Keeper(str(given.root), given.threads, given.sync)
    with ProcessPoolExecutor(given.processes) as pool:
        list(pool.map(keeper.keep, read(given.list, given.processes)))


if __name__ == "__main__":
    main()
