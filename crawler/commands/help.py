"""`crawler help`: pages of the manual, and the help of a command."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from importlib import resources

from crawler import errors
from crawler.commands.arguments import Add
from crawler.commands.main import COMMANDS, overview, parsers
from crawler.errors import UsageError, did_you_mean


def commands(add: Add) -> None:
    """Add `crawler help`."""
    made = add("help", run, "crawler help politeness", store=False)
    made.add_argument("topic", nargs="?", metavar="TOPIC", help="a page of the manual or a command; none lists them")


def run(options: Namespace) -> int:
    """`crawler help`."""
    pages, topic = topics(), options.topic
    if topic is None:
        print("\n".join([overview(), "", "manual:", *(f"  {name:<15}{title}" for name, title in pages.items())]))
    elif topic in pages:
        usage = [parsers([topic])[topic].format_help()] if topic in COMMANDS else []
        _show("\n".join([*usage, page(topic)]))
    elif topic in COMMANDS:
        print(parsers([topic])[topic].format_help(), end="")
    else:
        hint = did_you_mean(topic, [*pages, *COMMANDS], "`crawler help` lists them")
        raise UsageError(f"unknown topic {topic!r}; {hint}")
    return errors.OVER


def topics() -> dict[str, str]:
    """Return the pages of the manual by name, each with its title."""
    folder = resources.files("crawler") / "manual"
    names = sorted(file.name.removesuffix(".md") for file in folder.iterdir() if file.name.endswith(".md"))
    return {name: page(name).partition("\n")[0].lstrip("# ") for name in names}


def page(topic: str) -> str:
    """Return a page of the manual, as Markdown."""
    return (resources.files("crawler") / "manual" / f"{topic}.md").read_text("utf-8")


def _show(text: str) -> None:
    """Print a text; on a terminal through $PAGER, or less."""
    command = shlex.split(os.environ.get("PAGER") or "less -R")
    if sys.stdout.isatty() and shutil.which(command[0]):
        with subprocess.Popen(command, stdin=subprocess.PIPE) as pager:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
            pager.communicate(text.encode())
    else:
        print(text, end="")
