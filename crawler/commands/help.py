"""The manual: what --help shows. A command fits a screen, and the commands stand in groups."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from crawler.errors import UsageError
from crawler.terminal import BOLD, paint

GROUPS = {
    "crawl": ("run", "add", "pause", "resume", "stop", "retry", "rehydrate"),
    "watch": ("status", "top", "serve", "explain", "check", "doctor"),
    "the corpus": ("ls", "cat", "links", "hosts", "export", "extract"),
    "more": ("plan", "demo", "completion"),
}
WIDTH, INDENT = 80, 14
HEADING = re.compile(r"^(?:\S.*:$|usage:|example:)", re.MULTILINE)


class Layout(argparse.HelpFormatter):
    """A line for each flag, where argparse would take two."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=25)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-d, --depth N`, and not `-d N, --depth N`."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Overview(Layout, argparse.RawDescriptionHelpFormatter):
    """The same, with the groups of commands as they are."""


class Parser(argparse.ArgumentParser):
    """argparse, with our layout, our one sentence and exit code."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"formatter_class": Layout, **how})

    def format_help(self) -> str:
        """The help, with headings that stand out on a terminal."""
        return HEADING.sub(lambda found: paint(found[0], BOLD), super().format_help())

    def error(self, message: str) -> NoReturn:
        """Stop with a sentence about usage."""
        raise UsageError(f"{message}; `{self.prog} --help` tells more")


def overview(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """All commands in their groups, a line or two each."""
    grouped = {name for names in GROUPS.values() for name in names}
    rest = {"others": [name for name in commands if name not in grouped]}
    lines = [line for title, names in {**GROUPS, **rest}.items() for line in _group(title, names, commands)]
    return "\n".join([*lines, "`crawler COMMAND --help` has the flags of a command and an example."])


def _group(title: str, names: Iterable[str], commands: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    known = [name for name in names if name in commands]
    if known:
        yield f"{title}:"
    for name in known:
        said = (commands[name].description or "").removesuffix(".")
        yield textwrap.fill(said, WIDTH, initial_indent=f"  {name:<{INDENT - 2}}", subsequent_indent=" " * INDENT)
    if known:
        yield ""
