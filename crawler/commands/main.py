"""The `crawler` command: the table of commands, arguments to calls, errors to exit codes.

The module of a command is loaded when the command is called.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from crawler import __version__, errors
from crawler.errors import CrawlerError, UsageError, did_you_mean
from crawler.terminal import BOLD, paint, say


class Command(NamedTuple):
    """A command: the group in which the overview lists it, the module below `crawler.commands` that adds it."""

    group: str
    module: str
    help: str


COMMANDS = {
    "run": Command("crawl", "run", "crawl into a store, or resume a crawl"),
    "add": Command("crawl", "run", "add URLs to a crawl, whether machines are at work on it or not"),
    "set": Command("crawl", "set", "change settings of a crawl, and say when each change counts"),
    "pause": Command("crawl", "control", "have all machines stop sending requests, until `resume`"),
    "resume": Command("crawl", "control", "have all machines resume after `pause`"),
    "stop": Command("crawl", "control", "have all machines finish cleanly, and wait for them"),
    "retry": Command("crawl", "retry", "request failed URLs again"),
    "refresh": Command("crawl", "refresh", "visit stored pages again now, whatever the schedule says"),
    "rehydrate": Command("crawl", "control", "rebuild the frontier from the saved links"),
    "status": Command("watch", "status", "show the state of a crawl"),
    "top": Command("watch", "top.screen", "watch all machines of a crawl at work"),
    "serve": Command("watch", "serve.serve", "show a crawl as a web page, with metrics for Prometheus"),
    "explain": Command("watch", "explain.explain", "tell what became of a URL, and which rule decided"),
    "check": Command("watch", "check.check", "check that a store is sound, and repair it"),
    "doctor": Command("watch", "doctor.doctor", "test whether a mount is fit for a crawl"),
    "ls": Command("the corpus", "browse", "list the pages of a store"),
    "cat": Command("the corpus", "browse", "print the html of a page"),
    "links": Command("the corpus", "browse", "print the links of a page"),
    "hosts": Command("the corpus", "browse", "list the hosts of a store"),
    "changes": Command("the corpus", "changes", "list new, changed, moved and gone pages, or as a feed"),
    "history": Command("the corpus", "versions", "list the versions of a page"),
    "diff": Command("the corpus", "versions", "show what is different between two versions of a page"),
    "export": Command("the corpus", "export.export", "write pages to a file or a database, a row each"),
    "extract": Command("the corpus", "extract.extract", "extract data from stored pages by rules, without requests"),
    "compare": Command("more", "compare", "time the same URLs by processes, by requests at once, and by both"),
    "plan": Command("more", "plan", "estimate disk, machines and time for a crawl of so many pages"),
    "demo": Command("more", "demo.demo", "see one of two machines killed, and every page of a web there"),
    "completion": Command("more", "completion", "print a script that completes commands in a shell"),
    "help": Command("more", "help", "show a page of the manual, or the help of a command"),
}
ABOUT = "A web crawler for several machines and one shared folder."
WIDTH, INDENT = 80, 14
HEADING = re.compile(r"^(?:\S.*:$|usage:|example:)", re.MULTILINE)


def main() -> NoReturn:
    """Run the `crawler` command."""
    for number in (signal.SIGINT, signal.SIGTERM):  # until a machine handles them: exit silently
        signal.signal(number, signal.default_int_handler)
    _prepare_output()
    code = run(sys.argv[1:])
    gc.freeze()  # Python would look for garbage among all that is loaded, and then free it
    sys.exit(code)


def _prepare_output() -> None:
    """Make printing safe where standard output is closed, or lacks some characters."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - for as long as we live
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        return _call(args)
    except CrawlerError as error:
        say(f"crawler: {error}", sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        _print_no_more()
        return errors.OVER
    except KeyboardInterrupt:
        return errors.STOPPED
    except Exception as error:  # noqa: BLE001 - the one place where a fault of ours gets its exit code
        if isinstance(error, OSError) and (code := _report_disk(error)):
            return code
        from crawler.crawl.logs import log

        log.exception("crawler: a fault of the program itself; please report it with these lines")
        return errors.BUG


def _report_disk(error: OSError) -> int:
    """Say what is wrong with a disk or a mount outside the store, and return the exit code; 0 if it is none of these.

    Errors of the store are translated in `store.mount`. These come from a file that the user named, from standard
    output, or from the folder that we were started in.
    """
    from crawler.store.reading import DISK_FULL, GONE

    if error.errno in DISK_FULL and not error.filename:
        _print_no_more()
        say("crawler: no space left for the output; free some, or print to another place", sys.stderr)
        return errors.FULL
    if error.errno in GONE:
        where = f"{error.filename or 'the output, or the current folder'}"
        say(f"crawler: {where} does not respond ({error.strerror}); is the mount still there?", sys.stderr)
        return errors.STORE
    return 0


def _print_no_more() -> None:
    """Drop what is not printed yet: closing standard output must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(args: Sequence[str]) -> int:
    """Run the command and flush its output: at exit, a closed pipe would look like a fault."""
    try:
        options = read(args)
        _collect_garbage()
        return int(options.command(options))
    finally:
        sys.stdout.flush()


def _collect_garbage() -> None:
    """Collect garbage again if the program began without, but not among what was loaded."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def read(args: Sequence[str]) -> argparse.Namespace:
    """Return the options of a command line; URLs may stand among the flags, which argparse alone does not allow."""
    name, *_ = args = args or ["--help"]
    if name not in COMMANDS and not name.startswith("-"):
        hint = did_you_mean(name, COMMANDS, "`crawler help` lists the commands")
        raise UsageError(f"unknown command {name!r}; {hint}")
    program = parser([name] if name in COMMANDS else ())
    options, rest = program.parse_known_args(args)
    several = [given for given in (vars(options).get("urls"), vars(options).get("hosts")) if isinstance(given, list)]
    strange = [item for item in rest if item.startswith("-") or not several]
    if strange:
        raise UsageError(_unknown(strange[0].partition("=")[0], vars(options).get("parser", program)))
    if rest:
        several[0] += rest
    return options


def _unknown(item: str, command: argparse.ArgumentParser) -> str:
    more = f"`{command.prog} --help` lists what it takes"
    known = [flag for flag in command._option_string_actions if flag.startswith("--")]
    if not item.startswith("-"):
        is_port = item.isdecimal() and "--port" in known
        return f"unexpected argument {item!r}; {f'did you mean --port {item}?' if is_port else more}"
    return f"unknown option {item}; {did_you_mean(item, known, more, quoted=False)}"


def parser(names: Collection[str] = COMMANDS.keys()) -> Parser:
    """Return the parser of the program with these commands."""
    program = Parser(prog="crawler", usage="crawler COMMAND ...", description=ABOUT, formatter_class=Overview)
    program.add_argument("--version", action="version", version=f"crawler {__version__}")
    program.epilog = overview()
    if not names:
        return program
    commands = program.add_subparsers(prog="crawler", required=True, metavar="COMMAND", help=argparse.SUPPRESS)

    def add(name: str, call: Callable[[argparse.Namespace], int], example: str, store: bool = True) -> Parser:
        made: Parser = commands.add_parser(name, description=f"{COMMANDS[name].help}.", epilog=f"example: {example}")
        made.set_defaults(command=call, parser=made)
        if store:
            made.add_argument("store", type=_folder, metavar="STORE", help="the shared folder")
        return made

    for module in dict.fromkeys(COMMANDS[name].module for name in names):
        import_module(f"crawler.commands.{module}").commands(add)
    return program


def _folder(given: str) -> Path:
    if not given:  # of a variable that is not set, say; a path would mean the current folder
        raise UsageError("the name of STORE is empty; name the folder of the crawl")
    return Path(given)


def parsers(names: Collection[str] = COMMANDS.keys()) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of these commands by name, and of what their modules add besides."""
    (found,) = (action.choices for action in parser(names)._actions if isinstance(action.choices, dict))
    return dict(found)


def overview() -> str:
    """Return all commands in their groups, a line or two each."""
    groups = dict.fromkeys(command.group for command in COMMANDS.values())
    lines = [line for group in groups for line in _group(group)]
    return "\n".join([*lines, "`crawler COMMAND --help` lists its options, `crawler help` the manual."])


def _group(title: str) -> Iterator[str]:
    yield f"{title}:"
    for name, command in COMMANDS.items():
        if command.group == title:
            first = f"  {name:<{INDENT - 2}}"
            yield textwrap.fill(command.help, WIDTH, initial_indent=first, subsequent_indent=" " * INDENT)
    yield ""


class Layout(argparse.HelpFormatter):
    """One line for each flag, where argparse would take two."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=25)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Return a paragraph in which no flag is divided at its hyphens."""
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-d, --depth N`, and not `-d N, --depth N`."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"


class Overview(argparse.RawDescriptionHelpFormatter, Layout):
    """The same, with the groups of commands as they are."""


class Parser(argparse.ArgumentParser):
    """argparse with our layout, and with one sentence and exit code for errors."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"formatter_class": Layout, **how})

    def format_help(self) -> str:
        """Return the help, with headings that stand out on a terminal."""
        return HEADING.sub(lambda found: paint(found[0], BOLD), super().format_help())

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"{message}; see `{self.prog} --help`")
