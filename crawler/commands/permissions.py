"""The flags by which the operator of this machine says whom to trust, and what they mean together."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from crawler.errors import UsageError
from crawler.fetch.request import check_connect_to, check_header, check_proxy, is_secret
from crawler.fetch.trust import Trust, origins, private_hosts, read_cookies, read_netrc, read_secrets
from crawler.frontier.task import Task
from crawler.web import urls

SECRETS = "CRAWLER_SECRETS"  # environment variable with the path of the file
NETRC = "~/.netrc"  # as curl


# Of the flags that `run --help` only names; the manual has them.
HELP = {
    "cookies": "cookies in Netscape's format, as curl and browsers' exporters write them, for the hosts named there",
    "netrc": f"logins (Basic) for the hosts named there; without FILE {NETRC}",
    "proxy": "proxy for all requests; proxies from the environment are ignored",
    "connect_to": "as in curl; an empty HOST or PORT matches all; repeatable",
    "allow_private": "allow all hosts on loopback and private networks, not only those of the URLs given here",
    "allow_metadata": "allow link-local addresses and those of cloud metadata, too",
}
NAMES = [f"--{name.replace('_', '-')}" for name in HELP]


def add_flags(group: argparse._ActionsContainer) -> None:
    """Add the flags; `--header` is one of the settings, because the store keeps those that are no secrets."""
    group.add_argument("--secrets", metavar="FILE", help=f"headers, proxy ... of your own (or ${SECRETS})")
    group.add_argument("--cookies", metavar="FILE", help=argparse.SUPPRESS)
    group.add_argument("--netrc", metavar="FILE", nargs="?", const=NETRC, help=argparse.SUPPRESS)
    group.add_argument("--proxy", metavar="URL", help=argparse.SUPPRESS)
    rule: Any = {"metavar": "HOST:PORT:ADDR:PORT", "default": [], "help": argparse.SUPPRESS}
    group.add_argument("--connect-to", action="append", **rule)
    for name in ("--allow-private", "--allow-metadata"):
        group.add_argument(name, action="store_true", help=argparse.SUPPRESS)


def given_trust(options: argparse.Namespace, seeds: Sequence[str]) -> Trust:
    """Return what the operator said: the file of secrets, then flags; URLs on the command line name hosts."""
    file = options.secrets or os.environ.get(SECRETS)
    said: dict[str, Any] = read_secrets(file) if file else {}
    named = [Task.named(seed).url for seed in seeds]
    said["private"] = said.get("private", frozenset()) | private_hosts(named)
    by_flag, by_file = _seed_headers(options, named), said.get("headers", {})
    said["headers"] = by_flag | {origin: (*lines, *by_flag.get(origin, ())) for origin, lines in by_file.items()}
    if options.cookies:
        said["own_cookies"] = (*said.get("own_cookies", ()), *read_cookies(options.cookies))
    if options.netrc:
        said["logins"] = said.get("logins", {}) | read_netrc(_netrc_file(options.netrc))
    said["plain"] = frozenset(urls.host(url) for url in named if url.startswith("http:"))
    if options.proxy:
        said["proxy"] = _checked("--proxy", check_proxy, options.proxy)
    if options.connect_to:
        said["connect_to"] = tuple(_checked("--connect-to", check_connect_to, rule) for rule in options.connect_to)
    for name in ("allow_private", "allow_metadata"):
        said[name] = getattr(options, name) or said.get(name, False)
    return Trust(**said)


def _netrc_file(given: str) -> str:
    if "://" in given:  # the file may be left out, so that what follows is taken for it
        raise UsageError(f"--netrc takes a file, not a URL; name URLs before it, or write --netrc={NETRC}")
    return given


def _seed_headers(options: argparse.Namespace, seeds: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the secret headers of the command line by the origins of the URLs there."""
    given = tuple(line for line in options.set_headers or () if is_secret(line))
    for line in given:
        _checked("--header", check_header, line)
    if given and not seeds:
        name = given[0].partition(":")[0]
        raise UsageError(
            f"--header {name}: no host to send it to; name the URLs again, because those in the store do not count, "
            "or give headers by host with --secrets FILE (`crawler help security`)"
        )
    return dict.fromkeys(origins(seeds), given) if given else {}


def _checked(flag: str, check: Any, value: str) -> str:
    try:
        check(value)
    except ValueError as error:
        raise UsageError(f"{flag}: {error}") from None  # the error may hold the value
    return value
