"""`crawler explain`: what became of one URL, and which rule or failure decided. It only reads.

Not promised: what was handed over in the last seconds may be in no batch yet, a mount may show an old listing, and
whether an owner is alive is judged by this machine's clock.
"""

from __future__ import annotations

import json
import re
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from crawler import errors
from crawler.commands.arguments import Add, check_root, what_is_wrong
from crawler.fleet import members
from crawler.fleet.control import is_paused
from crawler.fleet.heartbeats import ALIVE
from crawler.fleet.shards import FREE, inboxes, read_owners
from crawler.frontier.batches import from_lines, read_batches
from crawler.frontier.limits import StoredLimits
from crawler.frontier.scope import Scope, bars, given_priority
from crawler.frontier.task import ROBOTS, SITEMAP, Task, retry_task, shard_of
from crawler.settings import settings as config
from crawler.settings.regions import region_of_shard
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import mark_of, utc
from crawler.store.store import Store, file_of, open_store, shard_name
from crawler.terminal import many
from crawler.web import addresses, kinds, patterns, urls
from crawler.web.page import GIVEN, PRIORITY, REDIRECTS
from crawler.web.reasons import look_up
from crawler.web.robots import Rules, token
from crawler.web.text import printable

Facts = dict[str, Any]

DONE, WAITING, NEVER_SEEN, NEVER_REQUESTED = "done", "waiting", "never seen", "never requested"
SHOWN = 5  # seeds or patterns that are named
TRAPS = {
    "long": "it is longer than 1,000 characters",
    "repeat": "its path has one segment three times or more",
    "deep": "its path has more than 20 segments",
    "calendar": "it has a date far ahead, or a calendar's date long past",
}


def commands(add: Add) -> None:
    """Add `crawler explain`."""
    made = add("explain", run, "crawler explain /mnt/shared/crawl https://example.org/news/")
    made.add_argument("url", metavar="URL", help="need not be normalized")
    made.add_argument("--json", action="store_true", help="for scripts")


def run(options: Namespace) -> int:
    """`crawler explain`."""
    check_root(options.store, "explain", [options.url])
    found = explain(open_store(options.store), options.url)
    print(json.dumps(found) if options.json else as_text(found))
    return errors.OVER


def explain(store: Store, given: str) -> Facts:
    """Return all that the store knows about a URL as a JSON value, without the userinfo that was given."""
    settings = store.settings()
    meant = candidates(given, settings)
    if not meant:
        return {
            "url": None,
            "state": NEVER_REQUESTED,
            "rule": "bad-url",
            "why": what_is_wrong(given, _scheme(store, given)),
        }
    owners = read_owners(store.files, settings.shards)
    for url in meant:
        shard = shard_of(Task.named(url), settings.shards, settings.spread, settings.region_rules)
        fate = _fate(store, url, [shard, inboxes(owners).get(shard, shard)])
        if fate:
            break
    robots = _robots(store, settings, url)
    found = {
        "url": url,
        "changes": _changes(given, url, settings),
        "key": urls.key(url),
        "paths": {noun: _path(noun, url) for noun in ("htmls", "links", "errs")} | _file_path(store, url),
        "shard": shard,
        "region": region_of_shard(shard, settings.region_rules),
        "owner": _owner(store.files, settings, owners.get(shard, set())),
        "paused": is_paused(store.files),
        **(fate or {"state": NEVER_SEEN}),
        "depth_limit": settings.depth,
        "robots": robots,
        "delay": config.delay_for(settings, urls.host(url), robots.get("crawl_delay", 0.0) if settings.robots else 0.0),
    }
    found["priority"] = _priority(settings, found)
    rule, why = _decided(store, settings, found)
    return {**found, "rule": rule, "why": why}


# ---- which URL it is


def candidates(given: str, settings: Settings) -> list[str]:
    """Return the names of tasks that may be meant, none if it is never requested; the last is what a link leads to."""
    normalized = urls.normalize(given, tracking=settings.removed_parameters)
    if normalized is None:
        return []
    task = Task.named(given)._replace(url=normalized)
    marked = [task.name] if task.kind in (SITEMAP, ROBOTS) else []
    bare = urls.without_session(normalized) if "session" in settings.traps else normalized
    return list(dict.fromkeys([*marked, normalized, bare]))


def _scheme(store: Store, given: str) -> str:
    """Return the scheme by which the store knows the host of a URL that has none; https if it does not know it."""
    guess = urls.normalize(f"http://{given}") if urls.lacks_scheme(given) else None
    if not guess:
        return "https"
    host = urls.host(guess)
    requested = (str(record.get("url")) for record in chain(store.records(host), store.failures(host)))
    seeds = (url for url in (Task.named(seed).url for seed in _seeds(store)) if urls.host(url) == host)
    return "http" if next(chain(requested, seeds), "").startswith("http:") else "https"


def _changes(given: str, url: str, settings: Settings) -> list[str]:
    """Return how the URL differs from what was given, in words."""
    if given == url:
        return []
    plain = urls.normalize(given, tracking=()) or ""
    differences = {
        "userinfo": re.match(r"\s*\w+:[/\\]*[^/\\?#]*@", given) is not None,
        "fragment": "#" in given and "#" not in url,
        "tracking parameters": plain != urls.normalize(given, tracking=settings.removed_parameters),
        "session id": urls.without_session(plain) != plain and urls.without_session(url) == url,
    }
    return [f"without its {what}" for what, differs in differences.items() if differs] or ["as browsers write it"]


# ---- what became of it


def _path(noun: str, url: str) -> str:
    return f"{noun}/{urls.host(url)}/{urls.key(url)}"


def _file_path(store: Store, url: str) -> Facts:
    name = file_of(store.record(url) or {})
    return {"files": name} if name else {}


def _fate(store: Store, url: str, shards: Iterable[int]) -> Facts | None:
    """Return the facts of a URL that is done or waiting, or None; it may become done while we look for it."""
    shards = list(dict.fromkeys(shards))
    return _done(store, url, shards) or _waiting(store.files, shards, url) or _done(store, url, shards)


def _done(store: Store, url: str, shards: list[int]) -> Facts | None:
    record, failure = store.record(url), store.failure(url)
    if record:
        return {"state": DONE, "record": _of_record(record)}
    if failure:
        facts = {name: failure.get(name) for name in ("reason", "detail", "attempts", "when")}
        again = _waiting(store.files, shards, retry_task(url, mark_of(failure)).name) is not None
        kind, _, meaning = look_up(str(facts["reason"]))
        return {"state": DONE, "failure": {**facts, "kind": kind, "meaning": meaning, "again": again}}
    broken = [path for path in (_path("links", url), _path("errs", url)) if store.files.get(path) is not None]
    return {"state": DONE, "broken": broken[0]} if broken else None


def _of_record(record: Facts) -> Facts:
    links = record.get("links")
    links = links if isinstance(links, list) else []
    redirect = links[0] if record.get("status") in REDIRECTS and links else None
    facts = {name: record.get(name) for name in ("status", "fetched", "title", "type", "bytes", "depth")}
    return {**facts, "links": len(links), "redirect": redirect}


def _waiting(files: Files, shards: Iterable[int], name: str) -> Facts | None:
    url = Task.named(name).url
    lines = [line for shard in shards for data in read_batches(files, shard) for line in _lines_in(data, url)]
    tasks = [task for task in from_lines(b"".join(lines)) if task.name == name]
    if not tasks:
        return None
    task = max(tasks, key=lambda task: (task.attempt, -task.depth))
    seconds = max(task.due - time.monotonic(), 0.0)
    due = utc(time.time() + seconds) if seconds else None
    waiting = {"depth": task.depth, "attempt": task.attempt, "due": due, "seconds": round(seconds)}
    waiting["priority"] = task.priority
    return {"state": WAITING, "waiting": waiting}


def _lines_in(data: bytes, url: str) -> Iterator[bytes]:
    """Yield the lines of a URL in a batch, of any kind, without parsing the others: there may be a million."""
    for found in re.finditer(re.escape(f"\t{url}".encode()) + rb"(?:[\t#].*)?$", data, re.MULTILINE):
        yield data[data.rfind(b"\n", 0, found.start()) + 1 : found.end()] + b"\n"


def _owner(files: Files, settings: Settings, names: set[str]) -> Facts:
    """Return who owns the shard, and whether its heartbeat is recent."""
    id = min(names, default=FREE)
    if id == FREE:
        return {"id": None, "state": FREE}
    worker = members.find(files, settings, id)
    return {name: worker[name] for name in ("id", "state", "age", "machine", "name", "ignored_settings")}


# ---- robots.txt of its host


def _robots(store: Store, settings: Settings, url: str) -> Facts:
    """Return what robots.txt says about the URL, as it was last read."""
    facts: Facts = {"obeyed": settings.robots, "token": token(settings.user_agent), "read": None}
    known = store.robots(urls.host(url))
    if known is None:
        return facts
    rules = Rules(known.body, settings.user_agent)
    allowed = rules.allow(Task.named(url).url)
    return {**facts, "read": utc(known.read), "status": known.status, "allowed": allowed, "crawl_delay": rules.delay}


# ---- its priority


def _priority(settings: Settings, found: Facts) -> Facts | None:
    """Return the priority of a URL that is not done, and where it comes from."""
    if found["state"] == DONE:
        return None
    by_setting = given_priority(settings, found["url"])
    number = found["waiting"]["priority"] if "waiting" in found else PRIORITY if by_setting is None else by_setting
    if number < GIVEN:
        return {"number": number, "by": "the default" if number == PRIORITY else "a sitemap"}
    by = "the setting priorities" if number == by_setting else "`crawler add --priority`, or an earlier setting"
    return {"number": number - GIVEN, "by": by}


# ---- which rule decided

Decision = tuple[str | None, str]  # the name of the rule or reason, and what it says


def _decided(store: Store, settings: Settings, found: Facts) -> Decision:
    if "failure" in found:
        failure = found["failure"]
        again = "; `crawler retry` has queued it again" if failure["again"] else ""
        return failure["reason"], f"{failure['kind']}: {failure['meaning']}{again}"
    if "broken" in found:
        return None, f"{found['broken']} cannot be read; remove it and rehydrate to request the URL again"
    if "record" in found:
        target = found["record"]["redirect"]
        return None, "it is a redirect; explain its target to see what became of it" if target else "it was kept"
    if found["state"] == NEVER_SEEN:
        kept_out = _not_followed(store, settings, found["url"])
    else:
        kept_out = _left_out(settings, found["url"], found["waiting"]["depth"])
    kept_out = kept_out or _never(store, found["url"]) or _not_now(store, settings, found)
    if kept_out:
        return kept_out
    if found["state"] == WAITING:
        failed = "; a `--log-file` of the machines has what its last attempt failed with, the store does not"
        tried = failed if found["waiting"]["attempt"] else ""
        return None, f"nothing excludes it: it is requested when it is due and the delay of its host allows{tried}"
    return None, f"nothing excludes it, but no page links to it; `crawler add {store.root} URL` adds it"


def _never(store: Store, url: str) -> Decision | None:
    """Return the rule by which a URL is never requested, wherever it comes from.

    What the operators of the machines allowed is not in the store, so it is said as a condition, unless pages show it.
    """
    port = _port(url)
    if port in addresses.BAD_PORTS:
        return "bad-port", f"port {port} is {look_up('bad-port').meaning}, unless --connect-to leads elsewhere"
    if addresses.names_private(urls.host(url)) and not any(store.files.each_name(f"links/{urls.host(url)}")):
        return "private-address", "the host is on a private network: requested only by machines that were told to"
    return None


def _port(url: str) -> int:
    found = re.search(r":(\d+)\Z", urls.host(url))
    return int(found[1]) if found else addresses.DEFAULT_PORTS[url.partition(":")[0]]


def _seeds(store: Store) -> Iterator[str]:
    """Yield the seeds, and where their redirects led."""
    for _, seeds in store.seeds():
        yield from seeds


def _not_followed(store: Store, settings: Settings, url: str) -> Decision | None:
    """Return the rule by which a link is not followed."""
    seeds = _seeds(store) if settings.scope != "any" else ()
    scope = Scope(
        settings.scope,
        seeds,
        settings.include,
        settings.exclude,
        settings.traps,
        content_types=settings.content_types,
    )
    rule = scope.refuses(url)
    if rule is None:
        return None
    if rule == "scope":
        return rule, f"it is outside the scope `{settings.scope}` of the seeds: {_some(scope.places)}"
    if rule == "extension":
        name = kinds.unwanted_extension(url, settings.content_types)
        wanted = ", ".join(settings.content_types)
        return rule, f"a file .{name} is of no type that is stored ({wanted}; rule `extension` of the setting `traps`)"
    if rule in TRAPS:
        return rule, f"it looks like a trap: {TRAPS[rule]} (rule `{rule}` of the setting `traps`)"
    return rule, _barred(settings, url, rule)


def _barred(settings: Settings, url: str, rule: str) -> str:
    if rule == "include":
        return f"none of the include patterns is found in it: {_some(settings.include)}"
    pattern = next(pattern for pattern in settings.exclude if patterns.compiled(pattern).search(url))
    return f"the exclude pattern {pattern} is found in it"


def _left_out(settings: Settings, url: str, depth: int) -> Decision | None:
    """Return the pattern, edited since the URL was queued, that excludes it."""
    task = Task.named(url, depth)
    rule = bars(Scope("any", (), settings.include, settings.exclude), task)
    return (rule, f"{_barred(settings, task.url, rule)}: it will be dropped from the queue") if rule else None


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return (", ".join(islice(names, SHOWN)) or "none") + more


def _not_now(store: Store, settings: Settings, found: Facts) -> Decision | None:
    """Return what would exclude it if it were requested now."""
    if found["robots"].get("allowed") is False and settings.robots:
        return "robots", f"{look_up('robots').meaning}, as it was last read"
    host, limits = urls.host(found["url"]), StoredLimits(store, settings)
    limits.add_waiting(_waiting_hosts(store.files, found["shard"], urls.zone(host)))
    return limits.reached(host)


def _waiting_hosts(files: Files, shard: int, zone: str) -> set[str]:
    """Return the hosts of a domain of which URLs wait: its shard has all of them if the domain has limits."""
    hosts: set[str] = set()
    for data in read_batches(files, shard):
        lines = (line for line in data.splitlines(keepends=True) if zone.encode() in line)
        hosts.update(task.host for task in from_lines(b"".join(lines)))
    return hosts


# ---- for people


def as_text(found: Facts) -> str:
    """Return an explanation for people: short lines, no control characters."""
    if found["url"] is None:
        lines = {"state": found["state"], "why": found["why"]}
    else:
        host = urls.host(found["url"])
        lines = {
            "url": found["url"],
            "normalized": ", ".join(found["changes"]),
            "key": found["key"],
            "paths": _say_paths(found, host),
            "shard": f"{shard_name(found['shard'])}, {_say_owner(found['owner'])}",
            "region": found["region"],
            "state": _say_state(found),
            "why": found["why"],
            "depth": _say_depth(found),
            "priority": "{number} of 10, by {by}".format(**found["priority"]) if found["priority"] else "",
            "robots": _say_robots(found["robots"]),
            "delay": f"{found['delay']:g} s between requests to {host}",
            "settings": found["owner"].get("ignored_settings", ""),
            "paused": "yes: no requests are sent until `crawler resume`" if found["paused"] else "",
        }
    return "\n".join(f"{name + ':':<12}{printable(line)}" for name, line in lines.items() if line)


def _say_paths(found: Facts, host: str) -> str:
    if "files" in found["paths"]:
        return f"{found['paths']['files']}, links/{host}/{found['key']}"
    return f"{{htmls,links,errs}}/{host}/{found['key']}"


def _say_owner(owner: Facts) -> str:
    if owner["id"] is None:
        return "free: no worker owns it"
    machine = f" of machine {owner['machine']} on {owner['name']}" if owner["machine"] else ""
    seen = f", seen {owner['age']:,} s ago" if owner["age"] or owner["state"] == ALIVE else ""
    return f"owned by worker {owner['id']}{machine}, {owner['state']}{seen}"


def _say_state(found: Facts) -> str:
    if "record" in found:
        record = found["record"]
        page = f"{record['title'] or 'no title'}, {many(record['links'], 'link')}"
        more = f"to {record['redirect']}" if record["redirect"] else page
        return f"done {record['fetched']}: status {record['status']}, {more}, depth {record['depth']}"
    if "failure" in found:
        failure = found["failure"]
        detail = f" ({failure['detail']})" if failure["detail"] else ""
        return f"{failure['kind']} {failure['when']}: {failure['reason']}{detail}, attempts: {failure['attempts']}"
    if "waiting" not in found:
        return str(found["state"])
    waiting = found["waiting"]
    due = f"due in {waiting['seconds']:,} s ({waiting['due']})" if waiting["due"] else "due now"
    return f"waiting: depth {waiting['depth']}, attempt {waiting['attempt'] + 1}, {due}"


def _say_depth(found: Facts) -> str:
    if found["state"] != NEVER_SEEN:
        return ""
    limit = found["depth_limit"]
    reach = "at any distance" if limit is None else f"up to {limit:,} away"
    return f"unknown; links are followed {reach} from a seed"


def _say_robots(robots: Facts) -> str:
    if not robots["obeyed"]:
        return "not obeyed in this crawl"
    if robots["read"] is None:
        return f"not read yet; it is read first, as {robots['token']}"
    verdict = "allowed" if robots["allowed"] else "not allowed"
    delay = f", crawl-delay {robots['crawl_delay']:g} s" if robots["crawl_delay"] else ""
    return f"{verdict} for {robots['token']}{delay}; read {robots['read']}, status {robots['status']}"
