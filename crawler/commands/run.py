"""`crawler run` and `crawler add`: from flags to settings and seeds, and to a running machine."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from crawler import errors
from crawler import settings as config
from crawler.commands import status
from crawler.commands.arguments import DURATION, SETTING_FLAGS, WHOLE, WORKERS, Add, check_root, normalize_seed
from crawler.crawl.logs import Logs, log
from crawler.crawl.machine import CONCURRENCY, Machine, Plan, allowed_concurrency
from crawler.crawl.start import add as add_seeds
from crawler.crawl.start import begin
from crawler.errors import CrawlerError, UsageError
from crawler.fleet import control
from crawler.frontier.task import sitemap_task
from crawler.store.mount import Files
from crawler.store.store import open_store
from crawler.store.writer import open_to_write
from crawler.terminal import as_time, many, say
from crawler.web.reasons import KINDS

CONTACT = "set user_agent in crawl.yaml, or with the first run --user-agent 'name/1 (+https://example.org/about)'"
USUAL = {"depth", "delay", "scope", "include", "exclude", "max_pages", "user_agent"}  # the flags that --help explains


def commands(add: Add) -> None:
    """`crawler run` and `crawler add`."""
    shared = "/mnt/shared/crawl"
    example = f"crawler run {shared} https://example.org/ --scope host -d 3"
    _run_flags(add("run", run_crawl, example))
    example = f"crawler add {shared} https://example.org/news/"
    _url_flags(add("add", run_add, example))


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
    rare = made.add_argument_group("more settings; `crawler help settings` explains them and all others", _rare_flags())
    for flags, name, how in SETTING_FLAGS:
        if name in USUAL:
            default = getattr(config.Settings(), name)
            help = config.HELP[name] + (f" [{config.show(default)}]" if default else "")
            group.add_argument(*flags, dest=f"set_{name}", help=help.replace("%", "%%"), **how)
        else:
            rare.add_argument(*flags, dest=f"set_{name}", help=argparse.SUPPRESS, **how)
    here = made.add_argument_group("this machine (may differ from machine to machine)")
    here.add_argument("-j", "--workers", **WORKERS)
    help = f"requests open at once per worker (default {CONCURRENCY})"
    here.add_argument("-t", "--concurrency", type=WHOLE, metavar="N", help=help)
    here.add_argument("--time-limit", type=DURATION, metavar="TIME", help="finish cleanly after 90s, 30m, 2h, 1d")
    here.add_argument("-q", "--quiet", action="store_true", help="no progress")
    here.add_argument("-v", "--verbose", action="count", default=0, help="log more; twice: every page")
    here.add_argument("--log-file", metavar="FILE", help="everything, as JSON lines")


def _rare_flags() -> str:
    return ", ".join(flags[-1] for flags, name, _ in SETTING_FLAGS if name not in USUAL)


def run_crawl(options: argparse.Namespace) -> int:
    """`crawler run`."""
    given = given_settings(options)
    check_root(options.store, "run")
    concurrency = allowed_concurrency(options.concurrency)
    seeds = _seeds(options)
    logs = Logs(-1 if options.quiet else options.verbose, options.log_file)
    try:
        logs.begin()
    except OSError as error:
        raise UsageError(
            f"the log file {options.log_file} cannot be written ({error.strerror}); name another"
        ) from error
    root, began = options.store.absolute(), time.monotonic()
    plan = Plan(root, options.workers, concurrency, options.time_limit, options.quiet, logs)
    try:
        settings = begin(options.store, given, seeds, plan.id, log.warning)
        if not config.has_contact(settings):
            log.warning("warning: the User-Agent has no contact URL or e-mail address; %s", CONTACT)
        if not settings.robots:
            log.warning("warning: robots.txt is not obeyed in this crawl (robots: false)")
        machine = Machine(plan, settings)
        code = machine.run()
    finally:
        control.withdraw(Files(root), plan.id)
    code, said = _last_line(options.store, code, machine.scoreboard.total("pages"), time.monotonic() - began)
    if not options.quiet:
        say(said)
    return code


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given: -c FILE, then --set, then flags."""
    given: dict[str, Any] = {}
    if options.config:
        try:
            given |= config.parse(Path(options.config).read_text("utf-8"), options.config)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{options.config} cannot be read ({error}); name a YAML file of settings") from error
    for item in options.set:
        name, value = config.pair(item)
        given[name] = config.check_one(name, value, "--set")
    for flags, name, _ in SETTING_FLAGS:
        value = getattr(options, f"set_{name}")
        if value is not None:
            given[name] = config.check_one(name, value, flags[-1])
    return given


def _seeds(options: argparse.Namespace) -> list[str]:
    """Return the URLs that the user gave, normalized."""
    pages = [normalize_seed(seed) for seed in [*options.urls, *_input_urls(options.input_file)]]
    return pages + [sitemap_task(normalize_seed(seed)).name for seed in options.sitemap]


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
                found.append(normalize_seed(line.strip()))
            except UsageError as error:
                raise UsageError(f"{file}, line {number}: {error}") from error
    return found


def _last_line(root: Path, code: int, pages: int, seconds: float) -> tuple[int, str]:
    """Return the exit code and last line of a run; at a limit with nothing waiting, the crawl is over."""
    try:
        found = status.status(open_store(root), again=False)
    except CrawlerError as error:
        return code, f"{errors.EXIT_CODES[code]}; {error}"
    others = any(worker["state"] == "alive" for worker in found["workers"])
    if code == errors.LIMIT and not found["waiting"] and not others:
        code = errors.OVER
    ended = errors.EXIT_CODES[code].partition(";")[0]
    if not found["waiting"]:
        ended = ended.replace(" with work left", "")
    counts = [many(found["pages"], "page"), many(found["redirects"], "redirect")]
    counts += [f"{found[kind]:,} {kind}" for kind in KINDS if found[kind]]
    if code != errors.OVER:
        counts.append(f"{found['waiting']:,} waiting" if found["waiting"] else "nothing waiting")
    pace = f"{as_time(seconds)}, {pages / max(seconds, 0.1):,.1f} pages a second"
    return code, f"{ended}; {', '.join(counts)} in {root}; this run: {pace}"


def run_add(options: argparse.Namespace) -> int:
    """`crawler add`."""
    check_root(options.store, "add")
    seeds = _seeds(options)
    if not seeds:
        raise UsageError("nothing to add; give URLs, or a file of them with -i")
    say(add_seeds(open_to_write(options.store), seeds))
    return errors.OVER
