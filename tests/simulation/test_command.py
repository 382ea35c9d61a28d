"""The command lines of the simulation: several processes, exit codes, and mutants that fit the program."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("greenlet", reason="the simulation needs greenlet")
from simulation import mutants, run
from simulation.mutants import MUTANTS, Mutant, applied, find


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_still_fits_the_program(mutant: Mutant) -> None:
    with applied(mutant):
        pass


def test_several_processes_report_what_one_does(capsys: pytest.CaptureFixture[str]) -> None:
    with applied(MUTANTS[0]):  # a fork takes the change with it
        one = run.many(range(3), "local", is_quick=True)
        told = capsys.readouterr().out
        two = run.many(range(3), "local", is_quick=True, jobs=2)
        assert (one, told) == (two, capsys.readouterr().out)
    assert one[0] > 0
    assert one[1].total() == 3


@pytest.mark.parametrize(("most", "code"), [("1", 0), ("0", 1)])
def test_a_mutant_that_is_not_found_is_a_failure(monkeypatch: pytest.MonkeyPatch, most: str, code: int) -> None:
    monkeypatch.setattr(sys, "argv", ["mutants", "-k", "record without its html", "--most", most])
    assert mutants.main() == code


def test_a_failure_that_the_program_itself_has_is_no_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "simulate", lambda scenario: SimpleNamespace(error=AttributeError("is_file")))
    with pytest.raises(AssertionError, match="the program as it is fails there too: is_file"):
        find(MUTANTS[0])
