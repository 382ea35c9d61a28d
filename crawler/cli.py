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
from typing import Any, NoReturn

from crawler import (
    browse,
    check,
    completion,
    config,
    control,
    demo,
    doctor,
    errors,
    explain,
    export,
    extract,
    manual,
    plan,
    rehydrate,
    report,
    retry,
    serve,
    top,
    urls,
)
from crawler.begin import add, begin, check_root, spell_seed
from crawler.errors import CrawlerError, UsageError
from crawler.files import Files
from crawler.logs import Logs, log, many
from crawler.machine import Machine, Plan, check_limits
from crawler.manual import Parser
from crawler.show import Add, flag, say
from crawler.store import Store, open_store, open_to_write
from crawler.version import __version__

CONTACT = "set user_agent in crawl.yaml, or with the first run --user-agent 'name/1 (+https://example.org/about)'"

# flag, setting, how argparse reads it
SETTING_FLAGS: tuple[tuple[tuple[str, ...], str, dict[str, Any]], ...] = (
    (("-d", "--depth"), "depth", {"metavar": "N"}),
    (("-w", "--delay"), "delay", {"metavar": "SECONDS"}),
    (("--scope",), "scope", {"metavar": "page|prefix|host|domain|any"}),
    (("--include",), "include", {"metavar": "RE", "action": "append"}),
    (("--exclude",), "exclude", {"metavar": "RE", "action": "append"}),
    (("--order",), "order", {"metavar": "bfs|dfs"}),
    (("--limit",), "limit", {"metavar": "PAGES"}),
    (("--max-per-host",), "max_per_host", {"metavar": "PAGES"}),
    (("-U", "--user-agent"), "user_agent", {"metavar": "TEXT"}),
    (("-T", "--timeout"), "timeout", {"metavar": "SECONDS"}),
    (("--max-size",), "max_size", {"metavar": "SIZE"}),
    (("-H", "--header"), "headers", {"metavar": "LINE", "action": "append"}),
    (("--proxy",), "proxy", {"metavar": "URL"}),
    (("--connect-to",), "connect_to", {"metavar": "HOST:PORT:ADDR:PORT", "action": "append"}),
    (("--allow-private",), "allow_private", {"action": "store_true", "default": None}),
    (("--no-robots",), "robots", {"action": "store_false", "default": None}),
    (("--shards",), "shards", {"metavar": "N"}),
)

USUAL = {"depth", "delay", "scope", "include", "exclude", "limit", "user_agent"}  # the flags that --help explains

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

    _crawl_commands(add)
    for module in (top, serve, browse, export, extract, check, retry, plan):
        module.commands(add)
    completion.commands(add, parser)
    program.epilog = manual.overview(commands.choices)
    return program


def _crawl_commands(add: Add) -> None:
    """What begins a crawl, steers it, and tells how it stands."""
    shared = "/mnt/shared/crawl"
    example = f"crawler run {shared} https://example.org/ --scope host -d 3"
    _run_flags(add("run", "crawl into a store, or go on with one", run_crawl, example))
    example = f"crawler add {shared} https://example.org/news/"
    _url_flags(add("add", "give URLs to a crawl, whether machines are at work on it or not", run_add, example))
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
    demo.flags(shown, flag(config.whole(1, 1_000_000)), _whole)
    example = f"crawler doctor {shared}, on two machines at once"
    checked = add("doctor", "test whether a mount is fit for a crawl", run_doctor, example)
    checked.add_argument("--json", action="store_true", help="for scripts: a line of JSON for each promise")
    checked.add_argument(
        "--wait", type=_duration, default=30.0, metavar="TIME", help="for the same on another machine (default 30s)"
    )


def _url_flags(made: argparse.ArgumentParser) -> None:
    made.add_argument("urls", nargs="*", default=[], metavar="URL", help="where to begin")
    made.add_argument("-i", "--input-file", metavar="FILE", help="URLs, one a line; - is standard input")
    made.add_argument(
        "--sitemap", metavar="URL", action="append", default=[], help="a sitemap: what it lists are seeds; repeatable"
    )


def _run_flags(made: argparse.ArgumentParser) -> None:
    made.usage = "crawler run STORE [URL ...] [FLAG ...]"
    _url_flags(made)
    group = made.add_argument_group("settings (kept in the store; the first run decides) [default]")
    group.add_argument("-c", "--config", metavar="FILE", help="settings for a new store, as YAML")
    help = "any setting by name; repeatable"
    group.add_argument("-s", "--set", metavar="KEY=VALUE", action="append", default=[], help=help)
    rare = made.add_argument_group("more of them, which README.md explains with all that --set knows", _rare_flags())
    for flags, name, how in SETTING_FLAGS:
        if name in USUAL:
            default = getattr(config.Settings(), name)
            help = config.HELP[name] + (f" [{config.show(default)}]" if default else "")
            group.add_argument(*flags, dest=f"set_{name}", help=help.replace("%", "%%"), **how)
        else:
            rare.add_argument(*flags, dest=f"set_{name}", help=argparse.SUPPRESS, **how)
    here = made.add_argument_group("this machine (may differ from machine to machine)")
    here.add_argument(
        "-j",
        "--workers",
        type=_whole,
        default=os.cpu_count() or 1,
        metavar="N",
        help="processes (default: cores)",
    )
    here.add_argument("-t", "--threads", type=_whole, default=16, metavar="N", help="visitors per worker (default 16)")
    here.add_argument("--time-limit", type=_duration, metavar="TIME", help="end in good order after 90s, 30m, 2h, 1d")
    here.add_argument("-q", "--quiet", action="store_true", help="no progress")
    here.add_argument("-v", "--verbose", action="count", default=0, help="say more; twice: every page")
    here.add_argument("--log-file", metavar="FILE", help="everything, as JSON lines")


def _rare_flags() -> str:
    return ", ".join(flags[-1] for flags, name, _ in SETTING_FLAGS if name not in USUAL)


_whole = flag(config.whole(1, 1024))
_duration = flag(config.duration)


def run_crawl(options: argparse.Namespace) -> int:
    """`crawler run`."""
    given = given_settings(options)
    check_root(options.store, "run")
    check_limits(options.threads)
    seeds = _seeds(options)
    logs = Logs(-1 if options.quiet else options.verbose, options.log_file)
    try:
        logs.begin()
    except OSError as error:
        raise UsageError(
            f"the log file {options.log_file} cannot be written ({error.strerror}); name another"
        ) from error
    root = options.store.absolute()
    plan = Plan(root, options.workers, options.threads, options.time_limit, options.quiet, logs)
    try:
        settings = begin(options.store, given, seeds, plan.id, log.warning)
        if not config.names_somebody(settings):
            log.warning("warning: the user agent tells nobody where to complain; %s", CONTACT)
        if not settings.robots:
            log.warning("warning: robots.txt is not obeyed in this crawl (robots: false)")
        code = Machine(plan, settings).run()
    finally:
        control.withdraw(Files(root), plan.id)
    code, said = _last_word(options.store, code)
    if not options.quiet:
        say(said)
    return code


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given: -c FILE, then --set, then flags."""
    given: dict[str, Any] = {}
    if options.config:
        try:
            given |= config.parse(Path(options.config).read_text("utf-8"), options.config)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{options.config} cannot be read ({error}); name a YAML file of settings") from error
    for item in options.set:
        name, value = config.pair(item)
        given[name] = config.check_one(name, value, f"--set {name}")
    for flags, name, _ in SETTING_FLAGS:
        value = getattr(options, f"set_{name}")
        if value is not None:
            given[name] = config.check_one(name, value, flags[-1])
    return given


def _seeds(options: argparse.Namespace) -> list[str]:
    """All that the user gave to begin with, in its one spelling."""
    pages = [spell_seed(seed, ()) for seed in [*options.urls, *_input_urls(options.input_file)]]
    return pages + [urls.as_sitemap(spell_seed(seed, ())) for seed in options.sitemap]


def _input_urls(file: str | None) -> list[str]:
    if file is None:
        return []
    try:
        text = (sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")).removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read ({error}); name a text file with one URL a line") from error
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.strip().startswith("#"):
            try:
                found.append(spell_seed(line.strip(), ()))
            except UsageError as error:
                raise UsageError(f"{file}, line {number}: {error}") from error
    return found


def _last_word(root: Path, code: int) -> tuple[int, str]:
    """How a run ended; a limit that is reached when nothing waits any more is the end of the crawl."""
    try:
        found = report.status(open_store(root), again=False)
    except CrawlerError as error:
        return code, f"{errors.EXIT_CODES[code]}; {error}"
    others = any(worker["state"] == "alive" for worker in found["workers"])
    if code == errors.LIMIT and not found["waiting"] and not others:
        code = errors.OVER
    refused = sum(found["refusals"].values())
    ended = errors.EXIT_CODES[code].partition(";")[0]
    waiting = "" if code == errors.OVER else f", {found['waiting']:,} waiting"
    if not found["waiting"]:
        ended, waiting = ended.replace(" with work left", ""), waiting.replace(" 0 ", " nothing ")
    return code, (
        f"{ended}; {many(found['pages'], 'page')}, "
        f"{many(found['redirects'], 'redirect')}, {many(refused, 'refusal')}{waiting} in {root}"
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


def run_add(options: argparse.Namespace) -> int:
    """`crawler add`."""
    check_root(options.store, "add")
    seeds = _seeds(options)
    if not seeds:
        raise UsageError("there is nothing to add; give URLs, or a file of them with -i")
    say(add(_store_to_write(options.store), seeds))
    return errors.OVER


def run_pause(options: argparse.Namespace) -> int:
    """`crawler pause`."""
    say(control.pause(_store_to_write(options.store)))
    return errors.OVER


def run_resume(options: argparse.Namespace) -> int:
    """`crawler resume`."""
    say(control.resume(_store_to_write(options.store)))
    return errors.OVER


def run_stop(options: argparse.Namespace) -> int:
    """`crawler stop`."""
    done = control.stop(_store_to_write(options.store), say)
    return errors.OVER if done else errors.LIMIT


def _store_to_write(root: Path) -> Store:
    return open_to_write(root)


def run_rehydrate(options: argparse.Namespace) -> int:
    """`crawler rehydrate`."""
    store = _store_to_write(options.store)
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
