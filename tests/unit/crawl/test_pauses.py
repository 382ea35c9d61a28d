"""What is short is named with its setting; a paused machine resumes only when there is some to spare."""

from __future__ import annotations

import subprocess
import sys

import pytest

from crawler.crawl.resources import RESUME_FACTOR, shortage
from crawler.settings.settings import Settings
from crawler.store.mount import Files

SETTINGS = Settings(min_free=64 << 20, min_inodes=2000)
MEGA = 1 << 20


class Disk(Files):
    """A store on a disk with so much free, of so much in all."""

    def __init__(self, free: int, inodes: int, size: int = 1000 * MEGA, inodes_in_all: int = 10_000) -> None:
        super().__init__("/mnt/store")
        self.seen, self.in_all = (free, inodes), (size, inodes_in_all)

    def capacity(self) -> tuple[int, int]:
        return self.in_all

    def free(self) -> tuple[int, int]:
        return self.seen


@pytest.mark.parametrize(
    ("free", "inodes", "words"),
    [
        (63 * MEGA, 9999, ["only 63.0M free in /mnt/store", "min_free is 64M", "resumes at 80.0M"]),
        (0, 0, ["only 0.0M free", "min_free is 64M"]),
        (999 * MEGA, 1999, ["only 1,999 inodes free in /mnt/store", "min_inodes is 2000", "resumes at 2,500"]),
    ],
)
def test_a_shortage_names_what_is_left_the_setting_and_what_to_do(free: int, inodes: int, words: list[str]) -> None:
    said = shortage(Disk(free, inodes), SETTINGS)
    assert [word for word in [*words, "waiting for space", "crawl.yaml"] if word not in said] == []


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (Disk(2 * MEGA, 9999, 3 * MEGA), "disk has 3.0M, and never the 80.0M that are needed to resume: lower min"),
        (Disk(999 * MEGA, 5, inodes_in_all=300), "disk has 300 inodes, and never the 2,500 that are needed to resume"),
    ],
)
def test_a_disk_that_is_too_small_is_not_said_to_resume(disk: Disk, words: str) -> None:
    said = shortage(disk, SETTINGS)
    assert words in said and "crawl.yaml" in said
    assert "resumes" not in said


@pytest.mark.parametrize(("free", "inodes"), [(70 * MEGA, 9999), (999 * MEGA, 2100)])
def test_what_is_enough_to_work_is_not_enough_to_resume_after_a_pause(free: int, inodes: int) -> None:
    assert shortage(Disk(free, inodes), SETTINGS) == ""
    assert shortage(Disk(free, inodes), SETTINGS, RESUME_FACTOR) != ""
    assert shortage(Disk(80 * MEGA, 2500), SETTINGS, RESUME_FACTOR) == ""


def test_a_store_without_a_reserve_is_never_short() -> None:
    assert shortage(Disk(0, 0), Settings(min_free=0, min_inodes=0), RESUME_FACTOR) == ""


def test_files_are_opened_to_know_whether_they_can_be_and_none_stays_open() -> None:
    code = (
        "import os, resource, sys\n"
        "from crawler.crawl.resources import can_open\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "print(can_open(20), can_open(60), can_open(20))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]


def test_folders_and_connections_are_kept_open_only_with_files_that_nobody_else_needs() -> None:
    code = (
        "import resource\n"
        "from crawler.crawl.resources import BASE_FILES, connections_for, files_for, folders_for\n"
        "for spare in (-10, 0, 40, 4000):\n"
        "    soft = BASE_FILES + files_for(16) + spare\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "    print(folders_for(16), connections_for(16))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ["0 1", "0 1", "20 20", "512 256"]
