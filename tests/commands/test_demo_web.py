"""The embedded web is what it says it is, and its oracle sees every kind of damage."""

from __future__ import annotations

import gzip
import html
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.robotparser import RobotFileParser

import ada_url
import pytest
import webencodings
from lab.webs import FlatWeb, TreeWeb, gaps
from lab.world import LONG, wait_for
from turbohtml.detect import detect

from crawler.commands.demo.expected import place
from crawler.commands.demo.pages import halves, href
from crawler.commands.demo.server import LoggedRequest, ServedWeb, read_log, requested_twice, serve
from crawler.commands.demo.web import DemoWeb, Expected, Leaf, Site, Web, compare
from crawler.web import urls

SMALL = {"hosts": 30, "pages": 250}


class LittleWeb(Web):
    """A home that links to a page, a redirect, a dead end, a closed corner and a picture."""

    LEAVES = {  # noqa: RUF012
        "/": Leaf(tuple(f"http://a.example/{name}" for name in ("page", "go", "dead", "private/x", "photo"))),
        "/page": Leaf(charset="gbk"),
        "/go": Leaf(("http://b.example/",), status=301),
        "/photo": Leaf(type="image/png"),
        "/slow": Leaf(delay=0.5),
        "/stuck": Leaf(delay=600.0),
        "/flaky": Leaf(flaky=True),
        "/private/x": Leaf(),
    }

    def seeds(self) -> list[str]:
        return ["http://a.example/"]

    def leaf(self, url: str) -> Leaf | None:
        host, path = halves(url)
        return self.LEAVES.get(path) if host == "a.example" else Leaf() if path == "/" else None

    def site(self, host: str) -> Site:
        return Site("User-agent: *\nDisallow: /private/\n")


# --- a crawler of fifty lines that shares nothing with ours: what it finds must be what the web expects ---


def spelt(link: str, base: str) -> str:
    """The one spelling, by the URL library alone: no fragment, no utm parameters."""
    try:
        url = ada_url.join_url(base, link).partition("#")[0]
    except ValueError:
        return ""
    path, _, query = url.partition("?")
    kept = "&".join(part for part in query.split("&") if not part.startswith("utm_"))
    return (f"{path}?{kept}" if kept else path) if url.startswith("http") else ""


class Links(HTMLParser):
    """Links, base and title of a page, by the standard library's parser."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.base, self.links, self.title, self.in_title = url, [], "", False  # type: ignore[var-annotated]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        held = {name: value or "" for name, value in attrs}
        self.in_title = tag == "title"
        if tag == "base":
            self.base = spelt(held["href"], self.base)
        elif tag == "meta" and held.get("http-equiv") == "Refresh":
            self.links.append(held["content"].partition("URL=")[2])
        elif tag in ("a", "area", "iframe"):
            self.links.append(held.get("href") or held.get("src") or "")

    def handle_endtag(self, tag: str) -> None:
        self.in_title = False

    def handle_data(self, data: str) -> None:
        self.title += data if self.in_title else ""

    def targets(self) -> list[str]:
        return [url for link in self.links if (url := spelt(link, self.base))]


class Client:
    """A keep-alive connection to the server, whatever the host."""

    def __init__(self, server: ServedWeb) -> None:
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=LONG)

    def get(self, url: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        host, path = halves(url)
        self.connection.request(method, path, headers={"Host": host, "Accept-Encoding": "gzip"} | headers)
        answer = self.connection.getresponse()
        body = answer.read()
        return answer, gzip.decompress(body) if answer.headers["Content-Encoding"] and body else body


def text_of(answer: HTTPResponse, body: bytes) -> str:
    label = answer.headers.get_content_charset() or ""
    head = body[:200].decode("latin-1")
    if not label and "charset=" in head:
        label = head.split("charset=")[1].split('"')[0]
    known = webencodings.lookup(label) if label else None
    return body.decode(known.codec_info.name if known else str(detect(body).codec))


def allowed(client: Client, url: str, rules: dict[str, RobotFileParser]) -> bool:
    host = halves(url)[0]
    if host not in rules:
        answer, body = client.get(f"http://{host}/robots.txt")
        if answer.status == 301:
            answer, body = client.get(f"http://{host}{answer.headers['Location']}")
        rules[host] = RobotFileParser()
        rules[host].parse(body.decode().splitlines() if answer.status == 200 else [])
    return rules[host].can_fetch("testbot", url)


def crawl(client: Client, seeds: list[str]) -> Iterator[tuple[str, str | int, str, str, list[str]]]:
    """(url, reason or status, html, title, links) of all that can be reached."""
    waiting, seen, rules = deque(seeds), {*seeds}, {}  # type: ignore[var-annotated]
    ways: dict[str, list[str]] = {}  # the redirects that led to a URL
    while waiting:
        url = waiting.popleft()
        outcome = visit(client, url) if allowed(client, url, rules) else ("robots", "", "", [])
        if outcome[3] and outcome[3][0] in ways.get(url, ()):
            outcome = "redirect-loop", "", "", []
        yield (url, *outcome)
        fresh = [link for link in dict.fromkeys(outcome[3]) if link not in seen]
        seen.update(fresh)
        waiting.extend(fresh)
        if outcome[0] in range(300, 400):
            ways.update((link, [*ways.get(url, ()), url]) for link in fresh)


def visit(client: Client, url: str) -> tuple[str | int, str, str, list[str]]:
    answer, body = client.get(url)
    if answer.status >= 500:
        answer, body = client.get(url)
    if 300 <= answer.status < 400:
        return answer.status, "", "", [spelt(answer.headers["Location"], url)]
    if answer.status != 200:
        return f"http-{answer.status}", "", "", []
    if answer.headers.get_content_type() != "text/html":
        return "wrong-type", "", "", []
    text = text_of(answer, body)
    page = Links(url, text)
    return 200, text, page.title, page.targets()


def put(root: Path, kind: str, url: str, text: str) -> None:
    path = root / kind / place(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def keep(root: Path, url: str, result: str | int, text: str, title: str, links: list[str]) -> None:
    if isinstance(result, str):
        return put(root, "errs", url, json.dumps({"url": url, "reason": result}))
    if text:
        put(root, "htmls", url, text)
    return put(root, "links", url, json.dumps({"url": url, "status": result, "title": title, "links": links}))


def crawl_into(root: Path, web: Web) -> list[LoggedRequest]:
    with serve(web) as server:
        for found in crawl(Client(server), web.seeds()):
            keep(root, *found)
        return server.log


@pytest.mark.parametrize(
    "web", [DemoWeb(**SMALL), TreeWeb(hosts=3, fanout=3, depth=4), FlatWeb(20, 12), LittleWeb()],
    ids=lambda web: type(web).__name__,
)  # fmt: skip
def test_a_crawler_that_shares_nothing_with_ours_finds_exactly_what_is_expected(web: Web, tmp_path: Path) -> None:
    log = crawl_into(tmp_path, web)
    assert compare(web.expected(), tmp_path) == []
    assert requested_twice(log) == {}


def test_the_demo_has_all_kinds_of_pages_and_trouble() -> None:
    web = DemoWeb()
    expected = web.expected()
    assert 3900 < len(expected.pages) < 4200
    assert {url for pages in web._pages.values() for url in pages} <= expected.pages.keys()
    assert len(expected.redirects) > 100
    kinds = {"http-404", "http-410", "http-500", "robots", "wrong-type", "redirect-loop"}
    assert {*expected.failures.values()} == kinds
    sizes = Counter(halves(url)[0] for url in expected.pages)
    assert len(sizes) == 300 and max(sizes.values()) > 400 and sorted(sizes.values())[150] < 10
    leaves = [leaf for url in expected.pages if (leaf := web.leaf(url))]
    assert len({leaf.charset for leaf in leaves}) == 7
    assert {leaf.shape for leaf in leaves} == {"", "base", "refresh", "frame"}
    assert any(leaf.delay for leaf in leaves) and any(leaf.flaky for leaf in leaves)


def test_all_the_disguises_of_a_link_come_back_to_its_one_spelling() -> None:
    expected = DemoWeb(**SMALL).expected()
    for url, fact in expected.pages.items():
        assert urls.normalize(url) == url
        assert place(url) == f"{urls.host(url)}/{urls.key(url)}"
        assert [urls.normalize(html.unescape(href(link, url)), url) for link in fact.links] == [*fact.links]


def test_the_same_seed_gives_the_same_web_and_another_gives_another() -> None:
    one, same, other = DemoWeb(**SMALL), DemoWeb(**SMALL), DemoWeb(**SMALL, seed=2)
    assert one.expected() == same.expected() != other.expected()
    asked = [halves(url) for url in one.expected().pages]
    assert [one.reply(*url) for url in asked] == [same.reply(*url) for url in asked]


def test_in_a_tree_every_page_but_the_root_is_linked_exactly_once() -> None:
    pages = TreeWeb(hosts=5, fanout=4, depth=4).expected().pages
    links = Counter(link for fact in pages.values() for link in fact.links)
    assert len(pages) == 1 + 4 + 16 + 64 + 256
    assert {*links.values()} == {1} and len(links) == len(pages) - 1


def test_expected_stops_at_a_depth_and_a_redirect_costs_none() -> None:
    assert len(TreeWeb(fanout=2, depth=5).expected(depth=2)) == 7
    assert "http://b.example/" in LittleWeb().expected(depth=1).pages


# --- the oracle: each damage to a whole store gives its own line ---


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    crawl_into(tmp_path, LittleWeb())
    return tmp_path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


PAGE, GO, DEAD = (place(f"http://a.example/{name}") for name in ("page", "go", "dead"))
DAMAGE: dict[str, Callable[[Path], object]] = {
    "missing record: http://a.example/page": lambda root: (root / "links" / PAGE).unlink(),
    "missing record: http://a.example/go": lambda root: (root / "links" / GO).unlink(),
    "no html: http://a.example/page": lambda root: (root / "htmls" / PAGE).unlink(),
    "truncated html: http://a.example/page": lambda root: cut(root / "htmls" / PAGE),
    "wrong text: http://a.example/page": lambda root: change(root / "htmls" / PAGE, "园", "?"),
    "wrong title: http://a.example/page": lambda root: change(root / "links" / PAGE, " & ", " &amp; "),
    "lost link: http://a.example/go": lambda root: change(root / "links" / GO, "b.example", "c.example"),
    "broken JSON: links/": lambda root: (root / "links" / PAGE).write_text("{"),
    "wrong key: links/a.example/0": lambda root: (root / "links" / PAGE).rename(root / "links/a.example/0"),
    "missing failure record: http://a.example/dead": lambda root: (root / "errs" / DEAD).unlink(),
    "wrong reason: http://a.example/dead is dns": lambda root: change(root / "errs" / DEAD, "http-404", "dns"),
    "unexpected record: http://a.example/more": lambda root: keep(root, "http://a.example/more", 301, "", "", []),
    "unexpected failure record: http://a.example/no": lambda root: keep(root, "http://a.example/no", "dns", "", "", []),
    "unexpected html: htmls/a.example/": lambda root: put(root, "htmls", "http://a.example/go", "a redirect's body"),
}


@pytest.mark.parametrize("line", DAMAGE)
def test_compare_names_the_damage(line: str, whole: Path) -> None:
    DAMAGE[line](whole)
    differences = compare(LittleWeb().expected(), whole)
    assert any(difference.startswith(line) for difference in differences), differences


def test_an_empty_store_lacks_everything_and_temporary_names_are_not_seen(tmp_path: Path) -> None:
    expected = LittleWeb().expected()
    (tmp_path / "links" / "a.example").mkdir(parents=True)
    (tmp_path / "links" / "a.example" / ".half-written").write_text("{")
    assert len(compare(expected, tmp_path)) == len(expected) == 7
    assert compare(Expected(), tmp_path) == []


# --- the server ---


def raw(server: ServedWeb, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as line:
        line.sendall(data)
        line.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: line.recv(65536), b""))


def test_garbage_is_refused_and_hurts_nobody_else() -> None:
    rubbish = [
        b"\x00\xff\x16\x03\x01\r\n\r\n",
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a.example\r\n\r\n",
        b"GET / HTTP/1.1\r\nNo: host\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\tb\r\n\r\n",
        b"x" * 70_000,
    ]
    with serve(LittleWeb()) as server:
        client = Client(server)
        for data in rubbish:
            assert raw(server, data).startswith(b"HTTP/1.1 400 ")
            assert client.get("http://a.example/")[0].status == 200
        raw(server, b"GET / HTT")
    assert Counter(request.status for request in server.log) == {200: len(rubbish), 400: len(rubbish)}


def test_pipelined_requests_are_answered_in_their_order() -> None:
    paths = ("/slow", "/dead", "/", "/go")
    asked = b"".join(b"GET %s HTTP/1.1\r\nHost: a.example\r\n\r\n" % path.encode() for path in paths)
    with serve(LittleWeb()) as server, socket.create_connection(("127.0.0.1", server.port), LONG) as line:
        line.sendall(asked)
        while len(server.log) < len(paths):
            line.recv(65536)
        assert [request.path for request in server.log] == [*paths]


def test_a_slow_page_delays_nobody_else_and_is_logged_although_its_client_left() -> None:
    with serve(LittleWeb()) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as slow:
            slow.sendall(b"GET /stuck HTTP/1.1\r\nHost: a.example\r\n\r\n")
            Client(server).get("http://a.example/")
        wait_for(lambda: len(server.log) == 2)
        assert [(request.path, request.status) for request in server.log] == [("/", 200), ("/stuck", 499)]


def test_what_a_starved_server_reads_late_is_logged_as_it_came_and_as_its_client_left(tmp_path: Path) -> None:
    with serve(LittleWeb(), log=tmp_path / "log", process=True) as server:
        child = server._child
        assert child
        Client(server).get("http://a.example/")
        child.send_signal(signal.SIGSTOP)
        times = []
        for path in (b"/1", b"/2"):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                times.append(time.monotonic())
                client.sendall(b"GET %b HTTP/1.1\r\nHost: a.example\r\n\r\n" % path)
                time.sleep(0.4)
            times.append(time.monotonic())
            time.sleep(0.4)
        child.send_signal(signal.SIGCONT)
        wait_for(lambda: len(server.log) == 3)
        _, first, second = sorted(server.log)
        found = [first.start, first.end, second.start, second.end]
        assert found == pytest.approx(times, abs=0.3), "after each other, although they were answered together"
        assert first.start >= times[0] and first.end <= times[1] and second.start >= times[2], "no gap looks shorter"


def test_head_gzip_flaky_close_and_proxy_requests() -> None:
    with serve(LittleWeb()) as server:
        client = Client(server)
        answer, body = client.get("http://a.example/", method="HEAD")
        assert (answer.status, body) == (200, b"") and int(answer.headers["Content-Length"]) > 500
        squeezed = [client.get(f"http://{name}.example/")[0].headers["Content-Encoding"] for name in "bcdefgh"]
        assert {*squeezed} == {None, "gzip"}
        plain = [client.get(f"http://{name}.example/", **{"Accept-Encoding": ""})[0] for name in "bcdefgh"]
        assert not any(answer.headers["Content-Encoding"] for answer in plain)
        first, then = (client.get("http://a.example/flaky")[0] for _ in range(2))
        assert (first.status, first.headers["Retry-After"], then.status) == (503, "1", 200)
        assert b"Connection: close" in raw(server, b"GET / HTTP/1.0\r\nHost: A.example:80\r\n\r\n")
        assert b" 301 " in raw(server, b"GET http://a.example/go HTTP/1.1\r\nHost: proxy\r\n\r\n")


def test_two_servers_at_once_in_processes_of_their_own_with_logs_to_read_meanwhile(tmp_path: Path) -> None:
    with (
        serve(LittleWeb(), log=tmp_path / "one", process=True) as one,
        serve(TreeWeb(), log=tmp_path / "two", process=True) as two,
    ):
        assert one.port != two.port
        assert Client(one).get("http://a.example/")[0].status == 200
        assert Client(two).get("http://tree-000.example/3")[0].status == 200
        assert [request.path for request in read_log(tmp_path / "one")] == ["/"]
    assert [(request.host, request.path) for request in two.log] == [("tree-000.example", "/3")]
    wait_for(lambda: not answers(one.port))


def test_a_server_process_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, time; from crawler.commands.demo.web import DemoWeb;"
        "from crawler.commands.demo.server import serve;"
        f"server = serve(DemoWeb(), log={str(tmp_path / 'log')!r}, process=True);"
        "print(server.port, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout
    port = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_for(lambda: not answers(port))


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def test_the_log_tells_what_was_asked_twice_and_how_long_hosts_had_peace(tmp_path: Path) -> None:
    log = [
        LoggedRequest(0.0, 0.1, "a", "/robots.txt", 200),
        LoggedRequest(1.1, 1.2, "a", "/x", 200),
        LoggedRequest(1.7, 1.8, "a", "/x", 200),
        LoggedRequest(3.0, 3.1, "a", "/robots.txt", 200),
        LoggedRequest(0.5, 2.0, "b", "/y", 503),
        LoggedRequest(1.0, 1.1, "b", "/y", 200),
        LoggedRequest(0.0, 0.1, "c", "/", 200),
    ]
    assert requested_twice(log) == {"http://a/x": 2}
    assert gaps(log) == {"a": pytest.approx(0.5), "b": pytest.approx(-1.0)}


def test_a_half_written_line_of_the_log_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("1.0\t2.0\ta\t/\t200\n2.0\t3.0\ta\t/x")
    assert read_log(tmp_path / "log") == [LoggedRequest(1.0, 2.0, "a", "/", 200)]
