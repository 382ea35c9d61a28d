"""`crawler serve`: what it tells, whom it tells it, and that nothing from the web can act in it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from lab import stores
from lab.browser import Browser, Served, browsing, serving
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, crawler, wait_for, wait_for_line, world
from prometheus_client.parser import text_string_to_metric_families

from crawler import Store
from crawler.commands import main
from crawler.commands.http_server import Reply, listen
from crawler.commands.serve import http, metrics
from crawler.commands.serve.http import Looks, ServeConnection, ServeServer, is_ours
from crawler.crawl.scoreboard import PAUSES
from crawler.errors import StoreAway
from crawler.frontier.waiting import PAUSE, TURN
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.writer import StoreWriter
from crawler.web.page import Failure, Fetched, Reading
from crawler.web.reasons import KINDS

EVIL = "http://evil.example/?<b>'\"&x=1"
TITLE = "</title><script>document.title='owned'</script><img src=x onerror=alert(1)>\"' \u202egnp\u2066\0\ud800"
HTML = (
    "<html><head><title>x</title><link rel=preconnect href=OUTSIDE><link rel=stylesheet href=OUTSIDE/a.css>"
    "<meta http-equiv=refresh content='0;url=OUTSIDE/'><script>document.body.innerText = 'owned'</script></head>"
    "<body><h1>Drawn heading</h1><img src=OUTSIDE/i.png><iframe src=OUTSIDE/f></iframe>"
    "<style>h1 { background: url(OUTSIDE/b.png) }</style><a href=OUTSIDE/away>away</a>"
    "<form action=/api/now><input autofocus onfocus=\"document.body.innerText='owned'\"></form></body></html>"
)
LINKS = ["javascript:alert(1)", "data:text/html,<script>1</script>", "http://evil.example/other"]


def add_page(store: StoreWriter, url: str, title: str, html: str, links: list[str]) -> None:
    """A page as a worker would leave it, whatever is in it."""
    reading = Reading(html, "utf-8", title, tuple(links))
    page = Fetched(url, 200, {"content-type": "text/html"}, html.encode("utf-8", "replace"))
    store.put_html(url, html)
    store.put_record(url, to_json(build_record(page, reading, 1, links, time.time())))


class Outside(ThreadingHTTPServer):
    """A place on the web that nobody is to ask, and who did."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), BaseHTTPRequestHandler)
        self.visits = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def verify_request(self, request: object, client_address: object) -> bool:
        """Count a connection, and end it."""
        self.visits += 1
        return False


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with Outside() as outside:
        yield outside
        outside.shutdown()


@pytest.fixture(scope="module")
def root(crawled_once: Path, outside: Outside, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The crawled store, and a host that means harm."""
    root = Path(shutil.copytree(crawled_once, tmp_path_factory.mktemp("served") / "my crawl"))
    store = StoreWriter(root, Files(root, "tests"))
    add_page(store, EVIL, TITLE, HTML.replace("OUTSIDE", outside.url), LINKS)
    add_page(store, "http://evil.example/large", "Large", "ä" * 3_000_000, [])
    store.put_failure("http://evil.example/gone", Failure("", "connect", "<b>bold</b>\u202e"), 3)
    by_hand = "evil.example/0123456789abcdef01234567"
    (root / "links" / by_hand).write_text('{"url": ["x"], "title": {"a": [1e999]}, "status": NaN}')
    (root / "errs" / by_hand).write_text('{"url": "javascript:alert(1)", "reason": 7}')
    return root


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with serving(root, "--name", "crawl.example") as served:
        yield served


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was made, and nothing else."""
    root = tmp_path_factory.mktemp("empty")
    StoreWriter(root, Files(root, "tests")).make(Settings(shards=4))
    return root


# ---- the command


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_a_signal_ends_it_with_0_while_browsers_are_connected(empty: Path, number: int) -> None:
    with serving(empty) as served:
        assert served.ask("/healthz")[2] == b"ok\n"
        with socket.create_connection(("127.0.0.1", served.port)) as idle:
            idle.sendall(b"GET / HTTP/1.1\r\n")
            served.process.send_signal(number)
            said, _ = served.process.communicate(timeout=LONG)
    assert served.process.returncode == 0
    assert said == ""


def test_a_taken_port_a_strange_address_and_no_store_are_a_sentence_each(empty: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = crawler("serve", str(empty), "--port", port, code=2)
        served = crawler("demo", "--serve", port, code=2)
    sentence = "is not available (Address already in use); choose another --port or --bind\n"
    assert said == f"crawler: port {port} of 127.0.0.1 {sentence}"
    assert served == f"crawler: --serve {port}: Address already in use; choose another port\n"
    assert "is not available" in crawler("serve", str(empty), "--bind", "256.0.0.1", code=2)
    assert "does not exist" in crawler("serve", str(tmp_path / "none"), code=5)


@pytest.mark.parametrize("flag", ["--port=70000", "--port=x", "--name=a.example:80", "--name=http://a/", "--bind="])
def test_a_strange_flag_is_a_sentence(empty: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["serve", str(empty), flag]) == 2
    assert capsys.readouterr().err.startswith("crawler: ")


def test_it_warns_when_other_machines_can_reach_it(empty: Path) -> None:
    command = [*COMMAND, "serve", str(empty), "--port", "0", "--bind", "0.0.0.0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    assert "anyone who can reach" in process.stderr.readline()
    process.terminate()
    process.communicate(timeout=LONG)


# ---- whom it answers


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
        ("CRAWL.example", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:8080", 403),
        ("crawl.example@evil.example", 403),
        ("", 403),
    ],
)
def test_a_name_that_is_not_ours_is_not_answered(served: Served, host: str, status: int) -> None:
    found, _, body = served.ask("/api/now", Host=host)
    assert found == status
    assert status == 200 or (b"--name" in body and b"pages" not in body)


def test_no_name_of_a_stranger_counts_as_ours() -> None:
    for host in ("b.example", "xa.example", "a.example.b.example", "[::1", "::1", "a b", "a.example:x"):
        assert not is_ours(host, frozenset({"a.example"}))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_can_be_changed(served: Served, method: str) -> None:
    answer = raw(served, f"{method} /api/now HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nx=1")
    assert answer.startswith("HTTP/1.1 405 ")
    assert "Allow: GET, HEAD" in answer


def test_head_is_answered_as_get_without_its_body(served: Served) -> None:
    auth = f"Authorization: Bearer {served.token}"
    answer = raw(served, f"HEAD /app.css HTTP/1.1\r\nHost: localhost\r\n{auth}\r\nConnection: close\r\n\r\n")
    assert "Content-Type: text/css" in answer
    assert answer.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "GET",
        "GET  / HTTP/1.1",
        "GET http://a/ HTTP/1.1",
        "GET / HTTP/2",
        "GET /\x00 HTTP/1.1",
        "GET / HTTP/1.1\r\nHost: a",
    ],
)
def test_what_is_no_request_gets_a_sentence(served: Served, head: str) -> None:
    assert raw(served, f"{head}\r\nHost: localhost\r\n\r\n").startswith("HTTP/1.1 400 ")


def test_an_endless_head_ends(served: Served) -> None:
    assert raw(served, "GET / HTTP/1.1\r\n" + "X: y\r\n" * 10_000) == ""


def raw(served: Served, request: str) -> str:
    """All that is said to these bytes."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=LONG) as talk:
        said = b""
        try:
            talk.sendall(request.encode("latin-1"))
            while piece := talk.recv(65536):
                said += piece
        except ConnectionError:
            pass
        return said.decode("latin-1")


PATHS = [
    "/",
    "/app.js",
    "/app.css",
    "/api/now",
    "/metrics",
    "/healthz",
    "/nothing",
    "/drawn?url=http://evil.example/large",
]


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_keeps_browsers_on_a_short_leash(served: Served, path: str) -> None:
    _, headers, _ = served.ask(path)
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    assert path.startswith("/drawn") or "unsafe-inline" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert not [name for name in headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "path",
    [
        "/../crawl.yaml",
        "/static/app.js",
        "/%2e%2e/crawl.yaml",
        "/api/host?host=..",
        "/api/host?host=../links",
        "/api/host?host=a/b",
        "/api/host?host=",
        "/api/page?url=file:///etc/passwd",
        "/api/page?url=http://../../crawl.yaml",
        "/api/page?url=javascript:alert(1)",
        "/api/page?url=",
        "/drawn?url=http://a%00b/",
        "/api/hosts?sort=__class__",
        "/api/hosts?part=-1",
        "/api/hosts?order=sideways",
        "/api/host?host=a.example&what=htmls",
    ],
)
def test_no_parameter_becomes_another_name(served: Served, path: str) -> None:
    status, _, body = served.ask(path)
    assert status in (400, 404)
    assert status == 404 or json.loads(body)["error"]


# ---- the token


CLOSED = [path for path in PATHS if path != "/healthz"]


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic TOKEN", "TOKEN", "Bearer TOKENx"])
def test_without_the_token_nothing_is_told(served: Served, path: str, given: str) -> None:
    status, headers, body = served.ask(path, Authorization=given.replace("TOKEN", served.token))
    assert status == 403
    assert body.startswith(b"a token is needed: open the address that `crawler serve` printed")
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "Set-Cookie" not in headers


def test_the_health_of_the_store_is_told_to_everybody_and_is_all(served: Served) -> None:
    assert served.ask("/healthz", Authorization="")[::2] == (200, b"ok\n")


def test_the_token_in_the_address_becomes_a_cookie_that_scripts_and_other_sites_do_not_get(served: Served) -> None:
    head = "HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    for path, way in (("/?token=%s", "/"), ("/api/hosts?sort=host&token=%s", "/api/hosts?sort=host")):
        said = raw(served, f"GET {path % served.token} {head}\r\n")
        assert said.startswith("HTTP/1.1 303 ") and f"\r\nLocation: {way}\r\n" in said
    cookie = next(line for line in said.split("\r\n") if line.startswith("Set-Cookie: "))
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert served.token not in cookie, "other ports of this machine are sent the cookie, too"
    pair = cookie.removeprefix("Set-Cookie: ").partition(";")[0]
    assert raw(served, f"GET /api/now {head}Cookie: a=b; {pair}\r\n\r\n").startswith("HTTP/1.1 200 ")
    for wrong in (pair + "0", pair[:-1], pair.partition("=")[2], f"{pair.partition('=')[0]}={served.token}"):
        assert raw(served, f"GET /api/now {head}Cookie: {wrong}\r\n\r\n").startswith("HTTP/1.1 403 ")
    assert raw(served, f"GET /?token=wrong {head}\r\n").startswith("HTTP/1.1 403 ")
    elsewhere = raw(served, f"GET //evil.example/?token={served.token} {head}\r\n")
    assert "\r\nLocation: /evil.example/\r\n" in elsewhere


@pytest.mark.parametrize("by", ["file", "environment"])
def test_a_token_may_be_fixed_and_is_then_not_printed(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    token = "0123456789abcdef"
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("CRAWLER_TOKEN", token if by == "environment" else "another-0123456789")
    with serving(empty, *(["--token-file", str(tmp_path / "token")] if by == "file" else [])) as served:
        assert served.token == ""
        assert served.ask("/metrics", Authorization="Bearer another")[0] == 403
        assert served.ask("/metrics", Authorization=f"bearer {token}")[0] == 200


def test_a_token_that_is_short_or_that_others_can_read_is_a_sentence(empty: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short")
    file.chmod(0o600)
    assert "must have 16 to 200" in crawler("serve", str(empty), "--token-file", str(file), code=2)
    file.chmod(0o644)
    assert "mode 0644" in crawler("serve", str(empty), "--token-file", str(file), code=2)
    assert "cannot be read" in crawler("serve", str(empty), "--token-file", str(tmp_path / "none"), code=2)


def test_at_a_socket_of_the_file_system_permissions_take_the_place_of_the_token(empty: Path, tmp_path: Path) -> None:
    path = tmp_path / "view.sock"
    for _ in range(2):  # the second time there is one left of a process that was killed
        command = [*COMMAND, "serve", str(empty), "--socket", str(path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wait_for_line(process, f"at the socket {path}")
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as talk:
            talk.connect(str(path))
            talk.sendall(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert talk.makefile("rb").read().startswith(b"HTTP/1.1 200 ")
        assert "another path" in crawler("serve", str(empty), "--socket", str(path), code=2), "it is in use"
        last = process
        process.kill() if _ == 0 else process.terminate()
        process.communicate(timeout=LONG)
    assert last.returncode == 0 and not path.exists()
    path.write_text("mine")
    assert "another path" in crawler("serve", str(empty), "--socket", str(path), code=2)
    assert path.read_text() == "mine"


# ---- what it tells


def every_part(served: Served, path: str) -> list[dict[str, Any]]:
    """The rows of all parts of a table."""
    first = served.json(f"{path}&part=0")
    rest = [served.json(f"{path}&part={part}") for part in range(1, first["parts"])]
    rows = [row for found in [first, *rest] for row in found["rows"]]
    assert first["total"] == len(rows)
    return rows


def test_what_it_tells_of_the_crawl_is_what_status_tells(served: Served, root: Path) -> None:
    now, status = served.json("/api/now"), json.loads(crawler("status", str(root), "--json"))
    for name in ("pages", "redirects", "bytes", "failed", "excluded", "unwanted", "reasons", "waiting", "paused"):
        assert now[name] == status[name]
    assert [machine["id"] for machine in now["machines"]] == [machine["id"] for machine in status["machines"]]
    assert now["history"][-1]["pages"] == now["pages"]
    assert now["history"][-1]["failed"] == now["failed"] > 0


def test_whatever_urls_wait_for_is_said_in_words(served: Served) -> None:
    words = served.ask("/overview.js")[2].decode()
    for name in ("in_flight", "retry", "robots", "strain", "delay", TURN, PAUSE, *PAUSES):
        assert f'\n  {name}: "' in words


def test_hosts_are_counted_sorted_and_searched(served: Served, root: Path) -> None:
    def count(noun: str) -> Counter[str]:
        return Counter(path.parent.name for path in (root / noun).glob("*/*"))

    pages, refusals = count("htmls"), count("errs")
    hosts = sorted(count("links").keys() | refusals.keys())
    rows = every_part(served, "/api/hosts?sort=host")
    assert [row["host"] for row in rows] == hosts
    assert {row["host"]: (row["pages"], row["failures"]) for row in rows} == {h: (pages[h], refusals[h]) for h in hosts}
    assert served.json("/api/hosts")["counted"] == len(hosts)
    found = every_part(served, "/api/hosts?")
    assert [row["pages"] for row in found] == sorted((pages[host] for host in hosts), reverse=True)
    found = every_part(served, "/api/hosts?sort=failures&order=up")
    assert [row["failures"] for row in found] == sorted(refusals[host] for host in hosts)
    assert [row["host"] for row in every_part(served, "/api/hosts?search=EVIL")] == ["evil.example"]
    assert served.json("/api/hosts?search=no-such-host")["rows"] == []


def test_a_hosts_pages_and_refusals_are_all_there(served: Served, root: Path) -> None:
    store = Store(root)
    host = max(store.hosts(), key=store.count_pages)
    rows = every_part(served, f"/api/host?host={host}")
    assert [row["url"] for row in rows] == [record["url"] for record in store.records(host)]
    assert {row["kind"] for row in rows} <= {"page", "redirect", "sitemap"}
    refused = every_part(served, f"/api/host?host={host}&what=failures")
    assert [(row["url"], row["reason"]) for row in refused] == [(r["url"], r["reason"]) for r in store.failures(host)]


def test_a_page_is_shown_with_its_record_and_text(served: Served, root: Path) -> None:
    page = next(Store(root).pages())
    found = served.json(f"/api/page?url={page.url}")
    assert found["record"]["title"] == page.title
    assert found["record"]["sha224"] == page.record["sha224"]
    assert [link["url"] for link in found["links"]] == page.links
    assert found["text"] == page.html
    assert (root / "htmls" / found["host"] / found["key"]).exists()
    for other in (page.url.replace("http://", "HTTP://me:pw@"), f"{page.url}?utm_source=x"):
        assert served.json(f"/api/page?url={other}")["record"]["sha224"] == page.record["sha224"]


def test_a_refusal_and_a_url_that_nobody_has_seen_are_explained(served: Served) -> None:
    refused = served.json("/api/page?url=http://evil.example/gone")
    assert refused["failure"]["reason"] == "connect"
    assert refused["meaning"] == "the connection was refused, or broke before a response"
    unseen = served.json("/api/page?url=http://unseen.example/")
    assert unseen["state"] == "never seen"
    assert unseen["why"]


def test_refusals_for_a_reason_are_found_to_the_last(served: Served, root: Path) -> None:
    wanted = [refusal["url"] for refusal in Store(root).failures() if refusal["reason"] == "http-404"]
    assert wanted
    found, after = [], ""
    while after is not None:
        part = served.json(f"/api/failures?reason=http-404&after={after}")
        found += [row["url"] for row in part["rows"]]
        after = part["after"]
    assert found == wanted


def test_a_large_page_is_cut_and_what_others_wrote_by_hand_is_borne(served: Served) -> None:
    large = served.json("/api/page?url=http://evil.example/large")
    assert large["length"] == 3_000_000
    assert len(large["text"]) == 200_000
    assert len(served.ask("/drawn?url=http://evil.example/large")[2]) == 2_000_000
    rows = every_part(served, "/api/host?host=evil.example")
    assert {row["title"] for row in rows} > {"?", "Large"}
    titles = "".join(row["title"] for row in rows)
    assert titles.isprintable()
    assert "<script>" in titles


def test_the_settings_are_told_with_their_defaults(served: Served) -> None:
    rows = {row["name"]: row for row in served.json("/api/settings")["rows"]}
    assert rows["delay"]["value"] == "0.01"
    assert rows["delay"]["default"] == "1"
    assert not {"proxy", "connect_to", "allow_private"} & rows.keys()


def test_an_empty_store_has_nothing_to_tell_and_says_so(empty: Path) -> None:
    with serving(empty) as served:
        assert served.json("/api/now")["pages"] == 0
        assert served.json("/api/hosts")["rows"] == []
        assert served.json("/api/failures") == {"rows": [], "meaning": "", "after": None}
        assert metric(served)["crawler_pages_total", ()] == 0


def test_a_store_that_goes_away_is_missed_and_found_again(crawled: Path) -> None:
    away = crawled.with_name("away")
    with serving(crawled) as served:
        pages = served.json("/api/now")["pages"]
        crawled.rename(away)
        wait_for(lambda: served.ask("/healthz")[0] == 503)
        assert "is the mount still there" in served.json("/api/now", 503)["error"]
        assert metric(served) == {("crawler_store_up", ()): 0.0}
        crawled.mkdir()  # an empty folder, as where a mount was
        assert served.ask("/healthz")[0] == 503
        crawled.rmdir()
        away.rename(crawled)
        wait_for(lambda: served.ask("/healthz")[0] == 200)
        assert served.json("/api/now")["pages"] == pages


# ---- metrics


def metric(served: Served) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Each sample that Prometheus' own parser finds."""
    status, headers, body = served.ask("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(body.decode()))
    assert all(family.documentation and family.type != "unknown" for family in families)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_prometheus_reads_the_same_numbers(served: Served, root: Path) -> None:
    found, status = metric(served), json.loads(crawler("status", str(root), "--json"))
    for fact in ("pages", "bytes", "redirects", "retries"):
        assert found[f"crawler_{fact}_total", ()] == status[fact]
    failures = {labels: count for (name, labels), count in found.items() if name == "crawler_failures_total"}
    assert {dict(labels)["reason"]: count for labels, count in failures.items()} == status["reasons"]
    for kind in KINDS:
        assert sum(count for labels, count in failures.items() if dict(labels)["kind"] == kind) == status[kind]
    assert found["crawler_waiting", ()] == status["waiting"]
    assert found["crawler_store_up", ()] == 1
    assert found["crawler_workers", (("state", "ended"),)] == len(status["workers"])
    assert found["crawler_store_free_bytes", ()] > 0
    assert found["crawler_store_free_inodes", ()] > 0


def test_promtool_has_nothing_to_complain_about(served: Served) -> None:
    tool = shutil.which("promtool")
    if not tool:
        pytest.skip("no promtool here: install Debian's package prometheus")
    done = subprocess.run([tool, "check", "metrics"], input=served.ask("/metrics")[2], capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_labels_hold_whatever_they_must() -> None:
    evil = 'a"b\\c\nd\u202e\udcff{}'
    facts = {"store": evil, "reasons": {evil: 3}, "machines": [], "workers": [], "rate": 0.25}
    families = {family.name: family for family in text_string_to_metric_families(metrics.text(facts))}
    shown = evil.replace("\udcff", "?")
    assert families["crawler_store_info"].samples[0].labels["store"] == shown
    assert families["crawler_failures"].samples[0].labels == {"kind": "failed", "reason": shown}
    assert families["crawler_pages_per_second"].samples[0].value == 0.25


# ---- many, slow and hung


def test_a_hundred_who_ask_at_once_are_one_look_at_the_store(served: Served) -> None:
    with ThreadPoolExecutor(100) as pool:
        bodies = set(pool.map(lambda _: served.ask("/api/now")[2], range(100)))
    assert len(bodies) <= 3


def test_a_question_is_looked_up_once_at_a_time_and_again_when_it_is_old() -> None:
    looks = []

    def look() -> int:
        time.sleep(0.05)
        looks.append(1)
        return len(looks)

    shared = Looks()
    with ThreadPoolExecutor(100) as pool:
        assert set(pool.map(lambda _: shared.get("now", look, 60), range(100))) == {1}
    assert shared.get("now", look, 60) == 1
    assert shared.get("now", look, 0) == 2


def test_a_store_that_hangs_is_said_and_does_not_keep_the_program_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STORE_TIMEOUT", 0.1)
    hung = threading.Event()
    shared = Looks()
    with pytest.raises(StoreAway, match="has not responded for"):
        shared.get("hung", hung.wait, 60)
    monkeypatch.setattr(http, "STORE_TIMEOUT", 0.0)
    for number in range(http.MAX_LOOKS - 1):
        with pytest.raises(StoreAway):
            shared.get(number, hung.wait, 60)
    with pytest.raises(StoreAway, match="too many requests"):
        shared.get("one more", hung.wait, 60)
    hung.set()


def test_slow_clients_are_left_and_the_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServeConnection, "head_timeout", 0.2)
    monkeypatch.setattr(ServeConnection, "send_timeout", 0.2)

    def respond(path: str, query: dict[str, str]) -> Reply:
        return Reply(200, (), b"x" * 50_000_000 if path == "/large" else b"small")

    server = ServeServer(listen("127.0.0.1", 0), respond, frozenset({"a"}))
    server.start()

    def connect(request: bytes) -> socket.socket:
        client = socket.create_connection(server.server_address, timeout=LONG)
        client.sendall(request)
        return client

    began = time.monotonic()
    with (
        connect(b"GET / HT") as asking,
        connect(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n") as taking,
        connect(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") as quick,
    ):
        assert read_all(quick).endswith(b"\r\n\r\nsmall")
        for _ in range(3):  # a byte now and then is no head
            time.sleep(0.1)
            with suppress(ConnectionError):
                asking.sendall(b"T")
        assert read_all(asking) == b""
        assert time.monotonic() - began < 5
        time.sleep(1)
        assert len(read_all(taking)) < 50_000_000
    server.close()


def read_all(client: socket.socket) -> bytes:
    """Everything up to the end of the connection."""
    said = b""
    with suppress(ConnectionError):
        while piece := client.recv(1 << 20):
            said += piece
    return said


def test_more_connections_than_the_limit_are_closed_and_free_ones_are_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ServeServer, "max_connections", 2)
    server = ServeServer(listen("127.0.0.1", 0), lambda path, query: Reply(200), frozenset())
    server.start()
    open_ones = [socket.create_connection(server.server_address, timeout=LONG) for _ in range(2)]
    with socket.create_connection(server.server_address, timeout=LONG) as one_more:
        assert read_all(one_more) == b""
    for client in open_ones:
        client.close()

    def answered() -> bool:
        with socket.create_connection(server.server_address, timeout=LONG) as client, suppress(ConnectionError):
            client.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            return read_all(client).startswith(b"HTTP/1.1 200 ")
        return False

    wait_for(answered)
    server.close()


# ---- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


VIEWS = {
    "": "Machines and workers",
    "hosts": "No page",
    "host?host=evil.example": "Large",
    "failures": "evil.example",
    "settings": "user_agent",
    "page?url=http://evil.example/gone": "No page: failed",
    "page?url=http://unseen.example/": "never seen",
    "page?url=http://evil.example/large": "3,000,000 characters",
    "nothing-of-ours": "Machines and workers",
}


def test_every_view_shows_something_in_a_window_of_any_width_and_the_console_stays_silent(
    browser: Browser, served: Served
) -> None:
    browser.asked()
    browser.open(served.at())
    for view, words in VIEWS.items():
        browser.run("location.hash = `#/${arguments[0]}`", view)
        browser.wait(words)
        for width in (320, 820, 1920):
            browser.size(width, 900)
            assert browser.run("return document.scrollingElement.scrollWidth") <= width, view
    assert browser.complaints() == []
    folders = {url.partition("?")[0].rpartition("/")[0] for url in browser.asked() if url.startswith("http")}
    assert folders == {served.url.rstrip("/"), f"{served.url}api"}


def test_an_empty_store_is_shown_as_one(browser: Browser, empty: Path) -> None:
    with serving(empty) as served:
        for view, words in {
            "": "no machine has run",
            "hosts": "no host has been",
            "failures": "none",
        }.items():
            browser.open(served.at(f"#/{view}"))
            browser.wait(words)
        assert browser.text("#state") == "no machine has run yet"
        assert browser.complaints() == []
        browser.open("about:blank")  # what is open would miss its server


def test_how_fresh_the_pages_are_is_shown_as_a_chart(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store = StoreWriter(root, Files(root, "maker"))
    store.make(Settings(shards=4))
    for number in range(4):
        add_page(store, f"http://a.example/{number}", "", "", [])
    facts = {"revisits": 40, "unchanged": 30, "fresh": 1234, "due": 7, "overdue": 2, "revisits_rate": 3.5}
    (root / "workers/w@000001").write_bytes(to_json({"machine": "m", "pages": 4, **facts, "unchanged_rate": 2.5}))
    with serving(root) as served:
        browser.open(served.at("#/"))
        browser.wait("Age of the pages")
        label = browser.run("return document.querySelector('svg.ages').getAttribute('aria-label')")
        assert label == "Last visited within: 1 h 100 %, 1 d 0 %, 7 d 0 %, 30 d 0 %, older 0 %"
        heights = browser.run("return [...document.querySelectorAll('svg.ages rect')].map((it) => it.getBBox().height)")
        assert heights == [70, 0, 0, 0, 0]
        assert "a sample of 4 pages" in browser.text(".lists")
        assert "1,234" in browser.text(".tiles") and "7 due, 2 overdue" in browser.text(".tiles")
        assert "3.5" in browser.text(".tiles") and "2.5 unchanged; 40 so far" in browser.text(".tiles")
        for width in (320, 820, 1920):
            browser.size(width, 900)
            assert browser.run("return document.scrollingElement.scrollWidth") <= width
        assert browser.complaints() == []
        browser.open("about:blank")  # what is open would miss its server


def test_trouble_is_said_and_one_long_text_does_not_fill_the_screen(browser: Browser, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store = StoreWriter(root, Files(root, "maker"))
    store.make(Settings(shards=4))
    add_page(store, "http://long.example/" + "a" * 1500, "W" * 5000, "", [])
    store.put_failure("http://long.example/no", Failure("", "wrong-type", "application/pdf" * 100), 1)
    (root / "crawl.yaml").write_text("delay: soon")
    with serving(root) as served:
        for view in ("host?host=long.example", "failures"):
            browser.open(served.at(f"#/{view}"))
            browser.wait("long.example", "tbody th")
            assert browser.run("return document.querySelector('tbody tr').offsetHeight") < 250
        assert browser.run("return document.querySelector('.detail').offsetWidth") > 100
        wait_for(lambda: "delay is 'soon'" in browser.text("#trouble"))
        assert browser.complaints() == []
        browser.open("about:blank")  # what is open would miss its server


def test_hosts_are_sorted_by_a_click_and_searched_by_typing(browser: Browser, served: Served, root: Path) -> None:
    browser.open(served.at("#/hosts"))
    browser.wait("evil.example", "tbody th")

    def column(number: int) -> list[int]:
        return [int(text.replace(",", "")) for text in browser.all(f"tbody td:nth-child({number})")]

    assert column(2) == sorted(column(2), reverse=True)
    browser.click("button.sort", "No page")
    wait_for(lambda: column(7) == sorted(column(7), reverse=True))
    browser.click("button.sort", "No page")
    wait_for(lambda: column(7) == sorted(column(7)))
    assert browser.run("return document.querySelector('[aria-sort]').ariaSort") == "ascending"
    browser.click("button.sort", "Host")
    wait_for(lambda: browser.all("tbody th") == sorted(Store(root).hosts()))
    browser.type("#search", "evil")
    wait_for(lambda: browser.all("tbody th") == ["evil.example"])
    assert "search=evil" in browser.driver.current_url


def test_a_click_leads_from_a_host_to_a_page_to_its_html_and_back(browser: Browser, served: Served, root: Path) -> None:
    page = next(page for page in Store(root).pages() if page.links)
    browser.open(served.at(f"#/hosts?search={page.host}"))
    browser.wait(page.host, "tbody th")
    browser.click("tbody th a", page.host)
    browser.wait(page.url)
    browser.run("document.querySelector(`a[href*='${encodeURIComponent(arguments[0])}']`).click()", page.url)
    browser.wait(page.record["sha224"])
    assert page.html.split("\n")[0].strip() in browser.text("pre")
    assert browser.run("return document.querySelector('p.url a').rel") == "noreferrer noopener"
    browser.driver.back()
    browser.wait("Fetched", "thead")
    assert browser.complaints() == []


def test_what_means_harm_is_shown_as_text(browser: Browser, served: Served, outside: Outside) -> None:
    browser.open(served.at("#/host?host=evil.example"))
    browser.wait("<script>document.title='owned'</script>")
    browser.click("tbody th a", "<script>")
    browser.wait("Drawn heading", "pre")
    assert "onerror=alert(1)>" in browser.text("h2")
    assert "javascript:alert(1)" in browser.text(".links")
    hrefs = browser.run("return [...document.links].map((link) => link.getAttribute('href'))")
    assert all(href.startswith(("#/", "http://evil.example/")) for href in hrefs)
    browser.click("button", "Drawn")
    browser.driver.switch_to.frame(browser.driver.find_element("css selector", "iframe"))
    wait_for(lambda: "Drawn heading" in browser.text("body"))
    assert "owned" not in browser.text("body")
    browser.click("x-a", "away")
    browser.driver.switch_to.default_content()
    assert "owned" not in browser.driver.title
    time.sleep(0.5)  # in which nothing is to happen
    assert outside.visits == 0
    browser.complaints()  # the frame's own: what its page wanted and did not get


@pytest.mark.fleet  # for time
def test_all_can_be_reached_by_keyboard(browser: Browser, served: Served) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.open(served.at("#/"))
    browser.wait("Machines and workers")
    reached = set()
    for _ in range(40):
        browser.press(Keys.TAB)
        reached.add(browser.run("return document.activeElement.innerText || document.activeElement.ariaLabel"))
    assert {"Overview", "Hosts", "No page", "Settings", "10 min", "1 hour", "all"} <= reached
    assert any(name.startswith("Pages per second: now") for name in reached)
    browser.run("document.querySelector('nav a[href=\"#/hosts\"]').focus()")
    browser.press(Keys.ENTER)
    browser.wait("Hosts", "h2")


@pytest.mark.fleet
def test_charts_and_machines_move_while_a_crawl_runs_and_trouble_is_said(browser: Browser, tmp_path: Path) -> None:
    with world(TreeWeb(hosts=12, fanout=3, depth=5), tmp_path) as w:
        w.start(*w.web.seeds(), "-w", "0.5", "-j", "1")
        wait_for((w.root / "README").exists)
        with serving(w.root) as served:
            browser.open(served.at())
            browser.wait("crawling with 1 machine", "#state")
            line = browser.wait("alive", "tbody")
            assert "worker " in line
            drawn = "return document.querySelector('.chart .line')?.getAttribute('d')"
            first = browser.run(drawn)
            pages = browser.all(".tile .value")[0]
            wait_for(lambda: browser.run(drawn) != first and browser.all(".tile .value")[0] != pages)
            assert "/s, " in browser.driver.title
            crawler("pause", str(w.root))
            browser.wait("paused", "#state")
        browser.wait("crawler serve does not respond", "#trouble")


@pytest.mark.bench
def test_a_store_of_100_000_pages_is_looked_at_in_moments(
    browser: Browser, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores.large(tmp_path / "large")
    questions = ["/api/now", "/api/hosts?search=host-0", "/api/host?host=host-042.example&part=9", "/metrics"]
    questions += ["/api/page?url=https://host-042.example/page/42", "/api/failures?reason=http-404", "/api/settings"]
    with serving(tmp_path / "large") as served:
        lines = []
        for question in questions:
            began = time.monotonic()
            assert served.ask(question)[0] == 200
            lines.append(f"{time.monotonic() - began:8.3f} s  {question}")
        wait_for(lambda: served.json("/api/hosts")["counted"] == 100)
        browser.open(served.at("#/hosts?sort=pages"))
        browser.wait("1–50 of 100", ".pager")
        assert set(browser.all("tbody td:nth-child(2)")) == {"1,000"}
        browser.click("tbody th a", "host-0")
        browser.wait("1–50 of 1,000", ".pager")
        browser.click(".pager button", "Next")
        browser.wait("51–100 of 1,000", ".pager")
        browser.click("tbody th a", "Page ")
        browser.wait("The quick brown fox", "pre")
        assert browser.complaints() == []
        status = Path(f"/proc/{served.process.pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) >> 10
    with capsys.disabled():
        print("", *lines, f"{peak} MB at its peak", sep="\n")
