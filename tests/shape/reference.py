"""The pages of the manual that are made from the code: `make manual` writes them, and a test holds them to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import crawler
from crawler.commands import permissions
from crawler.commands.arguments import SETTING_FLAGS
from crawler.commands.main import COMMANDS, parsers
from crawler.errors import EXIT_CODES
from crawler.settings import settings
from crawler.settings.settings import CHECKS, FIXED, HELP, LIVE, Settings
from crawler.web.reasons import REASONS

MANUAL = Path(crawler.__file__).parent / "manual"
LONG = 60  # letters of a default that still fits its column
SECTIONS = {"scope": "What to crawl", "delay": "Politeness", "fetcher": "One request", "parser": "Store and machines"}
KINDS = {
    "failed": "The network, the server or the response is to blame",
    "excluded": "A rule forbids the request: robots.txt, a private address, a port, the URL itself",
    "unwanted": "The response came, but it is not what the crawl keeps",
}


def settings_page() -> Iterator[str]:
    """settings.md: each setting with its flag, default, when it may change, and its line of help."""
    yield """# Settings of crawl.yaml

Every setting of crawl.yaml with its flag, its default and its meaning.

They are kept in `STORE/crawl.yaml`, which the first run writes from `-c`, `--config
FILE` (YAML), `-s`, `--set KEY=VALUE` and the flags below, in that order. A later run
takes all of them from there; a later flag that contradicts the file stops with a
message that names both values.

The column "edit" says when you may edit the file: `live` while machines are running,
which take the edit up within a minute
([machines](machines.md#change-settings-while-machines-run)); `stopped` while none is
running; `never` once the store is made. Durations take s, m, h, d; sizes K, M, G. What
may differ from machine to machine is a flag of [crawler run](commands.md#crawler-run),
not a setting."""
    flags = {name: ", ".join(f"`{flag}`" for flag in names) for names, name, _ in SETTING_FLAGS}
    long: list[str] = []
    for item in fields(Settings):
        if item.name in SECTIONS:
            yield f"\n## {SECTIONS[item.name]}\n\n| setting | flag | default | edit | meaning |\n|---|---|---|---|---|"
        default = settings.show(getattr(Settings(), item.name)).replace("|", "\\|")
        if len(default) > LONG:
            long.append(f"The default of `{item.name}`: {default}")
        edit = "never" if item.name in FIXED else "live" if item.name in LIVE else "stopped"
        shown = default if len(default) <= LONG else "see below"
        meaning = HELP[item.name] + _choices(item.name)
        yield f"| `{item.name}` | {flags.get(item.name, '')} | {shown} | {edit} | {meaning} |"
    yield "\n" + "\n\n".join(long)
    yield """
## Scope

`page` is the seeds alone; `prefix` what begins like a seed's folder; `host` the seeds'
hosts; `domain` their registrable domains (by the public suffix list, which comes with a
package); `any` everything. A seed that redirects takes the scope along.

## Spread

With `domain`, one worker has all hosts of a registrable domain, and keeps its limits
and its pace ([politeness](politeness.md#requests-to-one-address-and-to-one-domain)).
With `host`, it may be several workers: for a crawl of one domain with many hosts, by
many workers, with an agreement. Stores of versions that did not know `domain` have
`host`.

A store made with `delay` 0 has `spread: url` unless told otherwise, or unless
`max_per_host` or `delays` is set."""


def _choices(name: str) -> str:
    """The words that a setting may be, unless its help has them: its check names them when it gets anything else."""
    try:
        CHECKS[name](object())
    except ValueError as error:
        words = str(error).removeprefix("must be one of ").split(", ")
        if str(error).startswith("must be one of") and not all(word in HELP[name] for word in words):
            several = "any" if isinstance(getattr(Settings(), name), tuple) else "one"
            return f" ({several} of {', '.join(words)})"
    return ""


def commands_page() -> Iterator[str]:
    """commands.md: each command with its arguments, as --help has them, and its example."""
    yield """# Commands and their arguments

Every command with its arguments and an example.

`crawler COMMAND --help` prints the same; `crawler --version` the version; `python -m
crawler` is the same program. URLs and hosts may stand anywhere among the flags."""
    found = parsers()
    for group in dict.fromkeys(command.group for command in COMMANDS.values()):
        yield f"\n## {group.capitalize()}"
        for name, command in COMMANDS.items():
            if command.group == group:
                yield from _command(name, found[name])


def _command(name: str, command: argparse.ArgumentParser) -> Iterator[str]:
    said = command.description or ""
    yield f"\n### crawler {name}\n\n{said[:1].upper()}{said[1:]}\n"
    yield f"    {(command.epilog or '').removeprefix('example: ')}\n"
    rows = [row for action in command._actions if (row := _row(command, action))]
    if rows:
        yield "| argument | meaning |\n|---|---|"
        yield from rows


def _row(command: argparse.ArgumentParser, action: argparse.Action) -> str:
    """An argument's row; none for --help."""
    if isinstance(action, argparse._HelpAction):
        return ""
    names = ", ".join(f"`{flag}`" for flag in action.option_strings)
    value = f"`{action.metavar}`" if isinstance(action.metavar, str) and action.nargs != 0 else ""
    setting = action.dest.removeprefix("set_") if action.dest.startswith("set_") else ""
    if action.choices and not value:
        value = "one of " + ", ".join(map(str, action.choices))
    if setting:
        said = f"setting `{setting}`: {HELP[setting]}"
    elif action.help == argparse.SUPPRESS:
        said = permissions.HELP[action.dest]
    else:
        said = command._get_formatter()._expand_help(action) if action.help else ""
    shown = " ".join(filter(None, (names, value))).replace("|", "\\|")
    return f"| {shown} | {said} |"


def exit_codes_page() -> Iterator[str]:
    """exit-codes.md."""
    yield """# Exit codes

What the exit code of a command means, for scripts and job systems.

| code | meaning |
|---|---|"""
    yield from (f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    yield """
- `crawler run` ends with 0, 3, 4, 5, 6, 7 or 70 once it has begun; every other command
  that did what it should with 0.
- `crawler check` ends with 0 if the store is sound or was repaired, and 1 if something
  was found.
- `crawler stop` ends with 4 if a machine that is alive has not ended in time.
- `crawler doctor` ends with 0 if the mount is fit, 5 if not, 6 if there is not enough space to
  test.
- `crawler cat`, `links` and `ls` end with 1 if the page or the host is not in the
  store.

What SLURM, Kubernetes and systemd do with them is in
[deploy/README.md](../../deploy/README.md#slurm)."""


def reasons_page() -> Iterator[str]:
    """reasons.md: why a URL has no page, by kind."""
    yield """# Reasons why a URL has no page

Why a URL has no page: every reason that a failure record can have, by its three kinds.

The reason is in `errs/<host>/<key>` ([store](store.md#a-failure-record)), in `status`,
`top`, `serve`, `ls` and the metrics. `crawler explain STORE URL` says more about one
URL. The setting `retries` says how often the ones that are retried are requested again
before they are final; `crawler retry STORE --reason REASON` retries any of them by
hand."""
    for kind, meaning in KINDS.items():
        yield f"\n## {kind.capitalize()}\n\n{meaning}.\n\n| reason | retried | meaning |\n|---|---|---|"
        for name, reason in REASONS.items():
            if reason.kind == kind:
                yield f"| `{name}` | {'yes' if reason.retry else 'no'} | {reason.meaning} |"


PAGES = {
    "settings": settings_page,
    "commands": commands_page,
    "exit-codes": exit_codes_page,
    "reasons": reasons_page,
}


def page(name: str) -> str:
    """A page as the code gives it."""
    return "\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    for name in PAGES:
        (MANUAL / f"{name}.md").write_text(page(name), "utf-8")
        print(f"crawler/manual/{name}.md")
