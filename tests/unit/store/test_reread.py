"""Readers look again at a file that another machine replaces just now: some mounts show none or a part of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.settings.settings import Settings
from crawler.store import reread
from crawler.store.mount import Files
from crawler.store.records import html_hash, to_json
from crawler.store.store import Robots, Store
from crawler.store.writer import StoreWriter
from crawler.web import urls

URL = "http://a.example/"
HTML = "<p>whole</p>"


class Mount(Files):
    """A mount that shows files of a kind as others see them while they are replaced, so many times."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.times, self.kind, self.show = 0, "", lambda data: data
        self.reads = 0

    def meet(self, kind: str, show: Callable[[bytes], bytes | None], times: int) -> None:
        self.kind, self.show, self.times, self.reads = kind, show, times, 0

    def get(self, name: str) -> bytes | None:
        data = super().get(name)
        self.reads += 1
        if data is None or not name.startswith(self.kind) or self.times <= 0:
            return data
        self.times -= 1
        return self.show(data)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    store = StoreWriter(tmp_path)
    store.make(Settings(shards=1))
    store.put_html(URL, HTML)
    record = {"url": URL, "sha224": "x", "html_sha224": html_hash(HTML.encode()), "links": []}
    store.put_record(URL, to_json(record))
    return Mount(tmp_path)


RULES = b"User-agent: *\nDisallow: /\n"


@pytest.mark.parametrize("times", [1, 100])
def test_a_robots_txt_at_the_length_of_the_one_it_replaces_is_not_taken_for_one_without_rules(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """The note of a redirect is as long as the first line of what the redirect leads to."""
    monkeypatch.setattr(reread, "WAITS", (0.001,) * 3)
    whole = Robots(1e9, 200, RULES)
    StoreWriter(mount.root).put_robots("a.example", whole)
    size = (Path(mount.root) / "robots" / "a.example").stat().st_size
    mount.meet("robots", lambda data: data[: size - len(RULES)], times)
    assert Store(mount.root, mount).robots("a.example") == (whole if times == 1 else None)


def test_a_robots_txt_of_an_older_version_is_read(mount: Mount) -> None:
    (Path(mount.root) / "robots" / "a.example").write_bytes(b"# read 2026-01-01T00:00:00Z status 200\n" + RULES)
    found = Store(mount.root).robots("a.example")
    assert found and found.body == RULES


SHOWN: dict[str, Callable[[bytes], bytes | None]] = {"nothing": lambda _: None, "a part": lambda data: data[:5]}


@pytest.mark.parametrize("kind", ["htmls", "links"])
@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN.keys())
@pytest.mark.parametrize("times", [1, 2])
def test_what_is_replaced_while_it_is_read_is_read_again(
    mount: Mount, kind: str, show: Callable[[bytes], bytes | None], times: int
) -> None:
    store = Store(mount.root, mount)
    mount.meet(kind, show, times)
    (page,) = store.pages()
    assert page.html == HTML
    mount.meet(kind, show, times)
    page_at = store.page_at("a.example", urls.key(URL))
    assert page_at is not None and page_at.html == HTML


def test_a_page_that_is_not_there_is_not_waited_for(mount: Mount, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reread, "WAITS", (1e6,))
    store = Store(mount.root, mount)
    assert store.page(f"{URL}other") is None and store.text(f"{URL}other") is None
    assert store.record(f"{URL}other") is None and store.failure(URL) is None


def test_where_it_never_helps_readers_soon_take_files_as_they_are(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reread, "WAITS", (0.001,))
    monkeypatch.setattr(reread, "MAX_WAITED", 0.0025)
    StoreWriter(mount.root).put_html(URL, "edited by hand")
    store = Store(mount.root, mount)
    reads = []
    for _ in range(5):
        (page,) = store.pages()
        mount.reads = 0
        assert page.html == "edited by hand"
        reads.append(mount.reads)
    assert reads == [5, 5, 5, 3, 3]
    mount.meet("links", lambda data: data[:5], 1)
    assert list(store.pages()) == [], "there is no patience left"
