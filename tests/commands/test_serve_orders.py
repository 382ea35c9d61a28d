"""The buttons of `crawler serve`: they do what the commands do, and nobody can press them from elsewhere."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from lab.browser import Browser, Served, browsing, serving
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, World, crawler, end, wait_for, wait_for_line, world

from crawler import Store
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.writer import StoreWriter

FORM = "application/x-www-form-urlencoded"
WEB = TreeWeb(hosts=12, fanout=3, depth=5)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was made, and nothing else."""
    root = tmp_path_factory.mktemp("empty")
    StoreWriter(root, Files(root, "tests")).make(Settings(shards=4))
    return root


@pytest.fixture(scope="module")
def served(root: Path) -> Iterator[Served]:
    with serving(root, "--name", "crawl.example") as served:
        yield served


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[tuple[World, subprocess.Popen[str]]]:
    """A crawl at work that takes minutes."""
    with world(WEB, tmp_path) as w:
        process = w.start(*w.web.seeds(), "-w", "2", "-j", "1")
        wait_for((w.root / "README").exists)
        yield w, process


def is_paused(root: Path) -> bool:
    return (root / "workers" / "pause").exists()


# ---- what they do


def test_buttons_pause_resume_and_stop_a_crawl_at_work(
    browser: Browser, slow: tuple[World, subprocess.Popen[str]]
) -> None:
    w, process = slow
    with serving(w.root) as served:
        browser.open(served.at())
        browser.wait("crawling with 1 machine", "#state")
        browser.click("#controls button", "Pause")
        browser.wait("paused", "#state")
        assert is_paused(w.root)
        assert "pause: paused; 1 machine stops requesting" in browser.wait("pause: ", "#told")
        browser.click("#controls button", "Resume")
        browser.wait("crawling with 1 machine", "#state")
        assert not is_paused(w.root)
        browser.click("#controls button", "Stop")
        browser.wait("Stop the crawl?", "dialog")
        browser.click("dialog button", "Cancel")
        wait_for(lambda: browser.all("dialog") == [])
        assert process.poll() is None
        browser.click("#controls button", "Stop")
        browser.click("dialog button", "Stop")
        end(process, 3)
        browser.wait("1 machine has stopped cleanly", "#told")
        browser.wait("no machine is running", "#state")
        assert browser.run("return [...document.querySelectorAll('#controls button')].map((b) => b.disabled)")[1]
        assert browser.complaints() == []
        browser.open("about:blank")


def test_retry_is_asked_for_once_more_and_hands_over_what_it_says(browser: Browser, crawled: Path) -> None:
    gone = [failure["url"] for failure in Store(crawled).failures() if failure["reason"] == "http-404"]
    assert gone
    with serving(crawled) as served:
        browser.open(served.at("#/failures?reason=http-404"))
        browser.wait("http-404", "tbody")
        browser.click(".act button", "Retry these")
        browser.wait("Every URL with the reason http-404", "dialog")
        browser.click("dialog button", "Retry")
        browser.wait(f"will be requested again: http-404 {len(gone)}", "#told")
        browser.click("#told button")
        wait_for(lambda: browser.run("return document.getElementById('told').hidden"), LONG / 10)
        browser.open("about:blank")
    batches = b"".join(path.read_bytes() for path in (crawled / "frontier").glob("*/[!.]*"))
    assert all(url.encode() in batches for url in gone)


def test_a_script_gives_orders_with_the_token_and_the_terminal_of_serve_tells_them(slow: tuple[World, object]) -> None:
    w, _ = slow
    with serving(w.root) as served:
        status, _, body = served.ask("/api/order", b"order=pause")
        assert (status, json.loads(body)["ended"]) == (200, True)
        assert is_paused(w.root)
        assert "is paused already" in json.loads(served.ask("/api/order", b"order=pause")[2])["said"][0]
        assert served.json("/api/now")["orders"]["given"][-1]["order"] == "pause"
        assert served.ask("/api/order", b"order=resume")[0] == 200
        wait_for_line(served.process, "resume: no longer paused")


@pytest.mark.parametrize(
    ("form", "status", "words"),
    [
        (b"", 400, "must be one of pause, resume, stop, retry"),
        (b"order=rehydrate", 400, "must be one of pause, resume, stop, retry"),
        (b"order=retry&reason=nonsense", 409, "unknown reason 'nonsense'"),
        (b"order=retry&host=unseen.example", 409, "has nothing of unseen.example"),
        (b"order=retry&host=../workers", 409, "is not a host"),
        (b"order=stop", 200, "no machine is running"),
        (b"order=retry", 200, "nothing to retry"),
    ],
)
def test_an_order_is_answered_in_the_words_of_its_command(served: Served, form: bytes, status: int, words: str) -> None:
    found, _, body = served.ask("/api/order", form)
    assert (found, words in body.decode()) == (status, True)


def test_with_read_only_there_are_no_buttons_and_no_orders(browser: Browser, root: Path) -> None:
    with serving(root, "--read-only") as served:
        status, _, body = served.ask("/api/order", b"order=pause")
        assert (status, b"read-only" in body) == (403, True)
        assert not is_paused(root)
        browser.open(served.at())
        browser.wait("started with --read-only", "#told")
        assert browser.all("#controls button") == []
        assert browser.complaints() == []
        browser.open("about:blank")


def test_on_a_store_that_cannot_be_written_it_says_so(tmp_path: Path, root: Path) -> None:
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "--bind", root, mounted]).returncode:
        pytest.skip("mounting a folder needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mounted], check=True)
        with serving(mounted) as served:
            assert "Read-only file system" in served.json("/api/now")["orders"]["read_only"]
            status, _, body = served.ask("/api/order", b"order=pause")
            assert (status, b"Read-only file system" in body) == (403, True)
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


# ---- who may not


def post(served: Served, body: str, *fields: str, path: str = "/api/order", method: str = "POST") -> str:
    """What is said to a POST with these header fields and nothing else."""
    head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{served.port}", "Connection: close", *fields]
    if not any(field.lower().startswith("content-length") for field in fields):
        head += [f"Content-Length: {len(body)}"]
    if not any(field.lower().startswith("content-type") for field in fields):
        head += [f"Content-Type: {FORM}"]
    with socket.create_connection(("127.0.0.1", served.port), timeout=LONG) as talk:
        talk.sendall("\r\n".join([*head, "", body]).encode())
        return talk.makefile("rb").read().decode()


def cookie(served: Served) -> str:
    """The cookie that a browser gets for the token."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=LONG) as talk:
        talk.sendall(f"GET /?token={served.token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        said = talk.makefile("rb").read().decode()
    line = next(line for line in said.split("\r\n") if line.startswith("Set-Cookie: "))
    return "Cookie: " + line.removeprefix("Set-Cookie: ").partition(";")[0]


def test_a_browsers_order_needs_the_cookie_the_second_token_and_our_own_origin(served: Served, root: Path) -> None:
    token, own = served.json("/api/token")["token"], cookie(served)
    signed, origin = f"X-Crawler-Token: {token}", f"Origin: http://127.0.0.1:{served.port}"
    good = [
        [own, signed, origin, "Sec-Fetch-Site: same-origin"],
        [own, signed],
        [f"Authorization: Bearer {served.token}"],
    ]
    for fields in good:
        assert post(served, "order=pause", *fields).startswith("HTTP/1.1 200 "), fields
        (root / "workers" / "pause").unlink()
    assert post(served, f"order=pause&token={token}", own, origin).startswith("HTTP/1.1 200 ")
    (root / "workers" / "pause").unlink()
    bad = [
        [],
        [own],
        [own, origin],
        [signed],
        [signed, origin],
        [own, "X-Crawler-Token: wrong", origin],
        [own, f"X-Crawler-Token: {served.token}", origin],
        [own, signed, "Origin: http://evil.example"],
        [own, signed, "Origin: null"],
        [own, signed, "Origin: "],
        [own, signed, f"Origin: http://127.0.0.1:{served.port + 1}"],
        [own, signed, f"Origin: http://localhost:{served.port}"],
        [own, signed, f"Origin: file://127.0.0.1:{served.port}"],
        [own, signed, origin, "Origin: http://evil.example"],
        [own, signed, origin, "Sec-Fetch-Site: cross-site"],
        [own, signed, origin, "Sec-Fetch-Site: same-site"],
        [f"Authorization: Bearer {served.token}", "Origin: http://evil.example"],
        ["Authorization: Bearer wrong", signed],
    ]
    for fields in bad:
        assert post(served, "order=pause", *fields).startswith("HTTP/1.1 403 "), fields
    for path in (f"/api/order?token={served.token}", f"/api/order?token={token}"):
        assert post(served, "order=pause", path=path).startswith("HTTP/1.1 403 ")
        assert post(served, "order=pause", own, path=path).startswith("HTTP/1.1 403 ")
    assert not is_paused(root)


def test_what_is_no_form_is_not_carried_out_and_get_changes_nothing(served: Served, root: Path) -> None:
    auth = f"Authorization: Bearer {served.token}"
    assert post(served, "order=pause", auth, "Content-Type: text/plain").startswith("HTTP/1.1 400 ")
    assert post(served, '{"order": "pause"}', auth, "Content-Type: application/json").startswith("HTTP/1.1 400 ")
    assert post(served, "x", auth, "Content-Length: 99999").startswith("HTTP/1.1 413 ")
    assert post(served, "x", auth, "Content-Length: -1").startswith("HTTP/1.1 400 ")
    assert post(served, "x", auth, "Content-Length: 1", "Content-Length: 2").startswith("HTTP/1.1 400 ")
    assert post(served, "&".join(f"a{n}=1" for n in range(99)), auth).startswith("HTTP/1.1 400 ")
    for method in ("GET", "PUT", "DELETE", "HEAD", "OPTIONS"):
        said = post(served, "order=pause", auth, method=method)
        assert said.startswith("HTTP/1.1 405 ") and "Allow: POST" in said
    for path in ("/api/order?order=pause", "/api/now?order=pause", "/?order=pause"):
        assert served.ask(path)[0] in (200, 405)
    assert not is_paused(root)


class Elsewhere(ThreadingHTTPServer):
    """Another web server of this machine, whose page sends orders to ours."""

    page = b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Page(BaseHTTPRequestHandler):
    """Its one page."""

    server: Elsewhere

    def do_GET(self) -> None:
        """Send it."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_page_of_another_origin_cannot_give_an_order_though_its_browser_has_the_cookie(
    browser: Browser, served: Served, root: Path, name: str
) -> None:
    browser.open(served.at())
    browser.wait("no machine has run yet", "#state")
    target = f"{served.url}api/order"
    with Elsewhere() as other:
        form = f"<form method=post action='{target}'><input name=order value=pause><button>go</button></form>"
        script = f"""<script>
          const target = '{target}', body = new URLSearchParams({{order: 'pause'}});
          const send = (more) => fetch(target, {{method: 'POST', body, credentials: 'include', ...more}});
          const read = () => fetch('{served.url}api/token', {{credentials: 'include'}}).then((found) => found.text());
          Promise.allSettled([send({{mode: 'no-cors'}}), send({{headers: {{'X-Crawler-Token': 'x'}}}}), read()])
            .then((all) => (document.title = all.map((one) => one.status).join()));
        </script>"""
        other.page = f"<title>elsewhere</title>{form}{script}".encode()
        browser.open(f"http://{name}:{other.server_port}/")
        wait_for(lambda: "," in browser.driver.title)
        assert browser.driver.title.endswith("rejected,rejected"), "neither a token in a header nor reading is possible"
        assert not is_paused(root)
        browser.click("button", "go")
        wait_for(lambda: browser.driver.current_url == target)
        said = browser.text("body")
        assert "another site's page is not carried out" in said or "a token is needed" in said
        assert not is_paused(root)
        if name == "127.0.0.1":
            assert "another site's page" in said, "the cookie was sent: of the same site, though not of the same origin"
        browser.open("about:blank")
        browser.complaints()
        other.shutdown()


@pytest.mark.fleet  # for time
def test_at_a_socket_an_order_needs_the_second_token_too(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "view.sock"
    command = [*COMMAND, "serve", str(root), "--socket", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for_line(process, "at the socket")

    def said(method: str, target: str, *fields: str, body: str = "") -> str:
        with socket.socket(socket.AF_UNIX) as talk:
            talk.connect(str(path))
            head = [f"{method} {target} HTTP/1.0", "Host: localhost", *fields]
            talk.sendall("\r\n".join([*head, "", body]).encode())
            return talk.makefile("rb").read().decode()

    form = (f"Content-Type: {FORM}", "Content-Length: 11")
    assert said("POST", "/api/order", *form, body="order=pause").startswith("HTTP/1.1 403 ")
    assert not is_paused(root)
    token = json.loads(said("GET", "/api/token").rpartition("\r\n\r\n")[2])["token"]
    signed = f"X-Crawler-Token: {token}"
    assert said("POST", "/api/order", signed, *form, body="order=pause").startswith("HTTP/1.1 200 ")
    assert is_paused(root)
    assert "no longer paused" in crawler("resume", str(root))
    process.terminate()
    process.communicate(timeout=LONG)
