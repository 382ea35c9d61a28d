"""Make and write a store: pages, records, failure records, robots.txt and seeds."""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler import settings as config
from crawler.errors import Busy
from crawler.settings import Settings
from crawler.store.mount import Files
from crawler.store.records import failure_record, to_json, utc
from crawler.store.store import FOLDERS, FORMAT, Robots, Store, check_store, fixed_settings, path_of, shard_name
from crawler.web import urls
from crawler.web.page import Failure

if TYPE_CHECKING:
    from filelock import SoftFileLock

LOCK = ".lock"  # exists while one machine makes, repairs or rehydrates the store
REQUESTED = ("links", "errs", "robots")  # where a host that was requested has left something
NOT_HANDED_OVER = ".new"  # ends the name of a file of seeds until batches hold all of them
README = """\
This folder is a web crawl, made and read by `crawler` (and by ls, grep, jq and rsync). htmls/<host>/<key> is a
page as UTF-8 text, links/<host>/<key> its record as JSON, errs/<host>/<key> why a URL has no page; the key is the
first 24 hex digits of sha224 of the URL. frontier/ holds the URLs that are still waiting, shards/ and workers/ who
works on them, robots/ each host's robots.txt, seeds/ the URLs that the crawl was given, crawl.yaml its settings.
`crawler status` shows its progress; `crawler run` on any machine that mounts this folder resumes it.

"""


class StoreWriter(Store):
    """A store that machines and operators write; who may write which file is in manual/design.md."""

    def put_html(self, url: str, html: str | bytes) -> None:
        """Write a page's text (see `encode`); its record comes after a sync."""
        self.files.put(path_of("htmls", url), encode(html) if isinstance(html, str) else html, later=True)

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
        """Write a host's robots.txt after a comment line that says when it was read."""
        head = f"# read {utc(robots.read)} status {robots.status}\n"
        self.files.put(f"robots/{host}", head.encode() + robots.body, later=True)

    def drop_robots(self, host: str) -> bool:
        """Remove a host's robots.txt, so that it is requested again; False if there is none."""
        return self.files.drop(f"robots/{host}")

    def add_seeds(self, seeds: Iterable[str], name: str) -> None:
        """Write a file of seeds: they set the scope, and the frontier can be made again from them."""
        self.files.put(f"seeds/{name}", "".join(f"{seed}\n" for seed in seeds).encode())

    def seeds_are_handed_over(self, name: str) -> None:
        """Rename a file of seeds, now that batches hold all of them."""
        self.files.claim(f"seeds/{name}", f"seeds/{name.removesuffix(NOT_HANDED_OVER)}")

    # ---- from fresh listings, which a client gets by writing

    def past(self) -> Iterator[tuple[str, int]]:
        """Yield each host that was requested before and, as bits, in which folders of REQUESTED it is."""
        for bit, folder in enumerate(REQUESTED):
            self.files.freshen(folder)
            for host in filter(urls.is_host, self.files.names(folder)):
                yield host, 1 << bit

    def done_by_others(self, host: str, past: int) -> set[str] | None:
        """Return `done` from fresh listings of the folders in the host's `past`; None if one cannot be seen yet.

        A client may cache for many seconds that a folder does not exist, because it did not when it first looked.
        """
        for bit, folder in enumerate(("links", "errs")):
            if past & 1 << bit and not self.files.freshen(f"{folder}/{host}") and host in self.files.names(folder):
                return None
        return self.done(host) if past else set()

    def is_made(self) -> bool:
        """Tell whether a complete store is here, for one who is about to make it: right on every mount."""
        self.files.freshen("")
        return "README" in self.files.names("") and self._readme_appears()

    # ---- making a store

    def make(self, settings: Settings, mark: str | None = None) -> None:
        """Make a store around the pages that the folder may hold; the file `mark` is made before the store counts."""
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
        facts = {"format": FORMAT, "spelling": urls.NORMALIZATION, **fixed_settings(settings)}
        self.files.put("README", (README + "".join(f"{key}: {value}\n" for key, value in facts.items())).encode())

    @contextmanager
    def alone(self, what: str, seconds: float = 60) -> Iterator[None]:
        """Hold a lock while one machine does something short; not for ownership of shards."""
        from filelock import SoftFileLock, Timeout  # here: it loads slowly, and most runs need no lock

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


def encode(text: str) -> bytes:
    """Return a page's text as it is stored: UTF-8 without NULs, which make grep see a binary file."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")


def _acquire(lock: SoftFileLock, limit: float) -> None:
    """Acquire a lock; sshfs says EPERM to all but one of those who create a name at the same moment."""
    while True:
        try:
            lock.acquire(timeout=max(limit - time.monotonic(), 0.0))
            return
        except PermissionError as error:
            if error.errno != errno.EPERM or time.monotonic() > limit:
                raise
            time.sleep(0.1)


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
