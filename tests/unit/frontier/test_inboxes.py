"""The folder of a shard is made before its first batch; one that was made and is gone or empty is a loss."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from lab.frontiers import add, frontier_of, make_root, on_disk, owner_of

from crawler.frontier.batches import LOSS
from crawler.frontier.rehydrate import is_needed
from crawler.frontier.task import Task
from crawler.store.inboxes import MADE, WHOLE, folder, made_shards, mark_of
from crawler.store.mount import Files
from crawler.store.store import Store

A = "https://a.example/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_root(tmp_path, 2)
    return tmp_path


def losses(root: Path) -> list[str]:
    return [name for name in os.listdir(root / "frontier") if f"frontier/{name}".startswith(LOSS)]


def test_a_new_store_has_no_folders_of_shards_and_lacks_nothing(root: Path) -> None:
    assert os.listdir(root / "frontier") == [MADE.removeprefix("frontier/")]
    owner_of(root)
    assert not losses(root) and not is_needed(Store(root))


def test_the_first_batch_makes_the_folder_of_its_shard(root: Path) -> None:
    owner = owner_of(root)
    add(owner, Task(A))
    home = min(owner.owned)
    assert made_shards(Files(root), 2) == [home]
    assert (root / folder(home) / WHOLE).exists() and (root / mark_of(home)).exists()
    assert on_disk(root).keys() == {A}


def test_an_owner_finds_a_folder_that_another_makes_later(root: Path) -> None:
    owner = owner_of(root)
    add(frontier_of(root, "other"), Task(A))
    owner.read_inboxes(owner.owned, fresh=True)
    assert owner.table.waiting == 1
    assert not losses(root)


def test_a_folder_that_is_being_made_is_no_loss(root: Path) -> None:
    (root / folder(1)).mkdir()
    owner = owner_of(root)
    owner.read_inboxes(owner.owned, fresh=True)
    assert not losses(root)


@pytest.mark.parametrize("is_emptied", [True, False])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_folder_that_was_made_and_lost_is_noted(root: Path, is_emptied: bool, is_known: bool) -> None:
    add(frontier_of(root, "other"), Task(A))
    (shard,) = made_shards(Files(root), 2)
    owner = owner_of(root) if is_known else frontier_of(root)
    shutil.rmtree(root / folder(shard))
    if is_emptied:
        (root / folder(shard)).mkdir()
    if is_known:
        owner.read_inboxes(owner.owned, fresh=True)
    else:
        owner.own(range(2))
    assert losses(root) and is_needed(Store(root))


def test_a_worker_goes_on_after_all_of_the_frontier_was_removed(root: Path) -> None:
    owner = owner_of(root)
    shutil.rmtree(root / "frontier")
    add(owner, Task(A))  # the first batch of its shard
    assert on_disk(root).keys() == {A}
    assert is_needed(Store(root))


def test_a_frontier_that_was_removed_as_a_whole_is_noted_by_its_owner(root: Path) -> None:
    add(frontier_of(root, "other"), Task(A))
    owner = owner_of(root)
    shutil.rmtree(root / "frontier")
    owner.read_inboxes(owner.owned, fresh=True)
    assert losses(root) and is_needed(Store(root))


def test_who_writes_into_a_folder_that_was_removed_does_not_hide_the_loss(root: Path) -> None:
    add(frontier_of(root, "other"), Task(A))
    (shard,) = made_shards(Files(root), 2)
    shutil.rmtree(root / folder(shard))
    add(frontier_of(root, "third"), Task(A))
    owner_of(root)
    assert losses(root)


CUT = b"0\t0\t0\thttps://a.example/\n0\t0\t0\thttps://a.exa"  # what is left of the second URL is one, too


@pytest.mark.parametrize("kept", [b"", CUT, b"\0" * 60], ids=["empty", "cut", "zeros"])
def test_a_batch_that_was_cut_is_a_loss_and_what_is_left_of_it_is_taken(root: Path, kept: bytes) -> None:
    add(frontier_of(root, "other"), Task(A), Task(f"{A}2"))
    (batch,) = (root / "frontier").glob("*/*.2")
    assert not losses(root)
    batch.write_bytes(kept)
    owner = owner_of(root)
    assert losses(root) and is_needed(Store(root))
    assert owner.table.waiting == kept.count(b"\n")
