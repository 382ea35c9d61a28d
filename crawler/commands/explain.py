"""Explain: what became of one URL, and which rule or refusal decided. It only reads, so it disturbs no crawl.

Not promised: what was handed over in the last seconds may be in no batch yet, a mount may show an old listing, and
an owner counts as alive by this machine's clock: nothing is written to find out more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from crawler import settings as config
from crawler.fetch.request import read_route
from crawler.fleet import members
from crawler.fleet.control import is_paused
from crawler.fleet.shards import FREE, inboxes, read_owners
from crawler.frontier.frontier import batches, from_lines
from crawler.frontier.scope import REDIRECT, Scope, bars
from crawler.frontier.task import Task
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import mark_of, utc
from crawler.store.store import Store, shard_name
from crawler.terminal import many
from crawler.web import addresses, urls
from crawler.web.page import REDIRECTS
from crawler.web.reasons import look_up
from crawler.web.robots import Rules, token
from crawler.web.text import printable

Facts = dict[str, Any]

SETTLED, WAITING, NEVER_SEEN, NEVER_ASKED = "settled", "waiting", "never seen", "never asked"
SHOWN = 5  # places of seeds that are named
# What the crawl itself asks on behalf of hosts.
MARKED = re.compile(r"#(?:sitemap(?:-[1-9])?|robots-of-[a-z0-9_.:\[\]-]+~[0-9a-f]+)\Z")
TRAPS = {
    "long": "it is longer than 1,000 characters",
    "repeat": "its path has one segment three times or more",
    "deep": "its path has more than 20 segments",
    "calendar": "it has a date far ahead, or a calendar's date long past",
}


def explain(store: Store, given: str) -> Facts:
    """All that the store knows of a URL, as a JSON value; nothing in it shows the userinfo that was given."""
    settings = store.settings()
    meant = spellings(given, settings)
    if not meant:
        return {"url": None, "state": NEVER_ASKED, "rule": "bad-url", "why": urls.why_not(given)}
    owners = read_owners(store.files, settings.shards)
    for url in meant:
        shard = urls.shard(url, settings.shards, settings.spread)
        fate = _fate(store, url, [shard, inboxes(owners).get(shard, shard)])
        if fate:
            break
    robots = _robots(store, settings, url)
    found = {
        "url": url,
        "changes": _changes(given, url, settings),
        "key": urls.key(url),
        "paths": {noun: _path(noun, url) for noun in ("htmls", "links", "errs")},
        "shard": shard,
        "owner": _owner(store.files, settings, owners.get(shard, set())),
        "paused": is_paused(store.files),
        **(fate or {"state": NEVER_SEEN}),
        "depth_limit": settings.depth,
        "robots": robots,
        "delay": config.delay_for(settings, urls.host(url), robots.get("crawl_delay", 0.0) if settings.robots else 0.0),
    }
    rule, why = _decided(store, settings, found)
    return {**found, "rule": rule, "why": why}


# ---- which URL is meant


def spellings(given: str, settings: Settings) -> list[str]:
    """The URLs that may be meant, none if it is never asked; the last one is what a link like this leads to."""
    normalized = urls.normalize(given, tracking=settings.tracking)
    if normalized is None:
        return []
    mark = MARKED.search(given)
    marked = [normalized + mark[0]] if mark else []
    bare = urls.without_session(normalized) if "session" in settings.traps else normalized
    return list(dict.fromkeys([*marked, normalized, bare]))


def _changes(given: str, url: str, settings: Settings) -> list[str]:
    """How the URL differs from what was given, in words."""
    if given == url:
        return []
    plain = urls.normalize(given, tracking=()) or ""
    differences = {
        "userinfo": re.match(r"\s*\w+:[/\\]*[^/\\?#]*@", given) is not None,
        "fragment": "#" in given and "#" not in url,
        "tracking parameters": plain != urls.normalize(given, tracking=settings.tracking),
        "session id": urls.without_session(plain) != plain and urls.without_session(url) == url,
    }
    return [f"without its {what}" for what, differs in differences.items() if differs] or ["as browsers spell it"]


# ---- what became of it


def _path(noun: str, url: str) -> str:
    return f"{noun}/{urls.host(url)}/{urls.key(url)}"


def _fate(store: Store, url: str, shards: Iterable[int]) -> Facts | None:
    """Settled or waiting, with the facts; None if neither. It may be settled just while we look for it."""
    shards = list(dict.fromkeys(shards))
    return _settled(store, url, shards) or _waiting(store.files, shards, url) or _settled(store, url, shards)


def _settled(store: Store, url: str, shards: list[int]) -> Facts | None:
    record, refusal = store.record(url), store.refusal(url)
    if record:
        return {"state": SETTLED, "record": _of_record(record)}
    if refusal:
        facts = {name: refusal.get(name) for name in ("reason", "detail", "attempts", "when")}
        again = _waiting(store.files, shards, urls.as_retry_task(url, mark_of(refusal))) is not None
        meaning = look_up(str(facts["reason"])).meaning
        return {"state": SETTLED, "refusal": {**facts, "meaning": meaning, "again": again}}
    broken = [path for path in (_path("links", url), _path("errs", url)) if store.files.get(path) is not None]
    return {"state": SETTLED, "broken": broken[0]} if broken else None


def _of_record(record: Facts) -> Facts:
    links = record.get("links")
    links = links if isinstance(links, list) else []
    redirect = links[0] if record.get("status") in REDIRECTS and links else None
    facts = {name: record.get(name) for name in ("status", "fetched", "title", "type", "bytes", "depth")}
    return {**facts, "links": len(links), "redirect": redirect}


def _waiting(files: Files, shards: Iterable[int], url: str) -> Facts | None:
    lines = [line for shard in shards for data in batches(files, shard) for line in _line_in(data, url)]
    tries = list(from_lines(b"".join(lines)))
    if not tries:
        return None
    task = max(tries, key=lambda task: (task.attempt, -task.depth))
    seconds = max(task.due - time.monotonic(), 0.0)
    due = utc(time.time() + seconds) if seconds else None
    waiting = {"depth": task.depth, "attempt": task.attempt, "due": due, "seconds": round(seconds)}
    return {"state": WAITING, "waiting": waiting}


def _line_in(data: bytes, url: str) -> Iterator[bytes]:
    """The line of a URL in a batch, its first four columns; not all lines are read as such: there may be a million."""
    needle = f"\t{url}".encode()
    at = max(data.find(needle + b"\n"), data.find(needle + b"\t"))
    if at < 0 and data.endswith(needle):
        at = len(data) - len(needle)
    if at >= 0:
        yield data[data.rfind(b"\n", 0, at) + 1 : at] + needle + b"\n"


def _owner(files: Files, settings: Settings, names: set[str]) -> Facts:
    """Who has the shard, and whether its pulse goes."""
    id = min(names, default=FREE)
    if id == FREE:
        return {"id": None, "state": FREE}
    worker = members.find(files, settings, id)
    return {name: worker[name] for name in ("id", "state", "age", "machine", "name", "unheeded")}


# ---- its host's manners


def _robots(store: Store, settings: Settings, url: str) -> Facts:
    """What robots.txt says of the URL, as it was last read."""
    facts: Facts = {"obeyed": settings.robots, "token": token(settings.user_agent), "read": None}
    known = store.robots(urls.host(url))
    if known is None:
        return facts
    rules = Rules(known.body, settings.user_agent)
    allowed = rules.allow(url.partition("#")[0])
    return {**facts, "read": utc(known.read), "status": known.status, "allowed": allowed, "crawl_delay": rules.delay}


# ---- which rule decided

Verdict = tuple[str | None, str]  # the name of the rule or refusal, and what it says


def _decided(store: Store, settings: Settings, found: Facts) -> Verdict:
    if "refusal" in found:
        again = "; it is asked again in its turn, as `crawler retry` said" if found["refusal"]["again"] else ""
        return found["refusal"]["reason"], f"it was refused: {found['refusal']['meaning']}{again}"
    if "broken" in found:
        return None, f"{found['broken']} cannot be read; remove it and rehydrate to have the URL asked again"
    if "record" in found:
        target = found["record"]["redirect"]
        return None, "it is a redirect; what became of its target is asked for apart" if target else "it was kept"
    kept_out = _never(store, settings, found["url"])
    if found["state"] == NEVER_SEEN:
        kept_out = kept_out or _not_followed(store, settings, found["url"])
    else:
        kept_out = kept_out or _left_out(settings, found["url"], found["waiting"]["depth"])
    kept_out = kept_out or _not_now(store, settings, found)
    if kept_out:
        return kept_out
    if found["state"] == WAITING:
        return None, "nothing keeps it out: it is asked when it is due and its host's pace allows"
    return None, f"nothing keeps it out, but no page that was read leads to it; `crawler add {store.root} URL` does"


def _never(store: Store, settings: Settings, url: str) -> Verdict | None:
    """What no request is made to, whoever asks for it."""
    host = urls.host(url)
    name, port = _name_and_port(url)
    if any(rule.host in (None, name) and rule.port in (None, port) for rule in map(read_route, settings.connect_to)):
        return None
    if port in addresses.BAD_PORTS:
        return "bad-port", f"port {port} is {look_up('bad-port').meaning}"
    free = settings.allow_private or settings.proxy or not addresses.names_private(host)
    if free or any(urls.host(seed) == host for seed in _seeds(store, named=True)):
        return None
    return "private-address", f"{look_up('private-address').meaning}, and so does a seed that spells it"


def _name_and_port(url: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.+?)(?::(\d+))?", urls.host(url))
    name, port = found.groups() if found else ("", None)
    return name.strip("[]"), int(port or addresses.DEFAULT_PORTS[url.partition(":")[0]])


def _seeds(store: Store, named: bool = False) -> Iterator[str]:
    """The seeds; only those that the user `named`, or also where their redirects led."""
    for name, seeds in store.seeds():
        if not (named and name.startswith(REDIRECT)):
            yield from seeds


def _not_followed(store: Store, settings: Settings, url: str) -> Verdict | None:
    """What keeps a link out of the crawl."""
    seeds = _seeds(store) if settings.scope != "any" else ()
    scope = Scope(settings.scope, seeds, settings.include, settings.exclude, settings.traps)
    rule = scope.refuses(url)
    if rule is None:
        return None
    if rule == "scope":
        return rule, f"it is outside the scope `{settings.scope}` of the seeds: {_some(scope.places)}"
    if rule in TRAPS:
        return rule, f"it looks like a trap: {TRAPS[rule]} (rule `{rule}` of the setting `traps`)"
    return rule, _barred(settings, url, rule)


def _barred(settings: Settings, url: str, rule: str) -> str:
    if rule == "include":
        return f"none of the include patterns is found in it: {_some(settings.include)}"
    pattern = next(pattern for pattern in settings.exclude if re.search(pattern, url))
    return f"the exclude pattern {pattern} is found in it"


def _left_out(settings: Settings, url: str, depth: int) -> Verdict | None:
    """What keeps a URL out that waits: patterns that were edited since it was found."""
    rule = bars(Scope("any", (), settings.include, settings.exclude), Task(url, depth))
    return (rule, f"{_barred(settings, urls.bare(url), rule)}: in its turn it is left out") if rule else None


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return (", ".join(islice(names, SHOWN)) or "none") + more


def _not_now(store: Store, settings: Settings, found: Facts) -> Verdict | None:
    """What would keep it out at its turn, as things stand."""
    if found["robots"].get("allowed") is False and settings.robots:
        return "robots", f"{look_up('robots').meaning}, as it was last read"
    if settings.max_per_host is not None:
        pages = store.kept(urls.host(found["url"]))
        if pages >= settings.max_per_host:
            return "max_per_host", f"its host has {many(pages, 'page')}, and max_per_host is {settings.max_per_host:,}"
    return None


# ---- for people


def as_text(found: Facts) -> str:
    """An explanation for people: short lines, and no control characters."""
    if found["url"] is None:
        lines = {"state": found["state"], "why": found["why"]}
    else:
        host = urls.host(found["url"])
        lines = {
            "url": found["url"],
            "spelled": ", ".join(found["changes"]),
            "key": found["key"],
            "paths": f"{{htmls,links,errs}}/{host}/{found['key']}",
            "shard": f"{shard_name(found['shard'])}, {_say_owner(found['owner'])}",
            "state": _say_state(found),
            "why": found["why"],
            "depth": _say_depth(found),
            "robots": _say_robots(found["robots"]),
            "delay": f"{found['delay']:g} s between requests to {host}",
            "settings": found["owner"].get("unheeded", ""),
            "paused": "yes: no host is asked until `crawler resume`" if found["paused"] else "",
        }
    return "\n".join(f"{name + ':':<10}{printable(line)}" for name, line in lines.items() if line)


def _say_owner(owner: Facts) -> str:
    if owner["id"] is None:
        return "free: nobody owns it"
    machine = f" of machine {owner['machine']} on {owner['name']}" if owner["machine"] else ""
    seen = f", seen {owner['age']:,} s ago" if owner["age"] or owner["state"] == members.ALIVE else ""
    return f"owned by worker {owner['id']}{machine}, {owner['state']}{seen}"


def _say_state(found: Facts) -> str:
    if "record" in found:
        record = found["record"]
        page = f"{record['title'] or 'no title'}, {many(record['links'], 'link')}"
        more = f"to {record['redirect']}" if record["redirect"] else page
        return f"settled {record['fetched']}: status {record['status']}, {more}, depth {record['depth']}"
    if "refusal" in found:
        refusal = found["refusal"]
        detail = f" ({refusal['detail']})" if refusal["detail"] else ""
        return f"settled {refusal['when']}: {refusal['reason']}{detail}, attempts: {refusal['attempts']}"
    if "waiting" not in found:
        return str(found["state"])
    waiting = found["waiting"]
    due = f"due in {waiting['seconds']:,} s ({waiting['due']})" if waiting["due"] else "due now"
    return f"waiting: depth {waiting['depth']}, attempt {waiting['attempt'] + 1}, {due}"


def _say_depth(found: Facts) -> str:
    if found["state"] != NEVER_SEEN:
        return ""
    limit = found["depth_limit"]
    reach = "however far they are" if limit is None else f"up to {limit:,} away"
    return f"not known of a URL that was never seen; links are followed {reach} from a seed"


def _say_robots(robots: Facts) -> str:
    if not robots["obeyed"]:
        return "not obeyed in this crawl"
    if robots["read"] is None:
        return f"not read yet; it is read first, as {robots['token']}"
    verdict = "allowed" if robots["allowed"] else "not allowed"
    delay = f", crawl-delay {robots['crawl_delay']:g} s" if robots["crawl_delay"] else ""
    return f"{verdict} for {robots['token']}{delay}; read {robots['read']}, status {robots['status']}"
