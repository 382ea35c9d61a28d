"""Make and write a store: pages, records, failure records, robots.txt and seeds."""

from __future__ import annotations

import secrets
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from crawler.errors import StoreError
from crawler.settings import settings as config
from crawler.settings.settings import Settings
from crawler.store import kept
from crawler.store.inboxes import MADE
from crawler.store.lock import Show, StoreLock
from crawler.store.mount import Files, no_check
from crawler.store.records import failure_record, to_json, utc
from crawler.store.store import (
    FOLDERS,
    FORMAT,
    KEY,
    REQUESTED,
    Robots,
    Store,
    check_store,
    fixed_settings,
    path_of,
    shard_name,
)
from crawler.store.stream import Stream
from crawler.web import urls
from crawler.web.page import Failure, Fetched, Reading

REPLACEMENT = "\ufffd".encode()  # in place of a NUL
MAKERS = 8  # shards that are made at the same time, because on a mount each operation has latency
PART = 2000  # names of a long listing that are read at once
NOT_HANDED_OVER = ".new"  # ends the name of a file of seeds until batches hold all of them
Item = TypeVar("Item")
README = """\
This folder is a web crawl, made and read by `crawler` (and by ls, grep, jq and rsync). htmls/<host>/<key> is a
page as UTF-8 text, files/<host>/<key>.<ext> one that is no text, byte for byte, links/<host>/<key> its record as JSON,
errs/<host>/<key> why a URL has no page; the key is the first 24 hex digits of sha224 of the URL. frontier/ holds the
URLs that are still waiting, shards/ and workers/ who works on them, robots/ each host's robots.txt, cookies/ what hosts
want to have sent back (for nobody else to read), seeds/ the URLs that the crawl was given, crawl.yaml its settings.
`crawler status` shows its progress; `crawler run` on any machine that mounts this folder resumes it.

"""


class Parts(Generic[Item]):
    """What may be millions, some at a time, so that nobody waits or needs memory for all of it; blocks.

    After an error of the mount it begins again: what was given comes a second time.
    """

    def __init__(self, read: Callable[[], Iterator[Item]]) -> None:
        self._read = read
        self._rest: Iterator[Item] | None = None

    def __iter__(self) -> Iterator[Item]:
        while part := self.next():
            yield from part

    def next(self) -> list[Item]:
        """Return the next part; an empty one after the last."""
        self._rest = self._read() if self._rest is None else self._rest
        try:
            return list(islice(self._rest, PART))
        except StoreError:
            self._rest = None
            raise


class StoreWriter(Store):
    """A store that machines and operators write; who may write which file is in manual/design.md."""

    def put_html(self, url: str, html: str | bytes, check: Callable[[], None] = no_check) -> None:
        """Write a page's text (see `encode`); its record comes after a sync. `check` as of `Files.put`."""
        data = encode(html) if isinstance(html, str) else html
        self.files.put(path_of("htmls", url), data, later=True, check=check)

    def put_file(self, url: str, leaf: str, body: bytes, check: Callable[[], None] = no_check) -> None:
        """Write the content of a page that is no text; its record comes after a sync. `check` as of `Files.put`."""
        self.files.put(f"files/{urls.host(url)}/{leaf}", body, later=True, check=check)

    def new_file(self, url: str) -> Stream:
        """Begin a file for the content of a page that is too large for memory."""
        return Stream(self.files, f"files/{urls.host(url)}")

    def put_record(self, url: str, record: bytes) -> None:
        """Write the record that makes a URL done: its html and the hand-over of its links must be on the disk."""
        self.files.put(path_of("links", url), record)

    def put_failure(self, url: str, failure: Failure, attempts: int, depth: int | None = None) -> None:
        """Write why a URL will not be requested again; `depth` is where it would be if it were."""
        record = failure_record(url, failure, attempts, depth, time.time())
        self.files.put(path_of("errs", url), to_json(record))

    def drop_failure(self, url: str) -> bool:
        """Remove a failure record, so that its URL may be requested again; False if there is none."""
        return self.files.drop(path_of("errs", url))

    def put_robots(self, host: str, robots: Robots) -> None:
        """Write a host's robots.txt after a comment line that says when it was read, and how long it is."""
        body = robots.body.replace(b"\0", REPLACEMENT)  # a NUL shows that the disk lost a part of it
        head = f"# read {utc(robots.read)} status {robots.status} bytes {len(body)}\n"
        self.files.put(f"robots/{host}", head.encode() + body, later=True)

    def drop_robots(self, host: str) -> bool:
        """Remove a host's robots.txt, so that it is requested again; False if there is none."""
        return self.files.drop(f"robots/{host}")

    def add_seeds(self, seeds: Iterable[str], name: str) -> None:
        """Write a file of seeds: they set the scope, and the frontier can be made again from them."""
        data = "".join(f"{seed}\n" for seed in seeds).encode()
        self.files.put(f"seeds/{name}", data)
        kept.keep_seeds(self.files, name.removesuffix(NOT_HANDED_OVER), data)

    def seeds_are_handed_over(self, name: str) -> None:
        """Rename a file of seeds, now that batches hold all of them."""
        self.files.claim(f"seeds/{name}", f"seeds/{name.removesuffix(NOT_HANDED_OVER)}")

    def keep_settings(self, settings: Settings) -> None:
        """Keep settings and seeds where a copy of htmls/, links/ and errs/ takes them along."""
        kept.keep(self.files, settings, {name.removesuffix(NOT_HANDED_OVER) for name in self.files.names("seeds")})

    # ---- from fresh listings, which a client gets by writing

    def past(self, is_wanted: Callable[[str], bool] = lambda host: True) -> Parts[tuple[str, int]]:
        """Return the wanted ones of all hosts that were requested and, as bits, in which folders of REQUESTED each is.

        One that is in several of them is there several times.
        """
        return Parts(lambda: self._past(is_wanted))

    def _past(self, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, int]]:
        for bit, folder in enumerate(REQUESTED):
            self.files.freshen(folder)
            for host in self.files.each_name(folder):
                if urls.is_host(host) and is_wanted(host):
                    yield host, 1 << bit

    def done_by_others(self, host: str, past: int) -> Parts[str] | None:
        """Return the keys in `done` from fresh listings of the folders in the host's `past`; they may be millions.

        None if a folder cannot be seen yet: a client may cache for many seconds that it does not exist, because it did
        not when it first looked.
        """
        for bit, folder in enumerate(("links", "errs")):
            if past & 1 << bit and not self.files.freshen(f"{folder}/{host}") and host in self.files.names(folder):
                return None
        folders = ("links", "errs") if past else ()
        return Parts(lambda: (key for it in folders for key in self._each_key(it, host)))

    def _each_key(self, folder: str, host: str) -> Iterator[str]:
        return (name for name in self.files.each_name(f"{folder}/{host}") if KEY.fullmatch(name))

    def is_made(self) -> bool:
        """Tell whether a complete store is here, for one who is about to make it: right on every mount."""
        self.files.freshen("")
        return "README" in self.files.names("") and self._readme_appears()

    # ---- making a store

    def make(self, settings: Settings, mark: str | None = None, check: Callable[[], object] = lambda: None) -> None:
        """Make a store around the pages that the folder may hold; the file `mark` is made before the store counts.

        `check` raises an error if another machine makes it meanwhile, because this one hung.
        """
        self.files.put("crawl.yaml", config.render(settings).encode())
        for folder in FOLDERS:
            self.files.make(folder)
        present = {name.partition("@")[0] for name in self.files.names("shards")}

        missing = [name for name in map(shard_name, range(settings.shards)) if name not in present]

        def make_shard(name: str) -> None:
            self.files.create(f"shards/{name}@free")

        if self.files.has_latency():
            with ThreadPoolExecutor(MAKERS) as threads:
                list(threads.map(make_shard, missing))
        else:
            list(map(make_shard, missing))
        self.files.create(MADE)
        if mark:
            self.files.create(mark)
        check()
        facts = {"format": FORMAT, "spelling": urls.NORMALIZATION, **fixed_settings(settings)}
        self.files.put("README", (README + "".join(f"{key}: {value}\n" for key, value in facts.items())).encode())

    @contextmanager
    def alone(
        self,
        what: str,
        settings: Settings,
        show: Show = lambda _: None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[StoreLock]:
        """Hold the store's lock while one machine does something short; not for ownership of shards."""
        lock = StoreLock(self.files, settings.heartbeat, settings.dead_after)
        with lock.held(what, show, is_stopped):
            yield lock


def encode(text: str) -> bytes:
    """Return a page's text as it is stored: UTF-8 without NULs, which make grep see a binary file."""
    return text.replace("\0", REPLACEMENT.decode()).encode("utf-8", "replace")


def encode_page(page: Fetched, reading: Reading) -> bytes:
    """Return a page as it is stored: a file byte for byte, text by `encode`, which changes nothing of plain UTF-8."""
    body = page.body
    # Faulty bytes were read as U+FFFD, and no other charset can look like this.
    is_plain = reading.charset == "utf-8" and "\ufffd" not in reading.text and b"\0" not in body
    if page.is_file or (is_plain and not body.startswith(BOM_UTF8)):
        return body
    return encode(reading.text)


def open_to_write(root: Path) -> StoreWriter:
    """Open an existing store of our format to write it; new files get the permissions of the store's folder."""
    store = check_store(StoreWriter(root, Files(root, secrets.token_hex(4))))
    store.files.share_mode()
    return store


def new_settings(given: dict[str, Any]) -> Settings:
    """Return the settings of a new store; without delay or a count per host, a host is spread over all workers."""
    settings = Settings(**given)
    counted = settings.max_per_host is not None or bool(settings.delays)
    spread = settings.delay == 0 and not counted and "spread" not in given
    return replace(settings, spread="url") if spread else settings
