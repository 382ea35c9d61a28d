"""crawler.pyz: one file on the mount that runs on nodes with nothing but a Python, however many start it at once."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import runpy
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from lab.pythons import BARE, DECLARED, OLDER, here, python
from lab.world import LONG, QUICK, end, wait_for, wait_for_line, world

from crawler import __version__, errors
from crawler.commands.demo.web import DemoWeb

TOP = Path(__file__).parents[2]
BUILD = runpy.run_path(str(TOP / "deploy/zipapp/build.py"))
OURS = BUILD["abi"](f"{sys.version_info[0]}.{sys.version_info[1]}", platform.machine())
FILES = 300

# A program of a few hundred files that tells where it is from: enough to see how it is unpacked.
PROGRAM = """
import crawler, multiprocessing, sys, time

def main():
    if "spawn" in sys.argv:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(crawler.met)
    print(crawler.__file__, *sys.argv[1:], flush=True)
    time.sleep(600 if "stay" in sys.argv else 0)
"""


class Node:
    """A machine with a disk of its own, a bare Python, and the one file that all machines share."""

    def __init__(self, file: Path, disk: Path, python: Path | str = sys.executable) -> None:
        self.file, self.disk, self.python = file, disk, python
        disk.mkdir(exist_ok=True)

    @property
    def place(self) -> Path:
        """Where programs are unpacked."""
        return self.disk / f"crawler-{os.getuid()}"

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start the program in the background, from a folder that has nothing to do with it."""
        command = [str(self.python), "-I", "-S", str(self.file), *map(str, words)]
        return subprocess.Popen(
            command,
            cwd="/",
            env=BARE | {"TMPDIR": str(self.disk)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: object, code: int = 0) -> str:
        """Run it to its end, which must be this exit code; what it printed."""
        return end(self.start(*words), code)

    def folders(self, pattern: str = "[!.]*") -> list[Path]:
        """The folders that programs were unpacked into."""
        return sorted(self.place.glob(pattern))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file as `make zipapp` makes it, with a small program in it."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("crawler/__init__.py", "def met(): print('met in another process', flush=True)\n")
        archive.writestr("crawler/__main__.py", PROGRAM)
        for number in range(FILES):
            archive.writestr(f"crawler/data/{number}", str(number))
    BUILD["write"](tmp_path / "crawler.pyz", {OURS: packed.getvalue()}, "this Python")
    return tmp_path / "crawler.pyz"


@pytest.fixture
def node(small: Path, tmp_path: Path) -> Node:
    return Node(small, tmp_path / "disk")


def test_it_is_unpacked_once_on_the_nodes_own_disk_and_found_there_ever_after(node: Node) -> None:
    first = node.run("a b", "spawn")
    (folder,) = node.folders()
    made = folder.stat().st_mtime_ns
    assert first == f"met in another process\n{folder}/crawler/__init__.py a b spawn\n"
    node.file.chmod(0o444)
    assert node.run("a b", "spawn") == first
    assert (node.folders(), folder.stat().st_mtime_ns) == ([folder], made)
    assert len(list((folder / "crawler/data").iterdir())) == FILES
    assert stat.S_IMODE(node.place.stat().st_mode) == 0o700


def test_of_many_that_start_at_the_same_moment_one_unpacks_and_all_run(node: Node) -> None:
    started = [node.start() for _ in range(8)]
    assert len({end(process) for process in started}) == 1
    assert len(node.folders()) == 1
    assert not node.folders(".*")


@pytest.mark.parametrize("taken", ["crawler/data/7", "crawler/__main__.py", ".list"])
def test_what_a_cleaner_of_tmp_took_is_there_again_after_the_next_start(node: Node, taken: str) -> None:
    printed = node.run()
    (folder,) = node.folders()
    (folder / taken).unlink()
    assert node.run() == printed
    assert (folder / taken).exists()
    assert node.folders("*") == [folder]


@pytest.mark.fleet
def test_systemds_cleaner_takes_nothing_from_a_program_that_runs(node: Node, tmp_path: Path) -> None:
    cleaner = shutil.which("systemd-tmpfiles")
    if not cleaner:
        pytest.skip("systemd-tmpfiles is not here, so its cleaning of /tmp is not tried")
    node.run()
    (folder,) = node.folders()
    rules = tmp_path / "rules.conf"
    rules.write_text(f"d {node.disk} 0755 - - 1s\n")

    def clean() -> None:
        time.sleep(1.5)  # what is older than a second goes
        subprocess.run([cleaner, "--clean", str(rules)], check=True)

    staying = node.start("stay")
    try:
        wait_for_line(staying, "stay")
        clean()
        assert (folder / "crawler/data/7").exists()
    finally:
        os.killpg(staying.pid, signal.SIGKILL)
        staying.communicate()
    clean()
    assert not (folder / "crawler/data/7").exists()


def forget(printed: str) -> None:
    """Remove what a program left in a place that is not the test's own, and which it has printed."""
    folder = Path(printed).parent.parent
    assert folder.parent.parent in (Path("/tmp"), Path("/var/tmp"))
    shutil.rmtree(folder)


def test_a_folder_that_others_could_have_filled_is_not_used(node: Node) -> None:
    node.place.mkdir()
    node.place.chmod(0o777)
    forget(node.run())
    assert not node.folders("*")


def apart() -> list[str]:
    """What a command begins with that may mount what it likes: nobody else sees it."""
    alone = ["unshare", "--mount", "--propagation", "private"]
    if os.geteuid() or subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("mounts of its own cannot be made here: it needs root and the right to unshare")
    return alone


def test_a_disk_that_runs_no_programs_is_left_for_another(node: Node) -> None:
    mount = 'mount -t tmpfs -o noexec tmpfs "$1" && shift && exec "$@"'
    command = [*apart(), "sh", "-c", mount, "sh", str(node.disk), sys.executable, str(node.file)]
    done = subprocess.run(command, env=BARE | {"TMPDIR": str(node.disk)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    forget(done.stdout)


def test_where_nothing_can_be_unpacked_a_sentence_says_so(small: Path) -> None:
    # Only what it would unpack into is full: this Python, its packages and the file may be below /tmp themselves.
    full = 'mkdir -p -m 700 "$disk/$0" && mount -t tmpfs -o size=64k,mode=700 tmpfs "$disk/$0" || exit'
    script = f'for disk in /tmp /var/tmp; do {full}; done; exec "$@"'
    command = [*apart(), "sh", "-c", script, f"crawler-{os.getuid()}", sys.executable, str(small)]
    done = subprocess.run(command, env=BARE, capture_output=True, text=True)
    assert done.returncode == errors.FULL, done.stderr
    assert done.stderr.startswith("crawler: cannot unpack the program ([Errno 28] No space left")
    assert done.stderr.count("\n") == 1
    assert "set TMPDIR to" in done.stderr


def test_a_file_that_was_copied_badly_says_so(node: Node) -> None:
    data = bytearray(node.file.read_bytes())
    place = data.index(b"crawler/data/7")
    data[place] ^= 1
    node.file.write_bytes(bytes(data))
    assert node.run(code=errors.USAGE) == f"crawler: {node.file} is damaged; copy it here again\n"
    assert not node.folders("*")


@pytest.mark.parametrize("version", [*here(OLDER), "none", "libc"])
def test_a_python_that_it_was_not_built_for_is_told_in_a_sentence(
    small: Path, tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == "none":
        BUILD["write"](small, {"cpython-399-x86_64-linux-gnu": b""}, "CPython 3.99")
    elif version == "libc":
        monkeypatch.setitem(BUILD["write"].__globals__, "GLIBC", (99, 1))
        BUILD["write"](small, {OURS: b""}, "glibc 99.1 or newer")
    command = [str(python(version) or sys.executable), str(small), "status"]
    done = subprocess.run(command, env=BARE | {"TMPDIR": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == errors.USAGE
    assert done.stderr.startswith("crawler: ")
    assert done.stderr.count("\n") == 1
    assert f" {small} --help" in done.stderr
    assert not list(tmp_path.glob("crawler-*"))


# ---- the real one


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel of ours")
    uv = [sys.executable, "-m", "uv", "build", "-q", "--wheel", "--out-dir", str(folder), str(TOP)]
    subprocess.run(uv, check=True, timeout=LONG)
    (made,) = folder.glob("*.whl")
    return made


@pytest.mark.fleet
@pytest.mark.parametrize("hashes", ["another's", "none"])
def test_a_package_without_its_hash_in_the_lock_stops_the_build(
    wheel: Path, tmp_path: Path, hashes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = (TOP / "requirements.lock").read_text("utf-8")
    before, idna, after = re.split(r"(^idna==.*\n(?: .*\n)+)", lock, flags=re.MULTILINE)
    changed = "" if hashes == "none" else re.sub("sha256:.{8}", "sha256:00000000", idna)
    (tmp_path / "changed.lock").write_text(before + changed + after)
    monkeypatch.setitem(BUILD["install"].__globals__, "LOCKS", [tmp_path / "changed.lock"])
    with pytest.raises(SystemExit, match=r"(?is)cannot install folder_crawler-.*hash.*idna"):
        BUILD["install"](wheel, "", tmp_path / "target", "3.11", f"{platform.machine()}-manylinux_2_28")


@pytest.fixture(scope="module")
def shared(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real file, built for all Pythons at once, in a folder that nobody writes to."""
    folder = tmp_path_factory.mktemp("shared")
    build = [sys.executable, str(TOP / "deploy/zipapp/build.py"), str(wheel), str(folder / "crawler.pyz")]
    more = ["--pythons", *DECLARED, "--extras", "zst,warc", "--machine", platform.machine()]
    subprocess.run([*build, *more], check=True, timeout=LONG)
    (folder / "crawler.pyz").chmod(0o555)
    folder.chmod(0o555)
    return folder / "crawler.pyz"


@pytest.fixture(scope="module")
def warm(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A node that has started it before."""
    made = Node(shared, tmp_path_factory.mktemp("node") / "disk")
    made.run("--version")
    return made


@pytest.mark.fleet
@pytest.mark.parametrize("version", here(DECLARED))
def test_a_bare_python_crawls_with_it(shared: Path, tmp_path: Path, version: str) -> None:
    node = Node(shared, tmp_path / "disk", python(version) or "")
    assert node.run("--version") == f"crawler {__version__}\n"
    printed = node.run("demo", tmp_path / "store", "--hosts", 5, "--pages", 40, "--workers", 2)
    assert "every page is there" in printed


@pytest.mark.fleet
def test_two_machines_that_start_it_at_the_same_moment_crawl_together_and_a_kill_while_unpacking_does_no_harm(
    shared: Path, tmp_path: Path
) -> None:
    nodes = [Node(shared, tmp_path / f"disk-{number}") for number in range(2)]
    with world(DemoWeb(hosts=20, pages=150, seed=5), tmp_path) as w:
        command = ["run", w.root, *w.web.seeds(), *w.flags, *w.everywhere, *QUICK]
        killed = nodes[0].start(*command)
        wait_for(lambda: list(nodes[0].place.glob(".*/crawler/*")))
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
        assert not nodes[0].folders()  # so it was in the middle
        w.started += [node.start(*command) for node in [*nodes, *nodes]]
        for process in w.started:
            end(process)
        assert not w.differences()
        found = json.loads(nodes[1].run("status", w.root, "--json"))
        assert found["waiting"] == 0
    for node in nodes:
        assert len(node.folders("*")) == 1  # nothing is left of the one that was killed


@pytest.mark.fleet
def test_it_runs_from_a_mount_that_is_read_only(shared: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && ! touch "$1" && exec "$@" --version'
    command = [*apart(), "sh", "-c", mount, "sh", str(shared.parent), str(shared)]
    done = subprocess.run(command, env=BARE | {"TMPDIR": str(tmp_path / "disk")}, capture_output=True, text=True)
    assert done.stdout == f"crawler {__version__}\n", done.stderr


@pytest.mark.fleet
def test_the_doctor_and_the_readers_of_a_store_work_from_it(warm: Node, crawled: Path, tmp_path: Path) -> None:
    assert warm.run("doctor", crawled, "--wait", "0").splitlines()[-1].startswith("fit")
    assert warm.run("check", crawled)
    assert "_crawler" in warm.run("completion", "bash")
    for name in ("out.jsonl.zst", "out.warc.gz", "out.csv"):
        warm.run("export", crawled, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    said = warm.run("export", crawled, tmp_path / "out.parquet", code=errors.USAGE)
    assert "EXTRAS" in said


@pytest.fixture
def served(warm: Node, crawled: Path) -> Iterator[str]:
    """The address of `crawler serve`."""
    process = warm.start("serve", crawled, "--port", 0)
    try:
        yield wait_for_line(process, "http://").split("http://")[1].split(" ")[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate()


@pytest.mark.fleet
def test_the_web_view_has_its_page_scripts_and_styles(served: str) -> None:
    place, _, token = served.partition("/?token=")
    for name in ("", "app.js", "app.css"):
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"http://{place}/{name}", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200
            assert len(answer.read()) > 500
