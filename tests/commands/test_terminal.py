"""Nothing from the web, and nothing that a user gave, reaches a terminal as a control character."""

from __future__ import annotations

import logging
import os
import pty
import socket
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.hostile import Server, whole
from lab.world import COMMAND, LONG

from crawler.crawl.logs import JsonFormatter, TerminalFormatter
from crawler.web.page import Failure
from crawler.web.text import masked, printable

# ESC, BEL, CR, backspace, DEL, C1's CSI, right-to-left override, isolate, line separator
EVIL = "\x1b]0;owned\x07\x1b[2J\r\b\x7f\x9b31m\u202eabc\u2066\u2028"
FORBIDDEN = {*map(chr, [*range(10), *range(11, 32), *range(127, 160)]), *"\u202a\u202b\u202d\u202e\u2066\u2067\u2028"}
RAW = EVIL.encode()
HEAD = RAW.replace(b"\r", b"")  # without what makes a header no header


class Evil(Server):
    """Every place of an answer where text can stand has control characters in it."""

    ANSWERS: ClassVar = {
        "/robots.txt": whole(b"User-agent: *\nDisallow: /no" + RAW + b"\nCrawl-delay: " + RAW, b"X: " + HEAD),
        "/": whole(
            b"<meta charset=utf-8><title>" + RAW + b"</title><a href='/a" + RAW + b"'>1</a><a href='/to'>2</a>"
            b"<a href='/away'>3</a><a href='/status'>4</a><a href='/type'>5</a><a href='/coding'>6</a>"
            b"<a href='http://" + RAW + b"/'>7</a><a href='/garbage'>8</a><a href='/head'>9</a>",
            b"ETag: " + HEAD,
            b"Last-Modified: " + HEAD,
        ),
        "/to": whole(b"", b"Location: /b" + HEAD, status=b"302 Found"),
        "/away": whole(b"", b"Location: ftp://x/" + HEAD, status=b"302 Found"),
        "/status": whole(b"", status=b"503 " + RAW),
        "/type": whole(b"", kind=b"text/" + HEAD),
        "/coding": whole(b"", b"Content-Encoding: " + RAW),
        "/garbage": RAW + b"\r\n\r\n",
        "/head": b"HTTP/1.1 200 OK\r\n" + RAW + b"\r\nContent-Length: 0\r\n\r\n",
    }

    def answer(self, sock: socket.socket, head: str) -> bool:
        path = head.split(" ")[1]
        sock.sendall(self.ANSWERS.get(path, whole(b"", status=b"404 " + RAW)))
        return path != "/garbage"


def on_a_terminal(*args: str) -> str:
    """What a command writes where standard output and error are a terminal."""
    near, far = pty.openpty()
    termios.tcsetwinsize(far, (24, 100))  # without lines no bar is drawn
    process = subprocess.Popen([*COMMAND, *args], stdout=far, stderr=far, stdin=subprocess.DEVNULL)
    os.close(far)
    said = b""
    with suppress(OSError):  # the terminal's end
        while piece := os.read(near, 65536):
            said += piece
    process.wait(LONG)
    os.close(near)
    return said.decode("utf-8", "replace")


def evil_in(said: str) -> set[str]:
    """The control characters in what was printed, but for our own: line ends, and what redraws the progress bar."""
    assert "2J\r" not in said
    return set(said.replace("\r\x1b[K", "").replace("\x1b[A", "").replace("\r", "")) & FORBIDDEN


@pytest.mark.parametrize("fetcher", ["curl", "requests"])
def test_a_hostile_site_cannot_reach_the_terminal(tmp_path: Path, fetcher: str) -> None:
    server = Evil()
    store, log = str(tmp_path / "store"), tmp_path / "log"
    flags = ("-w", "0.01", "-j", "1", "-vv", "-s", "retries=0", "-s", f"fetcher={fetcher}", "--log-file", str(log))
    said = on_a_terminal("run", store, server.url("/"), server.url("/away"), *flags)
    server.close()
    assert "the crawl is over" in said
    assert {"/status", "/type", "/away"} <= {head.split(" ")[1] for head in server.heads}
    assert evil_in(said) == set()
    assert said.count("owned") > 1
    assert evil_in(log.read_text()) == set()
    for flag in ("-v", "--json"):
        assert evil_in(on_a_terminal("status", store, flag)) == set()


@pytest.mark.parametrize(
    "args",
    [
        ["run", EVIL, EVIL],
        ["run", "new", f"ftp://{EVIL}/"],
        ["run", "new", "http://a.example/", "-s", f"{EVIL}=1"],
        ["run", "new", "http://a.example/", "-s", f"delay={EVIL}"],
        ["run", "new", "http://a.example/", "-t", EVIL],
        ["run", "new", "http://a.example/", "-c", EVIL],
        ["run", "new", "http://a.example/", "-c", "evil.yaml"],
        ["run", "new", "-i", EVIL],
        ["run", "new", "-i", "evil.txt"],
        ["run", f"{EVIL}/x/y", "http://a.example/"],
        ["run", "new", f"--{EVIL}"],
        ["status", EVIL],
        ["add", EVIL, "http://a.example/"],
        ["doctor", EVIL],
        ["serve", EVIL],
        ["serve", "new", "--name", EVIL],
        ["demo", EVIL + "/x", "--serve", EVIL],
        [EVIL],
    ],
)
def test_what_a_user_gives_does_not_reach_the_terminal_raw(
    tmp_path: Path, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.yaml").write_bytes(b"delay: " + RAW)
    (tmp_path / "evil.txt").write_bytes(b"x" + RAW)
    said = on_a_terminal(*args)
    assert "crawler: " in said
    assert evil_in(said) == set()


def test_a_log_line_is_one_line_and_a_traceback_keeps_its_own() -> None:
    try:
        raise ValueError(EVIL + "http://me:secret@a.example/")
    except ValueError:
        record = logging.LogRecord("x", logging.INFO, "x", 1, "a\nb %s", (EVIL,), sys.exc_info())
    said = TerminalFormatter().format(record)
    assert evil_in(said) == set()
    assert said.startswith("a\ufffdb \ufffd]0;owned")
    assert said.splitlines()[1].startswith("Traceback")
    assert "secret" not in said + JsonFormatter().format(record)


@given(st.text())
def test_any_text_becomes_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert Failure("", "fault", text).detail.isprintable()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://me:pw@a/ and https:\\\\me@b", "http://***@a/ and https:\\\\***@b"),
        ("socks5://a:b@c:1", "socks5://***@c:1"),
        ("http://a/b@c?d@e #f@g", "http://a/b@c?d@e #f@g"),
        ("http://p@ss:w@rd@a/", "http://***@a/"),
        ("shards/017@me", "shards/017@me"),
    ],
)
def test_user_names_and_passwords_in_urls_are_hidden(text: str, shown: str) -> None:
    assert masked(text) == shown
