"""`crawler ls`, `cat`, `links` and `hosts`: what is in a store, for people and for pipes. They only read.

Not promised: what a running crawl changes meanwhile may be seen, or not.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from crawler import errors
from crawler.commands.arguments import Add, check_root, normalize_seed
from crawler.commands.explain.explain import candidates, explain
from crawler.commands.explain.fate import NEVER_SEEN, WAITING, Facts
from crawler.errors import NotThere
from crawler.frontier.queued import QueuedUrls
from crawler.store.reading import FILE
from crawler.store.records import links_of
from crawler.store.store import Store, file_of, find_host, open_store
from crawler.terminal import BOLD, DIM, RED, YELLOW, paint, size
from crawler.web import urls
from crawler.web.page import REDIRECTS
from crawler.web.reasons import kind as kind_of
from crawler.web.text import printable

KINDS_HELP = {
    "failed": "instead, URLs that failed: network, server, broken responses",
    "excluded": "instead, URLs excluded by robots.txt, private addresses, rules",
    "unwanted": "instead, URLs of other content types, or too big",
}
STATES = {WAITING: "it is waiting: ", NEVER_SEEN: "it was never seen: "}
COLOURS = {"failed": RED, "excluded": DIM, "unwanted": DIM}
SHARED = "/mnt/shared/crawl"


def commands(add: Add) -> None:
    """Add these commands to the program."""
    made = add("ls", list_pages, f"crawler ls {SHARED} example.org | cut -f4")
    made.add_argument("hosts", nargs="*", default=[], metavar="HOST", help="only of these hosts")
    which = made.add_mutually_exclusive_group()
    which.add_argument("-a", "--all", action="store_true", help="also redirects, sitemaps and URLs without a page")
    for kind, help in KINDS_HELP.items():
        which.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=help)
    made.add_argument("--json", action="store_true", help="a JSON line each: the record, its links as a number")
    made = add("cat", print_page, f"crawler cat {SHARED} https://example.org/ | wc -c")
    made.add_argument("url", metavar="URL", help="need not be normalized")
    made.add_argument("--json", action="store_true", help="its record, with the html in it")
    made = add("links", print_links, f"crawler links {SHARED} https://example.org/")
    made.add_argument("url", metavar="URL", help="need not be normalized")
    made.add_argument("--to", action="store_true", help="the pages that link to it instead; reads every record")
    made.add_argument("--json", action="store_true", help="its record; with --to a JSON line each, as of `ls`")
    made = add("hosts", print_hosts, f"crawler hosts {SHARED} --sort waiting | head")
    by = [*HostRow._fields[:-1], "host"]
    made.add_argument("--sort", choices=by, default="host", help="largest first (default: by name)")
    made.add_argument("--json", action="store_true", help="a JSON line each")


# ---- pages


def list_pages(options: Namespace) -> int:
    """`crawler ls`."""
    check_root(options.store, "ls")
    store = open_store(options.store)
    hosts: list[str | None] = [find_host(store, given) for given in options.hosts]
    for host in hosts or [None]:
        for found in filter(_is_sound, _listed(store, host, options)):
            print(_as_json(found) if options.json else _as_line(found))
    return errors.OVER


def _listed(store: Store, host: str | None, options: Namespace) -> Iterator[Facts]:
    """Yield the selected records and failure records, host by host."""
    if options.kind:
        yield from (found for found in store.failures(host) if kind_of(str(found.get("reason"))) == options.kind)
    elif options.all:
        for name in _known(store) if host is None else [host]:
            yield from store.records(name)
            yield from store.failures(name)
    else:
        yield from (page.record for page in store.pages(host))


def _is_sound(found: Facts) -> bool:
    """Return whether a record or failure record names a URL: it may have been made by hand."""
    return isinstance(found.get("url"), str) and urls.is_safe(found["url"])


def _as_line(found: Facts) -> str:
    """Return columns for cut, awk and sort: time, status or reason, bytes, URL, and a title, target or detail."""
    if "reason" in found:
        cells, more, colour = ("when", "reason", "", "url"), found.get("detail"), COLOURS[kind_of(str(found["reason"]))]
    elif found.get("sha224"):
        cells, more, colour = ("fetched", "status", "bytes", "url"), found.get("title") or file_of(found), ""
    else:
        cells, more, colour = ("fetched", "status", "bytes", "url"), _instead(found), YELLOW
    when, what, *rest = (printable(str(found.get(cell, "-"))) for cell in cells)
    return "\t".join([when, paint(what, colour) if colour else what, *rest, printable(str(more or ""))])


def _instead(record: Facts) -> str:
    """Return what a record without html is."""
    target = links_of(record)[:1]
    return f"-> {target[0]}" if record.get("status") in REDIRECTS and target else "sitemap"


def _as_json(found: Facts) -> str:
    """Return a record or failure record for jq: where its files are, and its number of links."""
    url, name = found["url"], file_of(found)
    more: Facts = {"links": len(links_of(found))} if "links" in found else {}
    if name:
        more["path"] = name
    if "reason" in found:
        more["kind"] = kind_of(str(found["reason"]))
    return json.dumps({**found, **more, "host": urls.host(url), "key": urls.key(url)})


# ---- one page


def print_page(options: Namespace) -> int:
    """`crawler cat`."""
    check_root(options.store, "cat")
    store = open_store(options.store)
    record = _find(store, options.url)
    if "file" in record and not options.json:
        return _print_file(store, record)
    html = store.text_bytes(record["url"])
    if options.json:
        print(json.dumps({**record, "html": None if html is None else html.decode("utf-8", "replace")}))
    elif html is None:
        raise NotThere(_why_no_html(store, record))
    elif sys.stdout.isatty():
        for line in html.decode("utf-8", "replace").splitlines():
            print(printable(line.expandtabs()))
    else:
        sys.stdout.buffer.write(html)
    return errors.OVER


def _print_file(store: Store, record: Facts) -> int:
    """Print the bytes of a file, but not on a terminal."""
    name = file_of(record)
    pieces = store.files.pieces(name) if name else None
    if pieces is None:
        raise NotThere(_why_no_html(store, record))
    if sys.stdout.isatty():
        what = f"{record['url']} is a file of type {record.get('type')}, {size(int(record.get('bytes') or 0))}"
        raise NotThere(
            printable(f"{what}, which no terminal can show: it is {store.root}/{name}; add `> FILE` to copy it")
        )
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    return errors.OVER


def print_links(options: Namespace) -> int:
    """`crawler links`."""
    check_root(options.store, "links")
    store = open_store(options.store)
    if options.to:
        return _print_links_to(store, options)
    record = _find(store, options.url)
    for line in [json.dumps(record)] if options.json else map(printable, links_of(record)):
        print(line)
    return errors.OVER


def _print_links_to(store: Store, options: Namespace) -> int:
    normalize_seed(options.url)
    wanted = candidates(options.url, store.settings())
    found = False
    for record in filter(_is_sound, store.records()):
        if not set(wanted).isdisjoint(links_of(record)):
            found = True
            print(_as_json(record) if options.json else record["url"])
    if not found:
        raise NotThere(f"no page in {store.root} links to {wanted[-1]}")
    return errors.OVER


def _find(store: Store, given: str) -> Facts:
    """Return the record of a URL that the user gave."""
    normalize_seed(given)
    for url in candidates(given, store.settings()):
        record = store.record(url)
        if record:
            return {**record, "url": url}
    found = explain(store, given)
    why = STATES.get(found["state"], "") + found["why"]
    reason = f" ({found['failure']['reason']})" if "failure" in found else ""
    raise NotThere(f"{found['url']} has no page in {store.root}: {why}{reason}")


def find_page(store: Store, given: str) -> Facts:
    """Return the record of a page that has html; NotThere with the reason if it has none."""
    record = _find(store, given)
    if not record.get("sha224") or "file" in record:
        raise NotThere(_why_no_html(store, record))
    return record


def _why_no_html(store: Store, record: Facts) -> str:
    url, target = record["url"], links_of(record)[:1]
    if record.get("status") in REDIRECTS and target:
        return f"{url} is a redirect and has no html; it leads to {target[0]}"
    if "file" in record and store.content_size(record) is not None:
        return f"{url} is a file of type {record.get('type')} and has no html; `crawler cat` prints its bytes"
    if "sitemap" in record:
        return f"{url} is a sitemap: only its links are kept, and `crawler links` prints them"
    what = "file" if "file" in record else "html"
    return f"the {what} of {url} is gone from {store.root}; remove its record and rehydrate to request it again"


# ---- hosts


class HostRow(NamedTuple):
    """What a host has: pages, failure records of any kind, waiting URLs, the bytes of its texts and files."""

    pages: int
    failures: int
    waiting: int
    bytes: int
    host: str


def print_hosts(options: Namespace) -> int:
    """`crawler hosts`."""
    rows: Iterable[HostRow] = _rows(open_store(options.store))
    if options.sort != "host":
        rows = sorted(rows, key=lambda row: (-getattr(row, options.sort), row.host))
    if sys.stdout.isatty() and not options.json:
        print(paint(_columns(HostRow._fields), BOLD))
    for row in rows:
        print(json.dumps(row._asdict()) if options.json else _columns(row))
    return errors.OVER


def _columns(cells: Iterable[object]) -> str:
    """Return cells with tabs between them; on a terminal, as wide as the longest heading."""
    line = "\t".join(map(str, cells))
    return line.expandtabs(12) if sys.stdout.isatty() else line


def _rows(store: Store) -> Iterator[HostRow]:
    """Yield each host that has a record, a failure record or a waiting URL, by name."""
    waiting = QueuedUrls(store)
    for _ in waiting.read(store.settings().shards):
        pass
    for host in sorted({*_known(store), *waiting.hosts()}):
        pages, stored = store.disk_use(host)
        yield HostRow(pages, store.count_failures(host), waiting.count(host), stored, host)


def _known(store: Store) -> list[str]:
    """Return the hosts that have a record or a failure record."""
    shapes = [item for noun in ("links", "errs") for item in store.files.shapes(noun).items()]
    return sorted({host for host, shape in shapes if shape != FILE and urls.is_host(host)})
