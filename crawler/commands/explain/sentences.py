"""An explanation for people: short lines."""

from __future__ import annotations

from crawler.commands.explain.fate import NEVER_SEEN, Facts
from crawler.fleet.heartbeats import ALIVE
from crawler.store.store import shard_name
from crawler.terminal import many
from crawler.web import urls
from crawler.web.text import printable


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
            "next visit": _say_when(found["next_visit"]) if found.get("next_visit") else "",
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
    return f"waiting: depth {waiting['depth']}, attempt {waiting['attempt'] + 1}, {_say_when(waiting)}"


def _say_when(task: Facts) -> str:
    return f"due in {task['seconds']:,} s ({task['due']})" if task["due"] else "due now"


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
