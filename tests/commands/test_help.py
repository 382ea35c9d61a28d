"""What --help shows fits a screen, and every command is in its group."""

from __future__ import annotations

import argparse

import pytest
from lab.world import crawler
from test_terminal import on_a_terminal

from crawler.commands.help import GROUPS
from crawler.commands.main import parser


def commands() -> dict[str, argparse.ArgumentParser]:
    """All commands by name."""
    (found,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", sorted(commands()))
def test_the_help_of_a_command_fits_a_screen(name: str) -> None:
    lines = commands()[name].format_help().splitlines()
    assert len(lines) <= (40 if name == "run" else 24)
    assert max(map(len, lines)) <= 80


def test_the_help_of_the_program_fits_a_screen_and_has_every_command_in_a_group() -> None:
    lines = crawler("--help").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert set(commands()) <= {name for names in GROUPS.values() for name in names}
    assert set(commands()) == {line.split()[0] for line in lines if line.startswith("  ") and line[2].isalpha()}


def test_every_flag_of_run_is_named_in_its_help() -> None:
    said = commands()["run"].format_help()
    for action in commands()["run"]._actions:
        assert not action.option_strings or action.option_strings[-1] in said


def test_headings_stand_out_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    shown = on_a_terminal("run", "--help")
    assert "\x1b[1musage:\x1b[0m crawler run STORE" in shown
    assert "\x1b[1mexample:\x1b[0m crawler run" in shown
    assert "\x1b[1mwatch:\x1b[0m" in on_a_terminal("--help")
    assert "\x1b" not in crawler("run", "--help")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_a_terminal("run", "--help")
