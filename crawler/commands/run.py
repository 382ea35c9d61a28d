"""`crawler run` and `crawler add`: from flags to settings and seeds, and to a running machine."""

from __future__ import annotations

import argparse
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawler import errors
from crawler.commands import permissions, seeds, status
from crawler.commands.arguments import CORES, SETTING_FLAGS, SOME_TIME, WHOLE, WORKERS, Add, check_root, flag, reading
from crawler.commands.retry import Wanted, retry
from crawler.crawl import child, fork_server
from crawler.crawl.handler import Handler
from crawler.crawl.logs import Logs, log
from crawler.crawl.machine import CONCURRENCY, Machine, Plan, allowed_concurrency
from crawler.crawl.process import load_workers, raise_limits
from crawler.crawl.start import add as add_seeds
from crawler.crawl.start import begin
from crawler.crawl.whole import make_whole
from crawler.errors import CrawlerError, UsageError, did_you_mean
from crawler.fetch.request import is_secret
from crawler.fetch.trust import Trust, check_certificates
from crawler.fleet import control
from crawler.fleet.heartbeats import read_counters
from crawler.fleet.local_lock import LocalLock
from crawler.fleet.totals import sum_by_rule
from crawler.frontier import rehydrate
from crawler.frontier.task import Task
from crawler.settings import settings as config
from crawler.settings.regions import regions_of
from crawler.settings.values import whole
from crawler.store.mount import Files
from crawler.store.store import Store, open_store
from crawler.store.writer import StoreWriter, open_to_write
from crawler.terminal import as_time, many, say
from crawler.web import addresses, urls
from crawler.web.reasons import KINDS

CONTACT = "set user_agent in crawl.yaml, or with the first run --user-agent 'name/1 (+https://example.org/about)'"
MANY_WORKERS = 8  # for each core
PRIVATE = "private-address"  # the reason
LIMIT_REACHED = "the time or page limit was reached with work left"
SCOPES = {  # what `run` says about each
    "page": "no links are followed",
    "prefix": "links are followed below the folders of the seeds",
    "host": "links are followed on the hosts of the seeds",
    "domain": "links are followed on the domains of the seeds",
    "any": "links are followed to all hosts of the web",
}
USUAL = {"depth", "delay", "scope", "include", "exclude", "max_pages", "user_agent"}  # the flags that --help explains


def commands(add: Add) -> None:
    """`crawler run` and `crawler add`."""
    shared = "/mnt/shared/crawl"
    example = f"crawler run {shared} https://example.org/ -d 3"
    _run_flags(add("run", run_crawl, example))
    example = f"crawler add {shared} https://example.org/news/"
    made = add("add", run_add, example)
    seeds.add_flags(made)
    help = "from 0 to 10: URLs of a host with a higher one are requested first [5]"
    made.add_argument("--priority", type=flag(whole(0, 10)), metavar="N", help=help)


def _run_flags(made: argparse.ArgumentParser) -> None:
    made.usage = "crawler run STORE [URL ...] [FLAG ...]"
    seeds.add_flags(made)
    group = made.add_argument_group("settings (kept in the store; the first run decides) [default]")
    group.add_argument("-c", "--config", metavar="FILE", help="settings for a new store, as YAML")
    help = "crawl on from copied pages without their settings"
    group.add_argument("--accept-defaults", action="store_true", help=help)
    help = "any setting by name; repeatable"
    group.add_argument("-s", "--set", metavar="KEY=VALUE", action="append", default=[], help=help)
    rare = made.add_argument_group("more; `crawler help commands` explains them", _rare_flags())
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
    here.add_argument("--time-limit", type=SOME_TIME, metavar="TIME", help="finish cleanly after 90s, 30m, 2h, 1d")
    help = "do not end when nothing is due, but wait"
    here.add_argument("--forever", action="store_true", help=help)
    here.add_argument("--region", metavar="NAME", default="", help="where this machine is, as `regions` names it")
    permissions.add_flags(here)
    here.add_argument("-q", "--quiet", action="store_true", help="no progress")
    here.add_argument("-v", "--verbose", action="count", default=0, help="log more; twice: every page")
    here.add_argument("--log-file", metavar="FILE", help="everything, as JSON lines")


def _rare_flags() -> str:
    return ", ".join([*(flags[-1] for flags, name, _ in SETTING_FLAGS if name not in USUAL), *permissions.NAMES])


@dataclass(frozen=True, slots=True)
class Result:
    """What a run brought: its exit code and last line, as the command has them, and what it counted."""

    exit_code: int  # 0: the crawl is over, 7: without any page; see crawler.errors.EXIT_CODES
    summary: str
    elapsed: float  # seconds
    store: Store = field(repr=False)
    pages: int = 0  # that this run stored, like all that follows
    redirects: int = 0
    failed: int = 0
    excluded: int = 0
    unwanted: int = 0
    handler_errors: int = 0  # pages for which on_page raised an exception
    revisits: int = 0  # visits of pages that were stored before
    changed: int = 0  # how many of these found another page

    @property
    def is_over(self) -> bool:
        """Whether nothing is waiting."""
        return self.exit_code in (errors.OVER, errors.NOTHING)


COUNTED = ("pages", "redirects", *KINDS, "handler_errors", "revisits", "changed")


def run_crawl(options: argparse.Namespace) -> int:
    """`crawler run`."""
    given = given_settings(options)
    raise_limits()  # each worker takes some files of its supervisor, and one of the fork server
    with fork_server.running(load_workers):
        return crawl(options, given).exit_code


def crawl(options: argparse.Namespace, given: dict[str, Any], handler: Handler | None = None) -> Result:
    """Run a machine with the flags of `crawler run` and these settings; a Python program may give a handler."""
    check_root(options.store, "run", options.urls)
    concurrency = allowed_concurrency(options.concurrency)
    given_urls = seeds.given_seeds(options)
    trust = permissions.given_trust(options, given_urls)
    check_certificates()
    logs = Logs(-1 if options.quiet else options.verbose, options.log_file)
    try:
        logs.begin()
    except OSError as error:
        raise UsageError(
            f"the log file {options.log_file} cannot be written ({error.strerror}); name another"
        ) from error
    root, began = options.store.absolute(), time.monotonic()
    quiet, forever = options.quiet, options.forever
    plan = Plan(
        root,
        options.workers,
        concurrency,
        options.time_limit,
        quiet,
        forever,
        logs,
        region=options.region,
        trust=trust,
        handler=handler,
    )
    lock = LocalLock(plan.id)  # if we are killed before the first heartbeat, commands here know it at once
    try:
        settings = begin(options.store, given, given_urls, plan.id, log.warning, trust, options.accept_defaults)
        check_region(options.region, settings)
        for said in _retry_private(options.store, settings, trust, given_urls):
            log.warning("%s", said)
        if not options.quiet:
            say(_scope_line(options.store, settings.scope, settings.depth))
        for said in _warnings(settings, options.workers, CORES):
            log.warning("warning: %s", said)
        code, counts, is_later = _work(plan, settings, options.store)
    finally:
        control.withdraw(Files(root), plan.id)
        lock.release()
    elapsed = time.monotonic() - began
    code, said = _last_line(options.store, code, counts["pages"], elapsed, is_later)
    if counts["revisits"]:
        said += f"; {many(counts['revisits'], 'visit')} of stored pages, {counts['changed']:,} changed"
    if counts["handler_errors"]:
        said += f"; on_page failed for {many(counts['handler_errors'], 'page')}"
    if not options.quiet:
        say(said)
    return Result(code, said, elapsed, Store(root), **counts)


def _warnings(settings: config.Settings, workers: int, cores: int) -> Iterator[str]:
    """Yield what the operator may not have meant."""
    if not config.has_contact(settings):
        yield f"the User-Agent has no contact URL or e-mail address; {CONTACT}"
    if not settings.robots:
        yield "robots.txt is not obeyed in this crawl (robots: false)"
    if workers > MANY_WORKERS * cores:
        yield f"{workers:,} workers on {many(cores, 'core')}: one for each core is enough, and each takes long to start"


def _retry_private(root: Path, settings: config.Settings, trust: Trust, given: Sequence[str]) -> Iterator[str]:
    """Retry what machines that were not told to request a private host have excluded, now that this one is told to.

    Only of hosts that are named here or were given as seeds: links from elsewhere into private networks stay excluded.
    """
    store = open_to_write(root)
    counters = read_counters(store.files)
    if counters and not sum_by_rule(counters, "reasons")[PRIVATE] > 0:  # there may be a million of other failures
        return
    stored = (seed for _, seeds in store.seeds() for seed in seeds) if trust.allow_private else ()
    hosts = trust.private | {urls.host(Task.named(seed).url) for seed in (*given, *stored)}
    told = sorted(host for host in hosts if addresses.names_private(host) and not trust.excludes(host))
    wanted = Wanted(frozenset({PRIVATE}), tuple(told))
    if any(wanted.has(failure) for host in told for failure in store.failures(host)):
        yield retry(store, settings, wanted)


def check_region(given: str, settings: config.Settings) -> None:
    """Raise an error if a machine is in a region that the settings do not name."""
    names = regions_of(settings.region_rules)
    if given and given not in names:
        hint = did_you_mean(
            given, names, f"crawl.yaml has {', '.join(names)}" if names else "set regions in crawl.yaml first"
        )
        raise UsageError(f"--region {given}: no host belongs to this region; {hint}")


def _scope_line(root: Path, scope: str, depth: int | None) -> str:
    """Return which scope the crawl has, or that its depth leaves none, and the command that changes it."""
    if depth == 0:
        return f"depth 0: {SCOPES['page']}; `crawler set {root} depth=null` changes that"
    other = "any" if scope != "any" else "host"
    return f"scope {scope}: {SCOPES[scope]}; `crawler set {root} scope={other}` changes that"


def _work(plan: Plan, settings: config.Settings, root: Path) -> tuple[int, Counter[str], bool]:
    """Run a machine, and return its exit code, what it counted, and whether what waits is due only later.

    That nothing is left to do is proved first.

    Somebody may have removed a part of the frontier. No machine works when it is made whole again, so every page that
    was in flight has its record by then.
    """
    began, counts = time.monotonic(), Counter(dict.fromkeys(COUNTED, 0))
    store = StoreWriter(root, Files(root, plan.id, settings.durable))
    while True:
        machine = Machine(plan, settings, began)
        code = machine.run()
        counts.update({name: machine.scoreboard.total(name) for name in COUNTED})
        is_idle = code == errors.OVER or machine.is_waiting
        if not is_idle or not rehydrate.is_needed(store):
            return code, counts, machine.is_waiting
        child.on_signals(signal.default_int_handler)  # between two runs of the machine they end this process again
        settings = machine.settings
        make_whole(store, settings, plan.id, log.warning)


def given_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that were given: -c FILE, then --set, then flags."""
    given: dict[str, Any] = {}
    if options.config:
        with reading(options.config, "a YAML file of settings"):
            given |= config.parse(Path(options.config).read_text("utf-8"), options.config)
    for item in options.set:
        name, value = config.pair(item)
        given[name] = config.check_one(name, value, "--set")
    for flags, name, _ in SETTING_FLAGS:
        value = getattr(options, f"set_{name}")
        if name == "headers" and value:  # secret ones are not for the store: see `permissions`
            value = [line for line in value if not is_secret(line)] or None
        if value is not None:
            given[name] = config.check_one(name, value, flags[-1])
    return given


def _last_line(root: Path, code: int, pages: int, seconds: float, is_later: bool = False) -> tuple[int, str]:
    """Return the exit code and last line of a run; at a limit with nothing waiting, the crawl is over.

    An end without any page has an exit code of its own: a script must not go on as if there were some. `is_later` if
    the run ended because nothing is due within the hour.
    """
    try:
        store = open_store(root)
        found = status.status(store, again=False)
        lacks = rehydrate.is_needed(store)
        has_pages = found["pages"] or next(store.pages(), None) is not None  # looked for, because counters may be lost
    except CrawlerError as error:
        return code, f"{errors.EXIT_CODES[code]}; {error}"
    others = any(worker["state"] == "alive" for worker in found["workers"])
    has_visits = any(found[name] for name in status.FRESHNESS)  # that are planned or due
    if code == errors.LIMIT and not (found["waiting"] or has_visits or is_later or others or lacks):
        code = errors.OVER
    if code == errors.OVER and not has_pages:
        code = errors.NOTHING
    ended = LIMIT_REACHED if code == errors.LIMIT else errors.EXIT_CODES[code].partition(";")[0]
    lacking = status.regions_without_machines(found)
    if code == errors.LIMIT and is_later and lacking:
        ended = f"what waits is for machines of {lacking}; run one there with --region"
    elif code == errors.LIMIT and is_later:
        ended = f"nothing is due within the hour{_next_due(found)}; run again then, or with --forever"
    elif code == errors.LIMIT and has_visits and not found["waiting"]:
        ended = ended.replace("work left", f"visits to come{_next_due(found)}")
    elif not found["waiting"]:
        ended = ended.replace(" with work left", "")
    counts = [many(found["pages"], "page"), many(found["redirects"], "redirect")]
    counts += [f"{found[kind]:,} {kind}" for kind in KINDS if found[kind]]
    if code not in (errors.OVER, errors.NOTHING):
        counts.append(f"{found['waiting']:,} waiting" if found["waiting"] else "nothing waiting")
    pace = f"{as_time(seconds)}, {pages / max(seconds, 0.1):,.1f} pages a second"
    return code, f"{ended}; {', '.join(counts)} in {root}; this run: {pace}"


def _next_due(found: dict[str, Any]) -> str:
    return f", the next URL at {found['next_due']}" if found["next_due"] else ""


def run_add(options: argparse.Namespace) -> int:
    """`crawler add`."""
    check_root(options.store, "add", options.urls)
    given = seeds.given_seeds(options)
    if not given:
        raise UsageError("nothing to add; give URLs, or a file of them with -i")
    say(add_seeds(open_to_write(options.store), given, options.priority))
    return errors.OVER
