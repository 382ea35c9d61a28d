"""What a mount is asked: a file is whole or not there, a name has one winner, and trouble has a sentence."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path

import pytest

from crawler.errors import DiskFull, Misshapen, NoDescriptors, StoreAway, StoreError
from crawler.store import mount as files_module
from crawler.store import sync
from crawler.store.mount import Files

ROOT = os.geteuid() == 0


def files(root: Path, me: str = "me") -> Files:
    return Files(root, me, durable=False)


def made(root: Path) -> Path:
    """A folder that counts as a store: its README is there."""
    root.mkdir(exist_ok=True)
    (root / "README").touch()
    return root


def everything(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_temporary_files_that_a_lost_mount_kept_are_removed_when_it_is_back(tmp_path: Path) -> None:
    store, away = made(tmp_path / "store"), tmp_path / "away"
    (store / "links").mkdir()
    mine = files(store)
    first, second = (mine.draft(f"links/{name}", b"x") for name in "ab")
    store.rename(away)
    store.mkdir()  # the mount point of a mount that is gone
    mine.discard(first)
    mine.sync([])
    assert len(everything(away)) == 4
    store.rmdir()
    away.rename(store)
    mine.sync([])
    assert everything(store) == ["README", "links", f"links/{second.temporary}"]


# ---- whole or not there


def test_a_reader_sees_only_whole_versions_while_writers_replace_the_file(tmp_path: Path) -> None:
    versions = [bytes([65 + number]) * (1 + 30_000 * number) for number in range(4)]
    (tmp_path / "a").mkdir()
    files(tmp_path).put("a/page", versions[0])
    stop = threading.Event()

    def write(me: str) -> None:
        while not stop.is_set():
            for version in versions:
                files(tmp_path, me).put("a/page", version)

    writers = [threading.Thread(target=write, args=(me,)) for me in ("one", "two")]
    for writer in writers:
        writer.start()
    seen = [files(tmp_path).get("a/page") for _ in range(2000)]
    while len(set(seen)) < 2 and writers[0].is_alive():
        seen.append(files(tmp_path).get("a/page"))
    stop.set()
    for writer in writers:
        writer.join()
    assert len(set(seen)) > 1, "the writers must have come in between"
    assert set(seen) <= set(versions)
    assert everything(tmp_path) == ["a", "a/page"]


def test_a_put_that_fails_in_the_middle_leaves_neither_half_a_file_nor_a_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files(tmp_path).put("a/page", b"old")
    code = (
        "import sys, resource\n"
        "from crawler.store.mount import Files\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))\n"
        "Files(sys.argv[1], 'me').put('a/page', b'x' * 50_000)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert "StoreAway" in ended.stderr
    assert everything(tmp_path) == ["a", "a/page"]
    assert files(tmp_path).get("a/page") == b"old"


@pytest.mark.parametrize("kept", [0, 4])
def test_what_must_no_longer_be_written_gets_no_name_and_leaves_nothing(tmp_path: Path, kept: int) -> None:
    """Another worker may have taken over while the file was written."""
    (tmp_path / "README").touch()
    mine = files(tmp_path)
    mine.directories.max_kept = kept
    mine.put("htmls/a.example/k", b"theirs")
    draft = mine.draft("links/a.example/k", b"{}")

    def refuse() -> None:
        raise StoreAway("others may have taken over")

    open_before = len(os.listdir("/proc/self/fd"))
    for write in (
        lambda: mine.put("htmls/a.example/k", b"ours", check=refuse),
        lambda: mine.publish(draft, refuse),
    ):
        with pytest.raises(StoreAway):
            write()
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert mine.get("htmls/a.example/k") == b"theirs"
    assert mine.get("links/a.example/k") is None
    assert mine.all_names("htmls/a.example") == ["k"]


@pytest.mark.parametrize("arrives", [True, False])
def test_a_put_whose_reply_was_lost_is_judged_by_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    rename = os.rename

    def lose_the_reply(old: str, new: str, **where: int) -> None:
        if arrives:
            rename(old, new, **where)
        raise FileNotFoundError(errno.ENOENT, "asked again, it is gone")

    files(made(tmp_path)).put("links/a.example/key", b"old")
    monkeypatch.setattr(files_module.os, "rename", lose_the_reply)
    if arrives:
        files(tmp_path).put("links/a.example/key", b"new")
    else:
        with pytest.raises(StoreAway):
            files(tmp_path).put("links/a.example/key", b"new")
    assert files(tmp_path).get("links/a.example/key") == (b"new" if arrives else b"old")
    assert list((tmp_path / "links" / "a.example").iterdir()) == [tmp_path / "links" / "a.example" / "key"]


def test_a_put_cut_off_before_its_rename_shows_nothing_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files_module.os, "rename", power_cut)
    with pytest.raises(KeyboardInterrupt):
        files(made(tmp_path)).put("links/a.example/key", b"whole")
    assert files(tmp_path).get("links/a.example/key") is None
    assert files(tmp_path).names("links/a.example") == [], "what is left starts with a dot"


@pytest.mark.parametrize("data", [b"", b"x", b"\x00\xff" * 40_000])
def test_what_was_put_is_read_back(tmp_path: Path, data: bytes) -> None:
    Files(tmp_path, "me", durable=True).put("page", data)
    assert files(tmp_path).get("page") == data
    assert files(tmp_path).get("other") is None


# ---- one winner


def race(root: Path, call: Callable[[Files, int], bool], rounds: int, racers: int = 4) -> list[int]:
    """How many racers won each round."""
    barrier = threading.Barrier(racers)

    def run(racer: int) -> list[bool]:
        mine = files(root, f"racer{racer}")
        won = []
        for number in range(rounds):
            barrier.wait()
            won.append(call(mine, number))
        return won

    with ThreadPoolExecutor(racers) as pool:
        results = list(pool.map(run, range(racers)))
    return [sum(result[number] for result in results) for number in range(rounds)]


def test_a_name_is_created_by_exactly_one_of_many_threads(tmp_path: Path) -> None:
    assert race(tmp_path, lambda mine, number: mine.create(f"name{number}"), 300) == [1] * 300


def test_a_name_is_claimed_by_exactly_one_of_many_threads(tmp_path: Path) -> None:
    for number in range(300):
        files(tmp_path).create(f"{number}@free")
    won = race(tmp_path, lambda mine, number: mine.claim(f"{number}@free", f"{number}@{mine.me}"), 300)
    assert won == [1] * 300
    assert len(files(tmp_path).names("")) == 300


def _claim_all(root: str, me: str, rounds: int) -> list[int]:
    mine = Files(root, me)
    return [number for number in range(rounds) if mine.claim(f"{number}@free", f"{number}@{me}")]


def test_a_name_is_claimed_by_exactly_one_of_many_processes(tmp_path: Path) -> None:
    for number in range(400):
        files(tmp_path).create(f"{number}@free")
    with get_context("spawn").Pool(3) as pool:
        won = pool.starmap(_claim_all, [(str(tmp_path), me, 400) for me in ("a", "b", "c")])
    assert sorted(number for numbers in won for number in numbers) == list(range(400))


def test_a_claim_whose_reply_was_lost_is_still_a_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path).create("017@free")
    rename = os.rename

    def lose_the_reply(old: str, new: str, **where: int) -> None:
        rename(old, new, **where)
        raise OSError(errno.EIO, "lost")

    monkeypatch.setattr(files_module.os, "rename", lose_the_reply)
    assert files(tmp_path).claim("017@free", "017@me") is True
    assert files(tmp_path).claim("018@free", "018@me") is False


# ---- names


def test_dot_names_are_hidden_and_a_missing_folder_is_empty(tmp_path: Path) -> None:
    for name in (".nfs0001", ".fuse_hidden1", ".me-12ab", "page"):
        (tmp_path / name).touch()
    assert files(tmp_path).names("") == ["page"]
    assert files(tmp_path).names("nowhere/at/all") == []
    files(tmp_path).freshen("")
    assert everything(tmp_path) == sorted([".nfs0001", ".fuse_hidden1", ".me-12ab", "page"])


@pytest.mark.parametrize("kind, made", [("ext4", 0), ("fuse.sshfs", 1)])
def test_only_where_a_listing_may_be_old_a_name_makes_it_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, made: int
) -> None:
    names: list[str] = []
    unlink = os.unlink
    monkeypatch.setattr(sync, "_kind", lambda root: kind)
    monkeypatch.setattr(os, "unlink", lambda name, dir_fd: (names.append(name), unlink(name, dir_fd=dir_fd)))
    assert files(tmp_path).freshen("")
    assert len(names) == made and everything(tmp_path) == []


def test_dropping_and_making_say_whether_something_was_there(tmp_path: Path) -> None:
    store = files(tmp_path)
    assert [store.make("a"), store.make("a")] == [True, False]
    store.put("a/page", b"1")
    assert [store.drop("a/page"), store.drop("a/page")] == [True, False]


# ---- a mount that is gone


@pytest.mark.parametrize("name", ["README", "workers/12ab@000007", "links/a.example/key"])
def test_the_root_of_a_store_is_never_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreAway):
        files(tmp_path / "store").put(name, b"")
    with pytest.raises(StoreAway):
        files(tmp_path / "store").create(name)
    assert everything(tmp_path) == []


def test_in_a_store_the_folder_of_a_host_is_made_and_one_that_a_user_removed_too(tmp_path: Path) -> None:
    store = files(made(tmp_path))
    for name in ("errs/a.example/key", "errs/b.example/key", "workers/12ab@000007"):
        store.put(name, b"here")
        assert store.get(name) == b"here"
    assert store.create("frontier/000/name")


@pytest.mark.parametrize("name", ["workers/12ab@000007", "robots/a.example", "seeds/12ab", "links/a.example/key"])
def test_nothing_is_made_in_the_empty_folder_that_a_lost_mount_leaves(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreAway):
        files(tmp_path).put(name, b"")
    with pytest.raises(StoreAway):
        files(tmp_path).create(name)
    assert everything(tmp_path) == []


# ---- modes and links


def _write_with_umask(root: str, umask: int) -> None:
    os.umask(umask)
    mine = Files(root, "me", durable=False)
    mine.share_mode()
    mine.put("links/a.example/key", b"")
    mine.create("links/name")
    mine.make("links/made")


@pytest.mark.parametrize("umask", [0o077, 0o022, 0o000])
@pytest.mark.parametrize("folder, file", [(0o2775, 0o664), (0o750, 0o640), (0o700, 0o600), (0o755, 0o644)])
def test_files_are_as_open_as_the_stores_folder_whatever_the_umask_was(
    tmp_path: Path, folder: int, file: int, umask: int
) -> None:
    root = made(tmp_path / "store")
    (root / "links").mkdir()
    root.chmod(folder)
    (root / "links").chmod(folder)
    before = os.umask(0)
    try:
        _write_with_umask(str(root), umask)
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (root / "links").rglob("*")}
    assert modes == {"a.example": folder, "made": folder, "key": file, "name": file}


def test_a_planted_symlink_at_a_temporary_name_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, root = tmp_path / "victim", tmp_path / "store"
    victim.write_text("untouched")
    root.mkdir()
    monkeypatch.setattr(files_module.secrets, "token_hex", lambda _: "guessed")
    (root / ".me-guessed-0").symlink_to(victim)
    with pytest.raises(StoreError):
        files(root).put("page", b"spoilt")
    assert victim.read_text() == "untouched"
    (root / "name").symlink_to(tmp_path / "not-there")
    assert files(root).create("name") is False
    assert not (tmp_path / "not-there").exists()


WRITES: dict[str, Callable[[Files, str], object]] = {
    "put": lambda mine, folder: mine.put(f"{folder}/name", b"spoilt"),
    "create": lambda mine, folder: mine.create(f"{folder}/name"),
    "claim from": lambda mine, folder: mine.claim(f"{folder}/precious", "taken"),
    "claim to": lambda mine, folder: mine.claim("name", f"{folder}/name"),
    "drop": lambda mine, folder: mine.drop(f"{folder}/precious"),
    "make": lambda mine, folder: mine.make(f"{folder}/folder"),
    "freshen": lambda mine, folder: mine.freshen(folder),
    "clock": lambda mine, folder: mine.clock(folder),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("link, folder", [("htmls", "htmls"), ("htmls", "htmls/a.example"), ("links/b", "links/b")])
@pytest.mark.parametrize("where", ["outside", "nowhere", "store/inside"])
def test_nothing_is_written_through_a_symlink_at_any_level(
    tmp_path: Path, write: str, link: str, folder: str, where: str
) -> None:
    outside, root = tmp_path / "outside", made(tmp_path / "store")
    for path in (outside / "a.example", root / "inside" / "a.example", root / "links"):
        path.mkdir(parents=True)
        (path.parent / "precious").touch()
        (path / "precious").touch()
    (root / "name").touch()
    (root / link).symlink_to(tmp_path / where)
    before = everything(tmp_path)
    with pytest.raises(StoreError, match=rf"{root}/{link} is a symbolic link") as caught:
        WRITES[write](files(root), folder)
    assert not isinstance(caught.value, StoreAway), "it is not waited for"
    assert everything(tmp_path) == before


READS = {
    "get": lambda files: files.get("htmls/a.example/key"),
    "names": lambda files: files.names("htmls/a.example"),
    "shapes": lambda files: files.shapes("htmls/a.example"),
    "sizes": lambda files: list(files.sizes("htmls/a.example")),
    "size": lambda files: files.size("htmls/a.example/key"),
    "changed": lambda files: files.changed("htmls/a.example/"),
    "is_folder": lambda files: files.is_folder("htmls/a.example/key"),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("link", ["htmls", "htmls/a.example"])
def test_nothing_is_read_through_a_symlink_in_place_of_a_folder(tmp_path: Path, read: str, link: str) -> None:
    root, outside = made(tmp_path / "store"), tmp_path / "outside"
    (outside / "a.example").mkdir(parents=True)
    for folder in (outside, outside / "a.example"):
        (folder / "key").write_text("private")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside)
    if read == "changed" and link != "htmls":
        assert READS[read](files(root)) == os.lstat(root / link).st_mtime, "of the link itself"
        return
    with pytest.raises(Misshapen, match=rf"{root}/{link} is a symbolic link"):
        READS[read](files(root))


def test_a_symlink_in_place_of_a_file_is_not_read(tmp_path: Path) -> None:
    root = made(tmp_path / "store")
    (tmp_path / "outside").write_text("private")
    (root / "page").symlink_to(tmp_path / "outside")
    with pytest.raises(Misshapen, match=rf"{root}/page is a symbolic link"):
        files(root).get("page")
    assert files(root).size("page") is None


def test_the_root_of_a_store_may_be_a_symlink(tmp_path: Path) -> None:
    made(tmp_path / "real")
    (tmp_path / "store").symlink_to(tmp_path / "real")
    files(tmp_path / "store").put("links/a.example/key", b"here")
    assert (tmp_path / "real" / "links" / "a.example" / "key").read_bytes() == b"here"


def test_a_symlink_in_place_of_a_file_is_replaced_and_what_it_points_to_stays_as_it_is(tmp_path: Path) -> None:
    victim, root = tmp_path / "victim", made(tmp_path / "store")
    victim.write_text("untouched")
    (root / "page").symlink_to(victim)
    files(root).put("page", b"new")
    assert victim.read_text() == "untouched"
    assert (root / "page").read_bytes() == b"new"
    assert not (root / "page").is_symlink()


def test_a_writer_keeps_no_descriptor_whatever_becomes_of_it(tmp_path: Path) -> None:
    root = made(tmp_path / "store")
    (root / "links").symlink_to(tmp_path)
    (root / "errs").touch()
    before = os.listdir("/proc/self/fd") if Path("/proc/self/fd").exists() else []
    for name in ("htmls/a.example/key", "links/a.example/key", "errs/a.example/key", "new/a/b/c/d"):
        for _ in range(3):
            with suppress(StoreError):
                files(root).put(name, b"")
    with suppress(StoreError):
        files(tmp_path / "nowhere").put("README", b"")
    assert not before or len(os.listdir("/proc/self/fd")) == len(before)


# ---- folders that are kept open


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Files]:
    """Files of a store that may keep three folders open."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("open files are counted in /proc, which is not here")
    store = files(made(tmp_path / "store"))
    store.directories.max_kept = 3
    yield store
    store.directories.close_kept()


def test_the_way_to_a_folder_that_is_kept_open_is_not_walked_again(
    keeper: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper.put("links/a.example/first", b"")
    opened: list[str] = []
    real = os.open

    def note(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        opened.append(path)
        return real(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", note)
    keeper.put("links/a.example/second", b"")
    assert len(opened) == 1 and opened[0].startswith(".")


def test_as_many_folders_are_kept_open_as_may_be_and_none_after_letting_go(keeper: Files) -> None:
    before = open_files()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: keeper.put(f"links/{number % 50}.example/{number}", b"page"), range(400)))
    assert before < open_files() <= before + 3 + 8  # each thread may be about to add one
    keeper.directories.close_kept()
    assert open_files() == before
    assert all(keeper.get(f"links/{number % 50}.example/{number}") == b"page" for number in range(400))


def test_a_folder_that_a_user_removes_while_it_is_kept_open_is_made_again(keeper: Files) -> None:
    keeper.put("links/a.example/first", b"")
    shutil.rmtree(f"{keeper.root}/links/a.example")
    keeper.put("links/a.example/second", b"here")
    assert keeper.get("links/a.example/second") == b"here"


def test_a_folder_that_a_user_moves_is_held_on_to_only_until_it_is_let_go(keeper: Files, tmp_path: Path) -> None:
    keeper.put("links/a.example/first", b"")
    Path(f"{keeper.root}/links/a.example").rename(tmp_path / "moved")
    keeper.directories.close_kept()
    keeper.put("links/a.example/second", b"here")
    assert keeper.get("links/a.example/second") == b"here"
    assert os.listdir(tmp_path / "moved") == ["first"]


def test_a_pulse_fails_when_the_mount_is_gone_whatever_is_kept_open(keeper: Files, tmp_path: Path) -> None:
    for name in ("links/a.example/key", "workers/12ab@000007"):
        keeper.put(name, b"")
    Path(keeper.root).rename(tmp_path / "away")
    Path(keeper.root).mkdir()
    with pytest.raises(StoreAway):
        keeper.put("workers/12ab@000008", b"")


@pytest.mark.parametrize("name", ["../name", "links/../../name", "links/..", "links/a\0b", ".."])
def test_a_name_that_leads_out_of_the_store_is_neither_read_nor_written(tmp_path: Path, name: str) -> None:
    root = made(tmp_path / "store")
    (root / "links").mkdir()
    (tmp_path / "name").write_text("outside")
    before = everything(tmp_path)
    for call in (files(root).get, files(root).names, files(root).create, files(root).drop, files(root).make):
        with pytest.raises(StoreError, match="leads out of the store"):
            call(name)
    with pytest.raises(StoreError):
        files(root).put(name, b"")
    with pytest.raises(StoreError):
        files(root).claim("README", name)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", ["fifo", "fifo with a writer", "folder", "device", "socket"])
def test_what_is_no_file_in_place_of_one_is_named_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path) / "page"
    keep: list[int] = []
    if kind.startswith("fifo"):
        os.mkfifo(path)
        keep = [os.open(path, os.O_RDWR)] if "writer" in kind else []
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        made_socket = socket.socket(socket.AF_UNIX)
        made_socket.bind(os.path.relpath(path))
        made_socket.close()
    with pytest.raises(StoreError, match=str(path)):
        files(tmp_path).get("page")
    for descriptor in keep:
        os.close(descriptor)


# ---- trouble


def test_room_is_found_by_writing_and_nothing_is_left_of_that(small_disk: Path) -> None:
    store = files(small_disk)
    assert not store.has_room(), "64 KB are too few"
    assert store.capacity() == (64 << 10, 20)
    assert os.listdir(small_disk) == []
    subprocess.run(["mount", "-o", "remount,size=10m", small_disk], check=True)
    assert store.has_room()
    for number in range(10):
        store.create(f"name{number}")
    assert not store.has_room(), "20 inodes are too few then"
    assert len(os.listdir(small_disk)) == 10


@pytest.mark.parametrize(
    "told",
    [(4096, 4096, 0, 0, 0, 0, 0, 0, 0, 255), (1 << 22, 1 << 22, 1 << 40, 1 << 40, 1 << 40, 1, -1, -1, 0, 255)],
    ids=["nothing", "as CephFS"],
)
def test_a_file_system_that_does_not_count_has_room(
    told: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module.os, "statvfs", lambda _: os.statvfs_result(told))
    assert min(files(tmp_path).free()) > 1 << 60
    assert min(files(tmp_path).capacity()) >= 1 << 60


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if not ROOT:
        pytest.skip("only root can mount a small tmpfs")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,nr_inodes=20", "none", folder], capture_output=True)
    if made.returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_is_named_as_such_and_leaves_no_temporary_file(small_disk: Path) -> None:
    store = files(small_disk)
    with pytest.raises(DiskFull, match=r"the store's disk is full .*free space or inodes"):
        store.put("page", b"x" * 200_000)
    assert os.listdir(small_disk) == []
    store.put("page", b"x" * 1000)
    assert store.get("page") == b"x" * 1000


def test_a_disk_without_inodes_is_a_full_disk(small_disk: Path) -> None:
    with pytest.raises(DiskFull):
        for number in range(100):
            files(small_disk).create(f"name{number}")
    with pytest.raises(DiskFull):
        files(small_disk).make("folder")


@pytest.mark.parametrize(
    "number, kind, words",
    [
        (errno.ENOSPC, DiskFull, "the store's disk is full"),
        (errno.EDQUOT, DiskFull, "the store's disk is full"),
        (errno.EMFILE, NoDescriptors, "ulimit -n"),
        (errno.ENFILE, NoDescriptors, "ulimit -n"),
        (errno.EACCES, StoreError, "check the mount and the permissions"),
        (errno.EROFS, StoreError, "check the mount and the permissions"),
        (errno.ESTALE, StoreAway, "is the mount still there?"),
        (errno.EIO, StoreAway, "is the mount still there?"),
        (errno.ENOTCONN, StoreAway, "is the mount still there?"),
        (errno.ETIMEDOUT, StoreAway, "is the mount still there?"),
        (errno.ENOMEM, StoreAway, "the store does not respond"),
        (errno.EINTR, StoreAway, "the store does not respond"),
    ],
)
def test_each_error_of_the_mount_is_one_sentence_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError], words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    store = files(tmp_path)
    for name, call in {
        "open": lambda: store.put("page", b""),
        "rename": lambda: store.put("page", b""),
        "unlink": lambda: store.drop("page"),
        "mkdir": lambda: store.make("folder"),
        "listdir": lambda: store.names(""),
    }.items():
        with monkeypatch.context() as patch:
            patch.setattr(files_module.os, name, fail)
            with pytest.raises(StoreError) as caught:
                call()
        assert type(caught.value) is kind, name
        assert words in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_file_where_a_folder_should_be_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "links").touch()
    with pytest.raises(StoreError) as caught:
        files(tmp_path).put("links/a.example/key", b"")
    assert not isinstance(caught.value, StoreAway)


def test_a_stale_handle_is_opened_again_from_the_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path).put("page", b"fresh")
    failures = [OSError(errno.ESTALE, "stale")]

    real = os.open

    def open_stale_once(path: str, flags: int, dir_fd: int | None = None) -> int:
        if failures:
            raise failures.pop()
        return real(path, flags, dir_fd=dir_fd)

    monkeypatch.setattr(files_module.os, "open", open_stale_once)
    assert files(tmp_path).get("page") == b"fresh"
    assert not failures


def test_append_writes_to_the_end_of_a_file_of_our_own_and_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("a store")
    files = Files(tmp_path, "me")
    files.append("warcs/a", b"one", 0)
    files.append("warcs/a", b"two", 3)
    assert files.get("warcs/a") == b"onetwo"
    with pytest.raises(StoreError):
        files.append("warcs/a", b"again", 0)  # somebody has this name
    with pytest.raises(StoreError):
        files.append("warcs/gone", b"more", 3)
    (tmp_path / "warcs" / "link").symlink_to(tmp_path / "README")
    with pytest.raises(StoreError):
        files.append("warcs/link", b"evil", 3)
    assert (tmp_path / "README").read_text() == "a store"
    assert (tmp_path / "warcs" / "a").read_bytes() == b"onetwo"
