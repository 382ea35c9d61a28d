"""The limit of the machine: fetch a list of URLs with pycurl and write each body to a file, and nothing else.

python bare.py OUT URLS [--processes N]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pycurl

TRANSFERS = 16  # at once in each process, as many as a worker has threads


def fetch(out: Path, urls: list[str]) -> None:
    """Fetch these URLs with connections kept, and write what comes to numbered files."""
    out.mkdir(parents=True)
    waiting, multi = iter(enumerate(urls)), pycurl.CurlMulti()
    idle = [_handle() for _ in range(TRANSFERS)]
    active: dict[pycurl.Curl, tuple[int, BytesIO]] = {}
    while _start(multi, idle, active, waiting) or active:
        multi.select(1.0)
        while multi.perform()[0] == pycurl.E_CALL_MULTI_PERFORM:
            pass
        for handle in _landed(multi):
            number, body = active.pop(handle)
            (out / str(number)).write_bytes(body.getvalue())
            multi.remove_handle(handle)
            idle.append(handle)


def _handle() -> pycurl.Curl:
    handle = pycurl.Curl()
    handle.setopt(pycurl.NOSIGNAL, 1)
    handle.setopt(pycurl.TIMEOUT, 60)
    if os.environ.get("SSL_CERT_FILE"):
        handle.setopt(pycurl.CAINFO, os.environ["SSL_CERT_FILE"])
    return handle


def _start(
    multi: pycurl.CurlMulti,
    idle: list[pycurl.Curl],
    active: dict[pycurl.Curl, tuple[int, BytesIO]],
    waiting: Iterator[tuple[int, str]],
) -> bool:
    """Give what is idle the next URLs; whether there was one."""
    before = len(active)
    while idle and (item := next(waiting, None)):
        handle, body = idle.pop(), BytesIO()
        handle.setopt(pycurl.URL, item[1])
        handle.setopt(pycurl.WRITEDATA, body)
        multi.add_handle(handle)
        active[handle] = (item[0], body)
    return len(active) > before


def _landed(multi: pycurl.CurlMulti) -> list[pycurl.Curl]:
    _, good, bad = multi.info_read()
    if bad:
        raise SystemExit(f"{bad[0][0].getinfo(pycurl.EFFECTIVE_URL)}: {bad[0][2]}")
    return list(good)


def main() -> None:
    """Share the URLs among processes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("urls", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    args = parser.parse_args()
    urls = args.urls.read_text().split()
    parts = [(args.out / str(first), urls[first :: args.processes]) for first in range(args.processes)]
    processes = [multiprocessing.Process(target=fetch, args=part) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


if __name__ == "__main__":
    main()
