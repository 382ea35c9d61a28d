"""What --help shows fits a screen, and every command is in its group."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.world import crawler
from test_terminal import on_a_terminal

from crawler.commands.main import COMMANDS, parsers


@pytest.fixture(autouse=True)
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of the usual width."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("name", sorted(parsers()))
def test_the_help_of_a_command_fits_a_screen(name: str) -> None:
    lines = parsers()[name].format_help().splitlines()
    assert len(lines) <= (50 if name == "run" else 24)
    assert max(map(len, lines)) <= 80


def test_the_help_of_the_program_fits_a_screen_and_has_every_command_in_a_group() -> None:
    lines = crawler("--help").splitlines()
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    assert set(parsers()) == set(COMMANDS)
    assert set(COMMANDS) == {line.split()[0] for line in lines if line.startswith("  ") and line[2].isalpha()}


def test_the_command_alone_shows_its_help() -> None:
    assert crawler() == crawler("--help")


def pages() -> list[str]:
    """The names of the manual's pages."""
    return sorted(path.stem for path in (Path(__file__).parents[2] / "crawler" / "manual").glob("*.md"))


def test_help_lists_commands_and_the_pages_of_the_manual() -> None:
    listed = {line.split()[0] for line in crawler("help").splitlines() if line.startswith("  ") and line[2].isalpha()}
    assert listed == {*COMMANDS, *pages()}


def test_help_shows_a_page_of_the_manual_or_the_help_of_a_command() -> None:
    (page,) = pages()[:1]
    text = (Path(__file__).parents[2] / "crawler" / "manual" / f"{page}.md").read_text()
    assert crawler("help", page).endswith(text)
    assert crawler("help", "pause") == crawler("pause", "--help")


def test_a_topic_that_is_not_known_gets_the_nearest_one() -> None:
    assert "unknown topic 'statsu'; did you mean 'status'?" in crawler("help", "statsu", code=2)
    assert "unknown topic 'xyz'; `crawler help` lists them" in crawler("help", "xyz", code=2)


def test_a_page_of_the_manual_goes_through_the_pager_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    (page,) = pages()[:1]
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    assert "paged:#" in on_a_terminal("help", page)
    assert "paged:" not in crawler("help", page)
    monkeypatch.setenv("PAGER", "there-is-no-such-pager")
    assert "#" in on_a_terminal("help", page)


def test_every_flag_of_run_is_named_in_its_help() -> None:
    said = parsers()["run"].format_help()
    for action in parsers()["run"]._actions:
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
