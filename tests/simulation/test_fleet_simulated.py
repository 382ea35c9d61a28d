"""A simulated fleet with trouble loses nothing, asks no host too soon, and ends when all is done; from one number."""

from __future__ import annotations

import pytest

from simulation.mutants import MUTANTS, Mutant, applied, find, row
from simulation.run import Scenario, command, many, report, shrink, simulate
from simulation.trouble import EFFECTS, KINDS, LOSSES

pytestmark = pytest.mark.fleet  # for time

SEEDS, PART = 200, 20
TRIES = 20  # seeds in which a kind of trouble must have an effect
# Each of these has failed once; what was wrong is in CHANGELOG.md or in the comment.
FOUND: list[tuple[int, str, tuple[str, ...]]] = [
    (20, "local", ()),  # the one descriptor for syncfs had become stale, and every later sync failed
    (
        0,
        "local",
        ("faults", "power_cut"),
    ),  # a record that the disk had lost counted as put again
    (52, "nfs3", ("freeze_before",)),  # an heir did not rewrite the batches that it had handed over itself
    (50874, "moosefs", ()),  # a former owner put the record of an older version beside the html of a newer one
    (50932, "nfs3", ()),  # the same
    (2000082, "nfs3", ()),  # the same after its mount had hung while it wrote
    (3102310, "local", ()),  # a power cut took back `crawler resume`, and the fleet waited for ever
    (3102845, "local", ()),  # the same
    (3100599, "moosefs", ()),  # the simulation's: an order whose only trace was a batch that somebody removed
    (3101784, "moosefs", ()),  # the same
]
# The same of scenarios with what the simulation has learnt since: rules of hosts, limits, more troubles.
FOUND_LATER: list[tuple[int, str | None, tuple[str, ...]]] = [
    (39, None, ()),  # somebody removed all of frontier/, and the first batch of a shard waited for it for ever
    (4000096, None, ()),  # a batch was removed whose retried URL was only queued
    (6000462, "nfs3", ()),  # of two retries that were the same attempt, by two owners, the earlier one counted
    (6105355, "local", ()),  # the power went off when a batch was gone whose records came while all shards were tidied
    (6104824, "moosefs", ()),  # a retry was ordered at the moment of the end
    (6100275, "local", ()),  # another's sync met a loss during ours
    (6102122, "nfs3", ()),  # the frontier was lost, and made again, while a worker was suspended before a record
    (6100641, "sshfs", ()),  # rules on another host came after an heir had met theirs: it rested for too short a time
    (6110506, None, ()),  # a suspended worker whose heartbeat somebody had removed did not know that it was replaced
    (7010105, None, ()),  # the simulation's: a power cut may tear a batch whose records were not written yet
    (7020351, "sshfs", ()),  # the frontier was made again from cached listings, without the last records
    # the retry of the owner before was added, and due, while ours waited for its flush
    (79, "local", ("power_cut_after_drop",)),
    (375, "sshfs", ("remove_frontier",)),  # the simulation's: a frontier that is gone as a whole counted as whole
    (8003289, "moosefs", ()),  # a suspended worker was marked dead, and somebody removed the mark
    (7040300, "local", ()),  # the last sync of a worker that was told to stop failed, and its records were lost
    (3400079, None, ()),  # with a limit of pages and revisits, hosts without URLs seemed due each minute: no end
]


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_whatever_happens_to_a_fleet_no_page_is_lost_and_the_end_is_true(first: int) -> None:
    failed, _, _ = many(range(first, first + PART), None, is_quick=True)
    assert not failed


@pytest.mark.parametrize("trouble", KINDS)
def test_each_kind_of_trouble_does_what_it_is_for(trouble: str) -> None:
    profile = "local" if trouble in LOSSES else "gluster" if trouble == "blackout" else "nfs3"
    results = (simulate(Scenario.of(seed, profile, (trouble,))) for seed in range(TRIES))
    effect = EFFECTS.get(trouble, f"TROUBLE {trouble}")
    assert any(result.error is None and result.effects[effect] for result in results)


@pytest.mark.parametrize(
    ("seed", "profile", "only", "is_plain"), [*((*it, True) for it in FOUND), *((*it, False) for it in FOUND_LATER)]
)
def test_what_failed_once_does_not_fail_again(
    seed: int, profile: str | None, only: tuple[str, ...], is_plain: bool
) -> None:
    result = simulate(Scenario.of(seed, profile, only, is_plain))
    assert result.error is None, "\n".join([*result.events, str(result.error)])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_simulation_finds_a_program_that_is_broken(mutant: Mutant) -> None:
    found = find(mutant)
    print(row(mutant, found))
    assert found is not None


def test_a_failure_is_shrunk_and_says_how_to_replay_it() -> None:
    mutant = MUTANTS[0]
    found = find(mutant)
    assert found is not None
    _, scenario, result = found
    with applied(mutant):
        small = shrink(scenario, 2)
        text = report(scenario, result, small)
    assert f"make simulate SEED={scenario.seed}" in text
    assert len(small.troubles) <= len(scenario.troubles)
    assert "neither done nor handed over" in text
    assert command(scenario) == f'make simulate SEED={scenario.seed} ARGS="--profile {scenario.profile}"'
