"""`crawler doctor`: a fit mount is called fit, an unfit one is found out, and nothing is harmed or left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from lab.webs import TreeWeb
from lab.world import COMMAND, Links, crawler, end, kill, processes, wait_for, world

from crawler.commands.demo.server import requested_twice
from crawler.commands.doctor import pairing
from crawler.commands.doctor.kinds import find_mount
from crawler.commands.doctor.pairing import Pair, Pairing

STOPPED, STORE, FULL = 3, 5, 6
SFTP = "/usr/lib/openssh/sftp-server"
ALONE = [
    *("mount", "space", "create", "mkdir", "rename", "names", "listing", "replace"),
    *("speed of put", "speed of rename", "speed of open", "speed of listing"),
]
BETWEEN = [
    *("create, between", "mkdir, between", "rename, between"),
    *("new names", "removed names", "cached listings", "new files", "replaced files", "clocks"),
]
TABLE = """\
1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:50 / /mnt/a\\040b rw - nfs4 server:/export rw
3 1 0:51 / /mnt/bucket rw - fuse.s3fs s3fs rw
4 1 0:52 / /mnt/aws rw,nosuid - fuse mountpoint-s3 rw
5 1 0:53 / /mnt/real rw - fuse.sshfs me@server:/srv rw
6 1 0:54 / /mnt/real rw shared:7 - fuse.goofys bucket rw
7 1 0:55 / /mnt/s3fs rw - ext4 /dev/s3fs rw
8 1 0:56 / /mnt/ceph rw - fuse.ceph-fuse ceph-fuse rw
"""


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """`crawler doctor` in the background."""
    command = [*COMMAND, "doctor", str(folder), "--json", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def result(process: subprocess.Popen[str], code: int = 0) -> dict[str, dict[str, Any]]:
    """What it found, by promise."""
    printed, said = process.communicate(timeout=300)
    assert process.returncode == code, f"exit code {process.returncode}, not {code}: {printed}{said}"
    assert "Traceback" not in said
    findings = [json.loads(line) for line in printed.splitlines()]
    assert all(list(finding) == ["promise", "verdict", "seen", "advice"] for finding in findings)
    assert all(bool(finding["advice"]) == (finding["verdict"] != "ok") for finding in findings), findings
    return {finding["promise"]: finding for finding in findings}


def complaint(folder: Path, code: int) -> str:
    """The one sentence of a doctor that can test nothing."""
    said = crawler("doctor", str(folder), code=code).strip()
    assert said.startswith("crawler: ") and len(said.splitlines()) == 1, said
    return said


def unfit(findings: dict[str, dict[str, Any]]) -> list[str]:
    return [promise for promise, finding in findings.items() if finding["verdict"] == "unfit"]


def child_of(process: subprocess.Popen[str]) -> int:
    """The process that runs the tests."""

    def children() -> list[int]:
        return [pid for pid, parent, *_ in processes() if parent == process.pid]

    wait_for(children, 60)
    return children()[0]


def is_testing(folder: Path) -> bool:
    return any((folder / ".doctor").glob("*@*"))


# ---- fit


def test_a_local_folder_is_fit_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    found = result(start(tmp_path, "--wait", "0"))
    assert list(found) == ALONE
    assert unfit(found) == []
    assert all(found[promise]["verdict"] == "ok" for promise in ("create", "mkdir", "rename", "names", "replace"))
    assert list(tmp_path.iterdir()) == []


def test_people_get_a_line_for_each_promise_and_a_last_word(tmp_path: Path) -> None:
    lines = crawler("doctor", str(tmp_path), "--wait", "0").splitlines()
    assert [line[7:26].strip() for line in lines[:-1]] == ALONE
    assert {line[:7].strip() for line in lines[:-1]} <= {"ok", "slow"}
    assert lines[-1].startswith("fit")


def test_two_doctors_at_once_find_each_other_and_test_between_them(tmp_path: Path) -> None:
    processes = [start(tmp_path, "--wait", "120s") for _ in range(2)]
    for process in processes:
        found = result(process)
        assert list(found) == ALONE + BETWEEN
        assert unfit(found) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fleet
def test_of_four_doctors_each_finds_one_partner(tmp_path: Path) -> None:
    doctors = [Pairing(str(tmp_path), lambda: None) for _ in range(4)]
    pairs: list[Pair | None] = []
    for doctor in doctors:
        doctor.enter()
    meetings = [threading.Thread(target=lambda doctor=doctor: pairs.append(doctor.meet(60))) for doctor in doctors]
    for meeting in meetings:
        meeting.start()
    for meeting in meetings:
        meeting.join(120)
    found = [pair for pair in pairs if pair]
    assert len(found) == 4
    assert {(pair.me, pair.other) for pair in found} == {(pair.other, pair.me) for pair in found}
    assert all(pair.leader == min(pair.me, pair.other) for pair in found)
    for doctor in doctors:
        doctor.leave()
    assert list(tmp_path.iterdir()) == []


def test_one_that_waits_in_vain_says_so(tmp_path: Path) -> None:
    process = start(tmp_path, "--wait", "1s")
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "run the same command on another machine within 1 second to test" in said
    assert "no other machine joined" in said
    assert [json.loads(line)["promise"] for line in printed.splitlines()] == ALONE


# ---- nothing is harmed


@pytest.mark.fleet  # for time
def test_a_running_crawl_is_not_disturbed(tmp_path: Path) -> None:
    with world(TreeWeb(hosts=3, fanout=3, depth=4, delay=0.1), tmp_path) as w:
        process = w.start(*w.web.seeds())
        w.until(5)
        assert unfit(result(start(w.root, "--wait", "0"))) == []
        end(process)
        assert w.differences() == []
        assert requested_twice(w.log) == {}
        assert not (w.root / ".doctor").exists()


@pytest.mark.fleet
def test_a_killed_doctor_does_no_harm_and_a_later_one_sweeps_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.root.mkdir()
        process = start(w.root, "--wait", "300s")
        tests = child_of(process)
        wait_for(lambda: is_testing(w.root), 120)
        process.kill()
        kill(tests)
        process.communicate()
        wait_for(lambda: not Path(f"/proc/{tests}").exists(), 60)
        left = list((w.root / ".doctor").iterdir())
        assert left
        w.crawl()  # also makes the store, in a folder that holds such leftovers
        assert w.differences() == []
        monkeypatch.setattr(pairing, "DEAD_AFTER", 2)
        later = Pairing(str(w.root), lambda: None)
        later.enter()
        time.sleep(2.1)  # nothing is waited for: this is how long the dead one must stand still
        later.leave()
        assert not (w.root / ".doctor").exists()


@pytest.mark.fleet
def test_a_living_doctor_is_not_swept_up(tmp_path: Path) -> None:
    living, later = Pairing(str(tmp_path), lambda: None), Pairing(str(tmp_path), lambda: None)
    living.enter()
    later.enter()
    wait_for(lambda: living.me in later.look(), 60)
    later.leave()
    assert (tmp_path / ".doctor" / living.me).is_dir()
    living.leave()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fleet
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_tests_do_not_live_on_without_the_command(tmp_path: Path, how: signal.Signals) -> None:
    process = start(tmp_path, "--wait", "300s")
    tests = child_of(process)
    wait_for(lambda: is_testing(tmp_path), 120)
    process.send_signal(how)
    process.communicate(timeout=120)
    wait_for(lambda: not Path(f"/proc/{tests}").exists(), 120)
    assert list(tmp_path.iterdir()) == [], "it tidied up first"


@pytest.mark.fleet
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, send: Callable[[int, int], None]) -> None:
    command = ["env", "--default-signal=INT", *COMMAND, "doctor", str(tmp_path)]  # whatever started this test ignores
    command += ["--wait", "300s"]  # it must not be over before the signal comes
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    wait_for(lambda: is_testing(tmp_path), 120)
    send(process.pid, signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == STOPPED
    wait_for(lambda: list(tmp_path.iterdir()) == [], 120)


@pytest.mark.fleet
def test_a_reader_that_has_read_enough_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(tmp_path, "--wait", "300s")
    assert process.stdout
    assert '"mount"' in process.stdout.readline()
    process.stdout.close()
    assert process.wait(120) == 0
    wait_for(lambda: list(tmp_path.iterdir()) == [], 120)


def test_a_link_in_place_of_the_pairing_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / ".doctor").symlink_to(tmp_path / "elsewhere")
    assert "is a symbolic link" in complaint(tmp_path / "store", STORE)
    assert list((tmp_path / "elsewhere").iterdir()) == []


# ---- nothing can be tested


def test_what_is_no_folder_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "does not exist; is the mount there?" in complaint(tmp_path / "gone", STORE)
    assert "is a file, not a folder" in complaint(tmp_path / "file", STORE)


@contextmanager
def mounted(folder: Path, *command: str) -> Iterator[Path]:
    """Mount something, if this machine can, until the test is over."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} is not installed")
    folder.mkdir()
    made = subprocess.run([*command, folder], capture_output=True, text=True, timeout=60, check=False)
    if made.returncode:
        pytest.skip(f"{command[0]} cannot mount here: {made.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_read_only_mount_gets_a_sentence(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "mount", "-t", "tmpfs", "-o", "ro", "none") as disk:
        said = complaint(disk, STORE)
        assert "Read-only file system" in said
        assert "permissions" in said


@pytest.mark.parametrize(("small", "named"), [("size=64m,nr_inodes=40", "inodes"), ("size=256k", "KB")])
def test_a_disk_that_is_too_small_is_named(tmp_path: Path, small: str, named: str) -> None:
    with mounted(tmp_path / "disk", "mount", "-t", "tmpfs", "-o", small, "none") as disk:
        said = complaint(disk, FULL)
        assert "not enough space" in said
        assert named in said
        assert list(disk.iterdir()) == []


def test_little_room_is_said(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "mount", "-t", "tmpfs", "-o", "size=200m", "none") as disk:
        found = result(start(disk, "--wait", "0"))
        assert found["space"]["verdict"] == "slow"
        assert "free some space" in found["space"]["advice"]


@pytest.mark.fleet
def test_a_mount_that_hangs_is_named_and_the_command_ends(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    with mounted(tmp_path / "hung", "bindfs", str(tmp_path / "real")) as hung:
        (server,) = (
            pid
            for pid, _, _, line in processes()
            if line.split(b"\0")[:1] == [b"bindfs"] and str(hung).encode() in line
        )
        os.kill(server, signal.SIGSTOP)
        try:
            said = complaint(hung, STORE)
        finally:
            os.kill(server, signal.SIGCONT)
        assert "does not respond" in said
        assert "(fuse)" in said


# ---- unfit


@pytest.mark.parametrize(
    ("folder", "kind", "family", "refused"),
    [
        ("/home", "ext4", "local", False),
        ("/mnt/a b/store", "nfs4", "nfs", False),
        ("/mnt/a bc", "ext4", "local", False),
        ("/mnt/bucket", "fuse.s3fs", "fuse", True),
        ("/mnt/aws/store", "fuse", "fuse", True),
        ("/mnt/real", "fuse.goofys", "fuse", True),
        ("/mnt/s3fs", "ext4", "local", False),
        ("/mnt/ceph", "fuse.ceph-fuse", "ceph-fuse", False),
    ],
)
def test_the_kernel_says_what_a_folder_is_on(folder: str, kind: str, family: str, refused: bool) -> None:
    mount = find_mount(folder, TABLE)
    assert (mount.kind, mount.family, mount.is_object_store()) == (kind, family, refused)


def test_a_client_that_is_known_to_hang_is_named_before_it_does() -> None:
    assert "use the kernel's client (mount -t ceph)" in find_mount("/mnt/ceph/store", TABLE).finding().seen


def test_an_object_store_behind_fuse_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    rclone = ("rclone", "mount", "--daemon", "--config", "/dev/null", "--vfs-cache-mode", "off", str(tmp_path / "real"))
    with mounted(tmp_path / "bucket", *rclone) as bucket:
        said = complaint(bucket, STORE)
        assert "object store" in said
        assert "fuse.rclone" in said
        assert "sshfs" in said, "it says what to use instead"
        assert list((tmp_path / "real").iterdir()) == []


def between(tmp_path: Path, code: int, *mount: str) -> list[dict[str, dict[str, Any]]]:
    """What two doctors find, each behind its own mount of one folder."""
    (tmp_path / "real").mkdir(exist_ok=True)
    with ExitStack() as stack:
        folders = [
            stack.enter_context(mounted(tmp_path / name, *mount, str(tmp_path / "real"))) for name in ("one", "two")
        ]
        processes = [start(folder, "--wait", "120s") for folder in folders]
        return [result(process, code) for process in processes]


@pytest.mark.fleet
def test_a_mount_that_remembers_what_was_not_there_is_unfit(tmp_path: Path) -> None:
    for found in between(tmp_path, STORE, "bindfs", "-o", "negative_timeout=3600"):
        assert unfit(found) == ["between"]
        assert "does not see a file of the other" in found["between"]["seen"]
        assert "negative_timeout=0" in found["between"]["advice"]


@pytest.mark.fleet
def test_two_clients_of_one_file_server_are_fit(tmp_path: Path) -> None:
    for found in between(tmp_path, 0, "bindfs"):
        assert list(found) == ALONE + BETWEEN


@pytest.mark.fleet
def test_a_mount_where_two_machines_can_win_one_name_is_found_out(tmp_path: Path) -> None:
    """Two unions of two folders, each of which writes to another one: exclusive create is a look and a guess."""
    one, two = tmp_path / "a", tmp_path / "b"
    one.mkdir()
    two.mkdir()
    with (
        mounted(tmp_path / "one", "mergerfs", "-o", "category.create=ff", f"{one}:{two}") as first,
        mounted(tmp_path / "two", "mergerfs", "-o", "category.create=ff", f"{two}:{one}") as second,
    ):
        for _ in range(10):  # of 200 names about ten are won by both; on a very busy machine perhaps none
            processes = [start(folder, "--wait", "120s") for folder in (first, second)]
            printed = [process.communicate(timeout=300)[0] for process in processes]
            codes = {process.returncode for process in processes}
            if codes == {STORE}:
                break
        assert codes == {STORE}, "both know"
        assert all("won by both machines" in each for each in printed)


@pytest.mark.fleet
def test_when_the_other_machine_dies_the_tests_end_all_the_same(tmp_path: Path) -> None:
    processes = [start(tmp_path, "--wait", "120s") for _ in range(2)]
    tests = child_of(processes[0])
    assert processes[0].stderr
    while "testing between the two" not in processes[0].stderr.readline():
        assert processes[0].poll() is None
    processes[0].kill()
    kill(tests)
    processes[0].communicate()
    found = result(processes[1])
    assert unfit(found) == []
    assert "went away" in found["between"]["seen"]


@contextmanager
def sshfs(real: Path, folder: Path) -> Iterator[Path]:
    """A folder through sshfs with its defaults, and a server of its own that is spoken to without ssh."""
    if os.geteuid() != 0 or not shutil.which("sshfs") or not Path(SFTP).exists():
        pytest.skip("needs root, sshfs and OpenSSH's sftp-server")
    folder.mkdir()
    ours, theirs = socket.socketpair()
    server = subprocess.Popen([SFTP], stdin=ours, stdout=ours)
    client = subprocess.Popen(["sshfs", "-f", "-o", "passive", f":{real}", folder], stdin=theirs, stdout=theirs)
    ours.close()
    theirs.close()
    try:
        wait_for(lambda: os.path.ismount(folder) or client.poll() is not None, 60)
        if client.poll() is not None:
            pytest.skip("sshfs cannot mount here")
        yield folder
    finally:
        with suppress(subprocess.CalledProcessError):
            subprocess.run(["umount", "-l", folder], check=True)
        client.wait(60)
        server.wait(60)


@pytest.mark.fleet
def test_sshfs_with_its_defaults_is_fit_but_its_listings_are_old(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    with sshfs(tmp_path / "real", tmp_path / "one") as one, sshfs(tmp_path / "real", tmp_path / "two") as two:
        processes = [start(folder, "--wait", "120s") for folder in (one, two)]
        for found in [result(process) for process in processes]:
            assert unfit(found) == []
            assert found["mount"]["seen"].startswith("fuse.sshfs")
            assert found["cached listings"]["verdict"] == "slow"
            assert "-o dcache_timeout=1" in found["cached listings"]["advice"]
