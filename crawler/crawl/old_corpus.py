"""An old corpus: a folder of the script that this program grew from, which is taken over once.

The script wrote htmls/<netloc>/<key>, links/<netloc>/<key> with a JSON list of URLs, and an empty errs/<netloc>/<key>
for what failed. Its key is the hash of a URL as the script spelled it, which cannot be turned back: the URL of a page
is known only if a link, a seed or the root of its host has this hash.

links/ and errs/ are moved to old/ first, whole, and stay there as they are. So a take-over that was interrupted is done
again from the beginning, with the same result; it is over when the store's README is written.

Not promised: the depth at which the script found a page. All old pages count as seeds: depth limits count from them.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from crawler.errors import Misshapen
from crawler.frontier.batches import in_parts
from crawler.frontier.rehydrate import Show
from crawler.settings.settings import Settings
from crawler.store import kept, local_disk
from crawler.store.mount import Files
from crawler.store.records import build_record, to_json
from crawler.store.store import KEY, path_of
from crawler.store.writer import StoreWriter, encode
from crawler.terminal import bar, many
from crawler.web import urls
from crawler.web.charset import decode
from crawler.web.page import Failure, Fetched, Reading, Unreadable

OLD = "old"  # the folder for what is not part of the store
REASON = "failed-before"
SAMPLE = 20  # files that are looked at to recognise an old corpus
NAME = re.compile("[0-9a-f]{24,56}")  # some versions of the script did not shorten the hash
SEEDS_AT_ONCE = 10_000
UTF8 = "text/html; charset=utf-8"
SCHEMA = """
PRAGMA journal_mode = OFF;
CREATE TABLE page(place TEXT PRIMARY KEY, htmls TEXT, links TEXT, errs TEXT, url TEXT, host TEXT) WITHOUT ROWID;
"""


def is_here(files: Files) -> bool:
    """Tell whether a folder that is no store yet holds an old corpus, or one whose take-over was interrupted."""
    if files.is_folder(f"{OLD}/links") or files.is_folder(f"{OLD}/errs"):
        return True
    lists = (_old_facts(files.get(name)) for name in _some(files, "links"))
    return any(facts is not None for facts in lists) or any(files.get(name) == b"" for name in _some(files, "errs"))


def _some(files: Files, noun: str) -> Iterator[str]:
    return islice((f"{noun}/{file}" for file in _files(files, noun)), SAMPLE)


def _files(files: Files, noun: str) -> Iterator[str]:
    """Yield `netloc/name` of all files of the script below a folder."""
    for netloc in sorted(files.names(noun)):
        with suppress(Misshapen):
            yield from (f"{netloc}/{name}" for name in files.each_name(f"{noun}/{netloc}") if NAME.fullmatch(name))


def _old_facts(data: bytes | None) -> tuple[str | None, list[Any]] | None:
    """Return the URL, if it is said, and the links of a file that the script wrote; None for any other file."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list):
        return None, found
    if isinstance(found, dict) and isinstance(found.get("links"), list) and "status" not in found:
        return str(found.get("url")), found["links"]
    return None


def take_over(store: StoreWriter, settings: Settings, seeds: Iterable[str], show: Show) -> None:
    """Make records and failure records from an old corpus; to be called under the store's lock, before it is made."""
    show(f"this folder was written by the script: taking over its pages; its links/ and errs/ stay in {OLD}/")
    _set_aside(store.files)
    with local_disk.named():
        TakeOver(store, settings, seeds).run(show)


def _set_aside(files: Files) -> None:
    files.make(OLD)
    for noun in ("links", "errs"):
        if not files.is_folder(f"{OLD}/{noun}"):
            files.move(noun, f"{OLD}/{noun}")
    files.close()  # folders that were open under their former names
    for noun in ("htmls", "links", "errs", "seeds"):
        files.make(noun)


class TakeOver:
    """The pages of an old corpus and their URLs: in a table on this machine's disk, because there may be many."""

    def __init__(self, store: StoreWriter, settings: Settings, seeds: Iterable[str]) -> None:
        from crawler.web import markup  # here: it loads slowly, and each run loads this module

        self._store, self._files, self._seeds = store, store.files, seeds
        self._tracking = settings.removed_parameters
        self._drops_sessions = "session" in settings.traps
        wants = markup.Wants(parser=settings.parser, tracking=frozenset(self._tracking))
        self._read = partial(markup.read, wants=wants)
        self._db = sqlite3.connect("", isolation_level=None)
        self._db.executescript(SCHEMA)
        self._count: Counter[str] = Counter()

    def run(self, show: Show) -> None:
        """Write all records, and say what was found."""
        self._db.execute("BEGIN")
        for folder in (f"{OLD}/htmls", "htmls", f"{OLD}/links", f"{OLD}/errs"):
            for file in _files(self._files, folder):
                self._note(folder.removeprefix(f"{OLD}/"), file)
        self._find_urls()
        self._db.execute("COMMIT")
        self._write_known()
        self._write_unknown()
        self._write_seeds()
        self._clear()
        self._files.sync([f"{noun}/{host}" for noun in ("htmls", "links", "errs") for host in self._files.names(noun)])
        show(self._summary())

    # ---- which page has which URL

    def _note(self, column: str, file: str) -> None:
        netloc, _, name = file.rpartition("/")
        insert = f"INSERT INTO page(place, {column}) VALUES (?, ?) ON CONFLICT(place) DO UPDATE SET {column} = ?"
        self._db.execute(insert, (f"{netloc}/{name[:24]}", file, file))

    def _find_urls(self) -> None:
        """Hash every URL that is known, and see which files have these hashes."""
        for seed in self._seeds:
            self._try(seed.partition("#")[0])
        for netloc in {*self._files.names("htmls"), *self._files.names(f"{OLD}/errs")}:
            for scheme in ("http", "https"):
                self._try(f"{scheme}://{netloc}/")
        (total,) = self._db.execute("SELECT count(*) FROM page WHERE links IS NOT NULL").fetchone()
        for file in bar(_files(self._files, f"{OLD}/links"), "old pages", total):
            url, links = self._list(file)
            for link in (url, *links):
                if isinstance(link, str) and "://" in link:
                    self._try(link)

    def _try(self, link: str) -> None:
        """Give the files of a URL, however the script spelled it, their URL."""
        for spelled in _spellings(link, urls.normalize(link, tracking=self._tracking) or link):
            url = self._url(spelled) if self._is_wanted(_place(spelled)) else None
            if url is not None:
                update = "UPDATE page SET url = ?, host = ? WHERE place = ?"
                self._db.execute(update, (url, urls.host(url), _place(spelled)))

    def _is_wanted(self, place: str) -> bool:
        query = "SELECT 1 FROM page WHERE place = ? AND url IS NULL"
        return self._db.execute(query, (place,)).fetchone() is not None

    def _url(self, link: str) -> str | None:
        """Return a URL as the crawl would request it; None if it would not."""
        url = urls.normalize(link, tracking=self._tracking)
        return urls.without_session(url) if url and self._drops_sessions else url

    def _list(self, file: str | None) -> tuple[str | None, list[Any]]:
        found = _old_facts(self._files.get(f"{OLD}/links/{file}")) if file else None
        return found or (None, [])

    # ---- what becomes of them

    def _write_known(self) -> None:
        rows = self._db.execute("SELECT url, htmls, links, errs FROM page WHERE url IS NOT NULL ORDER BY url")
        same: list[tuple[str, str | None, str | None, str | None]] = []
        for row in rows:
            if same and row[0] != same[0][0]:
                self._write_page(same)
                same = []
            same.append(row)
        if same:
            self._write_page(same)

    def _write_page(self, rows: list[tuple[str, str | None, str | None, str | None]]) -> None:
        """Write the record of a URL; there are several rows if the script spelled it in several ways."""
        url, place = rows[0][0], path_of("htmls", rows[0][0])
        for file in filter(None, (html for _, html, _, _ in rows)):
            if f"htmls/{file}" != place:
                self._files.move(f"htmls/{file}", place if self._files.size(place) is None else f"{OLD}/twice/{file}")
        body = self._text(place)
        if body is None:
            if any(errs for *_, errs in rows):
                self._store.put_failure(url, Failure(url, REASON), 1, 0)
                self._count["failures"] += 1
            return
        lists = [self._list(links)[1] for _, _, links, _ in rows if links]
        links = self._normalized(link for found in lists for link in found) if lists else None
        self._put_record(place.removeprefix("htmls/"), url, body, links)
        self._count["pages"] += 1

    def _write_unknown(self) -> None:
        """Write records without a URL: if a link to such a page is found one day, its key tells that it is done."""
        for place, html, file in self._db.execute(
            "SELECT place, htmls, links FROM page WHERE url IS NULL AND htmls > ''"
        ):
            netloc, _, key = place.rpartition("/")
            if not urls.is_host(netloc) or not file or not KEY.fullmatch(key):
                self._files.move(f"htmls/{html}", f"{OLD}/htmls/{html}")
                self._count["aside"] += 1
                continue
            if html != place:
                self._files.move(f"htmls/{html}", f"htmls/{place}")
            links = self._normalized(self._list(file)[1])
            self._put_record(place, None, self._text(f"htmls/{place}") or b"", links)
            self._count["unknown"] += 1

    def _text(self, place: str) -> bytes | None:
        """Return a page's text; if it is not UTF-8 it becomes so, and what the script wrote is moved to old/."""
        body = self._files.get(place)
        if body is not None and _is_text(body):
            return body
        if body is not None:
            self._files.move(place, f"{OLD}/{place}")
        body = self._files.get(f"{OLD}/{place}")
        if body is None:
            return None
        text = encode(decode(body, "text/html")[0])
        self._files.put(place, text)
        return text

    def _put_record(self, place: str, url: str | None, body: bytes, links: list[str] | None) -> None:
        """Write a record; without a list of links, those that are read from the page count."""
        page = Fetched(url or f"http://{place}", 200, {"content-type": UTF8}, body)
        try:
            reading = self._read(page)
        except Unreadable:
            reading = Reading("", "utf-8", "", ())
        found = reading.links if links is None else tuple(links)
        when = next(filter(None, map(self._files.written, (f"{OLD}/htmls/{place}", f"htmls/{place}"))), time.time())
        record = build_record(page, reading._replace(links=found), 0, found, when, body)
        self._files.put(f"links/{place}", to_json(record | {"url": url}))

    def _normalized(self, links: Iterable[Any]) -> list[str]:
        spelled = (link for link in links if isinstance(link, str) and "://" in link)
        found = (urls.normalize(link, tracking=self._tracking) for link in spelled)
        return list(dict.fromkeys(filter(None, found)))

    def _clear(self) -> None:
        """Move folders away that have not the name of a host, such as that of Example.org:80; their pages are moved."""
        self._files.close()
        for number, netloc in enumerate(self._files.names("htmls")):
            if not urls.is_host(netloc):
                self._files.move(f"htmls/{netloc}", f"{OLD}/empty/{number}-{netloc}")

    def _write_seeds(self) -> None:
        """Put the hosts of the old pages into the scope: a page of each is a seed that is done."""
        query = "SELECT url, min(length(url)) FROM page WHERE url IS NOT NULL AND htmls > '' GROUP BY host"
        for part in in_parts((url for url, _ in self._db.execute(query)), SEEDS_AT_ONCE):
            self._store.add_seeds(part, kept.REDIRECT + urls.key("\n".join(part)))

    def _summary(self) -> str:
        count = self._count
        said = [f"taken over: {many(count['pages'], 'page')} and {many(count['failures'], 'failure')}"]
        if count["unknown"]:
            said.append(f"{many(count['unknown'], 'page')} whose URL no link and no seed names: their links count too")
        if count["aside"]:
            said.append(f"{many(count['aside'], 'file')} without URL or links moved to {OLD}/htmls")
        return "; ".join(said)


def _spellings(link: str, url: str) -> Iterator[str]:
    """Yield how the script may have spelled a URL: without fragment or query, with or without the last slash."""
    bare = link.partition("#")[0]
    found = dict.fromkeys((link, bare, bare.partition("?")[0], url, url.partition("?")[0]))
    yield from found
    yield from (name.removesuffix("/") if name.endswith("/") else f"{name}/" for name in found)


def _place(spelled: str) -> str:
    """Return where the script kept a URL, with its hash shortened."""
    try:
        netloc = urlsplit(spelled).netloc
    except ValueError:
        return ""
    return f"{netloc}/{hashlib.sha224(spelled.encode('utf-8', 'replace')).hexdigest()[:24]}"


def _is_text(body: bytes) -> bool:
    """Tell whether a page is as it would be stored: UTF-8 without NULs."""
    try:
        return "\0" not in body.decode("utf-8")
    except UnicodeDecodeError:
        return False
