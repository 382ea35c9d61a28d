"""`crawler explain`: what became of one URL, and which rule or failure decided. It only reads.

Not promised: what was handed over in the last seconds may be in no batch yet, a mount may show an old listing, and
whether an owner is alive is judged by this machine's clock.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from itertools import chain

from crawler import errors
from crawler.commands.arguments import Add, check_root, what_is_wrong
from crawler.commands.explain.decision import decided, seeds_of
from crawler.commands.explain.fate import DONE, NEVER_REQUESTED, NEVER_SEEN, Facts, fate_of, next_visit, path_of
from crawler.commands.explain.sentences import as_text
from crawler.fleet import members
from crawler.fleet.control import is_paused
from crawler.fleet.shards import FREE, LOST, inboxes, read_owners
from crawler.frontier.batches import COMMON_SHARD
from crawler.frontier.scope import given_priority
from crawler.frontier.task import ROBOTS, SITEMAP, Task, shard_of
from crawler.settings import settings as config
from crawler.settings.regions import region_of_shard
from crawler.settings.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import utc
from crawler.store.store import Store, file_of, open_store
from crawler.web import urls
from crawler.web.page import GIVEN, PRIORITY
from crawler.web.robots import Rules, token


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
        places = [shard, inboxes(owners).get(shard, shard), COMMON_SHARD]
        fate = fate_of(store, url, places)
        if fate:
            break
    robots = _robots(store, settings, url)
    found = {
        "url": url,
        "changes": _changes(given, url, settings),
        "key": urls.key(url),
        "paths": {noun: path_of(noun, url) for noun in ("htmls", "links", "errs")} | _file_path(store, url),
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
    if settings.recrawl is not None and "record" in found:
        found["next_visit"] = next_visit(store.files, places, url)
    rule, why = decided(store, settings, found)
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
    seeds = (url for url in (Task.named(seed).url for seed in seeds_of(store)) if urls.host(url) == host)
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


def _file_path(store: Store, url: str) -> Facts:
    name = file_of(store.record(url) or {})
    return {"files": name} if name else {}


def _owner(files: Files, settings: Settings, names: set[str]) -> Facts:
    """Return who owns the shard, and whether its heartbeat is recent."""
    id = min(names, default=FREE)
    if id in (FREE, LOST):
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
