"""What `crawler serve` shows of hosts, of one host's pages and of other types, and how it looks on any screen."""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from lab import stores
from lab.browser import Browser, Served, browsing, serving
from lab.marks import later
from lab.webs import TreeWeb
from lab.world import LONG, crawler, end, wait_for, world

from crawler import Store
from crawler.commands.serve import counts, search
from crawler.commands.serve.counts import Census
from crawler.commands.serve.search import Finder
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.store import Robots
from crawler.store.writer import StoreWriter
from crawler.web import urls
from crawler.web.page import Failure, Fetched, Reading
from crawler.web.reasons import kind

HOST = "library.example"
TITLES = {
    "/": "The Library",
    "/books/moby": "Moby Dick; or, The Whale",
    "/books/emma": "Emma",
    "/b%C3%BCcher/": "Bücher auf Deutsch",
    "/about": "About WHALES and us",
}


def png(width: int, height: int) -> bytes:
    """A picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([200, 30, 90]) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='owned'</script></svg>"
FILES = {  # path: type, extension, bytes
    "/pic.png": ("image/png", "png", png(30, 20)),
    "/drawing.svg": ("image/svg+xml", "svg", SVG),
    "/paper%20(1).pdf": ("application/pdf", "pdf", b"%PDF-1.4\n" + bytes(range(256)) * 4000),
    "/data.json": ("application/json", "json", '{"words": ["ü", "<b>"]}'.encode()),
    "/page.html": ("text/html", "html", b"<script>document.title='owned'</script>"),
}


def add_page(store: StoreWriter, url: str, title: str) -> None:
    """A page as a worker would leave it."""
    text = f"<title>{title}</title>"
    page = Fetched(url, 200, {"content-type": "text/html"}, text.encode())
    store.put_html(url, text)
    store.put_record(url, to_json(build_record(page, Reading(text, "utf-8", title, ()), 1, [], time.time())))


def add_file(store: StoreWriter, url: str, type: str, name: str, data: bytes) -> None:
    """Content that is not a page's text: its bytes in files/, named in its record."""
    page = Fetched(url, 200, {"content-type": type}, data)
    record = build_record(page, Reading("", "utf-8", "", ()), 1, [], time.time())
    store.files.put(name, data)
    store.put_record(url, to_json({**record, "file": name.rpartition("/")[2]}))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with pages that have titles, files of other types, and failures of each kind."""
    root = tmp_path_factory.mktemp("views") / "store"
    root.mkdir()
    store = StoreWriter(root, Files(root, "tests"))
    store.make(Settings(shards=4, delay=3.0, delays={"quick.example": 0.5}))
    for path, title in TITLES.items():
        add_page(store, f"http://{HOST}{path}", title)
    add_page(store, "http://quick.example/", "Quick")
    for number, reason in enumerate(["http-404", "timeout", "robots", "wrong-type", "wrong-type"]):
        store.put_failure(f"http://{HOST}/no/{number}", Failure("", reason), 1)
    for path, (type, extension, data) in FILES.items():
        url = f"http://files.example{path}"
        add_file(store, url, type, f"files/files.example/{urls.key(url)}.{extension}", data)
    store.put_robots("files.example", Robots(time.time(), 200, b"User-agent: *\nCrawl-delay: 7\n"))
    return root


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with serving(root) as served:
        yield served


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


# ---- hosts


def test_hosts_have_the_numbers_of_crawler_hosts_also_those_that_only_wait(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=8, fanout=3, depth=4), tmp_path) as w:
        process = w.start(*w.web.seeds(), "-w", "2", "-j", "1")  # slowly: it cannot be over too soon
        w.until(20)
        crawler("stop", str(w.root))
        end(process, 3)
        told = {row["host"]: row for row in map(json.loads, crawler("hosts", str(w.root), "--json").splitlines())}
        with serving(w.root) as served:
            wait_for(lambda: all(row["waiting"] is not None for row in served.json("/api/hosts")["rows"]))
            rows = {row["host"]: row for row in served.json("/api/hosts")["rows"]}
    assert sum(row["waiting"] for row in told.values()) > 0
    names = ("pages", "failures", "waiting", "bytes")
    assert {host: [row[name] for name in names] for host, row in rows.items()} == {
        host: [row[name] for name in names] for host, row in told.items()
    }


def test_failed_is_the_kind_and_delay_is_what_settings_and_robots_txt_want(served: Served, root: Path) -> None:
    wait_for(lambda: served.json("/api/hosts")["counted"] == 3)
    rows = {row["host"]: row for row in served.json("/api/hosts")["rows"]}
    failed = Counter(kind(found["reason"]) for found in Store(root).failures(HOST))["failed"]
    assert (rows[HOST]["failed"], rows[HOST]["failures"]) == (failed, 5) == (2, 5)
    assert {host: row["delay"] for host, row in rows.items()} == {HOST: 3.0, "quick.example": 0.5, "files.example": 7.0}
    assert not any(row["estimated"] for row in rows.values())


@pytest.mark.parametrize("sort", ["pages", "failures", "bytes", "failed", "waiting"])
def test_hosts_are_sorted_by_each_number(served: Served, sort: str) -> None:
    wait_for(lambda: all(row["waiting"] is not None for row in served.json("/api/hosts")["rows"]))
    down = [row[sort] for row in served.json(f"/api/hosts?sort={sort}")["rows"]]
    assert down == sorted(down, reverse=True)
    assert [row[sort] for row in served.json(f"/api/hosts?sort={sort}&order=up")["rows"]] == sorted(down)


def test_of_a_large_host_a_few_files_are_looked_at_and_the_rest_is_concluded(tmp_path: Path) -> None:
    store = stores.of(tmp_path / "store", {f"http://a.example/{n}": "x" * 1000 for n in range(200)})
    for number in range(100):
        store.put_failure(f"http://a.example/no/{number}", Failure("", "robots" if number % 2 else "timeout"), 1)
    reads = Counter[str]()
    inner, size = store.files.get, store.files.size
    store.files.get = lambda name: (reads.update(["get"]), inner(name))[1]  # type: ignore[method-assign]
    store.files.size = lambda name: (reads.update(["size"]), size(name))[1]  # type: ignore[method-assign]
    from random import Random

    found = Census(store, Random(1)).look("a.example")
    assert found[:3] == (200, 100, 200_000)
    assert 25 <= found.failed <= 75
    assert found.estimated() == ["bytes", "failed"]
    assert reads == {"get": counts.SAMPLE, "size": 32}


def test_more_waiting_urls_than_are_read_are_unknown_not_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crawled: Path
) -> None:
    from random import Random

    shard = min(path for path in (crawled / "frontier").iterdir() if path.is_dir())
    (shard / "00000000-tests-0.3").write_text("".join(f"1\t0\t0\thttp://waits.example/{n}\n" for n in range(3)))
    census = Census(Store(crawled), Random(1))
    wait_for(lambda: census.step() and "waits.example" in census.hosts())
    wait_for(lambda: census.step() and census.count("waits.example").waiting == 3)
    monkeypatch.setattr(counts, "MAX_QUEUED", 2)
    census = Census(Store(crawled), Random(1))
    assert {census.count(host).waiting for host in census.hosts()} == {None}


# ---- search


def found_by(served: Served, words: str, more: str = "") -> list[str]:
    """The paths of the pages of the library that a search finds, to its end."""
    paths: list[str] = []
    after: str | None = ""
    while after is not None:
        part = served.json(f"/api/host?host={HOST}&search={quote(words)}&after={after}{more}")
        paths += [row["url"].removeprefix(f"http://{HOST}") for row in part["rows"]]
        after = part["after"]
    assert part["seen"] == part["total"]
    return sorted(paths)


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ("whale", ["/about", "/books/moby"]),
        ("WHALE moby", ["/books/moby"]),
        ("books/", ["/books/emma", "/books/moby"]),
        ("http://library.example/books/emma", ["/books/emma"]),
        ("bücher", ["/b%C3%BCcher/"]),
        ("b%c3%bccher", ["/b%C3%BCcher/"]),
        ("deutsch", ["/b%C3%BCcher/"]),
        ("zebra", []),
        ("library.example", sorted(TITLES)),
    ],
)
def test_a_search_finds_pages_by_words_of_their_url_and_title(served: Served, words: str, paths: list[str]) -> None:
    assert found_by(served, words) == paths


def test_a_search_finds_failures_by_url_and_reason(served: Served) -> None:
    assert found_by(served, "timeout", "&what=failures") == ["/no/1"]
    assert found_by(served, "/no/3", "&what=failures") == ["/no/3"]


def test_a_search_takes_a_limited_time_goes_on_where_it_was_and_reads_each_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.of(tmp_path / "store", {f"http://a.example/{n}": "" for n in range(40)})
    reads = Counter[str]()
    inner = store.files.get
    store.files.get = lambda name: (reads.update([name]), inner(name))[1]  # type: ignore[method-assign]
    finder = Finder(store)
    monkeypatch.setattr(search, "SEARCH", 0.0)
    after: Any = ""
    looks = 0
    while after is not None:
        rows, place = finder.find("links", "a.example", "nowhere", after, 50)
        assert rows == []
        after, looks = place["after"], looks + 1
        assert place["seen"] == looks and place["total"] == 40
    assert looks == 40, "with no time at all it looks at one record at a time"
    monkeypatch.setattr(search, "SEARCH", 60.0)
    assert finder.find("links", "a.example", "else", "", 50)[1]["after"] is None
    assert set(reads.values()) == {1}, "the second word was looked for in what was read for the first"
    rows, place = finder.find("links", "a.example", "a.example", "", 7)
    assert len(rows) == 7 and place["after"] is not None, "no more rows than wanted"
    monkeypatch.setattr(search, "MAX_KEPT", 5)
    finder = Finder(store)
    finder.find("links", "a.example", "x", "", 50)
    assert len(finder._host.words) == 5


def test_typing_finds_by_title_and_by_url_and_says_how_far_it_looked(browser: Browser, served: Served) -> None:
    browser.open(served.at(f"#/host?host={HOST}"))
    browser.wait("Moby Dick", "tbody")
    browser.type("#search", "whale")
    wait_for(lambda: sorted(browser.all("tbody th small")) == [f"http://{HOST}/about", f"http://{HOST}/books/moby"], 60)
    assert "2 found in all 5 records" in browser.wait("found in all", ".pager")
    assert "search=whale" in browser.driver.current_url
    browser.run("document.querySelector('#search').value = ''")
    browser.type("#search", "books/emma")
    wait_for(lambda: browser.all("tbody th small") == [f"http://{HOST}/books/emma"], 60)
    browser.run("document.querySelector('#search').value = ''")
    browser.type("#search", "zebra")
    browser.wait("none has these words", "tbody")
    assert browser.complaints() == []


def test_a_search_with_many_results_shows_the_first_and_goes_on_when_asked(browser: Browser, tmp_path: Path) -> None:
    stores.of(tmp_path / "store", {f"http://a.example/page/{n}": "" for n in range(130)})
    with serving(tmp_path / "store") as served:
        browser.open(served.at("#/host?host=a.example&search=page"))
        browser.wait("showing the first 50", ".pager")
        browser.click(".pager button", "Look further")
        browser.wait("showing the first 100", ".pager")
        browser.click(".pager button", "Look further")
        browser.wait("130 found in all 130 records", ".pager")
        assert len(set(browser.all("tbody th small"))) == 130
        browser.open("about:blank")


# ---- other types


def test_only_pictures_of_dots_are_shown_and_all_else_is_a_download_that_cannot_act(served: Served) -> None:
    for path, (type, extension, data) in FILES.items():
        status, headers, body = served.ask(f"/file?url={quote(f'http://files.example{path}')}")
        assert (status, body) == (200, data)
        how = "inline" if extension == "png" else "attachment"
        assert headers["Content-Disposition"].startswith(f"{how}; filename=")
        assert headers["Content-Disposition"].endswith(f'.{extension}"')
        assert headers["Content-Type"] == (type if extension == "png" else "application/octet-stream")
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    shown = {path: served.json(f"/api/page?url={quote(f'http://files.example{path}')}") for path in FILES}
    kinds = {path: found["file"]["shown"] for path, found in shown.items()}
    assert list(kinds.values()) == ["image", "download", "download", "text", "text"]
    assert shown["/data.json"]["text"] == '{"words": ["ü", "<b>"]}'


@pytest.mark.parametrize(
    "name",
    [
        "crawl.yaml",
        "../../etc/passwd",
        "files/files.example/../../crawl.yaml",
        "../library.example/KEY.png",
        "0123456789abcdef01234567.png",
        "KEY.png/../x",
        "KEY.",
        "KEY",
        "KEY.png\n",
        "/etc/passwd",
        7,
        None,
    ],
)
def test_no_record_leads_to_another_file(served: Served, root: Path, name: object) -> None:
    url = "http://files.example/evil"
    store = StoreWriter(root, Files(root, "tests"))
    record = build_record(Fetched(url, 200, {}, b"x"), Reading("", "utf-8", "", ()), 1, [], time.time())
    name = name.replace("KEY", urls.key(url)) if isinstance(name, str) else name
    store.put_record(url, to_json({**record, "file": name, "type": "image/png"}))
    assert served.ask(f"/file?url={url}")[0] == 404
    (root / "links" / "files.example" / urls.key(url)).unlink()


def test_a_link_in_place_of_a_file_is_not_followed_and_one_that_is_gone_is_said(served: Served, root: Path) -> None:
    url = "http://files.example/linked.png"
    name = f"files/files.example/{urls.key(url)}.png"
    add_file(StoreWriter(root, Files(root, "tests")), url, "image/png", name, b"x")
    (root / name).unlink()
    assert served.ask(f"/file?url={url}")[0] == 404
    (root / name).symlink_to(root / "crawl.yaml")
    status, _, body = served.ask(f"/file?url={url}&a=1")
    assert status == 503 and b"delay" not in body
    (root / name).unlink()
    (root / "links" / "files.example" / urls.key(url)).unlink()


def test_a_large_file_is_sent_without_being_held_in_memory(tmp_path: Path) -> None:
    url = "http://files.example/film.mp4"
    store = stores.of(tmp_path / "store", {})
    name = f"files/files.example/{urls.key(url)}.mp4"
    add_file(store, url, "video/mp4", name, b"x")
    with open(tmp_path / "store" / name, "wb") as file:
        file.truncate(300 << 20)
    with serving(tmp_path / "store") as served:
        assert len(served.ask(f"/file?url={url}")[2]) == 300 << 20
        peak = Path(f"/proc/{served.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
    assert int(peak) >> 10 < 150


def test_a_picture_is_seen_json_is_read_and_a_drawing_stays_a_file(browser: Browser, served: Served) -> None:
    def page(path: str) -> str:
        return served.at(f"#/page?url={quote(f'http://files.example{path}', safe='')}")

    browser.open(page("/pic.png"))
    wait_for(lambda: browser.run("return document.querySelector('img.picture')?.naturalWidth") == 30, LONG / 5)
    browser.open(page("/data.json"))
    browser.wait('{"words": ["ü", "<b>"]}', "pre")
    for path in ("/drawing.svg", "/paper%20(1).pdf", "/page.html"):
        browser.open(page(path))
        browser.wait("Download")
        assert browser.run("return document.querySelectorAll('img, iframe, object, embed').length") == 0
    assert "owned" not in browser.driver.title
    assert browser.complaints() == []


# ---- how it looks


ROWS = """
  const found = {};
  for (const card of document.querySelectorAll(arguments[0])) {
    const top = Math.round(card.getBoundingClientRect().top);
    found[top] = (found[top] || 0) + 1;
  }
  return Object.values(found);
"""
PLAIN = """
  const light = (text) => text.match(/[\\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (place) => {
    for (; place; place = place.parentElement) {
      const colour = getComputedStyle(place).backgroundColor;
      if (!/, 0\\)$|transparent/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const faint = [];
  for (const place of document.querySelectorAll("body *")) {
    const own = [...place.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || place.disabled || place.closest("svg, [hidden], noscript") || !place.offsetParent) continue;
    const [a, b] = [light(getComputedStyle(place).color), light(ground(place))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.push(`${place.tagName} ${place.className} ${place.innerText}`);
  }
  return faint;
"""
UNNAMED = """
  const named = (place) => place.innerText.trim() || place.ariaLabel || place.labels?.length;
  return [...document.querySelectorAll("button, a, input, svg[role]")]
    .filter((place) => !(place.ariaLabel || named(place))).map((place) => place.outerHTML);
"""
VIEWS = ["", "hosts", f"host?host={HOST}", f"host?host={HOST}&what=failures", "failures", "settings"]
VIEWS += ["page?url=http%3A%2F%2Ffiles.example%2Fpic.png", f"page?url=http%3A%2F%2F{HOST}%2Fno%2F1"]


@pytest.mark.parametrize("width", [1920, 1400, 1280, 900, 480])
def test_no_card_is_alone_in_its_row(browser: Browser, served: Served, width: int) -> None:
    browser.size(width, 1000)
    browser.open(served.at())
    browser.wait("Time remaining", ".tiles")
    tiles, lists = browser.run(ROWS, ".tile"), browser.run(ROWS, ".lists > .card")
    assert sum(tiles) == 8 and len(set(tiles)) == 1 and min(tiles) >= 2
    assert sum(lists) == 6 and len(set(lists)) == 1
    assert width < 900 or min(lists) >= 2


@pytest.mark.parametrize("width", [480, 360])
def test_on_a_narrow_screen_nothing_is_cut_off_and_every_row_can_be_read(
    browser: Browser, served: Served, width: int
) -> None:
    browser.size(width, 900)
    for view in VIEWS:
        browser.open(served.at(f"#/{view}"))
        wait_for(lambda: len(browser.text("main")) > 20, LONG / 5)
        assert browser.run("return document.scrollingElement.scrollWidth") <= width, view
        widths = browser.run("return [...document.querySelectorAll('tbody th')].map((e) => e.offsetWidth)")
        assert all(found > 100 for found in widths), view
    browser.open(served.at("#/hosts"))
    browser.wait(HOST, "tbody")
    labels = browser.run(
        "return [...document.querySelectorAll('tbody tr')[0].cells].slice(1).map((e) => e.dataset.label)"
    )
    assert labels == ["Pages", "Size", "Waiting", "Delay", "Failed", "No page"]
    seen = browser.run("return [...document.querySelectorAll('tbody td')].every((e) => e.offsetWidth > 30)")
    assert seen
    browser.size(1280, 1000)


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("scheme", ["dark", *later("light")])
def test_all_text_can_be_read_and_all_that_can_be_pressed_has_a_name(
    browser: Browser, served: Served, scheme: str
) -> None:
    browser.colours(scheme)
    for view in VIEWS:
        browser.open(served.at(f"#/{view}"))
        wait_for(lambda: len(browser.text("main")) > 20, LONG / 5)
        assert browser.run(PLAIN) == [], view
        assert browser.run(UNNAMED) == [], view
    browser.colours("light")
