"""A mount whose server is gone answers each call with ENOTCONN: every command says so in a sentence, exit code 5."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from lab.marks import later
from lab.webs import TreeWeb
from lab.world import COMMAND, LONG, end, wait_for, wait_for_line, world

from crawler.commands.main import COMMANDS, parsers
from crawler.errors import OVER, STORE

TOKEN = "0123456789abcdef"

URL = "http://a.example/"
RULES = "columns: {title: title}\n"
GIVEN = {
    "shell": "bash",
    "topic": "store",
    "pages": "1000",
    "pairs": "delay=2s",
}  # what stands for an argument that is no URL


class BindMount:
    """A folder that is mounted once more by a process, which can be killed."""

    def __init__(self, folder: Path) -> None:
        self.real, self.point = folder / "real", folder / "mounted"
        self.real.mkdir(exist_ok=True)
        self.point.mkdir(exist_ok=True)
        self.mount()

    def mount(self) -> None:
        """Mount it, or mount it again."""
        self.server = subprocess.Popen(["bindfs", "-f", self.real, self.point])
        wait_for(lambda: self.point.is_mount() or self.server.poll() is not None)

    def kill(self) -> None:
        """Kill the process: from now on all calls fail with ENOTCONN."""
        self.server.kill()
        self.server.wait()

    def unmount(self) -> None:
        """Leave the empty folder."""
        subprocess.run(["umount", "-l", self.point], check=True)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[BindMount]:
    """Such a mount."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is not here")
    found = BindMount(tmp_path)
    if found.server.poll() is not None:
        pytest.skip("bindfs cannot mount here")
    yield found
    found.kill()
    found.unmount()


def call(*args: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, timeout=LONG, check=False, stdin=subprocess.DEVNULL
    )


def is_sentence(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a command printed that one sentence, and nothing else."""
    pattern = r"crawler: .*Transport endpoint is not connected.*; is the mount still there\?\n"
    return done.stdout == "" and re.fullmatch(pattern, done.stderr) is not None


def arguments(command: argparse.ArgumentParser, store: Path, rules: Path) -> list[str]:
    """All arguments of a command, from its parser: so that a new command is tested too."""
    known = GIVEN | {"store": str(store), "rules": str(rules), "out": str(store.parent / "out.jsonl")}
    actions = command._actions
    needed = [act for act in actions if act.required or not act.option_strings or act.dest == "store"]
    return [
        word
        for action in needed
        for word in [*action.option_strings[-1:], known.get(action.dest, URL)]
        if action.dest != "hosts"
    ]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "compare"])  # which has stores of its own
def test_each_command_says_in_a_sentence_that_the_mount_is_gone(tmp_path: Path, mounted: BindMount, name: str) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    command = parsers([name])[name]
    args = [name, *arguments(command, mounted.point / "store", rules)]
    has_store = any(action.dest == "store" for action in command._actions)
    mounted.kill()
    for more in [[], ["--json"]] if "--json" in command._option_string_actions else [[]]:
        done = call(*args, *more)
        assert "Traceback" not in done.stderr
        assert done.returncode == (STORE if has_store else OVER), done.stderr
        assert is_sentence(done) == has_store, done.stdout + done.stderr


@pytest.mark.parametrize("form", ["out.jsonl", *later("out.csv", "out.sqlite", "out.warc.gz")])
def test_an_export_to_a_mount_that_is_gone_says_so(crawled: Path, mounted: BindMount, form: str) -> None:
    mounted.kill()
    done = call("export", str(crawled), str(mounted.point / form))
    assert done.returncode == STORE, done.stderr
    assert is_sentence(done), done.stdout + done.stderr


def test_the_folder_that_a_command_is_started_in_may_be_gone(mounted: BindMount) -> None:
    script = "import os, sys; os.chdir(sys.argv[1]); input(); os.execv(sys.executable, sys.argv[2:])"
    args = [sys.executable, "-c", script, str(mounted.point), *COMMAND[:1], "-P", *COMMAND[1:], "run", "store", URL]
    pipe = subprocess.PIPE
    process = subprocess.Popen(args, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    wait_for(lambda: Path(f"/proc/{process.pid}/cwd").readlink() == mounted.point)
    mounted.kill()
    _, said = process.communicate("\n", timeout=LONG)
    assert process.returncode == STORE, said
    assert said.count("\n") == 1 and "Transport endpoint is not connected" in said


def test_serve_tells_its_visitors_that_the_mount_is_gone_and_comes_back_with_it(
    crawled: Path, mounted: BindMount
) -> None:
    shutil.move(crawled, mounted.real / "store")
    args = [*COMMAND, "serve", str(mounted.point / "store"), "--port", "0"]
    process = subprocess.Popen(
        args, env={**os.environ, "CRAWLER_TOKEN": TOKEN}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        address = wait_for_line(process, "serving").partition(" at ")[2].partition(" ")[0].partition("?")[0]
        mounted.kill()
        wait_for(lambda: "Transport endpoint is not connected" in get(f"{address}api/now").get("error", ""))
        mounted.unmount()
        mounted.mount()
        wait_for(lambda: "pages" in get(f"{address}api/now"))
    finally:
        process.terminate()
        printed, _ = process.communicate()
    assert "Traceback" not in printed
    assert process.returncode == OVER


def get(url: str) -> dict[str, str]:
    """What `serve` answers, as JSON."""
    try:
        asked = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        with urlopen(asked, timeout=LONG) as response:
            found: dict[str, str] = json.load(response)
    except HTTPError as error:
        assert error.code == 503
        found = json.load(error)
    return found


@pytest.mark.fleet  # for time
def test_a_run_whose_mount_dies_pauses_and_loses_nothing(tmp_path: Path, mounted: BindMount) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=3, delay=0.1), tmp_path) as w:
        w.root = mounted.point / "store"
        process = w.start(*w.web.seeds())
        w.until(8)
        mounted.kill()
        line = wait_for_line(process, "pausing: ")
        assert "Transport endpoint is not connected" in line
        process.terminate()
        end(process, 3)
        mounted.unmount()
        mounted.mount()
        w.run()
        assert w.differences() == []
