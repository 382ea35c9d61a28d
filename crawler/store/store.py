"""The store: from noun to path to bytes. Pages, records, refusals, robots.txt, seeds; and how a store is made."""

from __future__ import annotations

import errno
import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler import settings as config
from crawler.errors import Busy, Misshapen, NotThere, StoreAway, StoreError, UsageError
from crawler.settings import Settings
from crawler.store.mount import Draft, Files
from crawler.store.records import from_utc, links_of, to_json, utc
from crawler.web import urls
from crawler.web.page import Failure

if TYPE_CHECKING:
    from filelock import SoftFileLock

FORMAT = 1
KEY = re.compile("[0-9a-f]{24}")
LOCK = ".lock"  # while one machine does what only one may do
NEW = ".new"  # seeds that no batch may hold yet
OLDEST = 60.0  # seconds for which a client may believe that a name is missing
PAST = ("links", "errs", "robots")  # where a host that was asked has left something
FOLDERS = ("htmls", "links", "errs", "robots", "seeds", "frontier", "shards", "workers")
README = """\
This folder is a web crawl, made and read by `crawler` (and by ls, grep, jq and rsync). htmls/<host>/<key> is a
page as UTF-8 text, links/<host>/<key> its record as JSON, errs/<host>/<key> why a URL was refused; the key is the
first 24 hex digits of sha224 of the URL. frontier/ holds what is still waiting, shards/ and workers/ who works on
it, robots/ each host's robots.txt, seeds/ what the crawl began with, crawl.yaml its settings. `crawler status` tells
how it stands; `crawler run` on any machine that mounts this folder goes on with it.

"""


@dataclass(frozen=True, slots=True)
class Robots:
    """A host's robots.txt as it was last read; no body for a host without rules."""

    read: float
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Page:
    """A page that is kept: its record, and its text when that is asked for."""

    url: str
    record: dict[str, Any] = field(repr=False)
    _store: Store = field(repr=False)

    @property
    def html(self) -> str:
        """Its text; nothing if somebody has removed it."""
        return self._store.html(self.url) or ""

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
        """What it links to, each in its one spelling."""
        return links_of(self.record)


class Store:
    """A crawl's folder: `Store(path)` reads it, and nothing before it is asked for; workers also write it."""

    def __init__(self, root: str | Path, files: Files | None = None) -> None:
        self.root = Path(root)
        self.files = files or Files(self.root)

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    # ---- pages

    def put_html(self, url: str, text: str) -> None:
        """Keep a page's text, as UTF-8 in which grep sees text; it is on the disk before its record is there."""
        self.files.put(self._path("htmls", url), text.replace("\0", "\ufffd").encode("utf-8", "replace"), later=True)

    def put_record(self, url: str, record: bytes) -> None:
        """Write the receipt that a URL is done: its html and the hand-over of its links came before."""
        self.files.put(self._path("links", url), record)

    def draft_record(self, url: str, record: bytes) -> Draft:
        """The same, to be published when those that come before it are on the disk."""
        return self.files.draft(self._path("links", url), record)

    def put_refusal(self, url: str, failure: Failure, attempts: int, depth: int | None = None) -> None:
        """Write why a URL will not be asked again; `depth` is where it would be if it were."""
        refusal = {
            "url": url,
            "reason": failure.reason,
            "detail": failure.detail,
            "attempts": attempts,
            "depth": depth,
            "when": utc(time.time()),
        }
        self.files.put(self._path("errs", url), to_json(refusal))

    def take_back(self, url: str) -> bool:
        """Remove a refusal, so that its URL may be asked again; False if there is none."""
        return self.files.drop(self._path("errs", url))

    def record(self, url: str) -> dict[str, Any] | None:
        """A page's record, or None."""
        return self._json(self._path("links", url))

    def refusal(self, url: str) -> dict[str, Any] | None:
        """Why a URL was refused, or None."""
        return self._json(self._path("errs", url))

    def html(self, url: str) -> str | None:
        """A page's text, or None."""
        data = self.html_bytes(url)
        return None if data is None else data.decode("utf-8", "replace")

    def html_bytes(self, url: str) -> bytes | None:
        """The same as it is in the file, or None."""
        return self._get(self._path("htmls", url))

    def size(self, url: str) -> int | None:
        """The bytes of a page's text, without reading it; None if there is none."""
        return self.files.size(self._path("htmls", url))

    def past(self) -> Iterator[tuple[str, int]]:
        """Each host that was asked before and, as bits, in which folders of PAST it is; from new listings."""
        for bit, noun in enumerate(PAST):
            self.files.freshen(noun)
            for host in filter(urls.is_host, self.files.names(noun)):
                yield host, 1 << bit

    def settled(self, host: str) -> set[str]:
        """The keys of a host's records and refusals, from two listings."""
        return {*self.keys("links", host), *self.keys("errs", host)}

    def done_by_others(self, host: str, past: int) -> set[str] | None:
        """The same from new listings of the folders that the host's `past` names; None if one cannot be seen yet.

        A client may believe for many seconds that a name is missing, because it was when it first asked.
        """
        for bit, noun in enumerate(("links", "errs")):
            if past & 1 << bit and not self.files.freshen(f"{noun}/{host}") and host in self.files.names(noun):
                return None
        return self.settled(host) if past else set()

    def kept(self, host: str) -> int:
        """How many pages of a host are kept, from one listing."""
        return len(self.keys("htmls", host))

    def refused(self, host: str) -> int:
        """How many URLs of a host are refused, from one listing."""
        return len(self.keys("errs", host))

    def keys(self, noun: str, host: str) -> list[str]:
        """The keys that a host has in `htmls`, `links` or `errs`, sorted, from one listing."""
        return sorted(filter(KEY.fullmatch, self.files.names(f"{noun}/{host}")))

    def found(self, noun: str, host: str, key: str) -> dict[str, Any] | None:
        """What stands in `links` or `errs` under a key of a host, or None."""
        return self._json(f"{noun}/{host}/{key}")

    def weight(self, host: str) -> tuple[int, int]:
        """How many pages of a host are kept, and the bytes of their files, from one listing."""
        sizes = [size for name, size in self.files.sizes(f"htmls/{host}") if KEY.fullmatch(name)]
        return len(sizes), sum(sizes)

    def hosts(self) -> list[str]:
        """The hosts that have a record, sorted; what else may lie there is passed over."""
        return self._hosts("links")

    def page(self, host: str, key: str) -> Page | None:
        """The page with this key; None for redirects, sitemaps, and what is unreadable or not in its place."""
        record = self._json(f"links/{host}/{key}") or {}
        url = record.get("url")
        if not record.get("sha224") or not isinstance(url, str) or not urls.is_safe(url):
            return None
        return Page(url, record, self) if self._path("links", url) == f"links/{host}/{key}" else None

    def changed(self, host: str, key: str = "") -> float:
        """When a record, or without a key any of a host's, came to its place, by the mount's clock; 0 if it is gone."""
        return self.files.changed(f"links/{host}/{key}")

    def records(self, host: str | None = None) -> Iterator[dict[str, Any]]:
        """All records, of one host or of all, in a stable order; unreadable ones are passed over."""
        return self._all("links", host)

    def pages(self, host: str | None = None) -> Iterator[Page]:
        """All pages, in the order of `records`; redirects and sitemaps have records, but are none."""
        for record in self.records(host):
            url = record.get("url")
            if record.get("sha224") and isinstance(url, str) and urls.is_safe(url):
                yield Page(url, record, self)

    def refusals(self, host: str | None = None) -> Iterator[dict[str, Any]]:
        """All refusals, in the same order."""
        return self._all("errs", host)

    def _all(self, noun: str, host: str | None) -> Iterator[dict[str, Any]]:
        for name in self._hosts(noun) if host is None else [host]:
            for key in self.keys(noun, name) or self._nothing():
                found = self._json(f"{noun}/{name}/{key}")
                if found is not None:
                    yield found

    def _hosts(self, noun: str) -> list[str]:
        """The hosts that have a folder, sorted."""
        return sorted(filter(urls.is_host, self.files.names(noun))) or self._nothing()

    def _nothing(self) -> list[str]:
        """No names; that there are none because this is no store, a reader must be told."""
        if not set(FOLDERS).intersection(self.files.names("")):
            raise StoreError(f"{self.root} is not a store: it has no links/ and no htmls/; name the store's folder")
        return []

    # ---- robots and seeds

    def put_robots(self, host: str, robots: Robots) -> None:
        """Keep a host's robots.txt; the first line says when it was read, as a comment."""
        head = f"# read {utc(robots.read)} status {robots.status}\n"
        self.files.put(f"robots/{host}", head.encode() + robots.body)

    def drop_robots(self, host: str) -> bool:
        """Forget a host's robots.txt, so that it is asked for anew; False if there is none."""
        return self.files.drop(f"robots/{host}")

    def robots(self, host: str) -> Robots | None:
        """A host's robots.txt as it was last read, or None."""
        head, _, body = (self._get(f"robots/{host}") or b"").partition(b"\n")
        found = re.fullmatch(rb"# read (\S+) status (\d+)", head)
        return Robots(from_utc(found[1].decode()), int(found[2]), body) if found else None

    def add_seeds(self, seeds: Iterable[str], name: str) -> None:
        """Remember what the crawl began with: it sets the scope, and no frontier is needed to begin again."""
        self.files.put(f"seeds/{name}", "".join(f"{seed}\n" for seed in seeds).encode())

    def seeds_are_handed_over(self, name: str) -> None:
        """Batches hold all the seeds of this file: it loses its mark."""
        self.files.claim(f"seeds/{name}", f"seeds/{name.removesuffix(NEW)}")

    def seeds(self, known: Iterable[str] = ()) -> Iterator[tuple[str, list[str]]]:
        """Each file of seeds and its URLs, leaving out the files already known."""
        for name in sorted(set(self.files.names("seeds")) - set(known)):
            lines = (self._get(f"seeds/{name}") or b"").decode("ascii", "replace").splitlines()
            yield name, [line for line in lines if urls.is_safe(line)]

    # ---- settings

    def settings(self) -> Settings:
        """The settings in crawl.yaml, checked against what the store was made with."""
        where = str(self.root / "crawl.yaml")
        data = self.files.get("crawl.yaml")
        if data is None:
            raise StoreError(f"{where} is missing; put it back, or remove README and run with all settings again")
        settings = Settings(**config.parse(data.decode("utf-8", "replace"), where))
        made = self._read_format()
        for name, value in _fixed(settings).items():
            if made.get(name) != value:
                raise UsageError(
                    f"{where}: {name} cannot change once the store is made; "
                    f"put back what {self.root}/README says ({made.get(name)})"
                )
        return settings

    def settings_at_hand(self) -> tuple[Settings, str]:
        """The settings; while crawl.yaml is not right, the usual ones, and a sentence about what is wrong with it."""
        try:
            return self.settings(), ""
        except StoreAway:
            raise
        except (StoreError, UsageError) as error:
            made = {"shards": self._read_format().get("shards", Settings().shards)}
            return Settings(**config.check(made, str(self.root / "README"))), str(error)

    def exists(self) -> bool:
        """Whether a whole store is here: its README is written last."""
        return self.files.get("README") is not None or ("README" in self.files.names("") and self._appears())

    def is_made(self) -> bool:
        """The same for one who is about to make it: from a new listing, which is right on every mount."""
        self.files.freshen("")
        return "README" in self.files.names("") and self._appears()

    def _appears(self) -> bool:
        """A README that another machine has just made may be listed for many seconds before it can be opened."""
        limit = time.monotonic() + OLDEST
        while self.files.get("README") is None:
            if time.monotonic() > limit:
                return False
            time.sleep(0.5)
        return True

    def make(self, settings: Settings, mark: str | None = None) -> None:
        """Make a new store around whatever pages the folder already holds; `mark` is made before it counts as made."""
        self.files.put("crawl.yaml", config.render(settings).encode())
        for folder in FOLDERS:
            self.files.make(folder)
        for number in range(settings.shards):
            self.files.make(f"frontier/{shard_name(number)}")
        present = {name.partition("@")[0] for name in self.files.names("shards")}
        for number in range(settings.shards):
            if shard_name(number) not in present:
                self.files.create(f"shards/{shard_name(number)}@free")
        if mark:
            self.files.create(mark)
        facts = {"format": FORMAT, "spelling": urls.NORMALIZATION, **_fixed(settings)}
        self.files.put("README", (README + "".join(f"{key}: {value}\n" for key, value in facts.items())).encode())

    @contextmanager
    def alone(self, what: str, seconds: float = 60) -> Iterator[None]:
        """One machine at a time for what is short and done by an operator; not for ownership of shards."""
        from filelock import SoftFileLock, Timeout  # here, because readers lock nothing and it takes long to load

        lock = SoftFileLock(self.root / LOCK)
        try:
            _acquire(lock, time.monotonic() + seconds)
        except Timeout as error:
            raise Busy(f"another machine is {what}; if none is, remove {lock.lock_file} and run again") from error
        except OSError as error:
            raise self.files.translate(error, LOCK) from error
        try:
            yield
        finally:
            lock.release()

    def check_format(self) -> None:
        """Stop at a store that another version of the program made."""
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

    def _json(self, name: str) -> dict[str, Any] | None:
        data = self._get(name)
        try:
            found = json.loads(data) if data else None
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def _get(self, name: str) -> bytes | None:
        """The bytes of a file; None if there is none, be it that something else has its name."""
        with suppress(Misshapen):
            return self.files.get(name)
        return None

    @staticmethod
    def _path(noun: str, url: str) -> str:
        return f"{noun}/{urls.host(url)}/{urls.key(url)}"


def _acquire(lock: SoftFileLock, limit: float) -> None:
    """Take a lock; sshfs says EPERM to all but one of those who make a name at the same moment."""
    while True:
        try:
            lock.acquire(timeout=max(limit - time.monotonic(), 0.0))
            return
        except PermissionError as error:
            if error.errno != errno.EPERM or time.monotonic() > limit:
                raise
            time.sleep(0.1)


def open_store(root: Path, files: Files | None = None) -> Store:
    """An existing store of our format, or one sentence about what is there instead."""
    store = Store(root, files)
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file, not a folder; name the store's folder")
    if not root.exists():
        raise StoreError(f"{root} does not exist; is the mount there? `crawler run {root} URL` makes a new store")
    if not store.exists():
        raise StoreError(f"{root} is not a store (it has no README of ours); `crawler run {root} URL` makes one")
    store.check_format()
    return store


def open_to_write(root: Path) -> Store:
    """The same for a command that writes: what it makes is as open to others as the store is."""
    store = open_store(root, Files(root, secrets.token_hex(4)))
    store.files.share_mode()
    return store


def find_host(store: Store, given: str) -> str:
    """A host of the store that the user gave in any spelling, as a URL too."""
    for scheme in ("http", "https"):  # each leaves out another port
        normalized = urls.normalize(given if "://" in given else f"{scheme}://{given}/", tracking=())
        if normalized is None or normalized != f"{urls.origin(normalized)}/":
            raise UsageError(f"{given!r} is not a host; give one such as example.org, or none for all of them")
        host = urls.host(normalized)
        if any(store.files.names(f"{noun}/{host}") for noun in ("links", "errs")):
            return host
    raise NotThere(f"{store.root} has no page and no refusal of {host}; `crawler hosts {store.root}` lists its hosts")


def new_settings(given: dict[str, Any]) -> Settings:
    """The settings of a new store: a host that needs no delay may be spread over all workers, if none must count it."""
    settings = Settings(**given)
    counted = settings.max_per_host is not None or bool(settings.delays)
    spread = settings.delay == 0 and not counted and "spread" not in given
    return replace(settings, spread="url") if spread else settings


def shard_name(number: int) -> str:
    """A shard's number as a folder name."""
    return f"{number:03d}"


def _fixed(settings: Settings) -> dict[str, str]:
    """What cannot change once the store is made, as its README says it."""
    return {name: config.show(getattr(settings, name)) for name in config.FIXED}
