"""Cookies and logins that the operator gives reach the hosts they are for, and no store, log, terminal or stranger."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
from pathlib import Path

import pytest
from lab.hostile import Server, whole
from lab.marks import later
from lab.world import COMMAND, LONG

QUICK = ("-s", "shards=8", "-w", "0.01", "-j", "1", "-s", "retries=0", "-vv", "--scope", "any")
SECRET, NEW = "S3CR3T", "R3FR3SH3D"
FETCHERS = ["curl", *later("requests")]


class Members(Server):
    """All hosts on one address. Pages of a.example are for members alone, and give them a new cookie."""

    def answer(self, sock: socket.socket, head: str) -> bool:
        path = head.split(" ")[1]
        host = next(line[6:] for line in head.split("\r\n") if line.lower().startswith("host:"))
        login = base64.b64encode(f"me:{SECRET}".encode()).decode()
        is_member = f"sid={SECRET}" in head or f"sid={NEW}" in head or f"Authorization: Basic {login}" in head
        if path == "/robots.txt" or host != "a.example":
            sock.sendall(whole(b"<a href=http://a.example/1>"))
        elif not is_member:
            sock.sendall(whole(b"", status=b"401 Unauthorized"))
        elif path == "/away":
            sock.sendall(whole(b"", b"Location: http://b.example/in", status=b"302 Found"))
        else:
            links = (
                b"<a href=/1>1</a><a href=/away>2</a><a href=http://b.example/>3</a><a href=http://www.a.example/>4</a>"
            )
            sock.sendall(whole(links, f"Set-Cookie: sid={NEW}; Path=/".encode()))
        return True

    def told(self) -> set[str]:
        """The hosts that were sent something of ours."""
        basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
        heads = [head for head in self.heads if re.search(f"{SECRET}|{NEW}|{re.escape(basic)}", head)]
        return {next(line[6:] for line in head.split("\r\n") if line.lower().startswith("host:")) for head in heads}


def own(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def run(store: Path, *args: str) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, "run", str(store), *args], capture_output=True, text=True, timeout=LONG, check=False
    )
    return done.returncode, done.stdout + done.stderr


def lift_limit(store: Path) -> None:
    settings = store / "crawl.yaml"
    settings.write_text(settings.read_text().replace("max_pages: 1\n", "max_pages: null\n"))


def cookies(folder: Path, domain: str = "a.example", below: str = "FALSE") -> list[str]:
    line = "\t".join((f"#HttpOnly_{domain}", below, "/", "FALSE", "0", "sid", SECRET))
    return ["--cookies", own(folder / "cookies.txt", f"# Netscape HTTP Cookie File\n{line}\n")]


def netrc(folder: Path) -> list[str]:
    return [f"--netrc={own(folder / 'netrc', f'machine a.example login me password {SECRET}')}"]


def secrets(folder: Path) -> list[str]:
    cookies(folder)
    netrc(folder)
    text = f"cookies: {folder}/cookies.txt\nnetrc: {folder}/netrc\n"
    return ["--secrets", own(folder / "secrets.yaml", text)]


@pytest.mark.parametrize("fetcher", FETCHERS)
@pytest.mark.parametrize("flags", [cookies, netrc, secrets])
def test_members_see_their_pages_and_strangers_see_nothing_of_it(tmp_path: Path, fetcher: str, flags: object) -> None:
    server, mine, store = Members(), tmp_path / "mine", tmp_path / "store"
    mine.mkdir()
    given = (*flags(mine), "--connect-to", f"::127.0.0.1:{server.port}", "-s", f"fetcher={fetcher}")  # type: ignore[operator]
    log = tmp_path / "log"
    first = run(store, "http://a.example/", *QUICK, *given, "--max-pages", "1", "--log-file", str(log))
    lift_limit(store)
    again = run(store, "http://a.example/", *given, "--log-file", str(log), "-vv")
    server.close()
    assert (first[0], again[0]) == (4, 0), first[1] + again[1]
    failed = [path.read_text() for path in (store / "errs").glob("*/[!.]*")]
    assert failed == [] and len(list((store / "htmls/a.example").iterdir())) == 2
    assert server.told() == {"a.example"}
    assert any("Host: b.example" in head for head in server.heads), "the redirect was followed"
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    kept = [path.read_bytes() for path in (log, *store.rglob("*")) if path.is_file()]
    for secret in (SECRET, NEW, basic):
        assert secret not in first[1] + again[1]
        assert not any(secret.encode() in data for data in kept), "not even what a member's host gave"


def test_a_cookie_for_a_domain_goes_to_the_hosts_below_it(tmp_path: Path) -> None:
    server = Members()
    flags = (*cookies(tmp_path, ".a.example", "TRUE"), "--connect-to", f"::127.0.0.1:{server.port}")
    assert run(tmp_path / "store", "http://a.example/", *QUICK, *flags)[0] == 0
    server.close()
    assert server.told() == {"a.example", "www.a.example"}


def test_without_the_url_a_login_is_not_sent_by_http_and_the_run_says_so(tmp_path: Path) -> None:
    server, store = Members(), tmp_path / "store"
    flags = (*netrc(tmp_path), "--connect-to", f"::127.0.0.1:{server.port}")
    assert run(store, "http://a.example/", *QUICK, *flags, "--max-pages", "1")[0] == 4
    lift_limit(store)
    server.heads.clear()
    _, printed = run(store, *flags)
    server.close()
    assert server.told() == set()
    assert "the login of --netrc is sent by https only, so not to http://a.example" in printed


@pytest.mark.parametrize("flag", ["--cookies", "--netrc"])
@pytest.mark.parametrize(
    ("mode", "text", "why"),
    [
        (0o644, "x", "has mode 0644, but only you may read it; run `chmod 600"),
        (0o600, f"nonsense {SECRET}", "line 1: "),
        (None, "", "cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, flag: str, mode: int | None, text: str, why: str) -> None:
    path = tmp_path / "file"
    if mode is not None:
        own(path, text, mode)
    code, printed = run(tmp_path / "store", "http://127.0.0.1:9/", flag, str(path))
    assert code == 2 and len(printed.splitlines()) == 1 and str(path) in printed, printed
    assert why in printed and SECRET not in printed
    assert not (tmp_path / "store").exists()


def test_flags_that_contradict_the_store_or_each_other_are_one_sentence(tmp_path: Path) -> None:
    code, printed = run(tmp_path / "store", "http://127.0.0.1:9/", "-s", "cookies=false", *cookies(tmp_path))
    assert code == 2 and "cookies: false" in printed and len(printed.splitlines()) == 1
    code, printed = run(tmp_path / "store", "--netrc", "http://127.0.0.1:9/")
    assert code == 2 and "--netrc takes a file, not a URL" in printed and len(printed.splitlines()) == 1


def test_without_a_file_netrc_is_the_one_in_your_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    code, printed = run(tmp_path / "store", "http://127.0.0.1:9/", "--netrc")
    assert code == 2 and f"the netrc file {tmp_path}/.netrc cannot be read" in printed
