"""What the web page of `serve` requests, each as a JSON value of bounded size.

Text from the web or from others' files is shortened and made printable here; the page shows it as plain text.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from crawler.commands.explain import explain
from crawler.commands.history import Outlook
from crawler.commands.serve import contents
from crawler.commands.serve.counts import Census, HostCount
from crawler.commands.serve.search import SEARCH, Finder
from crawler.errors import UsageError
from crawler.fleet.heartbeats import ENDED
from crawler.settings import settings as config
from crawler.settings.settings import Settings
from crawler.store.records import links_of
from crawler.store.store import Store
from crawler.web import urls
from crawler.web.reasons import REASONS, look_up
from crawler.web.reasons import kind as kind_of
from crawler.web.robots import Rules
from crawler.web.text import printable

ROWS = 50  # of a table at a time
LONGEST = 2000  # characters of any text but a page's
LINKS = 500  # of a record that are shown
TEXT = 200_000  # characters of a page that are shown as text
DRAWN = 1_000_000  # and as a page
SEARCHED = 200  # characters of a search
PAST = 3  # machines that have ended and are shown
SORTS = ("pages", "failures", "bytes", "failed", "waiting", "host")
NOUNS = {"pages": "links", "failures": "errs"}
# Elements of a drawn page for which a browser connects to others before it applies any policy: Chromium does so for a
# frame that it will not load, for a link that is pressed, and for whatever `link` names.
QUIET = re.compile(r"<(?=(?:a|area|base|form|i?frame|link|meta)\b)", re.IGNORECASE)

Facts = dict[str, Any]
Query = dict[str, str]


class Html(str):
    """A page's own text, which is handed on as it is."""

    __slots__ = ()


class Views:
    """The views of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.census = Census(store, secrets.SystemRandom())
        self._outlook = Outlook(store)
        self._finder = Finder(store)

    def now(self) -> Facts:
        """Return the state of the crawl, and its history since this program began."""
        found = self._outlook.look()
        # The outlook keeps its points: what is added to one is there at the next look too.
        found["history"][-1].setdefault("failed", found["failed"])
        return found

    def in_short(self, found: Facts) -> Facts:
        """Return the same without most ended machines and workers: over weeks they become many."""
        past = [machine for machine in found["machines"] if machine["state"] == ENDED]
        past.sort(key=lambda machine: str(machine["started"]), reverse=True)
        return {
            **found,
            "machines": [machine for machine in found["machines"] if machine["state"] != ENDED] + past[:PAST],
            "past": len(past),
            "kinds": {reason: kind_of(reason) for reason in found["reasons"]},
            "workers": [worker for worker in found["workers"] if worker["state"] != ENDED],
        }

    def hosts(self, query: Query) -> Facts:
        """Return a part of the hosts that match a search, sorted; those not counted yet come last."""
        search = _search(query).lower()
        known = self.census.hosts()
        found = [host for host in known if search in host]
        sort, up = _choice(query, "sort", SORTS), _choice(query, "order", ("down", "up")) == "up"
        if sort == "host":
            found.sort(reverse=up)
        else:
            counts, unknown = self.census.counts(), math.inf if up else -1
            values = {host: _known(counts.get(host), sort, unknown) for host in found}
            found.sort(key=values.__getitem__, reverse=not up)
        shown, place = _part(found, query)
        delay = self._delays()
        rows = [{**self._of_host(host, self.census.count(host)), "delay": delay(host)} for host in shown]
        return {**place, "rows": rows, "counted": min(self.census.counted, len(known)), "known": len(known)}

    def host(self, query: Query) -> Facts:
        """Return a part of the pages or failure records of a host, in the order of their keys.

        Those that a search finds come as far as they are found in a moment: `after` says where to go on.
        """
        host = query.get("host", "")
        if not urls.is_host(host):
            raise UsageError(f"{host!r} is not a host name; choose one of the list")
        noun, search = NOUNS[_choice(query, "what", tuple(NOUNS))], _search(query)
        count = self.census.count(host) if search else self.census.look(host)  # a search is to take its second alone
        facts = {**self._of_host(host, count), "delay": self._delays()(host)}
        if search:
            read, place = self._finder.find(noun, host, search, query.get("after", ""), ROWS)
            return {**facts, **place, "rows": [_row(found) for found in read]}
        keys, place = _part(self.store.keys(noun, host), query)
        rows = [_row(found) for key in keys if (found := self.store.read(noun, host, key)) is not None]
        return {**facts, **place, "rows": rows}

    def _of_host(self, host: str, count: HostCount) -> Facts:
        """Return the numbers of a host; waiting URLs that were not counted may be known from its worker."""
        live = self._outlook.paces.get(host)
        waiting = live["waiting"] if count.waiting is None and live else count.waiting
        return {"host": host, **count._asdict(), "waiting": waiting, "estimated": count.estimated()}

    def _delays(self) -> Callable[[str], float]:
        """Return what tells the seconds between two requests to a host: its worker, or settings and robots.txt."""
        settings, _ = self.store.settings_or_defaults()

        def delay(host: str) -> float:
            live = self._outlook.paces.get(host)
            if live:
                return float(live["delay"])
            robots = self.store.robots(host) if settings.robots else None
            wanted = Rules(robots.body, settings.user_agent).delay if robots else 0.0
            return config.delay_for(settings, host, wanted)

        return delay

    def failures(self, query: Query) -> Facts:
        """Return failure records of a reason, from where the last search ended; `after` is None at the end."""
        reason, after = query.get("reason", ""), query.get("after", "")
        limit = time.monotonic() + SEARCH
        rows: list[Facts] = []
        meaning = _meaning(reason)
        for host, key in self._failed_after(after):
            failure = self.store.read("errs", host, key)
            if failure and reason in ("", failure.get("reason")):
                rows.append(_row(failure))
            if len(rows) == ROWS or time.monotonic() > limit:
                return {"rows": rows, "meaning": meaning, "after": f"{host}/{key}"}
        return {"rows": rows, "meaning": meaning, "after": None}

    def _failed_after(self, place: str) -> Iterator[tuple[str, str]]:
        first, _, last = place.partition("/")
        hosts = sorted(filter(urls.is_host, self.store.files.names("errs")))
        for host in hosts[bisect_left(hosts, first) :]:
            for key in self.store.keys("errs", host):
                if host != first or key > last:
                    yield host, key

    def page(self, query: Query) -> Facts:
        """Return the record and the text of a URL, or its failure record, or what else became of it."""
        url = self._url(query)
        record = self.store.record(url)
        failure = None if record else self.store.failure(url)
        facts: Facts = {"url": url, "host": urls.host(url), "key": urls.key(url), "record": None, "failure": None}
        if record:
            links = links_of(record)
            shown = [{"url": link, "linked": urls.is_safe(link)} for link in links[:LINKS]]
            facts |= {"record": _plain(record), "kind": _kind(record), "links": shown, "link_count": len(links)}
            facts |= self._content(url, record)
        elif failure:
            reason = str(failure.get("reason"))
            facts |= {"failure": _plain(failure), "kind": kind_of(reason), "meaning": _meaning(reason)}
        else:
            told = explain.explain(self.store, query.get("url", ""))
            facts |= {"state": told["state"], "why": told["why"]}
        return facts

    def _content(self, url: str, record: Facts) -> Facts:
        """Return the text of a page, or what is known of the file that holds its content."""
        name = contents.name_of(url, record)
        if name is None:
            text = self.store.text(url)
        else:
            shown, size = contents.shown_as(record), self.store.files.size(name)
            file = {"name": name, "size": size, "shown": shown if size is not None else None}
            if shown != contents.TEXT or size is None:
                return {"file": file, "length": None, "text": ""}
            text = contents.start_of(self.store.files, name, 4 * TEXT)
            return {"file": file, "length": len(text), "text": Html(text[:TEXT])}
        return {"file": None, "length": None if text is None else len(text), "text": Html((text or "")[:TEXT])}

    def content(self, query: Query) -> contents.Content:
        """Return the file that holds a page's content: how it is named, shown and read."""
        url = self._url(query)
        return contents.open_content(self.store.files, url, self.store.record(url) or {})

    def drawn(self, query: Query) -> bytes:
        """Return a page's text for a sandboxed frame."""
        text = (self.store.text(self._url(query)) or "")[:DRAWN]
        return QUIET.sub("<x-", text).encode("utf-8", "replace")

    def settings(self, query: Query) -> Facts:
        """Return each setting of the crawl, without its secrets."""
        settings, plain = self.store.settings(), Settings()
        names = [item.name for item in fields(Settings)]
        rows = [
            {
                "name": name,
                "value": config.show_safely(getattr(settings, name)),
                "default": config.show_safely(getattr(plain, name)),
                "help": config.HELP[name],
            }
            for name in names
        ]
        return {"rows": rows}

    def _url(self, query: Query) -> str:
        """Return the URL of a query as the store has it: no other text becomes a file name."""
        given = query.get("url", "").strip()
        if urls.is_safe(given) and (self.store.record(given) or self.store.failure(given)):
            return given
        url = urls.normalize(given, tracking=self.store.settings().removed_parameters)
        if url is None:
            raise UsageError(f"{given[:LONGEST]!r} is not a valid URL: {urls.why_not(given)}")
        return url


def _search(query: Query) -> str:
    return query.get("search", "").strip()[:SEARCHED]


def _known(count: HostCount | None, column: str, unknown: float) -> float:
    found = None if count is None else getattr(count, column)
    return unknown if found is None else float(found)


def _choice(query: Query, name: str, allowed: tuple[str, ...]) -> str:
    """Return one of a few words; the first if none is given."""
    given = query.get(name, allowed[0])
    if given not in allowed:
        raise UsageError(f"{name} is {given!r}; it must be one of {', '.join(allowed)}")
    return given


def _part(items: list[str], query: Query) -> tuple[list[str], Facts]:
    """Return the items of one part of a table, and which part it is."""
    given = query.get("part", "0")
    if not re.fullmatch("[0-9]{1,9}", given):
        raise UsageError(f"part is {given!r}; it must be a whole number")
    parts = max(math.ceil(len(items) / ROWS), 1)
    part = min(int(given), parts - 1)
    return items[part * ROWS : (part + 1) * ROWS], {
        "part": part,
        "parts": parts,
        "size": ROWS,
        "total": len(items),
    }


def _row(found: Facts) -> Facts:
    """Return a record or a failure record as a row of a table."""
    plain = _plain(found)
    if "reason" in found:
        row = {name: plain.get(name) for name in ("url", "reason", "detail", "attempts", "when")}
        return {**row, "kind": kind_of(str(found["reason"]))}
    names = ("url", "title", "status", "fetched", "depth", "bytes", "type")
    return {**{name: plain.get(name) for name in names}, "kind": _kind(found), "links": len(links_of(found))}


def _meaning(reason: str) -> str:
    return look_up(reason).meaning if reason in REASONS or reason.startswith("http-") else ""


def _kind(record: Facts) -> str:
    if record.get("sha224"):
        return "file" if record.get("file") else "page"
    return "sitemap" if record.get("sitemap") else "redirect"


def _plain(found: Facts) -> Facts:
    """Return a file's single values and short lists: anybody may have written anything into it."""
    kept = {name: value for name, value in found.items() if name != "links"}
    return {name: _flat(value) for name, value in list(kept.items())[:50]}


def _flat(value: object) -> object:
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value[:20] if isinstance(item, str | int | float))
    return value if isinstance(value, str | int | float | None) else "?"


def clean(value: Any) -> Any:
    """Return a value with all text but a page's printable and short, and all numbers valid in JSON."""
    if isinstance(value, str):
        return value if isinstance(value, Html) else printable(value[:LONGEST])
    if isinstance(value, dict):
        return {clean(str(name)): clean(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
