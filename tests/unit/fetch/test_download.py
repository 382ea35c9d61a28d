"""Large bodies go to a file as they come: whole, decoded, within the limits, and in little memory."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab.downloads import Downloads, downloads, pieces
from lab.fetching import BlockingFetcher

from crawler.errors import DiskFull, StoreAway
from crawler.fetch.download import CutShort, Inflater
from crawler.fetch.request import GZIP, ZLIB, FetchOptions
from crawler.store.mount import Files
from crawler.store.stream import Stream
from crawler.web.page import Failure, Fetched

FETCHERS = ["curl", "requests"]
MANY = 3_000_001
Get = Callable[..., Fetched | Failure]


@pytest.fixture(scope="module")
def server() -> Iterator[Downloads]:
    with downloads() as made:
        yield made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "README").write_text("a store")
    return tmp_path


@pytest.fixture(params=FETCHERS)
def get(request: pytest.FixtureRequest, root: Path, server: Downloads) -> Iterator[Get]:
    files = Files(root, "me")
    made: list[BlockingFetcher] = []

    def ask(path: str, **options: Any) -> Fetched | Failure:
        place = options.pop("place", lambda: Stream(files, "files/a.example"))
        wanted = {"allow_private": True, "fetcher": request.param, "content_types": ("all",), **options}
        made.append(BlockingFetcher(FetchOptions(**wanted)))
        return made[-1].get(server.url(path), place=place)

    yield ask
    for fetcher in made:
        fetcher.close()


def left(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and path.name != "README"]


@pytest.mark.parametrize("how", ["pdf", "gzip"])
def test_a_large_body_is_in_a_file_byte_for_byte(get: Get, root: Path, how: str) -> None:
    body = b"".join(pieces(MANY))
    page = get(f"/{how}/{MANY}")
    assert isinstance(page, Fetched) and page.saved, page
    assert (page.body, page.kind, page.is_file) == (b"", "application/pdf", True)
    assert (page.saved.size, page.saved.sha224) == (MANY, hashlib.sha224(body).hexdigest())
    [temporary] = left(root)
    assert temporary.name.startswith(".") and temporary.read_bytes() == body
    page.saved.place.publish("x.pdf")
    page.saved.place.publish("x.pdf")
    assert [(path.name, path.read_bytes() == body) for path in left(root)] == [("x.pdf", True)]


def test_a_small_body_stays_in_memory(get: Get, root: Path) -> None:
    page = get("/pdf/5000")
    assert isinstance(page, Fetched) and not page.saved and page.body == b"".join(pieces(5000)) and page.is_file
    assert left(root) == []


def test_a_body_without_a_type_is_judged_by_its_first_bytes(get: Get, root: Path) -> None:
    outcome = get("/untyped/5000", content_types=("html",))
    assert isinstance(outcome, Failure) and (outcome.reason, outcome.detail) == (
        "wrong-type",
        "application/octet-stream",
    )
    page = get("/untyped/5000")
    assert isinstance(page, Fetched) and page.is_file and page.kind == "application/octet-stream"


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        (f"/cut/{MANY}", {}, "cut-short"),
        (f"/pdf/{MANY}", {"max_size": MANY - 1}, "too-big"),
        (f"/gzip/{MANY}", {"max_size": MANY - 1}, "too-big"),
        (f"/wait/{MANY}", {"timeout": 1.0}, "timeout"),
    ],
)
def test_a_body_that_is_not_whole_or_too_big_leaves_nothing(
    get: Get, root: Path, path: str, options: dict[str, Any], reason: str
) -> None:
    outcome = get(path, **options)
    assert isinstance(outcome, Failure) and outcome.reason == reason, outcome
    limit = time.monotonic() + 30
    while left(root) and time.monotonic() < limit:
        time.sleep(0.01)  # a thread removes it
    assert left(root) == []


class Full:
    """A file on a disk without space."""

    is_sound = True

    def __init__(self, error: Exception) -> None:
        self.error, self.is_discarded = error, False

    def write(self, data: bytes) -> None:
        raise self.error

    def finish(self) -> None:
        raise self.error

    def publish(self, leaf: str) -> None:
        raise self.error

    def discard(self) -> None:
        self.is_discarded = True


@pytest.mark.parametrize("error", [DiskFull("full"), StoreAway("away")])
def test_an_error_of_the_store_is_raised_and_is_no_failure_of_the_page(get: Get, error: Exception) -> None:
    place = Full(error)
    with pytest.raises(type(error)):
        get(f"/pdf/{MANY}", place=lambda: place)


@pytest.mark.parametrize("fetcher", FETCHERS)
def test_several_large_bodies_at_once_take_little_memory(server: Downloads, tmp_path: Path, fetcher: str) -> None:
    size = 60 << 20
    lines = (
        "import asyncio, resource",
        "from crawler.fetch.fetcher import Fetcher; from crawler.fetch.request import FetchOptions",
        "from crawler.store.mount import Files; from crawler.store.stream import Stream",
        f"files = Files({str(tmp_path)!r}, 'me', durable=False)",
        "place = lambda: Stream(files, 'files/a.example')",
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss",
        "async def main():",
        "    options = dict(allow_private=True, content_types=('all',), max_size=2 << 30, timeout=300, concurrency=6)",
        f"    fetcher = Fetcher(FetchOptions(fetcher={fetcher!r}, **options))",
        f"    await fetcher.get({server.url('/pdf/300000')!r}, place=place)",
        "    before = peak()",
        f"    urls = [{server.url(f'/pdf/{size}')!r} + f'?{{number}}' for number in range(6)]",
        "    found = await asyncio.gather(*(fetcher.get(url, place=place) for url in urls))",
        "    print(sum(page.saved.size for page in found), (peak() - before) // 1024)",
        "    fetcher.close()",
        "asyncio.run(main())",
    )
    (tmp_path / "README").write_text("a store")
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    got, grown = map(int, done.stdout.split())
    assert got == 6 * size
    assert grown < 48, f"{grown} MiB more for {got >> 20} MiB"


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize("how", ["gzip", "two members", "zlib", "raw", "padded"])
def test_pieces_of_any_size_are_decoded_like_the_whole(step: int, how: str) -> None:
    body = b"".join(pieces(700_001)) if step > 1 else b"hello" * 100
    raw = zlib.compressobj(wbits=-15)
    packed = {
        "gzip": gzip.compress(body),
        "two members": gzip.compress(body[:99]) + gzip.compress(body[99:]),
        "zlib": zlib.compress(body),
        "raw": raw.compress(body) + raw.flush(),
        "padded": gzip.compress(body) + bytes(10),
    }[how]
    inflater = Inflater(ZLIB if how in ("zlib", "raw") else GZIP)
    out = b"".join(piece for at in range(0, len(packed), step) for piece in inflater.feed(packed[at : at + step]))
    inflater.check_end()
    assert out == body
    cut = Inflater(ZLIB if how in ("zlib", "raw") else GZIP)
    list(cut.feed(packed[: len(packed) // 3]))
    with pytest.raises(CutShort):
        cut.check_end()
