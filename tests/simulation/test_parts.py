"""Parts of the simulation that were made fast do what the plain ones did, and leave nothing behind."""

from __future__ import annotations

import gc
from random import Random

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet")
from simulation.disk import FOLDER, Disk
from simulation.mount import shuffle
from simulation.patches import LOAD
from simulation.run import Scenario, simulate
from simulation.world import Thread, World


@pytest.mark.parametrize("count", [0, 1, 2, 3, 17, 300])
def test_names_are_shuffled_as_python_does_it(count: int) -> None:
    ours, theirs = [*map(str, range(count))], [*map(str, range(count))]
    one, other = Random(count), Random(count)
    shuffle(one, ours)
    other.shuffle(theirs)
    assert ours == theirs
    assert one.random() == other.random()


def test_a_simulation_leaves_no_world_and_no_thread_behind() -> None:
    for seed in range(4):
        assert simulate(Scenario.of(seed)).error is None
    gc.collect()
    assert not [it for it in gc.get_objects() if isinstance(it, (World, Thread))]


def test_a_folder_that_was_removed_has_no_path_any_more() -> None:
    disk = Disk(lambda: 0.0)
    outer, inner = disk.node(FOLDER), disk.node(FOLDER)
    disk.set((disk.root, "links", outer))
    disk.set((outer, "host", inner))
    assert disk.path(inner) == "links/host"
    disk.set((disk.root, "links", None))
    assert disk.path(inner) is None
    disk.set((disk.root, "errs", outer))
    assert disk.path(inner) == "errs/host"


def test_a_remembered_answer_cannot_be_spoilt_by_who_asked() -> None:
    LOAD("a: [1]")["a"].append(2)
    assert LOAD("a: [1]") == {"a": [1]}
