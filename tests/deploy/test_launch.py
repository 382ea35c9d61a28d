"""deploy/launch: the crawler on several hosts over real ssh, and what it says of those where it cannot be started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab.machines.fleet import Fleet, fleet
from lab.machines.ssh_hosts import LAUNCH, Hosts
from lab.machines.storm import SlowTree
from lab.webs import TreeWeb
from lab.world import COMMAND, is_dead, wait_for

from crawler.commands.demo.web import Web
from crawler.settings.settings import parse

FLAGS = ["-j", "1", "-t", "4", "-w", "0.01", "-s", "heartbeat=0.5", "-s", "durable=false"]
Ready = Callable[..., tuple[Hosts, Fleet]]


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Ready]:
    """Hosts, and a web for them to crawl."""
    with ExitStack() as stack:

        def prepare(web: Web, **how: object) -> tuple[Hosts, Fleet]:
            if reason := Hosts.skip_reason():
                pytest.skip(f"no hosts to reach by ssh: {reason}")
            hosts = stack.enter_context(Hosts(tmp_path, **how))  # type: ignore[arg-type]
            return hosts, stack.enter_context(fleet(web, hosts))

        yield prepare


def crawl_of(f: Fleet) -> list[str]:
    """The URLs and flags of a crawl of this web."""
    place = ["--connect-to", f"::{f.mount.web_host}:{f.port}", "-s", "max_per_address=null", "-s", "scope=any"]
    return [*f.web.seeds(), *FLAGS, *place]


def outcome(said: str, host: str) -> str:
    """The line of a host."""
    (line,) = re.findall(rf"^{host} +(.*)$", said, re.MULTILINE)
    return str(line)


def wait_for_the_end(hosts: Hosts, f: Fleet) -> None:
    pids = [pid for machine in range(hosts.machines) for pid in hosts.pids(machine)]
    assert len(pids) == hosts.machines
    wait_for(lambda: all(map(is_dead, pids)))
    assert f.differences() == []
    assert f.again() == {}


@pytest.mark.fleet
def test_three_hosts_are_started_once_share_a_crawl_and_end_with_it(ready: Ready, tmp_path: Path) -> None:
    web = SlowTree(hosts=24, fanout=6, depth=3).slow_down(tmp_path / "brake", 0.5)
    hosts, f = ready(web)
    names, store = hosts.hostfile("m0", "", "m1 # the second", "# m9", "  m2  -j 2\r"), str(hosts.mnt / "store")

    with ThreadPoolExecutor(2) as pool:  # two operators at the same moment
        both = list(pool.map(lambda _: hosts.launch(names, store, *crawl_of(f)), range(2)))
    assert all("up on 3 of 3 hosts" in said for said in both)
    for host in ("m0", "m1", "m2"):
        assert sorted(outcome(said, host).partition(",")[0] for said in both) == ["up", "up already"]
    f.wait(lambda: len(set(f.owners().values()) - {"free"}) == 4, "shares for all, two of them on m2")
    pids = [hosts.pids(machine) for machine in range(3)]
    assert len(f.counters()) == 4

    said = hosts.launch(names, store, *crawl_of(f))
    assert [outcome(said, host)[:19] for host in ("m0", "m1", "m2")] == ["up already, process"] * 3
    assert pids == [hosts.pids(machine) for machine in range(3)]

    said = hosts.launch("status", names, store)
    assert all(f"process {pid}" in outcome(said, f"m{machine}") for machine, (pid,) in enumerate(pids))
    assert re.search(r"^machines +3$", said, re.MULTILINE)
    assert re.search(r"^workers +4$", said, re.MULTILINE)

    web.brake.unlink()
    wait_for_the_end(hosts, f)
    said = hosts.launch("status", names, store, code=1)
    assert all("not running: the crawl is over" in outcome(said, host) for host in ("m0", "m1", "m2"))


@pytest.mark.fleet
def test_stop_ends_the_hosts_it_is_given_and_all_their_shards_are_free_again(ready: Ready, tmp_path: Path) -> None:
    web = SlowTree(hosts=24, fanout=6, depth=3).slow_down(tmp_path / "brake", 0.5)
    hosts, f = ready(web)
    store = str(hosts.mnt / "store")
    hosts.launch(hosts.hostfile("m0", "m1", "m2"), store, *crawl_of(f))
    f.wait(lambda: len(set(f.owners().values()) - {"free"}) == 3, "shares for all")

    said = hosts.launch("stop", hosts.hostfile("m2"), store)
    assert outcome(said, "m2").startswith("ended: stopped with work left")
    f.wait(lambda: len(set(f.owners().values()) - {"free"}) == 2, "the others go on with all of it")

    said = hosts.launch("stop", hosts.hostfile("m0", "m1", "m2"), store)
    ends = [outcome(said, host) for host in ("m0", "m1", "m2")]
    assert [end.partition(" with work left")[0] for end in ends] == [*["ended: stopped"] * 2, "not running: stopped"]
    assert f.counters() == {}
    assert set(f.owners().values()) == {"free"}

    web.brake.unlink()
    assert "up on 3 of 3 hosts" in hosts.launch(hosts.hostfile("m0", "m1", "m2"), store, *crawl_of(f))
    wait_for_the_end(hosts, f)


@pytest.mark.fleet
def test_a_host_whose_crawler_was_killed_is_seen_to_be_down_and_started_again(ready: Ready, tmp_path: Path) -> None:
    web = SlowTree(hosts=24, fanout=6, depth=3).slow_down(tmp_path / "brake", 0.5)
    hosts, f = ready(web)
    names, store = hosts.hostfile("m0", "m1"), str(hosts.mnt / "store")
    hosts.launch(names, store, *crawl_of(f))
    (killed,) = hosts.pids(0)
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: is_dead(killed))

    said = hosts.launch("status", names, store, code=1)
    assert outcome(said, "m0").startswith("not running")
    assert outcome(said, "m1").startswith("up for")
    said = hosts.launch(names, store, *crawl_of(f))
    assert outcome(said, "m0").startswith("up, process")
    assert outcome(said, "m1").startswith("up already")
    hosts.launch("stop", names, store)


@pytest.mark.fleet
def test_a_host_that_is_away_or_lacks_the_mount_or_the_command_is_named_and_the_others_go_on(ready: Ready) -> None:
    hosts, f = ready(TreeWeb(hosts=24, fanout=6, depth=3, delay=0.1), bare=[1])
    for machine in (0, 1):
        program = hosts.home(machine) / "crawler"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
    store = str(hosts.mnt / "store")
    names = hosts.hostfile("away", "silent", "m2", "m0")
    said = hosts.launch(names, store, *crawl_of(f), code=1, command="~/crawler")
    assert re.match("unreachable: .*No route to host", outcome(said, "away"))
    assert re.match("unreachable: .*timed out", outcome(said, "silent"))
    assert outcome(said, "m2").startswith("not up: no command '~/crawler' there")
    assert outcome(said, "m0").startswith("up, process")
    assert "up on 1 of 4 hosts" in said

    said = hosts.launch(hosts.hostfile("m1", "m0"), store, *crawl_of(f), code=1, command="~/crawler")
    assert outcome(said, "m1").startswith(f"not up: crawler: {store} does not exist; is the mount there?")
    assert outcome(said, "m0").startswith("up")
    assert list(hosts.mnt.iterdir()) == [], "no crawl was begun on the disk below the missing mount"
    hosts.launch("stop", hosts.hostfile("m0"), store)


ODD = """it's; a "$HOME" & (crawl) *\\ `id` ~ %q #1 {a,b}"""


@pytest.mark.fleet
def test_words_reach_the_crawler_as_they_were_typed_whatever_shell_people_have_on_a_host(ready: Ready) -> None:
    shells = ("fish", "tcsh", "bash")
    if absent := [shell for shell in shells if not shutil.which(shell)]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    hosts, f = ready(TreeWeb(hosts=24, fanout=6, depth=3), shells=shells)
    for machine, name in enumerate((".config/fish/config.fish", ".cshrc", ".bashrc")):
        path = hosts.home(machine) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("echo welcome\n")
    names, store = hosts.hostfile("m0", "m1", "m2"), hosts.mnt / f"{ODD} é"
    f.root = hosts.real / store.name

    agent = f"bot/1 ({ODD} +https://example.org/)"
    seed = "http://tree-000.example/?a=1&b=$HOME;`id`'(x)*"
    said = hosts.launch(names, f"{store}/", *crawl_of(f), seed, "-U", agent, "--exclude", ODD)
    assert "up on 3 of 3 hosts" in said
    wait_for(lambda: all(is_dead(pid) for machine in range(3) for pid in hosts.pids(machine)))
    settings = parse((f.root / "crawl.yaml").read_text(), "crawl.yaml")
    assert (settings["user_agent"], settings["exclude"]) == (agent, (ODD,))
    assert seed.partition("'")[0] in "".join(path.read_text() for path in (f.root / "seeds").iterdir())
    assert [path.name for path in hosts.real.iterdir()] == [store.name]
    assert {"welcome" in hosts.logs(machine) for machine in range(3)} == {False}
    assert all("the crawl is over" in hosts.logs(machine) for machine in range(3))


FOUND_NOTHING = """#!/bin/sh
echo "$1" >>~/calls
[ "$1" = status ] || { echo "the crawl is over, but has no page"; exit 7; }
[ -e ~/store ] || { touch ~/store; exit 5; }
"""


@pytest.mark.fleet
@pytest.mark.parametrize("is_there", [True, False])
def test_a_host_whose_crawl_is_over_without_a_page_has_seen_the_store_and_no_other_begins_one(
    ready: Ready, is_there: bool
) -> None:
    hosts, _ = ready(TreeWeb())
    for machine in (0, 1):
        program = hosts.home(machine) / "crawler"
        program.write_text(FOUND_NOTHING)
        program.chmod(0o755)
    if is_there:
        (hosts.home(0) / "store").touch()
    names, store = hosts.hostfile(*(("m1", "m0") if is_there else ("m0", "m1"))), str(hosts.mnt / "store")
    said = hosts.launch(names, store, "http://a.example/", code=1, command="~/crawler")
    assert [outcome(said, host) for host in ("m0", "m1")] == ["not up: the crawl is over, but has no page"] * 2
    calls = (hosts.home(1) / "calls").read_text().split()
    assert calls == ["status", "status", "run"], "it sees the store a moment later, and begins no crawl of its own"


@pytest.mark.fleet
def test_what_no_host_can_begin_is_said_once(ready: Ready) -> None:
    hosts, _ = ready(TreeWeb())
    names, store = hosts.hostfile("m0", "m1"), str(hosts.mnt / "store")
    said = hosts.launch(names, store, code=2)
    assert "launch: m0 is not up: crawler: " in said
    assert said.count("is not a store yet; give at least one URL") == 1
    assert "unknown option --no-such-flag" in hosts.launch(names, store, "http://a.example/", "--no-such-flag", code=2)
    assert outcome(hosts.launch("stop", names, store), "m0").startswith(
        "not running: crawler: unknown option --no-such-flag"
    )
    assert outcome(hosts.launch("status", names, f"{store}-2", code=1), "m1") == (
        "not running: it was never started from here"
    )


# ---- what needs no host


@pytest.mark.parametrize(
    ("hosts", "args", "said"),
    [
        ("a", [], "usage: deploy/launch"),
        ("a", ["HOSTS"], "usage: deploy/launch"),
        ("a", ["status", "HOSTS"], "usage: deploy/launch"),
        ("a", ["stop", "HOSTS", "/mnt/crawl", "http://a.example/"], "stop takes a host file and a store, and nothing"),
        ("a", ["HOSTS", "crawl"], "the store must be a path from the root, such as /mnt/shared/crawl, not crawl"),
        ("a", ["HOSTS", "/"], "the store must be a path from the root"),
        ("a", ["HOSTS", "http://a.example/"], "the store must be a path from the root"),
        ("a", ["HOSTS-2", "/mnt/crawl"], "cannot be read; name a file with one host a line"),
        ("a", ["/", "/mnt/crawl"], "cannot be read; name a file with one host a line"),
        ("", ["HOSTS", "/mnt/crawl"], "names no host; write one a line"),
        ("# a\n\n  \n", ["HOSTS", "/mnt/crawl"], "names no host; write one a line"),
        ("a\n-oProxyCommand=id", ["HOSTS", "/mnt/crawl"], "'-oProxyCommand=id' is a flag, not a host"),
        ("a\nb\na -j 2", ["HOSTS", "/mnt/crawl"], "a is there twice"),
    ],
)
def test_a_wrong_command_gets_one_sentence_and_no_host_is_asked(
    tmp_path: Path, hosts: str, args: list[str], said: str
) -> None:
    (tmp_path / "hosts").write_text(hosts)
    (tmp_path / "ssh").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / "ssh").chmod(0o755)
    done = subprocess.run(
        [LAUNCH, *(word.replace("HOSTS", str(tmp_path / "hosts")) for word in args)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("launch: ")
    assert said in done.stderr
    assert not (tmp_path / "asked").exists()


def test_help_is_what_the_script_says_of_itself() -> None:
    shown = subprocess.run([LAUNCH, "--help"], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("One `crawler run` on each of many machines")
    assert shown.splitlines()[-1].startswith("Exit code: 0 all hosts")


def test_shellcheck_has_no_complaint() -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not here")
    done = subprocess.run(["shellcheck", LAUNCH], capture_output=True, text=True, check=False)
    assert done.stdout == ""
