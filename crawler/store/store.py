"""Read a store: pages, records, failure records, hosts; robots.txt, seeds and settings. `writer` writes it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import randrange
from typing import Any, NamedTuple, Protocol, TypeVar

from crawler.errors import Misshapen, NotThere, StoreAway, StoreError, UsageError
from crawler.settings import settings as config
from crawler.settings.settings import Settings
from crawler.store.kept import RESTORE, parse_stored
from crawler.store.mount import Files
from crawler.store.reading import FILE
from crawler.store.records import from_utc, html_hash, links_of
from crawler.store.reread import Reread
from crawler.web import urls
from crawler.web.text import masked

FORMAT = 1
KEY = re.compile("[0-9a-f]{24}")
MISSING_CACHED = 60.0  # seconds for which a client may cache that a name does not exist
MEASURED = 32  # files of a folder whose size is looked up
REQUESTED = ("links", "errs", "robots")  # where a host that was requested has left something
CONTENT = ("htmls", "files")  # where a page's content is: text, and everything else
FILE_NAME = re.compile(r"([0-9a-f]{24})\.[0-9a-z]{1,8}")
FOLDERS = ("htmls", "files", "links", "errs", "robots", "cookies", "seeds", "frontier", "shards", "workers")


class Robots(NamedTuple):
    """A host's robots.txt as it was last read; the body is empty for a host without rules."""

    read: float
    status: int
    body: bytes


class Texts(Protocol):
    """Where a page finds its html or its file."""

    @property
    def root(self) -> Path:
        """The store's folder."""

    def text(self, url: str, record: Mapping[str, Any] | None = None) -> str | None:
        """Return the html of a normalized URL, or None."""


@dataclass(frozen=True, slots=True)
class Page:
    """A stored page: its record, and its text, which is read when you use it."""

    url: str
    record: dict[str, Any] = field(repr=False)
    _store: Texts = field(repr=False)

    @property
    def html(self) -> str:
        """Its html or other text; empty if it is a file, or somebody has removed it."""
        return self._store.text(self.url, self.record) or ""

    @property
    def file(self) -> Path | None:
        """Where its content is, byte for byte, if it is no text; None for text."""
        name = file_of(self.record)
        return self._store.root / name if name else None

    @property
    def text(self) -> str:
        """What a reader sees of it, without markup, a line for each paragraph."""
        from crawler.web.visible import visible  # only this needs a parser

        return visible(self.html) if "html" in str(self.record.get("type") or "html") else self.html

    @property
    def host(self) -> str:
        """Its host: the name of its folder."""
        return urls.host(self.url)

    @property
    def fetched(self) -> datetime:
        """When it was fetched."""
        return datetime.fromtimestamp(from_utc(str(self.record.get("fetched"))), UTC)

    @property
    def key(self) -> str:
        """Its key: the name of its files."""
        return urls.key(self.url)

    @property
    def title(self) -> str:
        """Its title."""
        return str(self.record.get("title") or "")

    @property
    def links(self) -> list[str]:
        """The normalized URLs that it links to."""
        return links_of(self.record)


class Store:
    """Reads a crawl's folder, lazily: `Store(path).pages()` reads a page when you reach it."""

    def __init__(self, root: str | Path, files: Files | None = None) -> None:
        self.root = Path(root)
        self.files = files or Files(self.root)
        self._reread = Reread()
        self.unreadable = 0  # records and failure records that were listed and could not be read

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r})"

    def __len__(self) -> int:
        """Return how many pages are stored, from one listing for each host."""
        return sum(map(self.count_pages, self._hosts("htmls")))

    def __bool__(self) -> bool:
        """Return True: a store without pages is a store."""
        return True

    # ---- pages, records and failure records

    def hosts(self) -> list[str]:
        """Return the hosts that have a record, sorted."""
        return self._hosts("links")

    def pages(self, host: str | None = None) -> Iterator[Page]:
        """Return all pages, of one host or of all, in a stable order; redirects and sitemaps have only records.

        The host may be spelled in any way; NotThere if the store has nothing of it, UsageError if it is no host.
        """
        return self._pages(None if host is None else self._known(host))

    def _known(self, host: str) -> str:
        if urls.is_host(host) and self.changed(host):  # as the folder is called: no listing is needed
            return host
        self.hosts()  # or an error, if this is not a store
        return find_host(self, host)

    def _pages(self, host: str | None) -> Iterator[Page]:
        for record in self.records(host):
            url = record.get("url")
            if record.get("sha224") and isinstance(url, str) and urls.is_safe(url):
                yield Page(url, record, self)

    def page(self, url: str) -> Page | None:
        """Return the page of a URL, spelled in any way, or None; UsageError if it is no URL."""
        found = self._page_of(url) if urls.is_safe(url) else None
        return found or next(filter(None, map(self._page_of, self._spellings(url))), None)

    def _page_of(self, url: str) -> Page | None:
        return self._page(self.record(url), path_of("links", url))

    def _spellings(self, url: str) -> list[str]:
        """Return the normalized URLs that may be meant, as the crawl would request them."""
        settings = self.settings_or_defaults()[0]
        normalized = urls.normalize(url, tracking=settings.removed_parameters)
        if normalized is None:
            raise UsageError(f"{masked(url)!r} is not a valid URL: {urls.why_not(url)}")
        return [normalized, urls.without_session(normalized)] if "session" in settings.traps else [normalized]

    def records(self, host: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all records, of one host or of all, in a stable order; unreadable ones are passed over."""
        return self._all("links", host)

    def record(self, url: str) -> dict[str, Any] | None:
        """Return the record of a normalized URL, or None."""
        return self._json(path_of("links", url))

    def failures(self, host: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all failure records, in the same order."""
        return self._all("errs", host)

    def failure(self, url: str) -> dict[str, Any] | None:
        """Return the failure record of a normalized URL, or None."""
        return self._json(path_of("errs", url))

    def text(self, url: str, record: Mapping[str, Any] | None = None) -> str | None:
        """Return the text of a normalized URL's page, or None; one that its `record` is not about is looked at again.

        The record may be older than the text by then, so it is read again too.
        """
        data = self.text_bytes(url)
        if (data is None or record) and not _is_right((data, record or self.record(url))):
            data, _ = self._reread(lambda: (self.text_bytes(url), self.record(url)), _is_right)
        return None if data is None else data.decode("utf-8", "replace")

    def text_bytes(self, url: str) -> bytes | None:
        """Return the same as bytes of UTF-8, or None."""
        return self._get(path_of("htmls", url))

    def content_size(self, record: Mapping[str, Any]) -> int | None:
        """Return the bytes of a page's text or file without reading it, or None."""
        return self.files.size(file_of(record) or path_of("htmls", str(record.get("url"))))

    def text_size(self, url: str) -> int | None:
        """Return the bytes of a page's text without reading it, or None."""
        return self.files.size(path_of("htmls", url))

    # ---- by host and key

    def keys(self, folder: str, host: str) -> list[str]:
        """Return the keys that a host has in `htmls`, `files`, `links` or `errs`, sorted, from one listing."""
        with suppress(Misshapen):  # a link in place of a host's folder: the store's other hosts can be read
            return sorted(filter(None, map(key_of, self.files.names(f"{folder}/{host}"))))
        return []

    def read(self, folder: str, host: str, key: str) -> dict[str, Any] | None:
        """Return the record (`links`) or failure record (`errs`) with a key, or None."""
        return self._json(f"{folder}/{host}/{key}")

    def page_at(self, host: str, key: str) -> Page | None:
        """Return the page with a key that was listed; None for redirects, sitemaps, and bad or misplaced records."""
        name = f"links/{host}/{key}"
        return self._page(self._listed_json(name), name)

    def _page(self, record: dict[str, Any] | None, name: str) -> Page | None:
        url = record.get("url") if record else None
        if not record or not record.get("sha224") or not isinstance(url, str) or not urls.is_safe(url):
            return None
        return Page(url, record, self) if path_of("links", url) == name else None

    def changed(self, host: str, key: str = "") -> float:
        """Return when a record, or without a key any of a host's, was stored, by the mount's clock; 0 if it is gone."""
        return self.files.changed(f"links/{host}/{key}")

    def count_pages(self, host: str) -> int:
        """Return how many pages of a host are stored, from a listing of its texts and one of its files."""
        return sum(1 for folder in CONTENT for name in self.files.each_name(f"{folder}/{host}") if key_of(name))

    def count_failures(self, host: str) -> int:
        """Return how many failure records a host has, from one listing."""
        return len(self.keys("errs", host))

    def disk_use(self, host: str) -> tuple[int, int]:
        """Return how many pages of a host are stored, and the bytes of their texts and files, from two listings."""
        sizes: list[int] = []
        for folder in CONTENT:
            with suppress(Misshapen):
                sizes += [size for name, size in self.files.sizes(f"{folder}/{host}") if key_of(name)]
        return len(sizes), sum(sizes)

    def page_sizes(self, host: str) -> tuple[int, int]:
        """Return how many pages of a host are stored, and about how many bytes (of up to MEASURED of them, exactly)."""
        texts, files = self._measure("htmls", host), self._measure("files", host)
        return texts[0] + files[0], texts[1] + files[1]

    def stored_size(self, host: str) -> tuple[int, int]:
        """Return how many pages of a host are stored, and about how many bytes its pages and records have.

        Some of them are measured, so that a host of millions takes little longer than others.
        """
        texts, size = self._measure("htmls", host)
        files, more = self._measure("files", host)
        return texts + files, size + more + self._measure("links", host)[1]

    def _measure(self, folder: str, host: str) -> tuple[int, int]:
        """Return how many files a host has in a folder, and about how many bytes: a random sample is measured."""
        count, some = 0, list[str]()
        for count, name in enumerate(filter(key_of, self.files.each_name(f"{folder}/{host}")), 1):
            if count <= MEASURED:
                some.append(name)
            elif (place := randrange(count)) < MEASURED:
                some[place] = name
        measured = sum(self._size(f"{folder}/{host}/{name}") for name in some)
        return count, measured * count // max(len(some), 1)

    def _size(self, name: str) -> int:
        """Return the bytes of a file; 0 for what is none, such as a link to itself."""
        try:
            return self.files.size(name) or 0
        except StoreAway:
            raise
        except StoreError:
            return 0

    def requested_hosts(self) -> set[str]:
        """Return the hosts that were requested: they have left something."""
        return {host for folder in REQUESTED for host in filter(urls.is_host, self.files.names(folder))}

    def done(self, host: str) -> set[str]:
        """Return the keys of a host's records and failure records, from two listings."""
        return {*self.keys("links", host), *self.keys("errs", host)}

    def _all(self, folder: str, host: str | None) -> Iterator[dict[str, Any]]:
        for name in self._hosts(folder) if host is None else [host]:
            for key in self.keys(folder, name) or self._none():
                found = self._listed_json(f"{folder}/{name}/{key}")
                if found is not None:
                    yield found

    def _hosts(self, folder: str) -> list[str]:
        return sorted(filter(urls.is_host, self.files.names(folder))) or self._none()

    def _none(self) -> list[str]:
        """Return no names, or raise an error if there are none because this is not a store."""
        if not set(FOLDERS).intersection(self.files.names("")):
            raise StoreError(f"{self.root} is not a store: it has no links/ and no htmls/; give the store's folder")
        return []

    # ---- robots and seeds

    def robots(self, host: str) -> Robots | None:
        """Return a host's robots.txt as it was last read; None if there is none, or the disk has lost a part of it."""
        name = f"robots/{host}"
        data = self._reread(lambda: self._get(name), lambda data: data is None or _robots(data) is not None)
        return _robots(data or b"")

    def seeds(self, known: Iterable[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Yield each file of seeds and its URLs, leaving out the files already known."""
        for name in sorted(set(self.files.names("seeds")) - set(known)):
            lines = (self._get(f"seeds/{name}") or b"").decode("ascii", "replace").splitlines()
            yield name, [line for line in lines if urls.is_safe(line)]

    # ---- settings and format

    def settings(self) -> Settings:
        """Return the settings in crawl.yaml, checked against those the store was made with."""
        where = str(self.root / "crawl.yaml")
        data = self.files.get("crawl.yaml")
        if data is None:
            raise StoreError(f"{where} is missing; {RESTORE}")
        settings = Settings(**parse_stored(data, where))
        made = self._read_format()
        if "shards" not in made:
            raise StoreError(f"{self.root}/README cannot be read or has no settings; is the mount still there?")
        defaults = fixed_settings(Settings())  # of settings that are newer than the store
        for name, value in fixed_settings(settings).items():
            if made.get(name, defaults[name]) != value:
                raise UsageError(
                    f"{where}: {name} cannot change once the store is made; "
                    f"put back what {self.root}/README says ({made.get(name)})"
                )
        return settings

    def settings_or_defaults(self) -> tuple[Settings, str]:
        """Return the settings and ""; while crawl.yaml is invalid, the defaults and what is wrong with it."""
        try:
            return self.settings(), ""
        except StoreAway:
            raise
        except (StoreError, UsageError) as error:
            made = {"shards": self._read_format().get("shards", Settings().shards)}
            return Settings(**config.check(made, str(self.root / "README"))), str(error)

    def exists(self) -> bool:
        """Tell whether a complete store is here: its README is written last."""
        return self.files.get("README") is not None or ("README" in self.files.names("") and self._readme_appears())

    def _readme_appears(self) -> bool:
        """Wait for the README: one that another machine has just made may be listed long before it can be opened."""
        limit = time.monotonic() + MISSING_CACHED
        while self.files.get("README") is None:
            if time.monotonic() > limit:
                return False
            time.sleep(0.5)
        return True

    def check_format(self) -> None:
        """Raise an error if another version of the program made this store."""
        made = self._read_format()
        for name, ours in (("format", FORMAT), ("spelling", urls.NORMALIZATION)):
            if made.get(name) != str(ours):
                raise StoreError(
                    f"{self.root} has {name} {made.get(name, 'unknown')}, this program writes {name} {ours}; "
                    "use the version of the program that made it, or a new folder"
                )

    def _read_format(self) -> dict[str, str]:
        text = (self.files.get("README") or b"").decode("utf-8", "replace")
        return dict(re.findall(r"^(\w+): (.+)$", text, re.MULTILINE))

    def _listed_json(self, name: str) -> dict[str, Any] | None:
        """Return what `_json` does for a name that was listed: it is there, or was until just now."""
        found = self._reread(lambda: _parsed(self._get(name)), lambda found: found is not None)
        self.unreadable += found is None
        return found

    def _json(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file, or None; a part of one may be replaced just now."""
        data = self._reread(lambda: self._get(name), lambda data: data is None or _parsed(data) is not None)
        return _parsed(data)

    def _get(self, name: str) -> bytes | None:
        """Return the bytes of a file; None if there is none, or its name belongs to a folder, say."""
        with suppress(Misshapen):
            return self.files.get(name)
        return None


def _robots(data: bytes) -> Robots | None:
    """Parse a host's robots.txt; None if a part is missing, without which more would be allowed than the host allows.

    Only what older versions wrote does not say how many bytes there are.
    """
    head, _, body = data.partition(b"\n")
    found = re.fullmatch(rb"# read (\S+) status (\d+)(?: bytes (\d+))?", head)
    if not found or b"\0" in data or len(body) < int(found[3] or 0):
        return None
    return Robots(from_utc(found[1].decode()), int(found[2]), body)


def _parsed(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_right(found: tuple[bytes | None, Mapping[str, Any] | None]) -> bool:
    """Tell whether a text is the one that its record is about, as far as that says so."""
    data, record = found
    if record is None or "file" in record:
        return True
    return data is not None and record.get("html_sha224") in (None, html_hash(data))


Opened = TypeVar("Opened", bound=Store)


def open_store(root: Path, files: Files | None = None) -> Store:
    """Open an existing store of our format to read it."""
    return check_store(Store(root, files))


def check_store(store: Opened) -> Opened:
    """Return a store, or raise an error that says what is there instead."""
    root, shape = store.root, store.files.root_shape()
    if shape == FILE:
        raise StoreError(f"{root} is a file, not a folder; give the store's folder")
    if shape is None:
        raise StoreError(f"{root} does not exist; is the mount there? `crawler run {root} URL` makes a new store")
    if not store.exists():
        raise StoreError(f"{root} is not a store (it has no README of ours); `crawler run {root} URL` makes one")
    store.check_format()
    return store


def find_host(store: Store, given: str) -> str:
    """Return the host of the store that the user means, given as a name or a URL."""
    for scheme in ("http", "https"):  # each has another default port
        normalized = urls.normalize(given if "://" in given else f"{scheme}://{given}/", tracking=())
        if normalized is None or normalized != f"{urls.origin(normalized)}/":
            raise UsageError(f"{given!r} is not a host; give one such as example.org, or none for all of them")
        host = urls.host(normalized)
        if any(store.files.names(f"{folder}/{host}") for folder in ("links", "errs")):
            return host
    raise NotThere(f"{store.root} has nothing of {host}; `crawler hosts {store.root}` lists its hosts")


def key_of(name: str) -> str | None:
    """Return the key in the name of a page's text, file, record or failure record; None for other names."""
    if KEY.fullmatch(name):
        return name
    found = FILE_NAME.fullmatch(name)
    return found[1] if found else None


def file_of(record: Mapping[str, Any]) -> str | None:
    """Return the name in the store of the file that a record names; None if its page is text, or the name is not ours.

    People edit records, so the name is checked: it leads nowhere else.
    """
    url, leaf = record.get("url"), record.get("file")
    if not isinstance(leaf, str) or not isinstance(url, str) or not urls.is_safe(url):
        return None
    return f"files/{urls.host(url)}/{leaf}" if FILE_NAME.fullmatch(leaf) and key_of(leaf) == urls.key(url) else None


def path_of(folder: str, url: str) -> str:
    """Return the name of a URL's file in `htmls`, `links` or `errs`."""
    return f"{folder}/{urls.host(url)}/{urls.key(url)}"


def shard_name(number: int) -> str:
    """Return a shard's number as a folder name."""
    return f"{number:03d}"


def fixed_settings(settings: Settings) -> dict[str, str]:
    """Return the settings that cannot change once the store is made, as its README shows them."""
    return {name: config.show(getattr(settings, name)) for name in config.FIXED}
