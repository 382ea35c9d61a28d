"""Documentation cannot drift: every command, flag, setting, exit code and reason is in the README."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest
from lab.world import Links, world

from crawler import Store
from crawler.commands.main import parser
from crawler.errors import EXIT_CODES
from crawler.settings import HELP, LIVE, Settings
from crawler.web.reasons import REASONS

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    """All commands by name."""
    (found,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_command_and_each_of_its_flags_is_in_the_readme(name: str) -> None:
    assert f"`crawler {name} " in README
    for action in commands()[name]._actions:
        for flag in action.option_strings:
            assert re.search(rf"{re.escape(flag)}\b", README), f"crawler {name} {flag}"


@pytest.mark.parametrize("name", [item.name for item in fields(Settings)])
def test_every_setting_is_in_the_readme_with_its_meaning_and_whether_it_may_change_while_machines_run(
    name: str,
) -> None:
    live = "yes" if name in LIVE else ""
    assert re.search(rf"^\| `{name}` \|.*\| {live} \| {re.escape(HELP[name])} \|$", README, re.MULTILINE)


def test_every_exit_code_and_reason_is_in_the_readme() -> None:
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in README
    for name, reason in REASONS.items():
        assert f"| `{name}` | {reason.kind} | {'yes' if reason.retry else 'no'} | {reason.meaning} |" in README


def test_the_folder_in_the_readme_is_the_folder_that_a_crawl_makes(tmp_path: Path) -> None:
    with world(Links({"/": ["/gone"]}), tmp_path) as w:
        w.crawl()
        tree = README.split("STORE/\n")[1].split("```")[0]
        told = {re.split(r"[/ ]", line.strip())[0] for line in tree.splitlines() if line.strip()}
        assert told == {path.name for path in w.root.iterdir() if not path.name.startswith(".")}


def test_a_record_has_the_fields_that_the_readme_shows_and_the_library_reads_it(tmp_path: Path) -> None:
    with world(Links({"/": ["/a"], "/a": []}), tmp_path) as w:
        w.crawl()
        shown = json.loads(README.split("```json\n")[1].split("```")[0])
        store = Store(w.root)
        records = list(store.records("a.example"))
        assert [list(record) for record in records] == [list(shown)] * 2
        assert all((store.html(record["url"]) or "").strip().endswith("</html>") for record in records)


def test_help_of_each_command_has_an_example() -> None:
    for name, command in commands().items():
        assert f"example: crawler {name}" in command.format_help().replace("\n", " ")
