"""crawl.yaml: every setting with its default, its check and its one line of help.

Settings are stored with the crawl and the same for all machines; what may differ per machine is a flag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any

from crawler import __version__
from crawler.errors import UsageError, did_you_mean
from crawler.fetch.request import FetchOptions
from crawler.fetch.trust import BY_OPERATOR, OPERATOR_ONLY, Trust, check_harmless, check_not_stored
from crawler.settings.regions import Rules, regions_of
from crawler.settings.values import (
    Check,
    by,
    by_pattern,
    by_regex,
    choice,
    duration,
    line,
    mime,
    network,
    optional,
    rate,
    recrawl,
    regex,
    region,
    selector,
    several,
    share,
    show_duration,
    size,
    some_time,
    text,
    versions,
    whole,
    yes_no,
)
from crawler.web import urls
from crawler.web.page import FOLLOWED, LINK_KINDS
from crawler.web.text import masked


def setting(default: Any, check: Check, help: str, live: bool = False) -> Any:
    """A field of Settings with its check and its line of help; running machines reload `live` ones."""
    about = {"check": check, "help": help, "live": live}
    return field(default_factory=dict, metadata=about) if default == {} else field(default=default, metadata=about)


FOLLOW_HELP = (
    "kinds of links that are followed; feed: in RSS and Atom, img: images, also without it if they are stored, "
    "json: URLs among the values of JSON"
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration of a crawl."""

    # What to crawl
    scope: str = setting(
        "host",
        choice("page", "prefix", "host", "domain", "any"),
        "how far from the seeds links are followed: `any` is the whole web",
    )
    depth: int | None = setting(None, optional(whole(0)), "most links between a seed and a page; null: no limit")
    include: tuple[str, ...] = setting(
        (), several(regex), "follow only URLs that match one of these patterns", live=True
    )
    exclude: tuple[str, ...] = setting(
        (), several(regex), "do not request URLs that match one of these patterns", live=True
    )
    order: str = setting(
        "bfs", choice("bfs", "dfs"), "order within a host: bfs (nearest to the seeds first) or dfs (deepest first)"
    )
    max_pages: int | None = setting(None, optional(whole(1)), "maximum number of pages; null: no limit", live=True)
    max_per_host: int | None = setting(
        None, optional(whole(1)), "maximum number of pages per host; null: no limit", live=True
    )
    max_per_domain: int | None = setting(
        5_000_000,
        optional(whole(1)),
        "maximum number of pages per registrable domain, with spread: domain; null: no limit",
        live=True,
    )
    max_bytes_per_host: int | None = setting(
        20 << 30, optional(size), "maximum bytes of a host's pages and records in the store; null: no limit", live=True
    )
    max_bytes_per_domain: int | None = setting(
        100 << 30,
        optional(size),
        "the same per registrable domain, with spread: domain; null: no limit",
        live=True,
    )
    max_hosts_per_domain: int | None = setting(
        1000,
        optional(whole(1)),
        "maximum number of hosts per registrable domain, with spread: domain; those of seeds are always requested; "
        "null: no limit",
        live=True,
    )
    time_limit: float | None = setting(
        None, optional(some_time), "how long each machine runs; null: no limit", live=True
    )
    content_types: tuple[str, ...] = setting(
        ("text/html", "application/xhtml+xml"),
        several(mime),
        "content types that are stored; also patterns (`image/*`, `*/*`) and words: html, pdf, images (image/*), json, "
        "feeds (RSS, Atom and other XML), documents (PDF, office files, EPUB), all (`*/*`)",
    )
    follow: tuple[str, ...] = setting(FOLLOWED, several(choice(*LINK_KINDS)), FOLLOW_HELP)
    nofollow: bool = setting(False, yes_no, "do not follow links marked rel=nofollow")
    links_in: str | None = setting(
        None, optional(selector), "CSS selector: only links in the elements that it selects count; null: all links"
    )
    follow_match: tuple[str, ...] = setting(
        (), several(regex), "patterns: only links whose href, as it is written in the page, matches one of them count"
    )
    priorities: Mapping[str, int] = setting(
        {},
        by_regex(whole(0, 10)),
        "priority by URL pattern (`/news/: 9`), from 0 to 10; the first match counts, and without one it is 5",
        live=True,
    )
    sitemaps: bool = setting(True, yes_no, "read the sitemaps listed in robots.txt")
    traps: tuple[str, ...] = setting(
        urls.TRAPS,
        several(choice(*urls.TRAPS)),
        "rules against useless URLs: endless calendars, repeated paths, session ids, extensions of unwanted types ...",
    )
    tracking: tuple[str, ...] = setting(
        urls.TRACKING, several(text), "query parameters that are removed from every URL; `*` matches any characters"
    )
    strip_query: bool = setting(False, yes_no, "remove the whole query of every URL")
    # Politeness
    delay: float = setting(
        1.0, duration, "seconds between requests to a host, from the end of one response to the next request", live=True
    )
    delays: Mapping[str, float] = setting(
        {}, by_pattern(duration), "delay by host pattern (`*.example.org: 5s`); the first match counts", live=True
    )
    max_delay: float = setting(
        60.0, duration, "longest Crawl-delay of a robots.txt that is obeyed, in seconds", live=True
    )
    max_share: float = setting(
        0.1, share, "largest share of a worker's requests for one host while other hosts wait", live=True
    )
    max_per_address: float | None = setting(
        5.0,
        optional(rate),
        "requests a second from a worker to one address, however many hosts it has; not for delay 0; null: no limit",
        live=True,
    )
    shared_addresses: tuple[str, ...] = setting(
        (),
        several(network),
        "networks of large hosters: max_per_address counts there for each domain, not for each address",
        live=True,
    )
    robots: bool = setting(True, yes_no, "obey robots.txt, X-Robots-Tag and meta robots tags")
    user_agent: str = setting(
        f"folder-crawler/{__version__}", line, "User-Agent header; its first word is the name looked up in robots.txt"
    )
    retries: int = setting(3, whole(0, 100), "how often a URL is retried after a temporary failure", live=True)
    retry_delay: float = setting(30.0, duration, "seconds before the first retry; doubles with each", live=True)
    # Pages that change
    recrawl: float | str | Mapping[str, Any] | None = setting(
        None,
        optional(recrawl),
        "when pages are visited again: 7d, adaptive, or by URL pattern ({'/latest/': 1h, '*': 7d}); null: never",
        live=True,
    )
    fresh_share: float = setting(
        0.5, share, "share of a host's turns for revisits that are due, while new URLs of the host wait", live=True
    )
    history: int | str = setting(
        0, versions, "older versions of a page that are kept in history/: a number, or all", live=True
    )
    history_age: float | None = setting(
        None, optional(duration), "how long they are kept after they were replaced; null: no limit", live=True
    )
    # One request
    fetcher: str = setting("curl", choice("curl", "requests"), "HTTP client: curl or requests")
    timeout: float = setting(30.0, duration, "seconds for a whole request")
    connect_timeout: float = setting(10.0, duration, "seconds to connect")
    first_byte_timeout: float = setting(20.0, duration, "seconds until the first byte of the response")
    max_size: int = setting(10 << 20, size, "largest body after decompression, in bytes; larger ones are not stored")
    headers: tuple[str, ...] = setting(
        (),
        several(by(check_harmless)),
        "extra headers: Accept, Accept-Language, DNT, From; any other is for `--header` or `--secrets`, never stored",
    )
    cookies: bool = setting(
        True, yes_no, "send each host its own cookies; those that it sets are kept in the store, for its owner to read"
    )
    # The store and the machines
    parser: str = setting(
        "turbohtml", choice("turbohtml", "html5lib"), "HTML parser: turbohtml, or html5lib as the slow reference"
    )
    warc: bool = setting(
        False, yes_no, "write every request and response as it came to WARC files in warcs/, beside the pages"
    )
    warc_size: int = setting(1 << 30, size, "bytes at which a WARC file is closed and indexed, and another begun")
    durable: bool = setting(True, yes_no, "sync pages to disk, so that they survive a power cut of the file server")
    min_free: int = setting(64 << 20, size, "pause while the store has fewer free bytes", live=True)
    min_inodes: int = setting(2000, whole(0), "pause while the store has fewer free inodes", live=True)
    shards: int = setting(256, whole(1, 4096), "number of parts that hosts are divided into; cannot change later")
    spread: str = setting(
        "domain",
        choice("domain", "host", "url"),
        "domain: one worker for all hosts of a domain; host: one per host; url: all workers share a host, for delay 0",
    )
    regions: Mapping[str, str] = setting(
        {},
        by_pattern(region),
        "region by host pattern (`*.jp: tokyo`), whose hosts are for `run --region tokyo`; the first match counts",
    )
    region_takeover: float | None = setting(
        300.0,
        optional(duration),
        "seconds after which all machines crawl the hosts of a region that has no machine; null: they wait for one",
    )
    heartbeat: float = setting(2.0, duration, "seconds between a worker's heartbeats")
    dead_after: float = setting(30.0, duration, "seconds without a heartbeat after which a worker counts as dead")

    @property
    def region_rules(self) -> Rules:
        """The regions by pattern, as a value that can be compared and cached."""
        return tuple(self.regions.items())

    @property
    def removed_parameters(self) -> tuple[str, ...]:
        """The query parameters that are removed from every URL."""
        return ("*",) if self.strip_query else self.tracking


@dataclass(slots=True)
class LiveSettings:
    """The settings as they are now: an edit of crawl.yaml replaces them while the objects that use them stay."""

    now: Settings


def has_contact(settings: Settings) -> bool:
    """Tell whether requests name a contact: a URL or e-mail address in the User-Agent, or a From header."""
    return bool(re.search(r"https?://|\S@\S", settings.user_agent)) or any(
        header.lower().startswith("from:") for header in settings.headers
    )


def fetch_options(settings: Settings, trust: Trust) -> FetchOptions:
    """Return what concerns one request: the settings and the operator's words that are named like an option."""
    names = {item.name for item in fields(FetchOptions)}
    found = {
        item.name: getattr(given, item.name)
        for given in (settings, trust)
        for item in fields(given)
        if item.name in names
    }
    return FetchOptions(**found)


def delay_for(settings: Settings, host: str, wanted: float = 0.0) -> float:
    """Return the delay of a host: that of the first matching pattern, or the longer one that its robots.txt wants."""
    if not settings.delays:
        return max(settings.delay, min(wanted, settings.max_delay))
    # Compared first: the brackets of an IPv6 address are not a character set.
    fits = (delay for pattern, delay in settings.delays.items() if pattern == host or fnmatchcase(host, pattern))
    return max(next(fits, settings.delay), min(wanted, settings.max_delay))


def longest_delay(settings: Settings) -> float:
    """Return the longest delay that the settings give a host."""
    return max(settings.delay, *settings.delays.values()) if settings.delays else settings.delay


CHECKS: dict[str, Check] = {item.name: item.metadata["check"] for item in fields(Settings)}
HELP: dict[str, str] = {item.name: item.metadata["help"] for item in fields(Settings)}
MAY_HOLD_SECRETS = ("headers",)
FIXED = ("shards", "spread", "tracking", "strip_query")
LIVE = tuple(item.name for item in fields(Settings) if item.metadata["live"])  # may change while machines run


def check(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the given settings with checked values; UsageError for a wrong value or an unknown name."""
    return {name: check_one(name, value, where) for name, value in given.items()}


def check_one(name: str, value: Any, where: str) -> Any:
    """Return one setting's checked value."""
    if name not in CHECKS:
        if name in OPERATOR_ONLY:
            raise UsageError(f"{where}: {name} is not kept in the store; {BY_OPERATOR}")
        hint = did_you_mean(str(name), CHECKS, "`crawler help settings` lists them")
        raise UsageError(f"unknown setting {name!r} in {where}; {hint}")
    try:
        return CHECKS[name](value)
    except ValueError as error:
        said = "" if name in MAY_HOLD_SECRETS else f" is {value!r}"
        raise UsageError(f"{where}: {name}{said}: {error}") from None  # the error may hold the value


def is_duration(name: str) -> bool:
    """Tell whether a setting that is a number is one of seconds."""
    try:
        return bool(CHECKS[name]("1m") == 60)
    except ValueError:
        return False


def parse(data: str, where: str) -> dict[str, Any]:
    """Return the checked settings of a YAML text."""
    from crawler.web import safe_yaml  # here, as below: workers load this module too, but read no YAML

    try:
        loaded = safe_yaml.load(data, safe_yaml.IN_C)
    except ValueError as error:
        raise UsageError(f"{where} is not valid YAML: {error}; correct it or restore the file") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise UsageError(f"{where} must have lines of `setting: value`, but is a {type(loaded).__name__}")
    check_not_stored(loaded, where)
    return check({name: value for name, value in loaded.items() if name not in OPERATOR_ONLY}, where)


def check_together(settings: Settings, trust: Trust | None = None) -> None:
    """Raise UsageError for settings, and words of the operator, that contradict each other."""
    try:
        fetch_options(settings, trust or Trust())
    except ValueError as error:
        raise UsageError(f"settings contradict each other: {error}") from error
    if trust and trust.own_cookies and not settings.cookies:
        raise UsageError("--cookies gives cookies, but the store's settings have cookies: false; give only one of them")
    if settings.max_per_host is not None and settings.spread == "url":
        raise UsageError("max_per_host needs spread: domain or host, because one worker must count a host's pages")
    if settings.delays and settings.spread == "url":
        raise UsageError("delays needs spread: domain or host, because one worker must time a host's requests")
    if settings.shards <= len(regions_of(settings.region_rules)):
        raise UsageError(f"regions needs more shards than {settings.shards}: one for each region, and one for the rest")
    if settings.dead_after < 4 * settings.heartbeat:
        raise UsageError(
            f"dead_after is {settings.dead_after:g} s, but must be at least four times heartbeat "
            f"({4 * settings.heartbeat:g} s)"
        )


def pair(given: str, where: str = "--set") -> tuple[str, Any]:
    """Return KEY and VALUE of a --set argument; the value is YAML."""
    name, equals, value = given.partition("=")
    if not equals:
        raise UsageError(f"{where} {given.split()[0] if given.split() else ''}: write KEY=VALUE, such as delay=2s")
    if not value.strip():  # YAML would read null: no limit, which nobody may have meant
        raise UsageError(f"{where} {name.strip()}=: no value was given; write KEY=VALUE, such as delay=2s")
    if value.lstrip().startswith("#"):  # YAML would read a comment, but a selector such as #content is meant
        return name.strip(), value
    from crawler.web import safe_yaml

    try:
        return name.strip(), safe_yaml.load(value)
    except ValueError:
        return name.strip(), value


def render(settings: Settings) -> str:
    """Return the text of crawl.yaml: all settings, so that a later version's defaults do not change this crawl."""
    from crawler.web import safe_yaml

    lines = [
        "# The settings of this crawl, the same for every machine. Running machines reload those marked live within a\n"
        f"# minute; edit the others only while no machine runs.\n# All {len(fields(Settings))} settings are here; "
        "a file with fewer lines counts as cut off.\n"
    ]
    for item in fields(Settings):
        value = getattr(settings, item.name)
        mark = " (fixed)" if item.name in FIXED else " (live)" if item.name in LIVE else ""
        lines.append(f"# {HELP[item.name]}{mark}\n")
        if isinstance(value, tuple | Mapping):
            plain = dict(value) if isinstance(value, Mapping) else list(value)
            # Not sorted: the first match in `delays` counts.
            flow = safe_yaml.dump(plain, default_flow_style=True, sort_keys=False)
            lines.append(f"{item.name}: {flow}")
        else:
            lines.append(safe_yaml.dump({item.name: value}, allow_unicode=True))
    return "".join(lines)


def as_pair(name: str, value: Any) -> str:
    """Return KEY=VALUE as `pair` reads it."""
    if isinstance(value, str | tuple | Mapping):
        from crawler.web import safe_yaml

        plain = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        flow = safe_yaml.dump(plain, default_flow_style=True, sort_keys=False, allow_unicode=True)
        return f"{name}={flow.removesuffix(chr(10)).removesuffix('...').strip()}"
    return f"{name}={show_duration(value, 's') if _is_seconds(name, value) else show(value)}"


def differing(one: Settings, other: Settings) -> list[str]:
    """Return the names of the settings that differ; the order of mappings matters too: the first match counts."""
    names = [item.name for item in fields(Settings)]
    return [name for name in names if repr(getattr(one, name)) != repr(getattr(other, name))]


def contradictions(stored: Settings, given: Mapping[str, Any]) -> list[str]:
    """Return the names of the given settings that differ from the stored ones."""
    return [name for name, value in given.items() if getattr(stored, name) != value]


def _is_seconds(name: str, value: Any) -> bool:
    return isinstance(value, float) and is_duration(name)


def show_setting(name: str, value: Any) -> str:
    """Return the value of a setting for a message: without passwords, and durations with their unit."""
    return show_duration(value, "s") if _is_seconds(name, value) else show_safely(value)


def show_safely(value: Any) -> str:
    """Return a setting's value as a person would write it, with passwords in URLs masked."""
    return masked(show(value))


def show(value: Any) -> str:
    """Return a value as a person would write it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(str, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {show(item)}" for name, item in value.items()) + "}"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and value and value % (1 << 30) == 0:
        return f"{value >> 30}G"
    if isinstance(value, int) and value and value % (1 << 20) == 0:
        return f"{value >> 20}M"
    return f"{value:g}" if isinstance(value, float) else str(value)
