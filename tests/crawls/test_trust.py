"""Whom a machine trusts is what its own operator said: not what somebody wrote into the store."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from lab.hostile import Server, whole
from lab.marks import later
from lab.world import COMMAND, LONG, crawler

from crawler.commands.run import _retry_private
from crawler.errors import NOTHING
from crawler.fetch.trust import Trust
from crawler.fleet.heartbeats import END, Heartbeat
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import to_json
from crawler.store.store import Store
from crawler.store.writer import StoreWriter

SECRET = "S3CR3T"
QUICK = ["-w", "0.01", "-j", "1", "-s", "retries=0", "--no-robots", "-s", "dead_after=2m"]
FETCHERS = ["curl", *later("requests")]


class Same(Server):
    """A server with one page at all paths of all hosts."""

    page = whole(b"<a href=http://b.example/>b</a><a href=http://c.example/>c</a>")

    def answer(self, sock: socket.socket, head: str) -> bool:
        sock.sendall(self.page)
        return True


def run(root: Path, *args: str, code: int = 0) -> str:
    """`crawler run STORE` with these arguments; all that it printed."""
    command = [*COMMAND, "run", str(root), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def reasons(root: Path) -> dict[str, str]:
    """The URLs with a failure record, and why."""
    found = [json.loads(path.read_bytes()) for path in (root / "errs").glob("*/[!.]*")]
    return {failure["url"]: failure["reason"] for failure in found}


def told(server: Server) -> dict[str, bool]:
    """The hosts that were requested, and whether the secret was sent to them."""
    found: dict[str, bool] = {}
    for head in server.heads:
        host = head.lower().split("host: ")[1].split("\r\n")[0]
        found[host] = found.get(host, False) or SECRET in head
    return found


def to(server: Server, *hosts: str) -> list[str]:
    """The flags that lead these hosts, and no others, to a server."""
    return [word for host in hosts for word in ("--connect-to", f"{host}:80:127.0.0.1:{server.port}")]


@pytest.mark.parametrize("fetcher", FETCHERS)
def test_a_seed_that_somebody_wrote_into_the_store_gets_no_secret_and_no_private_address(
    tmp_path: Path, fetcher: str
) -> None:
    server, root = Same(), tmp_path / "store"
    flags = [*QUICK, "--scope", "host", "-s", f"fetcher={fetcher}", *to(server, "a.example", "evil.example")]
    command = ["http://a.example/", "-H", f"Authorization: Bearer {SECRET}", *flags]
    run(root, *command)
    inside, metadata = f"http://127.0.0.1:{server.port}/", "http://169.254.169.254/latest/"
    said = crawler("add", str(root), "http://evil.example/", inside, metadata)
    assert f"{inside} is on a private network" in said
    run(root, *command)
    server.close()
    assert told(server) == {"a.example": True, "evil.example": False}
    assert reasons(root) == {inside: "private-address", metadata: "private-address"}
    assert not [path for path in root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_settings_that_somebody_wrote_into_the_store_lead_no_request_elsewhere(tmp_path: Path) -> None:
    server, root = Same(), tmp_path / "store"
    command = ["http://a.example/", *QUICK, "--scope", "page", *to(server, "a.example")]
    run(root, *command)
    good = (root / "crawl.yaml").read_text()
    for line in (
        f"connect_to: ['::127.0.0.1:{server.port}']",
        f"proxy: http://me:{SECRET}@127.0.0.1:{server.port}",
        "allow_private: true",
        f"headers: ['Accept: */*', 'Cookie: {SECRET}']",
    ):
        name = line.partition(":")[0]
        others = [kept for kept in good.splitlines() if not kept.startswith(f"{name}:")]
        (root / "crawl.yaml").write_text("\n".join([*others, line]) + "\n")
        said = run(root, "http://a.example/2", *command, code=2)
        assert said.count("\n") == 1 and SECRET not in said
        assert name in said and "remove" in said and "--secrets FILE" in said
        assert "must not hold it" in crawler("status", str(root)), "readers say so, too"
    server.close()
    assert len(server.heads) == 1


def test_an_old_crawl_yaml_whose_lines_allow_nothing_is_used_as_it_is(tmp_path: Path) -> None:
    server, root = Same(), tmp_path / "store"
    command = ["http://a.example/", *QUICK, "--scope", "page", *to(server, "a.example")]
    run(root, *command)
    with (root / "crawl.yaml").open("a") as file:
        file.write("proxy: null\nconnect_to: []\nallow_private: false\n")
    run(root, *command)
    server.close()


def secrets_file(folder: Path, text: str) -> str:
    """A file of secrets that only we can read."""
    path = folder / "secrets.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize("by", ["flag", "environment"])
def test_a_secrets_file_gives_each_host_its_own_headers_without_the_seeds_named_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    server, root = Same(), tmp_path / "store"
    flags = [*QUICK, "--scope", "any", *to(server, "a.example", "b.example", "c.example")]
    run(root, "http://a.example/", *flags, "--exclude", "[bc].example")
    settings = (root / "crawl.yaml").read_text()
    (root / "crawl.yaml").write_text(settings.replace("exclude: ['[bc].example']", "exclude: []"))
    shutil.rmtree(root / "frontier")  # so that the links count by the new settings
    lines = f"headers:\n  http://b.example: ['X-Key: {SECRET}']\n  c.example: ['X-Key: {SECRET}']\n"
    file = secrets_file(tmp_path, lines)
    monkeypatch.setenv("CRAWLER_SECRETS", file if by == "environment" else "/nowhere")
    run(root, *flags, *(["--secrets", file] if by == "flag" else []))
    server.close()
    assert told(server) == {"a.example": False, "b.example": True, "c.example": False}, "c.example only by https"


@pytest.mark.fleet  # for time
def test_private_hosts_are_allowed_by_the_machine_that_names_them(tmp_path: Path) -> None:
    server, root = Same(), tmp_path / "store"
    seed = f"http://127.0.0.1:{server.port}/"
    assert "requests nothing on private networks" not in run(root, seed, *QUICK, "--scope", "page")
    assert len(server.heads) == 1
    crawler("add", str(root), f"{seed}2")
    said = run(root)
    assert f"requests nothing on private networks (127.0.0.1:{server.port} ...)" in said
    assert reasons(root) == {f"{seed}2": "private-address"}
    # Without a word about retrying: the machine is told to request what others were not.
    run(root, "--secrets", secrets_file(tmp_path, f"allow_private: ['127.0.0.1:{server.port}']"))
    crawler("add", str(root), f"{seed}3")
    run(root, "--allow-private")
    server.close()
    assert len(server.heads) == 3 and not reasons(root)


def test_failures_are_not_read_to_find_private_hosts_to_retry_where_none_was_excluded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network of one's own each start would read all of them: 200 s for 100,000 on sshfs."""
    host, read = "intranet.localhost", Counter[str | None]()
    store = StoreWriter(tmp_path / "store", Files(tmp_path / "store", "me", durable=False))
    (tmp_path / "store").mkdir()
    store.make(Settings())
    monkeypatch.setattr(Store, "failures", lambda self, host=None: read.update([host]) or iter(()))
    for counted, times in ((None, 1), ("http-404", 1), ("private-address", 2)):  # the first: workers/ was lost
        if counted:
            facts = {"id": "ended", "reasons": {counted: 3}}
            store.files.put(Heartbeat("ended", 1, END).name, to_json(facts))
        assert not list(_retry_private(tmp_path / "store", Settings(), Trust(private=frozenset({host})), ()))
        assert read[host] == times


METADATA = """
ip link set lo up; ip address add 169.254.169.254/32 dev lo
exec "$0" - "$@" <<'END'
import socket, subprocess, sys
listener = socket.create_server(("169.254.169.254", 80))
root, command = sys.argv[1], [sys.executable, "-m", "crawler"]
for flags in (["--allow-private"], ["--allow-metadata"]):
    run = [*command, "run", root, "http://169.254.169.254/", "-j", "1", "--no-robots", "-T", "2", "-s", "retries=0"]
    assert subprocess.run([*run, *flags]).returncode == 7  # nothing was brought
    listener.settimeout(0)
    try:
        print(flags, "connected", bool(listener.accept()))
    except OSError:
        print(flags, "not connected")
    subprocess.run([*command, "retry", root], check=True)
END
"""


def test_a_metadata_address_is_requested_only_with_its_own_flag(tmp_path: Path) -> None:
    command = ["unshare", "--net", "sh", "-c", METADATA, sys.executable, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    assert "['--allow-private'] not connected\n" in done.stdout, done.stdout + done.stderr
    assert "['--allow-metadata'] connected" in done.stdout, done.stdout + done.stderr


# ---- the file of secrets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("headers: x", "must be a mapping"),
        (f"headers: {{a.example: 'no colon {SECRET}'}}", "Name: value"),
        (f"headers: {{a.example/path: 'X-Key: {SECRET}'}}", "must be a host"),
        (f"proxi: http://me:{SECRET}@x:1", "did you mean 'proxy'?"),
        (f"proxy: me:{SECRET}", "the proxy is not of the form"),
        ("connect_to: here", "HOST:PORT:ADDR:PORT"),
        ("allow_private: 5", "true, false or a list of hosts"),
        ("allow_metadata: perhaps", "true or false"),
        (f"- {SECRET}", "must have lines"),
        (f"a: [{SECRET}", "not valid YAML"),
    ],
)
def test_a_wrong_line_of_a_secrets_file_is_one_sentence_without_the_secret(
    tmp_path: Path, text: str, words: str
) -> None:
    said = run(tmp_path / "store", "http://a.example/", "--secrets", secrets_file(tmp_path, text), code=2)
    assert words in said and str(tmp_path) in said
    assert SECRET not in said and said.count("\n") == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("mode", [0o644, *later(0o640, 0o660, 0o604)])
def test_a_secrets_file_that_others_can_read_is_not_used(tmp_path: Path, mode: int) -> None:
    file = secrets_file(tmp_path, "allow_private: true")
    Path(file).chmod(mode)
    said = run(tmp_path / "store", "http://a.example/", "--secrets", file, code=2)
    assert f"mode {mode:04o}" in said and f"chmod 600 {file}" in said


def test_a_secrets_file_of_another_user_is_not_used(tmp_path: Path) -> None:
    file = secrets_file(tmp_path, "allow_private: true")
    shutil.chown(file, 12345)
    assert "belongs to another user" in run(tmp_path / "store", "http://a.example/", "--secrets", file, code=2)


def test_a_secret_header_without_a_host_to_send_it_to_is_a_mistake(tmp_path: Path) -> None:
    root = tmp_path / "store"
    run(root, "http://127.0.0.1:9/", *QUICK, code=NOTHING)
    said = run(root, "-H", f"X-Key: {SECRET}", code=2)
    assert "X-Key: no host to send it to" in said and SECRET not in said


def test_headers_of_the_command_line_are_added_to_those_of_the_file(tmp_path: Path) -> None:
    server, root = Same(), tmp_path / "store"
    file = secrets_file(tmp_path, "headers: {'http://a.example': 'X-File: 1'}")
    flags = [*QUICK, "--scope", "page", "-H", "X-Flag: 2", "-H", "DNT: 1", *to(server, "a.example")]
    run(root, "http://a.example/", "--secrets", file, *flags)
    server.close()
    (head,) = server.heads
    assert "X-File: 1\r\n" in head and "X-Flag: 2" in head and "DNT: 1\r\n" in head
    assert "headers: ['DNT: 1']" in (root / "crawl.yaml").read_text()
