"""Arguments to calls, errors to exit codes. Only this module prints and exits."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from crawler import __version__, errors
from crawler import settings as config
from crawler.commands import browse, completion, explain, plan, retry
from crawler.commands import help as manual
from crawler.commands import run as crawl
from crawler.commands import status as report
from crawler.commands.check import check
from crawler.commands.demo import demo
from crawler.commands.doctor import doctor
from crawler.commands.export import export
from crawler.commands.extract import extract
from crawler.commands.help import Parser
from crawler.commands.run import DURATION, WHOLE
from crawler.commands.serve import serve
from crawler.commands.top import screen
from crawler.crawl.logs import log
from crawler.crawl.start import check_root
from crawler.errors import CrawlerError, UsageError
from crawler.fleet import control
from crawler.frontier import rehydrate
from crawler.store.store import open_store
from crawler.store.writer import open_to_write
from crawler.terminal import Add, flag, say

Call = Callable[[argparse.Namespace], int]


def main() -> NoReturn:
    """The `crawler` command."""
    for number in (signal.SIGINT, signal.SIGTERM):  # until a machine listens to them: an end without a word
        signal.signal(number, signal.default_int_handler)
    _prepare_output()
    sys.exit(run(sys.argv[1:]))


def _prepare_output() -> None:
    """Printing is no fault, be it that standard output was closed before we began, or that it lacks some letters."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - for as long as we live
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def run(args: Sequence[str]) -> int:
    """Run one command; the exit code."""
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
        if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
            _print_no_more()
            say("crawler: there is no room for what is printed; free some, or print to another place", sys.stderr)
            return errors.FULL
        log.exception("crawler: a fault of the program itself; please report it with these lines")
        return errors.BUG


def _print_no_more() -> None:
    """Leave what is not printed yet: closing standard output must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _call(args: Sequence[str]) -> int:
    """Run it until all that it printed is out: after us, a closed pipe would be a fault."""
    try:
        options = read(args)
        return int(options.command(options))
    finally:
        sys.stdout.flush()


def read(args: Sequence[str]) -> argparse.Namespace:
    """The options of a command line; URLs may stand anywhere among the flags, which argparse alone does not allow."""
    options, rest = parser().parse_known_args(args)
    several = [given for given in (vars(options).get("urls"), vars(options).get("hosts")) if isinstance(given, list)]
    strange = [item for item in rest if item.startswith("-") or not several]
    if strange:
        name = strange[0].partition("=")[0]
        raise UsageError(
            f"there is no flag or place for {name!r}; `crawler --help` and `crawler COMMAND --help` list them"
        )
    if rest:
        several[0] += rest
    return options


def parser() -> Parser:
    """All commands and flags."""
    about = "A web crawler for several machines and one shared folder."
    program = Parser(prog="crawler", usage="crawler COMMAND ...", description=about, formatter_class=manual.Overview)
    program.add_argument("--version", action="version", version=f"crawler {__version__}")
    commands = program.add_subparsers(prog="crawler", required=True, metavar="COMMAND", help=argparse.SUPPRESS)

    def add(name: str, help: str, call: Call, example: str, store: bool = True) -> Parser:
        made: Parser = commands.add_parser(name, description=help + ".", epilog=f"example: {example}")
        made.set_defaults(command=call)
        if store:
            made.add_argument("store", type=Path, metavar="STORE", help="the shared folder")
        return made

    crawl.commands(add)
    _crawl_commands(add)
    for module in (screen, serve, browse, export, extract, check, retry, plan):
        module.commands(add)
    completion.commands(add, parser)
    program.epilog = manual.overview(commands.choices)
    return program


def _crawl_commands(add: Add) -> None:
    """What steers a crawl, and tells how it stands."""
    shared = "/mnt/shared/crawl"
    status = add("status", "how a crawl stands", show_status, f"crawler status {shared} --json | jq .waiting")
    status.add_argument("--json", action="store_true", help="for scripts")
    status.add_argument("-v", "--verbose", action="store_true", help="show each worker, however many there are")
    example = f"crawler explain {shared} https://example.org/news/"
    explained = add("explain", "what became of a URL, and which rule decided", show_explanation, example)
    explained.add_argument("url", metavar="URL", help="in any spelling")
    explained.add_argument("--json", action="store_true", help="for scripts")
    add("pause", "have all machines stop asking hosts, until `resume`", run_pause, f"crawler pause {shared}")
    add("resume", "have all machines go on after `pause`", run_resume, f"crawler resume {shared}")
    help = "have all machines at work end in good order, and wait for them"
    add("stop", help, run_stop, f"crawler stop {shared}")
    add("rehydrate", "make the frontier again from the saved links", run_rehydrate, f"crawler rehydrate {shared}")
    help = "crawl an embedded web and prove that every page is there"
    shown = add("demo", help, demo.run, "crawler demo /tmp/demo --workers 4", store=False)
    demo.flags(shown, flag(config.whole(1, 1_000_000)), WHOLE)
    example = f"crawler doctor {shared}, on two machines at once"
    checked = add("doctor", "test whether a mount is fit for a crawl", run_doctor, example)
    checked.add_argument("--json", action="store_true", help="for scripts: a line of JSON for each promise")
    checked.add_argument(
        "--wait", type=DURATION, default=30.0, metavar="TIME", help="for the same on another machine (default 30s)"
    )


def show_status(options: argparse.Namespace) -> int:
    """`crawler status`."""
    found = report.status(open_store(options.store))
    say(json.dumps(found) if options.json else report.as_text(found, options.verbose))
    return errors.OVER


def show_explanation(options: argparse.Namespace) -> int:
    """`crawler explain`."""
    check_root(options.store, "explain")
    found = explain.explain(open_store(options.store), options.url)
    print(json.dumps(found) if options.json else explain.as_text(found))
    return errors.OVER


def run_pause(options: argparse.Namespace) -> int:
    """`crawler pause`."""
    say(control.pause(open_to_write(options.store)))
    return errors.OVER


def run_resume(options: argparse.Namespace) -> int:
    """`crawler resume`."""
    say(control.resume(open_to_write(options.store)))
    return errors.OVER


def run_stop(options: argparse.Namespace) -> int:
    """`crawler stop`."""
    done = control.stop(open_to_write(options.store), say)
    return errors.OVER if done else errors.LIMIT


def run_rehydrate(options: argparse.Namespace) -> int:
    """`crawler rehydrate`."""
    store = open_to_write(options.store)
    settings = store.settings()
    with store.alone("rehydrating the store"):
        rehydrate.rehydrate(store, settings, say)
    return errors.OVER


def run_doctor(options: argparse.Namespace) -> int:
    """`crawler doctor`."""
    findings = []
    with closing(doctor.examine(options.store, options.wait)) as told:
        for found in told:
            if isinstance(found, str):
                say(found, sys.stderr)
                continue
            findings.append(found)
            say(json.dumps(asdict(found)) if options.json else doctor.as_line(found))
    if not options.json:
        say(doctor.verdict(findings))
    return doctor.exit_code(findings)
