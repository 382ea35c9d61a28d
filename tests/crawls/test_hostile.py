"""A crawl among servers that do everything wrong: honest pages arrive, hostile ones fail, memory is bounded."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

import pytest
from lab.hostile import ENDINGS, PLAYS, Server, whole
from lab.marks import later
from lab.world import COMMAND, end, wait_for, workers_of

THREADS, MAX_SIZE = 16, 10 << 20
BOUND = 900 << 20  # what manual/security.md says a worker needs at most, with 512 requests open

REDIRECTS = {
    # what only a crawl finds out: where they lead
    "/to-file": {"bad-redirect"},
    "/to-script": {"bad-redirect"},
    "/to-data": {"bad-redirect"},
    "/to-no-host": {"bad-redirect"},
    "/to-long": {"bad-redirect"},
}
# Where redirects begin that lead nowhere, and where that is found out.
CIRCLES = {"/loop": "/loop", "/ping": "/pong", "/chain/0": "/chain/20"}
HOSTILE = ENDINGS | REDIRECTS
HONEST = [f"http://honest-{number}.example" for number in range(50)]
LINKS = b"<title>honest</title><a href=/1>1</a><a href=/2>2</a><a href=/3>3</a>"
DENSE = {
    "paragraphs": b"<p>x",
    "attributes": b"<p a b c d>",
    "breaks": b"<br>",
    "links": b"<a href=/%07d>x</a>",
    "letters": "<p>ä€𝒳".encode(),
    "text": "𝒳 and plain text ".encode() + b"x" * 60_000,
}


class Town(Server):
    """Honest and hostile hosts on one address; a hostile one is named after its behaviour, and has no robots.txt."""

    def answer(self, sock: socket.socket, head: str) -> bool | None:
        host = head.split("ost: ")[1].split("\r\n")[0]
        path = head.split(" ")[1]
        if path == "/robots.txt":
            sock.sendall(whole(b"", status=b"404 Not Found"))
        elif host.startswith("honest"):
            sock.sendall(whole(LINKS))
        elif host.startswith("large"):
            sock.sendall(whole(large(host.split(".")[1])))
        else:
            return PLAYS[path](sock)
        return True


@cache
def large(kind: str) -> bytes:
    """A page as large as may be, dense with one thing."""
    piece = DENSE[kind]
    if b"%" in piece:
        return b"".join(piece % number for number in range(MAX_SIZE // len(piece % 0)))
    return piece * (MAX_SIZE // len(piece))


def url_of(path: str) -> str:
    return f"http://{path.strip('/').replace('.', '-').replace('/', '-')}.bad.example{path}"


def end_of(start: str) -> str:
    """The URL at which a circle or a chain of redirects fails."""
    return urljoin(url_of(start), CIRCLES[start])


@contextmanager
def crawling(folder: Path, seeds: list[str], *flags: str) -> Iterator[subprocess.Popen[str]]:
    """A crawl of the town."""
    server = Town()
    (folder / "seeds").write_text("\n".join(seeds))
    command = [*COMMAND, "run", str(folder / "store"), "-i", str(folder / "seeds"), "-t", str(THREADS), "-w", "0.01"]
    command += [
        "--scope",
        "any",
        "--connect-to",
        f"::127.0.0.1:{server.port}",
        "-s",
        "retries=0",
        "-s",
        "dead_after=2m",
        "-s",
        "max_per_address=null",
        *flags,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        server.close()


def peak(process: subprocess.Popen[str]) -> int:
    """Wait for a crawl's end, and return the largest memory that any of its workers had at any time."""
    largest = 0

    def look() -> bool:
        nonlocal largest
        largest = max([largest, *map(high_water, workers_of(process))])
        return process.poll() is not None

    wait_for(look)
    return largest


def high_water(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return max((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), default=0)


def outcomes(store: Path, noun: str) -> dict[str, dict[str, object]]:
    found = (json.loads(path.read_bytes()) for path in (store / noun).glob("*/[!.]*"))
    return {record["url"]: record for record in found}


@pytest.mark.parametrize("fetcher", ["curl", *later("requests")])
def test_honest_pages_arrive_and_hostile_ones_fail_by_name(tmp_path: Path, fetcher: str) -> None:
    seeds = [*map(url_of, [*HOSTILE, *CIRCLES]), *(f"{host}/" for host in HONEST)]
    limits = ("-s", "timeout=8", "-s", "connect_timeout=6", "-s", "first_byte_timeout=6", "-s", f"fetcher={fetcher}")
    with crawling(tmp_path, seeds, *limits, "-j", "2") as process:
        most = peak(process)
        printed = end(process)
    failed = {url: record["reason"] for url, record in outcomes(tmp_path / "store", "errs").items()}
    wrong = {path: failed.get(url_of(path)) for path in HOSTILE if failed.get(url_of(path)) not in HOSTILE[path]}
    assert wrong == {}, printed
    pages = {url for url, record in outcomes(tmp_path / "store", "links").items() if record["status"] == 200}
    assert pages == {f"{host}/{page}" for host in HONEST for page in ("", "1", "2", "3")}
    assert {failed.get(end_of(start)) for start in CIRCLES} == {"redirect-loop"}
    assert set(failed) == {*map(url_of, HOSTILE), *map(end_of, CIRCLES)}
    print(f"{fetcher}: {most >> 20} MB at most")
    assert most < BOUND


@pytest.mark.fleet  # for time: half a minute of one core each
@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_sixteen_dense_pages_of_the_largest_size_at_once_stay_within_the_bound(tmp_path: Path, fetcher: str) -> None:
    kinds = [*DENSE] * 3
    seeds = [f"http://large-{number}.{kind}.example/" for number, kind in enumerate(kinds[:THREADS])]
    flags = ("-j", "1", "--depth", "0", "-s", "timeout=5m", "-s", f"fetcher={fetcher}", "--no-robots")
    with crawling(tmp_path, seeds, *flags, "-s", "first_byte_timeout=5m") as process:
        most = peak(process)
        printed = end(process)
    found = outcomes(tmp_path / "store", "links")
    assert set(found) == set(seeds), printed
    assert all(found[seed]["capped"] == (seed.split(".")[1] not in ("letters", "text")) for seed in seeds)
    print(f"{fetcher}: {most >> 20} MB at most")
    assert most < BOUND


@pytest.mark.fleet  # for time: a minute of one core
def test_many_of_the_largest_pages_at_once_stay_within_the_bound_at_the_default_concurrency(tmp_path: Path) -> None:
    seeds = [f"http://large-{number}.{('letters', 'links')[number % 2]}.example/" for number in range(100)]
    flags = ("-j", "1", "-t", "512", "--depth", "0", "-s", "timeout=5m", "--no-robots", "-s", "first_byte_timeout=5m")
    with crawling(tmp_path, seeds, *flags) as process:
        most = peak(process)
        printed = end(process)
    assert set(outcomes(tmp_path / "store", "links")) == set(seeds), printed
    print(f"{most >> 20} MB at most")
    assert most < BOUND
