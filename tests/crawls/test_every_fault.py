"""Every call that touches the store fails in turn, through whole small crawls, as SQLite's tests do it.

After each: no record without its html and its links, no URL lost, one clear sentence, the right exit code.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from lab.faults import DOORS, OTHER, FaultyOs, SmallWeb, crawl
from lab.marks import later
from lab.world import COMMAND

from crawler.errors import FULL, OVER, STOPPED, STORE
from crawler.frontier import task_rows
from crawler.frontier.batches import from_lines, read_batches
from crawler.store import segments
from crawler.store.mount import Files
from crawler.store.store import Store, file_of
from crawler.web import urls
from crawler.web.warc import read_head

PASSING = [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.ENOTCONN, errno.EPERM]
LASTING = [errno.EACCES, errno.EROFS]
FULL_DISK = {errno.ENOSPC, errno.EDQUOT}
WARC = ("-s", "warc=true", "-s", "warc_size=1500")
A_WHILE, FOR_EVER = 10.0, 1e9  # simulated seconds


class Fault(NamedTuple):
    """What fails: from the `first` call on, for so many seconds, with this error."""

    first: int
    code: int
    seconds: float
    at_once: bool
    afterwards: bool = False
    flags: tuple[str, ...] = WARC


def lost(root: Path) -> list[str]:
    """What is wrong with a store that may be in the middle of a crawl: html or links that a record rests on."""
    store, web = Store(root), SmallWeb()
    if not store.exists():
        return []
    waiting = {task.name for shard in (0, 1) for data in read_batches(Files(root), shard) for task in from_lines(data)}
    done = {str(it["url"]) for it in [*store.records(), *store.failures()]}
    # An html without a record may be spoiled: its URL still waits. So may a robots.txt, which then counts as missing.
    files = [path for folder in ("links", "errs") for path in (root / folder).glob("*/[!.]*")]
    wrong = [f"spoiled: {path}" for path in files if b"\0" in path.read_bytes()]
    for record in store.records():
        url = str(record["url"])
        if url in web.pages and store.text_bytes(url) != web.html(url):
            wrong.append(f"no html: {url}")
        if url in web.files and (root / (file_of(record) or "")).read_bytes() != web.files[url]:
            wrong.append(f"no file: {url}")
        targets = [urls.normalize(link, url) for link in web.pages.get(url, [])]
        wrong += [f"{target} is lost, from {url}" for target in targets if target not in done | waiting]
    return wrong + [f"no exchange: {url}" for url in done - archived(root)]


def archived(root: Path) -> set[str]:
    """The URLs whose exchange can be read in the WARC files; a sitemap's too, by the name of its record."""
    found: set[str] = set()
    for path in (root / "warcs").glob("*.warc.gz"):
        for _, _, start in segments.records([path.read_bytes()]):
            kind, fields, block = read_head(start) or ("", {}, b"")
            if kind == "response":
                assert block == b"HTTP/1.1 200 OK\r\n\r\n" + fields["WARC-Target-URI"].encode() + b"\r\n\r\n"
                found.add(fields["WARC-Target-URI"])
    return found | {f"{url}#sitemap" for url in found}


def unindexed(root: Path) -> list[str]:
    """The WARC files without an index, or with one that lacks something."""
    wrong = segments.unindexed(Files(root))
    indexed = {
        line.split('"url": "')[1].split('"')[0] for path in (root / "warcs").glob("*.cdxj") for line in path.open()
    }
    return [*wrong, *(url for url in archived(root) if url not in indexed and "#" not in url)]


def check(root: Path, fault: Fault, capsys: pytest.CaptureFixture[str]) -> bool:
    """Crawl over a disk that fails, then over one that does not; False if it did not come to the fault."""
    shutil.rmtree(root, ignore_errors=True)
    disk = FaultyOs(fault.first, fault.code, fault.seconds, fault.at_once, fault.afterwards)
    code = crawl(root, disk, flags=fault.flags)
    said = capsys.readouterr().err
    where = f"{fault} at {disk.calls[fault.first - 1] if disk.has_failed else 'nothing'}: exit code {code}, {said}"
    assert "Traceback" not in said and "bug" not in said and "fault of the program" not in said, where
    sentences = [line for line in said.splitlines() if line.startswith("crawler: ")]
    if code in (STORE, FULL):
        assert len(sentences) == 1 and (code == FULL) == (fault.code in FULL_DISK), where
    else:
        assert sentences == [] and code in (OVER, STOPPED), where
        assert code == OVER or fault.seconds == FOR_EVER, where
    assert lost(root) == [], f"{lost(root)}, {where}"
    assert crawl(root, FaultyOs(), flags=fault.flags) == OVER, where + capsys.readouterr().err
    assert lost(root) == [], where
    assert unindexed(root) == [], where
    store = Store(root)
    assert {str(record["url"]) for record in store.records()} == SmallWeb.records, where
    assert {str(failure["url"]) for failure in store.failures()} == SmallWeb.failures, where
    return disk.has_failed


def test_a_crawl_without_faults_goes_through_every_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    doors: set[str] = set()
    for at_once in (True, False):
        disk, root = FaultyOs(at_once=at_once), tmp_path / str(at_once) / "store"
        root.parent.mkdir()
        assert crawl(root, disk, flags=WARC) == OVER, capsys.readouterr()
        doors.update(disk.calls)
    assert doors == set(DOORS)


class Round(NamedTuple):
    """Faults of one kind, at each `step`-th call."""

    code: int
    seconds: float
    at_once: bool
    afterwards: bool
    step: int

    def __str__(self) -> str:
        how = {0.0: "once", A_WHILE: "for a while", FOR_EVER: "for ever"}[self.seconds]
        sync = "syncfs" if self.at_once else "fsync"
        return f"{errno.errorcode[self.code]} {how}, {sync}{', done all the same' if self.afterwards else ''}"


SAMPLE = [Round(errno.EIO, 0.0, True, False, 61)]
EVERYTHING = [
    Round(errno.EIO, 0.0, False, True, 59),
    Round(errno.EIO, 0.0, True, False, 1),
    Round(errno.EIO, 0.0, False, False, 3),
    Round(errno.EIO, 0.0, True, True, 7),
    *(Round(code, 0.0, code % 2 == 0, False, 13) for code in [*PASSING[1:], *LASTING]),
    *(Round(code, A_WHILE, code % 2 == 1, False, 31) for code in [*PASSING, *LASTING]),
    *(Round(code, FOR_EVER, code % 2 == 0, False, 53) for code in [*PASSING, *LASTING]),
]


@pytest.mark.parametrize("kind", [*SAMPLE, *later(*EVERYTHING)], ids=str)
def test_a_call_that_fails_loses_nothing_and_is_told_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Round
) -> None:
    first = 1 + kind.code % kind.step
    while check(tmp_path / "store", Fault(first, *kind[:4]), capsys):
        first += kind.step
    assert first > 900, "a crawl makes more calls than that"


def test_a_machine_whose_own_disk_is_full_says_so_and_blames_no_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        patch.setattr(task_rows, "SCHEMA", f"{task_rows.SCHEMA} PRAGMA max_page_count = 24;")
        patch.setattr(SmallWeb, "pages", SmallWeb.pages | {f"{OTHER}/1": [f"/deep/{number}" for number in range(400)]})
        assert crawl(root, FaultyOs()) == FULL
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert f"no space left in the temporary folder {tmp_path}" in said
    assert [failure["url"] for failure in Store(root).failures() if failure["reason"] == "fault"] == []
    assert crawl(root, FaultyOs()) == OVER
    assert {str(record["url"]) for record in Store(root).records()} >= SmallWeb.records


@pytest.mark.fleet  # for time
def test_a_rehydration_without_space_in_the_temporary_folder_says_so(crawled: Path, small_disk: Path) -> None:
    record = next(crawled.glob("links/*/[!.]*"))
    links = [f"http://many.example/{number:0900d}" for number in range(30_000)]
    record.write_text(json.dumps(json.loads(record.read_bytes()) | {"links": links, "depth": 0}))
    args = [*COMMAND, "rehydrate", str(crawled)]
    done = subprocess.run(
        args, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(small_disk)}, timeout=300
    )
    assert done.returncode == FULL, done.stderr
    assert f"crawler: no space left in the temporary folder {small_disk}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("at_once", [True, False], ids=["syncfs", "fsync"])
def test_a_sync_that_fails_loses_no_file_that_nobody_has_in_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], at_once: bool
) -> None:
    disk, root = FaultyOs(at_once=at_once), tmp_path / "store"
    assert crawl(root, disk) == OVER, capsys.readouterr()
    syncs = [number for number, call in enumerate(disk.calls, 1) if call in ("fsync", "syncfs")]
    for first in syncs[len(syncs) // 3 :: 1 if at_once else 5]:
        check(root, Fault(first, errno.EIO, 0.0, at_once), capsys)
