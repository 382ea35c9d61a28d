"""What the user wants kept secret reaches the hosts it was given for, and no record, log or terminal."""

from __future__ import annotations

import base64
import socket
import subprocess
from pathlib import Path
from typing import ClassVar

import pytest
from lab.hostile import Proxy, Server, whole
from lab.marks import later
from lab.world import COMMAND, LONG

from crawler.errors import NOTHING

SECRET = "S3CR3T"
QUICK = ("--scope", "any", "-w", "0.01", "-j", "1", "-s", "retry_delay=0.1s", "-s", "retries=1", "-vv")


class Strange(Server):
    """All hosts on one address: what each path answers, and who was sent which head."""

    ANSWERS: ClassVar = {
        "a.example/": whole(
            b"<a href=/page>1</a><a href=/away>2</a><a href=http://b.example/>3</a><a href=https://a.example/>4</a>"
            b"<a href=//www.a.example/>5</a><a href=/broken>6</a><a href=/ftp>7</a><a href=http://u:%s@c.example/>8</a>"
            b"<a href=/nowhere>9</a>" % SECRET.encode()
        ),
        "a.example/page": whole(b"<a href=/gone>"),
        "a.example/away": whole(b"", b"Location: http://u:%s@b.example/in" % SECRET.encode(), status=b"302 Found"),
        "a.example/ftp": whole(b"", b"Location: ftp://u:%s@b.example/" % SECRET.encode(), status=b"302 Found"),
        "a.example/nowhere": whole(b"", b"Location: //u:%s@b example/" % SECRET.encode(), status=b"302 Found"),
        "a.example/broken": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx",
        "a.example/robots.txt": whole(b"", b"Location: http://b.example/robots.txt", status=b"301 Moved"),
        "seed.example/": whole(b"", b"Location: http://moved.example/", status=b"301 Moved"),
        "b.example/": whole(b"<a href=http://a.example/back>"),
    }

    def answer(self, sock: socket.socket, head: str) -> bool:
        host = next(line[6:] for line in head.split("\r\n") if line.lower().startswith("host:"))
        path = head.split(" ")[1]
        sock.sendall(self.ANSWERS.get(host + path, whole(b"", status=b"404 Not Found")))
        return host + path != "a.example/broken"


def crawl(*args: str) -> tuple[int, str]:
    """A command's exit code and all that it printed."""
    done = subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=LONG, check=False)
    return done.returncode, done.stdout + done.stderr


def holders(folder: Path, secret: str = SECRET) -> set[str]:
    """The files of a folder that hold a secret."""
    found = [path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return {str(path.relative_to(folder)) for path in found}


FETCHERS = ["curl", *later("requests")]


@pytest.mark.parametrize("fetcher", FETCHERS)
def test_a_secret_header_reaches_the_seeds_hosts_and_no_record_log_or_terminal(tmp_path: Path, fetcher: str) -> None:
    server = Strange()
    seeds = ("http://a.example/", f"http://user:{SECRET}@seed.example/")
    header = ("-H", f"X-Key: {SECRET}", "-H", "Accept-Language: de")
    flags = (*QUICK, *header, "-s", f"fetcher={fetcher}", "--connect-to", f"::127.0.0.1:{server.port}")
    command = ("run", str(tmp_path / "store"), *seeds, *flags, "--log-file", str(tmp_path / "log"))
    code, printed = crawl(*command)
    assert code == 0, printed
    again = crawl(*command)[1]
    assert SECRET not in printed + again
    assert SECRET not in crawl("status", str(tmp_path / "store"), "-v")[1]
    # The link and the redirect of the page's own text are the page's; what we write ourselves holds nothing of it.
    assert {name for name in holders(tmp_path) if "/htmls/" not in name} == set()
    server.close()
    requested = {(head.split("ost: ")[1].split("\r\n")[0], SECRET in head) for head in server.heads}
    told = {host for host, secret in requested if secret}
    assert told == {"a.example", "seed.example"}
    assert {"b.example", "www.a.example", "moved.example", "c.example"} <= {host for host, _ in requested} - told
    # robots.txt is requested without it, and so is b.example's, where a.example's redirects to.
    assert all(SECRET not in head for head in server.heads if "/robots.txt" in head)
    assert all("Accept-Language: de" in head for head in server.heads if "/robots.txt" not in head)


def test_who_is_named_by_https_gets_no_secret_by_http(tmp_path: Path) -> None:
    server = Strange()
    plain = f":80:127.0.0.1:{server.port}"
    flags = (*QUICK, "--no-robots", "-H", f"X-Key: {SECRET}", "--connect-to", plain, "--connect-to", ":443:127.0.0.1:1")
    crawl("run", str(tmp_path / "store"), "https://a.example/", "http://b.example/", *flags)
    server.close()
    requested = {(head.split("ost: ")[1].split("\r\n")[0], SECRET in head) for head in server.heads}
    assert ("b.example", True) in requested
    assert ("a.example", False) in requested
    assert ("a.example", True) not in requested


@pytest.mark.fleet  # for time
@pytest.mark.parametrize("fetcher", FETCHERS)
@pytest.mark.parametrize("works", [True, False])
def test_a_proxys_password_is_given_to_the_proxy_and_to_nobody_else(tmp_path: Path, fetcher: str, works: bool) -> None:
    server = Strange()
    proxy = Proxy(server)
    where = f"http://me:{SECRET}@127.0.0.1:{proxy.port if works else 1}"
    seeds = ("http://a.example/", "https://a.example/")
    flags = (*QUICK, "--no-robots", "--proxy", where, "-s", f"fetcher={fetcher}", "--log-file", str(tmp_path / "log"))
    code, printed = crawl("run", str(tmp_path / "store"), *seeds, *flags)
    server.close()
    proxy.close()
    assert code == 0, printed
    assert SECRET not in printed
    assert {name for name in holders(tmp_path) if "/htmls/" not in name} == set()
    code = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert all(code in head for head in proxy.heads)
    assert len(proxy.heads) > 3 if works else not proxy.heads
    assert holders(tmp_path, code) == set()


@pytest.mark.parametrize(
    "args",
    [
        ["run", "STORE", f"ftp://me:{SECRET}@a.example/"],
        ["run", "STORE", f"me:{SECRET}@a.example/"],
        ["run", "STORE", f"http:me:{SECRET}@a example/"],
        ["run", "STORE", f"http:\\\\me:{SECRET}@[/"],
        ["run", f"https://me:{SECRET}@a.example/"],
        ["add", f"https://me:{SECRET}@a.example/"],
        ["add", "STORE", f"me:{SECRET}@a.example/"],
        ["run", "STORE", "http://a.example/", "-H", f"Authorization {SECRET}"],
        ["run", "STORE", "http://a.example/", "-H", f"Host: {SECRET}"],
        ["run", "STORE", "http://a.example/", "-H", f"X-Key: {SECRET}\nx"],
        ["run", "STORE", "http://a.example/", "--set", f"headers=Authorization {SECRET}"],
        ["run", "STORE", "http://a.example/", "--set", f"headers=Authorization: {SECRET}"],
        ["run", "STORE", "http://a.example/", "--set", f"proxy=http://me:{SECRET}@x"],
        ["run", "STORE", "http://a.example/", "--set", f"proxi=http://me:{SECRET}@x"],
        ["run", "STORE", "http://a.example/", "--proxy", f"me:{SECRET}@x:1"],
        ["run", "STORE", "http://a.example/", "--proxi", f"http://me:{SECRET}@x:1"],
        ["run", "STORE", "http://a.example/", f"--proxi=http://me:{SECRET}@x:1"],
        ["status", f"https://me:{SECRET}@a.example/"],
        ["run", "MADE", "-H", f"X-Key: {SECRET}"],
        ["run", "MADE", "-H", f"X-Key: {SECRET}", "-H", "From: me"],
    ],
)
def test_no_complaint_repeats_a_secret(made: Path, args: list[str]) -> None:
    places = {"STORE": str(made.parent / "new"), "MADE": str(made)}
    code, printed = crawl(*[places.get(arg, arg) for arg in args])
    assert code in (2, 5), printed
    assert printed.startswith("crawler: ")
    assert SECRET not in printed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store without secrets."""
    store = tmp_path_factory.mktemp("made") / "store"
    assert crawl("run", str(store), "http://127.0.0.1:9/", "-q")[0] == NOTHING
    return store
